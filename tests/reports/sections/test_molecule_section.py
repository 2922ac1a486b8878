"""Pictures of learning from many graphs: one a data set, from the curves there are."""

from __future__ import annotations

import numpy as np
import pytest

from specformer.reports.findings import summary
from specformer.reports.sections import pictures
from specformer.reports.sections.blocks import Figure
from specformer.reports.sections.molecule_section import molecule_section
from specformer.reports.variants import Rows

CURVE = np.abs(np.random.default_rng(0).standard_normal((5, 2, 3))) + 0.1
ARRAYS = {"molecules/zinc/specformer/curve": CURVE, "molecules/hiv/specformer/curve": CURVE}


def entry(dataset: str, metric: str, **test) -> dict:
    reached = {"mean": 0.5, "ci95": None, "values": [0.5], **test}
    return {"dataset": dataset, "model": "specformer", "metric": metric, "test": reached}


def rows_of(entries, arrays) -> Rows:
    return Rows.of("molecules", {"molecules": entries}, arrays)


ENTRIES = [entry("zinc", "mae"), entry("hiv", "rocauc"), entry("other", "mae")]


@pytest.mark.parametrize("what", [(0, "training loss"), (2,)])
def test_one_picture_per_data_set_with_curves(what) -> None:
    found = list(pictures.by_epoch(rows_of(ENTRIES, ARRAYS), *what))
    assert len(found) == 2
    assert all([line.label for line in picture.key] == ["Specformer"] for picture in found)


def test_pictures_say_what_they_show() -> None:
    first, second = pictures.by_epoch(rows_of(ENTRIES, ARRAYS), 2)
    assert "zinc: validation MAE of Specformer by epoch" in first.svg
    assert "hiv: validation ROC-AUC of Specformer by epoch" in second.svg


def test_the_finding_is_the_figure() -> None:
    one = summary({"molecules": [entry("zinc", "mae", mean=0.0661)]})
    assert one == "On zinc, Specformer reaches a test MAE of 0.0661."
    runs = {"mean": 0.7889, "ci95": 0.0124, "values": [0.78, 0.8]}
    many = summary({"molecules": [entry("molhiv", "rocauc", **runs)]})
    assert many == "On molhiv, Specformer reaches a test ROC-AUC of 0.789 ± 0.012."
    joint = summary({"molecules": [entry("molhiv", "rocauc", **runs) | {"test_together": 0.794}]})
    assert joint == many[:-1] + "; the mean of its runs’ predictions has 0.794."


@pytest.mark.parametrize(("metric", "best"), [("mae", 0.2), ("rocauc", 0.8)])
def test_of_several_models_the_best_is_told(metric, best) -> None:
    rows = [entry("set", metric, mean=mean) | {"model": f"m{mean}"} for mean in (0.5, 0.2, 0.8)]
    named = {"mae": "MAE", "rocauc": "ROC-AUC"}[metric]
    text = f"On set, m{best} has the best test {named} of {best:.3f}."
    assert summary({"molecules": rows}) == text


def test_recipes_of_a_model_have_a_line_each() -> None:
    recipes = [entry("zinc", "mae") | {"recipe": recipe} for recipe in ("paper", "best")]
    arrays = {f"molecules/zinc/specformer ({row['recipe']})/curve": CURVE for row in recipes}
    (picture,) = pictures.by_epoch(rows_of(recipes, arrays), 0, "training loss")
    assert [line.label for line in picture.key] == ["Specformer (paper)", "Specformer (best)"]


def outcome_of(classes: bool) -> np.ndarray:
    random = np.random.default_rng(1)
    measured = (random.random((30, 2)) < 0.5) if classes else random.random((30, 2))
    return np.stack([random.random((30, 2)), measured]).astype(np.float32)


