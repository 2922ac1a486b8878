"""The search itself, on a subject whose best settings are known."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.tasks.trials_file import trials

from specformer.errors import ConfigError, RunError
from specformer.files.documents import sealed
from specformer.tasks.recipes.settings import build, override
from specformer.tasks.trials import Measured, search_space, sustained
from specformer.tasks.tune import Search, SearchPlan, spent
from specformer.training.evaluation.summaries import summary
from specformer.training.runs.progress import Silent


@dataclass(frozen=True)
class Point:
    x: int = 0
    y: int = 0
    z: int = 0


class Valley:
    """The height of a valley: its lowest point is x = 3, y = -2; z does not matter.

    Where y is 5 nothing can be measured, and no recipe may have x = y.
    """

    name, metric, model = "valley", "height", "eye"
    begun_from: str | None = None
    data: str = "a valley"

    def __init__(
        self, *assignments: str, lower: bool = True, source: str = "here", start: int = 0
    ) -> None:
        self.lower, self.source, self.start = lower, source, start
        self.assignments = list(assignments)
        given = {assignment.partition("=")[0] for assignment in assignments}
        lists = {"x": [*range(-6, 7)], "y": [*range(-6, 7)], "z": [1, 2]}
        self.space = {key: choices for key, choices in lists.items() if key not in given}
        self.measured: list[tuple[Point, int]] = []

    def recipe(self, changes: Sequence[str]) -> Point:
        return build(Point, override({"x": self.start}, changes), "valley")

    def size(self, recipe: Point) -> int:
        if recipe.x == recipe.y != 0:
            raise ConfigError("x and y must differ.")
        return abs(recipe.x)

    def measure(self, recipe: Point, splits: int) -> Measured:
        self.measured.append((recipe, splits))
        if recipe.y == 5:
            return Measured(None, None, 1.0)
        height = float((recipe.x - 3) ** 2 + (recipe.y + 2) ** 2) * (1 if self.lower else -1)
        return Measured(height, summary([height] * splits), 1.0)


def run(subject: Valley, folder: Path, trials: int = 40, seed: int = 0, **options):
    plan = SearchPlan(trials, splits=1, finalists=2, runs=3, **options)
    return Search(subject, folder, plan, seed).run(Silent())


@pytest.mark.parametrize("lower", [True, False])
def test_the_best_is_found_whichever_way_is_better(tmp_path: Path, lower: bool) -> None:
    winner = run(Valley(lower=lower), tmp_path, trials=120, explore=10)
    assert abs(winner["score"]) <= 2.0  # of 13 x 13 points, five are as near
    done = [trial for trial in trials(tmp_path) if trial["splits"] == 1]
    assert abs(winner["score"]) == min(abs(t["score"]) for t in done if t["score"] is not None)
    assert winner["splits"] == 3


def test_every_second_trial_starts_from_one_of_the_three_best(tmp_path: Path) -> None:
    run(Valley(), tmp_path, trials=40, explore=10)
    done = {trial["trial"]: trial for trial in trials(tmp_path) if trial["splits"] == 1}
    for number, trial in done.items():
        earlier = [n for n in range(number) if done[n]["score"] is not None]
        best = sorted(earlier, key=lambda n: (done[n]["score"], n))[:3]
        starts = [done[n]["set"] for n in best]
        if number > 10 and number % 2 == 0:
            assert any(trial["set"][: len(start)] == start for start in starts)
        elif number:
            assert [change[0] for change in trial["set"]] == ["x", "y", "z"]
    assert any(len(trial["set"]) > 3 for trial in done.values())


def test_what_no_model_can_have_is_drawn_again(tmp_path: Path) -> None:
    subject = Valley()
    run(subject, tmp_path, trials=60)
    assert all(point.x != point.y or point.x == 0 for point, _ in subject.measured)
    assert len(subject.measured) >= 60
    with pytest.raises(ConfigError, match="must differ"):
        run(Valley("x=1", "y=1"), tmp_path / "never")
    hopeless = Valley("x=4")
    hopeless.space = {"y": [4]}
    with pytest.raises(
        ConfigError, match=r"No valid setting in 100 draws; the last error was: x and y must"
    ):
        run(hopeless, tmp_path / "later")


def test_no_more_parameters_than_asked_for(tmp_path: Path) -> None:
    subject = Valley()
    run(subject, tmp_path, trials=30, parameters=2)
    assert {abs(point.x) for point, _ in subject.measured} == {0, 1, 2}
    with pytest.raises(ConfigError, match="the model has 6 parameters, more than --parameters 2"):
        run(Valley("x=6"), tmp_path / "large", parameters=2)


def test_diverged_trials_are_kept_but_never_win(tmp_path: Path) -> None:
    winner = run(Valley("x=4"), tmp_path, trials=30)
    failed = [trial for trial in trials(tmp_path) if trial["score"] is None]
    assert failed
    assert all(trial["recipe"]["y"] == 5 and trial["splits"] == 1 for trial in failed)
    assert winner["score"] is not None
    with pytest.raises(RunError, match="diverged in every trial"):
        run(Valley("y=5"), tmp_path / "all", trials=3)


def test_a_stopped_search_goes_on(tmp_path: Path) -> None:
    whole = run(Valley(), tmp_path / "whole", explore=8)
    run(Valley(), tmp_path / "parts", trials=15, explore=8)
    subject = Valley()
    again = run(subject, tmp_path / "parts", explore=8)
    assert again["set"] == whole["set"]
    assert len([splits for _, splits in subject.measured if splits == 1]) == 25
    first = [trial["set"] for trial in trials(tmp_path / "whole") if trial["splits"] == 1]
    parts = [trial["set"] for trial in trials(tmp_path / "parts") if trial["splits"] == 1]
    assert parts == first


def test_trials_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    run(Valley("x=1"), tmp_path, trials=3)
    for others in (["x=2"], [], ["x=1", "y=2"]):
        with pytest.raises(RunError, match=r"other settings \(x=1\).*--out"):
            run(Valley(*others), tmp_path, trials=3)


@pytest.mark.parametrize(
    ("subject", "options", "named"),
    [
        ({"source": "there"}, {}, "source=here"),
        ({"start": 1}, {}, "another recipe"),
        ({}, {"seed": 1}, "seed=0"),
        ({}, {"parameters": 9}, "parameters=None"),
        ({"source": "there"}, {"seed": 1}, "source=here, seed=0"),
    ],
    ids=["source", "recipe", "seed", "parameters", "several"],
)
def test_trials_of_another_search_are_not_mixed(
    tmp_path: Path, subject: dict, options: dict, named: str
) -> None:
    run(Valley(), tmp_path, trials=3)
    before = trials(tmp_path)
    with pytest.raises(RunError, match=rf"other settings \({named}\).*--out"):
        run(Valley(**subject), tmp_path, trials=4, **options)
    assert trials(tmp_path) == before
    run(Valley(), tmp_path, trials=4, explore=1)
    assert {trial["trial"] for trial in trials(tmp_path)} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "change",
    [{"set": ["a=1", {}]}, {"set": "a=1"}, {"trial": "<b>"}, {"score": []}, {"seconds": None}],
)
def test_trials_of_other_types_are_refused(tmp_path: Path, change: dict) -> None:
    run(Valley(), tmp_path, trials=1)
    trial = trials(tmp_path)[0]
    del trial["checksum"]
    (tmp_path / "trials.jsonl").write_text(json.dumps(sealed(trial | change)), encoding="utf-8")
    with pytest.raises(RunError, match=r"trials\.jsonl: damaged"):
        Search(Valley(), tmp_path, SearchPlan(runs=3, splits=1))
    with pytest.raises(RunError, match=r"trials\.jsonl: damaged"):
        spent(tmp_path)


@pytest.mark.parametrize("text", ["{half", '{"trial": 1}', "[1]"])
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trials.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"trials\.jsonl: damaged"):
        Search(Valley(), tmp_path, SearchPlan(runs=3, splits=1))


def test_no_trial_begins_when_the_time_is_up(tmp_path: Path) -> None:
    winner = run(Valley(), tmp_path, seconds=0.0)
    assert [trial["trial"] for trial in trials(tmp_path)] == [0, 0]
    assert winner["trial"] == 0


def test_one_lucky_epoch_does_not_count() -> None:
    steady, jumping = torch.full((60,), 0.7), torch.full((60,), 0.6)
    jumping[10] = 1.0
    late = torch.cat([torch.linspace(0.0, 0.5, 50), torch.full((10,), 0.99)])  # after its end
    curves, epochs = torch.stack([steady, jumping, late], dim=1), torch.tensor([60, 60, 50])
    found = sustained(curves, epochs, 20)
    literal = [
        max(float(curve[i : i + 20].mean()) for i in range(length - 19))
        for curve, length in ((steady, 60), (jumping, 60), (late, 50))
    ]
    assert found.tolist() == pytest.approx(literal)
    assert found.argmax() == 0
    errors = sustained(1 - curves, epochs, 20, lower=True)
    assert errors.tolist() == pytest.approx([1 - value for value in literal])


def test_a_run_shorter_than_the_window_counts_whole() -> None:
    accuracy = torch.tensor([[0.2], [0.4]])
    assert sustained(accuracy, torch.tensor([2]), 20).item() == pytest.approx(0.3)


def test_epochs_without_a_number_are_never_the_best() -> None:
    curve = torch.tensor([[0.4], [0.6], [math.nan], [0.1]])
    assert sustained(curve, torch.tensor([4]), 2).item() == pytest.approx(0.5)
    assert sustained(curve, torch.tensor([4]), 2, lower=True).item() == pytest.approx(0.5)
    assert not sustained(curve[2:3], torch.tensor([1]), 2).isfinite()


def test_what_is_set_is_not_searched() -> None:
    every = search_space("graph_search.yaml", "specformer")
    some = search_space("graph_search.yaml", "specformer", ["matrix=laplacian", "schedule.clip=1"])
    assert set(every) - set(some) == {"matrix", "schedule.clip"}


def test_a_score_changed_by_hand_does_not_win(tmp_path: Path) -> None:
    run(Valley(), tmp_path, trials=3)
    path = tmp_path / "trials.jsonl"
    first, _, rest = path.read_text().partition("\n")
    score = json.loads(first)["score"]
    path.write_text(first.replace(f'"score": {score}', '"score": 0.0') + "\n" + rest)
    with pytest.raises(RunError, match=r"trials\.jsonl: damaged \(it was altered"):
        run(Valley(), tmp_path, trials=3)
