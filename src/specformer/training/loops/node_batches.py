r"""Learning on nodes in batches of them, for filters of the input features."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn import Specformer
from specformer.spectrum.implicit.polynomial import ChebyshevRows, ChebyshevTerms
from specformer.training.engine.capture import RepeatedByShape, differentiate
from specformer.training.engine.distributed import epoch_seed
from specformer.training.evaluation.node_objectives import NodeTask
from specformer.training.loops.nodes import Monitor, NodeFit, NodeRuns
from specformer.training.optim.schedule import Schedule
from specformer.training.runs.checkpoint import Checkpoint
from specformer.training.runs.progress import Update

#: Epochs have many steps, so that progress and checkpoints come often.
_READ_EVERY = 1
_SAVE_EVERY = 10


def fit_node_batches(
    models: Sequence[nn.Module],
    task: NodeTask,
    terms: ChebyshevTerms,
    schedule: Schedule,
    *,
    batch_size: int,
    monitor: Monitor = "loss",
    checkpoint: Checkpoint | None = None,
    on_progress: Update | None = None,
) -> NodeFit:
    r"""As :func:`~specformer.training.loops.nodes.fit_nodes`, with a step for each batch of nodes.

    Every step computes the learned responses and combines the rows of its batch,
    :math:`\sum_k c_k (T_k(L - I)\, x)_i`. An epoch goes once through all training nodes in a new
    random order; then validation and test nodes are evaluated, in batches too. Epochs, patience and
    rates, what stops a run and which model is kept, checkpoints and progress are as there.

    All runs take the same batches, so that rows are fetched once. Batches have the nodes that train
    in any run, and each run's loss is the mean over those that train in it. All workers draw the
    same order, and each takes its own nodes of a batch.

    Each model is a :class:`Specformer` that :attr:`~Specformer.takes_batches`. The task's features
    are in ``terms``. Steps have ``batch_size`` nodes at most, and batches of an epoch differ by one
    node at most. A checkpoint is written every few epochs, and progress told after every one.
    """
    check_batches(models)
    runs = NodeRuns(models, task, schedule, monitor)
    model, optimiser = runs.model, runs.optimiser
    accurate = task.loss == "ce" and task.metric == "accuracy"
    share, workers, seed = task.share, runs.workers, torch.initial_seed()
    #: Outputs of all nodes, for figures that are not sums over nodes.
    outputs: Tensor | None = None
    #: Sums over an epoch: training loss, validation loss, right validation and test nodes.
    sums = torch.zeros(4, task.runs, dtype=task.x.dtype, device=task.x.device)
    parts = (task.train, task.val, task.val, task.test)
    counts = torch.stack([task.counted(part).sum(dim=(-2, -1)) for part in parts])
    counts = share.sum(counts)
    train_nodes = _nodes_in(share.whole(task.train.any(dim=0).byte(), dim=0))
    other_nodes, first = _nodes_in((task.val | task.test).any(dim=0)), share.rows.start or 0

    def train_step(nodes: Tensor, rows: ChebyshevRows) -> None:
        optimiser.zero_grad(set_to_none=False)
        losses = task.errors(model(rows.x, rows), nodes)
        chosen = task.counted(task.train, nodes)
        number = share.sum(chosen.flatten(1).sum(dim=-1)).clamp_min(1)
        differentiate((_sum_over(chosen, losses) / number).sum())
        workers.sum_gradients(model.parameters())
        optimiser.step()
        sums[0] += _sum_over(chosen, losses.detach())

    @torch.no_grad()
    def evaluation_step(nodes: Tensor, rows: ChebyshevRows) -> None:
        nonlocal outputs
        found = model(rows.x, rows)
        if not accurate:
            if outputs is None:  # before any step is captured
                outputs = found.new_zeros(task.runs, task.y.shape[0], found.shape[-1])
            outputs.index_copy_(1, nodes, found)
            return
        right = (found.argmax(dim=-1) == task.y.index_select(0, nodes)).to(found.dtype)
        val, test = (mask.index_select(1, nodes) for mask in (task.val, task.test))
        sums[1] += _sum_over(val, task.errors(found, nodes))
        sums[2] += _sum_over(val, right)
        sums[3] += _sum_over(test, right)

    # Messages between workers are not captured.
    train, evaluate = (
        _Batches(step, terms, batch_size, capture=workers.size == 1)
        for step in (train_step, evaluation_step)
    )
    generator = torch.Generator()

    def drawn() -> list[Tensor]:
        """This worker's nodes of every batch of an epoch."""
        generator.manual_seed(epoch_seed(seed, runs.epoch))
        order = train_nodes[torch.randperm(len(train_nodes), generator=generator)] - first
        batches, last = train.cut(order), task.train.shape[1]
        return [batch[(batch >= 0) & (batch < last)] for batch in batches]

    def one_epoch() -> None:
        runs.begin_epoch()
        workers.seed_epoch(seed, runs.epoch, runs.alike)
        sums.zero_()
        train(drawn())
        model.eval()
        evaluate(evaluate.cut(other_nodes))
        train_loss, *evaluated = share.sum(sums) / counts.clamp_min(1)
        if outputs is not None:
            (val_loss, _), figures = task.evaluate(outputs)
            evaluated = [val_loss, *figures]
        runs.take_loss(train_loss)
        runs.epoch.add_(1)
        runs.take_evaluation(*evaluated)

    return runs.fit(
        one_epoch, checkpoint, on_progress, read_every=_READ_EVERY, save_every=_SAVE_EVERY
    )


class _Batches:
    """Goes through nodes in batches; on a GPU that holds all rows, steps are captured once."""

    def __init__(
        self,
        step: Callable[[Tensor, ChebyshevRows], None],
        terms: ChebyshevTerms,
        batch_size: int,
        *,
        capture: bool,
    ) -> None:
        self._step, self._terms, self._batch_size = step, terms, batch_size
        self._device = terms.spectrum.device

        def at_once(nodes: Tensor, _: int) -> None:
            step(nodes, terms.rows(nodes))

        self._repeated = RepeatedByShape(at_once, self._device, capture=capture)

    def cut(self, order: Tensor) -> list[Tensor]:
        """Batches of nodes in this order; one without nodes where there are none."""
        return list(order.tensor_split(max(1, -(-len(order) // self._batch_size))))

    def __call__(self, batches: list[Tensor]) -> None:
        """One step for each batch of nodes."""
        there = torch.cat(batches).to(self._device).split([len(nodes) for nodes in batches])
        if self._terms.is_resident:
            for nodes in there:
                self._repeated(nodes, len(nodes))
            return
        for nodes, rows in zip(there, self._terms.batches(batches), strict=True):
            self._step(nodes, rows)


def check_batches(models: Sequence[nn.Module]) -> None:
    """Refuse models that need more of a node than its own rows."""
    if not all(isinstance(model, Specformer) and model.takes_batches for model in models):
        raise ConfigError(
            "batch_size needs Specformer with model.space=input and one filter of the features: "
            "model.num_layers=1, or no propagation_dropout, transform, norm, activation and "
            "residual; leave batch_size empty for any other model."
        )


def _nodes_in(mask: Tensor) -> Tensor:
    """Nodes in a mask, ascending, in the host's memory."""
    return mask.nonzero().squeeze(-1).cpu()


def _sum_over(mask: Tensor, values: Tensor) -> Tensor:
    """Each run's sum over its mask, ``[runs, …]`` to ``[runs]``."""
    return (values.flatten(1) * mask.flatten(1)).sum(dim=-1)
