r"""A spectrum over several processes, each of which has the eigenvectors' rows of its own nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from specformer.kernels.norms import Across, summed
from specformer.spectrum.spectrum import Spectrum


@dataclass(frozen=True, eq=False, repr=False)
class ShardedSpectrum(Spectrum):
    r"""All eigenvalues, and the rows :math:`U_r` of this process.

    A convolution is a local product, one sum over all processes of q × channels numbers, and a
    local product: :math:`y_r = U_r\,\mathrm{diag}(g) \sum_s U_s^\top x_s`. No neighbour's features
    are sent. Losses and gradients are those of a process's own nodes: their sums over all processes
    are those of the graph.

    Args:
        across: adds a tensor up over all processes, in place.
        all_nodes: nodes of the graph; ``num_nodes`` are those here.
    """

    across: Across = field(kw_only=True)
    all_nodes: int = field(kw_only=True)

    @property
    def is_complete(self) -> bool:
        return self.num_eigenpairs == self.all_nodes

    def gft(self, x: Tensor) -> Tensor:
        r"""The transform :math:`\sum_s U_s^\top x_s` of the whole graph's signal."""
        return summed(super().gft(x), self.across)

    def summary(self) -> dict[str, Any]:
        return {**super().summary(), "num_nodes": self.all_nodes}
