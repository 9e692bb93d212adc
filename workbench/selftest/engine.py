"""Hostile ids, statements that must be refused, files that would run code (SEC-01, SEC-02, SEC-04).

In: a folder, a number of trials, a seed. Out: a tally. Whatever stands in an id, the store must do what a
dictionary does, and its tables must stay as they were.
"""

from __future__ import annotations

import ast
import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import RecordingError, StoreError, WorkbenchError
from workbench.recordings import load_recordings
from workbench.selftest.operations import seen, whole
from workbench.selftest.store_files import KEY, START_NS, append, create, empty_store, event_of, fill, ids_in, new_store
from workbench.selftest.tally import Tally
from workbench.service.service import SessionService
from workbench.session.recall_types import EventSearchRequest, EventWindowRequest
from workbench.session.types import Session, SessionKey, Summary, SummaryBoundary, UserKey
from workbench.store.duckdb.store import DuckDBStore
from workbench.store.memory import InMemoryStore
from workbench.store.tables import open_tables, quote_identifier, translated

PAYLOADS = (
    *("'", '"', "''", "\\", "\\'", "%", "_", "*", "?", ":", "$1", "{}", "{0}", "%s", ";", "--", "/* */", "#"),
    *("' OR '1'='1", '" OR ""="', "'; DROP TABLE session_states; --", "1; DELETE FROM session_events", "') OR ('1'='1"),
    *("' UNION SELECT * FROM store_info --", "x' AND 1=0 UNION SELECT 1,2,3 --", "'; ATTACH 'x.db'; --"),
    *("'; COPY session_events TO 'out.csv'; --", "'; INSTALL httpfs; --", "read_csv('a')", "'||version()||'", "${x}"),
    *("a\x00b", "\x00", "\x00json:", '\x00json:"a"', "\ud800", "\udfff\ud800", "a\ud83d", "\ufeff", "\u2028", "\u202e"),
    *("\r\n", "\n", "\t", " ", "  s  ", "e\u0301", "\u00e9", "ＳＥＬＥＣＴ", "𝕊", "😀", "汉字", "日本語", "한국어"),
    *("NULL", "null", "None", "0", "-1", "1e309", "true", "x" * 300, "../../etc/passwd", "C:\\x", "s", "S"),
)
FINDER = UserKey("app", "finder")
FOUND = SessionKey("app", "finder", "s")
_TIMES: dict[str, Any] = {"expires_ns": 0, "now_ns": START_NS}

# --- hostile ids (SEC-01) -----------------------------------------------------------------------------


async def _session(store: Any, key: SessionKey) -> Session | None:
    if await store.load(key, now_ns=START_NS) is None:
        await create(store, key)
    await append(store, event_of(1), key)
    session: Session | None = await store.load(key, now_ns=START_NS)
    return session


async def _as_application(store: Any, text: str) -> Any:
    found = await _session(store, SessionKey(text, "u", "s"))
    await store.update_app_state(text, {"a": b"1"}, **_TIMES)
    return found, await store.app_state(text, now_ns=START_NS), await store.list_sessions(UserKey(text, "u"), now_ns=1)


async def _as_user(store: Any, text: str) -> Any:
    user = UserKey("a", text)
    found = await _session(store, SessionKey("a", text, "s"))
    await store.update_user_state(user, {"a": b"1"}, **_TIMES)
    return found, await store.user_state(user, now_ns=START_NS), await store.list_sessions(user, now_ns=1)


async def _as_session(store: Any, text: str) -> Any:
    key = SessionKey("a", "u", text)
    found = await _session(store, key)
    await store.delete(key)
    return found, await store.load(key, now_ns=START_NS), await _session(store, key)


async def _as_filter_key(store: Any, text: str) -> Any:
    await append(store, event_of(1, filter_key=text))
    summary = Summary(text, 5, SummaryBoundary(text, 5, "e1"), (text,))
    is_stored = await store.save_summary(KEY, text, summary, now_ns=START_NS)
    return is_stored, (await store.load_summaries(KEY, now_ns=START_NS))[text]


