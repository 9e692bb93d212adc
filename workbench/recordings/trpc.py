"""The format `trpc`: sessions of tRPC-Agent-Go, exported as JSON.

In: sessions with their events, one per row or under `sessions`, in the spelling of the Go structures or in snake
case. Out: one conversation each, with the ids, authors, branches, filter keys and state changes that it had
(WB-REC-04 rule 6); its summaries and state go into the metadata (SUM-DM-05 to -13). Bytes are base64 there:
arguments of calls, values of the state. A session doesn't hold the instruction or the tools.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.model.types import ASSISTANT, ROLES, USER, Usage
from workbench.recordings.chat import arguments_text, check_usage, compact_json, token_count
from workbench.recordings.event_json import event_from_json
from workbench.recordings.ledger import CallLedger, Notes
from workbench.recordings.moments import ADD_TIME, backward_note, moment_ns, synthetic_times
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import Format, Reading, values_of
from workbench.recordings.rows import Row
from workbench.recordings.types import APP_NAME, DEFAULT_USER_ID, Conversation, is_answer, is_human, is_system
from workbench.session.types import Event

FORMAT_NAME = "trpc"
NOT_IN_A_SESSION = "instruction and tools: a stored session doesn't hold them"
_NO_TIME = "0001-01-01T00:00:00"  # Go's zero time
_RESPONSE_MARKS = {"choices", "message", "response", "object", "usage"}
_COMPLETION = "runner.completion"
_SEEN_EVENTS = 20


def _named(raw: Any) -> dict[str, Any]:
    """The members of an object by their names without case and underscores: `filterKey` is `filter_key`."""
    return {str(key).replace("_", "").lower(): value for key, value in raw.items()} if isinstance(raw, dict) else {}


def _recognises(value: Any) -> bool:
    return any(_is_session(item) for item in _sessions_in(value))


def _sessions_in(value: Any) -> list[Any]:
    """The sessions of a row: itself, or what stands under `sessions`."""
    if isinstance(value, dict) and isinstance(value.get("sessions"), list):
        return list(value["sessions"])
    return [value]


def _is_session(value: Any) -> bool:
    session = _named(value)
    events = session.get("events")
    if events in (None, []) and "events" in session:
        return {"appname", "userid"} <= session.keys()
    return isinstance(events, list) and any(_is_event(event) for event in events[:_SEEN_EVENTS])


def _is_event(raw: Any) -> bool:
    event = _named(raw)
    return "author" in event and bool(event.keys() & {"timestamp", "invocationid"} and event.keys() & _RESPONSE_MARKS)


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    for row, value in values_of(rows, reading):
        for session in _sessions_in(value):
            try:
                yield _Session(session, row, reading).conversation()
            except FaultyRecordError as fault:
                reading.refuse(fault, row)


class _Session:
    """One session on its way to a conversation."""

    def __init__(self, raw: Any, row: Row, reading: Reading) -> None:
        if not isinstance(raw, dict):
            raise FaultyRecordError(f"expected an object, got {kind_of(raw)}")
        self._raw = _named(raw)
        self._row = row
        self._reading = reading
        self._losses: dict[str, int] = {}
        self._notes = Notes()
        self._ledger = CallLedger(self._notes)

    def conversation(self) -> Conversation:
        """The conversation.

        Raises:
            FaultyRecordError: an event can't be taken, or there are none.
        """
        raw_events = self._raw.get("events") or []
        if not isinstance(raw_events, list):
            raise FaultyRecordError(f"events is {kind_of(raw_events)}, expected an array")
        wanted_id = self._id("session id", "sessionid", "id")
        app_name = self._id("app name", "appname") or APP_NAME
        events = list(self._events(raw_events, app_name))
        if not events:
            raise FaultyRecordError("session has no events", "nothing to replay")
        starts = _request_starts(events)
        assumed = not any(event.time_ns for event in events)
        if assumed:
            times = synthetic_times(starts, self._reading.options)
            events = [event.replace(time_ns=moment) for event, moment in zip(events, times, strict=True)]
        user_id = self._id("user id", "userid") or DEFAULT_USER_ID
        metadata = self._metadata()
        conversation_id = self._reading.claim_id(wanted_id)
        events = [
            event if event.id else event.replace(id=f"{conversation_id}:{n:05d}") for n, event in enumerate(events, 1)
        ]
        self._report(assumed=assumed)
        return Conversation(
            id=conversation_id,
            events=tuple(events),
            model=next((e.response.model for e in events if is_answer(e) and e.response and e.response.model), ""),
            app_name=app_name,
            user_id=user_id,
            assumed_time=assumed,
            metadata=metadata,
            format=FORMAT_NAME,
            source=self._reading.path,
            line=self._row.line,
        )

    def _id(self, label: str, *names: str) -> str:
        value = next((self._raw[name] for name in names if isinstance(self._raw.get(name), str)), None)
        if value is not None and not value.strip():
            raise FaultyRecordError(f"{label} is empty")
        return value or ""

    def _report(self, *, assumed: bool) -> None:
        """Findings, written down only once the session was taken."""
        self._reading.n_loaded += 1
        self._notes.report_to(self._reading)
        self._reading.lose(NOT_IN_A_SESSION)
        if assumed:
            self._reading.lose("no event has a timestamp; synthetic clock used")
        for what, count in self._losses.items():
            self._reading.lose(what, count)

    def _lose(self, what: str) -> None:
        self._losses[what] = self._losses.get(what, 0) + 1

    # --- events ----------------------------------------------------------------------------------------

    def _events(self, raw_events: list[Any], app_name: str) -> Iterator[Event]:
        seen: dict[str, int] = {}
        previous: Event | None = None
        times = [self._time(raw) for raw in raw_events]
        must_have_times = any(times) and not self._reading.options.assume_order
        for number, (raw, time_ns) in enumerate(zip(raw_events, times, strict=True), 1):
            event = self._event(raw, number, app_name)
            if event is None:
                continue
            if _repeats(event, previous):
                self._lose("completion events that repeat the last answer")
                continue
            if not time_ns and must_have_times:
                raise FaultyRecordError(f"event {number} has no timestamp", ADD_TIME)
            if previous is not None and not time_ns and any(times):
                time_ns = previous.time_ns
                self._lose("events without a timestamp took that of the event before")
            if event.id in seen:
                raise FaultyRecordError(f"event id {quoted(event.id)} was used by event {seen[event.id]}")
            if event.id:
                seen[event.id] = number
            if previous is not None and time_ns and time_ns < previous.time_ns:
                self._notes.add("backward", backward_note(previous.time_ns - time_ns, number), line=self._row.line)
            previous = event.replace(time_ns=time_ns or next((moment for moment in times if moment), 0) or 0)
            yield previous

    def _time(self, raw: Any) -> int | None:
        time = _named(raw).get("timestamp")
        if isinstance(time, str) and time.startswith(_NO_TIME):
            return None
        return moment_ns(time, self._reading.options)

    def _event(self, raw: Any, number: int, app_name: str) -> Event | None:
        """The event; None for a piece of a stream, which is never stored (SUM-DM-06)."""
        if not isinstance(raw, dict):
            raise FaultyRecordError(f"event {number} is {kind_of(raw)}, expected an object")
        named = _named(raw)
        response = {**named, **_named(named.get("response"))} if named.get("response") else named
        if response.get("ispartial") is True or response.get("partial") is True:
            self._lose("pieces of streamed answers")
            return None
        plain: dict[str, Any] = {name: named.get(name.replace("_", "")) or "" for name in _EVENT_TEXTS}
        plain["filter_key"] = plain["filter_key"] or plain["branch"] or app_name
        plain["response"] = self._response(response, number)
        state_delta = named.get("statedelta") or {}
        if not isinstance(state_delta, dict):
            raise FaultyRecordError(f"event {number}: stateDelta is {kind_of(state_delta)}, expected an object")
        plain["state_delta"] = {key: _as_base64(value) for key, value in state_delta.items()}
        plain["skip_summarization"] = _named(named.get("actions")).get("skipsummarization") is True
        plain["extensions"] = named.get("extensions") or {}
        event = event_from_json(plain, number)
        self._follow(event)
        if named.keys() & {"structuredoutput", "longrunningtoolids", "executiontrace"}:
            self._lose("structured outputs, long-running marks and traces of events")
        return event

    def _response(self, raw: Mapping[str, Any], number: int) -> dict[str, Any]:
        choices = raw.get("choices")
        if choices is None:
            choices = [] if raw.get("message") is None else [{"message": raw["message"]}]
        if not isinstance(choices, list):
            raise FaultyRecordError(f"event {number}: choices is {kind_of(choices)}, expected an array")
        plain: dict[str, Any] = {"choices": [self._choice(choice, number) for choice in choices]}
        for name in ("object", "model"):
            if isinstance(raw.get(name), str):
                plain[name] = raw[name]
        if isinstance(raw.get("responseid"), str):
            plain["id"] = raw["responseid"]
        if raw.get("done") is False:
            plain["done"] = False
        usage = _usage(raw.get("usage"))
        if usage:
            plain["usage"] = usage
        error = raw.get("error")
        if isinstance(error, dict):
            plain["error"] = {key: text for key, text in error.items() if isinstance(text, str)}
        return plain

    def _choice(self, raw: Any, number: int) -> dict[str, Any]:
        if not isinstance(raw, dict):
            raise FaultyRecordError(f"event {number}: a choice is {kind_of(raw)}, expected an object")
        named = _named(raw)
        plain: dict[str, Any] = {"message": _message(named.get("message", raw), number)}
        if isinstance(named.get("finishreason"), str):
            plain["finish_reason"] = named["finishreason"]
        return plain

    def _follow(self, event: Event) -> None:
        """Calls and results must find each other."""
        for message in event.messages:
            if message.tool_calls:
                self._ledger.ask(message.tool_calls, self._row.line)
            if message.tool_id:
                self._ledger.answer(message.tool_id, self._row.line)
            elif message.role == USER:
                self._ledger.close_round()

    # --- what else a session has -------------------------------------------------------------------------

    def _metadata(self) -> dict[str, Any]:
        """Summaries by filter key, as they were stored, and the state."""
        metadata: dict[str, Any] = {}
        if isinstance(summaries := self._raw.get("summaries"), dict) and summaries:
            metadata["summaries"] = summaries
        if isinstance(state := self._raw.get("state"), dict) and state:
            metadata["state"] = {key: _readable(value) for key, value in state.items()}
        if self._raw.get("tracks"):
            self._lose("track events")
        return metadata


_EVENT_TEXTS = ("id", "author", "request_id", "invocation_id", "parent_invocation_id", "branch", "filter_key", "tag")


def _request_starts(events: list[Event]) -> list[bool]:
    """For each event: it's a human message that begins a request (WB-REC-04 rule 1)."""
    starts = []
    waiting = False
    for event in events:
        human = is_human(event)
        starts.append(human and not waiting)
        waiting = human or (waiting and is_system(event))
    return starts


