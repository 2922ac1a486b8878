"""Scores, losses and figures of links, against scikit-learn, PyTorch and OGB."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score
from torch.nn.functional import binary_cross_entropy_with_logits

from specformer.datasets import csbm
from specformer.datasets.link_splits import NonLinks, split_links
from specformer.training.evaluation.link_objectives import (
    LinkTask,
    link_figures,
    link_scores,
)

SPLIT = split_links(csbm(0.5, num_nodes=150, seed=0), "random-70-10-20", seed=0)
OUTPUTS = torch.randn(3, 150, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def task(metric: str = "rocauc") -> LinkTask:
    return LinkTask(torch.zeros(150, 4, dtype=torch.float64), SPLIT, 3, metric)


def test_scores_are_inner_products() -> None:
    pairs = torch.as_tensor(SPLIT.test)
    gram = OUTPUTS @ OUTPUTS.mT
    torch.testing.assert_close(link_scores(OUTPUTS, pairs), gram[:, pairs[0], pairs[1]])


def test_the_loss_is_the_cross_entropy_of_links_and_of_what_was_drawn() -> None:
    objective = task()
    torch.manual_seed(5)
    terms = objective.terms(OUTPUTS)
    found = (terms * objective.weights(terms)).sum(dim=(-2, -1))
    torch.manual_seed(5)
    links = torch.as_tensor(SPLIT.train)
    drawn = NonLinks(SPLIT.graph.adjacency).draw(links.shape[1])
    scores = link_scores(OUTPUTS, torch.cat([links, drawn], dim=1))
    labels = (torch.arange(scores.shape[1]) < links.shape[1]).double()
    for run in range(3):
        expected = binary_cross_entropy_with_logits(scores[run], labels)
        torch.testing.assert_close(found[run], expected)


def test_what_is_drawn_differs_by_epoch_and_is_no_training_link() -> None:
    others = NonLinks(SPLIT.graph.adjacency)
    first, second = others.draw(400), others.draw(400)
    assert not torch.equal(first, second)
    assert not SPLIT.graph.adjacency.toarray()[first[0], first[1]].any()


@pytest.mark.parametrize(
    ("metric", "judge"), [("rocauc", roc_auc_score), ("ap", average_precision_score)]
)
def test_evaluation_is_that_of_scikit_learn(metric, judge) -> None:
    chosen = task(metric)
    losses, figures = chosen.evaluate(OUTPUTS)
    for place, part in enumerate(("val", "test")):
        linked, other = (link_scores(OUTPUTS, pairs) for pairs in chosen.pairs(part))
        for run in range(3):
            scores = torch.cat([linked[run], other[run]])
            labels = np.arange(len(scores)) < linked.shape[1]
            assert float(figures[place, run]) == pytest.approx(judge(labels, scores))
            expected = log_loss(labels, scores.sigmoid())
            assert float(losses[place, run]) == pytest.approx(expected)


@pytest.mark.parametrize("k", [10, 50, 100])
def test_hits_are_those_of_ogb(k: int) -> None:
    evaluation = pytest.importorskip("ogb.linkproppred")
    rng = np.random.default_rng(k)
    linked, other = rng.normal(0.7, 1.0, 300), rng.normal(0.0, 1.0, 300).round(1)
    judge = evaluation.Evaluator("ogbl-collab")
    judge.K = k
    expected = judge.eval({"y_pred_pos": linked, "y_pred_neg": other})
    assert link_figures(linked, other)[f"hits@{k}"] == pytest.approx(expected[f"hits@{k}"])


def test_too_few_pairs_have_no_hits() -> None:
    assert link_figures(np.ones(20), np.zeros(20)) == {"rocauc": 1.0, "ap": 1.0, "hits@10": 1.0}
