"""Events, sessions and models for the tests of the summary engine."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from workbench.model.types import ASSISTANT, TOOL, USER, Message, ToolCall, response_of
from workbench.session.types import Event, Session

T = TypeVar("T")
SECOND = 1_000_000_000


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def event(*messages: Message, id: str = "", author: str = "agent", at: int = 0, **facts: Any) -> Event:  # noqa: A002
    """An event of one response; `at` is its time in seconds."""
    return Event(id=id, author=author, time_ns=at * SECOND, response=response_of(*messages), **facts)


def user(text: str, **facts: Any) -> Event:
    return event(Message(role=USER, content=text), author="user", **facts)


def agent(text: str, **facts: Any) -> Event:
    return event(Message(role=ASSISTANT, content=text), **facts)


def calls(*tool_calls: ToolCall, text: str = "", **facts: Any) -> Event:
    return event(Message(role=ASSISTANT, content=text, tool_calls=tool_calls), **facts)


def call(call_id: str = "c1", name: str = "search", arguments: str = '{"q": 1}') -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def result(text: str, *, call_id: str = "c1", name: str = "search", **facts: Any) -> Event:
    return event(Message(role=TOOL, content=text, tool_id=call_id, tool_name=name), **facts)


def session(events: Iterable[Event] = (), **facts: Any) -> Session:
    return Session(app_name="app", user_id="u1", id="s1", events=events, **facts)


def numbered(n_events: int, *, key: str = "app", text: str = "message") -> list[Event]:
    """User and agent in turn, ids e1, e2, ..., one second apart."""
    return [(user if i % 2 else agent)(f"{text} {i}", id=f"e{i}", at=i, filter_key=key) for i in range(1, n_events + 1)]