async def _as_state_key(store: Any, text: str) -> Any:
    user = UserKey("app", "user")
    await store.update_session_state(KEY, {text: b"s"}, updated_ns=START_NS, **_TIMES)
    await store.update_app_state("app", {text: b"a"}, **_TIMES)
    await store.update_user_state(user, {text: b"u"}, **_TIMES)
    states = await store.app_state("app", now_ns=START_NS), await store.user_state(user, now_ns=START_NS)
    await store.delete_app_state("app", text)
    await store.delete_user_state(user, text)
    return *states, await store.app_state("app", now_ns=START_NS), await store.user_state(user, now_ns=START_NS)


async def _as_event_id(store: Any, text: str) -> Any:
    await append(store, event_of(2, id=text, author=text, branch=text))
    summary = Summary("s", START_NS, SummaryBoundary("", START_NS, text))
    return [await store.save_summary(KEY, "", summary, now_ns=START_NS), (await store.list_events(KEY, now_ns=1))[-1]]


async def _as_search_text(store: Any, text: str) -> Any:
    request = EventSearchRequest(text, FINDER, search_mode="hybrid")
    return await SessionService(store).search_events(request)


async def _as_search_filter(store: Any, text: str) -> Any:
    request = EventSearchRequest(
        "text", FINDER, (text, "s"), (text,), filter_key=text, roles=(text,), search_mode="hybrid"
    )
    return await SessionService(store).search_events(request)


async def _as_page(store: Any, text: str) -> Any:
    return await SessionService(store).get_event_window(EventWindowRequest(FOUND, text, 1, 1))


INPUTS: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "application": _as_application,
    "user": _as_user,
    "session": _as_session,
    "filter key": _as_filter_key,
    "state key": _as_state_key,
    "event id": _as_event_id,
    "search text": _as_search_text,
    "search filter": _as_search_filter,
    "page anchor": _as_page,
}


async def _answer(call: Callable[[Any, str], Awaitable[Any]], store: Any, text: str) -> Any:
    try:
        found = await call(store, text)
    except WorkbenchError as error:
        return type(error).__name__, str(error)
    return [seen(part) for part in found] if isinstance(found, tuple) else found


