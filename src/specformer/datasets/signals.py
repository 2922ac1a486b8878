r"""Images as signals on a grid graph: the synthetic task's data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from specformer.datasets.download import set_file
from specformer.errors import ConfigError, GraphError, check_known
from specformer.files.host_memory import raised
from specformer.files.npz_archive import naming, read_arrays
from specformer.graphs import Graph

#: Sets known by name: four photographs of 40 × 40 pixels, the paper's 50 images of 100 × 100.
SIGNAL_SETS: dict[str, dict[str, Any]] = {
    "photographs": {
        "about": "photographs of scikit-image", "signals": 4, "nodes": 1_600, "edges": 3_120,
    },
    "grid-images": {
        "about": "the paper's images", "signals": 50, "nodes": 10_000, "edges": 19_800,
    },
}  # fmt: skip
#: The named set that comes with an installed package.
EMBEDDED = "photographs"
#: Files of scikit-image's wheel, in the order they are used.
PHOTOGRAPHS = ("camera.png", "chelsea.png", "coffee.png", "astronaut.png", "rocket.jpg", "moon.png")
#: How far rounding may take a weighted sum of colours beyond white.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class SignalSet:
    """Signals on one graph.

    ``signals`` are ``[count, n]`` in float32; ``mask`` ``[n]`` is true where errors count;
    ``shape`` (height, width) is for drawing.
    """

    name: str
    graph: Graph
    signals: np.ndarray
    mask: np.ndarray
    shape: tuple[int, int]
    titles: tuple[str, ...]

    @property
    def mirrors(self) -> tuple[np.ndarray, np.ndarray]:
        """The mirror symmetries of the grid."""
        return grid_mirrors(*self.shape)

    def first(self, count: int | None) -> SignalSet:
        """The first ``count`` signals; None for all of them."""
        if count is None:
            return self
        if not 1 <= count <= len(self.signals):
            most = len(self.signals)
            raise ConfigError(f"{count} images asked for; choose 1 to {most} of {self.name}.")
        return self.numbered(range(count))

    def numbered(self, numbers: Sequence[int]) -> SignalSet:
        """The signals of these numbers, from 0, in this order."""
        for number in numbers:
            if not 0 <= number < len(self.signals):
                last = len(self.signals) - 1
                raise ConfigError(f"image {number} asked for; {self.name} has images 0 to {last}.")
        return replace(
            self,
            signals=self.signals[list(numbers)],
            titles=tuple(self.titles[number] for number in numbers),
        )


def grid_graph(height: int, width: int) -> Graph:
    """The 4-neighbour grid, node ``row * width + column``.

    Example:
        >>> grid_graph(2, 3).num_edges
        7
    """
    rows, columns = _path(height), _path(width)
    adjacency: Any = sp.kron(rows, sp.eye_array(width)) + sp.kron(sp.eye_array(height), columns)
    return Graph(adjacency=sp.csr_array(adjacency), name=f"grid-{height}x{width}")


def grid_mirrors(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A grid's reflections, up-down and left-right, as permutations of the nodes.

    Example:
        >>> grid_mirrors(1, 3)[1].tolist()
        [2, 1, 0]
    """
    nodes = np.arange(height * width).reshape(height, width)
    return nodes[::-1].ravel(), nodes[:, ::-1].ravel()


def _path(length: int) -> sp.csr_array:
    # Of 64-bit indices, as other graphs are: the fingerprint depends on their type.
    here = np.arange(length - 1)
    ends = np.concatenate([here, here + 1]), np.concatenate([here + 1, here])
    return sp.csr_array((np.ones(2 * here.size), ends), shape=(length, length))


def named_signals(name: str, data: str | Path | None = None) -> SignalSet:
    """The signals of that name of ``SIGNAL_SETS``; ``data`` is a folder searched first."""
    return photographs() if name == EMBEDDED else paper_images(data)


def photographs(size: int = 40, count: int = 4) -> SignalSet:
    """The first ``count`` photographs as grey signals in [0, 1] on a ``size`` × ``size`` grid.

    They ship inside scikit-image: no download.

    Example:
        >>> photographs(size=16, count=2).signals.shape
        (2, 256)
    """
    images = np.stack([_grey_square(name, size) for name in PHOTOGRAPHS[:count]])
    titles = [name.rpartition(".")[0] for name in PHOTOGRAPHS[:count]]
    return _on_grid(EMBEDDED, images, titles)


def _grey(image: np.ndarray) -> np.ndarray:
    """An image in shades of grey, from 0 to 1 if its pixels are whole numbers."""
    from skimage import color

    if image.ndim == 3:
        image = color.rgb2gray(image[..., :3]) if image.shape[-1] >= 3 else image[..., 0]
    return image / np.iinfo(image.dtype).max if image.dtype.kind in "ui" else image.astype(float)


def _grey_square(name: str, size: int) -> np.ndarray:
    from skimage import io, transform

    with resources.as_file(resources.files("skimage.data") / name) as path:
        grey = _grey(io.imread(path))
    side = min(grey.shape)
    top, left = (grey.shape[0] - side) // 2, (grey.shape[1] - side) // 2
    square = grey[top : top + side, left : left + side]
    return np.asarray(transform.resize(square, (size, size), anti_aliasing=True)).clip(0, 1)


