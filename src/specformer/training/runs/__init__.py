"""A run's folder: checkpoints, progress, environment."""
