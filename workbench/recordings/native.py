"""The format `workbench`: a session line, then one event per line; nothing is lost or changed.

In: conversations, or JSON lines. Out: the other, equal. The first line of a conversation names format and
version; a file may hold several. A file whose last line stops in the middle gives all before it (B30). This
is the only format that keeps halves of surrogate pairs, with a note: a store may hold them (BUG-28).
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from workbench.errors import RecordingError
from workbench.model.types import USER, Response, ToolSpec
from workbench.recordings.chat import check_usage
from workbench.recordings.event_json import event_from_json, tool_from_json
from workbench.recordings.ledger import CallLedger, Notes
from workbench.recordings.moments import ADD_TIME, backward_note, moment_ns, synthetic_times
from workbench.recordings.problems import ROW_LEFT_OUT, FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import Format, Reading, own_id
from workbench.recordings.rows import Row
from workbench.recordings.types import (
    APP_NAME,
    DEFAULT_USER_ID,
    Conversation,
    is_answer,
    is_human,
    is_tool_round,
)
from workbench.session.event_json import event_to_json, tool_to_json
from workbench.session.types import Event

FORMAT_NAME = "workbench"
FORMAT_VERSION = 1
_START = re.compile(r'\s*\{\s*"type"\s*:\s*"(session|event)"')
_SESSION_ID = re.compile(r'"session_id"\s*:\s*"([^"\\]+)"')
_CONVERSATION_TEXTS = ("instruction", "model", "app_name", "user_id")

# --- writing -----------------------------------------------------------------------------------------


def conversation_lines(conversation: Conversation) -> Iterator[str]:
    """The lines of one conversation, without line ends."""
    head: dict[str, Any] = {
        "type": "session",
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "id": conversation.id,
        "app_name": conversation.app_name,
        "user_id": conversation.user_id,
    }
    if conversation.instruction:
        head["instruction"] = conversation.instruction
    if conversation.tools:
        head["tools"] = [tool_to_json(tool) for tool in conversation.tools]
    if conversation.model:
        head["model"] = conversation.model
    if conversation.assumed_time:
        head["assumed_time"] = True
    if conversation.merged_rows:
        head["merged_rows"] = conversation.merged_rows
    if conversation.metadata:
        head["metadata"] = dict(conversation.metadata)
    yield json_line(head)
    for event in conversation.events:
        yield json_line({"type": "event", **event_to_json(event)})


def json_line(value: Any) -> str:
    """One line of a native recording, without its end; halves of surrogate pairs become escapes."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8, but it has an escape
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text


