r"""The README of a saved model, in the form that the Hugging Face hub shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import nn

_CARD = """\
---
library_name: specformer
tags:
- graph-neural-network
- specformer
---

# {kind}

A model with {count:,} parameters in {dtype}. `model.safetensors` holds its weights,
`config.json` its arguments:

```json
{config}
```

```python
from {module} import {kind}

model = {kind}.from_pretrained("path/to/this/folder")
```
"""
#: The module that people import a class of this package's front door from.
_FRONT = {"Specformer": "specformer", "GraphSpecformer": "specformer"}


def model_card(model: nn.Module, config: Mapping[str, Any]) -> str:
    """A short card: what the model is, its arguments, and how to load it.

    Example:
        >>> print(model_card(nn.Linear(2, 3), {"in_channels": 2}).splitlines()[9])
        A model with 9 parameters in float32. `model.safetensors` holds its weights,
    """
    kind = type(model)
    parameters = list(model.parameters())
    return _CARD.format(
        kind=kind.__name__,
        count=sum(parameter.numel() for parameter in parameters),
        dtype=str(parameters[0].dtype).removeprefix("torch."),
        config=json.dumps(config, indent=2),
        module=_FRONT.get(kind.__name__, kind.__module__),
    )
