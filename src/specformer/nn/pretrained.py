r"""Models on disk: a folder with ``config.json`` and ``model.safetensors``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from specformer.errors import RunError
from specformer.files import replacing, write_json

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


class Pretrained(nn.Module):
    """A module that knows the arguments it was built with, and can be saved and built again."""

    #: Constructor arguments, all of them, as JSON can hold them.
    config: dict[str, Any]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write configuration and weights into ``folder``, each file atomically."""
        folder = Path(folder)
        state = {name: tensor.contiguous().cpu() for name, tensor in self.state_dict().items()}
        with replacing(folder / WEIGHTS) as part:
            save_file(state, part, metadata={"format": "pt", "model": type(self).__name__})
        write_json(folder / CONFIG, {"model": type(self).__name__, **self.config})

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """The model saved in ``folder``, in evaluation mode."""
        folder = Path(folder)
        try:
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            state = load_file(folder / WEIGHTS)
        except FileNotFoundError as error:
            raise RunError(f"{folder}: no saved model ({error.filename} is missing).") from error
        except (json.JSONDecodeError, SafetensorError) as error:
            raise RunError(f"{folder}: damaged model ({error}).") from error
        saved = config.pop("model", None)
        if saved != cls.__name__:
            raise RunError(f"{folder}: holds a {saved}, not a {cls.__name__}.")
        try:
            model = cls(**config)
            model.load_state_dict(state)
        except (TypeError, RuntimeError) as error:
            raise RunError(f"{folder}: weights and {CONFIG} do not match ({error}).") from error
        return model.eval()
