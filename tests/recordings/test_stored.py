"""Stores of the durable service as recordings: open or closed, chosen by filters, and files that are something else."""

from __future__ import annotations

import asyncio
import gc
import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.recordings.files import chat_line
from workbench.clock import FixedClock
from workbench.errors import ConfigError, RecordingError
from workbench.model.types import Choice, Message, Response, ToolCall, ToolSpec, Usage, response_of
from workbench.recordings import load_recordings, stored, write_recording
from workbench.selftest.store_files import KEY, START_NS, append, as_after_a_crash, create, event_of, new_store
from workbench.service.duckdb import DuckDBSessionService
from workbench.session.types import Event, SessionKey, Summary, SummaryBoundary
from workbench.store.duckdb import child, dump
from workbench.store.duckdb.journal import journal_path
from workbench.store.duckdb.store import DuckDBStore

pytestmark = pytest.mark.slow  # each of them writes and opens store files; `make test-more` runs these

DAY_NS = 86_400 * 10**9
OTHER = SessionKey("bank", "bob", "s2")


@pytest.fixture(autouse=True)
def in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests read without a process of its own, which takes a second to start."""
    if "apart" not in request.fixturenames:
        monkeypatch.setattr(dump, "call_apart", lambda function, arguments, timeout_s: function(**arguments))


@pytest.fixture
def apart() -> None:
    """The store is read in a process of its own, as outside of tests."""


def run(work: Any) -> Any:
    return asyncio.run(work)


def rich_events() -> list[Event]:
    """Everything that an event can hold."""
    call = ToolCall(id="c1", name="look_up", arguments='{"order": "7731"}', extra_fields=(("x", "1"),))
    usage = Usage(prompt_tokens=10, completion_tokens=2, total_tokens=12)
    asked = Response(
        (Choice(Message("assistant", "", tool_calls=(call,)), finish_reason="tool_calls"),), "r-1", usage=usage
    )
    found = response_of(Message("tool", "unterwegs 汉字 \u2028 \x00", tool_id="c1", tool_name="look_up"))
    said = Response((Choice(Message("assistant", "It comes.", reasoning_content="hm")),), "r-2", model="m-1")
    run_of = {"request_id": "q1", "invocation_id": "i1", "filter_key": "app/chat", "branch": "support"}
    return [
        event_of(0, **run_of, tag="t", extensions={"half": "\ud800", "n": [1, None]}),
        event_of(1, **run_of, author="support", response=asked),
        event_of(2, **run_of, author="support", response=found, skip_summarization=True),
        event_of(3, **run_of, author="support", response=said, state_delta={"k": b"\xff", "gone": None}),
    ]


async def filled(folder: Path) -> DuckDBStore:
    """An open store with two sessions, an empty one, a deleted one and one that has expired."""
    store = new_store(folder, "sessions.duckdb")
    await create(store)
    for event in rich_events():
        await append(store, event)
    await store.save_summary(
        KEY, "app/chat", Summary("so far", 5, SummaryBoundary("app/chat", 5, "e1")), now_ns=START_NS
    )
    for key in (OTHER, SessionKey("app", "user", "empty"), SessionKey("app", "user", "deleted")):
        await create(store, key)
    for n in range(2):
        await append(store, event_of(n, time_ns=START_NS + 3 * DAY_NS + n), OTHER)
        await append(store, event_of(n), SessionKey("app", "user", "deleted"))
    await store.delete(SessionKey("app", "user", "deleted"))
    await create(store, SessionKey("app", "user", "over"))
    await store.append(
        SessionKey("app", "user", "over"), event_of(0), state_delta={}, updated_ns=1, expires_ns=START_NS, now_ns=1
    )
    return store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store, made once."""

    async def main() -> Path:
        store = await filled(tmp_path_factory.mktemp("made"))
        await store.close()
        return store.path

    return run(main())


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copy(journal_path(made), journal_path(tmp_path / made.name))
    return Path(shutil.copy(made, tmp_path))


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if not file.name.endswith(".wal"))


# --- what comes out ------------------------------------------------------------------------------------


