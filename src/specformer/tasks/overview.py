r"""What was read: sizes, classes, targets and splits of a source, as data and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

import numpy as np

from specformer.datasets import Split
from specformer.datasets.parts import GraphPart
from specformer.graphs import Graph, GraphSet
from specformer.graphs.colours import copies
from specformer.tasks import estimate
from specformer.tasks.estimate import Estimate
from specformer.tasks.graphs.graph_recipe import GraphRecipe
from specformer.tasks.nodes.node_recipe import NodeRecipe
from specformer.tasks.task import target_names
from specformer.training.evaluation.summaries import wilson95

#: Classes, and targets, that are named one by one.
_NAMED = 10
#: With fewer tested nodes or graphs, in all runs together, a test says little.
_FEW = 20
#: Whole numbers of so few values may be classes, also of more if they have no gap.
_FEW_VALUES, _MANY_VALUES = 5, 20
#: A weight or target so many times the median one is a giant.
_HEAVY = 1000.0
#: The share of all labels from which a class counts as nearly all.
_MOST = 0.9
#: In sets of more nodes in all, copies of graphs are not looked for.
_LOOKED_AT = 5_000_000
#: A graph is a giant with this share of all pairs of nodes, and this many nodes.
_GIANT, _GIANT_NODES = 0.25, 300


def of_nodes(graph: Graph, recipe: NodeRecipe, splits: Sequence[Split]) -> dict[str, Any]:
    """One graph: its sizes, what is known of labels, and the parts of its first split."""
    found: dict[str, Any] = {
        "kind": "nodes",
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "weighted": graph.is_weighted,
        "features": graph.num_features,
    }
    if graph.is_weighted:
        weights = graph.adjacency.data
        found["heaviest"] = float(weights.max() / np.median(weights))
    if not isinstance(graph, GraphPart):
        degrees = np.diff(graph.adjacency.indptr)
        found["components"] = graph.num_components
        found["isolated_nodes"] = int(np.count_nonzero(degrees == 0))
    if graph.y is not None and graph.num_targets:
        task = recipe.task or "regression"
        columns = zip(target_names(graph.class_names, graph.num_targets), graph.y.T, strict=True)
        found["targets"] = {
            name: _of_target(column[~np.isnan(column)], None, task) for name, column in columns
        }
        found |= {"task": task, "metric": recipe.metric}
    elif graph.y is not None:
        counts = np.bincount(graph.y[graph.y >= 0], minlength=graph.num_classes)
        names = graph.class_names or range(graph.num_classes)
        classes = zip(map(str, names), counts.tolist(), strict=True)
        found |= {"classes": dict(classes), "unlabelled": int(np.count_nonzero(graph.y < 0))}
        if recipe.metric not in (None, "accuracy"):
            found["metric"] = recipe.metric
    return found | _parts(splits, recipe.split)


def of_graphs(graphs: GraphSet, recipe: GraphRecipe, splits: Sequence[Split]) -> dict[str, Any]:
    """Many graphs: their sizes, what is known of every target, and the parts of the first split."""
    squares = np.square(graphs.num_nodes, dtype=np.float64)
    found: dict[str, Any] = {
        "kind": "molecules",
        "name": graphs.name,
        "graphs": len(graphs),
        "nodes": int(graphs.num_nodes.sum()),
        "smallest": int(graphs.num_nodes.min()) if len(graphs) else 0,
        "largest": int(graphs.num_nodes.max(initial=0)),
        "largest_share": float(squares.max(initial=0.0) / max(1.0, squares.sum())),
        "edges": int(graphs.num_edges.sum()),
        "molecules": graphs.smiles is not None,
        "task": recipe.task,
        "metric": recipe.metric,
        "targets": {},
    }
    if graphs.y is not None:
        columns = zip(target_names(graphs.task_names, graphs.num_tasks), graphs.y.T, strict=True)
        found["targets"] = {
            name: _of_target(column[~np.isnan(column)], graphs.class_names, recipe.task)
            for name, column in columns
        }
    if graphs.smiles is not None and found["nodes"] <= _LOOKED_AT:
        found["copies"], found["conflicting"] = copies(graphs)
    return found | _parts(splits, recipe.split)


def _of_target(known: np.ndarray, names: Sequence[str] | None, task: str | None) -> dict[str, Any]:
    """How many nodes or graphs have a target, and how many of each class, or the numbers' range."""
    if task == "classification":
        values, counts = np.unique(known.astype(np.int64), return_counts=True)
        labels = [names[value] if names else str(value) for value in values.tolist()]
        return {"known": len(known), "classes": dict(zip(labels, counts.tolist(), strict=True))}
    if not len(known):
        return {"known": 0}
    figures = {"lowest": known.min(), "mean": known.mean(), "highest": known.max()}
    found = {"known": len(known), **{name: float(value) for name, value in figures.items()}}
    values = np.unique(known)
    if len(known) >= _FEW and bool((values == np.round(values)).all()):
        found["values"] = len(values)
    sizes = np.abs(known[known != 0])
    if len(sizes) and (times := float(sizes.max() / np.median(sizes))) > _HEAVY:
        found["giant"] = times
    return found


