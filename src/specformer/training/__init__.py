"""Loops, early stopping, recipes, metrics and run folders."""