def _repeats(event: Event, previous: Event | None) -> bool:
    """The end of a run carries its last answer once more."""
    return (
        event.response is not None
        and event.response.object == _COMPLETION
        and previous is not None
        and is_answer(event)
        and event.message.content == previous.message.content
        and not event.state_delta
    )


def _message(raw: Any, number: int) -> dict[str, Any]:
    """A message in the plain form of `event_json`, which judges it."""
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"message {number} is {kind_of(raw)}, expected an object")
    named = _named(raw)
    role = named.get("role") or (ASSISTANT if named.get("toolcalls") else "")
    if isinstance(role, str) and role and role not in ROLES:
        raise FaultyRecordError(f"role {quoted(role)}", "expected system, user, assistant or tool")
    plain: dict[str, Any] = {"role": role, "content": named.get("content")}
    for name in ("tool_id", "tool_name", "reasoning_content", "reasoning_signature"):
        if named.get(name.replace("_", "")):
            plain[name] = named[name.replace("_", "")]
    if parts := named.get("contentparts"):
        plain["content_parts"] = [_part(part) for part in parts] if isinstance(parts, list) else parts
    if calls := named.get("toolcalls"):
        plain["tool_calls"] = [_call(call) for call in calls] if isinstance(calls, list) else calls
    if plain["content"] is None and role:
        plain["content"] = ""  # Go leaves out what is empty
    return plain


