"""The documentation holds: its Python and examples run, commands parse, links lead somewhere."""

from __future__ import annotations

import json
import pkgutil
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import specformer as sf
from benchmarks.__main__ import app as bench
from specformer.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S
)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
RESULTS = re.compile(r"<!-- results:.*?<!-- /results -->", re.S)
#: Programs a reader is told to run, beside our own and make.
OTHERS = {"pip", "python"}
#: What examples leave behind.
LEFT = {"learn_filter": {"learned-filter.png", "learned-filter"}, "train_parts": {"parts"}}
#: Examples that take half a minute each, and have a test of their own.
LONG = {"attention_over_spectra", "train_on_a_table"}
#: Rows of the example `train_on_a_table`.
HOW = ("default", "prepared by hand")
EXAMPLES = [
    pytest.param(path, id=path.stem)
    for path in sorted(ROOT.glob("examples/*.py"))
    if path.stem not in LONG
]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT).with_suffix(""))


def pages(*languages: str) -> list[Any]:
    """The pages with a block in one of these languages."""
    return [
        pytest.param(page, id=name(page))
        for page in PAGES
        if any(True for _ in blocks(page, *languages))
    ]


def blocks(page: Path, *languages: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of every block in one of these languages."""
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        if match["language"] in languages:
            yield text.count("\n", 0, match.start("body")) + 1, match["body"]


def commands(page: Path) -> Iterator[list[str]]:
    for _, body in blocks(page, "sh", "console"):
        for line in body.splitlines():
            words = shlex.split(line.strip().removeprefix("$ "), comments=True)
            if words:
                yield words


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors GitHub and MkDocs give to a page's headings."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def parse(words: list[str], program: typer.Typer = app) -> None:
    """Let the command line's own parser read the words; nothing is run."""
    command: Any = typer.main.get_command(program)
    name, *words = words
    context = None
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        context = command.context_class(command, parent=context, info_name=name)
        name, *words = words
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    if hasattr(command, "commands"):  # only options are left: --help, --version
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(words) <= options | {"--help"}
    elif "--help" not in words:
        command.make_context(name, words, parent=context)


@pytest.mark.parametrize("page", pages("python"))
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page one after the other, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": page.stem}
    for line, body in blocks(page, "python"):
        # Blank lines before it, so that a traceback names the page's own line.
        exec(compile("\n" * (line - 1) + body, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", ["README", "docs/reference/models"])
def test_programs_that_compare_learn(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both classes have half of the nodes, so guessing is right for one in two."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    program = next(body for _, body in blocks(ROOT / f"{page}.md", "python") if "csbm(" in body)
    exec(program, {"__name__": page})
    ours, theirs = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (ours[0], theirs[0]) == ("Specformer", "GCN")
    assert float(ours[1]) > 0.9
    assert float(ours[1]) > float(theirs[1]) > 0.6


@pytest.mark.parametrize("script", EXAMPLES)
def test_examples_run(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert {path.name for path in tmp_path.iterdir()} == LEFT.get(script.stem, set())


@pytest.mark.slow
def test_what_long_examples_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Attention finds places in a spectrum; columns need preparation, and `train` does it."""

    def printed(name: str) -> list[str]:
        test_examples_run(ROOT / "examples" / f"{name}.py", tmp_path, monkeypatch)
        return capsys.readouterr().out.splitlines()

    errors = {words[0]: words for words in map(str.split, printed("attention_over_spectra"))}
    for name in ("second", "largest"):
        assert 3 * float(errors[name][1]) < float(errors[name][2])
    found = [line.rsplit(maxsplit=1) for line in printed("train_on_a_table")]
    reached = {(who[:8].strip(), who[8:].strip()): float(value) for who, value in found}
    for table in ("numbers", "mixed"):
        ours, by_hand = (reached[table, f"specformer, {how}"] for how in HOW)
        assert abs(ours - by_hand) < 5
        assert ours > reached["numbers", "specformer, features=rows"] + 20


@pytest.mark.parametrize("page", pages("sh", "console"))
def test_commands_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
    for words in commands(page):
        if words[0] in ("specformer", "torchrun"):
            parse(words[words.index("specformer") :])
        elif words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, shlex.join(words)
            if words[1] == "bench":
                given = dict(word.split("=", 1) for word in words[2:])
                parse(["bench", given["SUITE"], *shlex.split(given.get("ARGS", ""))], bench)
        else:
            assert words[0] in OTHERS, shlex.join(words)


@pytest.mark.parametrize(
    "wrong",
    [
        "specformer fly",
        "specformer demo --fast",
        "specformer table 2 --runs few",
    ],
)
def test_a_wrong_command_is_noticed(wrong: str) -> None:
    with pytest.raises(Exception, match=r"no command|No such option|a valid"):
        parse(shlex.split(wrong))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(prose(page)):
        path, _, anchor = match["target"].partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), match["target"]
        if anchor:
            assert anchor in anchors(target), match["target"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_that_are_named_exist(page: Path) -> None:
    for name, test in re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", prose(page)):
        assert re.search(rf"^def {test}\(", (ROOT / name).read_text(encoding="utf-8"), re.M), test


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_measured_numbers_come_from_the_ledger(page: Path) -> None:
    text = RESULTS.sub("", page.read_text(encoding="utf-8"))
    assert re.findall(r"\b\d+(?:\.\d+)?(?:[eE][+-]?\d+\b|\s?×\s?10[⁻⁰¹²³⁴-⁹])", text) == []


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.ipynb")), ids=name)
def test_links_of_notebooks_lead_somewhere(page: Path) -> None:
    for cell in json.loads(page.read_text(encoding="utf-8"))["cells"]:
        for match in LINK.finditer("".join(cell["source"]) if cell["cell_type"] != "code" else ""):
            path, _, anchor = match["target"].partition("#")
            target = (page.parent / path).resolve()
            assert target.exists(), match["target"]
            assert not anchor or anchor in anchors(target), match["target"]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_modules_that_are_named_exist(page: Path) -> None:
    if page.name == "CHANGELOG.md":  # what was, stays as it was called
        return
    for found in re.findall(r"`(specformer(?:\.[A-Za-z_]\w*)+)[`(]", prose(page)):
        if found.rpartition(".")[2] not in ("json", "yaml", "py"):
            assert pkgutil.resolve_name(found) is not None, found


def test_the_api_pages_name_what_is_there() -> None:
    for page in ROOT.glob("docs/reference/api/*.md"):
        for found in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.M):
            assert pkgutil.resolve_name(found) is not None


def test_every_public_name_has_its_place_in_the_api() -> None:
    told = "".join(
        page.read_text(encoding="utf-8") for page in ROOT.glob("docs/reference/api/*.md")
    )
    named = {found.rpartition(".")[2] for found in re.findall(r"^::: (\S+)$", told, re.M)}
    errors = {public for public in sf.__all__ if public.endswith("Error")}  # all on one page
    assert set(sf.__all__) - {"__version__"} - errors <= named


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"(?::|-) (\S+\.(?:md|ipynb))$", menu, re.M))
    docs = ROOT / "docs"
    there = [*docs.glob("**/*.md"), *docs.glob("**/*.ipynb")]
    assert named == {str(page.relative_to(docs)) for page in there}


def test_the_picture_and_the_table_of_rooms_have_all_of_them() -> None:
    rooms = {path.parent.name for path in (ROOT / "src" / "specformer").glob("*/__init__.py")}
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = (ROOT / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
    assert rooms <= set(re.findall(r"([a-z]+)/", drawn))
    first_cells = " ".join(re.findall(r"^\| ([^|]*`[^|]*) \|", page, re.M))
    assert rooms <= set(re.findall(r"`([a-z]+)/`", first_cells))
