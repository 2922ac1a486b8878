r"""Results of ``specformer bench`` as files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from specformer.files import write_json
from specformer.paper.bench_tables import SCHEMA
from specformer.training.runs.environment import environment


def record(path: str | Path, result: Mapping[str, Any], command: str, device: torch.device) -> None:
    """Write a result with what it was measured on, for ``results/bench/``."""
    write_json(
        path,
        {
            "schema": SCHEMA,
            "name": Path(path).stem,
            "command": command,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "environment": environment(device),
            **result,
        },
    )
