"""The format `tau-bench`: lists of results, each with its conversation under `traj`.

In: rows with `traj`, a message list as OpenAI's chat interface takes them. Out: conversations named after
task and trial; reward and task ids go into the metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.recordings.draft import Draft
from workbench.recordings.openai_chat import add_message
from workbench.recordings.problems import FaultyRecordError, kind_of
from workbench.recordings.reading import Format, Reading, values_of
from workbench.recordings.rows import Row
from workbench.recordings.types import Conversation

FORMAT_NAME = "tau-bench"
_KEPT_KEYS = ("task_id", "trial", "reward")


def _recognises(value: Any) -> bool:
    return isinstance(value, dict) and "traj" in value


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    for row, value in values_of(rows, reading):
        try:
            yield _conversation(value, row, reading)
        except FaultyRecordError as fault:
            reading.refuse(fault, row)


def _conversation(value: Any, row: Row, reading: Reading) -> Conversation:
    if not isinstance(value, dict):
        raise FaultyRecordError(f"expected an object, got {kind_of(value)}")
    messages = value.get("traj")
    if not isinstance(messages, list):
        raise FaultyRecordError(f"traj is {kind_of(messages)}, expected an array")
    draft = Draft(reading, line=row.line)
    for number, raw in enumerate(messages, 1):
        add_message(draft, raw, number, reading)
    name = "-".join(f"{part}{value[key]}" for part, key in (("task", "task_id"), ("trial", "trial")) if key in value)
    info = value.get("info")
    if info:
        draft.lose("task descriptions and reward details (info)")
    return draft.finish(FORMAT_NAME, wanted_id=name, metadata={key: value[key] for key in _KEPT_KEYS if key in value})


TAU_BENCH = Format(FORMAT_NAME, _recognises, _read)
