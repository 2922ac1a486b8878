"""Learning from many small graphs."""
