"""The in-memory store supplies the store protocol and nothing else is asked of it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.service.helpers import say, session_with, summary_model
from workbench.clock import FixedClock
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.session.types import SessionKey, UserKey
from workbench.store.base import SessionStore
from workbench.store.memory import InMemoryStore
from workbench.summary.summarizer import Summarizer

PROTOCOL = {name for name in vars(SessionStore) if not name.startswith("_")}


class OnlyTheProtocol:
    """A store that has the protocol's methods and no others."""

    def __init__(self, inner: InMemoryStore) -> None:
        self._inner = inner
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name not in PROTOCOL:
            raise AttributeError(name)
        self.used.add(name)
        return getattr(self._inner, name)


def test_the_service_asks_a_store_for_the_protocol_only() -> None:
    """SUM-STO-01, SUM-STO-02: the engine is shared, a store only keeps things."""

    async def main() -> set[str]:
        store: Any = OnlyTheProtocol(InMemoryStore())
        service = SessionService(
            store,
            settings=ServiceSettings(event_limit=0),
            summarizer=Summarizer(summary_model("s"), prompt="{conversation_text}"),
            clock=FixedClock(10**18),
        )
        session = await session_with(service, say(1), say(2, role="assistant"))
        await service.enqueue_summary_job(session, "app")
        await service.wait_for_summaries()
        key, user = SessionKey("app", "user", "s"), UserKey("app", "user")
        await service.get_session(key)
        await service.list_sessions(user)
        await service.update_app_state("app", {"a": b"1"})
        await service.update_user_state(user, {"u": b"1"})
        await service.update_session_state(key, {"s": b"1"})
        await service.delete_app_state("app", "a")
        await service.delete_user_state(user, "u")
        await service.delete_session(key)
        await service.close()
        return store.used

    used = asyncio.run(main())
    assert used <= PROTOCOL
    assert len(used) > 12


def test_writing_state_does_not_bring_back_what_has_expired() -> None:
    """SUM-STO-07."""

    async def main() -> None:
        store, user = InMemoryStore(), UserKey("app", "user")
        await store.update_app_state("app", {"old": b"1"}, expires_ns=10, now_ns=0)
        await store.update_user_state(user, {"old": b"1"}, expires_ns=10, now_ns=0)
        await store.update_app_state("app", {"new": b"2"}, expires_ns=30, now_ns=20)
        await store.update_user_state(user, {"new": b"2"}, expires_ns=30, now_ns=20)
        assert await store.app_state("app", now_ns=20) == {"new": b"2"}
        assert await store.user_state(user, now_ns=20) == {"new": b"2"}

    asyncio.run(main())
