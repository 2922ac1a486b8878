r"""Figures the paper reports, to stand beside ours."""

from __future__ import annotations

_FILTERS = ("low-pass", "high-pass", "band-pass", "band-rejection", "comb")

#: Table 1: mean sum of squared errors over 50 images, and R².
TABLE_1: dict[str, dict[str, dict[str, float]]] = {
    model: {
        "sse": dict(zip(_FILTERS, sse, strict=True)),
        "r2": dict(zip(_FILTERS, r2, strict=True)),
    }
    for model, sse, r2 in (
        (
            "gcn",
            (3.4799, 67.6635, 25.8755, 21.0747, 50.5120),
            (0.9872, 0.2364, 0.1148, 0.9438, 0.2977),
        ),
        (
            "gat",
            (2.3574, 21.9618, 14.4326, 12.6384, 23.1813),
            (0.9905, 0.7529, 0.4823, 0.9652, 0.6957),
        ),
        (
            "chebnet",
            (0.8220, 0.7867, 2.2722, 2.5296, 4.0735),
            (0.9973, 0.9903, 0.9104, 0.9934, 0.9447),
        ),
        (
            "gprgnn",
            (0.4169, 0.0943, 3.5121, 3.7917, 4.6549),
            (0.9984, 0.9986, 0.8551, 0.9905, 0.9311),
        ),
        (
            "bernnet",
            (0.0314, 0.0113, 0.0411, 0.9313, 0.9982),
            (0.9999, 0.9999, 0.9984, 0.9973, 0.9868),
        ),
        (
            "jacobiconv",
            (0.0003, 0.0064, 0.0213, 0.0156, 0.2933),
            (0.9999, 0.9999, 0.9999, 0.9999, 0.9995),
        ),
        (
            "specformer",
            (0.0002, 0.0026, 0.0017, 0.0014, 0.0057),
            (0.9999, 0.9999, 0.9999, 0.9999, 0.9999),
        ),
    )
}
