"""Short ways to write sessions, invocations and requests in tests of prompt assembly."""

from __future__ import annotations

from typing import Any

from workbench.context.assemble import Assembly, Invocation, assemble_content
from workbench.context.settings import AgentSettings, CompactionSettings
from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Choice, Message, Request, Response, ToolCall, ToolSpec
from workbench.profiles import SEED, Profile
from workbench.session.types import Event, Session, Summary, SummaryBoundary
from workbench.tokens import SimpleTokenCounter

NS = 1_000_000_000
BASE = Request(messages=(Message(role=SYSTEM, content="S"),))
LOAD_TOOLS = (ToolSpec("session_load"),)


def user(text: str = "q") -> Message:
    return Message(role=USER, content=text)


def say(text: str = "a", **facts: Any) -> Message:
    return Message(role=ASSISTANT, content=text, **facts)


def call(*ids: str, text: str = "", name: str = "read", arguments: str = "{}", **facts: Any) -> Message:
    return Message(
        role=ASSISTANT,
        content=text,
        tool_calls=tuple(ToolCall(id=one, name=name, arguments=arguments) for one in ids),
        **facts,
    )


def result(tool_id: str, text: str = "r", name: str = "read", **facts: Any) -> Message:
    return Message(role=TOOL, content=text, tool_id=tool_id, tool_name=name, **facts)


def event(
    number: int, *messages: Message, request: str = "now", author: str = "", done: bool = True, **facts: Any
) -> Event:
    """Event `e<number>` at second `number`; user messages are the user's, all others the agent's."""
    own = "user" if messages and messages[0].is_user_like else "agent"
    defaults: dict[str, Any] = {
        "id": f"e{number}",
        "author": author or own,
        "time_ns": number * NS,
        "response": Response(choices=tuple(Choice(one, index=i) for i, one in enumerate(messages)), done=done),
        "request_id": request,
        "invocation_id": f"inv-{request}" if request else "",
        "branch": "agent",
        "filter_key": "app",
    }
    return Event(**(defaults | facts))


def summary(last: int, text: str = "SUM", *, by_id: bool = True) -> Summary:
    """A summary that ends with event `e<last>`."""
    boundary = SummaryBoundary("app", last * NS, f"e{last}" if by_id else "")
    return Summary(text, last * NS, boundary)


def session(*events: Event, **summaries: Summary) -> Session:
    return Session(app_name="app", user_id="u", id="s", events=events, summaries=dict(summaries))


def invocation(
    stored: Session | None, message: Message | None = None, request: str = "now", **facts: Any
) -> Invocation:
    defaults: dict[str, Any] = {
        "session": stored,
        "agent_name": "agent",
        "invocation_id": f"inv-{request}" if request else "",
        "request_id": request,
        "filter_key": "app",
        "branch": "agent",
        "message": user() if message is None else message,
    }
    return Invocation(**(defaults | facts))


def assemble(
    stored: Session | None,
    *,
    message: Message | None = None,
    request: str = "now",
    base: Request = BASE,
    agent: dict[str, Any] | None = None,
    compaction: dict[str, Any] | None = None,
    profile: Profile = SEED,
    runes_per_token: float = 1.0,
    facts: dict[str, Any] | None = None,
    **options: Any,
) -> Assembly:
    """An assembly with one token per character unless told otherwise."""
    return assemble_content(
        invocation(stored, message, request, **(facts or {})),
        base,
        AgentSettings(**(agent or {})),
        CompactionSettings(**(compaction or {})),
        counter=SimpleTokenCounter(runes_per_token),
        profile=profile,
        **options,
    )


def texts(assembly: Assembly) -> list[str]:
    """Role and content (or the ids of a call or result) of each message, for short expectations."""
    return [short(message) for message in assembly.messages]


def short(message: Message) -> str:
    ids = ",".join(one.id for one in message.tool_calls) or message.tool_id
    return ":".join(filter(None, [message.role or "-", ids, message.content]))
