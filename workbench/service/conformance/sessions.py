"""Checks of sessions as a whole: life cycle, lists, deletion."""

from __future__ import annotations

import asyncio
import inspect
import sys
from datetime import timedelta
from typing import Any
from uuid import UUID

from workbench.errors import (
    SessionExistsError,
    SessionNotFoundError,
)
from workbench.service.conformance.material import (
    APP,
    KEY,
    OWNER,
    USER_ID,
    NotingSummarizer,
    ids,
    loaded,
    moment,
    put_summary,
    raw_events,
    said,
    session_with,
    stored_text,
    turns,
)
from workbench.service.conformance.suite import (
    START_NS,
    Bench,
    ContractService,
    check,
    expect,
    expect_equal,
    expect_error,
)
from workbench.session.recall_types import SearchableService, WindowService
from workbench.session.types import Session, SessionKey, UserKey, fnv1a_32

LIFE, DELETION = "session life cycle", "deletion"

_DRIVERS = {"duckdb", "redis", "psycopg", "asyncmy", "aiomysql", "clickhouse_connect"}
_ODD_NAMES = (
    "a b",
    " edge ",
    "with/slash",
    "with:colon",
    'it\'s "quoted"',
    "'; DROP TABLE sessions; --",
    "100%",
    "under_score",
    "会话 一",
    "UPPER",
    "upper",
    "é",
    "e\u0301",
    "x" * 500,
)


# --- life cycle -----------------------------------------------------------------------------------------


@check(LIFE, "SUM-STO-01", "SUM-SVC-01")
async def every_call_of_a_session_service_is_there(bench: Bench) -> None:
    service = await bench.service()
    names = [name for name in vars(ContractService) if not name.startswith("_")]
    missing = [name for name in names if not callable(getattr(service, name, None))]
    expect_equal(missing, [], "calls that the service lacks")


@check(LIFE, "SUM-SVC-01")
async def calls_answer_with_awaitables(bench: Bench) -> None:
    service = await bench.service()
    call = service.list_sessions(OWNER)
    expect(inspect.isawaitable(call), "list_sessions answers with something that can't be awaited")
    expect_equal(list(await call), [], "sessions of a fresh service")


@check(LIFE, "SUM-STO-01")
async def a_capability_that_is_claimed_is_there(bench: Bench) -> None:
    service = await bench.service()
    for name, protocol in (("supports_windows", WindowService), ("supports_search", SearchableService)):
        if getattr(service, name, False):
            expect(isinstance(service, protocol), f"the service says {name} but lacks the method")


@check(LIFE, "SUM-STO-03")
async def a_service_loads_no_driver_of_another_backend(bench: Bench) -> None:
    before = _DRIVERS & set(sys.modules)
    service = await bench.service()
    await session_with(service, turns(1, 2))
    await loaded(service)
    loaded_now = (_DRIVERS & set(sys.modules)) - before
    expect(len(loaded_now) <= 1, f"using one service loaded the drivers {', '.join(sorted(loaded_now))}")


@check(LIFE, "SUM-STO-14", "SUM-ASY-01")
async def every_shared_option_is_taken_under_its_name(bench: Bench) -> None:
    async def append_hook(context: Any, following: Any) -> None:
        await following()

    async def get_hook(context: Any, following: Any) -> None:
        await following()

    summarizer = NotingSummarizer()
    service = await bench.service(
        summarizer=summarizer,
        options={"append_event_hooks": [append_hook], "get_session_hooks": [get_hook]},
        async_summary_num=2,
        summary_queue_size=5,
        summary_job_timeout_s=5.0,
        event_limit=2,
        summary_filter_allowlist=("app/a",),
        cascade_full_session_summary=False,
        session_ttl_s=60.0,
        app_state_ttl_s=60.0,
        user_state_ttl_s=60.0,
        cleanup_interval_s=60.0,
    )
    session = await session_with(service, [said(n, filter_key="app/b") for n in range(1, 5)])
    expect_equal(ids((await loaded(service)).events), ["e3", "e4"], "events under event_limit = 2")
    await service.enqueue_summary_job(session, "app/b")
    await service.wait_for_summaries()
    expect_equal(summarizer.asked, [], "summaries of a branch that the allowlist leaves out")
    bench.clock.advance(timedelta(seconds=60))
    expect(await service.get_session(KEY) is None, "the session outlives session_ttl_s")


