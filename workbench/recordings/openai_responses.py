"""The format `openai-responses`: lists of items as OpenAI's newer interface takes them.

In: item lists (bare, under `items` or `input`) and logged requests with their responses. Out: conversations. Reasoning, text and calls that follow each other are one answer. A request that
continues an earlier response by its id has that one's history; others repeat theirs (WB-REC-04a).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, Message, ToolCall
from workbench.recordings.chat import arguments_text, compact_json, message_from_chat, tools_from_chat, usage_from_chat
from workbench.recordings.draft import Draft
from workbench.recordings.envelope import TIME_KEYS, text_or_empty
from workbench.recordings.moments import moment_ns
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import SESSION_KEYS, Format, Reading, joined, own_id, values_of
from workbench.recordings.request_log import Chain, Exchange, RequestLog
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "openai-responses"
BUILT_IN_KEPT = "calls of the provider's own tools, kept as text of the answer"
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call")
_OUTPUTS = tuple(f"{name}_output" for name in _CALLS)
_ITEM_TYPES = frozenset((*_CALLS, *_OUTPUTS, "reasoning", "item_reference"))
_SEEN_ITEMS = 40


@dataclass(slots=True)
class _Items:
    """The messages of an item list."""

    messages: list[Message] = field(default_factory=list)
    n_built_in: int = 0
    n_unresolved: int = 0
    _has_text: bool = False
    """The answer that is being put together has its text already."""

    def take(self, items: Any, name: str) -> _Items:
        """Take the items of a list, or a text, which is what the user said.

        Raises:
            FaultyRecordError: neither, or an item of an unknown kind.
        """
        if isinstance(items, str):
            self.messages.append(Message(role="user", content=items))
            return self
        if not isinstance(items, list):
            raise FaultyRecordError(f"{name} is {kind_of(items)}, expected an array")
        for number, item in enumerate(items, 1):
            self._take_item(item, number)
        return self

    def _take_item(self, item: Any, number: int) -> None:
        if not isinstance(item, dict):
            raise FaultyRecordError(f"message {number} is {kind_of(item)}, expected an object")
        kind = item.get("type", "message")
        if kind == "message":
            message = message_from_chat(item, number)
            if message.role == ASSISTANT:
                parts = message.content_parts
                if parts and all(part.type == "text" for part in parts):
                    message = replace(message, content="\n\n".join(part.text for part in parts), content_parts=())
                self._extend(message)
            else:
                self.messages.append(message)
        elif kind == "reasoning":
            self._extend(Message(role=ASSISTANT, reasoning_content=_reasoning(item)))
        elif kind in _CALLS:
            arguments = item.get("arguments", item.get("input", item.get("action")))
            call_id = str(item.get("call_id") or item.get("id") or "")
            name = text_or_empty(item.get("name")) or str(kind).removesuffix("_call")
            call = ToolCall(id=call_id, name=name, arguments=arguments_text(arguments))
            self._extend(Message(role=ASSISTANT, tool_calls=(call,)))
        elif kind in _OUTPUTS:
            content = item.get("output")
            text = content if isinstance(content, str) else _text_of(content)
            self.messages.append(Message(role=TOOL, content=text, tool_id=str(item.get("call_id") or "")))
        elif kind == "item_reference":
            self.n_unresolved += 1
        elif isinstance(kind, str) and kind.endswith(("_call", "_call_output", "_list_tools", "compaction")):
            self.n_built_in += 1
            self._extend(Message(role=ASSISTANT, content=compact_json(item)))
        else:
            name = quoted(kind) if isinstance(kind, str) else kind_of(kind)
            raise FaultyRecordError(f"message {number}: type {name} is not known")

    def _extend(self, piece: Message) -> None:
        """Add a piece of an answer to the one before it, unless that has come to its text or its calls already."""
        last = self.messages[-1] if self.messages else None
        is_text = bool(piece.content or piece.content_parts)
        starts = last is None or last.role != ASSISTANT or (last.tool_calls and not piece.tool_calls)
        if last is None or starts or (is_text and self._has_text) or (piece.reasoning_content and self._has_text):
            self.messages.append(piece)
            self._has_text = is_text
            return
        self.messages[-1] = replace(
            last,
            content="\n\n".join(text for text in (last.content, piece.content) if text),
            content_parts=last.content_parts + piece.content_parts,
            tool_calls=last.tool_calls + piece.tool_calls,
            reasoning_content="\n\n".join(text for text in (last.reasoning_content, piece.reasoning_content) if text),
        )
        self._has_text = self._has_text or is_text


def _reasoning(item: Mapping[str, Any]) -> str:
    return "\n\n".join(text for key in ("summary", "content") if (text := _text_of(item.get(key), or_json=False)))


def _text_of(raw: Any, *, or_json: bool = True) -> str:
    """The texts of parts; what isn't text stays as JSON."""
    if raw is None:
        return ""
    if isinstance(raw, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in raw]
        known = [text for text in texts if isinstance(text, str)]
        if len(known) == len(texts):
            return "\n".join(known)
    return compact_json(raw) if or_json else ""


def _is_item(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] in _ITEM_TYPES


def _is_piece(value: Any) -> bool:
    """One item in a row of its own."""
    return isinstance(value, dict) and (_is_item(value) or (isinstance(value.get("role"), str) and "content" in value))


def _is_item_list(value: Any) -> bool:
    """A list of items, surely not of messages of the chat interface."""
    if not isinstance(value, list):
        return False
    items = value[:_SEEN_ITEMS]
    return any(
        _is_item(item) or (isinstance(item, dict) and item.get("type") == "message" and "role" in item)
        for item in items
    )


