"""For mkdocstrings: what our docstrings write in Sphinx's way, as Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?P<role>math|func|class|meth|mod|attr|obj):`~?(?P<text>[^`]+)`")
BLOCK = re.compile(r"^(?P<indent> *)\.\. math::\s*\n(?P<body>(?:\n|(?P=indent) +.*\n?)+)", re.M)
#: TeX that our formulas use, as the characters that the rest of the documentation uses.
TEX = {
    r"\\mathrm\{([^}]*)\}": r"\1",
    r"\\operatorname\{([^}]*)\}": r"\1",
    r"\\text\{([^}]*)\}": r"\1",
    r"\\hat\{?([A-Za-z])\}?": "\\1\u0302",
    r"\\tilde\{?([A-Za-z])\}?": "\\1\u0303",
    r"\^\{?\\top\}?": "ᵀ",
    r"\^\{-1/2\}": "^(−1/2)",
    r"\\lambda": "λ",
    r"\\Lambda": "Λ",
    r"\\rho": "ρ",
    r"\\sigma": "σ",
    r"\\epsilon": "ε",
    r"\\theta": "θ",
    r"\\omega": "ω",
    r"\\delta": "δ",
    r"\\mu": "μ",
    r"\\xi": "ξ",
    r"\\sum": "Σ",
    r"\\odot": "⊙",
    r"\\cdot": "·",
    r"\\cdots|\\dots|\\ldots": "…",
    r"\\times": "×",
    r"\\approx": "≈",
    r"\\leq?": "≤",
    r"\\geq?": "≥",
    r"\\in\b": "∈",
    r"\\sin": "sin",
    r"\\cos": "cos",
    r"\\exp": "exp",
    r"\\max": "max",
    r"\\min": "min",
    r"\\log": "log",
    r"\\sqrt": "√",
    r"\\\|": "‖",
    r"\\[,;: !]|\\quad|\\left|\\right|&": " ",
}


def as_markdown(text: str) -> str:
    r"""Roles and formulas of Sphinx as Markdown.

    Example:
        >>> as_markdown(r"Filters by :math:`U\,g\,U^\top x`, see :meth:`Spectrum.filter`.")
        'Filters by `U g Uᵀ x`, see `Spectrum.filter`.'
    """
    text = BLOCK.sub(_block, text)
    text = re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.M)  # the parser's own word
    return ROLE.sub(
        lambda m: f"`{plain(m['text']) if m['role'] == 'math' else m['text']}`", text
    ).replace("``", "`")


def plain(formula: str) -> str:
    """A formula in TeX as text."""
    for pattern, character in TEX.items():
        formula = re.sub(pattern, character, formula)
    return re.sub(r"[{}]", "", re.sub(r" +", " ", formula)).strip()


def _block(match: re.Match[str]) -> str:
    indent = match["indent"]
    lines = [plain(line) for line in match["body"].split("\n") if line.strip()]
    return "".join(f"{indent}{line}\n" for line in ["```text", *lines, "```", ""])


class SphinxRoles(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
