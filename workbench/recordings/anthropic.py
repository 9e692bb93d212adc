"""The format `anthropic`: messages with content blocks, the system prompt beside them.

In: rows that are `{"system": ..., "messages": [...]}`, a bare list of such messages, or a logged request with its
response, also as batch files write it. Out: conversations. Logged requests repeat the history; they're chained to
conversations by `request_log` (WB-REC-04a). A user message that holds only tool results is no person's
(WB-REC-04 rule 2). Several rows of one response are one answer, and its usage is counted once (WB-REC-07).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Message, Usage
from workbench.recordings.blocks import BLOCK_TYPES, Blocks, usage_from_blocks
from workbench.recordings.chat import role_of
from workbench.recordings.draft import ROWS_MERGED, Draft
from workbench.recordings.envelope import TIME_KEYS, Envelope, body_of, messages_of, text_or_empty
from workbench.recordings.moments import moment_ns
from workbench.recordings.problems import FaultyRecordError, kind_of
from workbench.recordings.reading import SESSION_KEYS, Format, Reading, joined, own_id, values_of
from workbench.recordings.request_log import Chain, Exchange, RequestLog
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "anthropic"
SERVER_SIDE_KEPT = "calls and results of the provider's own tools, kept as text of the answer"
_ROLES = (USER, ASSISTANT, SYSTEM)
_ANSWER_KEYS = ("response", "completion", "output", "result", "message")
_BODY_MARKS = ("anthropic_version", "anthropic_beta")
_SEEN_MESSAGES = 40
_SESSION_OF_USER = re.compile(r"_session_([0-9A-Fa-f-]{8,64})\Z")


def _recognises(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and _has_roles(value) and _has_blocks(value)
    if not isinstance(value, dict):
        return False
    if _is_piece(value):
        return _has_roles([value]) and _has_blocks([value])
    body = body_of(value)
    if body is None or not isinstance(body["messages"], list) or not _has_roles(body["messages"]):
        return False
    return (
        isinstance(body.get("system", value.get("system")), str | list)
        or any(mark in body or mark in value for mark in _BODY_MARKS)
        or _is_message(_answer_in(value))
        or _has_tools(body.get("tools"))
        or _has_blocks(body["messages"])
    )


def _is_piece(value: Any) -> bool:
    """One message in a row of its own."""
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "messages" not in value


def _has_roles(messages: list[Any]) -> bool:
    """All messages looked at have a role of this interface, and none the calls of another."""
    return all(
        isinstance(message, dict)
        and message.get("role") in _ROLES
        and "content" in message
        and not message.keys() & {"tool_calls", "tool_call_id", "function_call"}
        for message in messages[:_SEEN_MESSAGES]
    )


def _has_blocks(messages: list[Any]) -> bool:
    return any(
        isinstance(block, dict) and isinstance(block.get("type"), str) and block["type"] in BLOCK_TYPES
        for message in messages[:_SEEN_MESSAGES]
        if isinstance(message.get("content"), list)
        for block in message["content"]
    )


def _has_tools(raw: Any) -> bool:
    return isinstance(raw, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in raw)


def _answer_in(value: Mapping[str, Any]) -> Any:
    """The response in a row, out of what logs and batch results wrap it in."""
    answer = next((value[key] for key in _ANSWER_KEYS if value.get(key) is not None), None)
    for name in ("body", "message"):
        if isinstance(answer, dict) and "content" not in answer and isinstance(answer.get(name), dict):
            answer = answer[name]
    return answer


def _is_message(answer: Any) -> bool:
    return isinstance(answer, dict) and answer.get("type") == "message" and isinstance(answer.get("content"), list)


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    """Conversations as they come; those chained from logged requests at the end."""
    log = RequestLog(reading)
    answered: set[str] = set()
    for row, value in values_of(joined(rows, _is_piece, reading), reading):
        try:
            record = _record_of(value)
            if record.answer is None:
                yield _conversation(record, row, reading)
                continue
            exchange = _exchange(record, row, reading)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)
            continue
        if exchange.answer_id and exchange.answer_id in answered:
            reading.lose("requests logged twice; counted once")
            reading.lose(ROWS_MERGED)
            continue
        answered.add(exchange.answer_id)
        log.take(exchange)
    yield from log.conversations(_logged)


def _record_of(value: Any) -> Envelope:
    if isinstance(value, list):
        first = value[0] if value and isinstance(value[0], dict) else {}
        return Envelope(value, {name: first[name] for name in SESSION_KEYS if name in first}, {})
    body, messages = messages_of(value)
    return Envelope(messages, value, body, _answer_in(value))


def _system_of(record: Envelope) -> Iterator[Message]:
    """The system prompt, which stands beside the messages."""
    raw = record.field("system")
    if raw is not None:
        text = Blocks(raw, 0).text
        if text:
            yield Message(role=SYSTEM, content=text)


def _messages_from(raw: Any, number: int) -> tuple[list[Message], int]:
    """What one message holds: an answer; or tool results, then what a person said. And how much isn't portable.

    Raises:
        FaultyRecordError: it isn't one.
    """
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"message {number} is {kind_of(raw)}, expected an object")
    role = role_of(raw.get("role"))
    blocks = Blocks(raw.get("content"), number)
    if role == ASSISTANT:
        return [blocks.answer()], blocks.n_server_side
    messages = [Message(role=TOOL, content=text, tool_id=call_id) for call_id, text in blocks.results]
    if blocks.text or blocks.parts or not messages:
        messages.append(Message(role=role, content=blocks.text, content_parts=tuple(blocks.parts)))
    return messages, blocks.n_server_side


def _conversation(record: Envelope, row: Row, reading: Reading) -> Conversation:
    """A row that is a conversation of its own."""
    wanted_id = record.own_id(*SESSION_KEYS, "id", "custom_id")
    draft = Draft(reading, line=row.line)
    for message in _system_of(record):
        draft.add(message)
    for number, raw in enumerate(record.messages, 1):
        messages, n_server_side = _messages_from(raw, number)
        time = next((raw[key] for key in TIME_KEYS if raw.get(key) is not None), None)
        time_ns = moment_ns(time, reading.options)
        if n_server_side:
            draft.lose(SERVER_SIDE_KEPT, n_server_side)
        if messages[0].role == ASSISTANT:
            _add_answer(draft, messages[0], raw, time_ns)
            continue
        for message in messages:
            if message.role == USER and draft.has_answers and reading.options.observations == "tool":
                draft.add_observation(message, time_ns=time_ns)
            else:
                draft.add(message, time_ns=time_ns)
    usage, _ = usage_from_blocks(record.field("usage"))
    if usage is not None and not draft.annotate_answer(usage):
        draft.lose("usage without an answer it belongs to")
    return record.finish(draft, FORMAT_NAME, wanted_id=wanted_id)


def _add_answer(draft: Draft, message: Message, raw: Mapping[str, Any], time_ns: int | None) -> None:
    """An answer with what is reported beside it."""
    usage, lifetimes = usage_from_blocks(raw.get("usage"))
    draft.add(
        message,
        time_ns=time_ns,
        answer_id=own_id(raw, "id"),
        model=text_or_empty(raw.get("model")),
        usage=usage,
        finish_reason=text_or_empty(raw.get("stop_reason")),
        extensions=_extensions(lifetimes),
    )


def _extensions(lifetimes: Mapping[str, int]) -> dict[str, Any] | None:
    return {"cache_creation": dict(lifetimes)} if lifetimes else None


def _exchange(record: Envelope, row: Row, reading: Reading) -> Exchange:
    """The row as one logged request with its answer."""
    messages = list(_system_of(record))
    for number, raw in enumerate(record.messages, 1):
        messages += _messages_from(raw, number)[0]
    blocks, facts = _answer_of(record.answer, len(record.messages) + 1)
    if blocks is not None:
        reading.lose(SERVER_SIDE_KEPT, blocks.n_server_side)
    usage, lifetimes = _usage_of(record, facts)
    time = record.field(*TIME_KEYS)
    return Exchange(
        line=row.line,
        session_id=record.session_id() or _session_of_user(record),
        messages=tuple(messages),
        answer=None if blocks is None else blocks.answer(),
        usage=usage,
        model=text_or_empty(facts.get("model")),
        answer_id=text_or_empty(facts.get("id")),
        finish_reason=text_or_empty(facts.get("stop_reason")),
        time_ns=moment_ns(time, reading.options),
        extensions=_extensions(lifetimes),
        source=record,
    )


def _answer_of(raw: Any, number: int) -> tuple[Blocks | None, Mapping[str, Any]]:
    """The content of a response, and what the response says about itself; None for an error."""
    if isinstance(raw, str):
        return Blocks(raw, number), {}
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"response is {kind_of(raw)}, expected an object")
    if not raw.get("content"):
        return None, raw
    return Blocks(raw["content"], number), raw


def _usage_of(record: Envelope, facts: Mapping[str, Any]) -> tuple[Usage | None, Mapping[str, int]]:
    raw = facts.get("usage")
    return usage_from_blocks(record.field("usage") if raw is None else raw)


def _session_of_user(record: Envelope) -> str:
    """Coding agents put the session into the user's id."""
    metadata = record.body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    match = _SESSION_OF_USER.search(user) if isinstance(user, str) else None
    return match[1] if match else ""


def _logged(chain: Chain, reading: Reading) -> Conversation:
    record: Envelope = chain.last.source
    return record.finish(chain.draft(reading), FORMAT_NAME, wanted_id=chain.first.session_id)


ANTHROPIC = Format(FORMAT_NAME, _recognises, _read, dialect_of="openai-chat")