@check(LIFE, "SUM-SVC-11")
async def a_session_without_an_id_gets_a_random_one(bench: Bench) -> None:
    service = await bench.service()
    made = [(await service.create_session(APP, USER_ID, given)).id for given in ("", "", "  ")]
    expect_equal(len(set(made)), 3, "different ids among three sessions made without one")
    for one in made:
        try:
            UUID(one)
        except ValueError:
            expect(condition=False, sentence=f"the id {one!r} that the service made is no UUID")
        expect(await service.get_session(SessionKey(APP, USER_ID, one)) is not None, "it can't be read by its id")


@check(LIFE, "SUM-SVC-11", "SUM-DM-07")
async def a_new_session_is_empty_and_carries_its_key_and_times(bench: Bench) -> None:
    service = await bench.service()
    made = await service.create_session(APP, USER_ID, "s")
    for session, what in ((made, "the session made"), (await loaded(service), "the session read")):
        expect_equal(session.key, KEY, f"key of {what}")
        expect_equal(
            (session.events, session.summaries, session.state), ([], {}, {}), f"events, summaries, state of {what}"
        )
        expect_equal((session.created_ns, session.updated_ns), (START_NS, START_NS), f"created and updated of {what}")


@check(LIFE, "SUM-DM-07")
async def the_hash_of_a_session_is_that_of_its_key(bench: Bench) -> None:
    service = await bench.service()
    made = await service.create_session("应用", USER_ID, "s")
    expected = fnv1a_32("应用:user:s")
    expect_equal(made.hash, expected, "hash of the session made")
    expect_equal((await loaded(service, made.key)).hash, expected, "hash of the session read")


@check(LIFE, "SUM-SVC-01", "SUM-DM-13")
async def the_state_given_at_creation_is_kept(bench: Bench) -> None:
    service = await bench.service()
    state = {"step": b"\x00\xff", "none": None, "empty": b""}
    made = await service.create_session(APP, USER_ID, "s", state=state)
    expect_equal(made.state, state, "state of the session made")
    expect_equal((await loaded(service)).state, state, "state of the session read")


@check(LIFE, "SUM-SVC-11")
async def the_state_given_at_creation_stays_the_callers(bench: Bench) -> None:
    service = await bench.service()
    state: dict[str, bytes | None] = {"step": b"1"}
    await service.create_session(APP, USER_ID, "s", state=state)
    state["later"] = b"2"
    expect_equal((await loaded(service)).state, {"step": b"1"}, "state after the caller changed its own dictionary")


