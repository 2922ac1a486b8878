"""What an installation promises: version, command, pins, and the data files it carries."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import specformer

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "specformer"
# Built against the MPI, PETSc and SLEPc of the machine, so there is no version to pin.
UNPINNED_EXTRAS = {"mpi"}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pin_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def pins(pin_lines: list[str]) -> dict[str, str]:
    split = (line.split("==") for line in pin_lines)
    return {canonicalize_name(name): version for name, version in split}


def test_version_is_the_same_everywhere(pyproject):
    version = pyproject["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))

    assert specformer.__version__ == version
    assert metadata.version("specformer") == version
    assert citation["version"] == version


def test_command_is_installed_and_loads():
    (command,) = metadata.entry_points(group="console_scripts", name="specformer")

    assert command.value == "specformer.cli:main"
    assert callable(command.load())


def test_extras_are_the_promised_ones(pyproject):
    extras = pyproject["project"]["optional-dependencies"]

    assert set(extras) == {"chem", "mpi", "parquet", "track", "docs", "audit", "dev"}


def test_every_data_file_is_declared(pyproject):
    patterns = pyproject["tool"]["setuptools"]["package-data"]["specformer"]
    declared = {path for pattern in patterns for path in PACKAGE.glob(pattern) if path.is_file()}
    present = {
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and path.name[0] != "."
    }

    assert PACKAGE / "py.typed" in declared
    assert present <= declared, "add a pattern to [tool.setuptools.package-data] in pyproject.toml"


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}

    # setuptools' finder leaves a folder without __init__.py out of the wheel, without a word.
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_an_sdist_holds_the_whole_checkout(tmp_path):
    """Also the tests with what they read, or none of them could be run from it."""
    kept = {"src", "tests", "benchmarks", "docs", "examples", "results", ".ci"}
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", *(folders - kept))
    checkout = Path(shutil.copytree(ROOT, tmp_path / "checkout", ignore=left_out))
    files = {path.relative_to(checkout) for path in checkout.rglob("*") if path.is_file()}

    command = [sys.executable, "-c", "import setuptools.build_meta as b; b.build_sdist('dist')"]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (built,) = (checkout / "dist").iterdir()
    with tarfile.open(built) as archive:
        held = {Path(*Path(name).parts[1:]) for name in archive.getnames()}

    # Beside these folders a checkout may hold what git ignores, coverage's data for one.
    assert {path for path in files - held if path.parts[0] in kept} == set()
    assert {Path("constraints.txt"), Path("Makefile"), Path("CHANGELOG.md")} <= held


def test_constraints_are_exact_and_name_no_place(pin_lines, pins):
    exact = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")

    # No "+cpu" (one machine's build), no address, no path, no range.
    assert [line for line in pin_lines if not exact.fullmatch(line)] == []
    assert len(pins) == len(pin_lines), "a package is pinned twice"
    assert pins["torch"] == "2.13.0"


def test_every_dependency_is_pinned_within_its_range(pyproject, pins):
    project = pyproject["project"]
    requirements = [*project["dependencies"], *pyproject["build-system"]["requires"]]
    for extra, more in project["optional-dependencies"].items():
        if extra not in UNPINNED_EXTRAS:
            requirements += more

    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"pin {name} in constraints.txt"
        assert requirement.specifier.contains(pins[name]), f"{requirement} excludes {pins[name]}"


def test_licence_is_apache_2(pyproject):
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert pyproject["project"]["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
