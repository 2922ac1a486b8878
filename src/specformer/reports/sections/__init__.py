"""The sections of a report: their tables, figures and words."""