def test_a_session_is_a_conversation_with_everything_that_is_stored(path: Path, tmp_path: Path) -> None:
    """WB-REC-02 `duckdb`: ids, times, request ids, filter keys, branches, usage; nothing is converted."""
    recordings = load_recordings(path)
    first, second = recordings
    assert (first.id, first.app_name, first.user_id) == ("s", "app", "user")
    assert list(first.events) == rich_events()
    assert (first.format, first.source, first.line, first.place) == ("duckdb", str(path), None, str(path))
    assert (first.instruction, first.tools, first.assumed_time) == ("", (), False)
    assert first.metadata["summaries"]["app/chat"]["summary"] == "so far"
    assert first.usage["e1"].total_tokens == 12
    assert (second.id, second.app_name, second.user_id) == ("s2", "bank", "bob")
    assert [str(problem) for problem in recordings.problems if problem.severity == "problem"] == []
    assert recordings.losses == (f"sessions without events left out: 1 in {path}",)
    native = tmp_path / "native.jsonl"
    write_recording(native, recordings)
    assert list(load_recordings(native)) == list(recordings)
    assert load_recordings(native).data_hash == recordings.data_hash


@pytest.mark.usefixtures("apart")
def test_a_store_in_use_is_read_as_of_one_moment_and_never_held_up(tmp_path: Path) -> None:
    """BUG-29: also what stands in the journal only; the service goes on, and later walks see the same sessions."""

    async def main() -> None:
        store = await filled(tmp_path)
        before = names_in(tmp_path)
        loading = asyncio.create_task(asyncio.to_thread(load_recordings, store.path))
        n = 4
        while not loading.done():
            await append(store, event_of(n))
            n += 1
            await asyncio.sleep(0.002)
        recordings = loading.result()
        n_read = len(recordings[0].events)
        assert 4 <= n_read <= n
        assert n > 5
        recordings._kept = None
        await append(store, event_of(n))
        assert [len(conversation.events) for conversation in recordings] == [n_read, 2]
        assert names_in(tmp_path) == before
        again = await asyncio.to_thread(load_recordings, store.path)
        assert len(again[0].events) == n + 1
        await store.close()

    run(main())


def test_what_a_killed_service_left_is_read_and_stays_as_it_is(tmp_path: Path) -> None:
    async def main() -> Path:
        store = await filled(tmp_path)
        twin = as_after_a_crash(store.path, tmp_path / "twin")
        await store.close()
        return twin

    twin = run(main())
    before = {file.name: file.read_bytes() for file in twin.parent.iterdir()}
    assert [len(conversation.events) for conversation in load_recordings(twin)] == [4, 2]
    assert {file.name: file.read_bytes() for file in twin.parent.iterdir()} == before


def test_temporary_files_go_with_the_recordings(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    recordings = load_recordings(path)
    assert len(recordings) == 2
    assert len(list(folder.iterdir())) == 1
    del recordings
    gc.collect()
    assert list(folder.iterdir()) == []


def test_equal_session_ids_of_two_users_are_two_conversations(tmp_path: Path) -> None:
    async def main() -> Path:
        store = new_store(tmp_path)
        for key in (KEY, SessionKey("app", "other", "s")):
            await create(store, key)
            await append(store, event_of(0), key)
        await store.close()
        return store.path

    assert [(one.id, one.user_id) for one in load_recordings(run(main()))] == [("s", "user"), ("s~2", "other")]


def test_a_service_writes_what_is_read(tmp_path: Path) -> None:
    async def main() -> None:
        clock = FixedClock(START_NS)
        async with DuckDBSessionService(tmp_path / "x.duckdb", clock=clock) as service:
            session = await service.create_session("app", "user", "s")
            for event in rich_events():
                await service.append_event(session, event)

    run(main())
    assert list(load_recordings(tmp_path / "x.duckdb")[0].events) == rich_events()


# --- which ones ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({"app": "bank"}, ["s2"]),
        ({"app": ["bank", "app"]}, ["s", "s2"]),
        ({"app": "bank", "user": "user"}, []),
        ({"user": "user"}, ["s"]),
        ({"user": "' OR 1=1 --"}, []),
        ({"app": "\ud800"}, []),
        ({"since": "2026-02-26"}, ["s2"]),
        ({"since": datetime(2026, 2, 26, tzinfo=UTC)}, ["s2"]),
        ({"until": "2026-02-26"}, ["s"]),
        ({"since": "2026-02-20", "until": "2026-03-20"}, ["s", "s2"]),
        ({"since": "2026-02-25T06:13:20.000000003Z", "until": "2026-02-26"}, ["s"]),
        ({"since": "2026-02-25T06:13:20.000000004Z", "until": "2026-02-26"}, []),
        ({"until": "2026-02-25T06:13:20Z"}, []),
        ({"until": "2026-02-25T06:13:20.000000001Z"}, ["s"]),
        ({"since": "2026-02-25 15:13:21", "until": "2026-02-26", "zone": "+09:00"}, []),
        ({"since": "2026-02-25 15:13:20", "until": "2026-02-26", "zone": "+09:00"}, ["s"]),
        ({"since": datetime(2026, 2, 28, 15, tzinfo=timezone(timedelta(hours=9)))}, ["s2"]),
    ],
    ids=str,
)
def test_sessions_are_chosen_by_application_user_and_time(
    wanted: dict[str, Any], ids: list[str], path: Path, tmp_path: Path
) -> None:
    """The same choice from a store and from a native recording."""
    native = tmp_path / "native.jsonl"
    write_recording(native, load_recordings(path))
    for source in (path, native):
        if ids:
            assert [one.id for one in load_recordings(source, **wanted)] == ids
        else:
            with pytest.raises(RecordingError, match="asked for"):
                load_recordings(source, **wanted)


