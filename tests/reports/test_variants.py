"""Contestants: each recipe of a model is told from the others, and keeps its own arrays."""

from __future__ import annotations

import numpy as np
import pytest

from specformer.reports.looks import _LOOKS, look
from specformer.reports.variants import array_name, arrays_of, variant_looks

PAIR = [{"model": "specformer", "recipe": recipe} for recipe in ("paper", "best")]


def test_a_recipe_is_told_where_a_model_has_several():
    alone = variant_looks([{"model": "gcn", "recipe": "default"}, {"model": "specformer"}])
    assert alone == {("gcn", "default"): look("gcn"), ("specformer", ""): look("specformer")}

    several = variant_looks([*PAIR, {"model": "gcn", "recipe": "default"}])
    assert [style.label for style in several.values()] == [
        "GCN",
        "Specformer (paper)",
        "Specformer (best)",
    ]
    assert [style.recipe for style in several.values()] == ["", "paper", "best"]


def test_an_entry_may_say_what_it_is_called():
    named = [PAIR[0] | {"label": "Small"}, PAIR[1]]
    assert [style.label for style in variant_looks(named).values()] == [
        "Small",
        "Specformer (best)",
    ]
    (alone,) = variant_looks(named[:1]).values()
    assert (alone.label, alone.recipe, alone.hue) == ("Small", "", look("specformer").hue)


def test_no_two_lines_of_a_hue_have_the_same_dashes():
    entries = [{"model": model, "recipe": recipe} for model in _LOOKS for recipe in "abcde"]
    looks = variant_looks(entries).values()
    assert len({(style.hue, style.dashes) for style in looks}) == 5 * len(_LOOKS)


@pytest.mark.parametrize("model", ["specformer", "gcn", "my-model"])
def test_recipes_share_a_hue_and_differ_in_their_marks(model):
    looks = [look(model).by_recipe(recipe, number) for number, recipe in enumerate("abcde")]
    assert {style.hue for style in looks} == {look(model).hue}
    assert len({style.marker for style in looks}) >= 4
    assert len({style.dashes for style in looks}) == 5


def test_arrays_go_to_their_own_recipe():
    looks = variant_looks(PAIR)
    paper, best = looks.values()
    arrays = {f"a/{array_name('specformer', recipe)}/x": np.array([recipe]) for recipe in
              ("best", "paper")}  # fmt: skip

    found = arrays_of(arrays, "a", PAIR, "x", looks)

    assert list(found) == [paper, best]
    assert [array[0] for array in found.values()] == ["paper", "best"]
    assert arrays_of(arrays, "a", PAIR, "y", looks) == {}
    assert list(arrays_of(arrays, "a", PAIR[1:], "x", looks)) == [best]


def test_a_bare_name_is_never_two_recipes():
    looks = variant_looks(PAIR)
    bare = {"a/specformer/x": np.zeros(1)}
    assert len(arrays_of(bare, "a", PAIR, "x", looks)) == 1
    beside = bare | {"a/specformer (best)/x": np.ones(1)}
    assert [float(array[0]) for array in arrays_of(beside, "a", PAIR, "x", looks).values()] == [
        0,
        1,
    ]
