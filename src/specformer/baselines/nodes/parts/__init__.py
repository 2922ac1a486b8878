r"""What the models for single graphs are made of, and how they see a graph."""
