"""The names that stay, loaded on first use."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import specformer
import specformer.testing

STAYING = {
    "AddSpectrum",
    "GraphClassifier",
    "GraphRegressor",
    "GraphSpecformer",
    "LinkPredictor",
    "NodeClassifier",
    "NodeRegressor",
    "Specformer",
    "SpectralFilter",
    "Spectrum",
    "compare",
    "decompose",
    "load",
}


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_contract_is_kept() -> None:
    assert set(specformer.__all__) >= STAYING
    assert parameters(specformer.decompose)[:3] == ["source", "num_nodes", "edge_weight"]
    assert {"k", "solver", "device", "dtype", "cache"} <= set(parameters(specformer.decompose))
    assert parameters(specformer.SpectralFilter)[:3] == [
        "hidden_channels",
        "num_heads",
        "num_blocks",
    ]
    assert parameters(specformer.Specformer)[:6] == [
        "in_channels",
        "hidden_channels",
        "out_channels",
        "num_layers",
        "num_heads",
        "sharing",
    ]
    assert parameters(specformer.GraphSpecformer)[:7] == [
        "node_cardinalities",
        "edge_cardinalities",
        "hidden_channels",
        "out_channels",
        "num_layers",
        "num_heads",
        "sharing",
    ]
    members = {
        "eigenvalues",
        "eigenvectors",
        "num_nodes",
        "is_complete",
        "filter",
        "save",
        "load",
        "to",
    }
    annotated = set(specformer.Spectrum.__annotations__)
    assert members <= annotated | set(dir(specformer.Spectrum))


def test_helpers_for_users_tests() -> None:
    assert specformer.testing.__all__ == [
        "assert_basis_invariant",
        "assert_eigenpairs",
        "assert_permutation_equivariant",
    ]


@pytest.mark.parametrize("name", specformer.__all__)
def test_every_public_name_loads_and_is_documented(name: str) -> None:
    value = getattr(specformer, name)
    assert name in dir(specformer)
    if name != "__version__":
        assert inspect.getdoc(value)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(specformer.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specformer")
        for alias in node.names
    }
    assert seen == set(dir(specformer)) - {"__version__"}


def test_type_checkers_see_no_other_names() -> None:
    """A module's own ``__getattr__`` makes any name an ``Any``, so they must not see that."""
    tree = ast.parse(Path(specformer.__file__).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    hidden = [node for node in tree.body if isinstance(node, ast.If)]
    assert "__getattr__" not in functions
    assert [ast.unparse(node.test) for node in hidden] == ["TYPE_CHECKING", "not TYPE_CHECKING"]


def test_rooms_need_no_import_of_their_own() -> None:
    """What errors tell readers to call is there: ``specformer.datasets.pack(batch)``."""
    rooms = ["graphs", "spectrum", "nn", "datasets", "testing"]  # none loads one after it
    calls = ", ".join(f"sf.{room}.__name__" for room in rooms)
    code = f"import specformer as sf; print({calls})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [f"specformer.{room}" for room in rooms]
    assert set(rooms) <= set(dir(specformer))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'specformer' has no attribute 'nothing'"):
        specformer.nothing  # noqa: B018


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, specformer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_command_does_not_import_what_it_may_not_need() -> None:
    """PyTorch's compiler, scikit-learn and SciPy's statistics take longer than PyTorch itself."""
    slow = {"torch._dynamo", "sklearn", "scipy.stats", "matplotlib", "torch_geometric"}
    code = f"import sys, specformer.tasks.train; sys.exit(str({slow} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stderr.strip() == "set()"
