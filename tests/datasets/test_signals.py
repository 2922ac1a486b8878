"""Grids and the images on them, against NetworkX, scikit-image and files written here."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data
from tests.cli.command_line import only_json
from tests.datasets.grid_images import write_grid_images

from specformer.datasets import (
    FILTERS,
    grid_graph,
    grid_mirrors,
    image_signal,
    paper_images,
    photographs,
    target_filter,
)
from specformer.datasets.registry import survey
from specformer.datasets.signals import SIGNAL_SETS, named_signals
from specformer.errors import ConfigError, DataNotFoundError, GraphError
from specformer.graphs import as_graph
from specformer.tasks.job import source_kind

SIZES = [(1, 1), (1, 4), (2, 3), (5, 4), (6, 6)]


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_grid_is_networkx_grid(height, width):
    expected = nx.to_numpy_array(
        nx.grid_2d_graph(height, width),
        nodelist=[(row, column) for row in range(height) for column in range(width)],
    )
    np.testing.assert_array_equal(grid_graph(height, width).adjacency.toarray(), expected)
    as_edges = as_graph(np.array(np.nonzero(expected)), num_nodes=height * width)
    assert grid_graph(height, width).fingerprint == as_edges.fingerprint


def test_a_grid_needs_nodes() -> None:
    with pytest.raises(GraphError, match="no nodes"):
        grid_graph(0, 3)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_mirrors_are_commuting_symmetries_of_the_grid(height, width):
    adjacency = grid_graph(height, width).adjacency.toarray()
    up_down, left_right = grid_mirrors(height, width)
    for mirror in (up_down, left_right):
        np.testing.assert_array_equal(np.sort(mirror), np.arange(height * width))
        np.testing.assert_array_equal(mirror[mirror], np.arange(height * width))
        np.testing.assert_array_equal(adjacency[np.ix_(mirror, mirror)], adjacency)
    np.testing.assert_array_equal(up_down[left_right], left_right[up_down])


def test_mirrors_turn_the_image_over():
    image = np.arange(6).reshape(2, 3)
    up_down, left_right = grid_mirrors(2, 3)
    np.testing.assert_array_equal(image.ravel()[up_down].reshape(2, 3), np.flipud(image))
    np.testing.assert_array_equal(image.ravel()[left_right].reshape(2, 3), np.fliplr(image))


# --- the paper's images -------------------------------------------------------------------------


def test_the_papers_images(shared_data):
    images = paper_images(shared_data)
    assert images.signals.shape == (50, 10_000)
    assert images.signals.dtype == np.float32
    assert 0 <= images.signals.min() < images.signals.max() <= 1
    assert images.shape == (100, 100)
    assert images.graph.num_nodes == 10_000
    assert images.graph.num_edges == 2 * 100 * 99
    assert len(images.titles) == 50
    inner = np.zeros((100, 100), dtype=bool)
    inner[2:98, 2:98] = True
    assert inner.sum() == 9216
    np.testing.assert_array_equal(images.mask.reshape(100, 100), inner)


def test_pixels_are_kept_in_order_and_scaled(tmp_path):
    path = write_grid_images(tmp_path, count=3, side=5)
    images = paper_images(tmp_path)
    with np.load(path) as file:
        np.testing.assert_allclose(images.signals.reshape(3, 5, 5) * 255, file["images"], atol=1e-4)
        np.testing.assert_array_equal(images.mask.reshape(5, 5), file["mask"])
    np.testing.assert_array_equal(images.mirrors[0], grid_mirrors(5, 5)[0])


def test_first_images(tmp_path):
    write_grid_images(tmp_path, count=3, side=4)
    images = paper_images(tmp_path)
    assert images.first(None) is images
    two = images.first(2)
    np.testing.assert_array_equal(two.signals, images.signals[:2])
    assert two.titles == images.titles[:2]
    for count in (0, -1, 4):
        with pytest.raises(ConfigError, match=f"{count} images asked for.*1 to 3"):
            images.first(count)


def test_images_by_number(tmp_path):
    write_grid_images(tmp_path, count=4, side=4)
    images = paper_images(tmp_path)
    some = images.numbered([3, 1])
    np.testing.assert_array_equal(some.signals, images.signals[[3, 1]])
    assert some.titles == ("image 3", "image 1")
    for number in (-1, 4):
        with pytest.raises(ConfigError, match=f"image {number} asked for.*0 to 3"):
            images.numbered([0, number])


PIXELS = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
MASK = np.ones((3, 3), dtype=bool)
BAD = {
    "no mask": {"images": PIXELS},
    "no images": {"mask": MASK},
    "float images": {"images": PIXELS / 255.0, "mask": MASK},
    "one image": {"images": PIXELS[0], "mask": MASK},
    "mask of another size": {"images": PIXELS, "mask": np.ones((3, 4), dtype=bool)},
    "empty mask": {"images": PIXELS, "mask": ~MASK},
    "no image at all": {"images": PIXELS[:0], "mask": MASK},
    "one grey": {"images": PIXELS * 0 + 9, "mask": MASK},
    "pickled": {"images": np.array([{}], dtype=object), "mask": MASK},
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_bad_content_is_refused_by_name(content, tmp_path):
    np.savez(tmp_path / "grid-images.npz", **content)
    with pytest.raises(GraphError, match=r"grid-images\.npz: ") as caught:
        paper_images(tmp_path)
    assert "\n" not in str(caught.value)


def test_damaged_files_are_refused_by_name(tmp_path):
    path = write_grid_images(tmp_path, side=40)
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[200:260] = bytes(60)
    for content in (b"", b"not a zip file", whole[: len(whole) // 2], bytes(changed)):
        path.write_bytes(content)
        with pytest.raises(
            GraphError, match=r"grid-images\.npz: (is not an npz|the file is damaged)"
        ):
            paper_images(tmp_path)


def test_an_npy_file_under_that_name_is_refused(tmp_path):
    with (tmp_path / "grid-images.npz").open("wb") as file:
        np.save(file, PIXELS)
    with pytest.raises(GraphError, match=r"grid-images\.npz: (is not an npz|the file is damaged)"):
        paper_images(tmp_path)


def test_missing_file_lists_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECFORMER_DATA", "/from/environment")
    (tmp_path / "asked").mkdir()
    with pytest.raises(DataNotFoundError) as caught:
        paper_images("asked")
    for place in ("grid-images.npz", "asked", "/from/environment", "data", "--data"):
        assert place in str(caught.value)
    with pytest.raises(DataNotFoundError, match=r"^elsewhere: there is no such folder"):
        paper_images("elsewhere")


def test_folders_are_searched_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPECFORMER_DATA", str(tmp_path / "environment"))
    for count, folder in ((3, "data"), (2, "environment"), (1, "explicit")):
        write_grid_images(tmp_path / folder, count=count, side=4)
        explicit = folder if folder == "explicit" else None
        assert len(paper_images(explicit).signals) == count


# --- images of one's own ------------------------------------------------------------------------


def test_image_signal_keeps_a_small_grey_image(tmp_path):
    pixels = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)
    Image.fromarray(pixels).save(tmp_path / "small.png")
    signal = image_signal(tmp_path / "small.png")
    assert signal.name == "small"
    assert signal.titles == ("small",)
    assert signal.shape == (4, 6)
    assert signal.graph.num_nodes == 24
    assert signal.mask.all()
    np.testing.assert_allclose(signal.signals[0].reshape(4, 6), pixels / 255, atol=1e-6)


def test_image_signal_shrinks_and_keeps_proportions(tmp_path):
    pixels = np.tile(np.linspace(0, 255, 200, dtype=np.uint8), (100, 1))
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    signal = image_signal(tmp_path / "wide.png", largest=20)
    assert signal.shape == (10, 20)
    ramp = signal.signals[0].reshape(10, 20)
    assert (np.diff(ramp, axis=1) > 0).all()
    np.testing.assert_allclose(ramp.mean(), 0.5, atol=0.01)


def test_colours_become_luminance(tmp_path):
    pixels = np.zeros((2, 3, 3), dtype=np.uint8)
    pixels[0] = np.diag([255, 255, 255])
    Image.fromarray(pixels).save(tmp_path / "rgb.png")
    luminance = [0.2125, 0.7154, 0.0721]  # of ITU-R BT.709, as scikit-image has it
    found = image_signal(tmp_path / "rgb.png").signals[0][:3]
    np.testing.assert_allclose(found, luminance, atol=1e-3)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA", "P", "I;16"])
def test_every_kind_of_png_gives_values_in_range(mode, tmp_path):
    ramp = Image.fromarray(np.tile(np.arange(0, 256, 16, dtype=np.uint8), (8, 1)))
    (ramp.convert("I") if mode == "I;16" else ramp).convert(mode).save(tmp_path / "image.png")
    signal = image_signal(tmp_path / "image.png")
    assert signal.shape == (8, 16)
    assert 0 <= signal.signals.min() < signal.signals.max() <= 1


def test_a_gif_is_read_as_the_same_picture_in_another_format(tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (9, 12), dtype=np.uint8)
    for suffix in ("gif", "png"):
        Image.fromarray(grey).save(tmp_path / f"image.{suffix}")
    gif, png = (image_signal(tmp_path / f"image.{suffix}") for suffix in ("gif", "png"))
    assert gif.shape == png.shape == (9, 12)
    np.testing.assert_allclose(gif.signals, png.signals, atol=1e-6)
    np.testing.assert_allclose(gif.signals.ravel(), grey.ravel() / 255, atol=1e-6)
    frames = [Image.fromarray(grey), Image.fromarray(255 - grey)]
    frames[0].save(tmp_path / "film.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(GraphError, match=r"film\.gif: expected one image"):
        image_signal(tmp_path / "film.gif")


def test_pixels_beyond_white_are_refused_not_clipped(tmp_path):
    grey = np.random.default_rng(0).random((9, 12), dtype=np.float32)
    Image.fromarray(grey).save(tmp_path / "unit.tiff")
    found = image_signal(tmp_path / "unit.tiff").signals
    np.testing.assert_allclose(found.ravel(), grey.ravel(), atol=1e-6)
    for name, values in (("bright", 255 * grey), ("dark", grey - 1)):
        Image.fromarray(values).save(tmp_path / f"{name}.tiff")
        with pytest.raises(GraphError, match=rf"{name}\.tiff: has pixels from .* between 0 and 1"):
            image_signal(tmp_path / f"{name}.tiff")


def test_bad_images_are_refused_in_one_line(tmp_path):
    (tmp_path / "text.png").write_text("not an image\n")
    Image.fromarray(np.zeros((1, 5), dtype=np.uint8)).save(tmp_path / "line.png")
    Image.fromarray(np.zeros((5, 5), dtype=np.uint8)).save(tmp_path / "black.png")
    Image.fromarray(np.full((5, 5), np.nan, dtype=np.float32)).save(tmp_path / "nan.tiff")
    pages = [Image.fromarray(np.eye(5, dtype=np.uint8) * 9) for _ in range(5)]
    pages[0].save(tmp_path / "pages.tiff", save_all=True, append_images=pages[1:])
    for name, message in {
        "pages.tiff": "expected one image",
        "text.png": "not a readable image",
        "line.png": "at least 2 × 2",
        "black.png": "all pixels are equal",
        "nan.tiff": "not numbers",
        "missing.png": "no such image",
    }.items():
        with pytest.raises(GraphError, match=f"{name}: .*{message}") as caught:
            image_signal(tmp_path / name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"P", b"P5", b"\x89PN", b"GIF", b"BM\0"])
def test_a_file_of_a_few_bytes_is_no_image(tmp_path, content):
    (tmp_path / "few.png").write_bytes(content)
    with pytest.raises(GraphError, match=r"few\.png: not a readable image \(.+\)"):
        image_signal(tmp_path / "few.png")


def test_an_image_of_too_many_pixels_is_refused(tmp_path, monkeypatch):
    """The limit of Pillow is 179 megapixels; a smaller one makes a smaller file."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    Image.fromarray(np.eye(20, dtype=np.uint8)).save(tmp_path / "large.png")
    with pytest.raises(GraphError, match=r"large\.png: not a readable image \(Image size \(400"):
        image_signal(tmp_path / "large.png")


