"""The Triton kernels, each as a function with its own backward pass."""
