r"""Begin with what other graphs have taught: models that were trained before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from specformer.datasets import Split
from specformer.errors import ConfigError
from specformer.files.checked_tensors import checksum
from specformer.graphs import GraphSet
from specformer.nn.pretrained import LAST, Pretrained
from specformer.tasks.graphs.models import (
    graph_model,
    load_graph_models,
    num_outputs,
    same_columns,
)
from specformer.tasks.graphs.recipe import GraphRecipe, built_recipe, of_models
from specformer.training.runs.folder import RunFolder


@dataclass(frozen=True)
class StartingPoint:
    """Models that have learned from many graphs, for others to start from.

    Args:
        origin: the run's folder, or the set they learned from.
        model: the models' name.
        models: one per run.
        settings: what of a recipe makes them, see
            :func:`~specformer.tasks.graphs.recipe.of_models`.
        seen: the values of each column of atoms and bonds that they have learned from.
        seconds: what training them took, where that is part of the run.
    """

    origin: str
    model: str
    models: tuple[Pretrained, ...]
    settings: Mapping[str, Any]
    seen: Mapping[str, list[list[int]]]
    seconds: float = 0.0

    @classmethod
    def of(cls, path: str | Path, model: str) -> StartingPoint:
        """The models of a finished run, which have to be of this name."""
        run = RunFolder.open(path)
        if run.config().get("command") != "train":
            raise ConfigError(f"--from {path}: only runs of `specformer train` keep models.")
        if run.result("kind")["kind"] != "molecules":
            raise ConfigError(f"--from {path}: was not trained on molecules.")
        result = run.result("model", "settings", "seen")
        if result["model"] != model:
            raise ConfigError(f"--from {path}: holds models {result['model']}, not {model}.")
        recipe = built_recipe(model, result["settings"], f"--from {path}: settings")
        # They have started already, and have room: what the recipe says of either does not count.
        settings = of_models(recipe) | {"start": None, "atoms": None}
        return cls(str(path), model, tuple(load_graph_models(run)), settings, result["seen"])

    @property
    def fingerprint(self) -> str:
        """A hash of all weights."""
        return checksum(
            {
                f"{number}.{name}": tensor
                for number, model in enumerate(self.models)
                for name, tensor in model.state_dict().items()
            }
        )

    @property
    def _cardinalities(self) -> tuple[list[int], list[int]]:
        config = self.models[0].config
        return config["node_cardinalities"], config["edge_cardinalities"]

    def check(self, graphs: GraphSet, recipe: GraphRecipe) -> None:
        """Refuse graphs that the models were not made for, and settings of other models."""
        same_columns(graphs, self.models[0])
        atoms = self._cardinalities[0]
        if recipe.atoms not in (None, atoms):
            raise ConfigError(
                f"atoms={recipe.atoms}: the models of {self.origin} have room for {atoms}."
            )
        beyond = graphs.outside(*self._cardinalities)
        if len(beyond):
            raise ConfigError(
                f"{graphs.name}: graph {beyond[0]} has an atom or bond that the models of "
                f"{self.origin} have no room for."
            )
        self.model_for(graphs, recipe, run=0)

    def model_for(self, graphs: GraphSet, recipe: GraphRecipe, run: int) -> Pretrained:
        """A model for these graphs that starts from one of those here.

        Run by run they take turns. All is taken over but the last layer, which knew other targets.
        """
        trained = self.models[run % len(self.models)]
        outputs = num_outputs(graphs, recipe)
        fresh = graph_model(self.model, recipe, *self._cardinalities, outputs, graphs.num_features)
        assert isinstance(fresh, Pretrained)
        self.check_same(recipe, fresh)
        state = trained.state_dict()
        kept = {name: own for name, own in fresh.state_dict().items() if name.startswith(LAST)}
        fresh.load_state_dict({**state, **kept})
        return fresh

    def check_same(self, recipe: GraphRecipe, fresh: nn.Module) -> None:
        """Refuse a recipe's model whose weights are others, and name the setting that is why."""
        shapes, expected = (
            {name: w.shape for name, w in each.state_dict().items() if not name.startswith(LAST)}
            for each in (fresh, self.models[0])
        )
        if shapes == expected:
            return
        changed = [
            f"model.{name}={own}"
            for name, theirs in self.settings["model"].items()
            if (own := getattr(recipe.model, name)) != theirs
        ]
        raise ConfigError(f"{', '.join(changed)}: the models of {self.origin} have other weights.")

    def seen_with(self, later: Mapping[str, list[list[int]]]) -> dict[str, list[list[int]]]:
        """What the models had learned from and what they then learn from, together."""
        return {
            name: [
                np.union1d(before, then).astype(int).tolist()
                for before, then in zip(self.seen[name], columns, strict=True)
            ]
            for name, columns in later.items()
        }


def seen(graphs: GraphSet, splits: Sequence[Split]) -> dict[str, list[list[int]]]:
    """The values of each column of atoms and bonds in the graphs learned from.

    Of others the embedding was never trained, so a prediction would mean nothing.
    """
    learned = np.logical_or.reduce([split.train for split in splits])
    nodes = graphs.node_feat[np.repeat(learned, graphs.num_nodes)]
    bonds = graphs.edge_feat[np.repeat(learned, graphs.num_edges)]
    return {
        name: [np.flatnonzero(np.bincount(column)).tolist() for column in feature.T]
        for name, feature in (("atoms", nodes), ("bonds", bonds))
    }
