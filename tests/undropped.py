"""Specformer without dropout, for tests that compare numbers in training mode."""

from __future__ import annotations

from typing import Any

from specformer import Specformer

NO_DROPOUT = {"transformer_dropout": 0.0, "feature_dropout": 0.0, "propagation_dropout": 0.0}


def undropped(*channels: Any, **options: Any) -> Specformer:
    """A Specformer whose dropouts are all 0, except those among the options."""
    return Specformer(*channels, **{**NO_DROPOUT, **options})
