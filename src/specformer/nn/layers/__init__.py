"""What the models are made of: maps, norms, activations and sparse features."""
