"""Learning which nodes of a graph are linked."""
