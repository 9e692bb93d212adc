"""The format `claude-code`: session transcripts, one row per content block, linked to a tree.

In: rows with `uuid` and `parentUuid`. Out: one conversation per session, the path to its newest row, and one
per side chain. Rows of one answer are joined and its usage is counted once, also when a resumed session
repeats it in another file (WB-REC-07, BUG-26). Input, cache writes and cache reads are disjoint there; here
`prompt_tokens` is their sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.model.types import SYSTEM, TOOL, USER, Message
from workbench.recordings.blocks import Blocks, usage_from_blocks
from workbench.recordings.draft import ROWS_MERGED, Draft
from workbench.recordings.moments import moment_ns
from workbench.recordings.problems import ROW_LEFT_OUT, FaultyRecordError, kind_of, quoted
from workbench.recordings.reading import Format, Reading, own_id
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "claude-code"
_SYNTHETIC_MODEL = "<synthetic>"
_TREE_TYPES = ("user", "assistant", "system", "attachment", "progress")


@dataclass(slots=True)
class _Node:
    """One row of the tree."""

    line: int
    value: Mapping[str, Any]
    parent: str


@dataclass(slots=True)
class _Session:
    """The rows of one session."""

    line: int
    nodes: dict[str, _Node] = field(default_factory=dict)
    last_main: str = ""
    """The newest row that isn't in a side chain."""
    fault: FaultyRecordError | None = None
    summaries: list[str] = field(default_factory=list)
    cut_line: int | None = None


