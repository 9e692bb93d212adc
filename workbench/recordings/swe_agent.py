"""The format `swe-agent`: trajectories of coding agents (`.traj`).

In: objects with `history` and `trajectory`, rows of SWE-smith's data sets, whose messages may be one JSON text, or
trajectories of the small agent (`trajectory_format`). Out: one conversation each, from the history, which is what
the model saw. Demonstrations in it are left out. Where observations have role user they aren't a person's: each
becomes the tool result of the action before, unless `--observations user` says otherwise (WB-REC-04 rule 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.model.types import TOOL, USER
from workbench.recordings.chat import message_from_chat, tools_from_chat
from workbench.recordings.draft import Draft
from workbench.recordings.problems import FaultyRecordError, kind_of
from workbench.recordings.reading import Format, Reading, own_id, values_of
from workbench.recordings.rows import Row
from workbench.recordings.strict_json import loads
from workbench.recordings.types import Conversation

FORMAT_NAME = "swe-agent"
_KEPT_STATS = ("exit_status", "model_stats")
_KEPT_KEYS = ("instance_id", "traj_id", "resolved", "trajectory_format")
_NAME_KEYS = ("traj_id", "instance_id")
_NO_MODELS = ("replay", "human", "human_thought", "instant_empty_submit")


def _recognises(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("history"), list) and "trajectory" in value:
        return True
    return isinstance(value.get("messages"), list | str) and (
        "traj_id" in value or "trajectory_format" in value or {"instance_id", "resolved"} <= value.keys()
    )


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    for row, value in values_of(rows, reading):
        try:
            yield _conversation(value, row, reading)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)


def _conversation(value: Any, row: Row, reading: Reading) -> Conversation:
    if not isinstance(value, dict):
        raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
    history = _history_of(value)
    config = _config_of(value)
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
    return draft.finish(
        FORMAT_NAME,
        wanted_id=_name_of(value, config) or reading.stem,
        model=_model_of(value, config),
        tools=tools_from_chat(value.get("tools")),
        metadata=_metadata(value),
    )


def _history_of(value: Mapping[str, Any]) -> list[Any]:
    """The messages that the model saw.

    Raises:
        FaultyRecordError: there are none.
    """
    name = "history" if "history" in value else "messages"
    history = value.get(name)
    if isinstance(history, str):
        try:
            history = loads(history)
        except FaultyRecordError as fault:  # its place in the text isn't one in the file
            raise FaultyRecordError(f"{name} is a text that can't be read", fault.reason) from None
    if not isinstance(history, list):
        raise FaultyRecordError(f"{name} is {kind_of(history)}, expected an array")
    return history


def _config_of(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the agent was set up; some files keep it as a JSON text, and it's only for names."""
    config = value.get("replay_config")
    if isinstance(config, str):
        try:
            config = loads(config)
        except FaultyRecordError:
            return {}
    return config if isinstance(config, dict) else {}


def _with_call_id(raw: Any) -> Any:
    """Results name their call in a list; one result answers all calls of its action."""
    if not isinstance(raw, dict) or raw.get("role") != TOOL:
        return raw
    ids = raw.get("tool_call_ids")
    return {**raw, "tool_call_id": ids[0]} if isinstance(ids, list) and ids and "tool_call_id" not in raw else raw


def _name_of(value: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The problem's id if the file knows it."""
    statement = config.get("problem_statement")
    name = statement.get("id") if isinstance(statement, dict) else None
    if isinstance(name, str) and name.strip():
        return name
    return next((own_id(value, key) for key in _NAME_KEYS if value.get(key)), "")


def _model_of(value: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The model's name, where it was a model."""
    agent = config.get("agent")
    model = agent.get("model") if isinstance(agent, dict) else None
    name = model.get("name") if isinstance(model, dict) else value.get("model")
    return name if isinstance(name, str) and name not in _NO_MODELS else ""


def _metadata(value: Mapping[str, Any]) -> dict[str, Any]:
    info = value.get("info")
    kept = {key: info[key] for key in _KEPT_STATS if key in info} if isinstance(info, dict) else {}
    return kept | {key: value[key] for key in _KEPT_KEYS if key in value}


SWE_AGENT = Format(FORMAT_NAME, _recognises, _read)
