"""What surrounds the examples: events, sessions, scripted answers, one question to a runner."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import workbench as wb
from workbench.clock import SystemClock
from workbench.model.types import response_of

T = TypeVar("T")

USER = "user-1"
SESSION = "session-1"
SECOND = 1_000_000_000
_numbers = count(1)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def said(text: str, *, role: str = "user", seconds_ago: float = 0, key: str = "my-app", **facts: Any) -> wb.Event:
    """One stored message, just now unless said otherwise."""
    moment = SystemClock().now_ns() - round(seconds_ago * SECOND)
    author = {"assistant": "my-agent"}.get(role, role)
    message = wb.Message(role=role, content=text, **facts)
    return wb.Event(
        id=f"e{next(_numbers)}",
        author=author,
        time_ns=moment,
        response=response_of(message),
        filter_key=key,
    )


def talk(n_events: int, *, text: str = "message", **facts: Any) -> list[wb.Event]:
    """User and assistant in turn."""
    return [said(f"{text} {i}", role=("assistant", "user")[i % 2], **facts) for i in range(1, n_events + 1)]


def session_of(*events: wb.Event) -> wb.Session:
    return wb.Session(app_name="my-app", user_id=USER, id=SESSION, events=events)


async def stored(service: Any, *events: wb.Event) -> wb.Session:
    """A session of the service with these events, stamped as they are stored."""
    session = await service.create_session("my-app", USER, SESSION)
    for event in events:
        await service.append_event(session, event.replace(time_ns=SystemClock().now_ns()))
    return session


def runner_of(agent: wb.LLMAgent, service: Any, **options: Any) -> wb.Runner:
    return wb.Runner(app_name="my-app", agent=agent, session_service=service, **options)


async def ask(runner: wb.Runner, text: str, options: wb.RunOptions | None = None, session_id: str = SESSION) -> str:
    """The last thing that the agent says, after all summaries are made."""
    answer = ""
    async for event in runner.run(USER, session_id, text, options):
        answer = event.message.content
    await runner.session_service.wait_for_summaries()
    return answer


def asks_for(name: str, arguments: str = "{}", *, call_id: str = "c1") -> wb.ScriptedAnswer:
    """An answer that calls one tool."""
    return wb.ScriptedAnswer(tool_calls=(wb.ToolCall(id=call_id, name=name, arguments=arguments),))


def with_tools(agent: wb.LLMAgent, *functions: Any, **changes: Any) -> wb.LLMAgent:
    return replace(agent, tools=[wb.FunctionTool(function) for function in functions], **changes)


def spoken(request: wb.Request) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in request.messages]


def prompt_of(model: wb.ScriptedModel, index: int = -1) -> str:
    """The user message of a standalone summary request."""
    return model.requests[index].messages[-1].content


def summary_of(summarizer: Any, *events: wb.Event) -> str:
    return run(summarizer.summarize(session_of(*events)))


def fires(summarizer: Any, *events: wb.Event, ctx: wb.CallContext | None = None) -> bool:
    """Whether a summary is due for a session with these events."""
    return run(summarizer.should_summarize_with_context(ctx or wb.CallContext(), session_of(*events)))
