"""Measure speed, memory and code size in a checkout: ``make bench``, ``make walks``."""
