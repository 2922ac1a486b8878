"""The model for one graph stays short, and free of what makes it fast."""

from __future__ import annotations

import re
from pathlib import Path

import specformer.nn

FILES = ["filter.py", "conv/node_conv.py", "node_model.py"]
#: Words of the fast paths.
FAST = r"\b(kernels?|triton|runs|run axis|lanes?|moments?|fork\w*|layouts?|captur\w+|cuda)\b"


def test_specformer_is_readable() -> None:
    room = Path(specformer.nn.__file__).parent
    texts = {name: (room / name).read_text(encoding="utf-8") for name in FILES}
    assert sum(len(text.splitlines()) for text in texts.values()) <= 600
    found = {name: re.findall(FAST, text, re.IGNORECASE) for name, text in texts.items()}
    assert not {name: words for name, words in found.items() if words}
