r"""The task of learning one filter from signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from specformer.datasets import SignalSet, image_signal
from specformer.datasets.signals import SIGNAL_SETS, named_signals
from specformer.errors import ConfigError, RunError
from specformer.spectrum import Spectrum, decompose
from specformer.tasks.job import Job, Kind, Request, Workplace
from specformer.tasks.overview import of_signals
from specformer.tasks.signals.signal_fit import (
    MODELS,
    Contestant,
    SignalRecipe,
    learn_filters,
    refuse_idle_settings,
    signal_recipe,
)
from specformer.tasks.task import Outcome, PredictionRequest, Task
from specformer.training.runs.folder import RunFolder


@dataclass(frozen=True)
class SignalWork:
    """Signals, the model and the filter to learn; ``spectrum`` is None until it is computed."""

    signals: SignalSet
    contestant: Contestant
    filter_name: str
    seed: int
    spectrum: Spectrum | None = None


class FilterLearning(Task[SignalWork]):
    """A known filter, learned from signals and their filtered versions."""

    kind: ClassVar[Kind] = "filters"
    noun, plural = "a set of signals", "signals"
    models = MODELS
    runs = None
    options = frozenset({"filter"})

    def recipe_class(self, model: str | None) -> tuple[type, Sequence[str]]:  # noqa: ARG002
        return SignalRecipe, ()

    def resolve(self, request: Request) -> tuple[str, SignalRecipe]:
        refuse_idle_settings(request.model, request.changes)
        usual = "projected" if request.model == "specformer" else "paper"
        chosen = request.recipe or usual
        return chosen, signal_recipe(chosen, request.changes)

    def load(self, job: Job, place: Workplace) -> SignalWork:
        named = job.source in SIGNAL_SETS
        signals = named_signals(job.source, place.data) if named else image_signal(job.source)
        contestant = Contestant(job.model, job.recipe, job.settings, job.model)
        return SignalWork(signals.first(job.runs), contestant, job.filter or "comb", job.seed)

    def overview(self, work: SignalWork) -> dict[str, Any]:
        return of_signals(work.signals)

    def with_spectra(
        self,
        work: SignalWork,
        place: Workplace,
        beside: SignalWork | None = None,  # noqa: ARG002
    ) -> SignalWork:
        signals = work.signals
        with place.progress.stage(f"{signals.name}: spectrum", 1, ""):
            spectrum = decompose(
                signals.graph, device=place.device, cache=place.cache, mirrors=signals.mirrors
            )
        return replace(work, spectrum=spectrum)

    def fit(
        self,
        work: SignalWork,
        place: Workplace,
        checkpoint: Path | None,  # noqa: ARG002
        label: str | None = None,  # noqa: ARG002
    ) -> Outcome:
        """Train one model per signal. It takes seconds, so there are no checkpoints."""
        assert work.spectrum is not None
        study = learn_filters(
            work.signals,
            work.spectrum,
            [work.filter_name],
            [work.contestant],
            seed=work.seed,
            progress=place.progress,
        )
        models = [model for group in study.models.values() for model in group]
        return Outcome(study.rows[0], study.arrays, models)

    def summarise(self, work: SignalWork, outcome: Outcome) -> dict[str, Any]:
        signals, row, spectrum = work.signals, outcome.row, work.spectrum
        assert spectrum is not None
        return {
            "title": f"The {work.filter_name} filter on {signals.name}",
            "dataset": signals.name,
            "filter": work.filter_name,
            "runs": len(signals.signals),
            "metric": "sse",
            # The same pixels train and test, as in Table 1: this measures the fit alone.
            "test": row["sse"],
            "val": row["sse"],
            "r2": row["r2"],
            "settings": asdict(work.contestant.recipe),
            "spectra": [{"name": signals.graph.name, **spectrum.summary()}],
            "filters": [row],
        }

    def predict(self, run: RunFolder, request: PredictionRequest, place: Workplace) -> NoReturn:  # noqa: ARG002
        raise RunError(
            f"{run.path}: a filter on signals was learned; nothing is predicted with it."
        )

    def trials(self, job: Job, place: Workplace) -> NoReturn:  # noqa: ARG002
        raise ConfigError(f"{job.source}: signals are fitted, so there is nothing to validate on.")
