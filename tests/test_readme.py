"""The README says what the program does: its examples run, its commands parse, its tables are those of the code."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import workbench as wb
from workbench import cli
from workbench.config import options
from workbench.recordings import format_names
from workbench.replay.runs import FACT_NAMES

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(
    r"(?:<!-- (?P<mark>[^>]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


def fences(language: str) -> list[tuple[str, str]]:
    """The mark in front of each fenced block of a language, and its text."""
    return [(found["mark"] or "", found["text"]) for found in FENCE.finditer(README) if found["language"] == language]


def python_examples() -> list[str]:
    return [text for _, text in fences("python")]


def shell_commands() -> list[str]:
    lines = (line for _, text in fences("sh") for line in text.splitlines())
    return [line.split(" #")[0].strip() for line in lines if line.startswith("workbench ")]


def inline_commands() -> list[str]:
    """Commands inside a sentence; a placeholder stands for a value."""
    return [code for code in re.findall(r"`(workbench [^`]+)`", README) if "..." not in code]


def notebook_sources() -> Iterator[str]:
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            yield "".join(cell["source"])


@pytest.fixture(scope="module")
def option_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("option_table", ROOT / "tools" / "option_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def in_readers_folder(tmp_path, monkeypatch) -> Path:
    """A folder with the files that the README tells its reader to save, and the bundled recordings."""
    (tmp_path / "datasets").symlink_to(ROOT / "datasets")
    for language in ("json", "toml"):
        for mark, text in fences(language):
            if mark.startswith("file: "):
                (tmp_path / mark.removeprefix("file: ")).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(python_examples())))
def test_a_python_example_runs_as_printed(number, in_readers_folder, capsys):
    code = compile(python_examples()[number], f"README.md, example {number + 1}", "exec")
    exec(code, {"__name__": "__main__"})
    assert "Traceback" not in capsys.readouterr().err


def test_the_example_of_the_engine_makes_a_summary(in_readers_folder, capsys):
    """SUM-RNR-01: a runner, a service and a summarizer are all that it takes."""
    example = next(text for text in python_examples() if "wb.Runner(" in text and "asyncio.run" in text)
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "support: It was shipped." in printed
    assert "summary: The customer asks about order 7731. It was shipped." in printed


@pytest.mark.slow
def test_the_commands_for_an_own_recording_work(in_readers_folder, capsys):
    """WB-CLI, WB-REC-01."""
    for command in shell_commands():
        assert cli.main(shlex.split(command)[1:]) == 0, command
    assert (in_readers_folder / "reports" / "own.html").stat().st_size > 1000
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", sorted({*shell_commands(), *inline_commands()}))
def test_a_command_of_the_readme_parses(command):
    cli.parser().parse_args(shlex.split(command)[1:])


def test_the_generated_sections_are_up_to_date(option_table):
    """WB-CFG-02."""
    assert option_table.with_sections(README) == README, "run `make readme`"


def test_the_option_table_has_every_option_and_no_requirement_id(option_table):
    table = option_table.option_table()
    missing = [option.path for option in options() if f"`{option.path.split('.', 1)[-1]}`" not in table]
    assert [path for path in missing if f"`[{path}]`" not in table] == []
    assert re.findall(r"\b[A-Z]{2,4}(?:-[A-Z]+)?-\d+", table) == []


def test_every_command_is_shown(option_table):
    assert [name for name in option_table.commands() if f"| `{name}` |" not in README] == []


def test_every_public_name_is_shown():
    shown = set(re.findall(r"\w+", "\n".join((README, *notebook_sources()))))
    assert set(wb.__all__) - shown == set()


def test_the_guide_names_options_figures_and_notebooks_that_exist():
    """WB-FRESH-02a: one page from complaint to option, figure and notebook."""
    guide = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    rows = guide[guide.index("| complaint |") :].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert len(cells) > 8
    assert all(len(row) == 4 and all(row) for row in cells)
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)", " ".join(row[1] for row in cells)))
    assert named - {option.path for option in options()} == set()
    figures = set(re.findall(r"`([a-z]+_[a-z_]+)`", " ".join(row[2] for row in cells)))
    assert figures
    assert figures - set(wb.report.__all__) == set()
    notebooks = {path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {number for row in cells for number in row[3].split(", ")} - notebooks == set()


@pytest.mark.parametrize(
    ("what", "names"),
    [("figure of a run", lambda: FACT_NAMES), ("recording format", format_names), ("profile", lambda: ("SEED",))],
)
def test_each_is_explained(what: str, names: Callable[[], tuple[str, ...]]):
    """WB-CLI-03."""
    explained = "\n".join(line for line in README.splitlines() if line.startswith("| `"))
    assert [name for name in names() if f"`{name}`" not in explained] == []


def test_every_exit_code_is_explained():
    codes = {error.exit_code for error in all_errors(wb.WorkbenchError)} | {0, cli.EXIT_INTERRUPTED}
    assert {code for code in codes if f"\n| {code} | " not in README} == set()


def all_errors(parent: type[wb.WorkbenchError]) -> Iterator[type[wb.WorkbenchError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from all_errors(child)


def test_files_and_make_targets_that_are_named_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    files = re.findall(r"`((?:workbench|tests|tools|notebooks|reports)/[\w./-]+\.\w+)`", README)
    gone = [name for name in (*links, *files) if "NAME" not in name and not (ROOT / name).exists()]
    assert [name for name in gone if name != "reports/demo.html"] == []
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)\b(?=`|\s+#|\s*$)", README, re.MULTILINE)) - set(targets) == set()


def test_the_picture_is_small():
    picture = (ROOT / "reports" / "first-replay.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 200_000


@pytest.mark.slow
def test_the_demo_table_is_what_the_demo_prints():
    """WB-FRESH-01: what the README shows is what a reader gets."""
    run = [sys.executable, "-m", "workbench", "demo", "--runs", "{folder}/runs", "--report", "{folder}/demo.html"]
    with tempfile.TemporaryDirectory() as folder:
        command = [part.format(folder=folder) for part in run]
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shown = next(text for _, text in fences("text"))
    assert shown.strip() in printed, "run `make readme`"


def test_the_readme_carries_the_guidance_on_triggers_and_workers() -> None:
    """SUM-RNR-07."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for words in ("when the model can change", "fixed budget", "2 to 4 workers", "queue is full", "100 to 300", "TTL"):
        assert words in text
