"""Checks of what only some stores can do: reopen, keep deleted rows, store events in the background."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from workbench.errors import SessionExistsError, SessionNotFoundError
from workbench.model.types import Message, ToolCall, response_of
from workbench.service.conformance.material import (
    APP,
    KEY,
    OWNER,
    USER_ID,
    NotingSummarizer,
    answered,
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
from workbench.service.conformance.read_back import ALL_BYTES
from workbench.service.conformance.suite import (
    ASYNC_PERSISTENCE,
    REOPENING,
    SOFT_DELETE,
    START_NS,
    Bench,
    check,
    expect,
    expect_equal,
    expect_error,
)
from workbench.session.types import Session, SessionKey, Summary, SummaryBoundary

# --- reopening ------------------------------------------------------------------------------------------


@check(REOPENING, "SUM-STO-03", "SUM-STO-04", "SUM-STO-14", needs=REOPENING)
async def everything_is_there_after_reopening(bench: Bench) -> None:
    service = await bench.service()
    call = ToolCall("c1", "tool", '{ "b": 1.0,"a":1e2 }', extra_fields=(("sig", '"x"'),))
    events = [
        said(1, "nul \0, half \ud800, 中文", time_ns=START_NS + 1, state_delta={"all": ALL_BYTES, "none": None}),
        answered(2, response=response_of(Message(role="assistant", tool_calls=(call,))), filter_key="app/a"),
        said(3, "x" * 1_000_000, extensions={"n": [1, 2.5, None, True, {"deep": "值"}]}),
    ]
    await session_with(service, events)
    await service.update_app_state(APP, {"a": b"\x00"})
    await service.update_user_state(OWNER, {"u": None})
    await put_summary(service, "总结\0", START_NS + 1, "e1", filter_key="app/a")
    before = await loaded(service)
    service = await bench.reopened()
    after = await loaded(service)
    expect_equal(list(await raw_events(service)), events, "stored events after reopening")
    expect_equal(after.events, before.events, "events of a read after reopening")
    expect_equal(after.state, before.state, "state after reopening")
    expect_equal(after.summaries, before.summaries, "summaries after reopening")
    times = (after.created_ns, after.updated_ns)
    expect_equal(times, (before.created_ns, before.updated_ns), "times after reopening")
    expect_equal([one.id for one in await service.list_sessions(OWNER)], ["s"], "sessions after reopening")


@check(REOPENING, "SUM-STO-05", needs=REOPENING)
async def the_order_of_events_goes_on_after_reopening(bench: Bench) -> None:
    service = await bench.service()
    names = ["z", "m", "a", "y", "b", "x"]
    await session_with(service, [said(9, id=names[0])])
    for name in names[1:]:
        service = await bench.reopened()
        await service.append_event(await loaded(service), said(1, id=name))
    expect_equal(ids(await raw_events(service)), names, "stored ids, one appended in each of six openings")


@check(REOPENING, "SUM-STO-13", needs=REOPENING)
async def a_late_summary_is_refused_after_reopening_too(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [said(1, id="m"), said(1, id="a"), said(2, id="z")])
    await put_summary(service, "to a", moment(1), "a")
    service = await bench.reopened()
    await put_summary(service, "to m", moment(1), "m")
    expect_equal(await stored_text(service), "to a", "the summary after one that ends at an earlier event")
    await put_summary(service, "to z", moment(2), "z")
    expect_equal(await stored_text(service), "to z", "the summary after a later one")


@check(REOPENING, "SUM-CORE-03", "SUM-STO-02", needs=REOPENING)
async def the_next_summary_goes_on_where_the_last_one_ended(bench: Bench) -> None:
    first, second = NotingSummarizer(), NotingSummarizer()
    service = await bench.service(summarizer=first)
    live = await session_with(service, turns(1, 3))
    await service.create_session_summary(live)
    await service.append_event(live, answered(4))
    service = await bench.reopened(summarizer=second)
    await service.create_session_summary(await loaded(service))
    expect_equal(second.asked, [("s:", ["e4"])], "what was summarised after reopening")
    expect_equal(second.previous, ["summary 1 of e1 e2 e3"], "the previous summary after reopening")


@check(REOPENING, "SUM-STO-07", needs=REOPENING)
async def lifetimes_go_on_while_nothing_is_open(bench: Bench) -> None:
    ttl: dict[str, Any] = {"session_ttl_s": 10.0, "app_state_ttl_s": 10.0, "user_state_ttl_s": 20.0}
    service = await bench.service(**ttl)
    await session_with(service, turns(1, 2))
    await service.update_app_state(APP, {"a": b"1"})
    await service.update_user_state(OWNER, {"u": b"1"})
    bench.clock.advance(timedelta(seconds=9))
    service = await bench.reopened(**ttl)
    expect(await service.get_session(KEY) is not None, "a session is gone before its time after reopening")
    bench.clock.advance(timedelta(seconds=1))
    service = await bench.reopened(**ttl)
    expect(await service.get_session(KEY) is None, "a session outlives its time by reopening")
    expect_equal(await service.list_app_state(APP), {}, "expired application state after reopening")
    expect_equal(await service.list_user_state(OWNER), {"u": b"1"}, "user state after reopening")


@check(REOPENING, "SUM-STO-09", "SUM-STO-08", needs=REOPENING)
async def what_was_deleted_stays_deleted_after_reopening(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service, turns(1, 2))
    await put_summary(service, "old", moment(2), "e2")
    await service.update_app_state(APP, {"a": b"1", "b": b"2"})
    await service.delete_app_state(APP, "a")
    await service.delete_session(KEY)
    service = await bench.reopened()
    expect(await service.get_session(KEY) is None, "a deleted session is back after reopening")
    expect(await service.get_session_summary_text(live) is None, "its summary is back after reopening")
    expect_equal(await service.list_app_state(APP), {"b": b"2"}, "application state after reopening")
    made = await service.create_session(APP, USER_ID, "s")
    expect_equal((made.events, made.summaries), ([], {}), "events and summaries of its second life")


@check(REOPENING, "SUM-SVC-11", "SUM-STO-11", needs=REOPENING)
async def an_id_is_still_taken_after_reopening(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    service = await bench.reopened()
    await expect_error(service.create_session(APP, USER_ID, "s"), SessionExistsError, "creating a stored id again")
    expect_equal(ids(await raw_events(service)), ["e1", "e2"], "events after the refusal")


@check(REOPENING, "SUM-STO-06", needs=REOPENING)
async def another_limit_after_reopening_limits_reads(bench: Bench) -> None:
    service = await bench.service(event_limit=10)
    await session_with(service, turns(1, 8))
    service = await bench.reopened(event_limit=2)
    expect_equal(ids((await loaded(service)).events), ["e7", "e8"], "a read under the smaller limit")


@check(REOPENING, "SUM-ASY-07", "SUM-SVC-01", needs=REOPENING)
async def what_close_has_finished_is_stored(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer(), async_summary_num=1)
    keys = [SessionKey(APP, USER_ID, f"s{n}") for n in range(5)]
    for key in keys:
        await service.enqueue_summary_job(await session_with(service, turns(1, 2), key))
    service = await bench.reopened()
    left = [key.session_id for key in keys if not (await loaded(service, key)).summaries]
    expect_equal(left, [], "sessions whose summary isn't stored although close has finished it")


@check(REOPENING, "SUM-DM-11", "SUM-GET-02", needs=REOPENING)
async def the_text_is_read_from_the_store_after_reopening(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service, turns(1, 2))
    await put_summary(service, "stored", moment(2), "e2")
    service = await bench.reopened()
    live.summaries.clear()
    expect_equal(await service.get_session_summary_text(live), "stored", "text read after reopening")
    stored = (await loaded(service)).summaries[""]
    expect_equal(stored, Summary("stored", moment(2), SummaryBoundary("", moment(2), "e2")), "summary after reopening")


# --- soft delete ----------------------------------------------------------------------------------------


async def _deleted_rows(bench: Bench, service: Any) -> int:
    count = bench.capabilities.deleted_rows
    return 0 if count is None else await count(service, KEY)


@check(SOFT_DELETE, "SUM-STO-09", needs=SOFT_DELETE)
async def deleted_rows_are_kept_and_hidden(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    await put_summary(service, "old", moment(2), "e2")
    expect_equal(await _deleted_rows(bench, service), 0, "deleted rows before any deletion")
    await service.delete_session(KEY)
    expect(await _deleted_rows(bench, service) > 0, "no row is kept of a deleted session")
    expect(await service.get_session(KEY) is None, "a deleted session can be read")
    expect_equal(ids(await raw_events(service)), [], "events of a deleted session")


@check(SOFT_DELETE, "SUM-STO-09", "SUM-STO-11", needs=SOFT_DELETE)
async def an_id_can_be_deleted_and_used_again_many_times(bench: Bench) -> None:
    service = await bench.service()
    kept = []
    for n in range(4):
        session = await session_with(service, [said(n)])
        await put_summary(service, f"life {n}", moment(n), f"e{n}")
        expect_equal(ids(await raw_events(service)), [f"e{n}"], f"events of life {n}")
        expect_equal(await service.get_session_summary_text(session), f"life {n}", f"summary of life {n}")
        await service.delete_session(KEY)
        kept.append(await _deleted_rows(bench, service))
    expect(kept == sorted(set(kept)), f"deleted rows don't add up over four lives: {kept}")


@check(SOFT_DELETE, "SUM-STO-09", "SUM-STO-13", needs=SOFT_DELETE)
async def a_deleted_summary_keeps_no_place(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    await put_summary(service, "old", moment(4), "e4")
    await service.delete_session(KEY)
    await session_with(service, turns(1, 4))
    await put_summary(service, "new", moment(1), "e1")
    expect_equal(await stored_text(service), "new", "a summary that ends before the deleted one did")


# --- asynchronous persistence ---------------------------------------------------------------------------


async def _persisting(bench: Bench, **settings: Any) -> Any:
    return await bench.service(options=bench.capabilities.async_persistence, **settings)


@check(ASYNC_PERSISTENCE, "SUM-STO-10", needs=ASYNC_PERSISTENCE)
async def the_live_session_has_an_event_at_once(bench: Bench) -> None:
    service = await _persisting(bench)
    live = await session_with(service)
    for n in range(5):
        await service.append_event(live, said(n, state_delta={"n": b"%d" % n}))
        expect_equal(len(live.events), n + 1, "events of the live session")
        expect_equal(live.state, {"n": b"%d" % n}, "state of the live session")


@check(ASYNC_PERSISTENCE, "SUM-STO-10", "SUM-STO-05", needs=ASYNC_PERSISTENCE)
async def closing_stores_what_waits_in_order(bench: Bench) -> None:
    service = await _persisting(bench)
    keys = [replace(KEY, session_id=f"s{n}") for n in range(3)]
    sessions: list[Session] = [await session_with(service, [], key) for key in keys]
    for n in range(30):
        for session in sessions:
            await service.append_event(session, said(n, id=f"{n * 7 % 30}"))
    service = await bench.reopened()
    for key in keys:
        expected = [f"{n * 7 % 30}" for n in range(30)]
        expect_equal(ids(await raw_events(service, key)), expected, f"stored events of {key}")


@check(ASYNC_PERSISTENCE, "SUM-STO-10", needs=ASYNC_PERSISTENCE)
async def many_more_events_than_the_buffer_holds_are_all_stored(bench: Bench) -> None:
    service = await _persisting(bench)
    live = await session_with(service)
    for n in range(400):
        await service.append_event(live, said(n))
    service = await bench.reopened()
    expect_equal(ids(await raw_events(service)), [f"e{n}" for n in range(400)], "stored events")


@check(ASYNC_PERSISTENCE, "SUM-STO-10", "SUM-SVC-06", needs=ASYNC_PERSISTENCE)
async def who_gives_up_waiting_has_appended_to_both_or_to_neither(bench: Bench) -> None:
    service = await _persisting(bench)
    live = await session_with(service)
    callers = [asyncio.create_task(service.append_event(live, said(n))) for n in range(400)]
    await asyncio.sleep(0)  # as many as there is room for have queued their event
    for caller in callers[::3]:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    service = await bench.reopened()
    expect_equal(ids(await raw_events(service)), ids(live.events), "stored events, those of the live session")


@check(ASYNC_PERSISTENCE, "SUM-STO-10", needs=ASYNC_PERSISTENCE)
async def a_write_that_fails_in_the_background_stops_nothing(bench: Bench) -> None:
    service = await _persisting(bench)
    lost = await session_with(service, [], replace(KEY, session_id="lost"))
    live = await session_with(service)
    await service.delete_session(lost.key)
    with suppress(SessionNotFoundError):  # the session may be looked for before the event is queued
        await service.append_event(lost, said(1))
    await service.append_event(live, said(2))
    service = await bench.reopened()
    expect_equal(ids(await raw_events(service)), ["e2"], "stored events of the other session")
    expect(await service.get_session(lost.key) is None, "a failed write has revived a deleted session")
