"""`load_recordings`: files in, conversations out, lazily, with everything that couldn't be read.

In: a path, folder, glob, or several. Out: `Recordings`, which can be walked as often as wanted; each walk
reads the files anew, one record at a time (REL-12). Implements WB-REC-01, -02, -05 and the `import` object of
WB-CLI-03. The format of a file is found from its content.
"""

from __future__ import annotations

import hashlib
import io
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

from workbench.errors import ConfigError, RecordingError, nearest_name
from workbench.model.cassette import FORMAT_NAME
from workbench.model.types import ToolSpec
from workbench.recordings.anthropic import ANTHROPIC
from workbench.recordings.chat import tools_from_chat
from workbench.recordings.claude_code import CLAUDE_CODE
from workbench.recordings.csv import CSV
from workbench.recordings.dialogue import DIALOGUE
from workbench.recordings.joining import joined
from workbench.recordings.langchain import LANGCHAIN
from workbench.recordings.native import NATIVE
from workbench.recordings.openai_chat import OPENAI_CHAT
from workbench.recordings.openai_responses import OPENAI_RESPONSES
from workbench.recordings.otel_genai import OTEL_GENAI
from workbench.recordings.problems import FaultyRecordError, Problem, shown
from workbench.recordings.reading import Format, PassLog, Reading, ReadOptions
from workbench.recordings.rows import Row, RowReader
from workbench.recordings.sharegpt import SHAREGPT
from workbench.recordings.sources import MB, Skipped, SourceFile, UnreadableError, check_paths, find_sources
from workbench.recordings.stored import STORED, StoreReader, has_journal
from workbench.recordings.swe_agent import SWE_AGENT
from workbench.recordings.table import TableReader, is_table
from workbench.recordings.tau_bench import TAU_BENCH
from workbench.recordings.trpc import TRPC
from workbench.recordings.types import Conversation

# Asked in this order: the more particular first.
FORMATS: tuple[Format, ...] = (
    NATIVE,
    STORED,
    CLAUDE_CODE,
    TAU_BENCH,
    SWE_AGENT,
    TRPC,
    OTEL_GENAI,
    OPENAI_RESPONSES,
    SHAREGPT,
    LANGCHAIN,
    ANTHROPIC,
    OPENAI_CHAT,
    DIALOGUE,
    CSV,
)
_FORMATS_BY_NAME = {item.name: item for item in FORMATS}
AUTO = "auto"
NOT_READ = "not read"
# Up to here a complete walk keeps what it read: a replay walks its recordings more than once.
KEPT_EVENTS = 20_000
KEPT_CHARS = 16_000_000
_CASSETTE_HEAD = f'{{"format":"{FORMAT_NAME}"'.encode()
_CASSETTE = "is a cassette of recorded answers, no recording"
_DETECTION_ROWS = 20
_DETECTION_BYTES = 8 * MB
_HEAD_BYTES = 8192
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

Paths = str | Path | Sequence[str | Path]
Tools = Sequence[Any]
"""`ToolSpec`s, whatever has one as its `spec`, or declarations as the chat-completions interface takes them."""


def format_names() -> tuple[str, ...]:
    """Names that `format=` takes, besides `auto`."""
    return tuple(_FORMATS_BY_NAME)


