r"""The set-to-set filter: eigenvalues in, new eigenvalues out (paper §4.1 and §4.2)."""

from __future__ import annotations

from torch import Tensor

from specformer.nn.argument_checks import check_eigenvalues, check_filter
from specformer.nn.filter.decoder import DecoderKind, HeadsDecoder, JointDecoder
from specformer.nn.filter.encoder import SpectrumEncoder
from specformer.nn.filter.tokens import EigenvalueSet, encoded, grouped
from specformer.nn.layers.reset import Resettable
from specformer.spectrum import Keys


class SpectralFilter(Resettable):
    r"""Maps a set of eigenvalues to M sets of new eigenvalues, :math:`[q] \to [q, M]`.

    Args:
        hidden_channels, num_blocks: width d and depth of the Transformer.
        num_heads: M.
        decoder: ``"joint"`` or ``"heads"``, see :mod:`specformer.nn.filter.decoder`.
        dropout: inside the Transformer.
        epsilon: scale of the eigenvalue encoding.
        encoding: False shows the Transformer the bare eigenvalue, for ablations.
        attention: False makes it a filter of each eigenvalue by itself, for ablations.

    Example:
        >>> import torch
        >>> filt = SpectralFilter(hidden_channels=32, num_heads=4)
        >>> filt(torch.linspace(0, 2, 10)).shape
        torch.Size([10, 4])
    """

    def __init__(
        self,
        hidden_channels: int = 32,
        num_heads: int = 4,
        num_blocks: int = 1,
        *,
        decoder: DecoderKind = "joint",
        dropout: float = 0.0,
        epsilon: float = 100.0,
        encoding: bool = True,
        attention: bool = True,
    ) -> None:
        super().__init__()
        check_filter(num_heads, dropout, decoder, attention)
        self.hidden_channels, self.num_heads = hidden_channels, num_heads
        self.encoder = SpectrumEncoder(
            hidden_channels, num_heads, num_blocks, dropout, epsilon, encoding, attention
        )
        kind = JointDecoder if decoder == "joint" else HeadsDecoder
        self.decoder = kind(hidden_channels, num_heads)

    def forward(self, eigenvalues: Tensor) -> Tensor:
        """New eigenvalues ``[q, heads]`` for eigenvalues ``[q]`` in any order, repeats and all."""
        check_eigenvalues(eigenvalues, self.encoder.embedding.weight.dtype)
        tokens, index = grouped(eigenvalues)
        return self.decode(tokens, index=index)

    def decode(
        self, tokens: EigenvalueSet, landmarks: Keys | None = None, index: Tensor | None = None
    ) -> Tensor:
        """New eigenvalues ``[p, heads]`` of distinct eigenvalues with multiplicities, the tokens.

        With ``index`` ``[q]``, each eigenvalue's token, those of all eigenvalues, ``[q, heads]``.
        Under dropout equal eigenvalues then differ, as if attention had run over all of them.
        ``landmarks`` (:meth:`specformer.Spectrum.landmarks`) replace the tokens as attention's
        keys: O(p·b) instead of O(p²), to quadrature accuracy.
        """
        z, keys, weights, index = encoded(self.encoder, self.decoder, tokens, landmarks, index)
        new: Tensor = self.decoder(z, keys, weights)
        return new if index is None else new.index_select(-2, index)

    def extra_repr(self) -> str:
        return f"{self.hidden_channels}, num_heads={self.num_heads}"
