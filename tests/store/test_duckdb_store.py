"""The DuckDB store does what the in-memory store does, whatever it is given, and keeps its engine closed."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.store.driver import APPS, TEXTS, USERS, Driver, result_of, whole
from tests.store.files import KEY, START_NS, append, create, event_of, fill, ids_in, new_store
from workbench.errors import (
    ConfigError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
)
from workbench.session.types import Session, SessionKey, Summary, SummaryBoundary, UserKey
from workbench.store.duckdb import live
from workbench.store.duckdb.codec import column_text, text_of_column
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.memory import InMemoryStore

PACKAGE = Path(live.__file__).parent

PAYLOADS = [
    *("'", '"', "''", "\\", "\\'", "%", "_", "*", "?", ":", "$1", "{}", "{0}", "%s", ";", "--", "/* */", "#"),
    *("' OR '1'='1", '" OR ""="', "'; DROP TABLE session_states; --", "1; DELETE FROM session_events", "') OR ('1'='1"),
    *("' UNION SELECT * FROM store_info --", "x' AND 1=0 UNION SELECT 1,2,3 --", "'; ATTACH 'x.db'; --"),
    *("'; COPY session_events TO 'out.csv'; --", "'; INSTALL httpfs; --", "read_csv('a')", "'||version()||'", "${x}"),
    *("a\x00b", "\x00", "\x00json:", '\x00json:"a"', "\ud800", "\udfff\ud800", "a\ud83d", "\ufeff", "\u2028", "\u202e"),
    *("\r\n", "\n", "\t", " ", "  s  ", "e\u0301", "\u00e9", "ＳＥＬＥＣＴ", "𝕊", "😀", "汉字", "日本語", "한국어"),
    *("NULL", "null", "None", "0", "-1", "1e309", "true", "x" * 300, "../../etc/passwd", "C:\\x", "s", "S"),
]


def run(work: Any) -> Any:
    return asyncio.run(work)


# --- the same as memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_two_thousand_random_operations_answer_as_in_memory(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-01, SUM-STO-05, SUM-STO-11, SUM-STO-12, SUM-STO-13: with closing and opening, and caches far too small."""
    monkeypatch.setattr(live, "BATCH_CHANGES", 30)
    monkeypatch.setattr(live, "MAX_CACHED_EVENTS", 60)
    monkeypatch.setattr(live, "MAX_CACHED_SESSIONS", 9)
    if seed % 2:
        monkeypatch.setattr(live, "MAX_KNOWN_KEYS", 0)

    async def main() -> None:
        driver, memory = Driver(seed), InMemoryStore()
        store = new_store(tmp_path, soft_delete=bool(seed % 2))
        for i in range(1000):
            name, args, kwargs = driver.step()
            expected = await result_of(getattr(memory, name), *args, **kwargs)
            found = await result_of(getattr(store, name), *args, **kwargs)
            assert found == expected, f"seed {seed}, step {i}: {name}{args} {kwargs}"
            if i % 200 == 199:
                await store.close()
                store = DuckDBStore(store.path, soft_delete=bool(seed % 2))
                assert await whole(store, driver.now_ns) == await whole(memory, driver.now_ns)
        await store.close()

    run(main())


def test_sixty_hostile_ids_are_only_ids(tmp_path: Path) -> None:
    """SEC-01: as application, user, session, filter key, state key and event id, compared with memory."""
    assert len(PAYLOADS) >= 60

    async def main() -> None:
        memory, store = InMemoryStore(), new_store(tmp_path)
        before = schema_of(store)
        for payload in PAYLOADS:
            for key in (SessionKey(payload, "u", "s"), SessionKey("a", payload, "s"), SessionKey("a", "u", payload)):
                for one in (memory, store):
                    if await one.load(key, now_ns=START_NS) is None:
                        await create(one, key)
                    await append(one, event_of(1, id=payload, author=payload, filter_key=payload), key)
                    boundary = SummaryBoundary(payload, 5, payload)
                    await one.save_summary(key, payload, Summary(payload, 5, boundary, (payload,)), now_ns=START_NS)
                    times = {"expires_ns": 0, "now_ns": START_NS}
                    await one.update_session_state(key, {payload: b"s"}, updated_ns=START_NS, **times)
                    await one.update_app_state(payload, {payload: b"a"}, **times)
                    await one.update_user_state(UserKey("a", payload), {payload: b"u"}, **times)
        path = store.path
        await store.close()
        store = DuckDBStore(path)
        for payload in PAYLOADS:
            for key in (SessionKey(payload, "u", "s"), SessionKey("a", payload, "s"), SessionKey("a", "u", payload)):
                user = UserKey(key.app_name, key.user_id)
                for name, args in (
                    *(("list_sessions", (user,)), ("load", (key,))),
                    *(("app_state", (payload,)), ("user_state", (UserKey("a", payload),))),
                ):
                    expected = await result_of(getattr(memory, name), *args, now_ns=START_NS)
                    assert await result_of(getattr(store, name), *args, now_ns=START_NS) == expected, (name, args)
        assert schema_of(store) == before
        await store.close()

    run(main())


