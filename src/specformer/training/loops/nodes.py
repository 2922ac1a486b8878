r"""Full-batch learning on nodes: every split a run of its own, all trained as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from specformer.errors import check_known
from specformer.nn.filter import EncoderBlock
from specformer.spectrum import Keys, Spectrum
from specformer.training.engine.capture import Repeated, beside, differentiate
from specformer.training.engine.rewind import NOT_SOUGHT, Rewind, first_lost, layer_name
from specformer.training.engine.stacking import stack, trained_state
from specformer.training.evaluation.graph_metrics import metric_named
from specformer.training.evaluation.link_objectives import LinkTask
from specformer.training.evaluation.node_objectives import BestEpochs, NodeTask
from specformer.training.optim.early_stopping import EarlyStopping
from specformer.training.optim.schedule import Schedule, moments, settle_moments
from specformer.training.runs.checkpoint import Checkpoint, Interruption
from specformer.training.runs.progress import Update

#: What decides when a run stops and which epoch's model is kept; accuracy is a metric's older name.
Monitor = Literal["loss", "metric", "accuracy"]
_READ_EVERY = 50
_SAVE_EVERY = 200
#: Seconds between two figures on a CPU, where slow epochs may make 50 of them a long time.
_TELL_EVERY = 1.0


#: Tasks whose every step takes all nodes of one graph.
FullBatchTask = NodeTask | LinkTask


@dataclass(frozen=True)
class Selection:
    """Figures ``[runs]`` at the epoch a rule picks."""

    val: Tensor
    test: Tensor
    epoch: Tensor


@dataclass(frozen=True)
class NodeFit:
    """The outcome of all runs.

    The stacked model at the ``kept`` epochs, the epochs that either rule picks, and curves
    ``[epochs, runs, 3]`` of training loss, validation loss and validation figure. ``is_lost``
    ``[runs]`` says which runs have no model: no epoch had a finite validation loss. ``layers`` name
    the first layer of each run that was not finite, if there was one. ``seconds_before`` went into
    epochs that a checkpoint held already.
    """

    model: nn.Module
    kept: Selection
    by_loss: Selection
    by_metric: Selection
    epochs: Tensor
    curves: Tensor
    is_lost: Tensor
    layers: Sequence[str]
    seconds_before: float


class NodeRuns:
    """The state of all runs: stacked model, optimiser, best epochs by either rule, curves."""

    def __init__(
        self, models: Sequence[nn.Module], task: FullBatchTask, schedule: Schedule, monitor: Monitor
    ) -> None:
        check_known("monitor", get_args(Monitor), monitor)
        device = task.x.device
        self.model = stack(models, task.runs).to(device)
        self.workers = task.share.workers
        self.workers.synchronise(self.model)
        blocks = (part for part in self.model.modules() if isinstance(part, EncoderBlock))
        self.alike = self.workers.draw_alike((block.dropout for block in blocks), device)
        self.schedule = schedule
        self.stopping = EarlyStopping(
            trained_state(self.model).values(), task.runs, schedule.patience
        )
        self.best = BestEpochs(task.runs, task.x.dtype, device)
        filters: Sequence[nn.Parameter] = getattr(self.model, "filter_parameters", tuple)()
        idle = set(getattr(self.model, "idle_parameters", tuple)())
        trained = [each for each in self.model.parameters() if each not in idle]
        self.optimiser = schedule.optimiser(trained, device, filters)
        self.epoch = torch.zeros((), dtype=torch.long, device=device)
        self.is_evaluated = True  # whether the weights of the last epoch, if any, are evaluated
        #: The first layer of each run that was not finite, by number.
        self.layer = torch.full((task.runs,), NOT_SOUGHT)
        self.seconds = torch.zeros((), dtype=torch.float64)
        self._rule = 0 if monitor == "loss" else 1
        sign = metric_named(task.metric).score(1.0)
        self._signs = torch.tensor([[1.0], [sign]], dtype=task.x.dtype, device=device)
        self._nothing = torch.zeros_like(self._signs)
        self.curves = torch.full(
            (schedule.epochs, task.runs, 3), float("nan"), dtype=task.x.dtype, device=device
        )

    def begin_epoch(self) -> None:
        """Training mode, with the epoch's learning rate."""
        self.schedule.set_rate(self.optimiser, self.epoch)
        self.model.train()

    @torch.no_grad()
    def take_loss(self, train_loss: Tensor) -> None:
        """Record the epoch's training loss ``[runs]``."""
        self.curves[..., 0].index_copy_(0, self.epoch.view(1), train_loss.unsqueeze(0))

    @torch.no_grad()
    def take_evaluation(self, val_loss: Tensor, val: Tensor, test: Tensor) -> None:
        """Record loss and figures, ``[runs]`` each, of the weights that the last epoch ended with.

        Call this before the next update. Idempotent.
        """
        last = self.epoch - 1
        record = torch.stack([val_loss, val, test])
        # Where the loss is not a number, the figure is a constant guess's: not a score either.
        scores = (record[:2] * self._signs).addcmul_(self._nothing, val_loss)
        self.best.update(scores, record[1:], self.stopping.active, last)
        self.stopping.update(scores[self._rule], last)
        self.curves[..., 1:].index_copy_(0, last.view(1), record[:2].mT.unsqueeze(0))

    def state(self) -> dict[str, Tensor]:
        """Everything that an epoch changes, by name, for a checkpoint."""
        names = ("epoch", "seconds", "curves", "layer")
        state = {name: getattr(self, name) for name in names}
        state |= moments(self.optimiser) | self.best.state()
        parts = {"model": trained_state(self.model), "stopping": self.stopping.state()}
        for prefix, part in parts.items():
            state |= {f"{prefix}.{name}": tensor for name, tensor in part.items()}
        return state

    def fit(
        self,
        one_epoch: Callable[[], None],
        checkpoint: Checkpoint | None,
        on_progress: Update | None,
        *,
        evaluate: Callable[[], None] | None = None,
        read_every: int = _READ_EVERY,
        save_every: int = _SAVE_EVERY,
    ) -> NodeFit:
        """Repeat ``one_epoch`` until every run has stopped, and restore the best models.

        If ``one_epoch`` leaves the evaluation of its weights to the next epoch, ``evaluate`` does
        it before results are read or saved.
        """
        state = self.state()
        checkpoint = checkpoint if self.workers.is_first else None
        if checkpoint:
            checkpoint.restore(state, epoch=self.schedule.epochs)
        self.workers.copy_from_first(state.values())
        done = int(self.epoch)
        settle_moments(self.optimiser)
        rewind = Rewind([self.model], state, self.optimiser, len(self.layer))
        before, began = float(self.seconds), time.perf_counter()
        alone = self.workers.size == 1  # or all have to do the same after every epoch
        on_cpu = self.epoch.device.type == "cpu"  # elsewhere, readings wait for work
        told, over = began, self._is_over(done)
        with Interruption(active=checkpoint is not None and alone) as interruption:
            while not over:
                interruption.begin_epoch()
                one_epoch()
                done += 1
                saves = done % save_every == 0 or interruption.asked
                late = on_cpu and alone and time.perf_counter() - told > _TELL_EVERY
                tells = late or done % read_every == 0 or done == self.schedule.epochs
                if evaluate and (tells or saves):
                    evaluate()
                over = (tells or on_cpu) and self._is_over(done)
                if over or saves:
                    self._seek_layers(rewind, lambda last: self._again(one_epoch, evaluate, last))
                if checkpoint and saves:
                    self.seconds.fill_(before + time.perf_counter() - began)
                    checkpoint.save(state)
                    if alone:
                        rewind.keep()
                interruption.let_through()
                if on_progress and (tells or over):
                    told = time.perf_counter()
                    on_progress(
                        done,
                        float(self.best.figure[self._rule, 0].mean()),
                        loss=float(self.curves[done - 1, :, 0].mean()),
                        runs_left=float(self.stopping.active.sum()),
                    )
        self.stopping.restore()
        rules = zip(self.best.figure, self.best.epoch, strict=True)
        by_loss, by_metric = (Selection(val, test, epoch) for (val, test), epoch in rules)
        return NodeFit(
            self.model.eval(),
            by_metric if self._rule else by_loss,
            by_loss,
            by_metric,
            self.stopping.epochs,
            self.curves[:done],
            self.stopping.is_lost,
            [layer_name(self.model, number) for number in self.layer.tolist()],
            before,
        )

    def _is_over(self, done: int) -> bool:
        """Whether no run goes on after so many epochs; weights that are not finite stay so."""
        if not 0 < done < self.schedule.epochs:
            return done > 0
        return not (self.stopping.active & self.curves[done - 1, :, 0].isfinite()).any()

    def _seek_layers(self, rewind: Rewind, again: Callable[[int], Iterator[Tensor]]) -> None:
        """Find the layers of runs that have diverged since the state that ``rewind`` kept."""
        first = first_lost(self.curves[: int(self.epoch), :, :2], self.stopping.epochs)
        sought = (first >= int(rewind.kept["epoch"])) & (self.layer == NOT_SOUGHT)
        if sought.any():
            self.layer[sought] = rewind.layers(again(int(first[sought].max())))[sought]

    def _again(
        self, one_epoch: Callable[[], None], evaluate: Callable[[], None] | None, last: int
    ) -> Iterator[Tensor]:
        """Take epochs up to this one; says which runs have had a loss that is not finite."""
        self.is_evaluated = True
        for done in range(int(self.epoch) + 1, last + 2):
            one_epoch()
            yield ~self.curves[:done, :, 0].isfinite().all(dim=0)
        if evaluate:
            evaluate()
        yield ~self.curves[: last + 1, :, :2].isfinite().all(dim=-1).all(dim=0)


