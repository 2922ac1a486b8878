r"""Photographs that ship inside scikit-image, brought to a small grid: no download."""

from __future__ import annotations

from importlib import resources

import numpy as np

from specformer.datasets.signals import SignalSet, grid_graph

#: Files of scikit-image's wheel, in the order they are used.
PHOTOGRAPHS = ("camera.png", "chelsea.png", "coffee.png", "astronaut.png", "rocket.jpg", "moon.png")


def photographs(size: int = 40, count: int = 4) -> SignalSet:
    """The first ``count`` photographs as grey signals in [0, 1] on a ``size`` × ``size`` grid.

    Example:
        >>> photographs(size=16, count=2).signals.shape
        (2, 256)
    """
    signals = np.stack([_grey_square(name, size) for name in PHOTOGRAPHS[:count]])
    return SignalSet(
        name="photographs",
        graph=grid_graph(size, size),
        signals=signals.reshape(len(signals), -1).astype(np.float32),
        mask=np.ones(size * size, dtype=bool),
        shape=(size, size),
        titles=tuple(name.rpartition(".")[0] for name in PHOTOGRAPHS[:count]),
    )


def _grey_square(name: str, size: int) -> np.ndarray:
    from skimage import color, io, transform

    with resources.as_file(resources.files("skimage.data") / name) as path:
        image = io.imread(path)
    grey = color.rgb2gray(image[..., :3]) if image.ndim == 3 else image / 255.0
    side = min(grey.shape)
    top, left = (grey.shape[0] - side) // 2, (grey.shape[1] - side) // 2
    square = grey[top : top + side, left : left + side]
    return np.asarray(transform.resize(square, (size, size), anti_aliasing=True)).clip(0, 1)