def write_recording(path: str | Path, conversations: Iterable[Conversation]) -> int:
    """Write a native recording in one step: the old file stays until the new one is complete.

    Returns:
        The number of conversations.
    Raises:
        RecordingError: the file can't be written, or a value has no JSON form.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    written = 0
    try:
        _remove_leftovers(target)
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            for conversation in conversations:
                for line in conversation_lines(conversation):
                    file.write(line + "\n")
                written += 1
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise RecordingError(f"can't be written: {error.strerror}", path=target) from error
    except (TypeError, ValueError) as error:
        raise RecordingError(f"a value has no JSON form: {error}", path=target) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return written


def _remove_leftovers(target: Path) -> None:
    """Unfinished files of writers that were killed (REL-07)."""
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        pid = leftover.name.split(".")[-2]
        if pid.isdecimal() and not Path("/proc", pid).exists() and Path("/proc").exists():
            leftover.unlink(missing_ok=True)


# --- reading -----------------------------------------------------------------------------------------


def _recognises(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "session" and ("format" in value or "version" in value)


def _kind(row: Row) -> str:
    """`session`, `event`, or empty for a line that is neither; broken lines are judged by how they start."""
    if row.fault is not None:
        match = _START.match(row.start)
        return match[1] if match else ""
    if isinstance(row.value, dict) and row.value.get("type") == "event":
        return "event"
    return "session" if _recognises(row.value) else ""


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    """One conversation per session line; a fault anywhere in it costs that conversation only.

    Lines of conversations that were recorded at the same time name theirs; they stay open until the file ends.
    """
    part: _Part | None = None
    shared: dict[str, _Part] = {}
    for row in rows:
        if row.bom:
            reading.report("byte-order mark ignored", line=row.line, severity="note")
            if not row.n_bytes:
                continue
        kind = _kind(row)
        session_id = _session_of(row, kind)
        if session_id in shared:
            shared[session_id].take(row, kind)
        elif kind == "session" and not row.cut:
            if part is not None:
                yield from part.finished()
            part = _Part(reading, row)
            if part.is_interleaved:
                key = str(row.value["id"])
                if key in shared:
                    yield from shared.pop(key).finished()
                shared[key] = part
                part = None
        elif part is None:
            reading.refuse(row.fault or _stray_fault(row.value), row, outcome=ROW_LEFT_OUT)
        else:
            part.take(row, kind)
    if part is not None:
        yield from part.finished()
    for part in shared.values():
        yield from part.finished()


def _session_of(row: Row, kind: str) -> str:
    """The conversation that an event line names, if it does."""
    if kind != "event":
        return ""
    if row.fault is not None:
        match = _SESSION_ID.search(row.start)
        return match[1] if match else ""
    session_id = row.value.get("session_id", "")
    return session_id if isinstance(session_id, str) else ""


def _stray_fault(value: Any) -> FaultyRecordError:
    if not isinstance(value, dict):
        return FaultyRecordError(f"expected an object, got {kind_of(value)}")
    if value.get("type") == "event":
        return FaultyRecordError("event before any session line", "start with one")
    return FaultyRecordError("neither a session nor an event", 'expected "type": "session" or "event"')


class _Part:
    """The lines of one conversation."""

    def __init__(self, reading: Reading, row: Row) -> None:
        self._reading = reading
        self._line = row.line
        self._events: list[Event] = []
        self._lines: list[int] = []
        self._line_by_id: dict[str, int] = {}
        self._notes = Notes()
        self._ledger = CallLedger(self._notes)
        self._fault: FaultyRecordError | None = None
        self._strays: list[Row] = []
        self._head: Mapping[str, Any] = {}
        self._times_made_up = False
        if row.fault is not None:
            self._fault = row.fault
        else:
            self._head = row.value
            _check_version(self._head, reading.path, row.line)
            try:
                self._take_head(row)
            except FaultyRecordError as fault:
                self._lose(fault, row.line)

    @property
    def is_interleaved(self) -> bool:
        """Its events stand among those of others, and name it."""
        return self._head.get("interleaved") is True and bool(self._head.get("id"))

    def _take_head(self, row: Row) -> None:
        self._keep_escapes(row)
        for name in _CONVERSATION_TEXTS:
            if not isinstance(self._head.get(name, ""), str):
                raise FaultyRecordError(f"{name} is {kind_of(self._head[name])}, expected a text")
        if not own_id(self._head, "id"):
            raise FaultyRecordError("session id is empty")
        if "user_id" in self._head and not self._head["user_id"].strip():
            raise FaultyRecordError("user id is empty")

    def _keep_escapes(self, row: Row) -> None:
        if row.odd is not None:
            self._notes.add("escape", row.odd.reason, "kept", line=row.line)

    def _lose(self, fault: FaultyRecordError, line: int) -> None:
        """The conversation can't be taken; the first reason is the one reported."""
        if self._fault is None:
            fault.line = line if fault.line is None else fault.line
            self._fault = fault

    def take(self, row: Row, kind: str) -> None:
        """The next line of the conversation."""
        if row.cut:
            self._notes.add("cut", "last message is unfinished", "left out", line=row.line)
        elif kind != "event":
            self._strays.append(row)  # inside or behind this conversation: the next line tells
        elif self._fault is None:
            try:
                self._take_event(row)
            except FaultyRecordError as fault:
                self._lose(fault, row.line)
        if kind == "event":
            self._strays.clear()

    def _take_event(self, row: Row) -> None:
        for stray in self._strays:
            fault = stray.fault or _stray_fault(stray.value)
            raise FaultyRecordError(fault.reason, fault.hint, line=fault.line or stray.line, column=fault.column)
        if row.fault is not None:
            raise row.fault
        if row.odd is not None:
            self._keep_escapes(row)
        raw = row.value
        time = raw.get("time")
        if self._reading.options.zone is not None or type(time) is not str:
            raw = {key: value for key, value in raw.items() if key != "time"}
            event = event_from_json(raw, len(self._events) + 1)
            event = event.replace(time_ns=moment_ns(time, self._reading.options) or 0)
        else:
            event = event_from_json(raw, len(self._events) + 1)
        if event.id:
            if event.id in self._line_by_id:
                raise FaultyRecordError(f"event id {quoted(event.id)} was used at line {self._line_by_id[event.id]}")
            self._line_by_id[event.id] = row.line
        if event.response is not None:
            self._follow(event.response, row.line)
        self._events.append(event)
        self._lines.append(row.line)

    def _follow(self, response: Response, line: int) -> None:
        """Usage must add up, calls and results must find each other."""
        if response.usage is not None:
            check_usage(response.usage)
        if response.is_partial:
            return
        for choice in response.choices:
            message = choice.message
            if message.tool_calls:
                self._ledger.ask(message.tool_calls, line)
            if message.tool_id:
                self._ledger.answer(message.tool_id, line)
            elif message.role == USER:
                self._ledger.close_round()

    def finished(self) -> Iterator[Conversation]:
        """The conversation, or nothing and a problem."""
        yield from self._conversation()
        for stray in self._strays:
            self._reading.refuse(stray.fault or _stray_fault(stray.value), stray, outcome=ROW_LEFT_OUT)

    def _conversation(self) -> Iterator[Conversation]:
        if self._events and self._events[-1].is_partial:
            self._notes.add("cut", "last message is unfinished", "left out", line=self._lines[-1])
            self._events.pop()
            self._lines.pop()
        if self._fault is None:
            try:
                self._set_times()
            except FaultyRecordError as fault:
                self._lose(fault, self._line)
        if self._fault is None and not self._events:
            self._fault = FaultyRecordError("session has no events")
        if self._fault is not None:
            line = self._fault.line if self._fault.line is not None else self._line
            self._reading.refuse(
                FaultyRecordError(self._fault.reason, self._fault.hint, line=line, column=self._fault.column)
            )
            return
        head = self._head
        try:
            tools = _tools_from(head.get("tools"))
        except FaultyRecordError as fault:
            self._reading.report(fault.reason, fault.hint, line=self._line)
            return
        metadata = head.get("metadata")
        merged_rows = head.get("merged_rows")
        conversation = Conversation(
            id=self._reading.claim_id(str(head["id"])),
            events=tuple(self._events),
            instruction=head.get("instruction", ""),
            tools=tools,
            model=head.get("model", ""),
            app_name=head.get("app_name") or APP_NAME,
            user_id=head.get("user_id") or DEFAULT_USER_ID,
            assumed_time=head.get("assumed_time") is True or self._times_made_up,
            merged_rows=merged_rows if isinstance(merged_rows, int) else 0,
            metadata=metadata if isinstance(metadata, dict) else {},
            format=FORMAT_NAME,
            source=self._reading.path,
            line=self._line,
        )
        self._reading.n_loaded += 1
        self._notes.report_to(self._reading)
        yield conversation

    def _set_times(self) -> None:
        """Check the times, or make them up if there are none at all (B22, B25)."""
        events = self._events
        given = [event.time_ns for event in events]
        if not any(given):
            self._times_made_up = bool(events)
            self._make_up_times()
            return
        previous = 0
        for i, (moment, line) in enumerate(zip(given, self._lines, strict=True)):
            if not moment:
                if not self._reading.options.assume_order:
                    raise FaultyRecordError("event has no timestamp", ADD_TIME, line=line)
                events[i] = events[i].replace(time_ns=previous or next(later for later in given if later))
            elif moment < previous:
                self._notes.add("backward", backward_note(previous - moment, i + 1), line=line)
            previous = events[i].time_ns

    def _make_up_times(self) -> None:
        waiting = False
        starts = []
        for event in self._events:
            starts.append(is_human(event) and not waiting)
            waiting = is_human(event) or (waiting and not (is_answer(event) or is_tool_round(event)))
        times = synthetic_times(starts, self._reading.options)
        self._events = [event.replace(time_ns=time) for event, time in zip(self._events, times, strict=True)]


def _tools_from(raw: Any) -> tuple[ToolSpec, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise FaultyRecordError(f"tools is {kind_of(raw)}, expected an array")
    return tuple(tool_from_json(tool, place) for place, tool in enumerate(raw, 1))


def _check_version(head: Mapping[str, Any], path: str, line: int) -> None:
    """Raise `RecordingError`, which stops the load, for a version of another release (B29)."""
    version = head.get("version", FORMAT_VERSION)
    if version != FORMAT_VERSION or isinstance(version, bool):
        reads = f"this release reads 1 to {FORMAT_VERSION}" if FORMAT_VERSION > 1 else "this release reads 1"
        raise RecordingError(f"format version {version}", path=path, line=line, hint=reads)


NATIVE = Format(FORMAT_NAME, _recognises, _read)