def warnings_of(found: Mapping[str, Any]) -> list[str]:
    """Warnings of an overview: a small test part, a giant graph, copies, rare classes."""
    told, name = _of_classes(found), found["name"]
    if found["kind"] == "nodes" and found["edges"] == 0:
        told.append(f"{name}: there are no edges; all is learned from features of single nodes.")
    if (times := found.get("heaviest", 0.0)) > _HEAVY:
        told.append(
            f"{name}: the largest weight is {times:,.0f} times the median one, so that few edges "
            "count for nearly all; take logarithms of weights, or --weight none takes none."
        )
    if split := found.get("split"):
        tested = split["test"]
        if split["tested"] < _FEW:
            thing = {"nodes": "node", "links": "edge"}.get(found["kind"], "graph")
            things = _counted(tested, thing)
            error = 100 * (wilson95(0.5, tested)[1] - 0.5)
            why = f"an accuracy of 50% would be uncertain by ±{error:.0f} points"
            if found.get("task") in ("regression", "links"):
                why = "another draw may give quite another figure"
            drawn = str(split["protocol"]).startswith(("random", "strat")) and thing != "edge"
            hint = " --set split=kfold-5 tests on all of them, in turn." if drawn else ""
            told.append(f"{name}: the test part of {things} says almost nothing: {why}.{hint}")
    if found.get("largest_share", 0.0) > _GIANT and found["largest"] >= _GIANT_NODES:
        told.append(
            f"{name}: the largest graph has {found['largest']:,} nodes and takes about "
            f"{100 * found['largest_share']:.0f}% of the time of an epoch, as time grows with the "
            "square of a graph's nodes; leave it out if you can."
        )
    if found.get("copies") and "scaffold" not in str(found.get("split", {}).get("protocol")):
        differ = found["conflicting"]
        together = "keep copies in one part, or one fold."  # the caller splits
        if "split" in found:
            together = "what is tested may have been learned. "
            together += "--set split=scaffold keeps copies together."
        told.append(
            f"{name}: {found['copies']:,} of {_counted(found['graphs'], 'molecule')} "
            f"{'repeats an earlier one' if found['copies'] == 1 else 'repeat earlier ones'}"
            + (f", {differ:,} with other targets" if differ else "")
            + f"; {together}"
        )
    return told


