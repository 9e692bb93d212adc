"""The format `langchain`: message objects as LangChain serializes them, and LangSmith's runs of chat models.

In: lists of messages, bare or under `messages`, in any of three spellings (`{"type": "human", "data": ...}`, the
constructor with `lc` and `kwargs`, the plain dump), or runs with `inputs` and `outputs`. Out: conversations. Runs
repeat the history; they're chained like logged requests (WB-REC-04a).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import Any

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Message, Usage
from workbench.recordings.blocks import BLOCK_TYPES, Blocks
from workbench.recordings.chat import check_usage, compact_json, message_from_chat, token_count, tools_from_chat
from workbench.recordings.draft import Draft
from workbench.recordings.envelope import text_or_empty
from workbench.recordings.moments import moment_ns
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import SESSION_KEYS, Format, Reading, joined, own_id, values_of
from workbench.recordings.request_log import Chain, Exchange, RequestLog
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "langchain"
_ROLES = {"human": USER, "ai": ASSISTANT, "system": SYSTEM, "tool": TOOL, "function": TOOL, "developer": SYSTEM}
_CALLS = ("llm", "chat_model")


def _fields_of(raw: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Type and fields of a message object; None when it isn't one."""
    if not isinstance(raw, dict):
        return None
    if isinstance(raw.get("kwargs"), dict) and isinstance(raw.get("id"), list) and raw["id"]:
        name = str(raw["id"][-1])
        fields = raw["kwargs"]
    elif isinstance(raw.get("data"), dict) and isinstance(raw.get("type"), str):
        name, fields = raw["type"], raw["data"]
    elif isinstance(raw.get("type"), str) and "content" in raw and "role" not in raw:
        name, fields = raw["type"], raw
    else:
        return None
    kind = name.removesuffix("Chunk").removesuffix("Message").lower()
    return ("human" if kind == "chat" and fields.get("role") == USER else kind), fields


def _is_message(raw: Any) -> bool:
    found = _fields_of(raw)
    return found is not None and found[0] in _ROLES and "content" in found[1]


def _is_list(raw: Any) -> bool:
    return isinstance(raw, list) and bool(raw) and all(_is_message(item) for item in raw[:3])


def _is_run(value: Any) -> bool:
    return isinstance(value, dict) and value.get("run_type") in _CALLS and isinstance(value.get("inputs"), dict)


def _recognises(value: Any) -> bool:
    return (
        _is_list(value)
        or _is_message(value)
        or (isinstance(value, dict) and (_is_list(value.get("messages")) or _is_run(value)))
    )


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    log = RequestLog(reading)
    runs: list[Exchange] = []
    others = 0
    for row, value in values_of(joined(rows, _is_message, reading), reading):
        try:
            if isinstance(value, dict) and isinstance(value.get("run_type"), str):
                if _is_run(value):
                    runs.append(_exchange(value, row, reading))
                else:
                    others += 1
            else:
                yield _conversation(value, row, reading)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)
    reading.lose("runs that are no model calls (chains, tools, retrievers)", others)
    for exchange in sorted(runs, key=lambda run: run.time_ns or 0):
        log.take(exchange)
    yield from log.conversations(_logged)


def _conversation(value: Any, row: Row, reading: Reading) -> Conversation:
    outer: Mapping[str, Any] = value if isinstance(value, dict) else {}
    messages = value if isinstance(value, list) else outer.get("messages")
    if not isinstance(messages, list):
        raise FaultyRecordError(f"messages is {kind_of(messages)}, expected an array")
    draft = Draft(reading, line=row.line)
    for number, raw in enumerate(messages, 1):
        message, fields = _message(raw, number)
        if message.role == ASSISTANT:
            draft.add(message, usage=_usage(fields), model=_model(fields), answer_id=text_or_empty(fields.get("id")))
        else:
            draft.add(message)
    return draft.finish(
        FORMAT_NAME, wanted_id=own_id(outer, *SESSION_KEYS, "id"), tools=tools_from_chat(outer.get("tools"))
    )


def _message(raw: Any, number: int) -> tuple[Message, Mapping[str, Any]]:
    """One message and the fields that it came from.

    Raises:
        FaultyRecordError: it isn't one.
    """
    found = _fields_of(raw)
    if found is None:
        if isinstance(raw, dict) and "role" in raw:  # LangSmith keeps what the caller gave, which may be plain
            return message_from_chat(raw, number), raw
        raise FaultyRecordError(f"message {number} is {kind_of(raw)}, expected a message object")
    kind, fields = found
    role = _ROLES.get(kind)
    if role is None:
        raise FaultyRecordError(f"role {quoted(kind)}", "expected human, ai, system or tool")
    extra = fields.get("additional_kwargs")
    extra = extra if isinstance(extra, dict) else {}
    content = fields.get("content")
    plain: dict[str, Any] = {"role": role, "content": content}
    if role == ASSISTANT:
        plain |= {key: extra[key] for key in ("tool_calls", "function_call", "reasoning_content") if extra.get(key)}
        if isinstance(calls := fields.get("tool_calls"), list) and calls:
            plain["tool_calls"] = [_call(call) for call in calls]
            plain.pop("function_call", None)
    elif role == TOOL:
        plain |= {"tool_call_id": fields.get("tool_call_id"), "name": fields.get("name")}
        if isinstance(content, list | dict) and not _are_parts(content):
            plain["content"] = compact_json(content)
    if role == ASSISTANT and _has_blocks(content):
        blocks = Blocks(content, number).answer()
        calls_of = message_from_chat({**plain, "content": ""}, number)
        return _with_calls(blocks, calls_of), fields
    return message_from_chat(plain, number), fields


