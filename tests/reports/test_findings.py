"""The sentence at the top says what the numbers say."""

from __future__ import annotations

import math

from specformer.reports.findings import summary


def fit(name: str, model: str, sse: float | None, recipe: str = "paper") -> dict:
    return {"filter": name, "model": model, "recipe": recipe, "sse": {"mean": sse}}


def node(name: str, model: str, mean: float, ci95: float = 0.01, recipe: str = "paper") -> dict:
    test = {"mean": mean, "ci95": ci95, "values": [mean, mean]}
    return {"dataset": name, "model": model, "recipe": recipe, "test": test}


def test_factors_span_all_filters():
    rows = [fit("comb", "specformer", 0.1), fit("comb", "gcn", 50), fit("comb", "bernnet", 10)]
    rows += [fit("low-pass", "specformer", 0.2), fit("low-pass", "gcn", 0.6)]

    assert summary({"filters": rows}) == (
        "Specformer has the smallest error on both filters, "
        "3.0 to 100 times below the next best model."
    )


def test_a_loss_is_told():
    rows = [fit("comb", "specformer", 0.1), fit("comb", "gcn", 1)]
    rows += [fit("high-pass", "specformer", 0.1), fit("high-pass", "gcn", 1)]
    rows += [fit("low-pass", "specformer", 1), fit("low-pass", "gcn", 0.5)]

    assert summary({"filters": rows}) == (
        "Specformer has the smallest error on 2 of 3 filters, 10 times below the next best model "
        "there; GCN leads on low-pass."
    )


def test_one_model_alone_is_not_compared():
    rows = [fit("comb", "specformer", 0.1), fit("low-pass", "specformer", 0.2)]

    assert summary({"filters": rows}) == (
        "Specformer fits both filters with a squared error of at most 0.200."
    )


def test_unmeasured_entries_count_for_nothing():
    assert "no comparison" in summary({"filters": [fit("comb", "gcn", None)], "nodes": None})


def test_overlapping_intervals_are_told():
    clear = summary({"nodes": [node("a", "specformer", 0.95), node("a", "gcn", 0.90)]})
    close = summary({"nodes": [node("a", "specformer", 0.91), node("a", "gcn", 0.90)]})

    assert clear == "On a, Specformer is right for 95.0% of the test nodes, 5.0 points above GCN."
    assert close.endswith("1.0 points above GCN, though the intervals overlap.")


def test_no_model_of_equal_ones_is_called_the_best():
    rows = [node("a", "mlp", 0.1 + 0.2), node("a", "gcn", 0.3), node("a", "specformer", 0.2)]
    for each in (rows, rows[::-1]):
        assert summary({"nodes": each}) == (
            "On a, GCN and MLP are each right for 30.0% of the test nodes."
        )
        named = [row | {"metric": "rocauc"} for row in each]
        assert (
            summary({"nodes": named}) == "On a, GCN and MLP share the best test ROC-AUC of 0.300."
        )
    close = summary({"nodes": [node("a", "mlp", 0.9), node("a", "gcn", 0.9001)]})
    assert "GCN is right for 90.0% of the test nodes, less than 0.1 points above MLP" in close


def test_many_data_sets_are_counted():
    rows = [node(name, "specformer", 0.9) for name in "abcd"]
    rows += [node(name, "gcn", 0.95 if name == "d" else 0.8) for name in "abcd"]

    assert summary({"nodes": rows}) == (
        "Specformer is the most accurate on 3 of 4 data sets; GCN leads on d."
    )


def test_recipes_are_named_where_a_model_has_several():
    rows = [node("a", "specformer", 0.9), node("a", "specformer", 0.94, recipe="best")]

    assert summary({"nodes": rows}) == (
        "On a, Specformer (best) is right for 94.0% of the test nodes, "
        "4.0 points above Specformer (paper)."
    )
    # Another model is the rival that counts, wherever it stands.
    assert "14.0 points above GCN" in summary({"nodes": [*rows, node("a", "gcn", 0.8)]})


def test_a_model_alone_is_compared_by_recipe():
    rows = [fit("comb", "specformer", 3.0), fit("comb", "specformer", 0.1, "projected")]

    assert summary({"filters": rows}) == (
        "Specformer (projected) has the smallest error on the comb filter, "
        "30 times below the next best recipe."
    )


def test_the_interval_of_a_share_stays_within_its_bounds():
    """Where mean ± half-width leaves [0, 1], the interval is that of the log-odds."""
    test = {"mean": 0.9, "ci95": 0.2, "values": [0.88, 0.92]}
    row = {"dataset": "mine", "model": "gcn", "recipe": "default", "metric": "rocauc", "test": test}
    middle, half = math.log(0.9 / 0.1), 0.2 / (0.9 * 0.1)
    low, high = (1 / (1 + math.exp(-x)) for x in (middle - half, middle + half))
    assert summary({"molecules": [row]}) == (
        f"On mine, GCN reaches a test ROC-AUC of 0.900 ({low:.3f} to {high:.3f})."
    )
    assert "0.900 ± 0.200" in summary({"molecules": [row | {"metric": "rmse"}]})
