"""The Triton kernels themselves, each a function with a gradient of its own."""