def load_recordings(
    path: Paths,
    *,
    format: str = AUTO,  # noqa: A002 - the word that users know
    map: str | Mapping[str, str] | None = None,  # noqa: A002 - the same
    gap_s: float = 30.0,
    step_s: float = 2.0,
    observations: str | None = None,
    zone: str | None = None,
    time_unit: str | None = None,
    assume_order: bool = False,
    join: int = 1,
    max_line_mb: int = 64,
    max_unpacked_mb: int = 1024,
    app: str | Sequence[str] | None = None,
    user: str | Sequence[str] | None = None,
    since: str | datetime | None = None,
    until: str | datetime | None = None,
    instruction: str = "",
    tools: Tools = (),
) -> Recordings:
    """Conversations recorded in files, as a lazy sequence.

    Args:
        path: File, folder, glob, or several; folders are walked, packed files are read, and a file that several lead
            to is read once. The file of a `DuckDBSessionService` is one too, whether a service has it open or not.
        format: Name of a format, or `auto`: found from the content of each file.
        map: Columns of a `csv`, or of a `dialogue` without known layout: `user=...,assistant=...` or
            `text=...,speaker=...`.
        gap_s: Synthetic clock: seconds before each request, when no event has a time.
        step_s: Synthetic clock: seconds between events of a request.
        observations: What messages of role user behind the first answer are in agent recordings: `user` or `tool`.
        zone: Of times that have none: `+09:00`, `Asia/Tokyo`.
        time_unit: Of times that are numbers: s, ms, us, ns; seconds unless said otherwise.
        assume_order: Events without a time, among others that have one, take that of the event before.
        join: Make one conversation of so many short dialogues; it is labelled as joined.
        max_line_mb: Longest record that is read.
        max_unpacked_mb: Most that one packed file may unpack to, and that the sessions of one store may take.
        app: Only conversations of this application, or of these.
        user: Only conversations of this user, or of these.
        since: Only conversations that went on at this moment or later; a day, or a date and time. Without a zone
            it is in `zone`, else in UTC. Conversations without times are left out.
        until: Only conversations that began before this moment.
        instruction: The agent's instruction, for conversations whose source has none. A store has none.
        tools: The agent's tools, for conversations whose source has none: `ToolSpec`s, tools, or declarations as
            the chat-completions interface takes them.

    Raises:
        RecordingError: no such file, no format fits a file given by name, nothing could be loaded, or a file is
            of a kind that stops the load (UTF-16, a newer native version): then also while walking.
        ConfigError: an option has a value that isn't allowed.
    """
    options = ReadOptions.check(
        gap_s=gap_s, step_s=step_s, observations=observations, zone=zone, time_unit=time_unit,
        assume_order=assume_order, mapping=map, app=app, user=user, since=since, until=until,
        instruction=instruction, tools=_tool_specs(tools),
    )  # fmt: skip
    for name, limit in (("join", join), ("max_line_mb", max_line_mb), ("max_unpacked_mb", max_unpacked_mb)):
        if isinstance(limit, bool) or limit < 1:
            raise ConfigError.for_field(name, limit, "a whole number, 1 or more")
    if format != AUTO and format not in _FORMATS_BY_NAME:
        raise ConfigError.for_field(
            "format", format, ", ".join((AUTO, *_FORMATS_BY_NAME)), hint=nearest_name(format, _FORMATS_BY_NAME)
        )
    paths = [path] if isinstance(path, str | Path) else list(path)
    forced = DIALOGUE if map is not None and format == AUTO else _FORMATS_BY_NAME.get(format)
    stores = StoreReader(max_line_bytes=max_line_mb * MB, max_bytes=max_unpacked_mb * MB)
    loader = _Loader(paths, forced, options, max_line_mb * MB, max_unpacked_mb * MB, stores)
    check_paths(paths)
    recordings = Recordings(loader.walk if join == 1 else lambda found: joined(loader.walk(found), join))
    recordings.check_not_empty(", ".join(str(item) for item in paths))
    return recordings


def _tool_specs(tools: Tools) -> tuple[ToolSpec, ...]:
    specs: list[ToolSpec] = []
    for place, tool in enumerate(tools, 1):
        spec = getattr(tool, "spec", tool)
        if isinstance(spec, ToolSpec):
            specs.append(spec)
            continue
        try:
            specs += tools_from_chat([spec])
        except FaultyRecordError as fault:
            reason = fault.reason.replace("tool 1 ", f"tool {place} ")
            raise ConfigError(f"tools: {reason}", field="tools", hint="give ToolSpecs or declarations") from None
    return tuple(specs)


@dataclass(slots=True)
class Tally:
    """What was read of one format."""

    conversations: int = 0
    events: int = 0
    messages: int = 0
    calls: int = 0
    problems: int = 0


@dataclass(slots=True)
class _Pass:
    """What one complete walk found out."""

    log: PassLog = field(default_factory=PassLog)
    skipped: list[Skipped] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    format_of: dict[str, str] = field(default_factory=dict)
    """File -> the format it was read as."""
    kept: Counter[str] = field(default_factory=Counter)
    conversations: int = 0
    events: int = 0
    messages: int = 0
    calls: int = 0
    chars: int = 0
    left_out: int = 0
    """Conversations that weren't asked for."""

    def count(self, conversation: Conversation) -> None:
        n_messages = 0
        for message in conversation.messages:
            n_messages += 1
            self.chars += len(message.content)
        n_events, n_calls = len(conversation.events), len(conversation.calls)
        self.conversations += 1
        self.events += n_events
        self.messages += n_messages
        self.calls += n_calls
        tally = self.tallies.setdefault(conversation.format, Tally())
        tally.conversations += 1
        tally.events += n_events
        tally.messages += n_messages
        tally.calls += n_calls
        self.kept["times"] += not conversation.assumed_time
        self.kept["usage"] += bool(conversation.usage)
        self.kept["instruction"] += bool(conversation.instruction)
        self.kept["tools"] += bool(conversation.tools)
        self.kept["model"] += bool(conversation.model)


