"""The format `sharegpt`: `conversations` of turns with `from` and `value`, as fine-tuning sets have them.

In: rows with `conversations`, perhaps `system` and `tools` beside it. Out: conversations. Turns of `function_call` are
answers that ask for a tool, `observation` is its result. There are no times and no usage in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Message, ToolCall
from workbench.recordings.chat import arguments_text, tools_from_chat
from workbench.recordings.draft import Draft
from workbench.recordings.problems import FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import Format, Reading, own_id, values_of
from workbench.recordings.rows import Row
from workbench.recordings.strict_json import loads
from workbench.recordings.types import Conversation

FORMAT_NAME = "sharegpt"
_CALL = "function_call"
_ROLES = {
    "human": USER, "user": USER, "gpt": ASSISTANT, "assistant": ASSISTANT, "chatgpt": ASSISTANT, "bing": ASSISTANT,
    "bard": ASSISTANT, "model": ASSISTANT, "system": SYSTEM, "observation": TOOL, "tool": TOOL, "function_response": TOOL,
    "tool_response": TOOL, _CALL: ASSISTANT, "tool_call": ASSISTANT,
}  # fmt: skip


def _recognises(value: Any) -> bool:
    turns = value.get("conversations") if isinstance(value, dict) else None
    return isinstance(turns, list) and bool(turns) and all(
        isinstance(turn, dict) and "from" in turn and "value" in turn for turn in turns[:3]
    )  # fmt: skip


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    for row, value in values_of(rows, reading):
        try:
            yield _conversation(value, row, reading)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)


def _conversation(value: Any, row: Row, reading: Reading) -> Conversation:
    if not isinstance(value, dict):
        raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
    turns = value.get("conversations")
    if not isinstance(turns, list):
        raise FaultyRecordError(f"conversations is {kind_of(turns)}, expected an array")
    draft = Draft(reading, line=row.line)
    if isinstance(value.get("system"), str) and value["system"]:
        draft.add(Message(role=SYSTEM, content=value["system"]))
    for number, turn in enumerate(turns, 1):
        draft.add(_message(turn, number))
    return draft.finish(
        FORMAT_NAME,
        wanted_id=own_id(value, "id", "conversation_id"),
        model=value["model"] if isinstance(value.get("model"), str) else "",
        tools=tools_from_chat(_json_of(value.get("tools")) or None),
    )


def _message(turn: Any, number: int) -> Message:
    if not isinstance(turn, dict):
        raise FaultyRecordError(f"message {number} is {kind_of(turn)}, expected an object")
    speaker, text = turn.get("from"), turn.get("value")
    role = _ROLES.get(speaker.lower()) if isinstance(speaker, str) else None
    if role is None:
        raise FaultyRecordError(f"role {quoted(speaker)}", "expected human, gpt, system, function_call or observation")
    if text is None:
        raise FaultyRecordError(f"message {number} has neither content nor tool calls")
    if not isinstance(text, str):
        raise FaultyRecordError(f"message {number}: content is {kind_of(text)}, expected text or parts")
    if speaker in (_CALL, "tool_call"):
        calls = _calls(_json_of(text))
        if calls:
            return Message(role=ASSISTANT, tool_calls=calls)
    return Message(role=role, content=text)


def _calls(raw: Any) -> tuple[ToolCall, ...]:
    """The calls in a turn's text: an object with name and arguments, or several."""
    items = raw if isinstance(raw, list) else [raw]
    if not all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items):
        return ()
    return tuple(
        ToolCall(name=item["name"], arguments=arguments_text(item.get("arguments", item.get("parameters"))))
        for item in items
    )


def _json_of(raw: Any) -> Any:
    """The value of a JSON text; other values as they are, other texts as nothing."""
    if not isinstance(raw, str):
        return raw
    try:
        return loads(raw)
    except FaultyRecordError:
        return None


SHAREGPT = Format(FORMAT_NAME, _recognises, _read)
