"""The DuckDB store does what the in-memory store does, whatever it is given, and keeps its engine closed."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import duckdb
import pytest

from workbench.errors import (
    ConfigError,
    SessionExistsError,
    StoreClosedError,
    StoreError,
)
from workbench.selftest import damage, engine, operations, writers
from workbench.selftest.engine import PAYLOADS
from workbench.selftest.operations import APPS, TEXTS, USERS
from workbench.selftest.store_files import KEY, START_NS, append, create, event_of, fill, ids_in, new_store
from workbench.selftest.tally import Tally
from workbench.session.types import Session, SessionKey, Summary, SummaryBoundary, UserKey
from workbench.store.duckdb import live
from workbench.store.duckdb.codec import column_text, text_of_column
from workbench.store.duckdb.store import DuckDBStore


def run(work: Any) -> Any:
    return asyncio.run(work)


# --- the same as memory ------------------------------------------------------------------------------


def test_two_thousand_random_operations_answer_as_in_memory(tmp_path: Path) -> None:
    """REL-01, REL-16, SUM-STO-05, SUM-STO-11 to -13: with closing and opening, clocks put back, small caches."""
    tally = operations.compare_with_memory(tmp_path, n=2000, seed=1, n_per_store=1000, n_until_reopened=500)
    assert (tally.n, tally.examples) == (2000, [])


def test_a_difference_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-01: the comparison is worth something."""

    async def forget(*_: Any, **__: Any) -> bool:
        return True

    monkeypatch.setattr(DuckDBStore, "save_summary", forget)
    tally = operations.compare_with_memory(tmp_path, n=300, seed=1)
    assert tally.faults == {"differences": 1}
    assert "seed 1, step" in tally.examples[0]


