"""Sessions, events, state, hooks, TTL and views of the service over both stores (SUM-SVC, SUM-STO)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.service import helpers
from tests.service.helpers import SECOND, START_NS, say, service_of, session_with, summary_model
from workbench.clock import FixedClock
from workbench.errors import (
    ConfigError,
    EventWindowAnchorNotFoundError,
    InvalidSessionKeyError,
    PagingError,
    SessionExistsError,
    SessionNotFoundError,
    StateKeyError,
)
from workbench.model.types import Message, response_of
from workbench.selftest import store_files as files
from workbench.service.duckdb import DuckDBSessionService
from workbench.service.in_memory import InMemorySessionService
from workbench.service.service import AppendEventContext, GetSessionContext
from workbench.service.settings import ServiceSettings
from workbench.session.recall_types import EventSearchRequest, EventWindowRequest
from workbench.session.types import Event, Session, SessionKey, UserKey
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.indexing import HashEmbedder
from workbench.store.memory import InMemoryStore
from workbench.summary.summarizer import Summarizer

KEY = SessionKey("app", "user", "s")


@pytest.fixture(params=["memory", "duckdb"], scope="module", autouse=True)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """SUM-STO-12: every store passes the same tests."""
    made: list[DuckDBStore] = []

    def new_store(*, event_limit: int) -> DuckDBStore:
        made.append(files.new_store(tmp_path_factory.mktemp("store"), event_limit=event_limit))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "duckdb":
            patch.setattr(helpers, "new_store", new_store)
        yield request.param
    for store in made:
        store.close_now()


def ids(session: Session | None) -> list[str]:
    assert session is not None
    return [event.id for event in session.events]


def test_a_session_without_an_id_gets_one_and_an_existing_id_is_refused() -> None:
    """SUM-SVC-11."""

    async def main() -> None:
        service = service_of()
        first = await service.create_session("app", "user")
        assert len(first.id) == 36
        await service.create_session("app", "user", "s")
        with pytest.raises(SessionExistsError, match="'s' exists already"):
            await service.create_session("app", "user", "s")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("key", "field"), [(("", "u", "s"), "app_name"), (("a", "", "s"), "user_id"), (("a", "u", ""), "session_id")]
)
def test_an_empty_part_of_a_key_is_named(key: tuple[str, str, str], field: str) -> None:
    """SUM-ERR-14."""
    with pytest.raises(InvalidSessionKeyError, match=field):
        asyncio.run(service_of().get_session(SessionKey(*key)))


def test_only_whole_events_with_content_are_stored_but_their_state_always_is() -> None:
    """SUM-SVC-06, SUM-DM-06, SUM-DM-14."""
    partial = Event(id="p", response=replace(response_of(Message(role="assistant", content="a")), is_partial=True))
    state_only = Event(id="x", state_delta={"step": b"2", "gone": None})
    empty = Event(id="y", response=response_of(Message(role="assistant")))

    async def main() -> None:
        service = service_of()
        session = await session_with(service, say(1), partial, state_only, empty)
        assert ids(session) == ["e1"]
        stored = await service.get_session(KEY)
        assert ids(stored) == ["e1"]
        assert stored is not None
        assert stored.state == {"step": b"2", "gone": None}

    asyncio.run(main())


def test_appending_to_an_unknown_session_changes_nothing() -> None:
    """SUM-ERR-16."""

    async def main() -> None:
        session = Session(app_name="app", user_id="user", id="unknown")
        with pytest.raises(SessionNotFoundError):
            await service_of().append_event(session, say(1))
        assert session.events == []

    asyncio.run(main())


def test_append_hooks_run_outermost_first_may_change_the_event_and_may_drop_it() -> None:
    """SUM-SVC-05."""
    order: list[str] = []

    async def outer(context: AppendEventContext, following: Any) -> None:
        order.append("outer")
        context.event = context.event.replace(filter_key="app/branch")
        await following()
        order.append("outer again")

    async def inner(context: AppendEventContext, following: Any) -> None:
        order.append(context.event.filter_key)
        if context.event.id != "e2":
            await following()

    async def main() -> None:
        service = service_of(append_event_hooks=[outer, inner])
        session = await session_with(service, say(1))
        dropped = await service.append_event(session, say(2))
        assert dropped is None
        assert [event.filter_key for event in session.events] == ["app/branch"]
        assert ids(await service.get_session(KEY)) == ["e1"]

    asyncio.run(main())
    assert order == ["outer", "app/branch", "outer again"] * 2


def test_get_hooks_see_the_session_after_the_read_and_may_replace_it() -> None:
    """SUM-SVC-05."""

    async def hook(context: GetSessionContext, following: Any) -> None:
        await following()
        assert context.session is not None
        context.session.state["seen"] = b"1"

    async def main() -> None:
        service = service_of(get_session_hooks=[hook])
        await session_with(service, say(1))
        session = await service.get_session(KEY)
        assert session is not None
        assert session.state == {"seen": b"1"}

    asyncio.run(main())


def test_a_read_returns_the_newest_events_beginning_with_a_user_message() -> None:
    """SUM-SVC-07."""
    events = [say(1), say(2, role="assistant"), say(3), say(4, role="assistant"), say(5, role="assistant")]

    async def main() -> None:
        service = service_of()
        await session_with(service, *events)
        assert ids(await service.get_session(KEY)) == ["e1", "e2", "e3", "e4", "e5"]
        assert ids(await service.get_session(KEY, event_num=4)) == ["e3", "e4", "e5"]
        assert ids(await service.get_session(KEY, event_num=2)) == ["e3"]
        after_all = START_NS + 100 * SECOND
        assert ids(await service.get_session(KEY, event_time_ns=after_all)) == ["e3"]
        assert ids(await service.get_session(KEY, event_time_ns=START_NS + 3 * SECOND)) == ["e3", "e4", "e5"]

    asyncio.run(main())


def test_without_any_user_message_a_read_returns_no_events() -> None:
    """SUM-SVC-07, E46."""

    async def main() -> None:
        service = service_of()
        await session_with(service, say(1, role="assistant"))
        assert ids(await service.get_session(KEY)) == []
        assert [event.id for event in await service.list_events(KEY)] == ["e1"]

    asyncio.run(main())


def test_reading_a_session_changes_neither_its_time_nor_its_expiry() -> None:
    """SUM-SVC-08, SUM-STO-07."""
    clock = FixedClock(START_NS)

    async def main() -> None:
        service = service_of(clock=clock, settings={"session_ttl_s": 10.0, "cleanup_interval_s": 0.0})
        await session_with(service, say(1))
        clock.advance(timedelta(seconds=9))
        session = await service.get_session(KEY)
        assert session is not None
        assert session.updated_ns == START_NS
        clock.advance(timedelta(seconds=1))
        assert await service.get_session(KEY) is None
        assert await service.list_sessions(UserKey("app", "user")) == []
        again = await service.create_session("app", "user", "s")
        assert again.events == []

    asyncio.run(main())


def test_writing_refreshes_the_expiry_and_a_sweep_removes_what_is_over() -> None:
    """SUM-STO-07, SUM-STO-08."""
    clock = FixedClock(START_NS)

    async def main() -> None:
        service = service_of(clock=clock, settings={"session_ttl_s": 10.0, "cleanup_interval_s": 0.0})
        session = await session_with(service, say(1))
        clock.advance(timedelta(seconds=9))
        await service.append_event(session, say(2))
        clock.advance(timedelta(seconds=9))
        assert await service.get_session(KEY) is not None
        clock.advance(timedelta(seconds=2))
        assert await service.store.sweep(now_ns=clock.now_ns()) == 1
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, say(3))

    asyncio.run(main())


def test_paging_counts_from_the_newest_and_skips_the_user_first_rule() -> None:
    """SUM-SVC-09, SUM-ERR-17."""
    events = [say(n, role="assistant" if n % 2 else "user") for n in range(1, 8)]

    async def main() -> None:
        service = service_of()
        await session_with(service, *events)
        assert ids(await service.get_session(KEY, offset=0, limit=3)) == ["e5", "e6", "e7"]
        assert ids(await service.get_session(KEY, offset=5, limit=3)) == ["e1", "e2"]
        with pytest.raises(PagingError):
            await service.get_session(KEY, offset=0, limit=2, event_num=1)
        with pytest.raises(PagingError):
            await service.get_session(KEY, offset=-1)

    asyncio.run(main())


def test_lists_are_newest_first_and_then_by_id_from_the_back() -> None:
    """SUM-SVC-09, SUM-SVC-01."""
    clock = FixedClock(START_NS)

    async def main() -> None:
        service = service_of(clock=clock)
        for name in ("a", "c", "b"):
            await service.create_session("app", "user", name)
        await service.create_session("app", "somebody else", "d")
        old = await service.get_session(SessionKey("app", "user", "a"))
        clock.advance(timedelta(seconds=1))
        assert old is not None
        await service.append_event(old, say(1))
        names = [session.id for session in await service.list_sessions(UserKey("app", "user"))]
        assert names == ["a", "c", "b"]
        page = await service.list_sessions(UserKey("app", "user"), offset=1, limit=1)
        assert [session.id for session in page] == ["c"]

    asyncio.run(main())


def test_state_has_three_scopes_and_each_refuses_the_others_prefixes() -> None:
    """SUM-SVC-10, SUM-DM-13."""

    async def main() -> None:
        service = service_of()
        await session_with(service)
        user = UserKey("app", "user")
        await service.update_app_state("app", {"app:theme": b"dark", "limit": None})
        await service.update_user_state(user, {"user:name": "小明".encode()})
        await service.update_session_state(KEY, {"temp:step": b"1", "plain": b"2"})
        session = await service.get_session(KEY)
        assert session is not None
        assert session.state == {
            "app:theme": b"dark",
            "app:limit": None,
            "user:name": "小明".encode(),
            "temp:step": b"1",
            "plain": b"2",
        }
        with pytest.raises(StateKeyError):
            await service.update_user_state(user, {"fine": b"", "app:x": b""})
        with pytest.raises(StateKeyError):
            await service.update_session_state(KEY, {"user:x": b""})
        assert await service.list_user_state(user) == {"name": "小明".encode()}
        await service.delete_app_state("app", "app:theme")
        await service.delete_user_state(user, "name")
        assert await service.list_app_state("app") == {"limit": None}
        assert await service.list_user_state(user) == {}

    asyncio.run(main())


def test_deleting_a_session_removes_everything_of_it() -> None:
    """SUM-STO-08, SUM-STO-09."""

    async def main() -> None:
        service = service_of()
        await session_with(service, say(1))
        await service.delete_session(KEY)
        assert await service.get_session(KEY) is None
        again = await service.create_session("app", "user", "s")
        assert (again.events, again.summaries) == ([], {})

    asyncio.run(main())


def test_a_loaded_session_is_a_copy_of_its_own() -> None:
    """SUM-DM-08."""

    async def main() -> None:
        service = service_of()
        await session_with(service, say(1))
        first = await service.get_session(KEY)
        assert first is not None
        first.state["x"] = b"1"
        first.append(say(9))
        assert ids(await service.get_session(KEY)) == ["e1"]

    asyncio.run(main())


def test_a_read_is_cut_to_the_limit_and_the_callers_object_keeps_everything(backend: str) -> None:
    """SUM-STO-06, SUM-STO-05: memory trims what it holds, a database keeps all rows."""

    async def main() -> None:
        service = service_of(settings={"event_limit": 4})
        session = await session_with(service, *(say(n) for n in range(1, 12)))
        assert len(session.events) == 11
        assert ids(await service.get_session(KEY)) == ["e8", "e9", "e10", "e11"]
        assert len(await service.list_events(KEY)) == (4 if backend == "memory" else 11)

    asyncio.run(main())


def test_a_window_reads_the_raw_events_around_an_anchor() -> None:
    """SUM-WIN-01, SUM-WIN-03."""

    async def main() -> None:
        service = service_of()
        await session_with(service, *(say(n, role="assistant") for n in range(1, 6)))
        window = await service.get_event_window(EventWindowRequest(KEY, "e3", before=1, after=1))
        assert [entry.event.id for entry in window.entries] == ["e2", "e3", "e4"]
        with pytest.raises(EventWindowAnchorNotFoundError):
            await service.get_event_window(EventWindowRequest(KEY, "e9"))
        with pytest.raises(EventWindowAnchorNotFoundError):
            await service.get_event_window(EventWindowRequest(SessionKey("app", "user", "other"), "e3"))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("async_summary_num", 0),
        ("summary_queue_size", 0),
        ("summary_job_timeout_s", 0.0),
        ("event_limit", -1),
        ("async_summary_num", True),
        ("summary_job_timeout_s", float("nan")),
    ],
)
def test_impossible_settings_name_the_field(field: str, value: Any) -> None:
    """SUM-ERR-02."""
    with pytest.raises(ConfigError, match=field):
        ServiceSettings(**{field: value})


def test_the_named_constructor_takes_the_references_option_names() -> None:
    """SUM-STO-14, SUM-STO-03."""
    service = InMemorySessionService(
        async_summary_num=2,
        summary_queue_size=100,
        summary_job_timeout=timedelta(seconds=60),
        summary_filter_allowlist=["app/a"],
        session_ttl=timedelta(hours=1),
    )
    assert service.settings.async_summary_num == 2
    assert service.settings.session_ttl_s == 3600
    assert service.settings.summary_filter_allowlist == ("app/a",)


def test_the_durable_services_sessions_survive_it_and_can_be_recalled(tmp_path: Path) -> None:
    """SUM-STO-14, SUM-STO-03, SUM-STO-01: options of the same names; windows and search by words and by vectors."""

    def service(**options: Any) -> DuckDBSessionService:
        options = {"clock": FixedClock(START_NS), "session_ttl": timedelta(hours=1), **options}
        return DuckDBSessionService(tmp_path / "x.duckdb", **options)

    async def main() -> None:
        async with service() as first:
            assert first.settings.session_ttl_s == 3600
            assert first.settings.event_limit == 1000
            await session_with(first, *(say(n, f"about topic {n}") for n in range(1, 6)))
        for options in ({}, {"embedder": HashEmbedder(64)}):
            async with service(**options) as second:
                assert ids(await second.get_session(KEY)) == ["e1", "e2", "e3", "e4", "e5"]
                window = await second.get_event_window(EventWindowRequest(KEY, "e3", before=1, after=1))
                assert [entry.event.id for entry in window.entries] == ["e2", "e3", "e4"]
                found = await second.search_events(EventSearchRequest("topic 4", UserKey("app", "user"), max_results=1))
                assert [hit.event.id for hit in found] == ["e4"]
        async with service(clock=FixedClock(START_NS + 3601 * SECOND)) as late:
            assert await late.get_session(KEY) is None

    asyncio.run(main())


def test_summaries_of_the_durable_service_are_there_after_reopening(tmp_path: Path) -> None:
    """SUM-STO-08, SUM-STO-13, SUM-DM-15."""

    async def main() -> None:
        summarizer = Summarizer(summary_model("the summary"), prompt="{conversation_text}")
        async with DuckDBSessionService(tmp_path / "x.duckdb", summarizer=summarizer) as first:
            session = await session_with(first, say(1), say(2, role="assistant"))
            await first.create_session_summary(session, "app", force=True)
            expected = dict(session.summaries)
        assert expected["app"].summary == "the summary"
        async with DuckDBSessionService(tmp_path / "x.duckdb") as second:
            again = await second.get_session(KEY)
            assert again is not None
            assert again.summaries == expected

    asyncio.run(main())


@given(st.lists(st.sampled_from(["user", "assistant"]), max_size=12), st.integers(0, 6))
def test_a_view_is_a_tail_that_begins_with_the_user_or_is_one_user_message_or_nothing(roles: list[str], n: int) -> None:
    """SUM-SVC-07."""

    async def main() -> None:
        service = service_of(store=InMemoryStore())
        await session_with(service, *(say(i, role=role) for i, role in enumerate(roles)))
        view = ids(await service.get_session(KEY, event_num=n))
        stored = [f"e{i}" for i in range(len(roles))]
        if "user" not in roles:
            assert view == []
        elif view != stored[len(stored) - len(view) :]:
            assert view == [f"e{len(roles) - 1 - roles[::-1].index('user')}"]
        else:
            assert roles[len(roles) - len(view)] == "user"
            assert not n or len(view) <= n

    asyncio.run(main())