def test_a_truncated_image_is_refused(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (40, 40), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "cut.png")
    content = (tmp_path / "cut.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(GraphError, match=r"cut\.png: not a readable image"):
        image_signal(tmp_path / "cut.png")


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_shape_range_and_titles_without_network(no_network):
    found = photographs(size=20, count=6)
    assert found.signals.shape == (6, 400)
    assert found.signals.dtype == np.float32
    assert found.signals.min() >= 0
    assert found.signals.max() <= 1
    assert (found.signals.std(axis=1) > 0.01).all()
    assert found.titles == ("camera", "chelsea", "coffee", "astronaut", "rocket", "moon")
    assert found.graph.num_nodes == 400
    assert found.shape == (20, 20)
    assert found.mask.all()


def test_the_same_every_time():
    np.testing.assert_array_equal(photographs(16, 2).signals, photographs(16, 2).signals)


def test_a_photograph_is_the_mean_of_its_blocks():
    # 512 = 8 · 64: shrinking smooths first, which is close to a mean over each block.
    blocks = (data.camera() / 255).reshape(8, 64, 8, 64).mean(axis=(1, 3))
    found = photographs(size=8, count=1).signals[0].reshape(8, 8)
    assert np.corrcoef(found.ravel(), blocks.ravel())[0, 1] > 0.95
    assert abs(found.mean() - blocks.mean()) < 0.02


def signal_rows(data: Path | None = None) -> list[dict[str, Any]]:
    return [row for row in survey(data) if row["name"] in SIGNAL_SETS]


def test_survey_tells_what_is_there(elsewhere: Path) -> None:
    embedded, missing = signal_rows()
    assert (embedded["name"], embedded["state"], embedded["path"]) == (
        "photographs",
        "embedded",
        None,
    )
    signals = named_signals("photographs")
    assert embedded["signals"] == len(signals.signals) == len(signals.titles)
    grid = nx.grid_2d_graph(*signals.shape)
    sizes = (grid.number_of_nodes(), grid.number_of_edges())
    assert (embedded["nodes"], embedded["edges"]) == sizes
    assert missing == {
        "name": "grid-images",
        "about": SIGNAL_SETS["grid-images"]["about"],
        "path": None,
        "state": "not found",
        "signals": 50,
        "nodes": 100 * 100,
        "edges": nx.grid_2d_graph(100, 100).number_of_edges(),
    }

    path = write_grid_images(elsewhere / "own", count=3, side=5)
    assert signal_rows(elsewhere / "own")[1] == missing | {"state": "found", "path": str(path)}


def test_the_command_lists_all_that_train_takes(call) -> None:
    listed = {row["name"]: row for row in only_json(call("datasets", "--json"))["datasets"]}
    assert {source_kind(name) for name in listed} == {"nodes", "molecules", "filters"}
    assert set(SIGNAL_SETS) <= set(listed)
    status, out, _ = call("datasets")
    assert status == 0
    (line,) = (line for line in out.splitlines() if "photographs " in line)
    assert {"4", "1,600", "3,120", "embedded"} <= set(line.split())


POINTS = np.linspace(0, 2, 81)
EXPECTED = {
    "low-pass": np.exp(-10 * POINTS**2),
    "high-pass": 1 - np.exp(-10 * POINTS**2),
    "band-pass": np.exp(-10 * (POINTS - 1) ** 2),
    "band-rejection": 1 - np.exp(-10 * (POINTS - 1) ** 2),
    "comb": np.abs(np.sin(np.pi * POINTS)),
}


def test_the_names_are_the_contracts():
    assert list(FILTERS) == ["low-pass", "high-pass", "band-pass", "band-rejection", "comb"]
    assert all(name == target.name for name, target in FILTERS.items())


@pytest.mark.parametrize("name", EXPECTED)
def test_values(name):
    values = target_filter(name)(torch.as_tensor(POINTS))
    np.testing.assert_allclose(values.numpy(), EXPECTED[name], atol=1e-15)


@pytest.mark.parametrize(
    ("name", "at_ends_and_middle"),
    [
        ("low-pass", (1, 0, 0)),
        ("high-pass", (0, 1, 1)),
        ("band-pass", (0, 1, 0)),
        ("band-rejection", (1, 0, 1)),
        ("comb", (0, 0, 0)),
    ],
)
def test_what_each_lets_through(name, at_ends_and_middle):
    values = target_filter(name)(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64))
    np.testing.assert_allclose(values.numpy(), at_ends_and_middle, atol=1e-4)


def test_every_filter_says_its_formula_once():
    formulas = [target.formula for target in FILTERS.values()]
    assert len(set(formulas)) == 5
    assert all("λ" in formula for formula in formulas)


def test_unknown_filter_names_the_known():
    with pytest.raises(ConfigError, match=r"'lowpass'.*low-pass.*comb"):
        target_filter("lowpass")
