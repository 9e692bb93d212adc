"""Events, models and services for service tests."""

from __future__ import annotations

from typing import Any

from workbench.clock import FixedClock
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Message, ToolCall, response_of
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.service.summaries import SummaryAttempt, SummaryCheck
from workbench.session.types import Event, Session
from workbench.store.memory import InMemoryStore
from workbench.summary.summarizer import Summarizer

START_NS = 1_772_000_000 * 10**9
SECOND = 10**9


def say(n: int, text: str = "", *, role: str = "user", key: str = "app", **fields: Any) -> Event:
    """The n-th event, n seconds after the start."""
    author = "user" if role == "user" else "agent"
    message = Message(role=role, content=text or f"text {n}")
    fields.setdefault("id", f"e{n}")
    return Event(
        author=author,
        time_ns=START_NS + n * SECOND,
        response=response_of(message),
        filter_key=key,
        **fields,
    )


def call_event(n: int, call_id: str, *, key: str = "app") -> Event:
    call = ToolCall(id=call_id, name="tool", arguments="{}")
    message = Message(role="assistant", tool_calls=(call,))
    return Event(
        id=f"e{n}", author="agent", time_ns=START_NS + n * SECOND, response=response_of(message), filter_key=key
    )


new_store = InMemoryStore
"""Makes the stores of `service_of`; takes `event_limit`. Some tests put another kind here."""


def service_of(
    model: Any = None, *, clock: Any = None, settings: dict[str, Any] | None = None, **kwargs: Any
) -> SessionService:
    """A service over a fresh store; with a model, a summarizer that always fires."""
    options = {"event_limit": 0, **(settings or {})}
    summarizer = kwargs.pop("summarizer", None)
    if summarizer is None and model is not None:
        summarizer = Summarizer(model, prompt="{conversation_text}", **kwargs.pop("summary", {}))
    return SessionService(
        kwargs.pop("store", None) or new_store(event_limit=options["event_limit"]),
        settings=ServiceSettings(**options),
        summarizer=summarizer,
        clock=clock if clock is not None else FixedClock(START_NS),
        **kwargs,
    )


async def session_with(service: SessionService, *events: Event, session_id: str = "s") -> Session:
    """A new session with these events."""
    session = await service.create_session("app", "user", session_id)
    for event in events:
        await service.append_event(session, event)
    return session


def summary_model(*answers: Any, **kwargs: Any) -> ScriptedModel:
    return ScriptedModel(answers, **kwargs)


class Watch:
    """Notes what a service tells about its summaries."""

    def __init__(self) -> None:
        self.checks: list[SummaryCheck] = []
        self.attempts: list[SummaryAttempt] = []

    def on_check(self, check: SummaryCheck) -> None:
        self.checks.append(check)

    def on_attempt(self, attempt: SummaryAttempt) -> None:
        self.attempts.append(attempt)
