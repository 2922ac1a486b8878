"""Files: written whole, read unaltered or not at all, and where those go that are kept.

What needs PyTorch is named by its module, :mod:`~specformer.files.checked_tensors`.
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
