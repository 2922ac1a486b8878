"""Every kernel, with the arguments that the model gives it, compiles for a GPU; none is needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.baselines.graphs.small_models import fresh
from tests.datasets.coloured_graphs import STORE
from tests.nn.molecules import EDGE_CARDINALITIES, MOLECULES, NODE_CARDINALITIES, pack

from specformer import GraphSpecformer, kernels
from specformer.kernels.triton.distance_attention import distance_attention

triton = pytest.importorskip("triton", reason="Triton is not installed")

TYPES = {
    torch.float32: "*fp32",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.uint8: "*u8",
}


def compiled(kernel: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The kernel for an H100 or H200, told what Triton would find out at a launch."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    values = {**dict(zip(names, args, strict=False)), **options}
    signature, constants, hints = {}, {}, {}
    for place, (name, parameter) in enumerate(zip(names, kernel.params, strict=True)):
        value = values[name]
        if parameter.is_constexpr:
            signature[name], constants[place,] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name], hints[place,] = TYPES[value.dtype], [["tt.divisibility", 16]]
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
            if not parameter.do_not_specialize and value % 16 == 0:
                hints[place,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, hints)
    warps = {name: value for name, value in options.items() if name in ("num_warps", "num_stages")}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=warps)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[Any, int]:
    """Kernels are compiled instead of launched; bytes of shared memory of each."""
    compiled_kernels: dict[Any, int] = {}

    def run(kernel, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        if kernel not in compiled_kernels:
            binary = compiled(kernel, args, options)
            assert binary.asm["cubin"]
            compiled_kernels[kernel] = binary.metadata.shared

    monkeypatch.setattr(triton.runtime.JITFunction, "run", run)
    # Nothing is computed, but places must be some.
    monkeypatch.setattr(torch.Tensor, "new_empty", torch.Tensor.new_zeros)
    monkeypatch.setattr(kernels, "runs_on", lambda device, kernel: True)
    return compiled_kernels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "channels", "options"),
    [
        ("high", 160, {"num_heads": 8}),
        ("high", 64, {"num_heads": 8, "form": "pairs", "max_ring": 6}),
        (
            "highest",
            80,
            {
                "num_heads": 4,
                "sharing": "medium",
                "bases_norm": "batch",
                "normalise_bases": "softmax",
            },
        ),
    ],
)
def test_kernels_compile(
    precision: str, channels: int, options, found, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    STORE.exact([1, 2])
    model = GraphSpecformer(
        NODE_CARDINALITIES, EDGE_CARDINALITIES, channels, 3, num_layers=1, **options
    )
    batch = pack(MOLECULES, dtype=torch.float32, spare_nodes=1, spare_pairs=3)
    model(batch).sum().backward()
    assert len(found) >= 10
    # A multiprocessor has 227 KiB, where two programs should fit at once; smaller GPUs have 99.
    assert max(found.values()) <= 80 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["medium", "highest"])
def test_attention_by_distance_compiles(
    precision: str, found, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    parts = [torch.zeros(2, 4, 70, 8, requires_grad=True) for _ in range(3)]
    table, distances = torch.zeros(2, 4, 22), torch.zeros(70, 70, dtype=torch.uint8)
    distance_attention(*parts, table, distances).sum().backward()
    assert len(found) == 3
    assert max(found.values()) <= 72 * 1024


@pytest.mark.slow
def test_kernels_of_baselines_compile(found) -> None:
    model = fresh("gin").train()
    model(pack(MOLECULES, dtype=torch.float32, spare_nodes=1, spare_pairs=3)).sum().backward()
    assert {"_gather", "_sum", "_normalise_forward", "_normalise_backward"} <= {
        kernel.__name__ for kernel in found
    }
