"""Every rule for a column of features, against the rule written out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specformer.datasets.feature_columns import PreparedColumn, fit_column
from specformer.errors import GraphError

NAN = np.nan


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_numbers_are_standardised_by_the_training_nodes() -> None:
    train = np.random.default_rng(0).normal(40, 12, 300).astype(np.float32)
    fitted = fit_column("age", train, None)
    assert (fitted.how, fitted.width) == ("standard", 1)
    others = column(40, 52, -300)
    expected = (others - train.mean()) / train.std()
    np.testing.assert_allclose(fitted.values(others, None)[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_heavy_tails_are_scaled_by_median_and_quartiles_and_cut() -> None:
    train = np.random.default_rng(0).normal(0, 1, 1000)
    outlier = np.append(train, 1e6).astype(np.float32)
    fitted = fit_column("income", outlier, None)
    assert fitted.how == "robust"
    found = fitted.values(outlier, None)[:, 0]
    assert found[-1] == 5.0
    assert found[:-1].std() == pytest.approx(1, abs=0.05)  # as if the outlier were not there
    assert fit_column("income", outlier, None, robust=False).how == "standard"
    assert fit_column("income", train.astype(np.float32), None).how == "standard"


def test_columns_that_may_not_be_the_ones_of_training_are_doubted() -> None:
    train = np.random.default_rng(0).normal(45, 29, 100).astype(np.float32)
    share = fit_column("share", train, None)  # in percent
    assert share.doubt(train[:50], None) is None
    assert share.doubt(train[:50] + 3 * 29, None) is None
    assert "around 0.4" in str(share.doubt(train[:50] / 100, None))  # as fractions
    assert "look at their unit" in str(share.doubt(train[:50] * 100, None))
    assert share.doubt(column(0.5, 0.6), None) is None  # two nodes may be alike
    assert share.doubt(column(7, *[NAN] * 30), None) is None
    assert str(share.doubt(column(NAN, NAN), None)).startswith("is missing everywhere")
    assert fit_column("age", column(1, 2, NAN), None).doubt(column(NAN), None) is None
    city = fit_column("city", column(*[0, 1] * 10), ("Graz", "Wels"))
    assert "not there in training, in 1 of 2 cells" in str(
        city.doubt(column(0, 1, NAN), ("Linz", "Wels"))
    )
    assert city.doubt(column(0, 1, NAN), ("Graz", "Wels")) is None
    city = fit_column("city", column(*[0, 1] * 10, 2), ("Graz", "Wels", "Linz"))
    assert city.others  # Linz is rare
    assert city.doubt(column(0, 1), ("Enns", "Wels")) is None
    assert "new, or were rare in training, in 2 cells" in str(
        city.doubt(column(0, 0, 1), ("Enns", "Wels"))
    )
    code = fit_column("code", column(*[0.1, 2] * 10), None, "category")
    assert code.doubt(column(0.1, 2), None) is None
    assert fit_column("bio", column(0, 1), ("a b", "c d"), "hash").doubt(column(NAN), None) is None


def test_mostly_equal_numbers_with_heavy_tails() -> None:
    """The quartile range is 0: that of the values which are not the median takes its place."""
    fitted = fit_column("posts", column(*[0] * 90, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1000), None)
    assert fitted.how == "robust"
    assert fitted.scale == pytest.approx(4.5 / 1.349)
    assert fitted.values(column(0, 1000), None).tolist() == [[0.0], [5.0]]


def test_amounts_among_many_zeros_are_not_cut_to_one_number() -> None:
    amounts = np.random.default_rng(0).lognormal(4, 2, 120).astype(np.float32)
    fitted = fit_column("donation", np.concatenate([np.zeros(280, np.float32), amounts]), None)
    assert fitted.how == "robust"
    assert fitted.centre == 0
    assert (np.abs(fitted.values(amounts, None)) >= 5).mean() < 0.2


def test_another_unit_is_doubted() -> None:
    size = replace(fit_column("size", column(1, 2, 3), None), unit="km")
    assert size.doubt(column(1, 2, 3), None, "km") is None
    assert size.doubt(column(1, 2, 3), None) is None
    assert size.doubt(column(1, 2, 3), None, "mi") == (
        "is in mi, but was in km in training; convert it"
    )


def test_zeros_and_ones_stay() -> None:
    fitted = fit_column("member", column(0, 1, 0, 0), None)
    assert fitted.how == "none"
    assert fitted.values(column(1, 0), None).tolist() == [[1.0], [0.0]]


def test_missing_numbers_take_the_training_median_and_are_marked() -> None:
    fitted = fit_column("age", column(1, 2, 9, NAN), None)
    assert (fitted.fill, fitted.marks_missing, fitted.width) == (2.0, True, 2)
    known = np.array([1.0, 2.0, 9.0])
    expected = [[(2 - known.mean()) / known.std(), 1], [(4 - known.mean()) / known.std(), 0]]
    np.testing.assert_allclose(fitted.values(column(NAN, 4), None), expected, rtol=1e-6)
    whole = fit_column("age", column(1, 2, 9), None)  # nothing to learn a mark's weight from
    assert whole.values(column(NAN), None).tolist() == whole.values(column(2), None).tolist()


def test_columns_of_one_value_are_left_out() -> None:
    assert fit_column("same", column(3, 3), None).width == 0
    assert fit_column("empty", column(NAN, NAN), None).width == 0
    assert fit_column("word", column(0, 0), ("Graz", "Linz")).width == 0
    marked = fit_column("often missing", column(3, NAN, 3), None)
    assert marked.values(column(7, NAN), None).tolist() == [[0.0], [1.0]]


def test_words_are_one_hot_with_rare_unseen_and_missing_ones() -> None:
    words = ("Graz", "Linz", "Rust", "Wels")
    train = column(*[0] * 5, *[3] * 4, 2, NAN, NAN)  # Rust is on one node, Linz on none
    fitted = fit_column("city", train, words)
    assert (fitted.words, fitted.others) == (("", "Graz", "Wels"), True)
    found = fitted.values(column(0, 3, NAN, 2, 1), words)
    expected = [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]]
    assert found.tolist() == expected
    elsewhere = fitted.values(column(0, 1), ("Wels", "Bonn"))  # another graph numbers its own
    assert elsewhere.tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]
    common = fit_column("city", column(0, 0, 1, 1), words)  # no weight is learned for others
    assert common.values(column(3, NAN), words).tolist() == [[0, 0], [0, 0]]


def test_numbers_may_be_categories() -> None:
    fitted = fit_column("zip", column(4020, 4020, 8010, 8010), None, "category")
    assert fitted.words == ("4020", "8010")
    assert fitted.values(column(8010), None).tolist() == [[0.0, 1.0]]
    assert fitted.values(column(0), ("8010",)).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("each", [1, 2])
def test_free_text_is_refused_with_what_to_do(each: int) -> None:
    words = tuple(f"about {number}" for number in range(30))
    train = column(*np.repeat(np.arange(30), each), *[0] * (each - 1))
    message = r"column 'bio' is free text, 30 different texts on .*--set columns\.bio=drop"
    if each == 1:
        with pytest.raises(GraphError, match=message):
            fit_column("bio", train, words)
    else:
        assert fit_column("bio", train, words).width == 30
    assert fit_column("bio", train, words, "drop").width == 0
    with pytest.raises(GraphError, match="column 'bio' holds words; prepare it as a category"):
        fit_column("bio", train, words, "standard")


def test_words_of_a_text_may_be_counted() -> None:
    words = ("red car", "a blue car", "blue", "")
    fitted = fit_column("bio", column(0, 1), words[:2], "hash")
    found = fitted.values(column(0, 1, 2, 3, NAN), words)
    assert found.shape == (5, fitted.width) == (5, 128)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 1, 0, 0], rtol=1e-6)
    assert found[0] @ found[1] == pytest.approx(0.5)  # one word of two in common
    assert found[1] @ found[2] == pytest.approx(0.5**0.5)
    assert found[0] @ found[2] == 0


def test_words_where_numbers_were_learned_from_are_refused() -> None:
    fitted = fit_column("age", column(1, 2, 9), None)
    with pytest.raises(GraphError, match="column 'age' holds words, but held numbers"):
        fitted.values(column(0), ("old",))


def test_what_is_asked_for_is_done() -> None:
    train = column(1, 2, 4, 9)
    assert fit_column("age", train, None, "none").values(train, None).ravel().tolist() == [
        1,
        2,
        4,
        9,
    ]
    robust = fit_column("age", train, None, "robust")
    assert (robust.centre, robust.scale) == (3.0, pytest.approx((5.25 - 1.75) / 1.349))


def test_it_is_told_in_words() -> None:
    told = {
        "standardised (mean 4, deviation 2)": PreparedColumn("a", "standard", 4, 2, 4),
        "scaled (median 4, spread 2), cut at ±5; missing ones are 4 and marked": PreparedColumn(
            "a", "robust", 4, 2, 4, marks_missing=True
        ),
        "as it is": PreparedColumn("a", "none"),
        "left out": PreparedColumn("a", "drop"),
        "one column for each of missing, Graz, and one for all others": PreparedColumn(
            "a", "category", words=("", "Graz"), others=True
        ),
    }
    assert {str(prepared): prepared for prepared in told.values()} == told
