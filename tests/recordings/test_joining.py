"""Short dialogues joined: nothing is lost, ids stay unique, time runs on, and the label says so."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.recordings import Recordings, load_recordings
from workbench.recordings.joining import is_joined


def dialogue(ident: str, *texts: str, **head: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {"id": ident, "messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)], **head}


def loaded(tmp_path: Path, *dialogues: dict[str, Any], join: int = 1) -> Recordings:
    path = tmp_path / "dialogues.jsonl"
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in dialogues), encoding="utf-8")
    return load_recordings(path, join=join)


SEVEN = [dialogue(f"d{i}", f"第{i}个问题", "好", "구일이삼", f"답 {i}") for i in range(7)]


def test_up_to_n_dialogues_become_one_conversation(tmp_path: Path):
    """WB-RET-01b: joined, labelled."""
    alone, three = loaded(tmp_path, *SEVEN).load(), loaded(tmp_path, *SEVEN, join=3)
    assert [one.id for one in three] == ["d0+2", "d3+2", "d6"]
    assert [is_joined(one.format) for one in three] == [True, True, False]
    assert three[0].metadata == {"joined": ["d0", "d1", "d2"]}
    assert [m.content for one in three for m in one.messages] == [m.content for one in alone for m in one.messages]
    assert sum(len(one.calls) for one in three) == sum(len(one.calls) for one in alone) == 14
    assert three.totals()["conversations"] == 3


def test_time_runs_on_and_ids_are_unique(tmp_path: Path):
    """WB-RET-01b, WB-REC-03: a time that had to be moved is an assumed one."""
    same = [dialogue("same", "一", "二"), dialogue("same", "三", "四")]
    (one,) = loaded(tmp_path, *same, join=10)
    assert all(earlier.time_ns < later.time_ns for earlier, later in pairwise(one.events))
    assert len({event.id for event in one.events}) == 4
    assert one.assumed_time
    assert len(one.requests) == 2


def test_recorded_times_that_follow_each_other_stay(tmp_path: Path):
    """WB-REC-03."""
    chats = []
    for day in (1, 2):
        chat = dialogue(f"d{day}", "一", "二")
        for second, message in enumerate(chat["messages"]):
            message["timestamp"] = f"2026-03-0{day}T10:00:0{second}Z"
        chats.append(chat)
    (one,) = loaded(tmp_path, *chats, join=2)
    assert not one.assumed_time
    assert one.duration_s == 24 * 3600 + 1


def test_dialogues_with_other_instructions_are_not_joined(tmp_path: Path):
    """WB-RET-01b."""
    chats = [dialogue("a", "一", "二"), dialogue("b", "一", "二")]
    chats[1]["messages"].insert(0, {"role": "system", "content": "你是客服"})
    assert [one.id for one in loaded(tmp_path, *chats, join=5)] == ["a", "b"]


def test_joining_less_than_one_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="join"):
        loaded(tmp_path, *SEVEN, join=0)
