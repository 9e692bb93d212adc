"""What every reader is given: options, a place for findings, and names for conversations.

In: the arguments of `load_recordings`. Out: `ReadOptions`, one `Reading` per file, and `Format`, the shape of
a reader. One pass over all files shares a `PassLog`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from workbench.clock import NS_PER_S, datetime_from_ns, ns_from_datetime, ns_from_timedelta, parse_time
from workbench.errors import ConfigError
from workbench.model.types import ToolSpec
from workbench.recordings.problems import LEFT_OUT, FaultyRecordError, Problem, Severity, shown
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

HALF_EMOJI = "half an emoji; kept"
OBSERVATION_ROLES = ("user", "tool")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
UNIT_NS = {"s": NS_PER_S, "ms": 1_000_000, "us": 1000, "ns": 1}
SESSION_KEYS = ("session_id", "conversation_id", "thread_id")
MAP_KEYS = ("user", "assistant", "text", "speaker", "turns", "id", "time")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read what a source leaves open."""

    gap_ns: int
    step_ns: int
    observations: str | None = None
    zone: tzinfo | None = None
    time_unit: str | None = None
    assume_order: bool = False
    mapping: Mapping[str, str] | None = None
    apps: tuple[str, ...] = ()
    """Only conversations of these applications; empty = all."""
    users: tuple[str, ...] = ()
    """Only conversations of these users; empty = all."""
    since_ns: int | None = None
    """Only conversations whose last event is at this moment or later."""
    until_ns: int | None = None
    """Only conversations whose first event is before this moment."""
    instruction: str = ""
    """Of conversations whose source doesn't say."""
    tools: tuple[ToolSpec, ...] = ()
    """The same."""

    @classmethod
    def check(
        cls,
        *,
        gap_s: float,
        step_s: float,
        observations: str | None,
        zone: str | None,
        time_unit: str | None,
        assume_order: bool,
        mapping: str | Mapping[str, str] | None,
        app: str | Sequence[str] | None = None,
        user: str | Sequence[str] | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        instruction: str = "",
        tools: tuple[ToolSpec, ...] = (),
    ) -> ReadOptions:
        """Options from plain values.

        Raises:
            ConfigError: a value isn't allowed.
        """
        for name, value in (("gap_s", gap_s), ("step_s", step_s)):
            if not 0 <= value < float("inf"):
                raise ConfigError.for_field(name, value, "a number of seconds, 0 or more")
        if observations is not None and observations not in OBSERVATION_ROLES:
            raise ConfigError.for_field("observations", observations, " or ".join(OBSERVATION_ROLES))
        if time_unit is not None and time_unit not in UNIT_NS:
            raise ConfigError.for_field("time_unit", time_unit, ", ".join(UNIT_NS))
        time_zone = None if zone is None else zone_named(zone)
        return cls(
            gap_ns=round(gap_s * NS_PER_S),
            step_ns=round(step_s * NS_PER_S),
            observations=observations,
            zone=time_zone,
            time_unit=time_unit,
            assume_order=assume_order,
            mapping=None if mapping is None else mapping_from(mapping),
            apps=_names(app),
            users=_names(user),
            since_ns=_moment("since", since, time_zone),
            until_ns=_moment("until", until, time_zone),
            instruction=instruction,
            tools=tools,
        )

    @property
    def chooses(self) -> bool:
        """Some conversations may be left out."""
        return bool(self.apps or self.users or self.since_ns is not None or self.until_ns is not None)

    def lets_through(self, conversation: Conversation) -> bool:
        """Whether a conversation is one of those that are asked for; made-up times are in no span."""
        if (self.apps and conversation.app_name not in self.apps) or (
            self.users and conversation.user_id not in self.users
        ):
            return False
        if self.since_ns is None and self.until_ns is None:
            return True
        if conversation.assumed_time or not conversation.events:
            return False
        times = [event.time_ns for event in conversation.events]
        return (self.since_ns is None or max(times) >= self.since_ns) and (
            self.until_ns is None or min(times) < self.until_ns
        )

    def completed(self, conversation: Conversation) -> Conversation:
        """The conversation with the instruction and the tools that its source doesn't name."""
        changes: dict[str, Any] = {}
        if self.instruction and not conversation.instruction:
            changes["instruction"] = self.instruction
        if self.tools and not conversation.tools:
            changes["tools"] = self.tools
        return conversation.replace(**changes) if changes else conversation


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def _moment(name: str, moment: str | datetime | None, zone: tzinfo | None) -> int | None:
    """The moment that a conversation is measured by; a day is its beginning, without a zone it is UTC."""
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return ns_from_datetime(moment if moment.tzinfo is not None else moment.replace(tzinfo=zone or UTC))
    text = moment.strip()
    try:
        moment_ns, has_zone = parse_time(f"{text}T00:00:00" if _DAY.fullmatch(text) else text)
    except (ValueError, OverflowError):
        raise ConfigError.for_field(name, moment, "a day such as 2026-03-01, or a date and time") from None
    offset = None if has_zone or zone is None else zone.utcoffset(datetime_from_ns(moment_ns).replace(tzinfo=None))
    return moment_ns - (0 if offset is None else ns_from_timedelta(offset))


