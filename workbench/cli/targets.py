"""Where a command may write: never over what it reads, and a place that can't be written is told before the work.

In: the options of a command. Out: nothing, or a `ConfigError` before anything was read, replayed or written.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from workbench.errors import ConfigError

_TARGETS: Final = {
    "report": "--report",
    "out": "--out",
    "to": "--to",
    "output": "-o",
    "figure": "--figure",
    "junit": "--junit",
}
_INPUTS: Final = ("config", "grid", "probes", "instruction", "tools", "suite")
_NEVER_RECORDINGS: Final = frozenset((".html", ".toml", ".xml", ".png", ".svg", ".md"))
"""What reports and recommendations are called: in a folder of recordings they may be written anew."""


def check_targets(options: argparse.Namespace) -> None:
    """Look at every file that the command is to write.

    Raises:
        ConfigError: it is a folder, lies in something that is none, or is one of the files that the command reads.
        RecordingError: a file to read isn't there.
    """
    if options.command == "export":  # its --to are forms, and it writes a configuration that loads back equal
        return
    given = [(option, getattr(options, name, None)) for name, option in _TARGETS.items()]
    for option, text in given:
        if text:
            _check(option, str(text), options)


def _check(option: str, text: str, options: argparse.Namespace) -> None:
    def refuse(reason: str) -> ConfigError:
        return ConfigError(f"{text}: {reason}", field=option, value=text, hint=f"name another file with {option}")

    target = Path(text)
    try:
        if target.is_dir():
            raise refuse("is a folder")
        folder = next(parent for parent in target.absolute().parents if parent.exists())
        if not folder.is_dir():
            raise refuse(f"can't be written: {folder.name} is no folder")
        if target.is_file() and any(target.samefile(path) for path in _read_by(options, target)):
            raise refuse("is read by this command, and would be lost")
    except (OSError, ValueError) as error:  # too long, or with a null character
        if isinstance(error, ConfigError):
            raise
        raise refuse(f"can't be written: {getattr(error, 'strerror', None) or error}") from error


def _read_by(options: argparse.Namespace, target: Path) -> Iterator[Path]:
    """The files that the command reads, as far as one of them may be the target."""
    for name in _INPUTS:
        said = getattr(options, name, None) or []
        yield from (path for one in ([said] if isinstance(said, str) else said) if (path := Path(one)).is_file())
    paths = [Path(path) for path in getattr(options, "paths", None) or []]
    yield from (path for path in paths if path.is_file())
    if suite := getattr(options, "suite", None):
        from workbench.regression.suite import load_suite

        yield from (path for path in load_suite(suite).files if path.is_file())
    if target.suffix.lower() not in _NEVER_RECORDINGS:
        from workbench.recordings.sources import MB, SourceFile, find_sources

        for found in find_sources([path for path in paths if not path.is_file()], max_unpacked_bytes=MB):
            if isinstance(found, SourceFile):
                yield Path(found.label.split("!/")[0])
