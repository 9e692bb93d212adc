"""Events, messages and tools from the JSON of native recordings, every field checked.

In: plain JSON that anybody may have written. Out: engine values, exactly: `event_from_json(event_to_json(e)) == e`
(`workbench.session.event_json` writes it), or the first fault.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from workbench.clock import NS_PER_S, parse_time
from workbench.model.types import (
    EMPTY_MESSAGE,
    ROLES,
    Choice,
    ContentPart,
    Message,
    Response,
    ResponseError,
    ToolCall,
    ToolSpec,
    Usage,
)
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted, shown
from workbench.session.event_json import (
    ERROR_TEXTS,
    EVENT_TEXTS,
    MESSAGE_TEXTS,
    RESPONSE_TEXTS,
    TOOL_TEXTS,
    USAGE_FIELDS,
    Json,
)
from workbench.session.types import EVENT_VERSION, Event

PART_TYPES = frozenset(("text", "image", "audio", "video", "file"))
_KNOWN_ROLES = frozenset(("", *ROLES))
_DAY_NS = 86_400 * NS_PER_S

# --- in ----------------------------------------------------------------------------------------------


def event_from_json(raw: Mapping[str, Any], number: int = 1) -> Event:
    """The event of a plain JSON form; `number` counts from 1 for error texts.

    Raises:
        FaultyRecordError: a field has another type, or a message breaks a rule (B15 to B18, B23).
    """
    _check_types(raw, _EVENT_TYPES)
    get = raw.get
    time = get("time")
    response = get("response")
    return Event(
        get("id", ""),
        get("author", ""),
        0 if time is None else time_from_json(time),
        None if response is None else _response_from_json(response, number),
        get("request_id", ""),
        get("invocation_id", ""),
        get("parent_invocation_id", ""),
        get("branch", ""),
        get("filter_key", ""),
        get("tag", ""),
        _state_from_json(get("state_delta") or {}),
        get("skip_summarization", False),
        get("extensions") or {},
        get("version", EVENT_VERSION),
    )


def _check_types(raw: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, value in raw.items():
        expected = types.get(key)
        if expected is not None and type(value) is not expected:
            raise FaultyRecordError(f"{shown(key)} is {kind_of(value)}, expected {_TYPE_NAMES[expected]}")


def time_from_json(text: str) -> int:
    """Nanoseconds of a time in UTC, as written by this module; any RFC 3339 text is read.

    Raises:
        FaultyRecordError: no time, or one without zone (B23).
    """
    day = _DAYS.get(text[:10])
    try:
        if day is not None and text[-1] == "Z" and text[13] == text[16] == ":" and text[10] == "T":
            hour, minute, second = int(text[11:13]), int(text[14:16]), int(text[17:19])
            digits = text[20:-1]
            if hour < 24 and minute < 60 and second < 60 and len(digits) < 10 and text[19] in "Z.":
                fraction = int(digits) * 10 ** (9 - len(digits)) if digits else 0
                return day + (hour * 3600 + minute * 60 + second) * NS_PER_S + fraction
        moment_ns, has_zone = parse_time(text)
    except (ValueError, IndexError, OverflowError):
        raise FaultyRecordError(f"timestamp {quoted(text)} is not a date and time", "write it as RFC 3339") from None
    if not has_zone:
        raise FaultyRecordError(f"timestamp {quoted(text)} has no zone", "load with --zone")
    if text.endswith("Z") and len(_DAYS) < 10_000:  # next time the same day takes the short way
        _DAYS[text[:10]] = moment_ns - moment_ns % _DAY_NS
    return moment_ns


_DAYS: dict[str, int] = {}


def _state_from_json(raw: Mapping[str, Any]) -> dict[str, bytes | None]:
    state: dict[str, bytes | None] = {}
    for key, value in raw.items():
        try:
            state[key] = None if value is None else base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise FaultyRecordError(f"state_delta.{shown(key)} is not base64") from None
    return state


def _response_from_json(raw: Any, number: int) -> Response:
    _check_types(raw, _RESPONSE_TYPES)
    get = raw.get
    choices: list[Any] = get("choices") or []
    if len(raw) == 1 and len(choices) == 1:  # nine of ten
        return Response((_choice_from_json(choices[0], 0, number),))
    time = get("time")
    usage = get("usage")
    error = get("error")
    return Response(
        tuple([_choice_from_json(choice, i, number) for i, choice in enumerate(choices)]),
        get("id", ""),
        get("object", ""),
        get("model", ""),
        None if usage is None else _usage_from_json(usage),
        None if error is None else _error_from_json(error),
        get("created", 0),
        0 if time is None else time_from_json(time),
        get("done", True),
        get("partial", False),
    )


def _usage_from_json(raw: Json) -> Usage:
    for name, n in raw.items():
        if name in USAGE_FIELDS and n is not None:
            label = name.removesuffix("_tokens")
            if type(n) is not int:
                raise FaultyRecordError(f"usage: {label} is not a whole number")
            if n < 0:
                raise FaultyRecordError(f"usage: {label} {n} is negative")
    return Usage(**{name: raw[name] for name in USAGE_FIELDS if name in raw})


def _error_from_json(raw: Json) -> ResponseError:
    _check_types(raw, _ERROR_TYPES)
    return ResponseError(**{name: raw[name] for name in ERROR_TEXTS if name in raw})


def _choice_from_json(raw: Any, place: int, number: int) -> Choice:
    if type(raw) is not dict:
        raise FaultyRecordError(f"message {number}: a choice is {kind_of(raw)}, expected an object")
    get = raw.get
    message = get("message")
    if len(raw) == 1 and type(message) is dict:
        return Choice(message_from_json(message, number), EMPTY_MESSAGE, place)
    _check_types(raw, _CHOICE_TYPES)
    delta = get("delta")
    return Choice(
        EMPTY_MESSAGE if message is None else message_from_json(message, number),
        EMPTY_MESSAGE if delta is None else message_from_json(delta, number),
        get("index", place),
        get("finish_reason", ""),
    )


def message_from_json(raw: Mapping[str, Any], number: int = 1) -> Message:
    """The message of a plain JSON form.

    Raises:
        FaultyRecordError: role, content or parts break a rule (B15 to B18).
    """
    get = raw.get
    content = get("content")
    if len(raw) == 2 and type(content) is str and get("role") in ROLES:
        return Message(raw["role"], content)
    parts = get("content_parts")
    calls = get("tool_calls")
    if content is None:
        if not (parts or calls or get("reasoning_content")):
            raise FaultyRecordError(f"message {number} has neither content nor tool calls")
        content = ""
    elif type(content) is not str:
        raise FaultyRecordError(f"message {number}: content is {kind_of(content)}, expected text or parts")
    _check_types(raw, _MESSAGE_TYPES)
    role = get("role", "")
    if role not in _KNOWN_ROLES:
        raise FaultyRecordError(f"role {quoted(role)}", "expected system, user, assistant or tool")
    return Message(
        role,
        content,
        tuple(_part_from_json(part, number, place) for place, part in enumerate(parts, 1)) if parts else (),
        get("tool_id", ""),
        get("tool_name", ""),
        tuple(_call_from_json(call, number) for call in calls) if calls else (),
        get("reasoning_content", ""),
        get("reasoning_signature", ""),
    )


def _part_from_json(raw: Any, number: int, place: int) -> ContentPart:
    kind = raw.get("type") if isinstance(raw, dict) else None
    if not isinstance(kind, str) or kind not in PART_TYPES:
        name = quoted(kind) if isinstance(kind, str) else kind_of(raw)
        raise FaultyRecordError(f"message {number}, part {place}: type {name} is not known")
    _check_types(raw, _PART_TYPES)
    return ContentPart(kind, raw.get("text", ""), raw.get("url", ""), raw.get("name", ""))


def _call_from_json(raw: Any, number: int) -> ToolCall:
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"message {number}: a tool call is {kind_of(raw)}, expected an object")
    _check_types(raw, _CALL_TYPES)
    get = raw.get
    extra = get("extra_fields") or []
    if not all(isinstance(pair, list) and list(map(type, pair)) == [str, str] for pair in extra):
        raise FaultyRecordError(f"message {number}: extra_fields of a tool call are not pairs of texts")
    return ToolCall(
        get("id", ""),
        get("name", ""),
        get("arguments", ""),
        get("type", "function"),
        get("description", ""),
        get("strict"),
        get("index"),
        tuple((name, text) for name, text in extra),
    )


def tool_from_json(raw: Any, place: int = 1) -> ToolSpec:
    """The declaration of a plain JSON form.

    Raises:
        FaultyRecordError: no object, or without a name.
    """
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"tool {place} is {kind_of(raw)}, expected an object")
    _check_types(raw, _TOOL_TYPES)
    if not raw.get("name"):
        raise FaultyRecordError(f"tool {place} has no name")
    return ToolSpec(raw["name"], **{name: raw[name] for name in TOOL_TEXTS if name in raw})


def _types(texts: tuple[str, ...], **others: type) -> dict[str, type]:
    return {**dict.fromkeys(texts, str), **others}


_TYPE_NAMES: Mapping[type, str] = {
    str: "a text", int: "a whole number", bool: "true or false", dict: "an object", list: "an array",
}  # fmt: skip
_EVENT_TYPES = _types(
    (*EVENT_TEXTS, "time"), response=dict, state_delta=dict, skip_summarization=bool, extensions=dict, version=int
)
_RESPONSE_TYPES = _types(
    (*RESPONSE_TEXTS, "time"), choices=list, usage=dict, error=dict, created=int, done=bool, partial=bool
)
_CHOICE_TYPES = _types(("finish_reason",), message=dict, delta=dict, index=int)
_MESSAGE_TYPES = _types(MESSAGE_TEXTS, content_parts=list, tool_calls=list)
_PART_TYPES = _types(("text", "url", "name"))
_CALL_TYPES = _types(("id", "name", "arguments", "type", "description"), strict=bool, index=int, extra_fields=list)
_TOOL_TYPES = _types(("name", *TOOL_TEXTS))
_ERROR_TYPES = _types(ERROR_TEXTS)
