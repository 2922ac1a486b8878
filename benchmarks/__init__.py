"""Speed, memory and size, measured from a checkout: ``make bench``, ``make walks``."""
