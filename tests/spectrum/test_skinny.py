"""How products with few columns are cut into programs, and that their kernels compile.

What they compute is tested in ``tests/kernels/triton/test_skinny.py``.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from specformer.kernels.triton import skinny


@pytest.mark.parametrize(("steps", "blocks"), [(1, 1), (43, 43), (41, 82), (1000, 1), (7, 999)])
def test_shares_cover_all_steps_in_few_programs(steps: int, blocks: int) -> None:
    parts, share = skinny._shares(steps, blocks, 264)
    assert (parts - 1) * share < steps <= parts * share
    assert parts == 1 or parts * blocks <= 264


@pytest.mark.slow
@pytest.mark.parametrize("columns", [5, 32])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_kernels_compile(columns: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    from tests.kernels.triton import test_compiled

    monkeypatch.setitem(test_compiled.TYPES, torch.bfloat16, "*bf16")
    found: list[tuple[str, Any]] = []

    def run(kernel, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        found.append((kernel.__name__, test_compiled.compiled(kernel, args, options)))

    monkeypatch.setattr(triton.runtime.JITFunction, "run", run)
    vectors = torch.zeros(1001, 1016, dtype=dtype)[:, :1003]
    skinny.skinny_product(vectors, torch.zeros(1001, columns), forward=True)
    skinny.skinny_product(vectors, torch.zeros(1003, columns), forward=False)
    first = ["_rows_rounded"] if dtype == torch.bfloat16 else []
    assert [name for name, _ in found] == [*first, "_part_of_product", "_parts_added"] * 2
    for name, binary in found:
        assert binary.asm["cubin"]
        # A multiprocessor has 227 KiB; as many programs should fit at once as are started.
        programs = skinny._plan(dtype, columns).programs // 132
        assert binary.metadata.shared + 1024 <= 227 * 1024 // programs
        if name == "_part_of_product":
            # U is read 16 bytes at a time, past the registers, whatever its width.
            assert re.search(r"cp\.async\.cg\S* \[[^]]*\], \[[^]]*\], 0x10", binary.asm["ptx"])
            assert re.search(r"mma\S*\.(bf16|tf32)\.", binary.asm["ptx"])
            # So is x in bfloat16.
            assert not first or not re.search(r"ld\.global|cp\.async\.ca", binary.asm["ptx"])
