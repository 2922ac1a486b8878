"""Recipes whose models learn from another set first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.jobs import learn, run_table, train_on, trials_of
from tests.training.small_graphs import small_set

from specformer.datasets import graph_set
from specformer.errors import ConfigError
from specformer.graphs import GraphSet
from specformer.graphs.formats.npz_file import write_graph_set
from specformer.graphs.formats.smiles import read_smiles
from specformer.paper.tables import table3
from specformer.reports.sections.molecule_section import molecule_section
from specformer.reports.variants import Rows
from specformer.tasks.graphs import graph_recipe as recipes
from specformer.tasks.graphs.graph_recipe import graph_recipe
from specformer.tasks.graphs.graph_work import (
    GraphWork,
    first_work,
    graph_spectra,
    graph_splits,
    trained_first,
)
from specformer.tasks.job import Workplace
from specformer.training.loops.graphs import graph_steps
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent

CPU = torch.device("cpu")
#: Chains that both sets have, written from either end.
SHARED = range(4, 20)
#: How many of its own the second set has before them.
OWN = 5


def molecules(smiles: list[str], tasks: int, name: str) -> GraphSet:
    """A set of these with classes of 0 and 1, a third each to train, validate and test."""
    graphs = read_smiles(smiles).graphs
    count = len(graphs)
    y = (np.arange(count)[:, None] + np.arange(tasks)) % 2
    parts = np.array_split(np.arange(count), 3)
    names = ("train_idx", "valid_idx", "test_idx")
    return replace(graphs, y=y.astype(float), name=name, **dict(zip(names, parts, strict=True)))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both sets in small, and their recipes with narrow models and few epochs."""
    pytest.importorskip("rdkit")
    folder = tmp_path / "data"
    folder.mkdir()
    hiv = ["O" + "C" * n for n in range(1, 31)]
    own = ["C" * n + "N" for n in range(1, 26)]
    pcba = [*own[:OWN], *("C" * n + "O" for n in SHARED), *own[OWN:]]
    for name, smiles, tasks in (("molhiv", hiv, 1), ("molpcba", pcba, 128)):
        write_graph_set(folder / f"{name}.npz", molecules(smiles, tasks, name))
    written = dict(recipes._BOOK.written)
    for recipe, name in (("best", "molhiv"), ("start", "molpcba")):
        own = written[recipe]["specformer"][name]
        narrow = {**own["model"], "hidden_channels": 8, "num_layers": 2}
        short = {**own["schedule"], "epochs": 2, "batch_size": 8}
        written[recipe] = {"specformer": {name: {**own, "model": narrow, "schedule": short}}}
    monkeypatch.setitem(vars(recipes._BOOK), "written", written)
    return folder


def best(data: Path, *changes: str) -> tuple[Any, GraphSet, list[Any]]:
    graphs = graph_set("molhiv", data)
    recipe = graph_recipe("best", "molhiv", changes)[1].settled(graphs)
    return recipe, graphs, graph_splits(graphs, recipe, 2, 0)


def first(data: Path, recipe: Any, graphs: GraphSet, splits: list[Any]) -> GraphWork | None:
    """What the models of a recipe learn first, with its spectra."""
    place = Workplace(CPU, data)
    found = first_work(GraphWork(graphs, splits, "specformer", recipe, 0, CPU), place)
    return found and found.with_spectra(place)


def train(data: Path, *changes: str, **options: Any):
    return train_on(
        "molhiv",
        model="specformer",
        recipe="best",
        assignments=changes,
        data=data,
        device=CPU,
        runs=2,
        **{"progress": Silent()} | options,
    )


def test_graphs_that_are_held_out_later_are_not_learned_from(data: Path) -> None:
    recipe, graphs, splits = best(data)
    job = first(data, recipe, graphs, splits)
    assert job is not None
    assert graphs.smiles is not None
    trained_on = {len(text) - 1 for text in np.array(graphs.smiles)[splits[0].train]}
    before = graph_set("molpcba", data).train_idx
    assert before is not None
    (split,) = job.splits
    expected = [
        number for number in before.tolist() if number < OWN or SHARED[number - OWN] in trained_on
    ]
    assert OWN < len(expected) < len(before)
    assert np.flatnonzero(split.train).tolist() == expected


def test_a_recipe_without_a_start_learns_nothing_first(data: Path) -> None:
    recipe, graphs, splits = best(data, "start=null")
    assert first(data, recipe, graphs, splits) is None


