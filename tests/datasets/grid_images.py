"""A small stand-in for the paper's grid-images.npz, in its schema."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_grid_images(folder: Path, count: int = 2, side: int = 12, border: int = 1) -> Path:
    """Random images of ``side`` × ``side`` pixels, a border of ``border`` left out of the mask."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(7).integers(0, 256, (count, side, side), dtype=np.uint8)
    mask = np.zeros((side, side), dtype=bool)
    mask[border : side - border, border : side - border] = True
    path = folder / "grid-images.npz"
    np.savez_compressed(path, images=images, mask=mask)
    return path
