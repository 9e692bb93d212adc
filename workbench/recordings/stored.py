"""The format `duckdb`: the file of a `DuckDBSessionService`, each session a conversation.

In: a store file, in use by a service or not. Out: conversations with everything that the service stored: events
with their ids, times, request ids, filter keys, branches and usage, and the summaries as metadata. A service
stores neither the agent's instruction nor its tools; whoever replays gives them (`load_recordings(instruction=,
tools=)`). Then a replay under the service's own configuration sends what the service sent, byte for byte, where each
summary was finished before the next call (how long it took isn't stored), was written by a source that repeats itself
(`extractive`, `sized`, a cassette; a real model doesn't), and nothing came from memories or other sessions.

The sessions are written out once, to a temporary file that lives as long as the recordings, so that
all walks see the same moment of a store that grows.
"""

from __future__ import annotations

import io
import re
import shutil
import weakref
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from workbench.errors import RecordingError, StoreError
from workbench.recordings.native import FORMAT_NAME as NATIVE_NAME
from workbench.recordings.native import FORMAT_VERSION, NATIVE
from workbench.recordings.problems import Severity, quoted
from workbench.recordings.reading import Format, Reading, ReadOptions
from workbench.recordings.rows import Row, RowReader
from workbench.recordings.types import Conversation

FORMAT_NAME = "duckdb"
EMPTY = "sessions without events left out"
_HEAD = {"type": "session", "format": NATIVE_NAME, "version": FORMAT_VERSION}
_LINE_IN_TEXT = re.compile(r"\bline (\d+)\b")
_COLUMN_IN_TEXT = re.compile(r"\bat column (\d+)\b")


def has_journal(path: Path) -> bool:
    """Whether a DuckDB file has what every session store has beside it."""
    return path.with_name(path.name + ".journal").is_file()


@dataclass(frozen=True, slots=True)
class _WrittenOut:
    """The sessions of one store, as native lines."""

    lines: Path
    n_sessions: int
    n_empty: int
    problems: tuple[tuple[str, str], ...]


class StoreReader:
    """Reads stores, each once; its temporary files go when it goes.

    Args:
        max_line_bytes: Longest event that is read.
        max_bytes: Most that the conversations of one store may take.
    """

    def __init__(self, *, max_line_bytes: int, max_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._max_bytes = max_bytes
        self._folder: Path | None = None
        self._known: dict[Path, _WrittenOut] = {}

    def read(self, path: Path, reading: Reading) -> Iterator[Conversation]:
        """The conversations of a store.

        Raises:
            RecordingError: it is no store, is damaged, or can't be read safely.
        """
        found = self._written_out(path, reading.options)
        reading.lose(EMPTY, found.n_empty)
        for session_id, what in found.problems:
            reading.report(f"session {quoted(session_id)} {what}", "`workbench store check` tells more")
        if not found.n_sessions:
            chosen = " that was asked for" if reading.options.chooses else ""
            reading.report(f"the store has no session with events{chosen}")
            return
        with _opened(found.lines) as stream:
            rows = iter(RowReader(stream, NATIVE.recognises, max_record_bytes=self._max_line_bytes))
            places = _Places()
            for conversation in NATIVE.read(places.noted(rows), _StoredReading(reading, places)):
                reading.n_loaded += 1
                yield conversation.replace(format=FORMAT_NAME, line=None)

    def _written_out(self, path: Path, options: ReadOptions) -> _WrittenOut:
        path = path.absolute()
        if path not in self._known:
            # The store is a sibling of the recordings: only this function knows it, and only when a file is one.
            from workbench.store.duckdb.dump import Wanted, dump_sessions

            if self._folder is None:
                self._folder = Path(mkdtemp(prefix="workbench-sessions-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            lines = self._folder / f"{len(self._known)}.jsonl"
            wanted = Wanted(options.apps, options.users, options.since_ns, options.until_ns)
            try:
                dump = dump_sessions(path, lines, wanted, head=_HEAD, max_bytes=self._max_bytes)
            except StoreError as error:
                reason = str(error).removeprefix(f"{path}: ")
                raise RecordingError(reason, path=path, hint=error.hint) from error
            self._known[path] = _WrittenOut(lines, dump.n_sessions, dump.n_empty, dump.problems)
        return self._known[path]


@contextmanager
def _opened(path: Path) -> Iterator[io.BufferedReader]:
    with path.open("rb") as stream:
        yield stream


# --- a line is a place in a session --------------------------------------------------------------------


@dataclass(slots=True)
class _Places:
    """Which session and event a line of the written-out file stands for."""

    starts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def noted(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows, with the sessions among them noted."""
        for row in rows:
            if isinstance(row.value, dict) and row.value.get("type") == "session":
                self.starts.append(row.line)
                self.names.append(str(row.value.get("id")))
            yield row

    def of(self, line: int) -> tuple[str, int]:
        """Session, and event from 1; 0 is the session itself."""
        place = bisect_right(self.starts, line) - 1
        return self.names[place], line - self.starts[place]

    def said(self, reason: str) -> str:
        """A reason whose line numbers mean events, and whose columns those of the stored text."""
        reason = _LINE_IN_TEXT.sub(lambda found: f"event {self.of(int(found[1]))[1]}", reason)
        return _COLUMN_IN_TEXT.sub(lambda found: f"at character {int(found[1]) - _ADDED_CHARS}", reason)


_ADDED_CHARS = len('"type":"event",')


class _StoredReading(Reading):
    """A reading whose findings name a session and an event where others name a line."""

    def __init__(self, reading: Reading, places: _Places) -> None:
        super().__init__(reading.path, reading.stem, reading.options, reading.log)
        self._places = places

    def report(
        self, reason: str, hint: str = "", *, line: int | None = None, column: int | None = None,
        severity: Severity = "problem", outcome: str = "",
    ) -> None:  # fmt: skip
        if line is not None and self._places.starts:
            name, event = self._places.of(line)
            where = f"event {event} of session {quoted(name)}" if event else f"session {quoted(name)}"
            reason = f"{where}: {self._places.said(reason)}"
        super().report(reason, hint, severity=severity, outcome=outcome)


def _never(value: Any) -> bool:
    """A store is known by its first bytes, not by a row."""
    return False


def _no_rows(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    """A file of text under the name of this format."""
    reading.report("is not a DuckDB file", "leave out --format")
    yield from ()


STORED = Format(FORMAT_NAME, _never, _no_rows)