@pytest.mark.parametrize("n_texts", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_hostile_texts_in_eleven_inputs_are_only_texts(n_texts: int, tmp_path: Path) -> None:
    """SEC-01: application, user, session, filter key, state key, event id, search, paging, names; as in memory."""
    assert len(PAYLOADS) >= 60
    tally = engine.hostile_ids(tmp_path, n=11 * n_texts, seed=1)
    assert (tally.n, tally.examples) == (11 * n_texts, [])


@pytest.mark.parametrize("text", [*PAYLOADS, *TEXTS], ids=ascii)
def test_different_texts_stay_different_in_a_column(text: str) -> None:
    """M16."""
    stored = column_text(text)
    assert stored.encode().decode() == stored
    assert text_of_column(stored) == text


@pytest.mark.slow
def test_no_module_makes_statements_of_data_or_runs_data_as_code() -> None:
    """SEC-01, SEC-04: the first argument of every statement is a constant."""
    tally = engine.source_findings(Path(), n=10_000, seed=1)
    assert tally.n > 150
    assert tally.examples == []


@pytest.mark.parametrize(
    "call", ["c.execute(f'SELECT {x}')", "c.execute('SELECT ' + x)", "self._rows(text)", "c.sql(q)"]
)
def test_a_statement_made_of_data_is_noticed(call: str) -> None:
    """SEC-01."""
    (node,) = (node for node in ast.walk(ast.parse(call)) if isinstance(node, ast.Call))
    assert not engine.is_constant_statement(node)


def test_the_engine_reaches_nothing_but_its_file(tmp_path: Path) -> None:
    """SEC-02, M23: on the writing and on the reading connection."""
    tally = engine.closed_engine(tmp_path, n=12, seed=1)
    assert (tally.n, tally.examples) == (12, [])


# --- what only a database has ------------------------------------------------------------------------


def test_events_summaries_and_sessions_can_be_queried_with_sql(tmp_path: Path) -> None:
    """SUM-STO-04: key columns, exact moments, the event as JSON."""

    async def main() -> Path:
        store = new_store(tmp_path)
        await fill(store, 2)
        await append(store, event_of(2, time_ns=START_NS + 123_456_789, extensions={"a": "\ud800"}))
        await store.save_summary(KEY, "app/x", Summary("sum", 7), now_ns=START_NS)
        await store.close()
        return store.path

    with duckdb.connect(str(run(main())), read_only=True) as connection:
        rows = connection.execute(
            "SELECT app_name, user_id, session_id, position, event_id, time_ns, event->>'$.id' FROM session_events"
        ).fetchall()
        assert rows == [
            ("app", "user", "s", 0, "e0", START_NS, "e0"),
            ("app", "user", "s", 1, "e1", START_NS + 1, "e1"),
            ("app", "user", "s", 2, "e2", START_NS + 123_456_789, "e2"),
        ]
        summary = connection.execute("SELECT session_id, filter_key, summary->>'$.summary' FROM session_summaries")
        assert summary.fetchall() == [("s", "app/x", "sum")]
        assert connection.execute("SELECT n_events, deleted_ns FROM session_states").fetchall() == [(3, 0)]


@pytest.mark.parametrize(("soft_delete", "n_rows"), [(True, 4), (False, 1)])
def test_deleted_sessions_stay_as_rows_that_nobody_sees_or_go(soft_delete: bool, n_rows: int, tmp_path: Path) -> None:
    """SUM-STO-09, SUM-STO-08: creating the id again sees nothing of the old session."""

    async def main() -> Path:
        store = new_store(tmp_path, soft_delete=soft_delete)
        await fill(store, 3)
        await store.save_summary(KEY, "", Summary("old", 7), now_ns=START_NS)
        await store.flush()
        await store.delete(KEY)
        assert await store.load(KEY, now_ns=START_NS) is None
        await fill(store, 1)
        session = await store.load(KEY, now_ns=START_NS)
        assert session is not None
        assert (len(session.events), session.summaries) == (1, {})
        await store.close()
        return store.path

    path = run(main())
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM session_events").fetchall() == [(n_rows,)]

    async def again() -> None:
        store = DuckDBStore(path, soft_delete=soft_delete)
        session = await store.load(KEY, now_ns=START_NS)
        assert session is not None
        assert (len(session.events), session.summaries) == (1, {})
        assert len(await store.list_sessions(UserKey("app", "user"), now_ns=START_NS)) == 1
        await store.close()

    run(again())


def test_a_limit_bounds_what_a_read_returns_and_removes_nothing(tmp_path: Path) -> None:
    """SUM-STO-06: databases keep all rows and limit on read."""

    async def main() -> None:
        store = new_store(tmp_path, event_limit=4)
        await fill(store, 11)
        for _ in range(2):
            session = await store.load(KEY, now_ns=START_NS)
            assert session is not None
            assert [event.id for event in session.events] == ["e7", "e8", "e9", "e10"]
            assert session.first_position == 7
            newest = await store.load(KEY, now_ns=START_NS, newest_events=1)
            assert newest is not None
            assert [event.id for event in newest.events] == ["e10"]
            await store.close()
            store = DuckDBStore(store.path, event_limit=4)
        assert len(await store.list_events(KEY, now_ns=START_NS)) == 11
        await store.close()

    run(main())


def test_listing_and_opening_read_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PERF-09."""

    async def main() -> None:
        store = new_store(tmp_path)
        for n in range(5):
            await fill(store, 3, SessionKey("app", "user", f"s{n}"))
        await store.close()
        monkeypatch.setattr(DuckDBStore, "_read_events", None)
        store = DuckDBStore(store.path)
        sessions = await store.list_sessions(UserKey("app", "user"), now_ns=START_NS)
        assert sorted(session.id for session in sessions) == [f"s{n}" for n in range(5)]
        # Nor does it cost a query the second time, or for an id that doesn't exist.
        monkeypatch.setattr(store, "_read", None)
        assert len(await store.list_sessions(UserKey("app", "user"), now_ns=START_NS)) == 5
        assert await store.load(SessionKey("app", "user", "unknown"), now_ns=START_NS) is None
        monkeypatch.undo()
        await store.close()

    run(main())


def test_positions_of_events_that_are_not_in_memory_decide_between_equal_cutoffs(tmp_path: Path) -> None:
    """SUM-STO-13, SUM-STO-11: set-if-not-older."""

    async def main() -> None:
        store = new_store(tmp_path)
        await fill(store, 5)
        stored = Summary("new", 9, SummaryBoundary("", 9, "e3"))
        assert await store.save_summary(KEY, "", stored, now_ns=START_NS)
        await store.close()
        store = DuckDBStore(store.path)
        older = Summary("old", 9, SummaryBoundary("", 9, "e1"))
        assert not await store.save_summary(KEY, "", older, now_ns=START_NS)
        assert not await store.save_summary(KEY, "", Summary("", 8), now_ns=START_NS)
        assert (await store.load_summaries(KEY, now_ns=START_NS))[""] == stored
        newer = Summary("newer", 9, SummaryBoundary("", 9, "e4"))
        assert await store.save_summary(KEY, "", newer, now_ns=START_NS)
        await store.close()

    run(main())


def test_a_long_session_that_is_being_written_stays_short_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-12: memory doesn't grow with the history, and nothing of it is missing."""
    monkeypatch.setattr(live, "BATCH_CHANGES", 20)
    monkeypatch.setattr(live, "MAX_CACHED_EVENTS", 100)

    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)
        for n in range(600):
            await append(store, event_of(n))
            if n % 20 == 19:
                await asyncio.sleep(0.01)
        await store.flush()
        in_memory = sum(len(entry.session.events) for entry in store._entries.values())
        assert in_memory == store._n_events <= 100
        assert [event.id for event in await store.list_events(KEY, now_ns=START_NS)] == [f"e{n}" for n in range(600)]
        await append(store, event_of(600))
        newest = await store.load(KEY, now_ns=START_NS, newest_events=2)
        assert newest is not None
        assert [event.id for event in newest.events] == ["e599", "e600"]
        await store.close()
        assert len(await ids_in(store.path)) == 601

    run(main())


