r"""Models for a set of many small graphs: fresh ones, and those that were trained before."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from specformer.baselines.graphs import GRAPH_BASELINES, FragmentForest
from specformer.datasets import GRAPH_SETS, GraphStore, Split
from specformer.errors import ConfigError, RunError, check_known
from specformer.files.checked_tensors import checksum
from specformer.graphs import GraphSet
from specformer.graphs.formats.smiles import ATOM_CARDINALITIES, BOND_CARDINALITIES
from specformer.nn import GraphSpecformer
from specformer.nn.pretrained import LAST, Pretrained
from specformer.spectrum import ManySpectra
from specformer.tasks.graphs.graph_recipe import (
    FOREST,
    BaselineRecipe,
    GraphRecipe,
    built_recipe,
    of_models,
)
from specformer.training.runs.folder import RunFolder

#: Models of many graphs, ours first.
GRAPH_MODELS = ("specformer", *GRAPH_BASELINES)
#: All models that can be trained; the paper does not have the last one.
TRAINED_MODELS = (*GRAPH_MODELS, FOREST)


def model_for(
    graphs: GraphSet,
    name: str,
    recipe: GraphRecipe,
    room: tuple[Sequence[int], Sequence[int]] | None = None,
) -> nn.Module:
    """A fresh model of that name for these graphs.

    ``room``: how many values columns of atoms and bonds may take, if not those of the graphs.
    """
    atoms, bonds = room or cardinalities(graphs, recipe)
    channels = graphs.num_features, graphs.num_edge_features
    return graph_model(name, recipe, atoms, bonds, num_outputs(graphs, recipe), *channels)


def num_outputs(graphs: GraphSet, recipe: GraphRecipe) -> int:
    """The number of a model's outputs: one per target, or one per class of a single target."""
    if recipe.loss != "ce":
        return graphs.num_tasks
    if graphs.class_names is not None:
        return len(graphs.class_names)
    assert graphs.y is not None
    return int(np.nanmax(graphs.y)) + 1


def cardinalities(graphs: GraphSet, recipe: GraphRecipe) -> tuple[list[int], list[int]]:
    """How many values each column of atoms and bonds may take.

    Those of a named set, of OGB's lists for SMILES, or of the graphs themselves. Graphs beyond what
    a recipe says are refused.
    """
    named = GRAPH_SETS.get(graphs.name)
    if named and len(named.atom_cardinalities) == graphs.node_feat.shape[1]:
        atoms, bonds = named.atom_cardinalities, named.bond_cardinalities
    elif graphs.smiles is not None and graphs.node_feat.shape[1] == len(ATOM_CARDINALITIES):
        atoms, bonds = ATOM_CARDINALITIES, BOND_CARDINALITIES
    else:
        atoms, bonds = graphs.node_cardinalities, graphs.edge_cardinalities
    columns = list(recipe.atoms or atoms)
    if len(columns) != graphs.node_feat.shape[1]:
        raise ConfigError(
            f"atoms={columns}: {graphs.name} has {graphs.node_feat.shape[1]} columns of atoms."
        )
    beyond = graphs.outside(columns, bonds)
    if len(beyond):
        raise ConfigError(
            f"{graphs.name}: graph {beyond[0]} has an atom or bond beyond atoms={columns}, "
            f"bonds={list(bonds)}."
        )
    return columns, list(bonds)


def graph_model(
    name: str,
    recipe: GraphRecipe,
    atoms: Sequence[int],
    bonds: Sequence[int],
    outputs: int,
    in_channels: int = 0,
    edge_dim: int = 0,
) -> nn.Module:
    """A fresh model of that name."""
    check_known("model", GRAPH_MODELS, name)
    data: dict[str, Any] = {
        "node_cardinalities": atoms,
        "edge_cardinalities": bonds,
        "out_channels": outputs,
        "in_channels": in_channels,
    }
    options = asdict(recipe.model)
    if name not in GRAPH_BASELINES:
        return GraphSpecformer(**data, edge_dim=edge_dim, **options)
    if edge_dim:
        raise ConfigError(
            f"the edges have {edge_dim} numbers each, which {name} does not take; use "
            "specformer, leave edge_attr out, or pass its argmax if it is one-hot."
        )
    kind: Callable[..., nn.Module] = GRAPH_BASELINES[name]
    known = inspect.signature(kind).parameters
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in known:
            raise ConfigError(f"model.{option}: {name} has no such setting.")
    return kind(**data, **given)


