r"""Learn from many small graphs: batches of fixed shapes, the best epoch kept.

On a GPU the data lie there and the step of each batch shape, from putting the batch together to the
change of the weights, is captured once and replayed; the host waits once an epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from specformer.datasets.batches import Batch, Batches, batch_stream
from specformer.datasets.packed import BatchShape, GraphStore
from specformer.errors import ConfigError, check_known
from specformer.graphs.checks import graph_numbers
from specformer.graphs.graph_set import ragged
from specformer.nn.conv.embedding import EdgeEmbedding, NodeEmbedding
from specformer.nn.pretrained import Pretrained
from specformer.spectrum.many.packed_graphs import PackedGraphs, check_categories
from specformer.training.engine.capture import RepeatedByShape, differentiate
from specformer.training.engine.distributed import ALONE, Workers
from specformer.training.engine.rewind import Rewind, layer_name
from specformer.training.engine.stacking import WeightAverage, trained_state
from specformer.training.engine.turns import Steps, exhausting
from specformer.training.evaluation.graph_metrics import (
    Loss,
    Metric,
    Scale,
    graph_errors,
    mean_error,
    metric_named,
)
from specformer.training.evaluation.graphs import (
    REMEDY,
    GraphEvaluation,
    GraphMonitor,
    GraphPrecision,
    History,
    Placed,
)
from specformer.training.optim.early_stopping import diverged
from specformer.training.optim.schedule import GraphSchedule, moments, settle_moments
from specformer.training.runs.checkpoint import Checkpoint, Interruption
from specformer.training.runs.environment import matmul_precision

#: Seconds between checkpoints; an epoch may take half of one or half an hour.
SAVE_EVERY = 30.0


@dataclass(frozen=True)
class GraphTask:
    """What to learn from what.

    Args:
        store: the graphs and their targets.
        train: numbers of the graphs to learn from, or a mask over all.
        val: those to choose the epoch by.
        test: those to report on.
        loss: ``"l1"``, ``"mse"``, ``"bce"`` for classes 0 and 1, or ``"ce"`` for one target with
            classes 0, 1, 2, ….
        metric: one of :data:`~specformer.training.evaluation.graph_metrics.METRICS`.
        standardise: learn targets of mean 0 and variance 1 over ``train``, and give the model's
            last layer the way back, so that it predicts in the targets' own units. Nodes' numbers
            are learned from so in any case.
    """

    store: GraphStore
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    loss: Loss = "l1"
    metric: str = "mae"
    standardise: bool = False

    def __post_init__(self) -> None:
        check_known("loss", get_args(Loss), self.loss)
        for part in ("train", "val", "test"):
            numbers = graph_numbers(getattr(self, part), part, len(self.store))
            object.__setattr__(self, part, numbers)


@dataclass(frozen=True)
class Chosen:
    """Validation and test figure at the epoch a rule picks."""

    val: float
    test: float
    epoch: int


@dataclass(frozen=True)
class GraphFit:
    """The model of the epoch that is kept, what every rule picks, curves and seconds per epoch.

    The curves ``[most epochs, 3]`` are training loss, validation loss and validation metric, of
    ``epochs`` epochs: patience may run out, or a training loss not be a number. ``chosen`` has the
    last epoch only if its loss is finite; if not, ``layer`` names the first that was not.
    ``seconds_before`` went into the epochs that a checkpoint held already. ``predicted`` and
    ``measured`` ``[n, tasks]`` are the model's outputs for the test graphs, in the targets' units,
    and those targets.
    """

    model: nn.Module
    chosen: Mapping[GraphMonitor, Chosen]
    curves: np.ndarray
    epochs: int
    seconds_per_epoch: float
    seconds_before: float
    predicted: np.ndarray
    measured: np.ndarray
    layer: str = ""


def graph_steps(
    model: nn.Module,
    task: GraphTask,
    schedule: GraphSchedule,
    *,
    seed: int = 0,
    monitor: GraphMonitor = "metric",
    precision: GraphPrecision = "highest",
    keep_inputs: bool = False,
    workers: Workers = ALONE,
    checkpoint: Checkpoint | None = None,
    save_every: float = SAVE_EVERY,
    capture: bool = True,
    on_epoch: Callable[[int, float], None] | None = None,
    which: str = "run 1 of 1",
    in_turn: bool = False,
) -> Steps[GraphFit]:
    """Train until a schedule's epochs or patience are over, or it diverges, and keep the best.

    ``fit_graphs`` takes all steps at once and returns the :class:`GraphFit`. ``graph_steps``, with
    the same arguments, stops after each step, for
    :func:`~specformer.training.engine.turns.in_turns`.

    Args:
        model: takes :class:`~specformer.spectrum.PackedGraphs`; its last layer is ``readout``, an
            ``nn.Linear``. It is trained where it lies, in place.
        task: data, loss and metric.
        schedule: epochs, batches and rates.
        seed: with an epoch's number it decides the order of the graphs and what dropout drops.
        monitor: keep the epoch of the best validation metric, of the lowest validation loss, or the
            last.
        precision: of products on a GPU.
        keep_inputs: True for a model that was trained before: it takes nodes' numbers as then.
        workers: who trains together, each a part of every batch.
        checkpoint: read at the start if it exists, and written after the epoch in which
            ``save_every`` seconds have passed. On a CPU a run that goes on from one gives what an
            uninterrupted run gives, to the bit.
        save_every: seconds; 0 for every epoch.
        capture: False to replay nothing on a GPU.
        on_epoch: called with the epochs done and the validation metric of the last.
        which: what an error calls this run.
        in_turn: other trainings take their steps in turn with this one. A signal then ends them
            all at once, without waiting for this one's epoch.
    """
    device = next(model.parameters()).device
    metric = metric_named(task.metric)
    _check(model, task, metric)
    task, scale = _prepared(task, device)
    if not keep_inputs:
        _standardise_inputs(model, task)
    workers.synchronise(model)
    placed = Placed(model, precision, device, workers)
    training = _Training(placed, task, schedule, seed, capture)
    judged = replace(placed, model=training.judged)
    validation = GraphEvaluation(judged, task.store, task.val, schedule.batch_size)
    history = History(judged.model, schedule.epochs, schedule.patience)
    state = {**training.state(), **history.state()}
    if checkpoint and workers.is_first:
        checkpoint.restore(state, epochs=schedule.epochs)
    workers.copy_from_first(state.values())
    settle_moments(training.optimiser)
    rewind = Rewind([model, judged.model], state, training.optimiser)
    before = float(history.seconds)

    def again(last: int) -> Iterator[Tensor]:
        """Take epochs up to this one once more; says whether a loss is not finite."""
        for epoch in range(int(history.epochs), last + 1):
            for _ in training.steps_of(epoch):
                yield ~training.totals[:1].isfinite()
        yield ~validation.outputs().isfinite().all().view(1)

    with matmul_precision("highest" if precision == "highest" else "high", device):
        saved = time.perf_counter()
        keeps = checkpoint is not None and workers.size == 1 and not in_turn
        with Interruption(active=keeps) as interruption:
            while not history.is_over:
                epoch = int(history.epochs)
                began = time.perf_counter()
                interruption.begin_epoch()
                yield from training.steps_of(epoch)
                outputs = validation.outputs()
                loss = mean_error(task.loss, outputs, validation.targets)
                figure, _ = _judged(metric, scale, outputs, validation.targets)
                took = time.perf_counter() - began
                history.add([training.mean_loss(), loss, figure], metric, took)
                if on_epoch:
                    on_epoch(epoch + 1, figure)
                if history.is_over and not history.is_finite:
                    history.layer.copy_(rewind.layers(again(epoch))[0])
                due = time.perf_counter() - saved >= save_every or history.is_over
                if checkpoint and workers.is_first and (due or interruption.asked):
                    checkpoint.save(state)
                if due:
                    saved = time.perf_counter()
                    if workers.size == 1:
                        rewind.keep()
                interruption.let_through()
        layer = layer_name(model, int(history.layer))
        if not history.has_model(monitor):
            raise diverged(f"{which} has", history.first_lost + 1, layer, REMEDY)
        testing = GraphEvaluation(judged, task.store, task.test, schedule.batch_size)
        chosen, tested = _tested(testing, history, monitor, metric, scale)
    if training.average:
        training.average.settle()
    scale.fold_into(cast(nn.Linear, model.readout))
    epochs, curves = int(history.epochs), history.curves.numpy()
    seconds = float(history.seconds) / epochs
    return GraphFit(model.eval(), chosen, curves, epochs, seconds, before, *tested, layer)


fit_graphs = exhausting(graph_steps)


def _check(model: nn.Module, task: GraphTask, metric: Metric) -> None:
    """Refuse targets or categories that the model has no room for, or that cannot be judged."""
    outputs, store, loss = cast(nn.Linear, model.readout).out_features, task.store, task.loss
    if store.y is None:
        raise ConfigError("the graphs have no targets to learn.")
    if loss in ("bce", "ce"):
        if task.standardise:
            raise ConfigError(f"loss={loss}: classes are learned as they are; standardise=False.")
        known, last = store.y[~store.y.isnan()], outputs - 1 if loss == "ce" else 1
        wrong = known[(known < 0) | (known > last) | (known != known.round())]
        if len(wrong):  # a loss may fall below 0, or a GPU stop somewhere later
            raise ConfigError(
                f"loss={loss}: a target is {wrong[0].item():g}, the classes are 0 to {last}."
            )
    targets = store.y.shape[1]
    if loss == "ce" and targets != 1:
        raise ConfigError(f"loss=ce is of one target, the graphs have {targets}.")
    if loss != "ce" and targets != outputs:
        raise ConfigError(
            f"targets have shape [graphs, {targets}], but the model puts out [graphs, {outputs}]."
        )
    for part in (task.val, task.test):
        metric.check(store.y[torch.as_tensor(part, device=store.device)].cpu().numpy())
    config = model.config if isinstance(model, Pretrained) else {}
    check_categories(config, store.nodes, store.bond_table)


def _prepared(task: GraphTask, device: torch.device) -> tuple[GraphTask, Scale]:
    """The task with its data on the device and targets as they are learned."""
    store = task.store.placed(device)
    assert store.y is not None
    learned = store.y[torch.as_tensor(task.train, device=store.device)]
    if learned.isnan().all():
        raise ConfigError("no graph to learn from has a known target.")
    scale = Scale.of(learned) if task.standardise else Scale.none(store.y.shape[1], store.device)
    return replace(task, store=replace(store, y=scale.standardised(store.y))), scale


def _standardise_inputs(model: nn.Module, task: GraphTask) -> None:
    """Have the model take numbers with mean 0 and variance 1 over the training graphs."""
    store = task.store
    for x, start, kind in (
        (store.x, store.node_start, NodeEmbedding),
        (None if store.bond_x is None else store.bond_x[1:], store.bond_start, EdgeEmbedding),
    ):
        if x is None or start is None:
            continue
        first = start.cpu().numpy()
        rows = ragged(first[task.train], np.diff(first)[task.train])
        learned = x.index_select(0, torch.from_numpy(rows).to(x.device))
        for module in model.modules():
            if isinstance(module, kind) and module.in_channels == x.shape[1] and len(learned):
                module.standardise(learned)


def _tested(
    testing: GraphEvaluation, history: History, monitor: GraphMonitor, metric: Metric, scale: Scale
) -> tuple[dict[GraphMonitor, Chosen], tuple[np.ndarray, np.ndarray]]:
    """Figures at the epoch of every rule; outputs and targets at that of ``monitor``.

    The model is left as it was then.
    """
    picked, chosen = history.picked(testing.placed.model), {}
    for rule in sorted(picked, key=lambda rule: rule == monitor):  # that to keep comes last
        best = picked[rule]
        best.restore()
        figure, tested = _judged(metric, scale, testing.outputs(), testing.targets)
        chosen[rule] = Chosen(float(best.val), figure, int(best.epoch))
    return chosen, tested


def _judged(
    metric: Metric, scale: Scale, outputs: Tensor, targets: Tensor
) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
    """The figure, and outputs and targets in their own units."""
    predicted, measured = scale.original(outputs).numpy(), scale.original(targets).numpy()
    # A diverged model's outputs are not numbers, which no metric takes.
    figure = metric(predicted, measured) if np.isfinite(predicted).all() else math.nan
    return figure, (predicted, measured)


class _Training:
    """Steps over the training graphs; all that changes is in tensors, changed in place."""

    def __init__(
        self, placed: Placed, task: GraphTask, schedule: GraphSchedule, seed: int, capture: bool
    ) -> None:
        self.placed, self.store, self.loss = placed, task.store, task.loss
        self.schedule, self.seed = schedule, seed
        self.parameters = list(placed.model.parameters())
        self.optimiser = schedule.optimiser(self.parameters, placed.device)
        self.steps = torch.zeros((), dtype=torch.long, device=placed.device)
        #: Sum of errors and number of targets of an epoch.
        self.totals = torch.zeros(2, dtype=torch.float64, device=placed.device)
        size = schedule.batch_size
        self.batches = Batches(task.store, task.train, size, seed=seed)
        part = -(-size // placed.workers.size)
        self.ladder = Batches(task.store, task.train, part, seed=seed)
        self.steps_per_epoch = len(self._batches(0))
        self.average = (
            None
            if schedule.average is None
            else WeightAverage(placed.model, schedule.average * self.steps_per_epoch)
        )
        alone = placed.workers.size == 1  # messages between workers are not captured
        self.repeated = RepeatedByShape(self._assemble, placed.device, capture=capture and alone)

    def _batches(self, number: int) -> list[Batch]:
        return self.placed.workers.shares(self.batches.epoch(number), self.ladder)

    def steps_of(self, number: int) -> Iterator[None]:
        """One pass over all graphs: an epoch, step by step."""
        # Seeded anew each epoch: so a run can go on from any of them, and workers differ.
        entropy = np.random.SeedSequence([self.seed, number, self.placed.workers.rank])
        torch.manual_seed(int(entropy.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        self.placed.model.train()
        self.totals.zero_()
        batches = self._batches(number)
        if self.store.device.type == self.placed.device.type:
            for batch in batches:
                self.repeated(batch.index, batch.shape)
                yield
        else:
            for graphs, targets in batch_stream(self.store, batches, self.placed.device):
                assert targets is not None
                self.step(graphs, targets)
                yield

    def _assemble(self, index: Tensor, shape: BatchShape) -> None:
        self.step(self.store.batch(index, shape), self.store.labels(index))

    def step(self, graphs: PackedGraphs, targets: Tensor) -> None:
        """One change of the weights; nothing here waits for the device."""
        for group in self.optimiser.param_groups:
            group["lr"].copy_(self.schedule.rate(self.steps, self.steps_per_epoch))
        # Gradients are then handed over as they are made: none is filled with zeros and added to.
        self.optimiser.zero_grad(set_to_none=True)
        errors, known = graph_errors(self.loss, self.placed(graphs), targets)
        total = errors.sum()
        count = self.placed.workers.sum(known.sum().to(total.dtype))
        differentiate(total / count.clamp_min(1.0))
        self.placed.workers.sum_gradients(self.parameters)
        if self.schedule.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.schedule.clip)
        self.optimiser.step()
        if self.average:
            self.average.update(self.steps)
        self.totals.add_(torch.stack([total.detach(), known.sum()]))
        self.steps.add_(1)

    @property
    def judged(self) -> nn.Module:
        """The model to validate, test and keep: the trained one, or the mean of its weights."""
        return self.average.model if self.average else self.placed.model

    def mean_loss(self) -> float:
        """The last epoch's, over all workers."""
        total, count = self.placed.workers.sum(self.totals.clone()).tolist()
        return float(total / max(count, 1.0))

    def state(self) -> dict[str, Tensor]:
        """All that a checkpoint needs, by name."""
        models = {"model": self.placed.model}
        if self.average:
            models["average"] = self.average.model
        state = {"steps": self.steps, **moments(self.optimiser)}
        for role, model in models.items():
            state |= {f"{role}.{name}": tensor for name, tensor in trained_state(model).items()}
        return state
