"""What makes loops fast: capture, run axis, several processes, precision."""