def hostile_ids(folder: Path, *, n: int, seed: int) -> Tally:
    """SEC-01: each payload as each key-like input, compared with the memory store; table and column names are refused.

    Args:
        n: Pairs of payload and input, eleven for each payload.
    """
    del seed
    payloads = PAYLOADS[: n // (len(INPUTS) + 2)]
    tally = Tally("payloads in inputs", "differences", "tables changed", "not refused")

    async def main() -> None:
        memory, store = InMemoryStore(), new_store(folder, "hostile.duckdb")
        for one in (memory, store):
            await create(one)
            await fill(one, 3, FOUND)
        before = _tables(store)
        for payload in payloads:
            for name, call in INPUTS.items():
                expected, found = await _answer(call, memory, payload), await _answer(call, store, payload)
                tally.trial()
                tally.expect(found == expected, "differences", f"{payload!r} as {name}: {found} instead of {expected}")
        path = store.path
        await store.close()
        store = DuckDBStore(path)
        users = [UserKey("app", "user"), FINDER]
        for payload in payloads:
            users += [UserKey(payload, "u"), UserKey("a", payload)]
        for user in [*users, UserKey("a", "u")]:
            for session in await memory.list_sessions(user, now_ns=START_NS):
                expected = seen(await memory.load(session.key, now_ns=START_NS))
                found = seen(await store.load(session.key, now_ns=START_NS))
                tally.expect(found == expected, "differences", f"{session.key} after opening")
        tally.expect(await whole(store, START_NS) == await whole(memory, START_NS), "differences", "after opening")
        tally.expect(_tables(store) == before, "tables changed", "after all payloads")
        await store.close()

    asyncio.run(main())
    _hostile_names(empty_store(folder, "names.duckdb"), payloads, tally)
    return tally


def _hostile_names(path: Path, payloads: Sequence[str], tally: Tally) -> None:
    """There is no prefix and no schema to set; where a name goes into a statement, it is quoted, and unknown."""
    with open_tables(path, read_only=True) as connection:
        for payload in payloads:
            name = quote_identifier(payload)
            for statement in (f"SELECT * FROM {name}", f"SELECT * FROM session_states AS t WHERE t.{name} = 'x'"):  # noqa: S608
                tally.trial()
                try:
                    with translated(path):
                        connection.execute(statement)
                except (StoreError, UnicodeEncodeError):
                    continue
                tally.fault("not refused", statement)


def _tables(store: DuckDBStore) -> object:
    with store._database.reading() as connection:
        return connection.execute("SELECT table_name, sql FROM duckdb_tables() ORDER BY ALL").fetchall()


# --- statements that must be refused (SEC-02) ---------------------------------------------------------

CANARIES = (
    "ATTACH 'other.duckdb'",
    "COPY (SELECT 1) TO 'out.csv'",
    "SELECT * FROM read_csv('x.csv')",
    "SELECT * FROM 'x.parquet'",
    "SELECT * FROM read_text('/etc/hostname')",
    "INSTALL httpfs",
    "LOAD httpfs",
    "EXPORT DATABASE 'folder'",
    "SELECT * FROM CANARIES",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET python_enable_replacements = true",
)


def closed_engine(folder: Path, *, n: int, seed: int) -> Tally:
    """SEC-02, M23: on the writing and on the reading connection; the store works afterwards."""
    del seed
    tally = Tally("canary statements", "not refused", "store harmed")
    store = new_store(folder, "engine.duckdb")
    for statement in CANARIES[:n]:
        tally.trial()
        for name in ("_writes", "_reads"):
            try:
                with translated(store.path):
                    getattr(store._database, name).execute(statement).fetchall()
            except StoreError:
                continue
            tally.fault("not refused", f"{statement} ({name})")
    asyncio.run(fill(store, 2))
    store.close_now()
    tally.expect(asyncio.run(ids_in(store.path)) == ["e0", "e1"], "store harmed", "events are missing")
    return tally


# --- loading never runs code (SEC-04) -----------------------------------------------------------------

RUNS_CODE = {"pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle", "yaml", "eval", "exec"}
DANGEROUS_NAMES = (
    *("a.pkl", "a.pickle", "a.joblib", "a.npy", "a.npz", "a.pt", "a.yaml", "a.YML", "a.shelve", "a.pkl.gz"),
)


def malicious_files(folder: Path, *, n: int, seed: int) -> Tally:
    """SEC-04: files that would run a command when loaded are refused by name, alone and in a folder."""
    del seed
    tally = Tally("malicious files", "not refused", "code run")
    for name in DANGEROUS_NAMES[:n]:
        data = folder / "malicious"
        data.mkdir()
        mark = folder / "mark"
        # What `pickle` would run: os.system("touch mark").
        (data / name).write_bytes(b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR.")
        tally.trial()
        for path in (data / name, data):
            try:
                loaded = load_recordings(path)
            except RecordingError:
                continue
            is_told = any(skipped.path.endswith(name) for skipped in loaded.skipped)
            tally.expect(is_told, "not refused", str(path))
        tally.expect(not mark.exists(), "code run", name)
        shutil.rmtree(data)
    return tally


def source_findings(folder: Path, *, n: int, seed: int) -> Tally:
    """SEC-04, SEC-01: no module of the package runs data as code or puts a statement together in the store."""
    del folder, seed
    tally = Tally("modules", "data run as code", "statements made of data")
    package = Path(__file__).resolve().parents[1]
    for file in sorted(package.rglob("*.py"))[:n]:
        tally.trial()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            where = f"{file.relative_to(package)}:{getattr(node, 'lineno', 0)}"
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [node.func.id]
            tally.expect(not RUNS_CODE & set(names), "data run as code", where)
            if file.parent.name == "duckdb" and isinstance(node, ast.Call):
                tally.expect(is_constant_statement(node), "statements made of data", where)
    return tally


def is_constant_statement(call: ast.Call) -> bool:
    """A call of `execute` and its like gets a constant; any other call is fine."""
    if not isinstance(call.func, ast.Attribute) or not call.args:
        return True
    first = call.args[0]
    is_upper = isinstance(first, ast.Name) and first.id.isupper()
    if call.func.attr == "_rows":
        return is_upper
    if call.func.attr not in ("execute", "executemany", "sql", "query"):
        return True
    # Loops over constant tuples, the one door of `Database._rows`, and the pair given to `attach`.
    return is_upper or isinstance(first, ast.Constant) or ast.unparse(first) in ("statement", "sql", "attach[0]")
