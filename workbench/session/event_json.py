"""Events, messages and tools as JSON, and back from JSON that this module wrote itself.

In: engine values. Out: plain JSON, the form of native recordings and of stored events, and the values again,
exactly: `event_from_own_json(event_to_json(e)) == e`. Fields at their default are left out; times are RFC 3339
with all their digits; bytes are base64. Nothing is checked on the way back: what others wrote goes through
`workbench.recordings.event_json`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from workbench.clock import NS_PER_S, ns_from_text, text_from_ns
from workbench.model.types import (
    EMPTY_MESSAGE,
    Choice,
    ContentPart,
    Message,
    Response,
    ResponseError,
    ToolCall,
    ToolSpec,
    Usage,
)
from workbench.session.types import EVENT_VERSION, Event

Json = dict[str, Any]

EVENT_TEXTS = ("id", "author", "request_id", "invocation_id", "parent_invocation_id", "branch", "filter_key", "tag")
MESSAGE_TEXTS = ("role", "tool_id", "tool_name", "reasoning_content", "reasoning_signature")
RESPONSE_TEXTS = ("id", "object", "model")
TOOL_TEXTS = ("description", "parameters_json", "declaration_json", "output_json")
ERROR_TEXTS = ("type", "message", "code", "param")
_PART_TEXTS = ("type", "text", "url", "name")
_VALUES_OF: dict[tuple[str, ...], attrgetter[tuple[Any, ...]]] = {
    names: attrgetter(*names)
    for names in (EVENT_TEXTS, MESSAGE_TEXTS, RESPONSE_TEXTS, TOOL_TEXTS, ERROR_TEXTS, _PART_TEXTS)
}
USAGE_FIELDS = tuple(item.name for item in fields(Usage))

# --- out ---------------------------------------------------------------------------------------------


def event_to_json(event: Event) -> Json:
    """The plain JSON form of an event."""
    out = _texts(event, EVENT_TEXTS)
    if event.time_ns:
        out["time"] = text_from_ns(event.time_ns)
    if event.response is not None:
        out["response"] = _response_to_json(event.response)
    if event.state_delta:
        out["state_delta"] = {
            key: None if value is None else base64.b64encode(value).decode("ascii")
            for key, value in event.state_delta.items()
        }
    if event.skip_summarization:
        out["skip_summarization"] = True
    if event.extensions:
        out["extensions"] = dict(event.extensions)
    if event.version != EVENT_VERSION:
        out["version"] = event.version
    return out


def _texts(value: Any, names: tuple[str, ...]) -> Json:
    return {name: text for name, text in zip(names, _VALUES_OF[names](value), strict=True) if text}


def _response_to_json(response: Response) -> Json:
    out = _texts(response, RESPONSE_TEXTS)
    out["choices"] = [_choice_to_json(choice, i) for i, choice in enumerate(response.choices)]
    if response.usage is not None:
        usage = response.usage
        out["usage"] = {name: n for name in USAGE_FIELDS if (n := getattr(usage, name)) is not None}
    if response.error is not None:
        out["error"] = _texts(response.error, ERROR_TEXTS)
    if response.created:
        out["created"] = response.created
    if response.time_ns:
        out["time"] = text_from_ns(response.time_ns)
    if not response.done:
        out["done"] = False
    if response.is_partial:
        out["partial"] = True
    return out


def _choice_to_json(choice: Choice, place: int) -> Json:
    out: Json = {}
    if choice.message != EMPTY_MESSAGE:
        out["message"] = message_to_json(choice.message)
    if choice.delta != EMPTY_MESSAGE:
        out["delta"] = message_to_json(choice.delta)
    if choice.index != place:
        out["index"] = choice.index
    if choice.finish_reason:
        out["finish_reason"] = choice.finish_reason
    return out


def message_to_json(message: Message) -> Json:
    """The plain JSON form of a message; `content` is always there."""
    out = _texts(message, MESSAGE_TEXTS)
    out["content"] = message.content
    if message.content_parts:
        out["content_parts"] = [_texts(part, _PART_TEXTS) for part in message.content_parts]
    if message.tool_calls:
        out["tool_calls"] = [_call_to_json(call) for call in message.tool_calls]
    return out


def _call_to_json(call: ToolCall) -> Json:
    out: Json = {"id": call.id, "name": call.name, "arguments": call.arguments}
    if call.type != "function":
        out["type"] = call.type
    if call.description:
        out["description"] = call.description
    if call.strict is not None:
        out["strict"] = call.strict
    if call.index is not None:
        out["index"] = call.index
    if call.extra_fields:
        out["extra_fields"] = [list(pair) for pair in call.extra_fields]
    return out


def tool_to_json(tool: ToolSpec) -> Json:
    """The plain JSON form of a tool declaration."""
    return {"name": tool.name, **_texts(tool, TOOL_TEXTS)}


# --- back --------------------------------------------------------------------------------------------


def event_from_own_json(raw: Json) -> Event:
    """The event that `event_to_json` was given.

    Raises:
        KeyError, TypeError, ValueError or AttributeError: it wasn't written by this module.
    """
    get = raw.get
    time = get("time")
    response = get("response")
    return Event(
        get("id", ""),
        get("author", ""),
        0 if time is None else _ns_from_own_text(time),
        None if response is None else _response_from_json(response),
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


_DAYS: dict[str, int] = {}


def _ns_from_own_text(text: str) -> int:
    """Nanoseconds of `2026-03-01T10:00:00.5Z`; each day is taken apart once."""
    day_ns = _DAYS.get(text[:10])
    if day_ns is None:
        if len(_DAYS) > 10_000:
            _DAYS.clear()
        day_ns = _DAYS[text[:10]] = ns_from_text(text[:10] + "T00:00:00Z")
    digits = text[20:-1]
    seconds = int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
    return day_ns + seconds * NS_PER_S + (int(digits.ljust(9, "0")) if digits else 0)


def _state_from_json(raw: Mapping[str, str | None]) -> dict[str, bytes | None]:
    return {key: None if value is None else base64.b64decode(value, validate=True) for key, value in raw.items()}


def _response_from_json(raw: Json) -> Response:
    choices = tuple([_choice_from_json(choice, i) for i, choice in enumerate(raw["choices"])])
    if len(raw) == 1:
        return Response(choices)
    get = raw.get
    time, usage, error = get("time"), get("usage"), get("error")
    return Response(
        choices,
        get("id", ""),
        get("object", ""),
        get("model", ""),
        None if usage is None else Usage(**usage),
        None if error is None else ResponseError(**error),
        get("created", 0),
        0 if time is None else _ns_from_own_text(time),
        get("done", True),
        get("partial", False),
    )


def _choice_from_json(raw: Json, place: int) -> Choice:
    get = raw.get
    message, delta = get("message"), get("delta")
    return Choice(
        EMPTY_MESSAGE if message is None else _message_from_json(message),
        EMPTY_MESSAGE if delta is None else _message_from_json(delta),
        get("index", place),
        get("finish_reason", ""),
    )


def _message_from_json(raw: Json) -> Message:
    if len(raw) == 2 and "role" in raw:  # nine of ten
        return Message(raw["role"], raw["content"])
    get = raw.get
    parts, calls = get("content_parts"), get("tool_calls")
    return Message(
        get("role", ""),
        raw["content"],
        tuple([ContentPart(**{"type": "", **part}) for part in parts]) if parts else (),
        get("tool_id", ""),
        get("tool_name", ""),
        tuple([_call_from_json(call) for call in calls]) if calls else (),
        get("reasoning_content", ""),
        get("reasoning_signature", ""),
    )


def _call_from_json(raw: Json) -> ToolCall:
    if extra := raw.get("extra_fields"):
        raw = {**raw, "extra_fields": tuple((name, text) for name, text in extra)}
    return ToolCall(**raw)
