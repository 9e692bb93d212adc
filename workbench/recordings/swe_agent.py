"""The format `swe-agent`: trajectories of coding agents (`.traj`).

In: objects with `history` and `trajectory`. Out: one conversation each, from the history, which is what the
model saw. Demonstrations in it are left out. Where observations have role user they aren't a person's: each
becomes the tool result of the action before, unless `--observations user` says otherwise (WB-REC-04 rule 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.model.types import TOOL, USER
from workbench.recordings.chat import message_from_chat
from workbench.recordings.draft import Draft
from workbench.recordings.problems import FaultyRecordError, kind_of
from workbench.recordings.reading import Format, Reading, values_of
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "swe-agent"
_KEPT_STATS = ("exit_status", "model_stats")


def _recognises(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("history"), list) and "trajectory" in value


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    for row, value in values_of(rows, reading):
        try:
            yield _conversation(value, row, reading)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)


def _conversation(value: Any, row: Row, reading: Reading) -> Conversation:
    if not isinstance(value, dict):
        raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
    history = value.get("history")
    if not isinstance(history, list):
        raise FaultyRecordError(f"history is {kind_of(history)}, expected an array")
    draft = Draft(reading, line=row.line)
    action = ""
    for number, raw in enumerate(history, 1):
        if isinstance(raw, dict) and raw.get("is_demo"):
            draft.lose("messages of demonstrations")
            continue
        message = message_from_chat(_with_call_id(raw), number)
        if message.role == USER and draft.has_answers and reading.options.observations != "user":
            draft.add_observation(message, action=action)
        else:
            draft.add(message)
        action = raw["action"].strip() if isinstance(raw.get("action"), str) else action
    steps = value.get("trajectory")
    if isinstance(steps, list) and any(isinstance(step, dict) and "execution_time" in step for step in steps):
        draft.lose("execution times of steps")
    return draft.finish(FORMAT_NAME, wanted_id=_name_of(value, reading), metadata=_metadata(value))


def _with_call_id(raw: Any) -> Any:
    """Results name their call in a list; one result answers all calls of its action."""
    if not isinstance(raw, dict) or raw.get("role") != TOOL:
        return raw
    ids = raw.get("tool_call_ids")
    return {**raw, "tool_call_id": ids[0]} if isinstance(ids, list) and ids and "tool_call_id" not in raw else raw


def _name_of(value: Mapping[str, Any], reading: Reading) -> str:
    """The problem's id if the file knows it, else the name of the file."""
    config = value.get("replay_config")
    statement = config.get("problem_statement") if isinstance(config, dict) else None
    name = statement.get("id") if isinstance(statement, dict) else None
    return name if isinstance(name, str) and name.strip() else reading.stem


def _metadata(value: Mapping[str, Any]) -> dict[str, Any]:
    info = value.get("info")
    return {key: info[key] for key in _KEPT_STATS if key in info} if isinstance(info, dict) else {}


SWE_AGENT = Format(FORMAT_NAME, _recognises, _read)
