"""Layers that models are made of: linear maps, attention, norms and sparse features."""
