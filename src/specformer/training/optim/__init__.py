"""Schedules, optimisers, early stopping."""