def schema_of(store: DuckDBStore) -> list[Any]:
    with store._database.reading() as connection:
        return connection.execute("SELECT table_name, sql FROM duckdb_tables() ORDER BY ALL").fetchall()


@pytest.mark.parametrize("text", [*PAYLOADS, *TEXTS], ids=ascii)
def test_different_texts_stay_different_in_a_column(text: str) -> None:
    """M16."""
    stored = column_text(text)
    assert stored.encode().decode() == stored
    assert text_of_column(stored) == text


def test_the_first_argument_of_every_statement_is_a_constant() -> None:
    """SEC-01."""
    names = 0
    for file in sorted(PACKAGE.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
            if is_call and node.func.attr in ("execute", "executemany", "sql", "query"):
                first = node.args[0]
                is_constant = isinstance(first, ast.Constant) or (isinstance(first, ast.Name) and first.id.isupper())
                # Loops over constant tuples, the one door of `Database._rows`, and the pair given to `attach`.
                is_known = ast.unparse(first) in ("statement", "sql", "attach[0]")
                assert is_constant or is_known, f"{file.name}:{node.lineno}: {ast.unparse(first)}"
                names += 1
            if is_call and node.func.attr == "_rows":
                assert isinstance(node.args[0], ast.Name), f"{file.name}:{node.lineno}"
                assert node.args[0].id.isupper()
            assert not (
                isinstance(node, ast.JoinedStr) and "SELECT" in ast.unparse(node) and file.name != "maintenance.py"
            )
    assert names > 15


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH 'other.duckdb'",
        "COPY (SELECT 1) TO 'out.csv'",
        "SELECT * FROM read_csv('x.csv')",
        "SELECT * FROM 'x.parquet'",
        "SELECT * FROM read_text('/etc/hostname')",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPORT DATABASE 'folder'",
        "SELECT * FROM PAYLOADS",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET python_enable_replacements = true",
    ],
)
def test_the_engine_reaches_nothing_but_its_file(statement: str, open_store: DuckDBStore) -> None:
    """SEC-02, M23: on the writing and on the reading connection."""
    for connection in (open_store._database._writes, open_store._database._reads):
        with pytest.raises(duckdb.Error):
            connection.execute(statement).fetchall()


@pytest.fixture(scope="module")
def open_store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    store = new_store(tmp_path_factory.mktemp("store"))
    yield store
    store.close_now()


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

    async def main() -> None:
        store = new_store(tmp_path)
        await fill(store, 3)
        await fill(store, 2, SessionKey("app", "user", "other"))
        await store.close()
        with duckdb.connect(str(store.path)) as connection:
            connection.execute("UPDATE session_events SET event = '[1]' WHERE position = 1 AND session_id = 's'")
        store = DuckDBStore(store.path)
        with pytest.raises(StoreCorruptError, match="event 1 of session 's' can't be read"):
            await store.load(KEY, now_ns=START_NS)
        other = await store.load(SessionKey("app", "user", "other"), now_ns=START_NS)
        assert other is not None
        assert len(other.events) == 2
        await append(store, event_of(3))
        await store.close()
        with duckdb.connect(str(store.path)) as connection:
            connection.execute("DELETE FROM session_events WHERE position = 1 AND session_id = 'other'")
        store = DuckDBStore(store.path)
        with pytest.raises(StoreCorruptError, match="event 1 of session 'other' is missing"):
            await store.list_events(SessionKey("app", "user", "other"), now_ns=START_NS)
        await store.close()

    run(main())


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


def test_many_tasks_write_one_store_without_losing_or_mixing_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-03, SUM-STO-05: eight writers, one shared session and one each; a slow database makes them wait."""
    monkeypatch.setattr(live, "BATCH_CHANGES", 20)
    monkeypatch.setattr(live, "MAX_WAITING_CHANGES", 60)

    async def writer(store: DuckDBStore, n: int) -> None:
        own = SessionKey("app", f"user{n}", "s")
        with pytest.raises(SessionNotFoundError):
            await append(store, event_of(0), own)
        await create(store, own)
        for i in range(40):
            await append(store, event_of(i, id=f"{n}-{i}"), own)
            await append(store, event_of(i, id=f"{n}-{i}"))
            if i % 10 == 0:
                await asyncio.sleep(0)

    async def main() -> None:
        store = new_store(tmp_path)
        await create(store)
        await asyncio.gather(*(writer(store, n) for n in range(8)))
        for _ in range(2):
            shared = [event.id for event in await store.list_events(KEY, now_ns=START_NS)]
            assert len(shared) == len(set(shared)) == 320
            for n in range(8):
                mine = [f"{n}-{i}" for i in range(40)]
                assert [event_id for event_id in shared if event_id.startswith(f"{n}-")] == mine
                events = await store.list_events(SessionKey("app", f"user{n}", "s"), now_ns=START_NS)
                assert [event.id for event in events] == mine
            await store.close()
            store = DuckDBStore(store.path)
        await store.close()

    run(main())


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
