"""The vectors' JSON shapes as engine values, and back again.

In: plain JSON of a vector's input. Out: messages, events, sessions, models; and the plain form of what the
engine produced, with the project's fixed sentences masked as in the vectors, ready to be compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.clock import NS_PER_S, SystemClock, ns_from_text, text_from_ns
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import (
    Choice,
    ContentPart,
    GenerationConfig,
    Message,
    Request,
    Response,
    ResponseError,
    ToolCall,
    ToolSpec,
    Usage,
)
from workbench.session.types import Event, Session, Summary, SummaryBoundary
from workbench.wording import OMITTED_RESULT_HEAD, OMITTED_RESULT_TAIL, RUNES

Json = Any

_OMITTED_RESULT_TOKEN = re.compile(r"<OMITTED-RESULT ([^>]*)>")
_OMITTED_RESULT = re.compile(
    re.escape(OMITTED_RESULT_HEAD) + r"((?:tool_name|tool_call_id)=.*?)" + re.escape(OMITTED_RESULT_TAIL), re.DOTALL
)


def expand_tokens(value: Json) -> Json:
    """Replace `<TOKEN>`s of fixed sentences by this project's sentences, in every text of a JSON value."""
    if isinstance(value, str):
        for token, (sentence, _) in RUNES.items():
            if token != "OMITTED-RESULT":  # noqa: S105 - a name of the vectors, no secret
                value = value.replace(f"<{token}>", sentence)
        return _OMITTED_RESULT_TOKEN.sub(lambda m: OMITTED_RESULT_HEAD + m[1] + OMITTED_RESULT_TAIL, value)
    if isinstance(value, list):
        return [expand_tokens(item) for item in value]
    if isinstance(value, dict):
        return {key: expand_tokens(item) for key, item in value.items()}
    return value


def mask_sentences(value: Json) -> Json:
    """The reverse of `expand_tokens`, for what the engine produced."""
    if isinstance(value, str):
        for token, (sentence, _) in RUNES.items():
            if token != "OMITTED-RESULT":  # noqa: S105 - as above
                value = value.replace(sentence, f"<{token}>")
        return _OMITTED_RESULT.sub(lambda m: f"<OMITTED-RESULT {m[1]}>", value)
    if isinstance(value, list | tuple):
        return [mask_sentences(item) for item in value]
    if isinstance(value, dict):
        return {key: mask_sentences(item) for key, item in value.items()}
    return value


# --- in ----------------------------------------------------------------------------------------------


def part_from(raw: Json) -> ContentPart:
    return ContentPart(type=raw["type"], text=raw.get("text", ""), url=raw.get("url", ""), name=raw.get("name", ""))


def tool_call_from(raw: Json) -> ToolCall:
    return ToolCall(
        id=raw.get("id", ""),
        name=raw.get("name", ""),
        arguments=raw.get("arguments", ""),
        type=raw.get("type", "function"),
        description=raw.get("description", ""),
    )


def message_from(raw: Json) -> Message:
    return Message(
        role=raw.get("role", ""),
        content=raw.get("content", ""),
        content_parts=tuple(part_from(part) for part in raw.get("content_parts", ())),
        tool_id=raw.get("tool_id", ""),
        tool_name=raw.get("tool_name", ""),
        tool_calls=tuple(tool_call_from(call) for call in raw.get("tool_calls", ())),
        reasoning_content=raw.get("reasoning_content", ""),
    )


def messages_from(raw: Json) -> tuple[Message, ...]:
    return tuple(message_from(item) for item in raw or ())


def event_from(raw: Json) -> Event:
    """An event; `age_seconds` counts back from the machine's clock."""
    partial = raw.get("partial", False)
    response = None
    if not raw.get("no_response"):
        messages = raw["choices"] if "choices" in raw else [raw["message"]] if "message" in raw else []
        response = Response(
            id=raw.get("response_id", ""),
            choices=tuple(Choice(message_from(item), index=i) for i, item in enumerate(messages)),
            is_partial=partial,
            done=raw.get("done", not partial),
            error=ResponseError(type="api_error", message=raw["error"]) if raw.get("error") else None,
        )
    if "age_seconds" in raw:
        time_ns = SystemClock().now_ns() - int(raw["age_seconds"] * NS_PER_S)
    else:
        time_ns = time_from(raw.get("timestamp", ""))
    return Event(
        id=raw.get("id", ""),
        author=raw.get("author", ""),
        time_ns=time_ns,
        response=response,
        request_id=raw.get("request_id", ""),
        invocation_id=raw.get("invocation_id", ""),
        branch=raw.get("branch", ""),
        filter_key=raw.get("filter_key", ""),
        skip_summarization=raw.get("skip_summarization", False),
        version=0 if raw.get("legacy_version") else 1,
    )