def test_models_go_on_from_what_they_learned_first(data: Path, tmp_path: Path) -> None:
    """As from models that are trained before, and again from the checkpoints."""
    recipe, graphs, splits = best(data)
    job = first(data, recipe, graphs, splits)
    assert job is not None
    start, _ = trained_first(job, Workplace(CPU))
    assert start.seconds > 0

    def begin() -> RunFolder:
        return RunFolder(tmp_path)

    result, outcome = train(data, begin=begin)
    assert result["start"] == "molpcba"
    assert result["molecules"][0]["start"] == "molpcba"
    nitrogen = 6
    assert nitrogen not in graphs.node_feat[:, 0]
    assert nitrogen in result["seen"]["atoms"][0]
    assert (tmp_path / "checkpoint-start-000.safetensors").exists()
    again, _ = train(data, begin=begin)
    assert again["test"] == result["test"]
    # The fresh last layer aside, a model after two short epochs is near where it started from.
    fresh = start.model_for(graphs, recipe, 0)
    moved = dict(outcome.models[0].named_parameters())
    for name, parameter in fresh.named_parameters():
        if not name.startswith("readout"):
            assert (parameter - moved[name]).abs().max() < 0.01, name


class Interrupted(Silent):
    """Stops the work after the second epoch of a stage."""

    def __init__(self, label: str) -> None:
        self.label = label

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Any]:
        def update(done: int, figure: float) -> None:
            if label == self.label and done == 2:
                raise KeyboardInterrupt

        with super().stage(label, total, unit):
            yield update


