"""The paper's experiments, one module each, and their recipes."""