def _of_classes(found: Mapping[str, Any]) -> list[str]:
    """Warnings of a class that nearly all nodes have, and of numbers that look like classes."""
    told, name, targets = [], found["name"], found.get("targets", {})
    for classes in (found.get("classes"), *(each.get("classes") for each in targets.values())):
        if not classes or found.get("metric", "accuracy") != "accuracy":
            continue
        most, known = max(classes, key=classes.__getitem__), sum(classes.values())
        if known and (share := classes[most] / known) >= _MOST:
            told.append(
                f"{name}: {100 * share:.0f}% of the labels are {most!r}, and a model that always "
                "says so has that accuracy; --metric f1 counts all classes alike."
            )
    classes = found.get("classes") or {}
    whole = all(each.removeprefix("-").isdecimal() for each in classes)
    if len(classes) > _MANY_VALUES and whole and sum(classes.values()) < _FEW * len(classes):
        told.append(
            f"{name}: {len(classes)} whole numbers are learned as classes, each apart from the "
            "others; --task regression learns numbers."
        )
    told += _of_sizes(found)
    for target, figures in targets.items():
        called = target if target.startswith("target ") else f"target {target}"
        if found.get("task") == "regression" and _may_be_classes(figures):
            how = "--task classification learns"
            if len(targets) > 1:
                how = f"--targets {quote(target)} {how}"
            told.append(
                f"{name}: {called} has only {figures['values']} different values, which are "
                f"learned as numbers; {how} classes."
            )
        if times := figures.get("giant"):
            told.append(
                f"{name}: {called} reaches {times:,.0f} times its median, so that few of its "
                "values count for nearly all of the error; take logarithms of it."
            )
    return told


def _of_sizes(found: Mapping[str, Any]) -> list[str]:
    """A warning of numbers of very different sizes, of which an error tells the largest only."""
    spans = {
        name: figures["highest"] - figures["lowest"]
        for name, figures in found.get("targets", {}).items()
        if figures.get("highest", 0.0) > figures.get("lowest", 0.0)
    }
    if found.get("task") != "regression" or not spans:
        return []
    low, high = min(spans, key=spans.__getitem__), max(spans, key=spans.__getitem__)
    if spans[high] <= _HEAVY * spans[low]:
        return []
    return [
        f"{found['name']}: {high} has a range of {spans[high]:.3g} and {low} of {spans[low]:.3g}, "
        f"so that the error over all is that of {high}; change the units, or learn them one by one."
    ]


def _may_be_classes(figures: Mapping[str, Any]) -> bool:
    """Whether whole numbers have few different values, or not many and without a gap."""
    count = figures.get("values", 0)
    gapless = count and figures["highest"] - figures["lowest"] == count - 1
    return 2 <= count <= (_MANY_VALUES if gapless else _FEW_VALUES)


def _parts(splits: Sequence[Split], protocol: str) -> dict[str, Any]:
    if not splits or not splits[0].is_tested:
        return {}
    first = splits[0]
    sizes = {part: int(getattr(first, part).sum()) for part in ("train", "val", "test")}
    tested = int(np.logical_or.reduce([split.test for split in splits]).sum())
    return {"split": {"protocol": protocol, "runs": len(splits), **sizes, "tested": tested}}


def in_words(found: Mapping[str, Any]) -> str:
    """An overview in a few lines of text.

    Further keys are shown if they are there: ``model``, ``recipe`` and ``device``, ``prepared``
    (what is done with features) and ``estimate``.

    Example:
        >>> from specformer.tasks.train import inspect_source
        >>> print(in_words(inspect_source("photographs")))
        photographs: 4 signals on a grid of 40 × 40, with 1,600 nodes and 3,120 edges
    """
    if found["kind"] == "filters":
        height, width = found["shape"]
        lines = [
            f"{found['name']}: {_counted(found['signals'], 'signal')} on a grid of {height} × "
            f"{width}, with {_counted(found['nodes'], 'node')} and "
            f"{_counted(found['edges'], 'edge')}"
        ]
    else:
        lines = (_graphs_in_words if found["kind"] == "molecules" else _nodes_in_words)(found)
    if split := found.get("split"):
        parts = ", ".join(
            f"{split[part]:,} {name}"
            for part, name in (("train", "training"), ("val", "validation"), ("test", "test"))
        )
        runs = f"; {_counted(split['runs'], 'run')}" if "runs" in split else ""
        lines.append(f"  split: {split['protocol']}, {parts}{runs}")
    usual = {"recipe": "recipe {}", "task": "{}", "metric": "metric {}", "device": "on {}"}
    learned = [text.format(found[key]) for key, text in usual.items() if found.get(key)]
    if "model" in found:
        learned.insert(0, found["model"])
    lines += [f"  {line}" for line in found.get("prepared", ())]
    if learned:
        lines.append(f"  {'model' if 'model' in found else 'training'}: {', '.join(learned)}")
    if "estimate" in found:
        lines.append(f"  takes: {estimate.in_words(Estimate(**found['estimate']))}")
    lines += [f"  warning: {warning}" for warning in found.get("warnings", ())]
    if "problem" in found:
        lines.append(f"  train would refuse it: {found['problem']}")
    return "\n".join(line.replace("\n", " ") for line in lines)  # words may hold line breaks


