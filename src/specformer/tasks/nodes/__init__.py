"""Learning on the nodes of one graph."""