def _part(raw: Any) -> Any:
    """A part with its address or data, which stands in an object of its own."""
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str) or raw["type"] == "text":
        return raw
    inner = raw.get(raw["type"])
    inner = inner if isinstance(inner, dict) else raw
    address = next((inner[key] for key in ("url", "data", "file_id") if isinstance(inner.get(key), str)), "")
    name = inner.get("filename") or inner.get("name")
    return {"type": raw["type"], "url": address, "name": name if isinstance(name, str) else ""}


def _call(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    function = raw["function"] if isinstance(raw.get("function"), dict) else raw
    plain = {key: function[key] for key in ("name", "description", "strict") if function.get(key) is not None}
    plain |= {key: raw[key] for key in ("id", "type", "index") if raw.get(key) is not None}
    return {**plain, "arguments": _arguments(function.get("arguments"))}


def _arguments(raw: Any) -> str:
    """Arguments as text: Go writes bytes as base64, other exports the text itself."""
    text = arguments_text(raw)
    if text.lstrip()[:1] in ("", "{", "["):
        return text
    decoded = _decoded(text)
    if decoded is not None:
        try:
            json.loads(decoded)
        except (ValueError, RecursionError):
            return text
        return decoded
    return text


def _decoded(text: str) -> str | None:
    try:
        return base64.b64decode(text, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def _as_base64(value: Any) -> str | None:
    """A value of a state change as `event_json` takes it."""
    if value is None:
        return None
    text = value if isinstance(value, str) else compact_json(value)
    if isinstance(value, str):
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
        else:
            return value
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def _readable(value: Any) -> Any:
    """A value of the state as text where it's base64 of one."""
    decoded = _decoded(value) if isinstance(value, str) and value else None
    return value if decoded is None or not decoded.isprintable() else decoded


def _usage(raw: Any) -> dict[str, int]:
    """Usage in the engine's names (WB-REC-07).

    Go can't tell 0 from "not reported": where all counts are 0 nothing was, and so with the details alone.
    """
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"usage is {kind_of(raw)}, expected an object")
    prompt_details = raw.get("prompt_tokens_details")
    counts: dict[str, int | None] = {
        "prompt_tokens": token_count(raw, "prompt", "prompt_tokens"),
        "completion_tokens": token_count(raw, "completion", "completion_tokens"),
        "total_tokens": token_count(raw, "total", "total_tokens"),
        "cached_tokens": token_count(prompt_details, "cached", "cached_tokens"),
        "cache_creation_tokens": token_count(prompt_details, "cache creation", "cache_creation_tokens"),
        "cache_read_tokens": token_count(prompt_details, "cache read", "cache_read_tokens"),
        "reasoning_tokens": token_count(raw.get("completion_tokens_details"), "reasoning", "reasoning_tokens"),
    }
    check_usage(Usage(**counts))
    details = ("cached_tokens", "cache_creation_tokens", "cache_read_tokens")
    if not any(counts[name] for name in details):
        counts |= dict.fromkeys(details)
    return {name: n for name, n in counts.items() if n is not None} if any(counts.values()) else {}


TRPC = Format(FORMAT_NAME, _recognises, _read)
