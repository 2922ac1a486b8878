"""Learning a filter from signals."""