@pytest.mark.parametrize("moment", ["yesterday", "2026-02-30", ""])
def test_a_moment_that_is_none_is_refused(moment: str, path: Path) -> None:
    with pytest.raises(ConfigError, match=r"since = .*allowed: a day such as 2026-03-01"):
        load_recordings(path, since=moment)


def test_made_up_times_are_in_no_span(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text(chat_line("hello"), encoding="utf-8")
    assert len(load_recordings(file)) == 1
    with pytest.raises(RecordingError, match="none of the 1 conversations is one that was asked for"):
        load_recordings(file, since="2000-01-01")


def test_instruction_and_tools_are_given_where_the_source_has_none(path: Path, tmp_path: Path) -> None:
    declared = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}

    class Tool:
        spec = ToolSpec("cancel", "Cancel an order.")

    recordings = load_recordings(path, instruction="Answer briefly.", tools=[declared, Tool(), ToolSpec("x")])
    assert {one.instruction for one in recordings} == {"Answer briefly."}
    assert [tool.name for tool in recordings[0].tools] == ["look_up", "cancel", "x"]
    native = tmp_path / "native.jsonl"
    write_recording(native, recordings)
    again = load_recordings(native, instruction="Another one.", tools=[ToolSpec("y")])
    assert list(again) == list(recordings)
    with pytest.raises(ConfigError, match="tools: tool 2 is a number, expected an object"):
        load_recordings(path, tools=[declared, 5])


