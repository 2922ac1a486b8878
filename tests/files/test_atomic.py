"""Writing files: whole or not at all."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from specformer.files import replacing, reserve, user_cache, write_json, write_text
from specformer.files.checked_tensors import write_tensors


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")
    return path


def write_half(path, error):
    with replacing(path) as part:
        part.write_text("half of the n")
        raise error


def test_tensors_that_do_not_fit_are_the_systems_error(tmp_path):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write_tensors(tmp_path / "weights", {"w": torch.zeros(10_000)}, "test/1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(tmp_path / "weights")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_file_that_was_asked_for(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large") as caught:
            write_text(tmp_path / "long.txt", "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(tmp_path / "long.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(FileNotFoundError, match="no home folder for spectra; set XDG_CACHE_HOME"):
        user_cache("spectra")
    monkeypatch.setenv("XDG_CACHE_HOME", "mine")
    assert user_cache("spectra") == Path("mine/specformer/spectra")


def test_replaces_and_leaves_nothing_else(target):
    with replacing(target) as part:
        part.write_text("new")
        assert part.parent == target.parent  # a rename within one file system
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, OSError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_old_file_alone(target, error):
    with pytest.raises(error):
        write_half(target, error)
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_an_exception_leaves_no_new_file(tmp_path):
    with pytest.raises(RuntimeError):
        write_half(tmp_path / "new", RuntimeError)
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    folder, long = tmp_path / "folder", tmp_path / ("n" * 256)
    folder.mkdir()
    for path, kind in ((folder, IsADirectoryError), (long, OSError)):
        with pytest.raises(kind) as caught:
            write_text(path, "x")
        assert caught.value.filename == str(path)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_in_a_folders_place_is_said(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(NotADirectoryError) as raised:
        write_text(tmp_path / "taken" / "new.txt", "text")
    assert raised.value.filename == str(tmp_path / "taken")


def test_folders_are_made(tmp_path):
    write_text(tmp_path / "a" / "b" / "note.txt", "ü → λ")
    assert (tmp_path / "a" / "b" / "note.txt").read_bytes() == "ü → λ".encode()


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_open(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "ours", "x")
        (tmp_path / "plain").write_text("x")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")]
    assert modes[0] == modes[1]


def test_two_writers_do_not_meet(target):
    with replacing(target) as one:
        with replacing(target) as other:
            assert one != other
            other.write_text("inner")
        one.write_text("outer")
    assert target.read_text() == "outer"


KILLED_WHILE_WRITING = """
import os, signal, sys
from specformer.files import replacing
with replacing(sys.argv[1]) as part:
    part.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="processes have no namespace")
def test_what_a_killed_process_left_is_removed_by_the_next_writer(target):
    other = target.with_name("other.txt")
    for path in (target, other):
        killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, path], check=False)
        assert killed.returncode == -signal.SIGKILL
    left = {path.name for path in target.parent.iterdir()} - {target.name}
    assert len(left) == 2
    (abandoned,) = (name for name in left if name.startswith(f".{target.name}."))
    here, _ = abandoned.removeprefix(f".{target.name}.").split("-")
    elsewhere = target.with_name(abandoned.replace(here, "0" * len(here)))
    elsewhere.write_text("of another machine, where this number may be a living process's")
    with replacing(target) as living:
        write_text(target, "new")
        assert living.exists()
        living.write_text("newest")
    assert target.read_text() == "newest"
    names = {path.name for path in target.parent.iterdir()}
    assert names == {target.name, elsewhere.name, *left} - {abandoned}


@pytest.mark.parametrize("letter", ["a", "图"])
def test_the_longest_names_there_are(tmp_path, letter):
    longest = tmp_path / (letter * (255 // len(letter.encode())))
    for text in ("first", "second"):
        write_text(longest, text)
    assert longest.read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == [longest.name]


def test_json_comes_back(tmp_path):
    content = {"a": [1, 2.5, None, True], "ü": {"x": "y"}}
    write_json(tmp_path / "x.json", content)
    text = (tmp_path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == content
    assert text.endswith("}\n")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_json_has_no_nan(target, number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(target, {"mean": number})
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_room_is_taken_or_refused_at_once(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        with (tmp_path / "fits").open("wb") as file:
            reserve(file, 4000)
        with (tmp_path / "large").open("wb") as file, pytest.raises(OSError, match="too large"):
            reserve(file, 6000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "fits").read_bytes() == bytes(4000)


def test_a_pipe_gets_the_bytes_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        write_text(pipe, "whole")
        assert read.result(timeout=60) == "whole"
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device")
def test_a_full_device_is_named() -> None:
    with pytest.raises(OSError, match="No space left") as caught, replacing("/dev/full") as part:
        part.write_text("whole")
    assert caught.value.filename == "/dev/full"


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="no such device")
def test_a_device_is_not_replaced(tmp_path):
    """Through a link of our own: what goes wrong does not cost the machine its device."""
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write_text(link, "nothing")
    assert link.is_char_device()
    assert link.readlink() == Path("/dev/null")


@pytest.mark.parametrize("kind", ["link", "link to a link", "dangling"])
def test_what_a_link_points_to_is_replaced(kind, tmp_path, target):
    link, folder = tmp_path / "link", tmp_path / "elsewhere"
    if kind == "dangling":
        target = folder / "new.txt"
    link.symlink_to(target)
    if kind == "link to a link":
        (tmp_path / "second").symlink_to(link)
    write_text(tmp_path / "second" if kind == "link to a link" else link, "whole")
    assert target.read_text() == "whole"
    assert link.readlink() == target
    assert not target.is_symlink()


def test_links_that_go_in_a_circle_are_refused(tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    with pytest.raises(OSError, match="symbolic links"):
        write_text(tmp_path / "one", "never")