Walk = Callable[["_Pass"], Iterator[Conversation]]


class Recordings(Sequence[Conversation]):
    """Recorded conversations: a lazy sequence that can be walked many times.

    A walk reads from disk; only a small set stays in memory after it. Length, problems and counts come from one
    complete walk, made when first asked for. Indexing loads all conversations and keeps them (`load`).
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._kept: tuple[Conversation, ...] | None = None
        self._pass: _Pass | None = None
        self._data_hash = ""

    @classmethod
    def of(cls, conversations: Iterable[Conversation]) -> Recordings:
        """Ready conversations as recordings."""
        kept = tuple(conversations)
        recordings = cls(lambda found: iter(kept))
        recordings._kept = kept
        return recordings

    # --- walking ---------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Conversation]:
        if self._kept is not None:
            yield from self._kept
            return
        found = _Pass()
        few: list[Conversation] | None = []
        for conversation in self._walk(found):
            found.count(conversation)
            if few is not None:
                few.append(conversation)
                if found.events > KEPT_EVENTS or found.chars > KEPT_CHARS:
                    few = None
            yield conversation
        if self._pass is None:
            self._pass = found
        if few is not None:
            self._kept = tuple(few)

    def load(self) -> Recordings:
        """Read everything now and keep it in memory."""
        if self._kept is None:
            self._kept = tuple(self)
        return self

    def check_not_empty(self, where: str) -> None:
        """Raise `RecordingError` unless there is at least one conversation in `where`."""
        found = _Pass()
        first_two = list(islice(self._walk(found), 2))
        if len(first_two) == 1:  # that was all: no need to read it again
            found.count(first_two[0])
            self._pass, self._kept = found, tuple(first_two)
        if first_two:
            return
        problems = sorted(found.log.problems, key=lambda problem: problem.severity == "note")
        if problems and (problems[0].severity == "problem" or not found.left_out):
            first = problems[0]
            raise RecordingError(first.reason, path=first.path, line=first.line, column=first.column, hint=first.hint)
        if found.left_out:
            reason = f"none of the {found.left_out} conversations is one that was asked for"
            raise RecordingError(reason, path=where, hint="see app, user, since and until")
        skipped = f"{len(found.skipped)} files are no recordings; " if found.skipped else ""
        raise RecordingError("no conversation found", path=where, hint=f"{skipped}known: {', '.join(format_names())}")

    def _complete(self) -> _Pass:
        if self._pass is None:
            if self._kept is None:
                deque(self, maxlen=0)  # a complete walk leaves its findings
            else:
                self._pass = _Pass()
                for conversation in self._kept:
                    self._pass.count(conversation)
        assert self._pass is not None
        return self._pass

    # --- a sequence ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._kept) if self._kept is not None else self._complete().conversations

    def __bool__(self) -> bool:
        return bool(self._kept) if self._kept is not None else next(iter(self), None) is not None

    @overload
    def __getitem__(self, key: int | str) -> Conversation: ...
    @overload
    def __getitem__(self, key: slice) -> Recordings: ...
    def __getitem__(self, key: int | str | slice) -> Conversation | Recordings:
        """By place, by id, or several by slice.

        Raises:
            KeyError: no conversation has this id; the text names the nearest.
        """
        kept = self._kept = tuple(self) if self._kept is None else self._kept
        if isinstance(key, slice):
            return Recordings.of(kept[key])
        if isinstance(key, int):
            return kept[key]
        for conversation in kept:
            if conversation.id == key:
                return conversation
        raise KeyError(" ".join((f"no conversation {key!r}", nearest_name(key, [c.id for c in kept]))).strip())

    # --- what was found --------------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that couldn't be read, and notes on what was odd but taken."""
        return tuple(self._complete().log.problems)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Files of folders and archives that aren't recordings."""
        return tuple(self._complete().skipped)

    @property
    def losses(self) -> tuple[str, ...]:
        """The loss report: what was dropped or assumed, how often and where (WB-REC-07)."""
        counts: Counter[str] = Counter()
        paths: dict[str, list[str]] = {}
        for (path, what), count in self._complete().log.losses.items():
            counts[what] += count
            paths.setdefault(what, []).append(path)
        return tuple(
            f"{what}: {count} in {shown(paths[what][0]) if len(paths[what]) == 1 else f'{len(paths[what])} files'}"
            for what, count in counts.items()
        )

    @property
    def formats(self) -> dict[str, int]:
        """Conversations by format."""
        return {name: tally.conversations for name, tally in self._complete().tallies.items()}

    @property
    def tallies(self) -> dict[str, Tally]:
        """What was read of each format, and how many problems its files had; files of no format count as `not read`."""
        found = self._complete()
        tallies = {name: replace(tally) for name, tally in found.tallies.items()}
        for problem in found.log.problems:
            if problem.severity == "problem":
                tallies.setdefault(found.format_of.get(problem.path, NOT_READ), Tally()).problems += 1
        return tallies

    @property
    def kept(self) -> dict[str, int]:
        """In how many conversations the recording knew times, usage, instruction, tools and model (WB-REC-03)."""
        found = self._complete()
        return {name: found.kept[name] for name in ("times", "usage", "instruction", "tools", "model")}

    @property
    def data_hash(self) -> str:
        """sha256 over ids and content of all conversations, in order; takes a walk of its own."""
        if not self._data_hash:
            digest = hashlib.sha256()
            for conversation in self:
                line = f"{conversation.id}\0{conversation.content_hash}\n"
                digest.update(line.encode("utf-8", "surrogatepass"))
            self._data_hash = digest.hexdigest()
        return self._data_hash

    def totals(self) -> dict[str, Any]:
        """The object that `workbench import --json` prints (WB-CLI-03)."""
        found = self._complete()
        return {
            "conversations": found.conversations,
            "events": found.events,
            "messages": found.messages,
            "calls": found.calls,
            "formats": self.formats,
            "problems": [problem.as_dict() for problem in found.log.problems],
        }

    def __repr__(self) -> str:
        if self._pass is None:
            return "Recordings(not yet walked)"
        return f"Recordings({self._pass.conversations} conversations, {len(self._pass.log.problems)} problems)"