def fit_nodes(
    models: Sequence[nn.Module],
    task: FullBatchTask,
    operator: object,
    schedule: Schedule,
    *,
    monitor: Monitor = "loss",
    landmarks: Keys | None = None,
    checkpoint: Checkpoint | None = None,
    on_progress: Update | None = None,
) -> NodeFit:
    """Train one model per run, all at once, with early stopping on what validates.

    Args:
        models: one per run, of one shape.
        task: features, and what is learned: a :class:`NodeTask` or a :class:`LinkTask`.
        operator: what the models take beside the features: a spectrum, or a ``Propagation``.
        schedule: epochs, patience and learning rates.
        monitor: what stops a run and picks the model that is kept: the lowest validation loss or
            the best validation figure, that of the task's metric.
        landmarks: what Specformer's attention looks at instead of every eigenvalue.
        checkpoint: read at the start, if it exists, and written every few hundred epochs. On a CPU
            a resumed run gives what an uninterrupted one gives, to the bit.
        on_progress: called with the epochs done, the mean validation figure at the best epochs,
            the mean training loss (``loss``) and how many runs still train (``runs_left``).
    """
    runs = NodeRuns(models, task, schedule, monitor)
    model, optimiser, device = runs.model, runs.optimiser, task.x.device
    points = () if landmarks is None else (landmarks,)
    weights: Tensor | None = None
    share, workers, seed = task.share, runs.workers, torch.initial_seed()

    def take_gradients() -> None:
        nonlocal weights
        runs.begin_epoch()
        optimiser.zero_grad()  # a gradient that is not there need not be added to
        terms = task.terms(model(task.x, operator, *points))
        if weights is None:  # in the first epoch, which is never captured
            weights = task.weights(terms)
        to_terms = weights  # the gradient of the loss, which is the sum of their product
        with beside(lambda: runs.take_loss(loss_of(terms.detach() * to_terms)), device):
            differentiate(terms, to_terms)
        workers.sum_gradients(model.parameters())

    def loss_of(parts: Tensor) -> Tensor:
        return share.sum(parts.sum(dim=(-2, -1)))

    @torch.no_grad()
    def evaluate() -> None:
        model.eval()
        (val_loss, _), (val, test) = task.evaluate(model(task.x, operator, *points))
        runs.take_evaluation(val_loss, val, test)

    on_cpu = device.type == "cpu"
    # Running averages of batch norms are changed by training and read by evaluation.
    apart = all(isinstance(each, nn.Parameter) for each in trained_state(model).values())

    def one_epoch() -> None:
        """An update, and meanwhile the evaluation of the weights that the last one made."""
        workers.seed_epoch(seed, runs.epoch, runs.alike)
        if runs.is_evaluated:  # or there is nothing to evaluate yet
            take_gradients()
        else:
            with beside(evaluate, device, apart=apart):
                take_gradients()
        optimiser.step()
        runs.epoch.add_(1)
        runs.is_evaluated = on_cpu
        if on_cpu:  # where nothing is done meanwhile, and runs stop as soon as they can
            evaluate()

    # Data that come from the host in every epoch cannot be captured.
    streamed = isinstance(operator, Spectrum) and operator.is_streamed
    capture = not streamed and workers.size == 1  # messages between workers are not captured
    epoch, last = (Repeated(work, device, capture=capture) for work in (one_epoch, evaluate))
    return runs.fit(epoch, checkpoint, on_progress, evaluate=None if on_cpu else last)