def time_from(text: str) -> int:
    """Nanoseconds; an absent time or Go's zero time is 0."""
    return 0 if not text or text.startswith("0001-") else ns_from_text(text)


def summaries_from(raw: Json) -> dict[str, Summary]:
    return {key: summary_from(item) for key, item in (raw or {}).items()}


def summary_from(raw: Json) -> Summary:
    boundary = raw.get("boundary")
    return Summary(
        summary=raw["summary"],
        updated_ns=time_from(raw.get("updated_at", "")),
        boundary=None
        if boundary is None
        else SummaryBoundary(
            filter_key=boundary.get("filter_key", ""),
            cutoff_ns=time_from(boundary.get("cutoff_at", "")),
            last_event_id=boundary.get("last_event_id", ""),
        ),
    )


def session_from(raw: Json) -> Session:
    return Session(
        app_name=raw.get("app_name", "app"),
        user_id=raw.get("user_id", "user-1"),
        id=raw.get("session_id", "sess-1"),
        created_ns=time_from(raw.get("created_at", "2026-01-01T00:00:00Z")),
        updated_ns=time_from(raw.get("created_at", "2026-01-01T00:00:00Z")),
        events=[event_from(item) for item in raw.get("events") or ()],
        state={key: text.encode() for key, text in raw.get("state", {}).items()},
        summaries=summaries_from(raw.get("summaries")),
        scope_filter_key=raw.get("scope_filter_key", ""),
    )


def usage_from(raw: Json) -> Usage | None:
    if not raw:
        return None
    return Usage(
        prompt_tokens=raw.get("prompt_tokens"),
        completion_tokens=raw.get("completion_tokens"),
        total_tokens=raw.get("total_tokens"),
        cached_tokens=raw.get("cached_tokens"),
    )


def answer_from(raw: Json) -> ScriptedAnswer:
    error = raw.get("error")
    return ScriptedAnswer(
        content=raw.get("content", ""),
        chunks=tuple(raw.get("chunks", ())),
        chunks_are_messages=True,
        reasoning_content=raw.get("reasoning_content", ""),
        tool_calls=tuple(tool_call_from(call) for call in raw.get("tool_calls", ())),
        call_error=raw.get("call_error", ""),
        error=None
        if error is None
        else ResponseError(type=error.get("type", ""), message=error.get("message", ""), code=error.get("code") or ""),
        usage=usage_from(raw.get("usage")),
        no_choices=raw.get("no_choices", False),
        never_answers=raw.get("never_answers", False),
    )


def model_from(raw: Json) -> ScriptedModel | None:
    """The fake model of the vectors; `nil` is no model at all."""
    if raw is None or raw.get("nil"):
        return None
    return ScriptedModel(
        [answer_from(item) for item in raw.get("responses") or ()],
        name=raw.get("name", ""),
        context_window=raw.get("context_window", 0),
        input_token_budget=raw.get("input_token_budget", 0),
    )


def tool_from(raw: Json) -> ToolSpec:
    return ToolSpec(
        name=raw["name"], description=raw.get("description", ""), declaration_json=raw.get("declaration_json", "")
    )


def request_from(raw: Json) -> Request | None:
    """A parent request; None stays None."""
    if raw is None:
        return None
    config = raw.get("generation_config") or {}
    return Request(
        messages=messages_from(raw.get("messages")),
        tools=tuple(tool_from(tool) for tool in raw.get("tools") or ()),
        generation_config=GenerationConfig(
            stream=config.get("stream", False),
            max_tokens=config.get("max_tokens"),
            temperature=config.get("temperature"),
            top_p=config.get("top_p"),
            stop=tuple(config.get("stop") or ()),
            reasoning_effort=config.get("reasoning_effort"),
            thinking_enabled=config.get("thinking_enabled"),
        ),
        structured_output={"type": "json_schema"} if raw.get("structured_output") else None,
        headers=raw.get("headers") or {},
        extra_fields=raw.get("extra_fields") or {},
    )


# --- out ---------------------------------------------------------------------------------------------