@dataclass(frozen=True, slots=True)
class _Loader:
    """What to read, and how."""

    paths: Sequence[str | Path]
    forced: Format | None
    options: ReadOptions
    max_line_bytes: int
    max_unpacked_bytes: int
    stores: StoreReader

    def walk(self, found: _Pass) -> Iterator[Conversation]:
        """The conversations that are asked for, file by file; findings go into `found`."""
        for conversation in self._all(found):
            if self.options.lets_through(conversation):
                yield self.options.completed(conversation)
            else:
                found.left_out += 1

    def _all(self, found: _Pass) -> Iterator[Conversation]:
        for item in find_sources(self.paths, max_unpacked_bytes=self.max_unpacked_bytes):
            if isinstance(item, Skipped):
                found.skipped.append(item)
            elif isinstance(item, Problem):
                found.log.problems.append(item)
            else:
                reading = Reading(item.label, item.stem, self.options, found.log)
                if item.store is not None:
                    yield from self._read_store(item, item.store, reading, found)
                    continue
                try:
                    with item.open() as stream:
                        yield from self._read(stream, item, reading, found)
                except UnreadableError as error:
                    reading.report(error.reason, error.hint)
                except (OSError, EOFError, zlib.error) as error:
                    reading.report(f"can't be read: {getattr(error, 'strerror', None) or error}")

    def _read_store(self, file: SourceFile, path: Path, reading: Reading, found: _Pass) -> Iterator[Conversation]:
        """A database; in a folder, one that is no store of sessions, or not theirs to read, is no recording."""
        if self.forced not in (None, STORED):
            raise RecordingError("is a DuckDB file", path=file.label, hint="leave out --format and --map")
        if not has_journal(path):
            reason = "is not a session store, or its journal is missing"
            if file.named:
                raise RecordingError(reason, path=file.label, hint=f"{path.name}.journal belongs beside it")
            found.skipped.append(Skipped(file.label, reason))
            return
        try:
            yield from self.stores.read(path, reading)
        except RecordingError as error:
            if file.named:
                raise
            reading.report(error.reason, error.hint)

    def _read(
        self, stream: io.BufferedReader, file: SourceFile, reading: Reading, found: _Pass
    ) -> Iterator[Conversation]:
        head = stream.peek(64)[:64]
        if not head:
            reading.report("file is empty", "expected at least one conversation", line=None)
            return
        if _looks_like_utf16(head) and (file.named or _looks_like_json(head)):
            raise RecordingError("not UTF-8 (looks like UTF-16)", path=file.label, hint="convert the file")
        if head.startswith(_CASSETTE_HEAD):  # its requests would look like a log of conversations
            if file.named:
                raise RecordingError(_CASSETTE, path=file.label, hint="name the recordings that it belongs to")
            found.skipped.append(Skipped(file.label, _CASSETTE))
            return
        reader: RowReader | TableReader
        chosen: Format | None
        if self._is_table(stream):
            reader = TableReader(stream, max_record_bytes=self.max_line_bytes)
            rows, seen, chosen = iter(reader), list[Row](), CSV
        else:
            reader = RowReader(stream, _is_record, max_record_bytes=self.max_line_bytes)
            rows = iter(reader)
            seen, chosen = self._detect(rows)
        if chosen is None:
            self._not_recognised(seen, reader, file, reading, found)
            return
        found.format_of[file.label] = chosen.name
        n_problems = len(reading.log.problems)
        yield from chosen.read(chain(seen, rows), reading)
        if not reading.n_loaded and all(problem.severity == "note" for problem in reading.log.problems[n_problems:]):
            reading.report(f"no conversation found in {reader.n_lines} lines")

    def _is_table(self, stream: io.BufferedReader) -> bool:
        """Tables are text of another kind, so they're told apart before any row is read."""
        if self.forced is CSV:
            return True
        may_be = self.forced is None or (self.forced is DIALOGUE and self.options.mapping is not None)
        return may_be and is_table(stream.peek(_HEAD_BYTES), self.options.mapping)

    def _detect(self, rows: Iterator[Row]) -> tuple[list[Row], Format | None]:
        """The first rows, and the format that recognises one of them."""
        seen: list[Row] = []
        chosen = self.forced
        if chosen is not None:
            return seen, chosen
        for row in islice(rows, _DETECTION_ROWS):
            seen.append(row)
            if row.fault is None and row.n_bytes:
                asked = FORMATS if chosen is None else _dialects(chosen)
                chosen = next((item for item in asked if item.recognises(row.value)), chosen)
                if chosen is not None and not _dialects(chosen):
                    break
            if sum(row.n_bytes for row in seen) > _DETECTION_BYTES:
                break
        return seen, chosen

    def _not_recognised(
        self, seen: list[Row], reader: RowReader | TableReader, file: SourceFile, reading: Reading, found: _Pass
    ) -> None:
        """Say why a file gives nothing: blank, broken, or simply no recording."""
        contents = [row for row in seen if row.n_bytes]
        if not contents:
            reading.report(f"no conversation found in {reader.n_lines} lines")
            return
        broken = next((row for row in contents if row.fault is not None), None)
        if broken is not None and (file.named or all(row.fault is not None for row in contents)) and _was_json(broken):
            for row in contents:
                if row.fault is not None:
                    reading.refuse(row.fault, row)
        elif file.named:
            raise RecordingError(
                "no recording format recognises this file", path=file.label, hint=f"known: {', '.join(format_names())}"
            )
        else:
            found.skipped.append(Skipped(file.label, "not a recording"))


def _dialects(chosen: Format) -> tuple[Format, ...]:
    return tuple(item for item in FORMATS if item.dialect_of == chosen.name)


def _is_record(value: Any) -> bool:
    return any(item.recognises(value) for item in FORMATS)


def _was_json(row: Row) -> bool:
    """The broken row was meant to be JSON, not a text that happens to be in the folder."""
    return not row.start or row.start.lstrip()[:1] in ("{", "[")


def _looks_like_utf16(head: bytes) -> bool:
    if head.startswith(_UTF16_MARKS):
        return 0 in head
    return len(head) > 3 and 0 in head[:2] and (head[0] or head[1]) in b"[{ \n"


def _looks_like_json(head: bytes) -> bool:
    return head.lstrip(b"\xff\xfe\x00 \r\n\t")[:1] in (b"[", b"{")
