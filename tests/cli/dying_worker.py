"""A program for ``torchrun``: the command line, but the last worker is killed in epoch 15."""

from __future__ import annotations

import os
import signal

from specformer.cli import main
from specformer.training.loops.nodes import NodeRuns

_begin = NodeRuns.begin_epoch


def _dying(self: NodeRuns) -> None:
    if int(self.epoch) == 15 and self.workers.rank == self.workers.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    _begin(self)


if __name__ == "__main__":
    NodeRuns.fit.__kwdefaults__["save_every"] = 10  # type: ignore[index]
    NodeRuns.begin_epoch = _dying  # type: ignore[method-assign]
    main()