@check(LIFE, "SUM-SVC-11")
async def a_live_id_is_refused_and_its_session_unharmed(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    await expect_error(service.create_session(APP, USER_ID, "s"), SessionExistsError, "creating a live id again")
    expect_equal(ids((await loaded(service)).events), ["e1", "e2"], "events after the refusal")


@check(LIFE, "SUM-SVC-11", "SUM-STO-11")
async def of_many_creating_one_id_at_once_one_succeeds(bench: Bench) -> None:
    service = await bench.service()
    made = await asyncio.gather(
        *(service.create_session(APP, USER_ID, "s", state={"by": b"%d" % n}) for n in range(8)),
        return_exceptions=True,
    )
    winners = [one for one in made if isinstance(one, Session)]
    expect_equal(len(winners), 1, "successful creations of one id")
    others = [type(one) for one in made if not isinstance(one, Session)]
    expect_equal(set(others), {SessionExistsError}, "what the others got")
    expect_equal((await loaded(service)).state, winners[0].state, "state of the one that succeeded")


@check(LIFE, "SUM-SVC-08")
async def a_missing_session_reads_as_none(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    expect(await service.get_session(SessionKey(APP, USER_ID, "t")) is None, "a session that was never made is read")


@check(LIFE, "SUM-SVC-08")
async def reading_changes_no_time(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    bench.clock.advance(timedelta(seconds=5))
    for _ in range(2):
        expect_equal((await loaded(service)).updated_ns, START_NS, "updated_ns after a read")
        await service.list_sessions(OWNER)
        await raw_events(service)
    expect_equal((await loaded(service)).created_ns, START_NS, "created_ns after reads")


@check(LIFE, "SUM-DM-08")
async def a_session_that_was_read_is_the_readers_own(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    await service.update_session_state(KEY, {"a": b"1"})
    await put_summary(service, "kept", moment(1), "e1")
    mine = await loaded(service)
    mine.append(said(9))
    mine.state["a"] = b"changed"
    mine.summaries.clear()
    mine.updated_ns = 1
    again = await loaded(service)
    expect_equal(ids(again.events), ["e1", "e2"], "events after a reader changed its copy")
    expect_equal(again.state, {"a": b"1"}, "state after a reader changed its copy")
    expect_equal(list(again.summaries), [""], "summaries after a reader changed its copy")
    expect(again.updated_ns != 1, "updated_ns is what a reader put into its copy")


@check(LIFE, "SUM-DM-08")
async def a_list_of_events_is_the_readers_own(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    mine = await raw_events(service)
    if isinstance(mine, list):
        mine.clear()
    expect_equal(ids(await raw_events(service)), ["e1", "e2"], "stored events after a reader emptied its list")


@check(LIFE, "SUM-SVC-09")
async def sessions_are_listed_newest_first_then_by_id_from_the_back(bench: Bench) -> None:
    service = await bench.service()
    for name in ("a", "c", "b"):
        await service.create_session(APP, USER_ID, name)
    oldest = await loaded(service, SessionKey(APP, USER_ID, "a"))
    bench.clock.advance(timedelta(microseconds=1))
    await service.append_event(oldest, said(1))
    listed = [session.id for session in await service.list_sessions(OWNER)]
    expect_equal(listed, ["a", "c", "b"], "order of the list")


@check(LIFE, "SUM-SVC-09")
async def a_list_can_be_paged(bench: Bench) -> None:
    service = await bench.service()
    for n in range(5):
        await service.create_session(APP, USER_ID, f"s{n}")
        bench.clock.advance(timedelta(seconds=1))

    async def page(**view: int) -> list[str]:
        return [session.id for session in await service.list_sessions(OWNER, **view)]

    expect_equal(await page(limit=2), ["s4", "s3"], "the first page")
    expect_equal(await page(offset=2, limit=2), ["s2", "s1"], "the second page")
    expect_equal(await page(offset=3), ["s1", "s0"], "everything behind three")
    expect_equal(await page(offset=9, limit=2), [], "a page behind the end")


@check(LIFE, "SUM-SVC-09", "SUM-DM-13")
async def a_list_has_state_and_times_but_no_events(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    await service.update_session_state(KEY, {"own": b"1"})
    await service.update_app_state(APP, {"shared": b"2"})
    (listed,) = await service.list_sessions(OWNER)
    expect_equal(listed.events, [], "events in a list of sessions")
    expect_equal(listed.state, {"own": b"1", "app:shared": b"2"}, "state in a list of sessions")
    expect_equal((listed.created_ns, listed.updated_ns), (START_NS, START_NS), "times in a list of sessions")


@check(LIFE, "SUM-STO-04")
async def any_text_can_name_a_session(bench: Bench) -> None:
    service = await bench.service()
    for name in _ODD_NAMES:
        key = SessionKey(name, name, name)
        await session_with(service, [said(1, f"said in {name}")], key)
    for name in _ODD_NAMES:
        session = await loaded(service, SessionKey(name, name, name))
        expect_equal(session.key, SessionKey(name, name, name), "key of a session with an odd name")
        texts = [event.message.content for event in session.events]
        expect_equal(texts, [f"said in {name}"], f"events of the session named {name[:30]!r}")
        listed = [one.id for one in await service.list_sessions(UserKey(name, name))]
        expect_equal(listed, [name], f"sessions of the user named {name[:30]!r}")


# --- deletion -------------------------------------------------------------------------------------------


async def _deleted(service: Any) -> Session:
    """A session with everything, deleted; the live object is left."""
    session = await session_with(service, turns(1, 4))
    await service.update_session_state(KEY, {"own": b"1"})
    await put_summary(service, "of the dead", moment(4), "e4")
    await service.delete_session(KEY)
    return session


@check(DELETION, "SUM-STO-08", "SUM-STO-09")
async def a_deleted_session_is_invisible_at_once(bench: Bench) -> None:
    service = await bench.service()
    await _deleted(service)
    expect(await service.get_session(KEY) is None, "a deleted session can be read")
    expect_equal(list(await service.list_sessions(OWNER)), [], "sessions listed after deletion")
    expect_equal(ids(await raw_events(service)), [], "events after deletion")


@check(DELETION, "SUM-STO-08")
async def a_session_takes_its_summaries_with_it(bench: Bench) -> None:
    service = await bench.service()
    session = await _deleted(service)
    session.summaries.clear()
    expect(await service.get_session_summary_text(session) is None, "a deleted session's summary can be read")


@check(DELETION, "SUM-STO-09", "SUM-SVC-11")
async def a_deleted_id_can_be_used_again_and_sees_nothing_old(bench: Bench) -> None:
    service = await bench.service()
    for _ in range(3):
        await _deleted(service)
        bench.clock.advance(timedelta(seconds=1))
        made = await service.create_session(APP, USER_ID, "s")
        for session in (made, await loaded(service)):
            expect_equal(
                (session.events, session.summaries, session.state),
                ([], {}, {}),
                "events, summaries and state of a session under a deleted one's id",
            )
        expect_equal(made.created_ns, bench.clock.now_ns(), "creation time under a deleted one's id")
        expect(await service.get_session_summary_text(made) is None, "the deleted session's summary is read")
        await service.append_event(made, said(7))
        expect_equal(ids(await raw_events(service)), ["e7"], "events of the second life")
        await service.delete_session(KEY)


@check(DELETION, "SUM-SVC-01")
async def deleting_what_is_not_there_is_no_error(bench: Bench) -> None:
    service = await bench.service()
    await service.delete_session(KEY)
    await _deleted(service)
    await service.delete_session(KEY)
    expect(await service.get_session(KEY) is None, "a session is there that was deleted twice")


@check(DELETION, "SUM-STO-08")
async def deleting_one_session_leaves_the_others(bench: Bench) -> None:
    service = await bench.service()
    others = [SessionKey(APP, USER_ID, "s2"), SessionKey(APP, "user2", "s"), SessionKey("app2", USER_ID, "s")]
    for key in others:
        await session_with(service, turns(1, 2), key)
        await put_summary(service, "alive", moment(2), "e2", key=key)
    await _deleted(service)
    for key in others:
        expect_equal(ids((await loaded(service, key)).events), ["e1", "e2"], f"events of {key} after another's end")
        expect_equal(await stored_text(service, key=key), "alive", f"summary of {key} after another's end")


@check(DELETION, "SUM-DM-13")
async def deleting_a_session_leaves_the_state_around_it(bench: Bench) -> None:
    service = await bench.service()
    await service.update_app_state(APP, {"a": b"1"})
    await service.update_user_state(OWNER, {"u": b"2"})
    await _deleted(service)
    expect_equal(await service.list_app_state(APP), {"a": b"1"}, "state of the application after a deletion")
    expect_equal(await service.list_user_state(OWNER), {"u": b"2"}, "state of the user after a deletion")


@check(DELETION, "SUM-STO-09", "SUM-SVC-06")
async def nothing_can_be_written_to_a_deleted_session(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    session = await _deleted(service)
    await expect_error(service.append_event(session, said(9)), SessionNotFoundError, "appending to a deleted session")
    await expect_error(
        service.update_session_state(KEY, {"a": b"1"}), SessionNotFoundError, "writing state of a deleted session"
    )
    await expect_error(
        service.create_session_summary(session, force=True), SessionNotFoundError, "summarising a deleted session"
    )
    expect(await service.get_session(KEY) is None, "a write has revived a deleted session")