@pytest.mark.parametrize("stage", ["molpcba: start", "molhiv: specformer, run 1"])
def test_whichever_training_was_stopped_goes_on(
    data: Path, tmp_path: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the checkpoint of its first epoch, and to the models of an uninterrupted run."""
    monkeypatch.setitem(graph_steps.__kwdefaults__, "save_every", 0.0)

    def begin() -> RunFolder:
        return RunFolder(tmp_path)

    with pytest.raises(KeyboardInterrupt):
        train(data, begin=begin, progress=Interrupted(stage))
    held = {path.stem for path in tmp_path.glob("*.safetensors")}
    assert held == {"checkpoint-start-000"} | ({"checkpoint-000"} if "molhiv" in stage else set())
    _, stopped = train(data, begin=begin)
    _, whole = train(data)
    for ours, expected in zip(stopped.models, whole.models, strict=True):
        for name, tensor in expected.state_dict().items():
            assert torch.equal(ours.state_dict()[name], tensor), name


def test_models_are_as_they_are_first_but_for_dropouts(data: Path, tmp_path: Path) -> None:
    """So that molecules of one's own can start there, with one setting."""
    (tmp_path / "mine.csv").write_text(
        "\n".join(["smiles,y", *(f"{'C' * n}O,{n * n % 7}" for n in range(1, 31))])
    )
    first = graph_recipe("start", "molpcba")[1]
    ours = ["start=molpcba", "model.feature_dropout=0.3"]
    result, _ = train_on(
        str(tmp_path / "mine.csv"),
        model="specformer",
        recipe=None,
        assignments=[*ours, "schedule.epochs=1"],
        data=data,
        device=CPU,
        progress=Silent(),
    )
    assert (result["start"], result["settings"]["matrix"]) == ("molpcba", first.matrix)
    own = replace(
        first.model, feature_dropout=0.3, transformer_dropout=0.0, fingerprint_dropout=0.5
    )
    assert result["settings"]["model"] == asdict(own)
    assert graph_recipe(None, "mine", ours)[1].schedule == graph_recipe(None, "mine")[1].schedule
    (tmp_path / "mine.yaml").write_text(
        "{start: molpcba, model: {num_layers: 3, transformer_dropout: 0.2}, matrix: laplacian}"
    )
    found = graph_recipe(str(tmp_path / "mine.yaml"), "mine")[1]
    expected = replace(
        first.model, feature_dropout=0.0, transformer_dropout=0.2, fingerprint_dropout=0.5
    )
    assert (found.model, found.matrix) == (expected, first.matrix)


def test_a_row_has_the_seconds_of_what_was_learned_first(data: Path) -> None:
    recipe, graphs, splits = best(data)
    before = first(data, recipe, graphs, splits)
    assert before is not None
    start, _ = trained_first(before, Workplace(CPU))
    slow = replace(start, seconds=1e6)
    spectra = graph_spectra(graphs, recipe, Workplace(CPU))
    job = GraphWork(graphs, splits, "specformer", recipe, 0, CPU, spectra, slow)
    assert learn(job, progress=Silent()).row["seconds"] > 1e6


def test_the_table_learns_first_too(data: Path, tmp_path: Path) -> None:
    result, arrays = run_table(
        table3,
        datasets=["molhiv"],
        models=["specformer"],
        recipes=["best"],
        runs=2,
        data=data,
        device=CPU,
        progress=Silent(),
        begin=lambda: tmp_path,
    )
    assert result["recipes"]["best"]["molhiv"]["specformer"]["start"] == "molpcba"
    first = graph_recipe("start", "molpcba")[1].settled(graph_set("molpcba", data))
    assert result["recipes"]["start"] == {"molpcba": {"specformer": asdict(first)}}
    assert (tmp_path / "checkpoint-molhiv-specformer-best-start-000.safetensors").exists()
    fresh = {key: value for key, value in result["molecules"][0].items() if key != "start"}
    both = {"molecules": [{**fresh, "recipe": "paper"}, result["molecules"][0]]}
    section = molecule_section(Rows.of("molecules", both, arrays))
    told = ("Specformer (best) on molhiv", "models start from those of molpcba")
    assert [name for name, _ in section.notes] == ["molhiv", told[0]]
    assert section.notes[-1] == told
    alone, _ = train(data)
    kept = [row for row in result["rows"] if row["metric"] == "rocauc"]
    assert [row["values"] for row in kept] == [alone["test"]["values"]]


def test_what_would_not_fit_is_refused_before_anything_is_learned(
    data: Path, tmp_path: Path
) -> None:
    def begin() -> Any:
        raise AssertionError("nothing should have begun")

    with pytest.raises(ConfigError, match=r"^model.hidden_channels=16: the models of molpcba have"):
        train(data, "model.hidden_channels=16", begin=begin)
    with pytest.raises(ConfigError, match="unknown data set 'molpc'"):
        train(data, "start=molpc", begin=begin)
    with pytest.raises(
        ConfigError, match="start=zinc: there is no recipe start of specformer for it"
    ):
        train(data, "start=zinc", begin=begin)
    write_graph_set(tmp_path / "small.npz", small_set(60))
    with pytest.raises(ConfigError, match="start=molpcba: a search trains nothing first"):
        trials_of(
            str(tmp_path / "small.npz"),
            model="specformer",
            recipe=None,
            assignments=["start=molpcba"],
            data=None,
            cache=None,
            device=CPU,
            seed=0,
        )


def test_a_table_refuses_other_models_before_its_first_set(data: Path) -> None:
    """Not when it has trained on all sets before; and no set has been read yet."""

    def begin() -> Any:
        raise AssertionError("nothing should have begun")

    with pytest.raises(ConfigError, match=r"^model.num_layers=3: the models of molpcba have other"):
        run_table(
            table3,
            datasets=["zinc", "molhiv"],
            models=["specformer"],
            assignments=["model.num_layers=3"],
            data=data,
            device=CPU,
            progress=Silent(),
            begin=begin,
        )


def test_parts_that_say_nothing_are_refused_before_anything_is_learned(data: Path) -> None:
    """The models would learn from the first set, and then nothing could be told of them."""
    graphs = graph_set("molhiv", data)
    assert graphs.y is not None
    assert graphs.test_idx is not None
    graphs.y[graphs.test_idx] = 0.0
    write_graph_set(data / "molhiv.npz", graphs)

    def begin() -> Any:
        raise AssertionError("nothing should have begun")

    with pytest.raises(ConfigError, match="molhiv: rocauc needs graphs of both classes"):
        train(data, begin=begin)


def test_a_first_set_without_graphs_to_learn_from_is_refused(data: Path) -> None:
    graphs = graph_set("molpcba", data)
    held_out = graph_set("molhiv", data).valid_idx
    assert held_out is not None
    only = [OWN + SHARED.index(number + 1) for number in held_out.tolist() if number + 1 in SHARED]
    rest = np.setdiff1d(np.arange(len(graphs)), only)
    for parts, told in (
        ((None, None, None), "molpcba: the file holds no training, validation, test graphs"),
        ((only, rest[::2], rest[1::2]), "molpcba: all of its training graphs validate or test on"),
    ):
        names = ("train_idx", "valid_idx", "test_idx")
        write_graph_set(
            data / "molpcba.npz", replace(graphs, **dict(zip(names, parts, strict=True)))
        )
        with pytest.raises(ConfigError, match=told):
            train(data)
