"""Writes the generated sections of the README: options, commands, tables of a run, public names.

In: the package itself, so that no table can say what the code doesn't do. Out: the README with everything
between the markers of each section made anew. `--check` changes nothing and fails when something is out of date.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import workbench as wb
from workbench import cli
from workbench.config import Option, options
from workbench.replay.trace import TABLES

README = Path(__file__).resolve().parent.parent / "README.md"
# Requirement ids tell a maintainer where an option comes from; a user reads past them.
_SOURCES = re.compile(
    r"\s*(Source:\s*[^.]*\.?|\([A-Z]{2,4}-[^)]*\)|\((D|DA)\d+[^)]*\)|\b[A-Z]{2,4}(-[A-Z0-9]+[a-z]?)+(, -?[\w-]+)*\.)"
)
_OUR_CONSTANTS = {"SEED", "TRPC_AGENT_GO_2026_07", "TRPC_AGENT_GO_2026_08", "__version__"}


def option_table() -> str:
    """One table per part of a configuration file."""
    top = [option for option in options() if "." not in option.path]
    parts = [_options_of("Top level", [option for option in top if not option.type.startswith("table")])]
    for table in top:
        if table.type.startswith("table"):
            inner = [option for option in options() if option.path.startswith(table.path + ".")]
            parts.append(_options_of(f"`[{table.path}]`", inner, plain(table.doc), prefix=table.path + "."))
    return "\n\n".join(parts)


def _options_of(title: str, found: Iterable[Option], about: str = "", prefix: str = "") -> str:
    rows = [
        (f"`{option.path.removeprefix(prefix)}`", option.type, _code(option.default), plain(option.doc))
        for option in found
    ]
    lines = [f"**{title}** {about}".strip(), "", *markdown_table(("option", "type", "default", "meaning"), rows)]
    return "\n".join(lines)


def command_table() -> str:
    """Every command with its example."""
    rows = [(f"`{name}`", command.description or "", _code(_example(command))) for name, command in commands().items()]
    return "\n".join(markdown_table(("command", "what it does", "example"), rows))


def commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command, by its name."""
    parser = cli.parser()
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _example(command: argparse.ArgumentParser) -> str:
    return (command.epilog or "").removeprefix("example:").strip()


def trace_table() -> str:
    """The tables of a run file."""
    rows = [(f"`{table.name}`", table.doc, str(len(table.columns))) for table in TABLES.values()]
    return "\n".join(markdown_table(("table", "a row", "columns"), rows))


def name_table() -> str:
    """Every public name with the first sentence of its docstring."""
    names = sorted((name for name in wb.__all__ if name not in _OUR_CONSTANTS), key=str.lower)
    rows = [(f"`{name}`", first_sentence(getattr(wb, name))) for name in names]
    return "\n".join(markdown_table(("name", "what it is"), rows))


def first_sentence(thing: object) -> str:
    """The start of a docstring, without requirement ids."""
    paragraph = (inspect.getdoc(thing) or "").split("\n\n")[0]
    sentence = re.split(r"(?<=[.;:])\s", plain(paragraph))[0]
    return sentence.rstrip(".;:")


def plain(text: str) -> str:
    """One line, without requirement ids, with a full stop at its end."""
    line = _SOURCES.sub("", " ".join(text.split())).strip()
    return line if not line or line[-1] in ".:" else line + "."


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def markdown_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a table; a bar inside a cell doesn't end it."""
    heads = list(heads)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *cells)]


SECTIONS: dict[str, Callable[[], str]] = {
    "commands": command_table,
    "tables": trace_table,
    "names": name_table,
    "options": option_table,
}


def with_section(text: str, name: str, content: str) -> str:
    """`text` with new content between the markers of a section."""
    section = re.compile(rf"(<!-- begin {name}\b[^>]*-->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if len(section.findall(text)) != 1:
        raise SystemExit(f"{README.name}: expected one section {name!r} between its markers")
    return section.sub(lambda found: f"{found[1]}\n{content}\n\n{found[2]}", text)


def with_sections(text: str) -> str:
    """`text` with all sections of this module made anew."""
    for name, make in SECTIONS.items():
        text = with_section(text, name, make())
    return text


def main() -> int:
    """Rewrite the README, or check it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a section is out of date")
    check = parser.parse_args().check
    before = README.read_text(encoding="utf-8")
    after = with_sections(before)
    if after == before:
        return 0
    if check:
        print(f"{README.name} is out of date: run `make readme`", file=sys.stderr)
        return 1
    README.write_text(after, encoding="utf-8")
    print(f"{README.name}: sections written anew")
    return 0


if __name__ == "__main__":
    sys.exit(main())