def _nodes_in_words(found: Mapping[str, Any]) -> list[str]:
    alone = found.get("isolated_nodes", 0)
    components = found.get("components")
    weighted = " with weights" if found["weighted"] else ""
    lines = [
        f"{found['name']}: {_counted(found['nodes'], 'node')}, "
        f"{_counted(found['edges'], 'edge')}{weighted}"
        + (f", {_counted(components, 'component')}" if components else "")
        + (f" ({_counted(alone, 'node')} without edges)" if alone else "")
        + f", {_counted(found['features'], 'feature')}"
    ]
    if not found.get("classes", True):
        lines.append("  no node has a label")
    elif "classes" in found:
        missing = found["unlabelled"]
        lines.append(
            f"  {_counted(len(found['classes']), 'class', 'classes')}: "
            + _classes_in_words(found["classes"])
            + (f"; {_counted(missing, 'node')} without a label" if missing else "")
        )
    return lines + _targets_in_words(found.get("targets", {}), "node")


def _graphs_in_words(found: Mapping[str, Any]) -> list[str]:
    kinds = ("molecule", "atom", "bond") if found["molecules"] else ("graph", "node", "edge")
    graph, node, edge = kinds
    lines = [
        f"{found['name']}: {_counted(found['graphs'], graph)}, {_counted(found['nodes'], node)} "
        f"({found['smallest']:,} to {found['largest']:,} in a {graph}), "
        f"{_counted(found['edges'], edge)}"
    ]
    return lines + _targets_in_words(found["targets"], graph)


def _targets_in_words(targets: Mapping[str, Any], thing: str) -> list[str]:
    lines = []
    for name, target in list(targets.items())[:_NAMED]:
        text = f"known of {_counted(target['known'], thing)}"
        if "classes" in target:
            text += f": {_classes_in_words(target['classes'])}"
        elif target["known"]:
            low, mean, high = (target[key] for key in ("lowest", "mean", "highest"))
            text += f", from {_figure(low)} to {_figure(high)}, mean {_figure(mean)}"
        alone = len(targets) == 1 and name == "target 0"  # of a file that gives it no name
        called = "target" if alone else name if name.startswith("target ") else f"target {name}"
        lines.append(f"  {called}: {text}")
    if len(targets) > _NAMED:
        lines.append(f"  and {len(targets) - _NAMED:,} more targets")
    return lines


def _figure(number: float) -> str:
    """A number of four digits or more, as people write it."""
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e15 else f"{number:.4g}"


def _classes_in_words(classes: Mapping[str, int]) -> str:
    """Names with their numbers, the largest first where there are many."""
    shown = list(classes.items())
    if len(shown) > _NAMED:
        shown = sorted(shown, key=lambda each: -each[1])[:_NAMED]
    text = ", ".join(f"{name} ({count:,})" for name, count in shown)
    return text + (f" and {len(classes) - _NAMED:,} more" if len(classes) > _NAMED else "")


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
