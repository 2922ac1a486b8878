"""Atomic writes, checksums, archives of arrays, and the user's cache folder.

:mod:`~specformer.files.checked_tensors` needs PyTorch and is imported by its own name.
"""

from specformer.files.atomic import (
    json_text,
    make_folder,
    replacing,
    reserve,
    user_cache,
    write_json,
    write_text,
)

__all__ = [
    "json_text",
    "make_folder",
    "replacing",
    "reserve",
    "user_cache",
    "write_json",
    "write_text",
]
