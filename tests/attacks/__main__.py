"""The long test, by parts: ``python -m tests.attacks files`` (all: ``make -j2 test-long``)."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from tests.attacks import (
    altered_files,
    closed_forms,
    crowds,
    disks,
    fuzz,
    growth,
    kills,
    names,
    odd_documents,
    ranks,
)
from tests.attacks.scene import built
from tests.attacks.tally import Tally

from benchmarks.record import bench_result, record

#: Memory, if there is a folder for it: every try writes files.
_SCRATCH = Path("/dev/shm")


@dataclass(frozen=True)
class Plan:
    """How often each attack is tried."""

    altered: int = 100_000
    flips: int = 10_000
    odd: int = 1_000
    drawn: int = 10_000
    names: int = 100
    moments: int = 50
    stride: int = 1
    disks: int = 22
    crowds: int = 20
    ranks: int = 8
    trainings: int = 1_000
    predictions: int = 10_000

    def scaled(self, share: float) -> Plan:
        """The same plan with a share of the tries."""
        counts = {name: max(1, round(share * getattr(self, name))) for name in asdict(self)}
        rooms = max(8, counts["disks"])
        return Plan(**counts | {"stride": max(1, round(0.1 / share)), "disks": rooms})


def on_files(scene: Path, plan: Plan) -> Iterator[Tally]:
    """What is read: files that are not what was written, and work that is done again and again."""
    yield from closed_forms.attack([12, 30, 100])
    yield from altered_files.attack(scene, plan.altered)
    yield from altered_files.flips(scene, plan.flips)
    yield from growth.attack(scene, plan.trainings, plan.predictions)


def on_documents(scene: Path, plan: Plan) -> Iterator[Tally]:
    """What people write or could have written: documents and names."""
    yield from fuzz.attack(scene, plan.drawn)
    yield from names.attack(scene, plan.names)
    yield from odd_documents.attack(scene, plan.odd)


def on_commands(scene: Path, plan: Plan) -> Iterator[Tally]:
    """What is done: commands run out of disk, meet, lose a rank, or are killed as they write."""
    yield from disks.attack(scene, plan.disks)
    yield from crowds.attack(scene, plan.crowds)
    yield from ranks.attack(scene, plan.ranks)
    yield from kills.at_operations(scene, plan.stride)


def on_moments(scene: Path, plan: Plan) -> Iterator[Tally]:
    """What is done, killed at any moment."""
    yield from kills.at_moments(scene, plan.moments)


PARTS = {
    "files": on_files,
    "documents": on_documents,
    "commands": on_commands,
    "moments": on_moments,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the tries to make")
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name}", type=int, help=f"in full: {value}")
    parser.add_argument("--out", type=Path, help="where to record the outcome")
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)  # caches warn of every file that they refuse
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # forks of this process may have no others
    given = {name: getattr(chosen, name) for name in asdict(Plan()) if getattr(chosen, name)}
    plan = replace(Plan().scaled(chosen.scale), **given)
    rows, good = [], True
    with tempfile.TemporaryDirectory(dir=_SCRATCH if _SCRATCH.is_dir() else None) as scratch:
        for tally in PARTS[chosen.part](built(Path(scratch)), plan):
            row = tally.row()
            rows.append(row)
            good = good and tally.is_good
            sys.stdout.write("  ".join(f"{key} {value}" for key, value in row.items()) + "\n")
            sys.stdout.writelines(f"    {example}\n" for example in tally.examples)
            sys.stdout.flush()
    if chosen.out:
        device = torch.device("cpu")
        words = [f"--{name} {value}" for name, value in given.items()]
        command = " ".join(
            ["python -m tests.attacks", chosen.part, f"--scale {chosen.scale:g}", *words]
        )
        record(chosen.out, bench_result("reliability", device, plan, rows), command, device)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
