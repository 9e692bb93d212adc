"""Messages, tools and usage in the form of OpenAI's chat interface, which most recordings share.

In: JSON values. Out: `Message`, `ToolSpec`, `Usage`, or a `FaultyRecordError` in the words of B15 to B18, B28.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.model.types import ASSISTANT, ROLES, SYSTEM, TOOL, ContentPart, Message, ToolCall, ToolSpec, Usage
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted

ROLE_ALIASES = {"developer": SYSTEM, "function": TOOL}
EXPECTED_ROLES = "expected system, user, assistant or tool"
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MEDIA_PARTS = {
    "image_url": "image", "input_image": "image", "image": "image",
    "input_audio": "audio", "audio": "audio", "audio_url": "audio",
    "video_url": "video", "video": "video", "input_video": "video",
    "file": "file", "input_file": "file",
}  # fmt: skip
_MOST_TOKENS = 10**15
_ADDRESS_KEYS = ("url", "data", "file_data", "file_id", "id")


def compact_json(value: Any) -> str:
    """The shortest JSON text of a value, letters of all languages as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def role_of(raw: Any, aliases: Mapping[str, str] = ROLE_ALIASES) -> str:
    """One of the four roles.

    Raises:
        FaultyRecordError: another role (B15).
    """
    role = aliases.get(raw, raw) if isinstance(raw, str) else raw
    if role not in ROLES:
        name = quoted(raw) if isinstance(raw, str) else "is " + ("missing" if raw is None else kind_of(raw))
        raise FaultyRecordError(f"role {name}", EXPECTED_ROLES)
    return str(role)


def message_from_chat(raw: Any, number: int) -> Message:
    """One message; `number` counts from 1 for the error text.

    Raises:
        FaultyRecordError: role, content or tool calls aren't of the known form.
    """
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"message {number} is {kind_of(raw)}, expected an object")
    role = role_of(raw.get("role"))
    content, parts = content_of(raw.get("content"), number)
    calls = tuple(_tool_calls(raw, number))
    reasoning = _text_of(raw, "reasoning_content") or _text_of(raw, "reasoning")
    refusal = _text_of(raw, "refusal")
    if raw.get("content") in (None, []) and not calls:
        if not (reasoning or refusal or raw.get("audio")):
            raise FaultyRecordError(f"message {number} has neither content nor tool calls")
        content = refusal
    tool_id = raw.get("tool_call_id") if role == TOOL else None
    return Message(
        role=role,
        content=content,
        content_parts=parts,
        tool_id=str(tool_id) if isinstance(tool_id, str | int) else "",
        tool_name=_text_of(raw, "name") if role == TOOL else "",
        tool_calls=calls if role == ASSISTANT else (),
        reasoning_content=reasoning,
        reasoning_signature=_text_of(raw, "reasoning_signature"),
    )


