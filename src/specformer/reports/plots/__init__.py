"""Pictures: arrays in, a Matplotlib figure, or an SVG, out."""