def load_graph_models(run: RunFolder) -> list[Pretrained]:
    """The models of a finished run."""
    name = run.result("model")["model"]
    others: dict[str, type[Pretrained]] = {**GRAPH_BASELINES, FOREST: FragmentForest}
    kind = others.get(name, GraphSpecformer)
    return [kind.from_pretrained(folder) for folder in run.model_folders()]


def packed_for(model: nn.Module, graphs: GraphSet, spectra: ManySpectra) -> GraphStore:
    """The graphs with what a model needs of them: rings, or fingerprints."""
    asked = {name: getattr(model, name, None) for name in ("max_ring", "fingerprint")}
    return GraphStore.build(graphs, spectra, **asked)


def columns_of(model: Pretrained) -> dict[str, int]:
    """How many columns of each kind a trained model knows; a forest ignores numbers."""
    config = model.config
    if isinstance(model, FragmentForest):
        return dict(zip(("features of atoms", "features of bonds"), config["columns"], strict=True))
    return {
        "features of atoms": len(config["node_cardinalities"]),
        "features of bonds": len(config["edge_cardinalities"]),
        "numbers of atoms": config["in_channels"],
        "numbers of bonds": config.get("edge_dim", 0),
    }


def same_columns(graphs: GraphSet, model: Pretrained) -> None:
    """Refuse graphs whose nodes and bonds have other columns than a trained model knows."""
    found = {
        "features of atoms": graphs.node_feat.shape[1],
        "features of bonds": graphs.edge_feat.shape[1],
        "numbers of atoms": graphs.num_features,
        "numbers of bonds": graphs.num_edge_features,
    }
    for what, expected in columns_of(model).items():
        if found[what] != expected:
            raise RunError(
                f"{graphs.name}: {found[what]} {what}, the model was trained on {expected}."
            )


def largest_ring(name: str, recipe: GraphRecipe) -> int | None:
    """The size of the largest rings that a model takes; None where it takes no rings."""
    if name not in GRAPH_BASELINES:
        return getattr(recipe.model, "max_ring", None) or None
    known = inspect.signature(GRAPH_BASELINES[name]).parameters
    if "max_ring" not in known:
        return None
    assert isinstance(recipe, BaselineRecipe)
    return recipe.model.max_ring or int(known["max_ring"].default)


@dataclass(frozen=True)
class StartingPoint:
    """Trained models, one per run, that others start from.

    ``origin`` is the run's folder, or the set they learned from; ``settings`` are those of the
    recipe that decide their shape (:func:`.of_models`); ``seen`` has the values of each column of
    atoms and bonds they have learned from; ``seconds`` is how long they trained, where that is part
    of the run.
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
        # Ignores `start` and `atoms`: these models are already built.
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
            },
            algorithm=hashlib.sha256,  # checkpoints of stopped runs name it
        )

    @property
    def _cardinalities(self) -> tuple[list[int], list[int]]:
        config = self.models[0].config
        return config["node_cardinalities"], config["edge_cardinalities"]

    def check(self, graphs: GraphSet, recipe: GraphRecipe) -> None:
        """Refuse graphs and settings that the models were not made for."""
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
        """A model for these graphs with the weights of one of the models; runs take them in turn.

        The last layer stays fresh, because it knew other targets.
        """
        trained = self.models[run % len(self.models)]
        fresh = model_for(graphs, self.model, recipe, self._cardinalities)
        assert isinstance(fresh, Pretrained)
        self.check_same(recipe, fresh)
        state = trained.state_dict()
        kept = {name: own for name, own in fresh.state_dict().items() if name.startswith(LAST)}
        fresh.load_state_dict({**state, **kept})
        return fresh

    def check_same(self, recipe: GraphRecipe, fresh: nn.Module) -> None:
        """Refuse a recipe's model whose weights have other shapes, and name the settings."""
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
        """The values that the models had learned from, and those they learn from later."""
        return {
            name: [
                np.union1d(before, then).astype(int).tolist()
                for before, then in zip(self.seen[name], columns, strict=True)
            ]
            for name, columns in later.items()
        }


def seen(graphs: GraphSet, splits: Sequence[Split]) -> dict[str, list[list[int]]]:
    """The values of each column of atoms and bonds in the training graphs.

    Embeddings of other values are not trained, so that predictions with them mean nothing.
    """
    learned = np.logical_or.reduce([split.train for split in splits])
    nodes = graphs.node_feat[np.repeat(learned, graphs.num_nodes)]
    bonds = graphs.edge_feat[np.repeat(learned, graphs.num_edges)]
    return {
        name: [np.flatnonzero(np.bincount(column)).tolist() for column in feature.T]
        for name, feature in (("atoms", nodes), ("bonds", bonds))
    }
