r"""The paper's equations, literally and slowly: both models, for reading and for tests.

Dense and explicit throughout: attention is a softmax matrix over *all* eigenvalues, heads are a
Python loop, every basis is an n×n matrix, the combined bases are n×n×d, sums are loops. Nothing
here comes from the rest of the package, whose fast paths are compared with it. Equation numbers are
those of `the paper <https://arxiv.org/abs/2303.01028>`_.

A function takes the parameters of a module by their names (``module.state_dict()``, or a dict of
its parameters for gradients) and is differentiable in them. Dropout is left out.

Example:
    >>> import torch, specformer as sf
    >>> spectrum = sf.decompose(torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
    >>> model, x = sf.Specformer(8, 16, 3).eval(), torch.randn(4, 8)
    >>> given = (model.state_dict(), model.config, x, spectrum.eigenvalues, spectrum.eigenvectors)
    >>> bool((specformer(*given) - model(x, spectrum)).abs().max() < 1e-4)
    True
"""

from specformer.reference.graph_equations import (
    Molecule,
    combined_graph_bases,
    embed,
    graph_convolution,
    graph_specformer,
    pair_update,
    shared_rings,
)
from specformer.reference.node_equations import (
    attention_heads,
    attention_matrix,
    combined_bases,
    condensed_attention,
    convolution,
    encoder,
    encoder_block,
    encoding,
    layer_norm,
    linear,
    part,
    specformer,
    spectral_filter,
)

__all__ = [
    "Molecule",
    "attention_heads",
    "attention_matrix",
    "combined_bases",
    "combined_graph_bases",
    "condensed_attention",
    "convolution",
    "embed",
    "encoder",
    "encoder_block",
    "encoding",
    "graph_convolution",
    "graph_specformer",
    "layer_norm",
    "linear",
    "pair_update",
    "part",
    "shared_rings",
    "specformer",
    "spectral_filter",
]
