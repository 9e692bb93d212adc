"""What checks put into a service: events, keys, and a summarizer that notes what it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import NS_PER_S
from workbench.errors import SessionNotFoundError
from workbench.model.types import ASSISTANT, SYSTEM, USER, Message, response_of
from workbench.service.conformance.suite import START_NS, expect
from workbench.session.types import Event, Session, SessionKey, Summary, SummaryBoundary, UserKey

APP, USER_ID = "app", "user"
KEY = SessionKey(APP, USER_ID, "s")
OWNER = UserKey(APP, USER_ID)


# --- events -------------------------------------------------------------------------------------------


def moment(n: int) -> int:
    """n seconds after the start."""
    return START_NS + n * NS_PER_S


def said(n: int, text: str = "", *, role: str = USER, **fields: Any) -> Event:
    """The n-th event, n seconds after the start, with id `e<n>`."""
    facts: dict[str, Any] = {"id": f"e{n}", "author": role, "time_ns": moment(n), **fields}
    facts.setdefault("response", response_of(Message(role=role, content=text or f"text {n}")))
    return Event(**facts)


def answered(n: int, text: str = "", **fields: Any) -> Event:
    """The n-th event, said by the assistant."""
    return said(n, text, role=ASSISTANT, **fields)


def turns(first: int, last: int) -> list[Event]:
    """Events `first` to `last`: odd ones by the user, even ones by the assistant."""
    return [said(n) if n % 2 else answered(n) for n in range(first, last + 1)]


def ids(events: Iterable[Event]) -> list[str]:
    """The events' ids, in order."""
    return [event.id for event in events]


# --- sessions -----------------------------------------------------------------------------------------


async def session_with(service: Any, events: Iterable[Event] = (), key: SessionKey = KEY) -> Session:
    """A new session with these events."""
    session: Session = await service.create_session(key.app_name, key.user_id, key.session_id)
    for event in events:
        await service.append_event(session, event)
    return session


async def loaded(service: Any, key: SessionKey = KEY, **view: Any) -> Session:
    """The session as a read gives it; `ContractError` when there is none."""
    session: Session | None = await service.get_session(key, **view)
    expect(session is not None, f"session {key.session_id!r} can't be read although it is alive")
    assert session is not None
    return session


async def raw_events(service: Any, key: SessionKey = KEY) -> Sequence[Event]:
    """All stored events; none for a session that isn't there, whichever way the service says it."""
    try:
        events: Sequence[Event] = await service.list_events(key)
    except SessionNotFoundError:
        return []
    return events


async def put_summary(
    service: Any, text: str, cutoff_ns: int, event_id: str = "", *, filter_key: str = "", key: SessionKey = KEY
) -> Session:
    """Store this summary as an application does that copies one; the object it was put on (SUM-CORE-08)."""
    session = await loaded(service, key)
    session.summaries[filter_key] = Summary(text, boundary=SummaryBoundary(filter_key, cutoff_ns, event_id))
    await service.create_session_summary(session, filter_key)
    return session


async def stored_text(service: Any, filter_key: str = "", key: SessionKey = KEY) -> str | None:
    """The text of a stored summary, None when there is none."""
    summary = (await loaded(service, key)).summaries.get(filter_key)
    return None if summary is None else summary.summary


# --- summaries ----------------------------------------------------------------------------------------


class NotingSummarizer:
    """Answers with the ids of the events it was given, and keeps what it was asked.

    Args:
        is_due: What its check says; a function is called with the context and the session.
        answer: Makes the text from key and event ids; may raise.
        gate: No summary is finished before this is set.
    """

    def __init__(
        self,
        *,
        is_due: bool | Callable[[CallContext, Session], bool] = True,
        answer: Callable[[str, list[str]], str] | None = None,
        gate: asyncio.Event | None = None,
    ) -> None:
        self.is_due = is_due
        self.asked: list[tuple[str, list[str]]] = []
        """`(<session>:<filter key>, ids of the new events)` of each summary begun."""
        self.previous: list[str] = []
        """The previous summary's text that each of them was given."""
        self._answer = answer
        self._gate = gate

    async def should_summarize(self, session: Session) -> bool:
        return await self.should_summarize_with_context(EMPTY_CONTEXT, session)

    async def should_summarize_with_context(self, ctx: CallContext, session: Session) -> bool:
        return self.is_due if isinstance(self.is_due, bool) else self.is_due(ctx, session)

    async def summarize(self, session: Session, *, ctx: CallContext = EMPTY_CONTEXT) -> str:
        given = list(session.events)
        # The previous summary comes first, as an event without any id (SUM-RUN-03).
        head = given[:1] if given and given[0].author == SYSTEM and not given[0].id else []
        new = ids(given[len(head) :])
        self.previous.append("".join(event.message.content for event in head))
        self.asked.append((session.id, new))
        if self._gate is not None:
            await self._gate.wait()
        if self._answer is not None:
            return self._answer(session.id, new)
        return f"summary {len(self.asked)} of {' '.join(new)}"

    def set_prompt(self, prompt: str) -> None:
        """It has no prompt."""

    def set_model(self, model: Any) -> None:
        """It has no model."""

    def metadata(self) -> dict[str, Any]:
        return {}
