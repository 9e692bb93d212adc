"""The format `otel-genai`: model calls as OpenTelemetry spans.

In: spans, as OTLP JSON or one per row, whose attributes follow the conventions for generative AI: the newer ones
(`gen_ai.input.messages`), the older ones with an event per message (`gen_ai.user.message`, also as log records),
or the numbered attributes of earlier instrumentation (`gen_ai.prompt.0.role`, `llm.input_messages.0.message.role`).
Out: conversations. Each span is one request with its whole history, so they're chained like logged requests
(WB-REC-04a), in the order of their start times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, ContentPart, Message, ToolCall, ToolSpec, Usage
from workbench.recordings.chat import (
    arguments_text,
    check_usage,
    compact_json,
    message_from_chat,
    role_of,
    token_count,
    tools_from_chat,
)
from workbench.recordings.otlp import Span, SpanEvent, holds_spans, is_span, records_in, spans_in
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import Format, Reading, own_id, values_of
from workbench.recordings.request_log import Chain, Exchange, RequestLog
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "otel-genai"
SESSION_KEYS = ("gen_ai.conversation.id", "session.id", "conversation.id", "langfuse.session.id", "thread.id")
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_SYSTEM_KEYS = ("gen_ai.system_instructions", "gen_ai.system.instructions")
_TOOL_KEYS = ("gen_ai.tool.definitions", "gen_ai.request.tools", "llm.tools")
_CALLS = ("chat", "text_completion", "generate_content", "completion")
_AGENT = "invoke_agent"
_PREFIXES = ("gen_ai.", "llm.", "openinference.")
_NUMBERED_INPUT = ("gen_ai.prompt.", "llm.input_messages.", "llm.prompts.")
_NUMBERED_OUTPUT = ("gen_ai.completion.", "llm.output_messages.", "llm.completions.")
_CHOICE_EVENT = "gen_ai.choice"
_SPAN_LEFT_OUT = "its call is left out; later calls of its conversation, which repeat the history, are kept"
_MAX_NUMBER = 100_000


@dataclass(frozen=True, slots=True)
class _Call:
    """What one span says about a model call."""

    span: Span
    system: tuple[Message, ...]
    messages: tuple[Message, ...]
    answer: Message | None
    finish_reason: str


def _recognises(value: Any) -> bool:
    if holds_spans(value):
        return '"gen_ai.' in (text := json.dumps(value)) or '"llm.' in text
    if not is_span(value):
        return False
    attributes = value["attributes"]
    keys = (
        attributes
        if isinstance(attributes, dict)
        else [item.get("key") for item in attributes if isinstance(item, dict)]
    )
    return any(isinstance(key, str) and key.startswith(_PREFIXES) for key in keys)


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    """The order of an export is that of the ends of spans, so the whole file is needed."""
    spans: list[Span] = []
    records: dict[str, list[SpanEvent]] = {}
    for row, value in values_of(rows, reading):
        try:
            if not isinstance(value, dict):
                raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
            for span in spans_in(value, reading.options):
                span.line = row.line
                spans.append(span)
            for span_id, event in records_in(value):
                records.setdefault(span_id, []).append(event)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)
    spans.sort(key=lambda span: span.start_ns or 0)
    log = RequestLog(reading)
    calls = _model_calls(spans, reading)
    silent: list[Span] = []
    for span in calls:
        span.events += records.get(span.span_id, [])
        try:
            call = _call_of(span)
            if call is None:
                silent.append(span)
            else:
                log.take(_exchange(call))
        except FaultyRecordError as fault:
            fault.line = fault.line or span.line
            reading.refuse(fault, outcome=_SPAN_LEFT_OUT)
    if silent:
        reason = f"{len(silent)} model calls hold" if len(silent) > 1 else "a model call holds"
        reading.report(f"{reason} no messages", "let the instrumentation capture message content", line=silent[0].line)
    yield from log.conversations(_logged)


def _operation(span: Span) -> str:
    name = span.attributes.get("gen_ai.operation.name", span.attributes.get("llm.request.type"))
    if isinstance(name, str):
        return name
    kind = span.attributes.get("openinference.span.kind", span.attributes.get("traceloop.span.kind"))
    return {"LLM": "chat", "AGENT": _AGENT}.get(kind, str(kind)) if isinstance(kind, str) else ""


def _model_calls(spans: list[Span], reading: Reading) -> list[Span]:
    """The spans that are calls of a model; those of agents only in traces where no call was recorded."""
    calls = [span for span in spans if _operation(span) in _CALLS or (not _operation(span) and _has_messages(span))]
    around = {span.parent_id for span in calls if span.parent_id}
    n_outer = sum(span.span_id in around for span in calls)
    calls = [span for span in calls if span.span_id not in around]  # a library and its provider both record a call
    reading.lose("spans around another span of the same model call", n_outer)
    traces = {span.trace_id for span in calls}
    agents = [span for span in spans if _operation(span) == _AGENT and _has_messages(span)]
    calls += [span for span in agents if span.trace_id not in traces]
    reading.lose(
        "spans that are no model calls (agents, tools, the rest of the program)", len(spans) - len(calls) - n_outer
    )
    return sorted(calls, key=lambda span: span.start_ns or 0)


def _has_messages(span: Span) -> bool:
    return any(
        key in (_INPUT, _OUTPUT) or key.startswith((*_NUMBERED_INPUT, *_NUMBERED_OUTPUT)) for key in span.attributes
    ) or any(event.name.startswith("gen_ai.") for event in span.events)


# --- one call ----------------------------------------------------------------------------------------


def _call_of(span: Span) -> _Call | None:
    """The call of a span; None when it was recorded without its messages.

    Raises:
        FaultyRecordError: its messages aren't of a known form.
    """
    attributes = dict(span.attributes)
    for event in span.events:  # the newer conventions may put the same attributes into one event
        attributes.update({key: event.attributes[key] for key in (_INPUT, _OUTPUT) if key in event.attributes})
    system = _system_of(attributes)
    if _INPUT in attributes or _OUTPUT in attributes:
        messages = _messages_from(attributes.get(_INPUT), "gen_ai.input.messages")
        answers = _messages_from(attributes.get(_OUTPUT), "gen_ai.output.messages")
        finish = _finish_of(attributes.get(_OUTPUT))
    elif any(event.name.startswith("gen_ai.") for event in span.events):
        messages, answers, finish = _from_events(span.events)
    else:
        messages = [message_from_chat(raw, n) for n, raw in enumerate(_numbered(attributes, _NUMBERED_INPUT), 1)]
        outputs = list(_numbered(attributes, _NUMBERED_OUTPUT))
        answers = [message_from_chat({"role": ASSISTANT, **raw}, n) for n, raw in enumerate(outputs, 1)]
        finish = next((raw["finish_reason"] for raw in outputs if isinstance(raw.get("finish_reason"), str)), "")
    if not messages and not answers:
        return None
    reasons = attributes.get("gen_ai.response.finish_reasons")
    if not finish and isinstance(reasons, list | tuple) and reasons and isinstance(reasons[0], str):
        finish = reasons[0]
    answer = next((message for message in answers if message.role == ASSISTANT), None)
    return _Call(span, tuple(system), tuple(messages), answer, finish)


def _exchange(call: _Call) -> Exchange:
    attributes = call.span.attributes
    model = next(
        (attributes[key] for key in ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
         if isinstance(attributes.get(key), str)), "",
    )  # fmt: skip
    answer_id = attributes.get("gen_ai.response.id")
    return Exchange(
        line=call.span.line,
        session_id=own_id(attributes, *SESSION_KEYS),
        messages=(*call.system, *call.messages),
        answer=call.answer,
        usage=_usage(attributes),
        model=model,
        answer_id=answer_id if isinstance(answer_id, str) else call.span.span_id,
        finish_reason=call.finish_reason,
        time_ns=call.span.start_ns,
        answered_ns=call.span.end_ns,
        source=call.span,
    )


def _logged(chain: Chain, reading: Reading) -> Conversation:
    attributes = chain.last.source.attributes
    draft = chain.draft(reading)
    model = attributes.get("gen_ai.request.model")
    return draft.finish(
        FORMAT_NAME,
        wanted_id=chain.first.session_id,
        user_id=own_id(attributes, "user.id", "enduser.id"),
        model=model if isinstance(model, str) else "",
        tools=_tools(attributes),
    )


def _tools(attributes: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
    raw = next((attributes[key] for key in _TOOL_KEYS if attributes.get(key)), None)
    value = _from_json(raw)
    if value is None:
        value = list(_numbered(attributes, ("llm.request.functions.", "gen_ai.tools.")))
    if isinstance(value, list):
        value = [_from_json(item) for item in value]
    return tools_from_chat(value)


def _usage(attributes: Mapping[str, Any]) -> Usage | None:
    """Usage; input includes what was read from and written to a cache, says the convention (WB-REC-07)."""
    read = token_count(attributes, "cache read", "gen_ai.usage.cache_read.input_tokens",
                       "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.input_tokens.cached",
                       "llm.token_count.prompt_details.cache_read")  # fmt: skip
    written = token_count(attributes, "cache creation", "gen_ai.usage.cache_creation.input_tokens",
                          "gen_ai.usage.cache_creation_input_tokens",
                          "llm.token_count.prompt_details.cache_write")  # fmt: skip
    prompt = token_count(attributes, "input", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens",
                         "llm.token_count.prompt")  # fmt: skip
    if prompt is not None and prompt < (read or 0) + (written or 0):
        prompt += (read or 0) + (written or 0)  # some instrumentation reports the parts as providers do: disjoint
    usage = Usage(
        prompt_tokens=prompt,
        completion_tokens=token_count(attributes, "output", "gen_ai.usage.output_tokens",
                                      "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
        total_tokens=token_count(attributes, "total", "gen_ai.usage.total_tokens", "llm.usage.total_tokens",
                                 "llm.token_count.total"),
        cached_tokens=read,
        cache_creation_tokens=written,
        cache_read_tokens=read,
        reasoning_tokens=token_count(attributes, "reasoning", "gen_ai.usage.reasoning.output_tokens",
                                     "gen_ai.usage.reasoning_tokens",
                                     "llm.token_count.completion_details.reasoning"),
    )  # fmt: skip
    check_usage(usage)
    return None if usage == Usage() else usage


# --- messages of the newer conventions ---------------------------------------------------------------


def _from_json(raw: Any) -> Any:
    """A value that may have been written as JSON text, as most exporters have to."""
    if not isinstance(raw, str):
        return raw
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return raw


def _system_of(attributes: Mapping[str, Any]) -> Iterator[Message]:
    raw = _from_json(next((attributes[key] for key in _SYSTEM_KEYS if attributes.get(key)), None))
    if isinstance(raw, str):
        yield Message(role=SYSTEM, content=raw)
    elif isinstance(raw, list):
        texts = [part if isinstance(part, str) else part.get("content") for part in raw if isinstance(part, str | dict)]
        yield Message(role=SYSTEM, content="\n\n".join(text for text in texts if isinstance(text, str)))


def _messages_from(raw: Any, name: str) -> list[Message]:
    value = _from_json(raw)
    if value is None:
        return []
    if not isinstance(value, list):
        raise FaultyRecordError(f"{name} is {kind_of(value)}, expected an array")
    return [message for number, item in enumerate(value, 1) for message in _messages_of(_from_json(item), number)]


def _messages_of(raw: Any, number: int) -> Iterator[Message]:
    """What one message holds: tool results, each a message of its own, and the rest."""
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"message {number} is {kind_of(raw)}, expected an object")
    if not isinstance(raw.get("parts"), list):
        yield message_from_chat(raw, number)
        return
    role = role_of(raw.get("role"))
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    media: list[ContentPart] = []
    n_results = 0
    for place, part in enumerate(raw["parts"], 1):
        kind = part.get("type") if isinstance(part, dict) else None
        content = part.get("content") if isinstance(part, dict) else None
        if kind == "text":
            texts.append(content if isinstance(content, str) else "")
        elif kind in ("reasoning", "thinking"):
            thoughts.append(content if isinstance(content, str) else "")
        elif kind == "tool_call":
            name, call_id = str(part.get("name") or ""), str(part.get("id") or "")
            calls.append(ToolCall(id=call_id, name=name, arguments=arguments_text(part.get("arguments"))))
        elif kind == "tool_call_response":
            n_results += 1
            answer = part.get("response", part.get("result", content))
            text = answer if isinstance(answer, str) else "" if answer is None else compact_json(answer)
            yield Message(role=TOOL, content=text, tool_id=str(part.get("id") or ""))
        elif kind in ("uri", "blob", "file", "image", "audio", "video"):
            modality = part.get("modality")
            address = next(
                (part[key] for key in ("uri", "content", "file_id", "url") if isinstance(part.get(key), str)), ""
            )
            known = (
                modality
                if modality in ("image", "audio", "video")
                else kind
                if kind in ("image", "audio", "video")
                else "file"
            )
            media.append(ContentPart(type=known, url=address))
        else:
            shown_kind = quoted(kind) if isinstance(kind, str) else kind_of(part)
            raise FaultyRecordError(f"message {number}, part {place}: type {shown_kind} is not known")
    if n_results and not (texts or thoughts or calls or media):
        return
    yield Message(
        role=role,
        content="\n\n".join(text for text in texts if text),
        content_parts=tuple(media),
        tool_calls=tuple(calls) if role == ASSISTANT else (),
        reasoning_content="\n\n".join(text for text in thoughts if text),
    )


def _finish_of(raw: Any) -> str:
    value = _from_json(raw)
    first = value[0] if isinstance(value, list) and value else None
    reason = first.get("finish_reason") if isinstance(first, dict) else None
    return reason if isinstance(reason, str) else ""


# --- messages of the older conventions ---------------------------------------------------------------


def _from_events(events: list[SpanEvent]) -> tuple[list[Message], list[Message], str]:
    """Input, output and finish reason from one event, or one log record, per message."""
    messages: list[Message] = []
    answers: list[Message] = []
    finish = ""
    for event in events:
        if not event.name.startswith("gen_ai."):
            continue
        raw = {**event.attributes, **(event.body if isinstance(event.body, dict) else {})}
        number = len(messages) + len(answers) + 1
        if event.name == "gen_ai.content.prompt":
            messages += _messages_from(raw.get("gen_ai.prompt"), "gen_ai.prompt")
        elif event.name == "gen_ai.content.completion":
            answers += _messages_from(raw.get("gen_ai.completion"), "gen_ai.completion")
        elif event.name == _CHOICE_EVENT:
            message = _from_json(raw.get("message"))
            inner = message if isinstance(message, dict) else raw
            if "tool_calls" in raw and "tool_calls" not in inner:
                inner = {**inner, "tool_calls": raw["tool_calls"]}
            answers.append(_event_message(inner, ASSISTANT, number))
            finish = finish or (raw["finish_reason"] if isinstance(raw.get("finish_reason"), str) else "")
        elif event.name.endswith(".message"):
            messages.append(_event_message(raw, event.name.split(".")[1], number))
    return messages, answers, finish


def _event_message(raw: Mapping[str, Any], role: str, number: int) -> Message:
    value = {key: raw[key] for key in ("role", "content", "name") if raw.get(key) is not None}
    value.setdefault("role", role)
    calls = _from_json(raw.get("tool_calls"))
    if calls:
        value["tool_calls"] = calls
    if raw.get("id") is not None:
        value["tool_call_id"] = raw["id"]
    value.setdefault("content", "")  # content capture may be off for some roles only
    return message_from_chat(value, number)


def _numbered(attributes: Mapping[str, Any], prefixes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Objects spread over numbered attributes: `gen_ai.prompt.0.role` is `role` of the first."""
    for prefix in prefixes:
        found: dict[int, dict[str, Any]] = {}
        for key, value in attributes.items():
            if not key.startswith(prefix):
                continue
            number, _, path = key[len(prefix) :].partition(".")
            if number.isdecimal() and len(number) < 7 and int(number) < _MAX_NUMBER and path:
                found.setdefault(int(number), {})[path] = value
        if found:
            yield from (_nested(found[number]) for number in sorted(found))
            return


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A message of the chat interface from the rest of its numbered names."""
    value: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    texts: dict[int, str] = {}
    for path, item in flat.items():
        name = path.removeprefix("message.")
        head, _, rest = name.partition(".")
        number, _, field = rest.partition(".")
        if head == "tool_calls" and number.isdecimal() and len(number) < 7:
            calls.setdefault(int(number), {})[field.removeprefix("tool_call.").removeprefix("function.")] = item
        elif head == "contents" and number.isdecimal() and len(number) < 7 and field.endswith("text"):
            texts[int(number)] = item if isinstance(item, str) else ""
        else:
            value[name] = item
    if isinstance(value.get("content"), str) and value["content"][:2] == "[{":
        parts = _from_json(value["content"])
        if isinstance(parts, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
            value["content"] = parts
    if calls:
        value["tool_calls"] = [calls[number] for number in sorted(calls)]
    if texts and "content" not in value:
        value["content"] = "\n\n".join(texts[number] for number in sorted(texts))
    value.setdefault("content", None if calls else "")
    return value


OTEL_GENAI = Format(FORMAT_NAME, _recognises, _read)