def zone_named(name: str) -> tzinfo:
    """A zone by name (`Asia/Tokyo`, `UTC`) or offset (`+09:00`).

    Raises:
        ConfigError: there is none.
    """
    text = name.strip()
    if text in ("Z", "UTC", "utc"):
        return timezone.utc  # noqa: UP017 - the same object; the name `UTC` is taken by the text above
    digits = text[1:].replace(":", "")
    if text[:1] in "+-" and digits.isdecimal() and len(digits) in (2, 4):
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
        if offset < timedelta(hours=24):
            return timezone(offset if text[0] == "+" else -offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError.for_field("zone", name, "an offset such as +09:00, or a name such as Asia/Tokyo") from None


def mapping_from(mapping: str | Mapping[str, str]) -> Mapping[str, str]:
    """`user=q,assistant=a` as a mapping.

    Raises:
        ConfigError: not pairs, an unknown key, or too little to find texts and speakers.
    """
    allowed = f"key=column pairs, keys {', '.join(MAP_KEYS)}"
    if isinstance(mapping, str):
        pairs = [part.partition("=") for part in mapping.split(",") if part.strip()]
        if not all(separator for _, separator, _ in pairs):
            raise ConfigError.for_field("map", mapping, allowed)
        columns = {key.strip(): column.strip() for key, _, column in pairs}
    else:
        columns = dict(mapping)
    if unknown := [key for key in columns if key not in MAP_KEYS]:
        raise ConfigError.for_field("map", unknown[0], allowed)
    if "text" not in columns and not {"user", "assistant"} <= columns.keys():
        raise ConfigError.for_field("map", columns, "either text=..., or user=... and assistant=...")
    return columns


@dataclass(slots=True)
class PassLog:
    """Findings of one pass over all files."""

    problems: list[Problem] = field(default_factory=list)
    losses: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(file, what) -> how often."""
    claimed_ids: set[str] = field(default_factory=set)
    billed_answers: dict[str, str] = field(default_factory=dict)
    """Answer -> file in which its usage was counted, for formats that repeat answers in several files."""


class Reading:
    """One file being read: where findings go, and where ids come from."""

    def __init__(self, path: str, stem: str, options: ReadOptions, log: PassLog) -> None:
        self.path = path
        self.stem = stem
        self.options = options
        self.log = log
        self.n_loaded = 0

    def report(
        self, reason: str, hint: str = "", *, line: int | None = None, column: int | None = None,
        severity: Severity = "problem", outcome: str = "",
    ) -> None:  # fmt: skip
        """Write down a finding."""
        self.log.problems.append(Problem(self.path, line, column, reason, hint, severity, outcome))

    def refuse(self, fault: FaultyRecordError, row: Row | None = None, *, outcome: str = LEFT_OUT) -> None:
        """Write down why a record wasn't taken, and what that means for what stands around it."""
        line = fault.line if fault.line is not None else row.line if row is not None else None
        self.report(fault.reason, fault.hint, line=line, column=fault.column, outcome=outcome)

    def note_oddities(self, row: Row) -> None:
        """Write down what is odd about a row that may be taken nevertheless."""
        if row.bom:
            self.report("byte-order mark ignored", line=row.line, severity="note")
        if row.odd is not None and row.odd.is_half_emoji:
            self.report(row.odd.reason, HALF_EMOJI, line=row.line, severity="note")

    def lose(self, what: str, count: int = 1) -> None:
        """Count something dropped or assumed, for the loss report."""
        if count:
            self.log.losses[self.path, what] += count

    def claim_id(self, wanted: str = "") -> str:
        """A conversation id that no other conversation of this pass has.

        Without a wish: the file's stem and the number of the conversation among those loaded from this file, so
        that a record which isn't taken doesn't shift the ids of the others.
        """
        base = wanted or f"{self.stem}-{self.n_loaded + 1:05d}"
        name, n = base, 1
        while name in self.log.claimed_ids:
            n += 1
            name = f"{base}~{n}"
        self.log.claimed_ids.add(name)
        return name


Reader = Callable[[Iterator[Row], Reading], Iterator[Conversation]]


@dataclass(frozen=True, slots=True)
class Format:
    """A recording format: how to recognise one of its rows, and how to read them all."""

    name: str
    recognises: Callable[[Any], bool]
    """A row's value is surely of this format."""
    read: Reader
    dialect_of: str = ""
    """Another format, whose rows some of this one's look like: one row that doesn't decides for the file."""


def values_of(rows: Iterator[Row], reading: Reading) -> Iterator[tuple[Row, Any]]:
    """The rows that hold a value that may be read; the faults of the others are written down."""
    for row in rows:
        reading.note_oddities(row)
        if (fault := row.refusal) is not None:
            reading.refuse(fault, row)
        elif row.n_bytes:
            yield row, row.value


def joined(rows: Iterator[Row], is_piece: Callable[[Any], bool], reading: Reading) -> Iterator[Row]:
    """The rows, with those that are pieces of one conversation, such as one message per line, as one row of all.

    Pieces belong together while they follow each other, in one document, and name the same session, or none. A broken
    row between two of them is the fault of the whole.
    """
    pieces: list[Row] = []
    fault: FaultyRecordError | None = None
    key: tuple[int, list[Any]] | None = None

    def whole() -> Row:
        odd = next((row.odd for row in pieces if row.odd is not None), None)
        return replace(
            pieces[0],
            value=[row.value for row in pieces],
            fault=fault,
            odd=odd,
            n_bytes=sum(row.n_bytes for row in pieces),
        )

    for row in rows:
        if pieces and row.cut:
            reading.report("last message is unfinished", "left out", line=row.line, severity="note")
        elif pieces and row.fault is not None:
            row.fault.line = row.fault.line or row.line
            fault = fault or row.fault
        elif row.fault is None and is_piece(row.value):
            named = (row.document, [row.value.get(name) for name in SESSION_KEYS])
            if pieces and named != key:
                yield whole()
                pieces, fault = [], None
            key = named
            pieces.append(row)
        else:
            if pieces:
                yield whole()
                pieces, fault = [], None
            yield row
    if pieces:
        yield whole()


def own_id(record: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that holds an id, as text; empty without one.

    Raises:
        FaultyRecordError: there is such a field and it's blank (B27).
    """
    for name in names:
        value = record.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int):
            continue
        text = str(value)
        if not text.strip():
            raise FaultyRecordError(f"{_ID_NAMES.get(name, shown(name))} is empty")
        return text
    return ""


_ID_NAMES = {
    "session_id": "session id",
    "sessionId": "session id",
    "conversation_id": "session id",
    "user_id": "user id",
    "user": "user id",
    "id": "session id",
}
