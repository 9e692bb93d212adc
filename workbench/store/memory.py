"""The in-memory store: exact, fast, gone with the process.

In and out as in `store.base`. Sessions handed out share immutable values and the derived sums with the stored
copy, never lists or dicts. Implements SUM-STO-06 (stored events are trimmed) and -07.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.errors import SessionExistsError, SessionNotFoundError
from workbench.session.types import Event, Session, SessionKey, State, Summary, UserKey
from workbench.store.base import is_older


@dataclass(slots=True)
class _Row:
    session: Session
    expires_ns: int = 0

    def is_live(self, now_ns: int) -> bool:
        return not self.expires_ns or now_ns < self.expires_ns


@dataclass(slots=True)
class _StateRow:
    values: State = field(default_factory=dict)
    expires_ns: int = 0

    def is_live(self, now_ns: int) -> bool:
        return not self.expires_ns or now_ns < self.expires_ns

    def visible(self, now_ns: int) -> State:
        return dict(self.values) if self.is_live(now_ns) else {}


class InMemoryStore:
    """Sessions in dictionaries.

    Args:
        event_limit: Events kept per session, 0 = all. Trimming happens at twice the limit, so that its cost
            doesn't grow with the history; readers see only the newest `event_limit`.
    """

    def __init__(self, *, event_limit: int = 0) -> None:
        self._event_limit = event_limit
        self._rows: dict[SessionKey, _Row] = {}
        self._app_state: dict[str, _StateRow] = {}
        self._user_state: dict[UserKey, _StateRow] = {}

    def _live(self, key: SessionKey, now_ns: int) -> _Row:
        row = self._rows.get(key)
        if row is None or not row.is_live(now_ns):
            raise SessionNotFoundError(
                f"session {key.session_id!r} doesn't exist", hint="create it first, or it has expired"
            )
        return row

    async def create(self, session: Session, *, expires_ns: int, now_ns: int) -> None:
        row = self._rows.get(session.key)
        if row is not None and row.is_live(now_ns):
            raise SessionExistsError(f"session {session.id!r} exists already", hint="get it, or delete it first")
        self._rows[session.key] = _Row(session.clone(), expires_ns)

    async def load(self, key: SessionKey, *, now_ns: int, newest_events: int = 0) -> Session | None:
        row = self._rows.get(key)
        if row is None or not row.is_live(now_ns):
            return None
        copy = row.session.clone()
        limit = min(filter(None, (newest_events, self._event_limit)), default=0)
        if limit:
            copy.drop_oldest(len(copy.events) - limit)
        return copy

    async def list_sessions(self, user: UserKey, *, now_ns: int) -> list[Session]:
        found = []
        for key, row in self._rows.items():
            if (key.app_name, key.user_id) == (user.app_name, user.user_id) and row.is_live(now_ns):
                stored = row.session
                found.append(
                    Session(
                        app_name=stored.app_name,
                        user_id=stored.user_id,
                        id=stored.id,
                        state=dict(stored.state),
                        summaries=dict(stored.summaries),
                        created_ns=stored.created_ns,
                        updated_ns=stored.updated_ns,
                    )
                )
        return found

    async def delete(self, key: SessionKey) -> None:
        self._rows.pop(key, None)

    async def append(
        self, key: SessionKey, event: Event | None, *, state_delta: State, updated_ns: int, expires_ns: int, now_ns: int
    ) -> None:
        row = self._live(key, now_ns)
        session = row.session
        if event is not None:
            session.append(event)
            if self._event_limit and len(session.events) >= 2 * self._event_limit:
                session.drop_oldest(len(session.events) - self._event_limit)
        session.state.update(state_delta)
        session.updated_ns = updated_ns
        row.expires_ns = expires_ns

    async def list_events(self, key: SessionKey, *, now_ns: int) -> list[Event]:
        events = self._live(key, now_ns).session.events
        return events[-self._event_limit :] if self._event_limit else list(events)

    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        session = self._live(key, now_ns).session
        stored = session.summaries.get(filter_key)
        if stored is not None:
            positions = {}
            for candidate in (summary, stored):
                event_id = candidate.boundary.last_event_id if candidate.boundary else ""
                if (position := session.position_of(event_id)) is not None:
                    positions[event_id] = position
            if is_older(summary, stored, position_of=positions):
                return False
        session.summaries[filter_key] = summary
        return True

    async def load_summaries(self, key: SessionKey, *, now_ns: int) -> dict[str, Summary]:
        row = self._rows.get(key)
        return dict(row.session.summaries) if row is not None and row.is_live(now_ns) else {}

    async def app_state(self, app_name: str, *, now_ns: int) -> State:
        row = self._app_state.get(app_name)
        return row.visible(now_ns) if row is not None else {}

    async def update_app_state(self, app_name: str, delta: State, *, expires_ns: int, now_ns: int) -> None:
        values = await self.app_state(app_name, now_ns=now_ns)
        self._app_state[app_name] = _StateRow({**values, **delta}, expires_ns)

    async def delete_app_state(self, app_name: str, state_key: str) -> None:
        if app_name in self._app_state:
            self._app_state[app_name].values.pop(state_key, None)

    async def user_state(self, user: UserKey, *, now_ns: int) -> State:
        row = self._user_state.get(user)
        return row.visible(now_ns) if row is not None else {}

    async def update_user_state(self, user: UserKey, delta: State, *, expires_ns: int, now_ns: int) -> None:
        values = await self.user_state(user, now_ns=now_ns)
        self._user_state[user] = _StateRow({**values, **delta}, expires_ns)

    async def delete_user_state(self, user: UserKey, state_key: str) -> None:
        if user in self._user_state:
            self._user_state[user].values.pop(state_key, None)

    async def update_session_state(
        self, key: SessionKey, delta: State, *, updated_ns: int, expires_ns: int, now_ns: int
    ) -> None:
        await self.append(key, None, state_delta=delta, updated_ns=updated_ns, expires_ns=expires_ns, now_ns=now_ns)

    async def sweep(self, *, now_ns: int) -> int:
        expired = [key for key, row in self._rows.items() if not row.is_live(now_ns)]
        for key in expired:
            del self._rows[key]
        self._app_state = {app: row for app, row in self._app_state.items() if row.is_live(now_ns)}
        self._user_state = {user: row for user, row in self._user_state.items() if row.is_live(now_ns)}
        return len(expired)

    async def close(self) -> None:
        """Nothing to release."""
