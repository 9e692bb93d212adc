"""Recordings on disk, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.recordings import Conversation, Recordings, load_recordings


def say(role: str, content: Any = "text", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def ask(*calls: tuple[str, str], content: str | None = None, **more: Any) -> dict[str, Any]:
    """An answer that asks for calls, given as (id, tool)."""
    return say(
        "assistant",
        content,
        tool_calls=[
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for call_id, name in calls
        ],
        **more,
    )


def result(call_id: str, content: str = "result", **more: Any) -> dict[str, Any]:
    return say("tool", content, tool_call_id=call_id, **more)


def jsonl(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def document(path: Path, value: Any, **layout: Any) -> Path:
    path.write_text(json.dumps(value, ensure_ascii=False, **layout), encoding="utf-8")
    return path


def load_messages(folder: Path, *messages: Any, options: dict[str, Any] | None = None, **record: Any) -> Conversation:
    """The one conversation of these messages."""
    path = jsonl(folder / "one.jsonl", {"messages": list(messages), **record})
    (conversation,) = load_recordings(path, **(options or {}))
    return conversation


def texts(recordings: Recordings) -> list[str]:
    return [problem.text for problem in recordings.problems]


def chat_line(text: str) -> str:
    """A file of one conversation without times."""
    return json.dumps({"messages": [say("user", text), say("assistant", "yes")]}) + "\n"
