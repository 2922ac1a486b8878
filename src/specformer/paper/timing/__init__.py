"""Time and memory of training: how they are measured, recorded and shown; the overhead tables."""
