"""What the store keeps in memory, and the rows and journal payloads it becomes.

In: sessions, events, states, summaries. Out: tuples for the tables of `schema`, JSON texts for the journal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workbench.session.types import Event, Session, State, UserKey
from workbench.store.duckdb.codec import (
    JsonText,
    check_moment,
    column_text,
    event_of,
    event_text,
    json_ascii,
    json_text,
    state_column,
    state_json,
    state_of,
    summary_json,
    summary_of,
    text_of_column,
)
from workbench.store.duckdb.database import Row


class Entry:
    """A session in memory: its row, and its newest events as far as they were needed."""

    __slots__ = ("changed_summaries", "deleted_ns", "expires_ns", "is_deleted", "number", "sequence", "session")

    def __init__(self, number: int, session: Session, expires_ns: int, sequence: int) -> None:
        self.number = number
        self.session = session
        """`first_position` is that of the first event in memory, not of the first one there is."""
        self.expires_ns = expires_ns
        self.sequence = sequence
        """The last change; once the database has it, the entry may be dropped."""
        self.changed_summaries: set[str] = set()
        self.is_deleted = False
        self.deleted_ns = 0

    def is_live(self, now_ns: int) -> bool:
        return not self.is_deleted and (not self.expires_ns or now_ns < self.expires_ns)

    def names(self) -> tuple[str, str, str]:
        session = self.session
        return column_text(session.app_name), column_text(session.user_id), column_text(session.id)


@dataclass(slots=True)
class StateRow:
    values: State = field(default_factory=dict)
    expires_ns: int = 0
    sequence: int = 0

    def visible(self, now_ns: int) -> State:
        return dict(self.values) if not self.expires_ns or now_ns < self.expires_ns else {}


@dataclass(slots=True)
class EventRow:
    entry: Entry
    position: int
    event: Event
    created_ns: int
    text: JsonText
    sequence: int
    """The change that it is part of."""

    def columns(self) -> Row:
        entry, event = self.entry, self.event
        return (
            entry.number,
            self.position,
            *entry.names(),
            column_text(event.id),
            event.time_ns,
            column_text(event.author),
            column_text(event.filter_key),
            self.created_ns,
            self.text.text,
            self.text.exact,
        )


@dataclass(slots=True)
class Waiting:
    """What the database doesn't hold yet."""

    n_changes: int = 0
    events: list[EventRow] = field(default_factory=list)
    entries: dict[int, Entry] = field(default_factory=dict)
    apps: set[str] = field(default_factory=set)
    users: set[UserKey] = field(default_factory=set)

    def before(self, later: Waiting) -> Waiting:
        """Both as one; `later` came after this."""
        return Waiting(
            self.n_changes + later.n_changes,
            self.events + later.events,
            self.entries | later.entries,
            self.apps | later.apps,
            self.users | later.users,
        )


def session_row(entry: Entry) -> Row:
    session = entry.session
    return (
        entry.number,
        *entry.names(),
        state_column(session.state),
        session.end_position,
        session.created_ns,
        session.updated_ns,
        entry.expires_ns,
        (entry.deleted_ns or 1) if entry.is_deleted else 0,
        entry.sequence,
    )


def summary_row(entry: Entry, filter_key: str) -> Row:
    summary = entry.session.summaries[filter_key]
    text = json_text(summary_json(summary))
    return (entry.number, *entry.names(), column_text(filter_key), summary.updated_ns, text.text, text.exact)


def state_rows(names: tuple[str, ...], row: StateRow) -> list[Row]:
    return [(*names, column_text(key), value, row.expires_ns) for key, value in row.values.items()]


def state_row(rows: Sequence[Row]) -> StateRow:
    values = {text_of_column(key): value for key, value, _ in rows}
    return StateRow(values, rows[0][2] if rows else 0)


def user_of(payload: dict[str, Any]) -> UserKey:
    return UserKey(payload["a"], payload["u"])


class Append(NamedTuple):
    """What an append brings, already as text: nothing that its sender changes later gets in."""

    event: Event | None
    text: JsonText | None
    delta: State
    updated_ns: int
    expires_ns: int
    payload: str
    """What the journal gets, without the session's number and its opening brace."""

    @classmethod
    def of(cls, event: Event | None, delta: State, *, updated_ns: int, expires_ns: int) -> Append:
        """Raises StoreError where something can't be stored exactly."""
        check_moment(updated_ns)
        check_moment(expires_ns)
        payload = f'"u":{updated_ns},"x":{expires_ns}'
        if delta:
            payload += f',"d":{json_ascii(state_json(delta))}'
        text = None
        if event is not None:
            text = event_text(event)
            payload += f',"e":{text.journal}'
        return cls(event, text, delta, updated_ns, expires_ns, payload + "}")


def create_payload(number: int, session: Session, texts: Sequence[JsonText], expires_ns: int, replaced: int) -> str:
    payload: dict[str, Any] = {
        "n": number,
        "a": session.app_name,
        "u": session.user_id,
        "s": session.id,
        "d": state_json(session.state),
        "c": session.created_ns,
        "t": session.updated_ns,
        "x": expires_ns,
    }
    if replaced:
        payload["o"] = replaced
    if session.first_position:
        payload["f"] = session.first_position
    if session.summaries:
        payload["v"] = {key: summary_json(summary) for key, summary in session.summaries.items()}
    if texts:
        payload["e"] = [json.loads(text.journal) for text in texts]
    return json_ascii(payload)


def session_from(payload: dict[str, Any]) -> tuple[Session, list[JsonText]]:
    events = payload.get("e", ())
    session = Session(
        app_name=payload["a"],
        user_id=payload["u"],
        id=payload["s"],
        state=state_of(payload["d"]),
        events=[event_of(raw) for raw in events],
        summaries={key: summary_of(raw) for key, raw in payload.get("v", {}).items()},
        created_ns=payload["c"],
        updated_ns=payload["t"],
    )
    session.first_position = payload.get("f", 0)
    return session, [json_text(raw) for raw in events]
