"""Scripts that build the documentation."""
