"""Draw what becomes of eigenvalues at ε = 1, 10 and 100: the paper's figure of their encoding.

    python examples/encode_eigenvalues.py

With a small ε most channels are constant over [0, 2] and tell no two eigenvalues apart.
"""

import torch

import specformer as sf
from specformer.reports.plots.spectral_plots import encoding_plot, save_png

values = torch.linspace(0, 2, 50)
encodings = {}
for epsilon in (1, 10, 100):
    encodings[epsilon] = sf.EigenvalueEncoding(64, epsilon)(values)[:, 1:].numpy()
    spread = encodings[epsilon].max(axis=0) - encodings[epsilon].min(axis=0)
    print(f"ε = {epsilon:3d}: {(spread > 0.1).sum()} of 64 channels vary by more than 0.1")
save_png(encoding_plot(values.numpy(), encodings), "encoding.png")
print("encoding.png shows them")
