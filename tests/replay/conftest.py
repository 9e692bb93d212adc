"""Small recorded conversations for replays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.config import RunConfig
from workbench.recordings import Recordings, load_recordings

WORDS = ["订单", "物流", "退款", "发票", "地址", "电话", "客服", "会员", "积分", "优惠", "型号", "保修"]


def chat(n_turns: int, *, ident: str = "c1", tools: bool = True, n_repeats: int = 12) -> dict[str, Any]:
    """A conversation of `n_turns` requests, each with a tool round and an answer, one minute apart.

    `n_repeats` decides how long a tool result is.
    """
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "你是客服。\n请简短回答。", "timestamp": "2026-03-01T10:00:00Z"}
    ]

    def at(minute: int, second: int) -> str:
        return f"2026-03-01T{10 + minute // 60:02d}:{minute % 60:02d}:{second:02d}Z"

    for i in range(n_turns):
        word = WORDS[i % len(WORDS)]
        messages.append({"role": "user", "content": f"第{i}个问题: {word} 编号 A{1000 + i}？", "timestamp": at(i, 0)})
        if tools:
            call = {"id": f"t{i}", "type": "function", "function": {"name": "query", "arguments": f'{{"n": {i}}}'}}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call], "timestamp": at(i, 5)})
            messages.append(
                {
                    "role": "tool",
                    "tool_call_id": f"t{i}",
                    "name": "query",
                    "content": json.dumps({"编号": f"A{1000 + i}", "结果": word * n_repeats}, ensure_ascii=False),
                    "timestamp": at(i, 6),
                }
            )
        messages.append({"role": "assistant", "content": f"{word}已处理，编号 A{1000 + i}。", "timestamp": at(i, 12)})
    tool = {"type": "function", "function": {"name": "query", "description": "查询", "parameters": {"type": "object"}}}
    return {"id": ident, "model": "gpt-4o", "messages": messages, "tools": [tool] if tools else []}


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Recordings]:
    """Write conversations to a file and load them."""

    def write(*conversations: dict[str, Any]) -> Recordings:
        path = tmp_path / "chats.jsonl"
        lines = [json.dumps(conversation, ensure_ascii=False) for conversation in conversations]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return load_recordings(path)

    return write


def config(**values: Any) -> RunConfig:
    """A configuration that counts code points, so that tests need no vocabulary."""
    values.setdefault("billing", {"encoding": "runes:1"})
    values.setdefault("counter", {"runes_per_token": 1.0})
    return RunConfig.from_values(values)


def summarising(name: str = "summaries", *, token: int = 300, mode: str = "system", **values: Any) -> RunConfig:
    """Summaries after `token` new tokens."""
    agent = {"add_session_summary": True, "summary_injection_mode": mode, **values.pop("agent", {})}
    values.setdefault("trigger", {"token": token})
    values.setdefault("summarizer", {"max_summary_words": 40})
    return config(name=name, agent=agent, **values)


TUNED = """
[counter]
runes_per_token = 1.0
[billing]
encoding = "runes:1"
[summarizer]
max_summary_words = 40
[trigger]
token = 300
[agent]
add_session_summary = true
"""


def write_own_recording(folder: Path) -> None:
    """A recording of two chats and a configuration, as somebody has them who runs commands."""
    lines = [json.dumps(chat(6, ident=f"c{i}"), ensure_ascii=False) for i in range(2)]
    (folder / "own.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tuned.toml").write_text(TUNED, encoding="utf-8")
