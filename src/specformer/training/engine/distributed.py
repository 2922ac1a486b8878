r"""Data parallel training: several processes, each with its part of every batch.

Start them with ``torchrun``. Gradients, losses and the statistics of batch norms are sums over all
workers, so that the outcome is that of one process with the whole batch, up to rounding.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from specformer.datasets.batches import Batch, Batches
from specformer.errors import ConfigError, RunError
from specformer.nn.layers.batch_norm import BatchNorm

#: The longest that workers wait for a decomposition.
_PATIENCE = timedelta(days=30)


@dataclass(frozen=True)
class Workers:
    """How many processes train together, and which of them this one is."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes files."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up over all workers, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Give every worker the sum of all workers' gradients, in one message."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = self.sum(torch.cat([gradient.flatten() for gradient in gradients]))
        pieces = flat.split([gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
            gradient.copy_(piece.view_as(gradient))

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Give every worker the first one's values."""
        if self.size == 1:
            return
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        with torch.no_grad():
            for tensor in tensors:
                sent = tensor.detach().to(device)
                dist.broadcast(sent, src=0)
                tensor.copy_(sent)

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Let the first worker run the block, for example to fill a cache, before the others do.

        If it fails, the others do not begin: one message says what is wrong.
        """
        if self.size == 1:
            yield
            return
        done = torch.zeros(1)
        # The first may take longer than the usual limit. If it dies, the wait ends at once.
        told = dist.new_group(backend="gloo", timeout=_PATIENCE)
        if not self.is_first:
            dist.broadcast(done, src=0, group=told)
            if not done:
                raise RunError("the first worker failed; its message says why.")
            yield
            return
        try:
            yield
            done.fill_(1)
        except Exception:
            dist.broadcast(done, src=0, group=told)
            raise
        dist.broadcast(done, src=0, group=told)

    def seed_epoch(self, seed: int, epoch: Tensor, alike: torch.Generator | None = None) -> None:
        """Seed every epoch anew: dropout differs between workers, and runs resume at any epoch.

        ``alike``, of :meth:`draw_alike`, gets the same seed in all workers.
        """
        if self.size > 1:
            torch.manual_seed(epoch_seed(seed, epoch, self.rank))
            if alike is not None:
                alike.manual_seed(epoch_seed(seed, epoch))

    def draw_alike(self, modules: Iterable[nn.Module], device: torch.device) -> torch.Generator:
        """Let modules draw from the returned generator, the same numbers in every worker.

        It is for the dropout of what every worker computes for itself and all must share.
        """
        alike = torch.Generator(device)
        index = device.index or 0
        usual = torch.cuda.default_generators[index] if device.type == "cuda" else None
        usual = usual or torch.default_generator

        def exchange(module: nn.Module, *_: Any) -> None:
            if module.training:
                state = usual.get_state()
                usual.set_state(alike.get_state())
                alike.set_state(state)

        for module in modules if self.size > 1 else ():
            module.register_forward_pre_hook(exchange)
            module.register_forward_hook(exchange)
        return alike

    def shares(self, epoch: Sequence[Batch], ladder: Batches) -> list[Batch]:
        """This worker's part of every batch; ``ladder`` decides the parts' shapes.

        A last batch of fewer graphs than workers is left out.
        """
        if self.size == 1:
            return list(epoch)
        whole = [batch for batch in epoch if len(batch.index) >= self.size]
        if not whole:
            raise ConfigError(
                f"{self.size} workers are more than there are training graphs; start fewer."
            )
        numbers = torch.cat([batch.index for batch in whole]).cpu().numpy()
        parts, first = [], 0
        for batch in whole:
            count = len(batch.index)
            low, high = count * self.rank // self.size, count * (self.rank + 1) // self.size
            shape = ladder.shape(numbers[first + low : first + high])
            parts.append(Batch(batch.index[low:high], shape))
            first += count
        return parts

    def synchronise(self, model: nn.Module) -> None:
        """Let batch norms see the whole batch, and give all workers the first one's weights."""
        if self.size == 1:
            return
        for module in model.modules():
            if isinstance(module, BatchNorm):
                module.across = self.sum
        self.copy_from_first([*model.parameters(), *model.buffers()])


ALONE = Workers()


def epoch_seed(seed: int, epoch: Tensor, *which: int) -> int:
    """The seed of an epoch, and of ``which`` worker."""
    entropy = np.random.SeedSequence([seed % 2**64, int(epoch), *which])
    return int(entropy.generate_state(1)[0])


@dataclass(frozen=True)
class Share:
    """The rows that each worker has of something with one row for each of ``count`` nodes."""

    workers: Workers = ALONE
    count: int = 0

    @property
    def bounds(self) -> list[int]:
        """The first row of every worker, and how many there are in all."""
        size = self.workers.size
        if self.count < size:
            raise ConfigError(f"{size} workers are more than {self.count} nodes; start fewer.")
        return [self.count * rank // size for rank in range(size + 1)]

    @property
    def rows(self) -> slice:
        """The rows of this worker; workers' counts differ by one at most."""
        if self.workers.size == 1:
            return slice(None)
        return slice(*self.bounds[self.workers.rank : self.workers.rank + 2])

    def swap(
        self, rows: Tensor, counts: Sequence[int], back: Sequence[int]
    ) -> Callable[[], Tensor]:
        """Send ``counts`` rows to each worker; returns a function that waits for ``back`` rows."""
        if self.workers.size == 1:
            return lambda: rows
        found = rows.new_empty(sum(back), *rows.shape[1:])
        sent = dist.all_to_all_single(found, rows, list(back), list(counts), async_op=True)

        def arrived() -> Tensor:
            sent.wait()
            return found

        return arrived

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up over all workers, in place."""
        return self.workers.sum(tensor)

    def own(self, rows: Any) -> Any:
        """This worker's part of rows ``[..., n, columns]``; rows of its nodes alone stay."""
        if rows.shape[-2] != self.count:
            return rows
        return rows[..., self.rows, :] if isinstance(rows, np.ndarray) else rows[self.rows]

    def whole(self, part: Tensor, dim: int = -2) -> Tensor:
        """The rows of all workers, joined along this axis."""
        if self.workers.size == 1:
            return part
        shape = list(part.shape)
        shape[dim] = self.count
        whole = part.new_zeros(shape)
        whole.narrow(dim, self.rows.start, part.shape[dim]).copy_(part)
        return self.sum(whole)


#: The share of a process that works alone.
WHOLE = Share()


@contextmanager
def torchrun_workers(device: torch.device) -> Iterator[tuple[Workers, torch.device]]:
    """Join the processes that ``torchrun`` started; without it, work alone.

    Gives this process's place among them and its device, the GPU of its local rank.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE, device
        return
    if device.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise ConfigError(f"worker {local} has no GPU; start one process per GPU.")
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    # Its functions' defaults keep the group that exists when it is imported, and optimisers import
    # it: with its threads alive to the end, a process may abort on its way out.
    import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        with _ending_with_others():
            yield Workers(dist.get_rank(), dist.get_world_size()), device
    finally:
        dist.destroy_process_group()


@contextmanager
def _ending_with_others() -> Iterator[None]:
    """Turn the loss of another worker, seen by a message or by torchrun, into one sentence."""
    ended = RunError(
        "another process of this run has ended, or all were told to; what its last checkpoint "
        "holds is whole: go on with `specformer resume`, in any number of processes."
    )

    def hear(how: Any) -> None:
        if listens:
            signal.signal(signal.SIGTERM, how)

    def told(*_: object) -> None:
        hear(signal.SIG_IGN)
        raise ended

    listens = current_thread() is main_thread() and (
        signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    hear(told)
    try:
        yield
        hear(signal.SIG_DFL)
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error).lower()):
            raise
        hear(signal.SIG_IGN)  # torchrun sends it now, before the sentence is printed
        raise ended from error
