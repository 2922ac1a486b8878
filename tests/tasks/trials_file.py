"""What a search has kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def trials(folder: Path) -> list[dict[str, Any]]:
    """Its trials so far, in their order."""
    lines = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
