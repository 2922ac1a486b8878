"""Markdown from notebooks, from the program's commands and from docstrings."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import typer

ROLE = re.compile(r":(?P<role>math|func|class|meth|mod|attr|obj):`~?(?P<text>[^`]+)`")
BLOCK = re.compile(r"^(?P<indent> *)\.\. math::\s*\n(?P<body>(?:\n|(?P=indent) +.*\n?)+)", re.M)
#: TeX in our formulas, and the characters that replace it.
TEX = {
    r"\\mathrm\{([^}]*)\}": r"\1",
    r"\\operatorname\{([^}]*)\}": r"\1",
    r"\\text\{([^}]*)\}": r"\1",
    r"\\hat\{? ?([A-Za-z])\}?": "\\1\u0302",
    r"\\tilde\{? ?([A-Za-z])\}?": "\\1\u0303",
    r"\\[Bb]igg?\b|\\qquad": " ",
    r"\\[lr]?Vert": "‖",
    r"\\pi": "π",
    r"\\phi": "φ",
    r"\\to\b": "→",
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
    r"""Convert Sphinx roles and formulas to Markdown.

    Example:
        >>> as_markdown(r"Filters by :math:`U\,g\,U^\top x`, see :meth:`Spectrum.filter`.")
        'Filters by `U g Uᵀ x`, see `Spectrum.filter`.'
    """
    text = BLOCK.sub(_block, text)
    text = re.sub(
        r"^( *)Example:$", r"\1Examples:", text, flags=re.M
    )  # the word that the parser expects
    text = ROLE.sub(lambda m: f"`{plain(m['text']) if m['role'] == 'math' else m['text']}`", text)
    return re.sub(r"(?<!`)``(?!`)", "`", text)  # a fence has three


def plain(formula: str) -> str:
    """A TeX formula as plain text."""
    for pattern, character in TEX.items():
        formula = re.sub(pattern, character, formula)
    return re.sub(r"[{}]", "", re.sub(r" +", " ", formula)).strip()


def _block(match: re.Match[str]) -> str:
    indent = match["indent"]
    lines = [plain(line) for line in match["body"].split("\n") if line.strip()]
    return "".join(f"{indent}{line}\n" for line in ["```text", *lines, "```", ""])


def notebook_page(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: text, code and outputs."""
    blocks = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            blocks.append(source)
        else:
            blocks.append(f"```python\n{source}\n```")
            blocks += [shown for output in cell["outputs"] for shown in _shown(output)]
    return "\n\n".join(blocks) + "\n"


def _shown(output: dict[str, Any]) -> Iterator[str]:
    """One output of a cell as Markdown."""
    if output["output_type"] == "stream":
        yield f"```text\n{''.join(output['text']).rstrip()}\n```"
        return
    data = output["data"]
    if "image/png" in data:
        picture = f"data:image/png;base64,{data['image/png']}"
        yield f'<img alt="What the code above draws" src="{picture}">'
    elif "image/svg+xml" in data:
        yield "<div>" + re.sub(r"\s*\n\s*", " ", "".join(data["image/svg+xml"])) + "</div>"
    elif "text/html" in data:
        yield "<div>" + re.sub(r"\s*\n\s*", " ", "".join(data["text/html"])) + "</div>"
    else:
        yield f"```text\n{''.join(data['text/plain'])}\n```"


def commands() -> str:
    """Every command of the program with its arguments and options."""
    from specformer.cli import app

    return "\n\n".join(_command(typer.main.get_command(app), "specformer"))


def _command(command: Any, name: str) -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield f"## {name}"
        yield _plain(command.help or "")
        words = " ".join(_argument(parameter) for parameter in command.params)
        yield f"```text\n{name} {words.strip()} [OPTIONS]\n```".replace("  ", " ")
        rows = [_option(parameter) for parameter in command.params if not parameter.hidden]
        yield "\n".join(["| argument or option | default | meaning |", "|---|---|---|", *rows])
        return
    for below, one in command.commands.items():
        if not one.hidden:
            yield from _command(one, f"{name} {below}")


def _argument(parameter: Any) -> str:
    if parameter.param_type_name != "argument":
        return ""
    word: str = parameter.metavar or parameter.name.upper()
    return word


def _option(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = f"`{_argument(parameter)}`"
    else:
        name = ", ".join(f"`{word}`" for word in [*parameter.opts, *parameter.secondary_opts])
    given = parameter.default
    default = "" if given is None or given is False or given == () or callable(given) else given
    default = ", ".join(map(str, default)) if isinstance(default, list | tuple) else default
    meaning = _plain(parameter.help or "").replace("|", "\\|")
    return f"| {name} | {f'`{default}`' if default != '' else ''} | {meaning} |"


def _plain(text: str) -> str:
    """Help text as Markdown, one line per paragraph."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", ""))
    return "\n\n".join(html.escape(" ".join(part.split()), quote=False) for part in paragraphs)