def test_predictions_of_numbers_have_a_picture_a_model_and_target() -> None:
    rows = [entry("zinc", "mae") | {"model": name, "targets": ["a"]} for name in ("gin", "gcn")]
    arrays = {f"molecules/zinc/{name}/tested": outcome_of(False) for name in ("gin", "gcn")}
    found = [picture.svg for picture in pictures.predicted(rows_of(rows, arrays))]
    assert len(found) == 4
    assert "zinc · a: predictions of GIN over measured ones." in found[0]


def test_predictions_of_classes_have_a_picture_a_target() -> None:
    rows = [entry("hiv", "rocauc") | {"model": name} for name in ("gin", "gcn")]
    arrays = {f"molecules/hiv/{name}/tested": outcome_of(True) for name in ("gin", "gcn")}
    found = list(pictures.predicted(rows_of(rows, arrays)))
    assert len(found) == 2
    assert [line.label for line in found[0].key] == ["GIN", "GCN"]
    assert not list(pictures.predicted(rows_of(rows, {})))


@pytest.mark.parametrize(
    ("more", "raised"),
    [
        ({"targets": ["a", "b"]}, "raise the prediction,"),
        ({"classes": ["a", "b"]}, "raise the prediction,"),
        ({"classes": ["a", "b", "c"]}, "raise the score of the predicted class,"),
    ],
)
def test_drawn_graphs_say_of_which_target_they_are(more: dict, raised: str) -> None:
    drawn = {  # two graphs of two nodes each
        "names": np.array(["0", "1"]), "smiles": np.array(["", ""]), "told": np.ones((2, 2)),
        "worst": np.array([True, False]), "sizes": np.array([2, 2]),
        "edges": np.array([[0, 0], [1, 1]]), "num_edges": np.array([1, 1]),
        "contributions": np.ones(4),
    }  # fmt: skip
    arrays = {f"molecules/mine/specformer/drawn/{name}": array for name, array in drawn.items()}
    section = molecule_section(rows_of([entry("mine", "mae") | more], arrays))
    captions = {block.title: block.caption for block in section.blocks if isinstance(block, Figure)}
    for title in ("Largest errors", "Smallest errors"):
        assert ", of the first target. " in captions[title]
        assert raised in captions[title]


def test_filters_and_attention_of_ours() -> None:
    random = np.random.default_rng(2)
    arrays = {
        "molecules/zinc/specformer/eigenvalues": random.uniform(0, 2, 3000),
        "molecules/zinc/specformer/response": random.standard_normal((3000, 2)),
        "molecules/zinc/specformer/attention": np.full((2, 3, 3), 1 / 3),
        "molecules/hiv/specformer/attention": np.empty((0, 3, 3)),
    }
    (drawn,) = pictures.heads(rows_of(ENTRIES, arrays), points=True)
    assert "zinc: the response of each head of Specformer" in drawn.svg
    assert len(drawn.svg) < 500_000  # a part of the points
    (attention,) = pictures.attention(rows_of(ENTRIES, arrays))
    assert "Low draws on Low 0.33" in attention.svg


def test_attention_of_every_head() -> None:
    every = np.random.default_rng(3).dirichlet(np.ones(3), size=(2, 3))
    arrays = {"molecules/zinc/specformer/attention": every}
    found = list(pictures.attention(rows_of(ENTRIES, arrays), by_head=True))
    assert len(found) == len(every)
    for number, (picture, matrix) in enumerate(zip(found, every, strict=True), start=1):
        low = ", ".join(
            f"{band} {share:.2f}"
            for band, share in zip(("Low", "Medium", "High"), matrix[0], strict=True)
        )
        assert f"zinc, head {number}: Low draws on {low}; Medium draws on" in picture.svg


def test_a_band_without_eigenvalues_draws_on_none() -> None:
    alone = np.zeros((2, 3, 3))
    alone[:, 1, 1] = 1.0  # molecules of one atom
    arrays = {"molecules/zinc/specformer/attention": alone}
    (attention,) = pictures.attention(rows_of(ENTRIES, arrays))
    for words in ("Low has no eigenvalue; Medium draws on Low 0.00, Medium 1.00", "High has no"):
        assert words in attention.svg
