r"""Results of benchmarks, and the files that record them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.tables import SCHEMA
from specformer.files import write_json
from specformer.files.documents import sealed
from specformer.training.runs.environment import device_name, environment


def bench_result(
    suite: str,
    device: torch.device,
    plan: Any,
    rows: Sequence[Mapping[str, Any]],
    peaks: Any = None,
) -> dict[str, Any]:
    """Rows with the device and the plan; ``plan`` and ``peaks`` are data classes."""
    return {
        "suite": suite,
        "device": device_name(device),
        "threads": torch.get_num_threads() if device.type == "cpu" else None,
        "plan": asdict(plan),
        "peaks": asdict(peaks) if peaks else None,
        "rows": rows,
    }


def record(path: str | Path, result: Mapping[str, Any], command: str, device: torch.device) -> None:
    """Write a result and its environment to a file, for ``results/bench/``."""
    write_json(
        path,
        sealed(
            {
                "schema": SCHEMA,
                "name": Path(path).stem,
                "command": command,
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "environment": environment(device),
                **result,
            }
        ),
    )
