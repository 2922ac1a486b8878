r"""Named ways to split a set of graphs into training, validation and test."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from specformer.datasets.splits import Split, fold_splits, held_back
from specformer.errors import ConfigError
from specformer.graphs import GraphSet
from specformer.graphs.formats.smiles import rdkit
from specformer.graphs.graph_set import SPLITS

logger = logging.getLogger(__name__)

#: Protocols by name; ``official`` takes the one that comes with the file, ``kfold-5`` stands for
#: any number of folds.
GRAPH_PROTOCOLS = (
    "random-80-10-10", "kfold-5", "scaffold", "resampled", "resampled-scaffold", "official",
)  # fmt: skip
#: Training, validation and test.
_PARTS = 3
_NO_VALIDATION = "; it has no validation part, so a tenth of the training graphs validates"
#: Most training graphs that validate if the validation part is tested on, and their largest share.
_HELD_BACK, _LARGEST_SHARE = 150_000, 0.1


def random_80_10_10(graphs: GraphSet, seed: int) -> Split:
    """A random split; graphs without any target are in no part.

    If the target that most graphs have is of two classes, or of at most as many as the test part
    has graphs, each class is split by itself. Then a class of three graphs is in every part.
    """
    generator, known = np.random.default_rng(seed), _labelled(graphs)
    part = np.full(len(graphs), -1)
    for group in _large_classes(graphs, known):
        order, each = generator.permutation(group), _tenth(len(group))
        part[order] = 0
        part[order[:each]] = 1
        part[order[each : 2 * each]] = 2
    return Split(*(part == number for number in range(_PARTS)))


def _classes(graphs: GraphSet, known: np.ndarray) -> list[np.ndarray]:
    """The known graphs by class; one group of all if the target does not hold classes.

    Of several targets the one that most graphs have counts; graphs without it are one more class.
    """
    if graphs.y is None or not graphs.y.shape[1]:
        return [known]
    most = int((~np.isnan(graphs.y[known])).sum(axis=0).argmax())
    values = graphs.y[known, most]
    classes, missing = np.unique(values[~np.isnan(values)]), known[np.isnan(values)]
    if len(classes) > max(2, round(0.1 * len(known))) or (classes != np.round(classes)).any():
        return [known]
    groups = [known[values == label] for label in classes]
    return [*groups, missing] if len(missing) else groups


def _large_classes(graphs: GraphSet, known: np.ndarray) -> list[np.ndarray]:
    """The classes, if one is large enough to be in every part; else one group of all."""
    groups = _classes(graphs, known)
    return groups if any(len(group) >= _PARTS for group in groups) else [known]


def scaffold_split(graphs: GraphSet) -> Split:
    """Molecules of one Bemis–Murcko scaffold stay together, the commonest scaffolds in training.

    Scaffolds come in order of their number of molecules, then of their first molecule. One goes to
    training if that then holds at most 80 % of all, else to validation if both then hold at most
    90 %, else to testing. So test molecules are built unlike training molecules. Nothing is random.
    """
    known, groups = _labelled(graphs), _of_scaffolds(graphs)
    parts: tuple[list[int], list[int], list[int]] = ([], [], [])
    train, val, test = parts
    for group in sorted(groups, key=lambda group: (-len(group), group[0])):
        if len(train) + len(group) <= 0.8 * len(known):
            train += group
        elif len(train) + len(val) + len(group) <= 0.9 * len(known):
            val += group
        else:
            test += group
    if not all(parts):
        counted = "1 scaffold" if len(groups) == 1 else f"{len(groups)} scaffolds"
        raise ConfigError(
            f"{graphs.name}: a part of the split is empty, with {counted} in {len(known)} "
            "molecules; use split=random-80-10-10."
        )
    return Split.of_numbers(len(graphs), *parts)


def _of_scaffolds(graphs: GraphSet) -> list[list[int]]:
    """The numbers of the molecules of each scaffold."""
    if graphs.smiles is None:
        raise ConfigError(
            f"{graphs.name}: a scaffold split needs SMILES; use split=random-80-10-10."
        )
    known, groups = _labelled(graphs), defaultdict(list)
    for number, scaffold in zip(known, scaffolds([graphs.smiles[i] for i in known]), strict=True):
        groups[scaffold].append(int(number))
    return list(groups.values())


def resampled_splits(graphs: GraphSet, protocol: str, count: int, seed: int) -> list[Split]:
    """Splits that share one test part, drawn by the seed, and differ in their validation parts.

    So the mean of several models can be tested on graphs that none of them has seen. With
    ``resampled-scaffold`` molecules of one scaffold stay together, and a scaffold larger than half
    a part trains; otherwise classes are split as in :func:`random_80_10_10`.
    """
    known = _labelled(graphs)
    if protocol == "resampled-scaffold":
        size = round(0.1 * len(known))
        drawn = [([unit for unit in _of_scaffolds(graphs) if 2 * len(unit) <= size], size)]
    else:
        groups = _large_classes(graphs, known)
        drawn = [([[i] for i in group.tolist()], _tenth(len(group))) for group in groups]
    test = _taken(drawn, np.random.default_rng(seed))
    held = set(test)
    rest = [([unit for unit in units if unit[0] not in held], size) for units, size in drawn]
    found = []
    for run in range(count):
        val = _taken(rest, np.random.default_rng([seed, run]))
        train = np.setdiff1d(known, test + val)
        if not (len(train) and val and test):
            raise ConfigError(
                f"{graphs.name}: a part of the split is empty; use split=random-80-10-10."
            )
        found.append(Split.of_numbers(len(graphs), train, val, test))
    return found


def _tenth(count: int) -> int:
    """How many graphs of a class go to a held-out part; 0 if there are too few for all parts."""
    return max(1, round(0.1 * count)) if count >= _PARTS else 0


def _taken(
    groups: Sequence[tuple[Sequence[list[int]], int]], generator: np.random.Generator
) -> list[int]:
    """Take units of every group in random order, each that does not exceed the group's size."""
    taken: list[int] = []
    for units, size in groups:
        most = len(taken) + size
        for place in generator.permutation(len(units)):
            if len(taken) + len(units[place]) <= most:
                taken += units[place]
    return taken


