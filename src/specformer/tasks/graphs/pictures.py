r"""What a trained Specformer makes of the spectra of some graphs, for a report."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from specformer.nn import GraphSpecformer
from specformer.nn.filter import SpectralFilter
from specformer.nn.inspection import band_of, condensed_attention
from specformer.spectrum import ManySpectra
from specformer.spectrum.distinct import distinct
from specformer.spectrum.many.spectra import Matrix

#: Graphs whose eigenvalues are drawn.
_DRAWN = 64


@torch.no_grad()
def filter_pictures(
    where: str, model: nn.Module, spectra: ManySpectra, graphs: np.ndarray, matrix: Matrix
) -> dict[str, np.ndarray]:
    r"""The first filter on the first of these graphs: frequencies, responses, condensed attention.

    Frequencies are the Laplacian's eigenvalues; those of the adjacency matrix are turned into
    :math:`1 - \mu`, so that small ones belong to smooth signals there too. Attention is condensed
    over the eigenvalues of all graphs together. Nothing for a model that has no filters.
    """
    if not isinstance(model, GraphSpecformer):
        return {}
    model.eval()
    filt = cast(SpectralFilter, model.filters[0])
    like = next(filt.parameters())
    frequencies, responses = [], []
    shares, mass = like.new_zeros(()), like.new_zeros(3)
    for graph in graphs[:_DRAWN]:
        values = spectra[int(graph)][0].to(like)
        tokens = distinct(values).tokens
        frequencies.append(_frequencies(values, matrix))
        responses.append(filt(values))
        own = _frequencies(tokens.values, matrix)
        condensed = condensed_attention(filt.encoder, tokens, frequencies=own)
        in_bands = nn.functional.one_hot(band_of(own), 3).to(like).mT @ tokens.weights
        shares, mass = shares + in_bands[:, None] * condensed, mass + in_bands
    return {
        f"{where}/eigenvalues": torch.cat(frequencies).cpu().numpy(),
        f"{where}/response": torch.cat(responses).cpu().numpy(),
        f"{where}/attention": (shares / mass.clamp_min(1.0)[:, None]).cpu().numpy(),
    }


def _frequencies(values: Tensor, matrix: Matrix) -> Tensor:
    return values if matrix == "laplacian" else (1 - values).clamp(0, 2)
