"""One loop per task."""
