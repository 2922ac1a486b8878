"""The kernels run compiled on a GPU, and elsewhere in Triton's interpreter.

Triton decides which when it is imported, so without a GPU ``test_interpreter.py`` starts a Python
of its own for all other files of this folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from tests.kernels.triton.graphs import COMPARED

from specformer import kernels

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    collect_ignore = ["test_compiled.py", "test_interpreter.py"]
elif torch.cuda.is_available():
    collect_ignore = ["test_interpreter.py"]
else:
    collect_ignore = list(COMPARED)

if INTERPRETED:
    from triton.runtime import interpreter

    patch_lang_tensor = interpreter._patch_lang_tensor

    def patched(tensor, scope) -> None:
        """NumPy 2.4 no longer makes a number of an array of one, as Triton 3.6 expects."""
        patch_lang_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Where kernels run; products there are exact."""
    if not INTERPRETED and not torch.cuda.is_available():  # a file that was asked for by name
        pytest.skip("no GPU here, and Triton's interpreter is off")
    name = "cpu" if INTERPRETED else "cuda"
    monkeypatch.setattr(kernels, "DEVICES", {name})
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield torch.device(name)
    torch.set_float32_matmul_precision(before)