def _is_response(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("output"), list) and (
        value.get("object") == "response" or _is_item_list(value["output"])
    )  # fmt: skip


def _request_in(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The object that holds `input`: the row or the request in it."""
    for part in (value, value.get("request"), value.get("body"), value.get("kwargs")):
        if isinstance(part, dict) and isinstance(part.get("input"), list | str):
            return part
    return None


def _response_in(value: Mapping[str, Any]) -> Any:
    answer = value.get("response")
    if isinstance(answer, dict) and isinstance(answer.get("body"), dict):
        answer = answer["body"]
    return answer if answer is not None else value if isinstance(value.get("output"), list) else None


def _recognises(value: Any) -> bool:
    if _is_item_list(value):
        return True
    if not isinstance(value, dict):
        return False
    if _is_item(value) or _is_item_list(value.get("items")):
        return True
    request = _request_in(value)
    return request is not None and (_is_item_list(request["input"]) or _is_response(_response_in(value)))


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    log = RequestLog(reading)
    answered: dict[str, tuple[Message, ...]] = {}
    for row, value in values_of(joined(rows, _is_piece, reading), reading):
        try:
            response = _response_in(value) if isinstance(value, dict) else None
            if response is None:
                yield _conversation(value, row, reading)
            else:
                exchange = _exchange(value, response, row, reading, answered)
                log.take(exchange)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)
    yield from log.conversations(_logged)


def _conversation(value: Any, row: Row, reading: Reading) -> Conversation:
    outer: Mapping[str, Any] = value if isinstance(value, dict) else {}
    request = _request_in(outer) or outer
    items: Any = value
    name = "items"
    if isinstance(value, list):
        first = value[0] if value and isinstance(value[0], dict) else {}
        outer = {key: first[key] for key in SESSION_KEYS if key in first}
    elif isinstance(value, dict):
        name = "items" if "items" in value else "input"
        items = value["items"] if name == "items" else request.get("input")
    else:
        raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
    draft = Draft(reading, line=row.line)
    if instructions := text_or_empty(request.get("instructions")):
        draft.add(Message(role=SYSTEM, content=instructions))
    found = _Items().take(items, name)
    for message in found.messages:
        draft.add(message)
    _lose(draft, found)
    return draft.finish(
        FORMAT_NAME,
        wanted_id=own_id(outer, *SESSION_KEYS, "id"),
        user_id=own_id(outer, "user_id", "user"),
        model=text_or_empty(request.get("model")),
        tools=tools_from_chat(request.get("tools")),
    )


def _lose(draft: Draft, found: _Items) -> None:
    if found.n_built_in:
        draft.lose(BUILT_IN_KEPT, found.n_built_in)
    if found.n_unresolved:
        draft.lose("references to items that aren't in the file", found.n_unresolved)


def _exchange(
    value: Mapping[str, Any], response: Any, row: Row, reading: Reading, answered: dict[str, tuple[Message, ...]]
) -> Exchange:
    """The row as one logged request with its response."""
    if not isinstance(response, dict):
        raise FaultyRecordError(f"response is {kind_of(response)}, expected an object")
    request = _request_in(value)
    if request is None:
        raise FaultyRecordError("no messages", 'expected an "input" list')
    instructions = text_or_empty(request.get("instructions", response.get("instructions")))
    before = request.get("previous_response_id", response.get("previous_response_id"))
    history = answered.get(before, ()) if isinstance(before, str) else ()
    if before and not history:
        reading.lose("requests that continue a response which isn't in the file")
    messages = (*history, *_Items().take(request["input"], "input").messages)
    found = _Items().take(response.get("output") or [], "output")
    answers = found.messages
    reading.lose(BUILT_IN_KEPT, found.n_built_in)
    answer_id = text_or_empty(response.get("id"))
    if answer_id:
        answered[answer_id] = (*messages, *answers[:1])
    if len(answers) > 1:
        reading.lose("further texts of a response, left out", len(answers) - 1)
    time = next(
        (part[key] for part in (value, request, response) for key in TIME_KEYS if part.get(key) is not None), None
    )
    system = (Message(role=SYSTEM, content=instructions),) if instructions else ()
    return Exchange(
        line=row.line,
        session_id=own_id(value, *SESSION_KEYS) or _conversation_id(request),
        messages=(*system, *messages),
        answer=answers[0] if answers else None,
        usage=usage_from_chat(response.get("usage")),
        model=text_or_empty(response.get("model")),
        answer_id=answer_id,
        finish_reason=text_or_empty(response.get("status")),
        time_ns=moment_ns(time, reading.options),
        source=(value, request),
    )


def _conversation_id(request: Mapping[str, Any]) -> str:
    """The conversation that a request names, as an id or as an object."""
    raw = request.get("conversation")
    return own_id({"conversation_id": raw.get("id") if isinstance(raw, dict) else raw}, "conversation_id")


def _logged(chain: Chain, reading: Reading) -> Conversation:
    value, request = chain.last.source
    return chain.draft(reading).finish(
        FORMAT_NAME,
        wanted_id=chain.first.session_id,
        user_id=own_id(value, "user_id") or own_id(request, "user", "safety_identifier"),
        model=text_or_empty(request.get("model")),
        tools=tools_from_chat(request.get("tools")),
    )


OPENAI_RESPONSES = Format(FORMAT_NAME, _recognises, _read, dialect_of="openai-chat")
