r"""The colour, line, marker and label of each model, for light and for dark pages."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

OURS = "specformer"

# Hues of Okabe and Ito's palette, safe for colour-blind readers, each in a tone for light pages and
# one for dark pages. Lines also differ in their dashes and points in their shape.
_TONES: dict[str, tuple[str, str]] = {
    "ink": ("#1d2229", "#e7e9ec"),
    "muted": ("#68707a", "#9aa3ad"),
    "rule": ("#d5d9de", "#3a414a"),
    "heat": ("#ee8434", "#b9540f"),
    "vermilion": ("#d55e00", "#ff8b3d"),
    "blue": ("#0072b2", "#4ba3dd"),
    "green": ("#009e73", "#2fc39a"),
    "sky": ("#3fa2dc", "#86cdf7"),
    "pink": ("#c4659a", "#e394c1"),
    "olive": ("#a48700", "#d8bd3c"),
    "slate": ("#78828e", "#a7b0ba"),
    "plum": ("#6a4c93", "#a98bd3"),
}
INK, MUTED, RULE, HEAT = (_TONES[name][0] for name in ("ink", "muted", "rule", "heat"))

#: The CSS custom property of each colour that a figure may have.
VARIABLES = {light: f"--plot-{name}" for name, (light, _) in _TONES.items()}

Dashes = tuple[float, ...]

#: Dashes of a model's further recipes if its first one is a solid line, and their markers.
_OTHER_DASHES: tuple[Dashes, ...] = ((3.2, 1.3), (1, 1), (6, 1.4, 1, 1.4), (1.2, 2.6))
_OTHER_MARKERS = ("D", "s", "^", "v")


@dataclass(frozen=True)
class Look:
    """How one model, or one recipe of it, is drawn everywhere."""

    label: str
    hue: str
    dashes: Dashes = ()
    marker: str = "o"
    width: float = 1.3
    zorder: float = 3.0
    ours: bool = False
    recipe: str = ""

    def by_recipe(self, recipe: str, number: int) -> Look:
        """The look of a model's recipe, counted from 0: the same hue with other dashes.

        Example:
            >>> look("specformer").by_recipe("best", 1).label
            'Specformer (best)'
        """
        label = f"{self.label} ({recipe})" if recipe else self.label
        if number == 0:
            return replace(self, label=label, recipe=recipe)
        dashes = (*self.dashes, *(8, 1.4) * number)  # no other model of the hue has these
        if not self.dashes:
            dashes = _OTHER_DASHES[(number - 1) % len(_OTHER_DASHES)]
        markers = [marker for marker in _OTHER_MARKERS if marker != self.marker]
        marker = markers[(number - 1) % len(markers)]
        return replace(self, label=label, recipe=recipe, dashes=dashes, marker=marker)

    @property
    def color(self) -> str:
        return _TONES[self.hue][0]

    @property
    def variable(self) -> str:
        return f"--plot-{self.hue}"

    @property
    def dasharray(self) -> str:
        """The dashes for a line of this width in CSS pixels."""
        return " ".join(f"{dash * self.width * 1.4:.1f}" for dash in self.dashes) or "none"

    @property
    def linestyle(self) -> Any:
        return (0, self.dashes) if self.dashes else "-"


_LOOKS: dict[str, Look] = {
    OURS: Look("Specformer", "vermilion", width=2.1, zorder=5.0, ours=True),
    "gcn": Look("GCN", "slate", (1, 1.2), "s"),
    "gat": Look("GAT", "olive", (4, 1.4), "^"),
    "chebnet": Look("ChebNet", "green", (6, 1.4, 1, 1.4), "D"),
    "gprgnn": Look("GPR-GNN", "blue", (3, 1.2), "v"),
    "bernnet": Look("BernNet", "sky", (5, 1.2, 1, 1.2, 1, 1.2), "P"),
    "jacobiconv": Look("JacobiConv", "pink", (1.6, 1), "X"),
    "chebnetii": Look("ChebNetII", "green", (2, 1), "d"),
    "lanczosnet": Look("LanczosNet", "plum", (4, 1.4), "h"),
    "h2gcn": Look("H2GCN", "plum", (2, 1), "p"),
    "gcnii": Look("GCNII", "slate", (5, 1.4), "<"),
    "transformer": Look("Transformer", "plum", (6, 1.4, 1, 1.4), "*"),
    "graphormer": Look("Graphormer", "plum", (1, 1.2), ">"),
    "mlp": Look("MLP", "ink", (6, 1.4, 1, 1.4), "x"),
    "gin": Look("GIN", "olive", (2, 1), "<"),
    "gatedgcn": Look("GatedGCN", "slate", (2, 1), ">"),
    "pna": Look("PNA", "pink", (5, 1.4), "h"),
    "gps": Look("GPS", "blue", (6, 1.4, 1, 1.4), "p"),
    "san": Look("SAN", "green", (1, 1.2), "*"),
    "specgn": Look("Spec-GN", "sky", (2, 1), "d"),
    "cin": Look("CIN", "olive", (6, 1.4, 1, 1.4), "v"),
    "gin-ak+": Look("GIN-AK+", "olive", (1, 1.2), "P"),
    "gsn": Look("GSN", "pink", (2, 1), "s"),
    "forest": Look("Forest", "ink", (3, 1.2), "D"),
    "dgn": Look("DGN", "green", (3, 1.2), "^"),
}
#: Models of the paper's table of PCQM4Mv2, which are cited and never drawn.
_LABELS = {
    "gcn-vn": "GCN-VN",
    "gin-vn": "GIN-VN",
    "gps-small": "GPS-small",
    "gps-medium": "GPS-medium",
    "grpe": "GRPE",
    "egt": "EGT",
}
#: Hues of models without an entry, of heads and of classes.
HUES = ("blue", "vermilion", "green", "pink", "olive", "sky", "plum", "slate")
_SPARE_HUES = tuple(hue for hue in HUES if hue != "vermilion")


#: The name of a model, or a look.
Named = TypeVar("Named", bound=str | Look)
_Value = TypeVar("_Value")


def look(model: str | Look) -> Look:
    """The look of a model; a model without an entry gets a hue by its name, always the same.

    A look is returned as it is.

    Example:
        >>> look("gprgnn").label
        'GPR-GNN'
    """
    if isinstance(model, Look):
        return model
    if model in _LOOKS:
        return _LOOKS[model]
    hue = _SPARE_HUES[zlib.crc32(model.encode()) % len(_SPARE_HUES)]
    return Look(_LABELS.get(model, model), hue, (4, 1.4))


def head_looks(heads: int) -> list[Look]:
    """Looks for the heads of one Specformer."""
    hues = ("vermilion", *_SPARE_HUES)
    return [
        Look(f"head {head + 1}", hues[head % len(hues)], () if head < len(hues) else (3, 1.2))
        for head in range(heads)
    ]


def in_order(models: Iterable[Named]) -> list[Named]:
    """Distinct models in the order given, ours at the end."""
    return sorted(dict.fromkeys(models), key=lambda model: look(model).ours)


def by_look(found: Mapping[Named, _Value]) -> dict[Look, _Value]:
    """The values by their models' looks, ours at the end."""
    return {look(model): found[model] for model in in_order(found)}


def theme_css() -> str:
    """The colours as custom properties of a page, for light, dark and print."""
    light, dark = (
        "".join(f"--plot-{name}:{tones[theme]};" for name, tones in _TONES.items())
        for theme in (0, 1)
    )
    return (
        f":root{{{light}}}\n"
        f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
        f"@media print{{:root{{{light}}}}}"
    )