def _text_of(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def content_of(raw: Any, number: int) -> tuple[str, tuple[ContentPart, ...]]:
    """Text and parts of a content field; a single text part is just a text.

    Raises:
        FaultyRecordError: neither text nor parts (B17), or a part of an unknown type (B18).
    """
    if raw is None:
        return "", ()
    if isinstance(raw, str):
        return raw, ()
    if not isinstance(raw, list):
        raise FaultyRecordError(f"message {number}: content is {kind_of(raw)}, expected text or parts")
    parts = tuple(_part(item, number, place) for place, item in enumerate(raw, 1))
    if len(parts) == 1 and parts[0].type == "text":
        return parts[0].text, ()
    return "", parts


def _part(raw: Any, number: int, place: int) -> ContentPart:
    if isinstance(raw, str):
        return ContentPart(type="text", text=raw)
    kind = raw.get("type") if isinstance(raw, dict) else None
    if isinstance(kind, str) and kind in _TEXT_PARTS:
        text = raw.get(_TEXT_PARTS[kind])
        if not isinstance(text, str):
            raise FaultyRecordError(f"message {number}, part {place}: text is {kind_of(text)}, expected a text")
        return ContentPart(type="text", text=text)
    if not isinstance(kind, str) or kind not in _MEDIA_PARTS:
        name = quoted(kind) if isinstance(kind, str) else kind_of(raw)
        raise FaultyRecordError(f"message {number}, part {place}: type {name} is not known")
    inner = raw.get(kind, raw)
    if isinstance(inner, str):
        return ContentPart(type=_MEDIA_PARTS[kind], url=inner)
    source = inner if isinstance(inner, dict) else raw
    address = next((source[key] for key in _ADDRESS_KEYS if isinstance(source.get(key), str)), "")
    name = source.get("filename") or source.get("name") or ""
    return ContentPart(type=_MEDIA_PARTS[kind], url=address, name=name if isinstance(name, str) else "")


def _tool_calls(raw: Mapping[str, Any], number: int) -> Iterator[ToolCall]:
    """The calls of a message, also in the older form with a single `function_call`."""
    calls = raw.get("tool_calls") or []
    if not isinstance(calls, list):
        raise FaultyRecordError(f"message {number}: tool_calls is {kind_of(calls)}, expected an array")
    for call in calls:
        function = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise FaultyRecordError(f"message {number}: a tool call has no name")
        kind = call.get("type")
        yield ToolCall(
            id=str(call.get("id") or ""),
            name=function["name"],
            arguments=arguments_text(function.get("arguments")),
            type=kind if isinstance(kind, str) else "function",
        )
    older = raw.get("function_call")
    if isinstance(older, dict) and isinstance(older.get("name"), str):
        yield ToolCall(name=older["name"], arguments=arguments_text(older.get("arguments")))


def arguments_text(raw: Any) -> str:
    """Tool arguments as the raw text they are; some sources keep them parsed."""
    if raw is None:
        return ""
    return raw if isinstance(raw, str) else compact_json(raw)


def tools_from_chat(raw: Any) -> tuple[ToolSpec, ...]:
    """Tool declarations, with or without the wrapper `{"type": "function", "function": ...}`.

    Raises:
        FaultyRecordError: not a list of declarations.
    """
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise FaultyRecordError(f"tools is {kind_of(raw)}, expected an array")
    specs = []
    for place, declaration in enumerate(raw, 1):
        function = declaration.get("function", declaration) if isinstance(declaration, dict) else None
        if not isinstance(function, dict):
            raise FaultyRecordError(f"tool {place} is {kind_of(declaration)}, expected an object")
        name = function.get("name") or declaration.get("type")
        if not isinstance(name, str):
            raise FaultyRecordError(f"tool {place} has no name")
        parameters = function.get("parameters", function.get("input_schema"))
        specs.append(
            ToolSpec(
                name=name,
                description=_text_of(function, "description"),
                parameters_json="" if parameters is None else compact_json(parameters),
                declaration_json=compact_json(declaration),
            )
        )
    return tuple(specs)


def usage_from_chat(raw: Any) -> Usage | None:
    """What a provider reported; None when it reported nothing.

    Raises:
        FaultyRecordError: negative, or parts that don't fit the whole (B28).
    """
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"usage is {kind_of(raw)}, expected an object")
    prompt_details = raw.get("prompt_tokens_details") or raw.get("input_tokens_details") or {}
    completion_details = raw.get("completion_tokens_details") or raw.get("output_tokens_details") or {}
    usage = Usage(
        prompt_tokens=token_count(raw, "prompt", "prompt_tokens", "input_tokens"),
        completion_tokens=token_count(raw, "completion", "completion_tokens", "output_tokens"),
        total_tokens=token_count(raw, "total", "total_tokens"),
        cached_tokens=token_count(prompt_details, "cached", "cached_tokens"),
        reasoning_tokens=token_count(completion_details, "reasoning", "reasoning_tokens"),
    )
    check_usage(usage)
    return None if usage == Usage() else usage


def token_count(raw: Any, label: str, *names: str) -> int | None:
    """The first of these fields that isn't null; not reported is None, never 0 (WB-REC-07).

    Raises:
        FaultyRecordError: not a whole number, negative, or absurd.
    """
    if not isinstance(raw, dict):
        return None
    value = next((raw[name] for name in names if raw.get(name) is not None), None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise FaultyRecordError(f"usage: {label} is not a whole number")
    if value < 0:
        raise FaultyRecordError(f"usage: {label} {int(value)} is negative")
    if value > _MOST_TOKENS:
        raise FaultyRecordError(f"usage: {label} is more than any request has", "expected a number of tokens")
    return int(value)


def check_usage(usage: Usage) -> None:
    """Raise `FaultyRecordError` when parts don't fit the whole (B28)."""
    prompt, completion, total = usage.prompt_tokens, usage.completion_tokens, usage.total_tokens
    if total is not None and total < (prompt or 0) + (completion or 0):
        raise FaultyRecordError(
            f"usage: total {total} is less than prompt {prompt or 0} + completion {completion or 0}"
        )
    if usage.cached_tokens is not None and prompt is not None and usage.cached_tokens > prompt:
        raise FaultyRecordError(f"usage: cached {usage.cached_tokens} is more than prompt {prompt}")
