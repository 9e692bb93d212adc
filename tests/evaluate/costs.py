"""Runs made of rows, for tests of money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SECOND = 1_000_000_000
START = 1_772_358_000 * SECOND  # 2026-03-01
OWN_PRICES = {"main": {"input": 10.0, "output": 40.0, "cache_read": 1.0, "cache_write": 12.0}}
OPENAI = {"provider": "openai"}


@dataclass(frozen=True)
class Rows:
    """A run that is nothing but its rows and its configuration."""

    calls: Sequence[dict[str, Any]]
    summaries: Sequence[dict[str, Any]] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    model: str = "gpt-4.1"
    assumed_time: bool = False
    name: str = "rows"
    facts: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        names = dict.fromkeys(row["conversation"] for row in self.calls)
        conversations = [
            {"conversation": name, "model": self.model, "assumed_time": self.assumed_time} for name in names
        ]
        return {"calls": list(self.calls), "summaries": list(self.summaries), "conversations": conversations}[table]


def calls(
    sizes: Sequence[int], *, conversation: str = "c", every_s: int = 30, answer: int = 100, **changes: Any
) -> list[dict[str, Any]]:
    """Calls that each only add to the one before, one per turn."""
    return [
        {
            "conversation": conversation,
            "call": i,
            "request": i,
            "time_ns": START + i * every_s * SECOND,
            "messages": 2 * i + 2,
            "prompt_tokens": size,
            "prefix_tokens": sizes[i - 1] if i else None,
            "prefix_call": i - 1 if i else None,
            "recent_prefix_tokens": sizes[i - 1] if i else None,
            "break_cause": None if i else "first_call",
            "answer_tokens": answer,
            **changes,
        }
        for i, size in enumerate(sizes)
    ]


def summary(
    call: int, request: int, text: int, *, prefix: int = 0, conversation: str = "c", n: int = 1
) -> dict[str, Any]:
    """A summary that started a second after the call before the one that can see it."""
    return {
        "conversation": conversation,
        "summary": call,
        "call": call,
        "started_ns": START + (call - 1) * 30 * SECOND + SECOND,
        "request_tokens": request,
        "prefix_tokens": prefix,
        "completion_tokens": text,
        "model_calls": n,
        "status": "written",
    }
