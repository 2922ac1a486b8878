r"""The loss of training on links, and its evaluation, for all runs at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from specformer.datasets.link_splits import LinkSplit, NonLinks
from specformer.nn.layers.sparse_features import SparseFeatures
from specformer.training.engine.distributed import WHOLE, Share
from specformer.training.evaluation.node_objectives import average_precision, rocauc

#: Metrics that pick a model.
LINK_METRICS = ("rocauc", "ap")
#: The K of Hits@K.
_HITS = (10, 50, 100)


def link_scores(outputs: Tensor, pairs: Tensor) -> Tensor:
    r"""Log-odds of links, :math:`z_u^\top z_v`.

    Shapes: outputs ``[..., n, channels]``, pairs ``[2, count]`` to ``[..., count]``.
    """
    ends = (outputs.index_select(-2, end) for end in pairs)
    return torch.mul(*ends).sum(dim=-1)


@dataclass(frozen=True)
class LinkTask:
    """Features ``[n, in]``, a split of the links, and how many models learn from it."""

    x: Tensor | SparseFeatures
    split: LinkSplit
    runs: int
    metric: str
    #: All nodes: links train in one process.
    share: Share = WHOLE

    @cached_property
    def _learned(self) -> tuple[Tensor, NonLinks]:
        """The training links, and what draws other pairs; held-out links are not known here."""
        device = self.x.device
        others = NonLinks(self.split.graph.adjacency, device)
        return torch.as_tensor(self.split.train).to(device), others

    def terms(self, outputs: Tensor) -> Tensor:
        r"""The terms ``[R, 2E, 1]`` of the losses, which are sums of terms times :meth:`weights`.

        They are the cross-entropy of the training links and of as many other pairs, drawn in
        every epoch:

        .. math::
            \frac{1}{2E} \Bigl( \sum_{(u, v) \in E} \log(1 + e^{-z_u^\top z_v})
            + \sum_{(u, v) \notin E} \log(1 + e^{z_u^\top z_v}) \Bigr)

        All runs take the same pairs. The device's generator draws them; a run seeds it, and
        checkpoints keep its state.
        """
        links, others = self._learned
        drawn = others.draw(links.shape[1])
        linked, other = link_scores(outputs, links), link_scores(outputs, drawn)
        return softplus(torch.cat([-linked, other], dim=-1)).unsqueeze(-1)

    def weights(self, terms: Tensor) -> Tensor:
        """The gradient of the losses with respect to the :meth:`terms`."""
        return torch.full_like(terms, 1.0 / terms.shape[-2])

    @torch.no_grad()
    def evaluate(self, outputs: Tensor) -> Tensor:
        """Mean losses and figures over the pairs that validate and test.

        Shapes: outputs ``[R, n, channels]`` to ``[loss and figure, validation and test, R]``.
        """
        pairs, masks, signs = self._judged
        scores = link_scores(outputs, pairs)
        counted = masks.any(dim=1).unsqueeze(1)  # [parts, 1, pairs]
        losses = (softplus(signs * scores) * counted).sum(dim=-1) / counted.sum(dim=-1)
        shape = len(masks), len(scores), 1, -1
        links, others = (mask[:, None, None].expand(shape) for mask in masks.unbind(dim=1))
        judge = {"rocauc": rocauc, "ap": average_precision}[self.metric]
        figures = judge(scores.unsqueeze(1), links, others).squeeze(-1)
        return torch.stack([losses, figures.to(losses.dtype)])

    @cached_property
    def _judged(self) -> tuple[Tensor, Tensor, Tensor]:
        """Held-out pairs, by part and kind, links first, ``[2, 2, pairs]``, and signs of losses."""
        every = [*self.pairs("val"), *self.pairs("test")]
        pairs = torch.cat(every, dim=1)
        ends = torch.tensor([each.shape[1] for each in every]).cumsum(0)
        owner = torch.searchsorted(ends, torch.arange(pairs.shape[1]), right=True)
        masks = torch.stack([owner == place for place in range(len(every))])
        masks = masks.unflatten(0, (2, 2)).to(pairs.device)
        return pairs, masks, 1.0 - 2.0 * masks[:, 0].any(dim=0).float()

    def pairs(self, part: str) -> tuple[Tensor, Tensor]:
        """The links of a held-out part and its other pairs, ``[2, count]`` each."""
        linked, other = getattr(self.split, part), getattr(self.split, f"{part}_others")
        return torch.as_tensor(linked).to(self.x.device), torch.as_tensor(other).to(self.x.device)


def link_figures(linked: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """ROC-AUC, average precision and Hits@K from the scores of links and of other pairs.

    Hits@K is the share of links that score higher than the K-th best other pair (OGB); it is left
    out where there are fewer.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    scores = np.concatenate([linked, other])
    labels = np.arange(len(scores)) < len(linked)
    figures = {
        "rocauc": float(roc_auc_score(labels, scores)),
        "ap": float(average_precision_score(labels, scores)),
    }
    best = np.sort(other)[::-1]
    for k in _HITS:
        if k <= len(best):
            figures[f"hits@{k}"] = float(np.mean(linked > best[k - 1]))
    return figures
