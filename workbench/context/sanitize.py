"""Tool messages in the order and form that strict providers take.

In: the messages of a request and the tools it offers. Out: messages in which every call has its result, and
for each the index of the message it came from. What can't stay becomes a user message that says what it was.
Implements ASM-SAN (section 8).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from workbench.context.assemble import Assembly, Piece
from workbench.context.project import Lane
from workbench.model.types import ASSISTANT, TOOL, USER, Message, ToolCall, ToolSpec

_MAX_REMEMBERED = 8192


def sanitize_messages_with_tools(
    messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """Sanitised messages, and for each the index of its source (ASM-SAN-02 to -05)."""
    return _sanitized(messages, schemas_of(tools))


def _sanitized(messages: Sequence[Message], schemas: Schemas) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    out: list[Message] = []
    sources: list[int] = []
    i = 0
    while i < len(messages):
        message = messages[i]
        if message.role == ASSISTANT and message.tool_calls:
            end = i + 1
            while end < len(messages) and messages[end].role == TOOL:
                end += 1
            _Round(messages, i, end, schemas).write(out, sources)
            i = end
            continue
        out.append(_orphan_result(message) if message.role == TOOL else message)
        sources.append(i)
        i += 1
    return tuple(out), tuple(sources)


def sanitize_assembly(assembly: Assembly, tools: Sequence[ToolSpec] = ()) -> Assembly:
    """The assembly with sanitised messages; kinds and positions follow their messages."""
    messages, sources = sanitize_messages_with_tools(assembly.messages, tools)
    if all(map(_is, messages, assembly.messages)) and len(messages) == len(assembly):
        return assembly
    lane = lane_of(messages, sources, assembly.kinds, assembly.positions)
    merged = assembly.merged_positions
    lane.sources = {i: merged[source] for i, source in enumerate(sources) if source in merged}
    summary = assembly.summary
    if summary is not None:
        summary = replace(summary, message_index=sources.index(summary.message_index))
    return replace(
        assembly, pieces=(Piece(lane, 0, len(lane)),), summary=summary, _messages=None, _kinds=None, _positions=None
    )


def sanitized_lane(lane: Lane, schemas: Schemas) -> Lane:
    """A lane with sanitised messages, or the lane itself when there's nothing to mend.

    The lane must not start with a result whose call stands before it.
    """
    if is_clean(lane.messages, schemas):
        return lane
    messages, sources = _sanitized(lane.messages, schemas)
    clean = lane_of(messages, sources, lane.kinds, lane.positions)
    clean.rewrites, clean.covered = lane.rewrites, lane.covered
    clean.sources = {i: lane.sources[source] for i, source in enumerate(sources) if source in lane.sources}
    clean.is_verbatim = False
    users = set(lane.users())
    clean.set_users(i for i, source in enumerate(sources) if source in users)
    return clean


def lane_of(
    messages: Sequence[Message], sources: Sequence[int], kinds: Sequence[str], positions: Sequence[int]
) -> Lane:
    """A lane of messages that came from others."""
    return Lane(list(messages), [kinds[i] for i in sources], [positions[i] for i in sources])


def is_clean(messages: Sequence[Message], schemas: Schemas) -> bool:
    """Sanitising would change nothing."""
    waiting: list[str] = []  # ids of the calls whose results must come next
    in_round: set[str] = set()
    for message in messages:
        if message.role == TOOL:
            if message.tool_id not in in_round or message.tool_id not in waiting:
                return False
            waiting.remove(message.tool_id)
            continue
        if waiting:
            return False
        in_round = set()
        if message.role == ASSISTANT and message.tool_calls:
            waiting = [call.id for call in message.tool_calls]
            in_round = set(waiting)
            if len(in_round) != len(waiting) or "" in in_round:
                return False
            for call in message.tool_calls:
                if fault_of(call, schemas) or (call.arguments.strip() or "{}") != call.arguments:
                    return False
    return not waiting


def _is(a: object, b: object) -> bool:
    return a is b


# --- one round ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Round:
    """An assistant message with calls and the tool messages directly behind it."""

    messages: Sequence[Message]
    start: int
    end: int
    schemas: Schemas
    valid: list[ToolCall] = field(default_factory=list)
    invalid: list[tuple[ToolCall, str]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    invalid_results: dict[str, list[int]] = field(default_factory=dict)

    def write(self, out: list[Message], sources: list[int]) -> None:
        """Kept calls and results, orphan calls, invalid calls with their results, orphan results (ASM-SAN-04)."""
        self._judge_calls()
        self._judge_results()

        def add(message: Message, source: int) -> None:
            out.append(message)
            sources.append(source)

        answered = {self.messages[i].tool_id for i in self.kept}
        calls = tuple(call for call in self.valid if call.id in answered)
        assistant = self.messages[self.start]
        if calls or assistant.content or assistant.content_parts:
            add(assistant if calls == assistant.tool_calls else replace(assistant, tool_calls=calls), self.start)
        for i in self.kept:
            add(self.messages[i], i)
        for call in self.valid:
            if call.id not in answered:
                add(_orphan_call(call), self.start)
        written: set[str] = set()
        for call, fault in self.invalid:
            add(_invalid_call(call, fault), self.start)
            if call.id not in written:
                written.add(call.id)
                for i in self.invalid_results.get(call.id, ()):
                    add(_invalid_result(self.messages[i]), i)
        for i in self.orphans:
            add(_orphan_result(self.messages[i]), i)

    def _judge_calls(self) -> None:
        for call in self.messages[self.start].tool_calls:
            fault = fault_of(call, self.schemas)
            if fault:
                self.invalid.append((call, fault))
            else:
                arguments = call.arguments.strip() or "{}"
                self.valid.append(call if arguments == call.arguments else replace(call, arguments=arguments))

    def _judge_results(self) -> None:
        waiting = {call.id for call in self.valid if call.id}
        invalid = {call.id for call, _ in self.invalid if call.id} - waiting
        for i in range(self.start + 1, self.end):
            tool_id = self.messages[i].tool_id
            if tool_id in waiting:
                waiting.discard(tool_id)
                self.kept.append(i)
            elif tool_id in invalid:
                self.invalid_results.setdefault(tool_id, []).append(i)
            else:
                self.orphans.append(i)


def _note(tag: str, sentence: str, facts: Sequence[tuple[str, str]], payload: tuple[str, str]) -> Message:
    lines = [f"{tag} {sentence}", *(f"{name}: {value}" for name, value in facts), f"{payload[0]}:", payload[1]]
    return Message(role=USER, content="\n".join(lines))


def _invalid_call(call: ToolCall, fault: str) -> Message:
    return _note(
        "[invalid_tool_call]",
        f"The assistant asked for a tool in a form that can't be sent again ({fault}).",
        [("name", call.name), ("id", call.id)],
        ("arguments", call.arguments),
    )


def _orphan_call(call: ToolCall) -> Message:
    return _note(
        "[orphan_tool_call]",
        "The assistant asked for a tool, and no result is known.",
        [("name", call.name), ("id", call.id)],
        ("arguments", call.arguments),
    )


def _invalid_result(message: Message) -> Message:
    return _note(
        "[invalid_tool_result]",
        "This is what a tool answered to a call that can't be sent again.",
        [("tool_call_id", message.tool_id), ("tool_name", message.tool_name)],
        ("content", message.content),
    )


def _orphan_result(message: Message) -> Message:
    return _note(
        "[orphan_tool_result]",
        "This is what a tool answered to a call that isn't here.",
        [("tool_call_id", message.tool_id), ("tool_name", message.tool_name)],
        ("content", message.content),
    )


# --- arguments ----------------------------------------------------------------------------------------

Schemas = dict[str, Any]
"""Tool name -> parsed JSON schema of its arguments."""


def schemas_of(tools: Sequence[ToolSpec]) -> Schemas:
    """The argument schemas of the tools that have a readable one."""
    return {tool.name: schema for tool in tools if (schema := _schema_of(tool)) is not None}


def _schema_of(tool: ToolSpec) -> Any:
    if tool.parameters_json:
        return _parsed(tool.parameters_json)
    declaration = _parsed(tool.declaration_json) if tool.declaration_json else None
    if not isinstance(declaration, dict):
        return None
    inner = declaration.get("function", declaration)
    if not isinstance(inner, dict):
        return None
    return next((inner[name] for name in ("parameters", "inputSchema", "input_schema") if name in inner), None)


@lru_cache(maxsize=_MAX_REMEMBERED)
def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def fault_of(call: ToolCall, schemas: Schemas) -> str:
    """What is wrong with a call; empty when nothing is (ASM-SAN-02, -03)."""
    if not call.name.strip():
        return "it has no name"
    if not _is_json(call.arguments):
        return "its arguments aren't JSON"
    schema = schemas.get(call.name)
    if schema is None:
        return ""
    value = _parsed(call.arguments.strip() or "{}")
    wrong = _type_fault(value, schema, schema, "$", at_top=True)
    return f"wrong type at {wrong}" if wrong else ""


@lru_cache(maxsize=_MAX_REMEMBERED)
def _is_json(text: str) -> bool:
    try:
        json.loads(text.strip() or "{}", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _type_fault(value: Any, schema: Any, root: Any, path: str, *, at_top: bool = False) -> str:
    """Path of the first value whose type the schema doesn't allow; empty if there's none.

    Types only: neither `required` nor additional keys count, since arguments may have been replaced by a note.
    """
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or (value is None and not at_top):
        return ""
    kinds = _kinds_of(schema)
    if not kinds:
        return ""
    if not any(_has_kind(value, kind) for kind in kinds):
        return path
    if isinstance(value, dict):
        properties = schema.get("properties")
        for key, inner in properties.items() if isinstance(properties, dict) else ():
            if key in value and (fault := _type_fault(value[key], inner, root, f"{path}.{key}")):
                return fault
    if isinstance(value, list):
        for i, item in enumerate(value):
            if fault := _type_fault(item, schema.get("items"), root, f"{path}[{i}]"):
                return fault
    return ""


def _kinds_of(schema: dict[str, Any]) -> list[str]:
    kind = schema.get("type")
    if isinstance(kind, str) and kind:
        return [kind]
    if isinstance(kind, list):
        return [one for one in kind if isinstance(one, str)]
    if schema.get("properties"):
        return ["object"]
    return ["array"] if schema.get("items") else []


def _has_kind(value: Any, kind: str) -> bool:
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return value is None if kind == "null" else True


def _resolved(schema: Any, root: Any) -> Any:
    """Follow local references; one that leads nowhere (or in a circle) allows everything."""
    for _ in range(16):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        name = schema["$ref"].removeprefix("#/$defs/")
        defs = root.get("$defs") if isinstance(root, dict) else None
        schema = defs.get(name) if isinstance(defs, dict) else None
    return None