def test_one_unreadable_event_spoils_only_its_session(tmp_path: Path) -> None:
    """REL-05: reading the session names the event, all other sessions stay readable."""
    tally = damage.bad_rows(tmp_path, n=4, seed=1)
    assert (tally.n, tally.examples) == (4, [])


def test_what_can_not_be_stored_exactly_is_refused_before_it_is_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)
        loop: list[Any] = []
        loop.append(loop)
        for event in (event_of(1, extensions={"a": object()}), event_of(1, extensions={"a": loop})):
            with pytest.raises(StoreError, match="isn't JSON"):
                await append(store, event)
        with pytest.raises(StoreError, match="out of range"):
            await append(store, event_of(1, time_ns=2**63))
        assert await store.list_events(KEY, now_ns=START_NS) == []
        await store.close()

    run(main())


def test_a_closed_store_says_so_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)
        await store.close()
        await store.close()
        store.close_now()
        for call in (create(store), append(store, event_of(1)), store.load(KEY, now_ns=0), store.sweep(now_ns=0)):
            with pytest.raises(StoreClosedError):
                await call

    run(main())


def test_a_temporary_store_needs_no_path_and_leaves_nothing() -> None:
    """SUM-STO-14."""

    async def main() -> Path:
        store = DuckDBStore(":memory:")
        await fill(store, 2)
        assert len(await store.list_events(KEY, now_ns=START_NS)) == 2
        await store.close()
        return store.path

    assert not run(main()).parent.exists()
    with pytest.raises(ConfigError, match="durability"):
        DuckDBStore(":memory:", durability="perhaps")  # type: ignore[arg-type]


def test_many_tasks_write_one_store_without_losing_or_mixing_anything(tmp_path: Path) -> None:
    """REL-03, SUM-STO-05: eight writers, one shared session and one each; a slow database makes them wait."""
    tally = writers.concurrent_writers(tmp_path, n=1, seed=1, n_appends=100)
    assert (tally.n, tally.examples) == (1, [])
    assert tally.seen["appends"] == 1600


def test_a_history_tells_lost_doubled_reordered_and_ghostly_elements() -> None:
    """REL-03: the judge of the writers is worth something."""
    history = writers.History()
    history.acknowledged = {0: ["a", "b", "c"]}
    history.refused, history.unknown = {"d"}, {"e", "f"}
    tally = Tally("runs", "lost", "duplicated", "reordered", "ghosts")
    history.judge(["a", "b", "c", "e"], tally, "")
    assert tally.n_faults == 0
    history.judge(["c", "b", "b", "d"], tally, "")
    assert tally.faults == {"lost": 1, "duplicated": 1, "reordered": 1, "ghosts": 1}


def test_a_call_cancelled_at_any_of_its_awaits_is_whole_or_absent(tmp_path: Path) -> None:
    """REL-10, SUM-CORE-05: appends, a summary, flush and close; no task is left and the file is free."""
    tally = writers.cancellations(tmp_path, n=50, seed=1)
    assert tally.examples == []
    assert tally.n >= 9
    assert set(tally.seen) == set(writers.CANCELLED_CALLS)


def test_two_tasks_can_not_create_the_same_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SUM-SVC-11, SUM-STO-11: uniqueness is decided here, not by an index."""
    monkeypatch.setattr(live, "MAX_KNOWN_KEYS", -1)  # so that both have to ask the database

    async def main() -> None:
        store = new_store(tmp_path)
        results = await asyncio.gather(create(store), create(store), return_exceptions=True)
        assert [type(result) for result in results] == [type(None), SessionExistsError]
        await store.close()

    run(main())


def test_a_session_given_with_events_and_summaries_is_stored_with_them(tmp_path: Path) -> None:
    async def main() -> None:
        store = new_store(tmp_path)
        session = Session(
            app_name=APPS[0],
            user_id=USERS[0],
            id="s",
            events=[event_of(1), event_of(2, extensions={"x": "\ud800"})],
            summaries={"k": Summary("s", 3)},
        )
        await store.create(session, expires_ns=0, now_ns=1)
        await append(store, event_of(3))
        await store.close()
        store = DuckDBStore(store.path)
        found = await store.load(KEY, now_ns=1)
        assert found is not None
        assert (found.events[:2], found.summaries, len(found.events)) == (session.events, session.summaries, 3)
        await store.close()

    run(main())