def scaffolds(smiles: Sequence[str]) -> list[str]:
    """The Bemis–Murcko scaffold of each molecule, as SMILES: its rings and what links them.

    A molecule without rings has the empty scaffold.
    """
    _, silence = rdkit("a scaffold split")
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    found = []
    with silence():
        for each in smiles:
            try:
                found.append(str(MurckoScaffoldSmiles(smiles=each, includeChirality=False)))
            except ValueError:  # RDKit cannot read it
                raise ConfigError(f"{each!r} is not a molecule; remove it.") from None
    return found


def has_secret_test(graphs: GraphSet) -> bool:
    """Whether the file's test part has no targets at all, as in competitions."""
    if graphs.y is None or graphs.test_idx is None or len(graphs.test_idx) == 0:
        return False
    return bool(np.isnan(graphs.y[graphs.test_idx]).all())


def settled_graph_protocol(graphs: GraphSet, protocol: str, *, named: bool) -> str:
    """The protocol that ``"auto"`` means for a set; any other protocol is returned unchanged.

    A user's file with a split keeps that split; named sets and other files are split at random.
    """
    if protocol != "auto":
        return protocol
    if named or all(getattr(graphs, part) is None for part in SPLITS):
        return "random-80-10-10"
    drawn = "" if graphs.valid_idx is None or len(graphs.valid_idx) else _NO_VALIDATION
    logger.info("%s: its own split is used (split=official)%s", graphs.name, drawn)
    return "official"


def graph_folds(graphs: GraphSet, folds: int, count: int, seed: int) -> list[Split]:
    """The first splits of a cross-validation, see :func:`~specformer.datasets.splits.fold_splits`.

    Classes are spread over the folds if :func:`random_80_10_10` would split them one by one.
    """
    groups = _classes(graphs, _labelled(graphs))
    return fold_splits(groups, len(graphs), folds, count, seed, graphs.name)


def graph_split(graphs: GraphSet, protocol: str, seed: int) -> Split:
    """The split of a named protocol.

    If the targets of an ``official`` test part are secret, its validation part is tested on, and
    150,000 graphs of its training part, a tenth at most, validate: the paper's rule for PCQM4Mv2.
    These are the same for every seed. If an ``official`` split has no validation part, the seed
    draws a tenth of the training part. See :func:`graph_folds` for folds and
    :func:`resampled_splits` for resampled splits.
    """
    if protocol == "random-80-10-10":
        return random_80_10_10(graphs, seed)
    if protocol == "scaffold":
        return scaffold_split(graphs)
    if protocol != "official":
        raise ConfigError(f"split {protocol!r}: choose from {', '.join(GRAPH_PROTOCOLS)}.")
    train, val, test = (getattr(graphs, part) for part in SPLITS)
    if val is not None and not len(val) and _some(train) and _some(test):
        val = held_back(_classes(graphs, train), _LARGEST_SHARE, seed)
        train = np.setdiff1d(train, val)
    parts = {"training": train, "validation": val, "test": test}
    if empty := [name for name, part in parts.items() if not _some(part)]:
        raise ConfigError(
            f"{graphs.name}: the file holds no {', '.join(empty)} graphs; "
            "use split=random-80-10-10."
        )
    if has_secret_test(graphs):
        return _with_known_test(graphs)
    return Split.of_numbers(len(graphs), *parts.values())


def _some(part: np.ndarray | None) -> bool:
    return part is not None and len(part) > 0


def _with_known_test(graphs: GraphSet) -> Split:
    """Test on the validation part, and validate on some of the training part."""
    assert graphs.train_idx is not None
    order = np.random.default_rng(0).permutation(graphs.train_idx)
    if len(order) < 2:
        raise ConfigError(
            f"{graphs.name}: its test part has no targets, and a single training graph cannot be "
            "split; use split=random-80-10-10."
        )
    held = min(_HELD_BACK, max(1, round(_LARGEST_SHARE * len(order))))
    return Split.of_numbers(len(graphs), order[held:], order[:held], graphs.valid_idx)


def _labelled(graphs: GraphSet) -> np.ndarray:
    """The numbers of the graphs that have a target; of all graphs if no targets are given."""
    y = np.zeros((len(graphs), 1)) if graphs.y is None else graphs.y
    known = np.flatnonzero(~np.isnan(y).all(axis=1))
    if len(known) < 3:
        counted = "1 graph is" if len(known) == 1 else f"{len(known)} graphs are"
        raise ConfigError(
            f"{graphs.name}: {counted} too few to split; at least 3 must have targets."
        )
    return known
