"""Contestants: each recipe of a model is told from the others, and keeps its own arrays."""

from __future__ import annotations

import numpy as np
import pytest

from specformer.reports.looks import _LOOKS, look
from specformer.reports.variants import Rows, array_name, looks_of

PAIR = [{"model": "specformer", "recipe": recipe} for recipe in ("paper", "best")]


def test_a_recipe_is_told_where_a_model_has_several():
    alone = looks_of([{"model": "gcn", "recipe": "default"}, {"model": "specformer"}])
    assert alone == {("gcn", "default"): look("gcn"), ("specformer", ""): look("specformer")}

    several = looks_of([*PAIR, {"model": "gcn", "recipe": "default"}])
    assert [style.label for style in several.values()] == [
        "GCN",
        "Specformer (paper)",
        "Specformer (best)",
    ]
    assert [style.recipe for style in several.values()] == ["", "paper", "best"]


def test_an_entry_may_say_what_it_is_called():
    named = [PAIR[0] | {"label": "Small"}, PAIR[1]]
    assert [style.label for style in looks_of(named).values()] == [
        "Small",
        "Specformer (best)",
    ]
    (alone,) = looks_of(named[:1]).values()
    assert (alone.label, alone.recipe, alone.hue) == ("Small", "", look("specformer").hue)


def test_no_two_lines_of_a_hue_have_the_same_dashes():
    entries = [{"model": model, "recipe": recipe} for model in _LOOKS for recipe in "abcde"]
    looks = looks_of(entries).values()
    assert len({(style.hue, style.dashes) for style in looks}) == 5 * len(_LOOKS)


@pytest.mark.parametrize("model", ["specformer", "gcn", "my-model"])
def test_recipes_share_a_hue_and_differ_in_their_marks(model):
    looks = [look(model).by_recipe(recipe, number) for number, recipe in enumerate("abcde")]
    assert {style.hue for style in looks} == {look(model).hue}
    assert len({style.marker for style in looks}) >= 4
    assert len({style.dashes for style in looks}) == 5


def arrays_of(arrays, pair, what):
    """The arrays of the recipes on a data set, by the label of their looks."""
    rows = Rows.of("nodes", {"nodes": [{**each, "dataset": "a"} for each in pair]}, arrays)
    ((_, _, found),) = rows.found(what)
    return {style.label: array.item() for style, array in found.items()}


def test_arrays_go_to_their_own_recipe():
    arrays = {f"nodes/a/{array_name('specformer', recipe)}/x": np.array([recipe]) for recipe in
              ("best", "paper")}  # fmt: skip

    assert list(arrays_of(arrays, PAIR, "x").items()) == [
        ("Specformer (paper)", "paper"),
        ("Specformer (best)", "best"),
    ]
    assert arrays_of(arrays, PAIR, "y") == {}
    assert arrays_of(arrays, PAIR[1:], "x") == {"Specformer": "best"}


def test_a_bare_name_is_never_two_recipes():
    bare = {"nodes/a/specformer/x": np.zeros(1)}
    assert len(arrays_of(bare, PAIR, "x")) == 1
    beside = bare | {"nodes/a/specformer (best)/x": np.ones(1)}
    assert arrays_of(beside, PAIR, "x") == {"Specformer (paper)": 0, "Specformer (best)": 1}
