"""The spectra of many small graphs, and batches of them."""