def _on_grid(
    name: str, images: np.ndarray, titles: Sequence[str], mask: np.ndarray | None = None
) -> SignalSet:
    """Images ``[count, height, width]`` in [0, 1] as signals; without a mask, all pixels count."""
    height, width = images.shape[1:]
    return SignalSet(
        name=name,
        graph=grid_graph(height, width),
        signals=images.reshape(len(images), -1).astype(np.float32),
        mask=np.ones(height * width, dtype=bool) if mask is None else mask.astype(bool).ravel(),
        shape=(height, width),
        titles=tuple(titles),
    )


def paper_images(data: str | Path | None = None) -> SignalSet:
    """The paper's 50 images of 100 × 100 pixels, errors counted over the inner 96 × 96.

    Reads ``grid-images.npz`` (``images`` uint8 [50, 100, 100], ``mask`` bool [100, 100]).
    """
    path, keys = set_file("grid-images", data), ("images", "mask")
    with naming(path):
        arrays = read_arrays(path, "grid images", keys, keys)
    images, mask = arrays["images"], arrays["mask"]
    if images.ndim != 3 or images.dtype != np.uint8 or mask.shape != images.shape[1:]:
        raise GraphError(
            f"{path}: expected images uint8 [count, height, width] and a mask [height, width], "
            f"found {images.dtype} {images.shape} and {mask.shape}."
        )
    if images.size == 0 or not mask.any():
        raise GraphError(f"{path}: has no image, or its mask selects no pixel.")
    for number, image in enumerate(images):
        if np.ptp(image) == 0:
            raise GraphError(f"{path}: all pixels of image {number} are equal; leave it out.")
    titles = [f"image {number}" for number in range(len(images))]
    return _on_grid("grid-images", images.astype(np.float32) / 255.0, titles, mask)


def image_signal(path: str | Path, largest: int = 64) -> SignalSet:
    """A grey version of an image file in [0, 1], its longer side at most ``largest`` pixels."""
    from PIL import Image
    from skimage import io, transform

    path = Path(path)
    if not path.is_file():
        raise GraphError(f"{path}: no such image file.")
    usual = Image.MAX_IMAGE_PIXELS
    assert usual is not None
    Image.MAX_IMAGE_PIXELS = raised(usual)
    try:
        image = np.asarray(io.imread(path))
    except Exception as error:  # imageio's plugins may raise anything if it is not an image
        # Image readers add pages of advice to the first line.
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise GraphError(f"{path}: not a readable image ({reason}).") from error
    finally:
        Image.MAX_IMAGE_PIXELS = usual
    if image.ndim == 4 and len(image) == 1:  # a GIF of one picture
        image = image[0]
    has_pages = image.ndim == 3 and image.shape[-1] > 4
    grey = image if has_pages else _grey(image)
    if grey.ndim != 2 or min(grey.shape) < 2:
        raise GraphError(f"{path}: expected one image of at least 2 × 2 pixels, not {grey.shape}.")
    if not np.isfinite(grey).all() or np.ptp(grey) == 0:
        raise GraphError(f"{path}: all pixels are equal, or some are not numbers.")
    if min(grey.min(), 1 - grey.max()) < -_ROUNDING:
        raise GraphError(
            f"{path}: has pixels from {grey.min():.4g} to {grey.max():.4g}; pixels that are not "
            "whole numbers must lie between 0 and 1."
        )
    scale = min(1.0, largest / max(grey.shape))
    shape = tuple(max(2, round(side * scale)) for side in grey.shape)
    small = np.asarray(transform.resize(grey, shape, anti_aliasing=True)).clip(0, 1)
    return _on_grid(path.stem, small[None], [path.stem])


@dataclass(frozen=True)
class TargetFilter:
    """A response over [0, 2], and its formula to print."""

    name: str
    formula: str
    response: Callable[[Tensor], Tensor]

    def __call__(self, eigenvalues: Tensor) -> Tensor:
        return self.response(eigenvalues)


FILTERS: dict[str, TargetFilter] = {
    target.name: target
    for target in (
        TargetFilter("low-pass", "exp(−10λ²)", lambda x: (-10 * x**2).exp()),
        TargetFilter("high-pass", "1 − exp(−10λ²)", lambda x: 1 - (-10 * x**2).exp()),
        TargetFilter("band-pass", "exp(−10(λ−1)²)", lambda x: (-10 * (x - 1) ** 2).exp()),
        TargetFilter(
            "band-rejection", "1 − exp(−10(λ−1)²)", lambda x: 1 - (-10 * (x - 1) ** 2).exp()
        ),
        TargetFilter("comb", "|sin(πλ)|", lambda x: (math.pi * x).sin().abs()),
    )
}


def target_filter(name: str) -> TargetFilter:
    """The filter of that name."""
    check_known("filter", FILTERS, name)
    return FILTERS[name]