def _with_calls(blocks: Message, plain: Message) -> Message:
    """The answer in its blocks; the calls beside them are the same ones, already in the common form."""
    return Message(
        role=ASSISTANT,
        content=blocks.content,
        content_parts=blocks.content_parts,
        tool_calls=plain.tool_calls or blocks.tool_calls,
        reasoning_content=blocks.reasoning_content,
        reasoning_signature=blocks.reasoning_signature,
    )


def _has_blocks(content: Any) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, dict) and isinstance(part.get("type"), str) and part["type"] in BLOCK_TYPES for part in content
    )


def _are_parts(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, str) or (isinstance(part, dict) and "type" in part) for part in content
    )


def _call(raw: Any) -> Any:
    """A call in the form of the chat interface; its arguments are parsed here."""
    if not isinstance(raw, dict) or "function" in raw:
        return raw
    return {"id": raw.get("id"), "function": {"name": raw.get("name"), "arguments": raw.get("args")}}


def _usage(fields: Mapping[str, Any]) -> Usage | None:
    """Usage; its input includes what was read from and written to a cache (WB-REC-07)."""
    raw = fields.get("usage_metadata")
    if raw is None:
        return None
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"usage is {kind_of(raw)}, expected an object")
    details = raw.get("input_token_details")
    read = token_count(details, "cache read", "cache_read")
    usage = Usage(
        prompt_tokens=token_count(raw, "input", "input_tokens"),
        completion_tokens=token_count(raw, "output", "output_tokens"),
        total_tokens=token_count(raw, "total", "total_tokens"),
        cached_tokens=read,
        cache_creation_tokens=token_count(details, "cache creation", "cache_creation"),
        cache_read_tokens=read,
        reasoning_tokens=token_count(raw.get("output_token_details"), "reasoning", "reasoning"),
    )
    check_usage(usage)
    return None if usage == Usage() else usage


def _model(fields: Mapping[str, Any]) -> str:
    facts = fields.get("response_metadata")
    if not isinstance(facts, dict):
        return ""
    return text_or_empty(facts.get("model_name")) or text_or_empty(facts.get("model"))


# --- runs --------------------------------------------------------------------------------------------


def _exchange(value: Mapping[str, Any], row: Row, reading: Reading) -> Exchange:
    raw = value["inputs"].get("messages")
    if isinstance(raw, list) and raw and isinstance(raw[0], list):  # a batch of one
        raw = raw[0]
    if not isinstance(raw, list):
        raise FaultyRecordError(f"messages is {kind_of(raw)}, expected an array")
    messages = tuple(_message(item, number)[0] for number, item in enumerate(raw, 1))
    answer, fields = _answer(value.get("outputs"), len(messages) + 1)
    return Exchange(
        line=row.line,
        session_id=_thread(value),
        messages=messages,
        answer=answer,
        usage=_usage(fields),
        model=_model(fields),
        answer_id=own_id(value, "id"),
        time_ns=moment_ns(value.get("start_time"), reading.options, default_zone=UTC),
        answered_ns=moment_ns(value.get("end_time"), reading.options, default_zone=UTC),
        source=value,
    )


def _answer(outputs: Any, number: int) -> tuple[Message | None, Mapping[str, Any]]:
    """The message that a run put out, and its fields; None when it failed."""
    if not isinstance(outputs, dict):
        return None, {}
    raw = outputs.get("generations", outputs.get("messages", outputs.get("message", outputs.get("output", outputs))))
    while isinstance(raw, list):
        raw = raw[0] if raw else None
    if isinstance(raw, dict) and isinstance(raw.get("message"), dict):
        raw = raw["message"]
    if not (_is_message(raw) or (isinstance(raw, dict) and "role" in raw)):
        return None, {}
    return _message(raw, number)


def _thread(value: Mapping[str, Any]) -> str:
    """The thread that a run belongs to, as its metadata names it."""
    extra = value.get("extra")
    metadata = extra.get("metadata") if isinstance(extra, dict) else None
    return own_id(metadata, *SESSION_KEYS) if isinstance(metadata, dict) else ""


def _logged(chain: Chain, reading: Reading) -> Conversation:
    value: Mapping[str, Any] = chain.last.source
    extra = value.get("extra")
    parameters = extra.get("invocation_params") if isinstance(extra, dict) else None
    tools = parameters.get("tools") if isinstance(parameters, dict) else None
    return chain.draft(reading).finish(FORMAT_NAME, wanted_id=chain.first.session_id, tools=tools_from_chat(tools))


LANGCHAIN = Format(FORMAT_NAME, _recognises, _read)