def message_to(message: Message) -> Json:
    """The vector form: absent optional fields are left out."""
    raw: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.reasoning_content:
        raw["reasoning_content"] = message.reasoning_content
    if message.content_parts:
        raw["content_parts"] = [part_to(part) for part in message.content_parts]
    if message.tool_calls:
        raw["tool_calls"] = [tool_call_to(call) for call in message.tool_calls]
    if message.tool_id:
        raw["tool_id"] = message.tool_id
    if message.tool_name:
        raw["tool_name"] = message.tool_name
    return raw


def part_to(part: ContentPart) -> Json:
    return {"type": part.type, "text": part.text} if part.type == "text" else {"type": part.type, "url": part.url}


def tool_call_to(call: ToolCall) -> Json:
    raw = {"id": call.id, "name": call.name, "arguments": call.arguments}
    if call.type != "function":
        raw["type"] = call.type
    if call.description:
        raw["description"] = call.description
    return raw


def messages_to(messages: Sequence[Message]) -> Json:
    return [message_to(message) for message in messages]


def generation_to(config: GenerationConfig) -> Json:
    raw: dict[str, Json] = {"stream": config.stream}
    for name in ("max_tokens", "temperature", "top_p", "reasoning_effort", "thinking_enabled"):
        if getattr(config, name) is not None:
            raw[name] = getattr(config, name)
    if config.stop:
        raw["stop"] = list(config.stop)
    return raw


def request_to(request: Request) -> Json:
    raw: dict[str, Json] = {
        "messages": messages_to(request.messages),
        "tools": sorted(tool.name for tool in request.tools),
        "generation_config": generation_to(request.generation_config),
        "structured_output": request.structured_output is not None,
    }
    if request.headers:
        raw["headers"] = dict(request.headers)
    if request.extra_fields:
        raw["extra_fields"] = dict(request.extra_fields)
    return raw


def summaries_to(summaries: Mapping[str, Summary]) -> Json:
    return {key: summary_to(summary) for key, summary in summaries.items()}


def summary_to(summary: Summary) -> Json:
    raw: dict[str, Json] = {"summary": summary.summary, "updated_at": time_to(summary.updated_ns)}
    if summary.boundary is not None:
        boundary = summary.boundary
        raw["boundary"] = {"filter_key": boundary.filter_key, "cutoff_at": time_to(boundary.cutoff_ns)}
        if boundary.last_event_id:
            raw["boundary"]["last_event_id"] = boundary.last_event_id
    return raw


def time_to(moment_ns: int) -> str:
    return text_from_ns(moment_ns) if moment_ns else "0001-01-01T00:00:00Z"


# --- comparing ---------------------------------------------------------------------------------------


def first_difference(expected: Json, got: Json, path: str = "") -> str:
    """Where two JSON values first differ, in words; empty when they don't.

    `error` entries compare as null or not null; `<wall-clock>` and `<generated-id-N>` stand for any text.
    """
    here = path or "value"
    if path.rsplit(".", 1)[-1] == "error" and not isinstance(expected, bool):
        return "" if (expected is None) == (got is None) else f"{here}: expected {expected!r}, got {got!r}"
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in sorted(expected.keys() | got.keys()):
            if key not in got:
                return f"{here}: {key} is missing, expected {expected[key]!r}"[:600]
            if key not in expected:
                return f"{here}: {key} is not expected, got {got[key]!r}"[:600]
            if difference := first_difference(expected[key], got[key], f"{path}.{key}" if path else key):
                return difference
        return ""
    if isinstance(expected, list) and isinstance(got, list | tuple):
        for i, (left, right) in enumerate(zip(expected, got, strict=False)):
            if difference := first_difference(left, right, f"{path}[{i}]"):
                return difference
        return "" if len(expected) == len(got) else f"{here}: expected {len(expected)} items, got {len(got)}"
    if isinstance(expected, str) and isinstance(got, str) and "<" in expected and _matches_pattern(expected, got):
        return ""
    if expected == got and isinstance(expected, bool) == isinstance(got, bool):
        return ""
    return f"{here}: expected {_short(expected)}, got {_short(got)}"


_WILDCARD = re.compile(r"<wall-clock>|<generated-id-\d+>")


def _matches_pattern(expected: str, got: str) -> bool:
    pieces = _WILDCARD.split(expected)
    return len(pieces) > 1 and re.fullmatch(".+?".join(map(re.escape, pieces)), got, re.DOTALL) is not None


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]}...{text[-80:]} ({len(text)} characters)"