def _recognises(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if {"uuid", "parentUuid", "sessionId"} <= value.keys():
        return True
    return value.get("type") == "summary" and "leafUuid" in value


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    """Sessions in the order of their first rows; the tree needs the whole file."""
    sessions: dict[str, _Session] = {}
    current: _Session | None = None
    loose_summaries: list[str] = []
    for row in rows:
        reading.note_oddities(row)
        if row.cut and row.fault is not None and current is not None:
            current.cut_line = row.line
        elif (fault := row.refusal) is not None:
            # A broken row belongs to the session around it, whose tree has a hole without it.
            if current is None:
                reading.refuse(fault, row, outcome=ROW_LEFT_OUT)
            else:
                current.fault = current.fault or _at(fault, row.line)
        elif row.n_bytes:
            try:
                found = _take(row, sessions, loose_summaries)
            except FaultyRecordError as refused:
                reading.refuse(refused, row)
            else:
                current = found or current
    for session_id, session in sessions.items():
        session.summaries += loose_summaries if len(sessions) == 1 else []
        yield from _conversations(session_id, session, reading)


def _at(fault: FaultyRecordError, line: int) -> FaultyRecordError:
    fault.line = fault.line if fault.line is not None else line
    return fault


def _take(row: Row, sessions: dict[str, _Session], summaries: list[str]) -> _Session | None:
    """Put a row into its session, which is given back."""
    value = row.value
    if not isinstance(value, dict):
        raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
    if value.get("type") == "summary":
        if isinstance(value.get("summary"), str):
            summaries.append(value["summary"])
        return None
    if value.get("type") not in _TREE_TYPES or not isinstance(value.get("uuid"), str):
        return None  # file snapshots, queue operations and whatever else isn't part of the conversation
    session_id = own_id(value, "sessionId")
    if not session_id:
        raise FaultyRecordError("session id is empty")
    session = sessions.setdefault(session_id, _Session(row.line))
    known = session.nodes.get(value["uuid"])
    if known is not None:
        session.fault = session.fault or FaultyRecordError(
            f"event id {quoted(value['uuid'])} was used at line {known.line}", line=row.line
        )
        return session
    parent = value.get("parentUuid") or value.get("logicalParentUuid")
    is_side = bool(value.get("isSidechain"))
    if not isinstance(parent, str):  # a new root, such as after a compaction, goes on where the session stood
        parent = "" if is_side else session.last_main
    session.nodes[value["uuid"]] = _Node(row.line, value, parent)
    if not is_side:
        session.last_main = value["uuid"]
    return session


def _conversations(session_id: str, session: _Session, reading: Reading) -> Iterator[Conversation]:
    """The main path of a session, then its side chains."""
    if session.fault is not None:
        reading.refuse(session.fault)
        return
    main = {uuid: node for uuid, node in session.nodes.items() if not node.value.get("isSidechain")}
    side = {uuid: node for uuid, node in session.nodes.items() if node.value.get("isSidechain")}
    paths = [_path(main)] if main else []
    left = len(main) - len(paths[0]) if paths else 0
    paths += _side_paths(side)
    for place, path in enumerate(paths):
        wanted_id = session_id if place == 0 and main else f"{session_id}~side{place if main else place + 1}"
        try:
            draft = Draft(reading, line=path[0].line)
            for node in path:
                _add(draft, node, reading)
            if place == 0:
                if session.cut_line is not None:
                    draft.notes.add("cut", "last message is unfinished", "left out", line=session.cut_line)
                if left:
                    draft.lose("rows on abandoned branches", left)
            metadata = {"summaries": session.summaries} if session.summaries and place == 0 else {}
            yield draft.finish(FORMAT_NAME, wanted_id=wanted_id, metadata=metadata)
        except FaultyRecordError as fault:
            reading.refuse(_at(fault, path[0].line))


def _path(nodes: dict[str, _Node]) -> list[_Node]:
    """The rows from a root to the newest row; a parent that isn't in the file ends the way back."""
    path: list[_Node] = []
    seen: set[str] = set()
    uuid = next(reversed(nodes))
    while uuid in nodes and uuid not in seen:
        seen.add(uuid)
        path.append(nodes[uuid])
        uuid = nodes[uuid].parent
    path.reverse()
    if uuid and uuid not in nodes:  # the link leads out of the file: what stands before is still history
        first = path[0].line
        path[:0] = [node for node in nodes.values() if node.line < first]
    return path


def _side_paths(nodes: dict[str, _Node]) -> list[list[_Node]]:
    """One path per side chain, told apart by their roots."""
    root_of: dict[str, str] = {}
    chains: dict[str, dict[str, _Node]] = {}
    for uuid, node in nodes.items():
        root_of[uuid] = root_of.get(node.parent, uuid)
        chains.setdefault(root_of[uuid], {})[uuid] = node
    return [_path(members) for members in chains.values()]


def _add(draft: Draft, node: _Node, reading: Reading) -> None:
    """The messages of one row."""
    value = node.value
    kind = value.get("type")
    if kind not in ("user", "assistant"):
        draft.lose(f"rows of type {kind}")
        return
    if value.get("isCompactSummary"):
        draft.lose("summaries made by the recorded tool itself")
        return
    raw = value.get("message")
    if not isinstance(raw, dict):
        raise FaultyRecordError(f"message is {kind_of(raw)}, expected an object", line=node.line)
    facts: dict[str, Any] = {"line": node.line, "time_ns": moment_ns(value.get("timestamp"), reading.options)}
    if kind == "assistant":
        _add_answer(draft, raw, value, facts, reading)
    else:
        _add_user_row(draft, raw, value, facts)


def _add_answer(
    draft: Draft, raw: Mapping[str, Any], value: Mapping[str, Any], facts: dict[str, Any], reading: Reading
) -> None:
    if raw.get("model") == _SYNTHETIC_MODEL:
        draft.lose("messages made by the recorded tool, not by a model")
        return
    blocks = Blocks(raw.get("content"), draft.n_events + 1)
    message = blocks.answer()
    if not (message.has_payload or message.tool_calls):
        draft.lose("empty answers")
        return
    answer_id = f"{raw.get('id') or value['uuid']}/{value.get('requestId') or ''}"
    usage, split = usage_from_blocks(raw.get("usage"))
    billed_before = reading.log.billed_answers.setdefault(answer_id, reading.path) != reading.path
    is_new = draft.add(
        message,
        event_id=value["uuid"],
        answer_id=answer_id,
        model=raw["model"] if isinstance(raw.get("model"), str) else "",
        usage=None if billed_before else usage,
        finish_reason=raw["stop_reason"] if isinstance(raw.get("stop_reason"), str) else "",
        extensions={"cache_creation": split} if split and not billed_before else None,
        **facts,
    )
    if billed_before and is_new:
        draft.lose("answers whose usage was counted in another file")
        draft.lose(ROWS_MERGED)


def _add_user_row(draft: Draft, raw: Mapping[str, Any], value: Mapping[str, Any], facts: dict[str, Any]) -> None:
    """Tool results, and what a person said: a row may hold both."""
    blocks = Blocks(raw.get("content"), draft.n_events + 1)
    for place, (call_id, text) in enumerate(blocks.results):
        event_id = value["uuid"] if place == 0 else ""
        draft.add(Message(role=TOOL, content=text, tool_id=call_id), event_id=event_id, **facts)
    if not (blocks.text or blocks.parts):
        return
    role = SYSTEM if value.get("isMeta") and draft.n_events else USER
    message = Message(role=role, content=blocks.text, content_parts=tuple(blocks.parts))
    draft.add(message, event_id="" if blocks.results else value["uuid"], **facts)


CLAUDE_CODE = Format(FORMAT_NAME, _recognises, _read)
