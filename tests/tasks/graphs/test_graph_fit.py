"""Training from files of molecules or graphs: results, models, resuming, predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, root_mean_squared_error
from tests.tasks.jobs import learn, predict_with, train_on
from tests.training.small_graphs import small_set, three_classes, with_numbers

from specformer import GraphSpecformer
from specformer.datasets import graph_split, pack
from specformer.errors import ConfigError, RunError
from specformer.graphs import GraphSet, read_graph_set, read_molecules
from specformer.graphs.formats.npz_file import write_graph_set
from specformer.graphs.formats.smiles import read_smiles
from specformer.tasks.graphs.graph_predict import load_graph_models
from specformer.tasks.graphs.graph_recipe import graph_recipe
from specformer.tasks.graphs.graph_work import GraphWork, graph_spectra, graph_splits
from specformer.tasks.job import Workplace
from specformer.tasks.task import check_parts
from specformer.training.runs.folder import RunFolder
from specformer.training.runs.progress import Silent, Update

CPU = torch.device("cpu")
FAST = ["model.hidden_channels=8", "model.num_heads=2", "model.num_layers=1", "schedule.epochs=2"]
#: Those of files that tell a split of their own, which is not to be used.
DRAWN = {"assignments": [*FAST, "split=random-80-10-10"]}


def train(source: Path, run: RunFolder | None = None, **options):
    settings = {"model": "specformer", "recipe": None, "progress": Silent(), "runs": 1, **options}
    return train_on(str(source), device=CPU, **{"assignments": FAST, **settings})


def finished(tmp_path: Path, source: Path, **options) -> tuple[RunFolder, dict]:
    run = RunFolder.create(tmp_path / "run", {"source": str(source)})
    result, outcome = train(source, **options)
    run.write_models(outcome.models)
    result = run.finish("molecules", result, outcome.arrays, command="test", seed=0, device=CPU)
    return run, result


@pytest.fixture
def graphs_file(tmp_path: Path) -> Path:
    write_graph_set(tmp_path / "small.npz", small_set(60))
    return tmp_path / "small.npz"


def molecule_file(path: Path, classes: bool = False) -> Path:
    """Chains of carbon and oxygen; the target is the number of carbons, or whether it is odd."""
    pytest.importorskip("rdkit")
    rows = [("C" * n + "O" * m, n) for n in range(1, 13) for m in range(1, 6)]
    lines = [f"{smiles},{n % 2 if classes else n}" for smiles, n in rows]
    path.write_text("\n".join(["smiles,carbons", *lines, "C1CC,3"]) + "\n")
    return path


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_result_and_saved_models(tmp_path: Path, graphs_file: Path) -> None:
    run, result = finished(tmp_path, graphs_file, runs=2, **DRAWN)
    assert (result["dataset"], result["recipe"], result["metric"]) == ("small", "default", "rmse")
    assert result["molecules"][0]["description"].endswith(
        "; 2 targets, figures are means over them"
    )
    assert len(result["test"]["values"]) == len(result["val"]["values"]) == 2
    assert result["test"] in (result["test_by_loss"], result["test_by_metric"])
    each = result["test_by_target"]
    assert list(each) == result["targets"]
    for run_number, mean in enumerate(result["test"]["values"]):
        assert np.mean([x["values"][run_number] for x in each.values()]) == pytest.approx(mean)
    assert len(set(result["molecules"][0]["splits"])) == 2
    assert "test_together" not in result
    readings = run.metrics()
    assert [row["epoch"] for row in readings] == [0, 1]
    assert all(len(row["val_metric"]) == 2 for row in readings)
    models = load_graph_models(run)
    assert sum(p.numel() for p in models[0].parameters()) == result["parameters"]
    # What is predicted is the mean of what the models say of the graphs as they are.
    graphs = read_graph_set(graphs_file)
    with torch.no_grad():
        batch = pack(graphs, fingerprint=1024)
        said = torch.stack([model(batch) for model in models]).numpy()
    found = rows_of(predict_with(run, device=CPU).text)
    for kind, expected in (("prediction", said.mean(axis=0)), ("spread", said.std(axis=0, ddof=1))):
        numbers = [[float(row[f"{kind}(target {i})"]) for i in (0, 1)] for row in found]
        np.testing.assert_allclose(
            numbers, expected, rtol=1e-2 if kind == "spread" else 1e-4, atol=1e-4
        )


def test_resampled_runs_are_judged_together(tmp_path: Path) -> None:
    """On one test part, by what ``predict`` says of it; their validation parts differ."""
    source = molecule_file(tmp_path / "chains.csv")
    changes = {"assignments": [*FAST, "split=resampled"], "task": "regression", "runs": None}
    run, result = finished(tmp_path, source, **changes)
    graphs = read_molecules(source).graphs
    recipe = graph_recipe(None, "chains", changes["assignments"])[1].settled(graphs)
    splits = graph_splits(graphs, recipe, 5, 0)
    assert result["molecules"][0]["splits"] == [split.fingerprint for split in splits]
    rows = [row for row in rows_of(predict_with(run, device=CPU).text) if row["prediction"]]
    said = np.array([[float(row[key]) for key in ("prediction", "spread")] for row in rows])
    wrong = (said[:, 0] - graphs.y[:, 0])[splits[0].test]
    assert result["test_together"] == pytest.approx(np.sqrt(np.mean(wrong**2)), rel=1e-3)
    (bins,) = (array for name, array in run.outputs().items() if name.endswith("calibration"))
    assert np.average(bins[:, 0] ** 2, weights=bins[:, 2]) == pytest.approx(
        np.mean(said[splits[0].test, 1] ** 2), rel=1e-2
    )


@pytest.mark.parametrize("kind", ["numbers", "classes", "several"])
def test_runs_of_one_split_are_also_judged_by_their_mean(tmp_path: Path, kind: str) -> None:
    """What ``predict`` says of the test graphs, against scikit-learn."""
    graphs = three_classes(60) if kind == "several" else small_set(60, classes=kind == "classes")
    assert graphs.y is not None
    graphs = replace(graphs, y=np.nan_to_num(graphs.y[:, :1]))
    source = tmp_path / "small.npz"
    write_graph_set(source, graphs)
    run = RunFolder.create(tmp_path / "run", {"source": str(source)})
    task = "regression" if kind == "numbers" else "classification"
    metric = [] if kind == "numbers" else ["metric=accuracy"]
    changes = {"assignments": [*FAST, "split=official", *metric], "task": task, "runs": 3}
    common = {"model": "specformer", "recipe": None, "progress": Silent(), "device": CPU}
    result, outcome = train_on(str(source), **changes, **common)
    run.write_models(outcome.models)
    run.finish("molecules", result, outcome.arrays, command="test", seed=0, device=CPU)
    told = rows_of(predict_with(run, device=CPU).text)
    test, measured = graphs.test_idx, graphs.y[graphs.test_idx, 0]
    predicted = [float(told[number]["prediction"]) for number in test]
    oracle = {"numbers": root_mean_squared_error}.get(kind, accuracy_score)
    assert result["test_together"] == pytest.approx(oracle(measured, predicted), rel=1e-4)


def test_a_files_own_split_is_used_unless_another_is_asked_for(tmp_path: Path) -> None:
    source = molecule_file(tmp_path / "mine.csv")
    lines = source.read_text().splitlines()
    parts = ["split", *(("train", "train", "Valid", "test")[i % 4] for i in range(61))]
    source.write_text("\n".join(f"{a},{b}" for a, b in zip(lines, parts, strict=True)))
    result, _ = train(source, runs=2)
    assert (result["split"], result["targets"]) == ("official", ["carbons"])
    assert "30 train, 15 validate and 15 test (official)" in result["molecules"][0]["description"]
    assert train(source, **DRAWN)[0]["split"] == "random-80-10-10"
    write_graph_set(tmp_path / "small.npz", small_set(60))
    assert train(tmp_path / "small.npz")[0]["split"] == "official"


def test_a_target_that_is_never_learned_is_named(tmp_path: Path, caplog) -> None:
    graphs = small_set(60)
    assert graphs.y is not None
    y = np.nan_to_num(graphs.y)
    y[graph_split(graphs, "random-80-10-10", 0).train, 1] = np.nan
    write_graph_set(tmp_path / "part.npz", replace(graphs, y=y, name="part"))
    train(tmp_path / "part.npz", runs=2, **DRAWN)
    (message,) = [each for each in caplog.messages if "mean nothing" in each]
    assert message == (
        "part: no graph to learn from has a known target 1; predictions of it mean nothing."
    )


def test_figures_are_those_of_the_saved_model(tmp_path: Path, graphs_file: Path) -> None:
    run, result = finished(tmp_path, graphs_file, **DRAWN)
    graphs = read_graph_set(graphs_file)
    test = np.flatnonzero(graph_split(graphs, "random-80-10-10", 0).test)
    with torch.no_grad():
        outputs = GraphSpecformer.from_pretrained(run.path / "model" / "000")(
            pack(graphs.subset(test), fingerprint=1024)
        ).numpy()
    assert graphs.y is not None
    squared = (outputs - graphs.y[test]) ** 2
    assert np.mean(np.sqrt(np.nanmean(squared, axis=0))) == pytest.approx(
        result["test"]["values"][0], rel=1e-4
    )


class StoppedError(Exception):
    pass


class StopsIn(Silent):
    """Progress that raises in one of the stages that train."""

    def __init__(self, stage: int) -> None:
        self.stages = stage

    @contextmanager
    def stage(self, label: str, total: int, unit: str) -> Iterator[Update]:
        self.stages -= total > 1

        def update(done: int, figure: float) -> None:
            if self.stages == 0 and done == 1:
                raise StoppedError

        yield update


def test_runs_that_are_done_are_not_trained_again(tmp_path: Path, graphs_file: Path) -> None:
    def checkpoints():
        return RunFolder(tmp_path)

    whole, _ = train(graphs_file, runs=3)
    with pytest.raises(StoppedError):
        train(graphs_file, runs=3, begin=checkpoints, progress=StopsIn(2))
    assert (tmp_path / "checkpoint-000.safetensors").exists()
    again, _ = train(graphs_file, runs=3, begin=checkpoints, progress=StopsIn(-5))
    for key in ("test", "val", "test_by_loss"):
        assert again[key] == whole[key]


@pytest.mark.parametrize("changed", ["bonds", "atoms", "targets"])
def test_graphs_that_were_changed_meanwhile_are_refused(
    tmp_path: Path, graphs_file: Path, changed: str
) -> None:
    def checkpoints():
        return RunFolder(tmp_path)

    first, _ = train(graphs_file, begin=checkpoints)
    assert train(graphs_file, begin=checkpoints)[0]["test"] == first["test"]  # from the state
    graphs = small_set(60)
    arrays = {
        "bonds": {"edge_feat": 1 - graphs.edge_feat.clip(0, 1)},
        "atoms": {"node_feat": graphs.node_feat[::-1]},
        "targets": {"y": graphs.y + 1},
    }
    write_graph_set(graphs_file, replace(graphs, **arrays[changed]))
    with pytest.raises(RunError, match="belongs to another run, other data or other settings"):
        train(graphs_file, begin=checkpoints)


def test_smiles_in_predictions_out(tmp_path: Path) -> None:
    run, result = finished(tmp_path, molecule_file(tmp_path / "chains.csv"), task="regression")
    assert result["targets"] == ["carbons"]
    # Five chains each of 1 to 12 carbons, which deviate by √((12² − 1)/12), and one that is
    # left out because it cannot be read.
    assert result["molecules"][0]["description"] == (
        "60 molecules of 9.5 atoms and 8.5 bonds on average, the largest of 17 atoms; "
        "48 train, 6 validate and 6 test (random-80-10-10); the target is carbons, with a "
        "standard deviation of 3.45"
    )
    asked = ["CCO", "C1CC", "CCN", "CC#CO", "CCCO"]
    found = predict_with(run, smiles=asked, device=CPU)
    rows = rows_of(found.text)
    assert [row["smiles"] for row in rows] == asked
    assert [row["id"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [bool(row["prediction"]) for row in rows] == [True, False, False, False, True]
    assert rows[1]["error"] == "is not valid SMILES"
    assert "an atom unlike any learned from (element)" in rows[2]["error"]
    assert len(found.problems) == 3
    assert found.problems[0] == "row 1: 'C1CC' is not valid SMILES"
    nothing = predict_with(run, smiles=["C1CC", "xx"], device=CPU)
    assert [row["error"] for row in rows_of(nothing.text)] == ["is not valid SMILES"] * 2


def test_fingerprints_of_smiles_are_computed_as_in_training(tmp_path: Path) -> None:
    source = molecule_file(tmp_path / "chains.csv")
    changes = ["model.fingerprint=64", "model.fingerprint_dropout=0.2"]
    run, _ = finished(tmp_path, source, task="regression", assignments=[*FAST, *changes])
    (model,) = load_graph_models(run)
    batch = pack(read_smiles(["CCO", "CCCO"]).graphs, fingerprint=64)
    expected = model(batch)[:, 0]
    blank = replace(batch, fingerprints=0 * batch.fingerprints)
    assert not torch.allclose(model(blank)[:, 0], expected)
    rows = rows_of(predict_with(run, smiles=["CCO", "CCCO"], device=CPU).text)
    found = torch.tensor([float(row["prediction"]) for row in rows])
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-4)


def test_a_file_of_molecules(tmp_path: Path) -> None:
    run, _ = finished(tmp_path, molecule_file(tmp_path / "chains.csv", classes=True))
    (tmp_path / "new.csv").write_text("id,smiles,carbons\na,CCO,\nb,xx,2\nc,CO,\n")
    found = predict_with(run, graph=str(tmp_path / "new.csv"), device=CPU)
    rows = rows_of(found.text)
    assert list(rows[0]) == ["id", "smiles", "prediction", "probability", "error"]
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    for row in (rows[0], rows[2]):
        assert int(row["prediction"]) == (float(row["probability"]) > 0.5)
    assert found.rows == 3


def test_an_unknown_node_of_a_graph(tmp_path: Path, graphs_file: Path) -> None:
    run, _ = finished(tmp_path, graphs_file)
    write_graph_set(tmp_path / "new.npz", GraphSet([1, 1], [0, 0], [], node_feat=[[2], [7]]))
    rows = rows_of(predict_with(run, graph=str(tmp_path / "new.npz"), device=CPU).text)
    assert rows[0]["error"] == ""
    assert rows[1]["error"] == "has an atom unlike any learned from (feature 0)"
    write_graph_set(tmp_path / "wide.npz", GraphSet([1], [0], [], node_feat=[[2, 1]]))
    with pytest.raises(RunError, match="2 features of atoms, the model was trained on 1"):
        predict_with(run, graph=str(tmp_path / "wide.npz"), device=CPU)


def test_targets_of_one_class_are_refused_before_training(tmp_path: Path) -> None:
    graphs = small_set(30)
    assert graphs.y is not None
    y = np.zeros_like(graphs.y)
    for message in ("alike: no target varies", "alike: rocauc needs graphs of both classes"):
        write_graph_set(tmp_path / "alike.npz", replace(graphs, y=y))
        with pytest.raises(ConfigError, match=message):
            train(tmp_path / "alike.npz")
        y[0] = 1.0  # that is in one part of the split at most


def test_one_of_several_classes(tmp_path: Path) -> None:
    write_graph_set(tmp_path / "small.npz", three_classes())
    run, result = finished(tmp_path, tmp_path / "small.npz", task="classification", runs=2, **DRAWN)
    assert (result["task"], result["metric"]) == ("classification", "accuracy")
    (row,) = result["molecules"]
    assert row["classes"] == ["0", "1", "2"]
    # Each run tests a tenth of the graphs, and may have the unknown one there.
    counts = run.outputs()["molecules/small/specformer/confusion"]
    assert counts.shape == (3, 3)
    assert counts.sum() in (11, 12)
    graphs = read_graph_set(tmp_path / "small.npz")
    with torch.no_grad():
        batch = pack(graphs, fingerprint=1024)
        said = torch.stack([model(batch) for model in load_graph_models(run)])
    shares = said.softmax(dim=-1)
    found = rows_of(predict_with(run, device=CPU).text)
    numbers = [[float(line[f"probability({n})"]) for n in range(3)] for line in found]
    np.testing.assert_allclose(numbers, shares.mean(dim=0), atol=1e-4)
    best = shares.mean(dim=0).argmax(dim=1)
    assert [int(line["prediction"]) for line in found] == best.tolist()
    spread = shares.std(dim=0)[range(60), best]
    np.testing.assert_allclose([float(line["spread"]) for line in found], spread, rtol=1e-2)


@pytest.mark.parametrize("several", [False, True])
def test_classes_that_are_words(several: bool, tmp_path: Path) -> None:
    source = molecule_file(tmp_path / "mine.csv")
    header, *rows = source.read_text().splitlines()
    words = ("short", "long", "middle") if several else ("short", "long")
    named = [f"{row},{words[n % len(words)]}" for n, row in enumerate(rows)]
    source.write_text("\n".join([f"{header},kind", *named]) + "\n")
    settings = {"model": "specformer", "recipe": None, "progress": Silent(), "device": CPU}
    run = RunFolder.create(tmp_path / "run", {"source": str(source)})
    chosen = [*FAST, "targets=[kind]"]
    result, outcome = train_on(str(source), assignments=chosen, runs=2, **settings)
    run.write_models(outcome.models)
    run.finish("molecules", result, outcome.arrays, command="test", seed=0, device=CPU)
    assert result["classes"] == sorted(words)
    assert (result["task"], result["settings"]["loss"]) == (
        "classification", "ce" if several else "bce"
    )  # fmt: skip
    found = rows_of(predict_with(run, smiles=["CCO", "C1C", "CCCCOO"], device=CPU).text)
    columns = [f"probability({word})" for word in sorted(words)]
    assert list(found[0]) == ["id", "smiles", "prediction", *columns, "spread", "error"]
    assert not found[1]["prediction"]
    for line in (found[0], found[2]):
        shares = [float(line[column]) for column in columns]
        assert sum(shares) == pytest.approx(1.0, abs=1e-5)
        assert line["prediction"] == sorted(words)[int(np.argmax(shares))]
    with pytest.raises(ConfigError, match="mine: the target is text; use `--task classification`"):
        train_on(str(source), assignments=chosen, task="regression", **settings)


@pytest.mark.parametrize("model", ["specformer", "graphormer"])
def test_graphs_whose_nodes_have_numbers(model: str, tmp_path: Path, graphs_file: Path) -> None:
    source = tmp_path / "numbers.npz"
    write_graph_set(source, with_numbers(small_set(60)))
    run, _ = finished(tmp_path, source, model=model)
    (loaded,) = load_graph_models(run)
    assert loaded.config["in_channels"] == 2
    with torch.no_grad():
        said = loaded(pack(read_graph_set(source), fingerprint=1024)).numpy()
    found = rows_of(predict_with(run, device=CPU).text)
    numbers = [[float(line[f"prediction(target {i})"]) for i in (0, 1)] for line in found]
    np.testing.assert_allclose(numbers, said, rtol=1e-4, atol=1e-4)
    with pytest.raises(RunError, match="small: 0 numbers of atoms, the model was trained on 2"):
        predict_with(run, graph=str(graphs_file), device=CPU)


def test_some_of_the_targets(graphs_file: Path) -> None:
    write_graph_set(graphs_file, replace(read_graph_set(graphs_file), task_names=("a", "b")))
    settings = {"model": "specformer", "recipe": None, "progress": Silent(), "device": CPU}
    wanted = [*FAST, "targets=[b]"]
    result, outcome = train_on(str(graphs_file), assignments=wanted, **settings)
    assert result["targets"] == ["b"]
    assert outcome.models[0].config["out_channels"] == 1
    with pytest.raises(ConfigError, match="no target 'c', only 'a', 'b'"):
        train_on(str(graphs_file), assignments=["targets=[c]"], **settings)


def test_what_cannot_be_trained_is_refused(graphs_file: Path) -> None:
    for options, message in (
        ({"model": "odd"}, "unknown model 'odd'"),
        ({"runs": 0}, "--runs 0"),
        ({"task": "classification"}, "several targets are 0 and 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(graphs_file, **options)


@pytest.mark.parametrize(
    "name", ["zinc", "molhiv", pytest.param("molpcba", marks=pytest.mark.slow)]
)
def test_the_papers_recipes_run_on_the_real_sets(name: str, shared_data: Path) -> None:
    """An epoch over the first small graphs of each part, those of both classes among them."""
    whole = read_graph_set(shared_data / f"{name}.npz")
    assert whole.y is not None
    numbers, split, start = [], {}, 0
    for key in ("train_idx", "valid_idx", "test_idx"):
        part = getattr(whole, key)
        part = part[whole.num_nodes[part] < 18]
        positive = part[(whole.y[part] == 1).any(axis=1)]
        chosen = np.union1d(part[:12], positive[:4])
        split[key] = np.arange(start, start + len(chosen))
        numbers.append(chosen)
        start += len(chosen)
    graphs = replace(whole.subset(np.concatenate(numbers)), **split)
    recipe = graph_recipe("paper", name, ["schedule.epochs=1", "schedule.batch_size=8"])[1]
    recipe = recipe.settled(graphs)
    spectra = graph_spectra(graphs, recipe, Workplace(CPU))
    splits = graph_splits(graphs, recipe, 1, 0)
    job = GraphWork(graphs, splits, "specformer", recipe, 0, CPU, spectra)
    outcome = learn(job, progress=Silent())
    assert np.isfinite(outcome.row["test"]["mean"])
    assert outcome.row["metric"] == {"zinc": "mae", "molhiv": "rocauc", "molpcba": "ap"}[name]


def test_pcqm4mv2_whose_test_targets_are_secret(tmp_path: Path, caplog) -> None:
    """A file as :func:`graph_set_from_pcqm4mv2` makes it."""
    pytest.importorskip("rdkit")
    found = read_smiles(["C" * n + "O" * m for n in range(1, 9) for m in range(1, 6)])
    y = np.linspace(1.0, 9.0, 40)[:, None]
    y[30:] = np.nan
    parts = {"train_idx": np.arange(20), "valid_idx": np.arange(20, 30)}
    graphs = replace(
        found.graphs, y=y, test_idx=np.arange(30, 40), task_names=("homolumogap",), **parts
    )
    write_graph_set(tmp_path / "pcqm4mv2.npz", graphs)
    result, outcome = train(Path("pcqm4mv2"), data=tmp_path)
    assert (result["recipe"], result["metric"]) == ("paper", "mae")
    # Its validation part is tested on, and a tenth of the training part validates.
    tested = outcome.arrays["molecules/pcqm4mv2/specformer/tested"]
    np.testing.assert_allclose(np.sort(tested[1, :, 0]), y[20:30, 0], rtol=1e-6)
    error = np.abs(tested[0] - tested[1]).mean()
    assert result["test"]["mean"] == pytest.approx(error, rel=1e-5)
    assert result["test"] != result["val"]
    assert "tested on, and 2 graphs of the training part validate" in caplog.text


@pytest.mark.parametrize("seed", range(6))
def test_sixty_molecules_of_two_classes_split_with_every_seed(seed: int) -> None:
    graphs = small_set(60, classes=True)
    y = np.zeros((60, 1), dtype=np.float32)
    y[:27] = 1.0
    graphs = replace(graphs, y=y, train_idx=None, valid_idx=None, test_idx=None)
    recipe = graph_recipe(None, "own")[1].settled(graphs)
    check_parts(
        graphs.name, graphs.y, recipe.metric, graph_splits(graphs, recipe, 1, seed), "graphs"
    )
