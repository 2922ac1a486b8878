"""The attacks of the long test, a few of each: no wrong result and no traceback."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
import torch
from tests.attacks import (
    altered_files,
    closed_forms,
    crowds,
    disks,
    fuzz,
    growth,
    kills,
    names,
    odd_documents,
    ranks,
)
from tests.attacks.scene import built
from tests.attacks.tally import Tally


@pytest.fixture(scope="module", autouse=True)
def quiet():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    return built(tmp_path_factory.mktemp("scene"))


@pytest.fixture
def scene(pristine, tmp_path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "scene"))


def assert_good(tallies) -> None:
    found = list(tallies)
    assert found
    for tally in found:
        assert tally.is_good, (tally.row(), tally.examples)
        assert tally.counts.total() or tally.attack.endswith("disk")


def test_altered_files(scene):
    assert_good(altered_files.attack(scene, 400))


def test_one_bit(scene):
    assert_good(altered_files.flips(scene, 200))


def test_odd_documents(scene):
    assert_good(odd_documents.attack(scene, 16))


def test_documents_that_nobody_wrote(scene):
    assert_good(fuzz.attack(scene, 200))


def test_names(scene):
    assert_good(names.attack(scene, 2))


@pytest.mark.slow
def test_ranks(scene):
    assert_good(ranks.attack(scene, 1))


def test_closed_forms():
    assert_good(closed_forms.attack([12]))


def test_processes_at_once(scene):
    assert_good(crowds.attack(scene, 1))


@pytest.mark.slow
def test_kills(scene):
    assert_good(kills.at_operations(scene, 12))
    assert_good(kills.at_moments(scene, 1))


@pytest.mark.slow
def test_disks(scene):
    assert_good(disks.attack(scene, 9))


@pytest.mark.slow
def test_growth(scene):
    assert_good(growth.attack(scene, 20, 50))


def test_what_counts_as_what():
    tally = Tally("attack", "file")
    tally.attempt(lambda: True)
    tally.attempt(lambda: False)
    tally.attempt(lambda: {}["key"])
    tally.attempt(lambda: Path("/nowhere/at/all").read_text() == "")
    counted = {"tried": 4, "refused": 1, "unaffected": 1, "wrong": 1, "tracebacks": 1}
    assert {key: value for key, value in tally.row().items() if key in counted} == counted
    assert not tally.is_good
