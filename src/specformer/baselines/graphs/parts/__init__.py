r"""What the models for many graphs are made of, and how they see a batch."""