# --- what is wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"id": "e1", ', 'event 2 of session "s": JSON ends early'),
        ("not JSON", 'event 2 of session "s": not JSON'),
        ("[1]", 'event 2 of session "s": not JSON'),
        ('{"id": "e1", "author": 5}', 'event 2 of session "s": author is a number, expected a text'),
        ('{"id": "e0", "time": "2026-02-25T06:13:20Z"}', 'event id "e0" was used at event 1'),
        ('{"id": "e1", "time": "soon"}', 'timestamp "soon" is not a date and time'),
        ('{"id": "e1"}\n{"type": "session", "id": "forged", "version": 1}', 'event 2 of session "s": not JSON'),
        ('{"id": "e1", "n": NaN}', 'event 2 of session "s": '),
    ],
)
def test_a_row_that_can_not_be_read_costs_its_session_only(text: str, problem: str, path: Path) -> None:
    """REL-05: it is said which event; all other sessions load."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("ALTER TABLE session_events ALTER event TYPE VARCHAR")
        update = "UPDATE session_events SET event = ?, exact = NULL WHERE session_id = 's' AND position = 1"
        connection.execute(update, [text])
    recordings = load_recordings(path)
    assert [one.id for one in recordings] == ["s2"]
    (found,) = [one for one in recordings.problems if one.severity == "problem"]
    assert problem in found.reason
    assert (found.path, found.line, found.column) == (str(path), None, None)
    assert "line" not in found.reason


@pytest.mark.parametrize(
    ("statement", "problem", "ids"),
    [
        (
            "DELETE FROM session_events WHERE event_id = 'e1' AND session_id = 's'",
            "4 events, but 3 of them are",
            ["s2"],
        ),
        ("DELETE FROM session_events WHERE session_id = 's'", "4 events, but 0 of them are stored", ["s2"]),
        ("INSERT INTO session_events SELECT * FROM session_events WHERE session_id = 's'", "4 events, but 4", ["s2"]),
        ("UPDATE session_summaries SET summary = '{}'", "its summary 'app/chat' can't be read", ["s", "s2"]),
    ],
)
def test_rows_that_contradict_each_other_are_told(statement: str, problem: str, ids: list[str], path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(statement)
    recordings = load_recordings(path)
    assert [one.id for one in recordings] == ids
    found = [one.text for one in recordings.problems if one.severity == "problem"]
    assert any(text.startswith('session "s"') and problem in text for text in found), found


def foreign(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")


def with_journal(path: Path) -> None:
    foreign(path)
    journal_path(path).write_text("workbench-journal 1\n")


@pytest.mark.parametrize(
    ("make", "message", "in_folder"),
    [
        (foreign, "is not a session store, or its journal is missing", "skipped"),
        (with_journal, "is a DuckDB file, but not a session store", "problem"),
        (
            lambda path: path.write_bytes(b"SQLite format 3\x00" + bytes(100)),
            "no recording format recognises",
            "skipped",
        ),
        (lambda path: path.write_text("plain text"), "no recording format recognises this file", "skipped"),
        (lambda path: path.write_bytes(b""), "file is empty", "problem"),
        (lambda path: path.write_bytes(b"12345678DUCK" + bytes(20_000)), "journal is missing", "skipped"),
    ],
    ids=["foreign", "foreign-with-journal", "sqlite", "text", "empty", "pretends"],
)
def test_other_files_are_refused_with_one_sentence(make: Any, message: str, in_folder: str, tmp_path: Path) -> None:
    """SEC-03, M6, B38."""
    path = tmp_path / "x.duckdb"
    make(path)
    with pytest.raises(RecordingError, match=message) as told:
        load_recordings(path)
    assert str(told.value).startswith(f"{path}: ")
    assert str(told.value).count(str(tmp_path)) == 1
    assert "\n" not in told.value.one_line()
    (tmp_path / "own.jsonl").write_text(chat_line("hello"), encoding="utf-8")
    recordings = load_recordings(tmp_path)
    assert len(recordings) == 1
    assert [one.path for one in recordings.problems] == ([str(path)] if in_folder == "problem" else [])
    assert str(path) in [one.path for one in recordings.skipped] or in_folder == "problem"


def test_a_store_in_a_folder_is_read_and_its_journal_left_alone(path: Path) -> None:
    recordings = load_recordings(path.parent)
    assert [one.id for one in recordings] == ["s", "s2"]
    assert [(Path(one.path).name, one.reason) for one in recordings.skipped] == [
        ("sessions.duckdb.journal", "belongs to sessions.duckdb")
    ]


def test_a_damaged_store_is_refused_with_what_can_be_done(path: Path) -> None:
    log = journal_path(path)
    log.write_bytes(log.read_bytes()[:40])
    with pytest.raises(RecordingError, match="the journal's first line is damaged"):
        load_recordings(path)


@pytest.mark.usefixtures("apart")
def test_a_file_that_kills_its_reader_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-03: the store is read in a process of its own."""
    killer = tmp_path / "killer"
    killer.write_text("#!/bin/sh\nkill -9 $$\n")
    killer.chmod(0o755)
    monkeypatch.setattr(child.sys, "executable", str(killer))
    with pytest.raises(RecordingError, match=r"reading the file ended its process \(exit code -9\)"):
        load_recordings(path)


def test_a_store_with_too_much_in_it_is_refused(tmp_path: Path) -> None:
    """SEC-12: the limit is on what comes out."""

    async def main() -> Path:
        store = new_store(tmp_path)
        await create(store)
        for n in range(12):
            await append(store, event_of(n, response=response_of(Message("user", "x" * 100_000))))
        await store.close()
        return store.path

    path = run(main())
    with pytest.raises(RecordingError, match="holds more than 1 MB of conversations") as told:
        load_recordings(path, max_unpacked_mb=1)
    assert told.value.hint.startswith("choose some by application, user or time")
    assert len(load_recordings(path, max_unpacked_mb=2)) == 1


@pytest.mark.parametrize("name", ["openai-chat", "dialogue"])
def test_a_store_under_the_name_of_another_format_is_refused(name: str, path: Path) -> None:
    with pytest.raises(RecordingError, match="is a DuckDB file"):
        load_recordings(path, format=name)
    assert len(load_recordings(path, format=stored.FORMAT_NAME)) == 2


def test_a_text_under_the_name_of_a_store_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(chat_line("hello"), encoding="utf-8")
    with pytest.raises(RecordingError, match="is not a DuckDB file"):
        load_recordings(file, format="duckdb")


def test_an_empty_store_has_no_conversation(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.close_now()
    with pytest.raises(RecordingError, match="the store has no session with events"):
        load_recordings(store.path)
