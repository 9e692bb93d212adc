"""What a session store must supply; everything else is the service's, shared by all stores.

In: sessions, events, summaries, state. Out: private copies of them. A store knows no triggers, hooks or
filters. Implements the seam of SUM-STO-01, -02 and -13.
"""

from __future__ import annotations

from typing import Protocol

from workbench.session.types import Event, Session, SessionKey, State, Summary, UserKey


class SessionStore(Protocol):
    """Sessions with events and summaries, and the state of applications and users.

    Moments are nanoseconds since 1970; `expires_ns` 0 = never. Expired and deleted rows are invisible at once.
    """

    async def create(self, session: Session, *, expires_ns: int, now_ns: int) -> None:
        """Add a session without events.

        Raises:
            SessionExistsError: a live session has this key (an expired one is replaced).
        """
        ...

    async def load(self, key: SessionKey, *, now_ns: int, newest_events: int = 0) -> Session | None:
        """A private copy with events, summaries and its own state, or None.

        Args:
            newest_events: Load only so many of the newest events; 0 = all.
        """
        ...

    async def list_sessions(self, user: UserKey, *, now_ns: int) -> list[Session]:
        """The user's sessions without events, in no particular order."""
        ...

    async def delete(self, key: SessionKey) -> None:
        """Remove a session with its events and summaries; a missing one is no error."""
        ...

    async def append(
        self, key: SessionKey, event: Event | None, *, state_delta: State, updated_ns: int, expires_ns: int, now_ns: int
    ) -> None:
        """Add an event (None: only the state) and update the session row, in one step.

        Raises:
            SessionNotFoundError: no live session has this key.
        """
        ...

    async def list_events(self, key: SessionKey, *, now_ns: int) -> list[Event]:
        """All stored events, oldest first."""
        ...

    async def save_summary(self, key: SessionKey, filter_key: str, summary: Summary, *, now_ns: int) -> bool:
        """Store a summary unless a newer one is there (SUM-STO-13); True when stored.

        Raises:
            SessionNotFoundError: no live session has this key.
        """
        ...

    async def load_summaries(self, key: SessionKey, *, now_ns: int) -> dict[str, Summary]:
        """The stored summaries by filter key; empty for a missing session."""
        ...

    async def app_state(self, app_name: str, *, now_ns: int) -> State:
        """State shared by an application."""
        ...

    async def update_app_state(self, app_name: str, delta: State, *, expires_ns: int, now_ns: int) -> None:
        """Merge keys into it, which is empty once it has expired."""
        ...

    async def delete_app_state(self, app_name: str, state_key: str) -> None:
        """Remove one key."""
        ...

    async def user_state(self, user: UserKey, *, now_ns: int) -> State:
        """State of one user of an application."""
        ...

    async def update_user_state(self, user: UserKey, delta: State, *, expires_ns: int, now_ns: int) -> None:
        """Merge keys into it, which is empty once it has expired."""
        ...

    async def delete_user_state(self, user: UserKey, state_key: str) -> None:
        """Remove one key."""
        ...

    async def update_session_state(
        self, key: SessionKey, delta: State, *, updated_ns: int, expires_ns: int, now_ns: int
    ) -> None:
        """Merge keys into a session's state.

        Raises:
            SessionNotFoundError: no live session has this key.
        """
        ...

    async def sweep(self, *, now_ns: int) -> int:
        """Remove what has expired; the number of sessions removed."""
        ...

    async def close(self) -> None:
        """Release what the store holds; calling it again is harmless."""
        ...


def is_older(new: Summary, stored: Summary, *, position_of: dict[str, int] | None = None) -> bool:
    """`new` must not replace `stored`: its cutoff is earlier, or equal with an earlier last event (SUM-STO-13).

    Args:
        position_of: Position of the two boundaries' event ids, as far as known.
    """
    new_cutoff, stored_cutoff = new.cutoff_boundary(), stored.cutoff_boundary()
    if new_cutoff is None or stored_cutoff is None:
        return False
    if new_cutoff.cutoff_ns != stored_cutoff.cutoff_ns:
        return new_cutoff.cutoff_ns < stored_cutoff.cutoff_ns
    positions = position_of or {}
    new_position = positions.get(new_cutoff.last_event_id)
    stored_position = positions.get(stored_cutoff.last_event_id)
    return new_position is not None and stored_position is not None and new_position < stored_position
