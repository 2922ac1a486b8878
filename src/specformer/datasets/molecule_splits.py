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
#: Training graphs that validate where the validation part is tested on, and their largest share.
_HELD_BACK, _LARGEST_SHARE = 150_000, 0.1


def random_80_10_10(graphs: GraphSet, seed: int) -> Split:
    """A random split; graphs without any target are in no part.

    Where the target that most graphs have is two classes, or not more than the test part has
    graphs, each class is split by itself, and every part has one of each that three graphs have.
    """
    generator, known = np.random.default_rng(seed), _labelled(graphs)
    groups = _classes(graphs, known)
    if not any(len(group) >= _PARTS for group in groups):
        groups = [known]
    train, val, test = [], [], []
    for group in groups:
        order = generator.permutation(group)
        each = _tenth(len(order))
        train.append(order[2 * each :])
        val.append(order[:each])
        test.append(order[each : 2 * each])
    return _split(graphs, *map(np.concatenate, (train, val, test)))


def _classes(graphs: GraphSet, known: np.ndarray) -> list[np.ndarray]:
    """Those graphs of every class of a target; all together where it is no class.

    Of several targets it is the one that most graphs have; graphs without it are a class too.
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


def scaffold_split(graphs: GraphSet) -> Split:
    """Molecules of one Bemis–Murcko scaffold stay together, the commonest scaffolds in training.

    By their number of molecules, then by their first molecule, scaffolds go to training if it then
    holds at most 80 % of all, else to validation if both then hold at most 90 %, else to testing.
    So what is tested on is built unlike what was learned from; the split is the same every time.
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
            f"{graphs.name}: a part of the split is left empty, with {counted} in {len(known)} "
            "molecules; use split=random-80-10-10."
        )
    return _split(graphs, *parts)


def _of_scaffolds(graphs: GraphSet) -> list[list[int]]:
    """Numbers of the molecules of every scaffold."""
    if graphs.smiles is None:
        raise ConfigError(f"{graphs.name}: a scaffold split needs the molecules' SMILES.")
    known, groups = _labelled(graphs), defaultdict(list)
    for number, scaffold in zip(known, scaffolds([graphs.smiles[i] for i in known]), strict=True):
        groups[scaffold].append(int(number))
    return list(groups.values())


def resampled_splits(graphs: GraphSet, protocol: str, count: int, seed: int) -> list[Split]:
    """Splits with one test part, which the seed draws, and validation parts of their own.

    So the mean of several models can be tested on what none of them has seen. With
    ``resampled-scaffold`` molecules of one scaffold stay together, and a scaffold of more than half
    a part trains; else classes are split as by :func:`random_80_10_10`.
    """
    known = _labelled(graphs)
    if protocol == "resampled-scaffold":
        size = round(0.1 * len(known))
        drawn = [([unit for unit in _of_scaffolds(graphs) if 2 * len(unit) <= size], size)]
    else:
        groups = _classes(graphs, known)
        if not any(len(group) >= _PARTS for group in groups):
            groups = [known]
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
                f"{graphs.name}: a part of the split is left empty; use split=random-80-10-10."
            )
        found.append(_split(graphs, train, val, test))
    return found


def _tenth(count: int) -> int:
    """Graphs of a class that go to a part; none where there is not one for each."""
    return max(1, round(0.1 * count)) if count >= _PARTS else 0


def _taken(
    groups: Sequence[tuple[Sequence[list[int]], int]], generator: np.random.Generator
) -> list[int]:
    """Of every group units in a drawn order, each taken if that makes at most so many graphs."""
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
            except ValueError:  # RDKit's, who read no molecule
                raise ConfigError(f"{each!r} is no molecule, so it has no scaffold.") from None
    return found


def has_secret_test(graphs: GraphSet) -> bool:
    """Whether the file's test part has no target at all, as that of a competition has none."""
    if graphs.y is None or graphs.test_idx is None or len(graphs.test_idx) == 0:
        return False
    return bool(np.isnan(graphs.y[graphs.test_idx]).all())


def settled_graph_protocol(graphs: GraphSet, protocol: str, *, named: bool) -> str:
    """The protocol that ``"auto"`` is on a set, or the one that is asked for.

    A file of one's own that tells a split is taken at its word; named sets, and files that tell
    none, are split at random.
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

    Classes are spread over the folds where :func:`random_80_10_10` splits them one by one.
    """
    groups = _classes(graphs, _labelled(graphs))
    return fold_splits(groups, len(graphs), folds, count, seed, graphs.name)


def graph_split(graphs: GraphSet, protocol: str, seed: int) -> Split:
    """The split of a named protocol.

    Where the targets of an ``official`` test part are secret, its validation part is tested on, and
    150,000 graphs of its training part, a tenth at most, validate: the paper's rule for PCQM4Mv2.
    They are the same for every seed. Where an ``official`` split has no validation part, the seed
    draws it, a tenth of the training part. Protocols of folds go to :func:`graph_folds`, resampled
    ones to :func:`resampled_splits`.
    """
    if protocol == "random-80-10-10":
        return random_80_10_10(graphs, seed)
    if protocol == "scaffold":
        return scaffold_split(graphs)
    if protocol != "official":
        raise ConfigError(f"split {protocol!r}: choose from {', '.join(GRAPH_PROTOCOLS)}.")
    parts = [getattr(graphs, part) for part in SPLITS]
    if parts[1] is not None and not len(parts[1]) and all(map(_some, (parts[0], parts[2]))):
        held = held_back(_classes(graphs, parts[0]), _LARGEST_SHARE, seed)
        parts[:2] = [np.setdiff1d(parts[0], held), held]
    names = ("training", "validation", "test")
    empty = [name for name, part in zip(names, parts, strict=True) if not _some(part)]
    if empty:
        raise ConfigError(
            f"{graphs.name}: the file holds no {', '.join(empty)} graphs; "
            "use split=random-80-10-10."
        )
    return _with_known_test(graphs) if has_secret_test(graphs) else _split(graphs, *parts)


def _some(part: np.ndarray | None) -> bool:
    return part is not None and len(part) > 0


def _with_known_test(graphs: GraphSet) -> Split:
    """Test on the validation part, and validate on some of the training part."""
    assert graphs.train_idx is not None
    order = np.random.default_rng(0).permutation(graphs.train_idx)
    if len(order) < 2:
        raise ConfigError(
            f"{graphs.name}: its test part has no targets, and its one training graph cannot "
            "validate too; use split=random-80-10-10."
        )
    held = min(_HELD_BACK, max(1, round(_LARGEST_SHARE * len(order))))
    return _split(graphs, order[held:], order[:held], graphs.valid_idx)


def _labelled(graphs: GraphSet) -> np.ndarray:
    """Numbers of the graphs that have a target, or of all where there are none to have."""
    if graphs.y is None:
        known = np.arange(len(graphs))
    else:
        known = np.flatnonzero(~np.isnan(graphs.y).all(axis=1))
    if len(known) < 3:
        counted = "1 graph is" if len(known) == 1 else f"{len(known)} graphs are"
        raise ConfigError(
            f"{graphs.name}: {counted} too few to split; at least 3 must have targets."
        )
    return known


def _split(graphs: GraphSet, *parts: object) -> Split:
    masks = np.zeros((3, len(graphs)), dtype=bool)
    for mask, part in zip(masks, parts, strict=True):
        mask[np.asarray(part)] = True
    return Split(*masks)
