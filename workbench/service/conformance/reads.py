"""Checks of what a read of a session holds: order and limits, event paging."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product

from workbench.errors import PagingError
from workbench.service.conformance.material import (
    KEY,
    OWNER,
    answered,
    ids,
    loaded,
    moment,
    put_summary,
    raw_events,
    said,
    session_with,
    turns,
)
from workbench.service.conformance.suite import START_NS, Bench, check, expect_equal, expect_error
from workbench.session.types import Event

ORDER, PAGING = "order and limits", "event paging"


# --- order and limits -----------------------------------------------------------------------------------


@check(ORDER, "SUM-STO-05")
async def events_keep_the_order_of_appending(bench: Bench) -> None:
    service = await bench.service()
    names = [f"{n * 7919 % 1000:03}" for n in range(120)]
    await session_with(service, [said(n, id=name) for n, name in enumerate(names)])
    expect_equal(ids(await raw_events(service)), names, "stored ids")
    expect_equal(ids((await loaded(service)).events), names, "ids of a read")


@check(ORDER, "SUM-STO-05")
async def events_of_one_time_keep_the_order_of_appending(bench: Bench) -> None:
    service = await bench.service()
    names = ["z", "b", "10", "9", "a", "Z"]
    await session_with(service, [said(1, id=name) for name in names])
    expect_equal(ids(await raw_events(service)), names, "stored ids of one moment")


@check(ORDER, "SUM-STO-05")
async def times_that_run_back_do_not_move_events(bench: Bench) -> None:
    service = await bench.service()
    events = [said(n, time_ns=moment(100 - n * 10)) for n in range(8)]
    live = await session_with(service, events[:4])
    bench.clock.advance(timedelta(seconds=-50))  # the machine's clock may be set back
    for event in events[4:]:
        await service.append_event(live, event)
    expect_equal(ids(await raw_events(service)), ids(events), "stored ids with times that run back")
    expect_equal(ids((await loaded(service)).events), ids(events), "ids of a read with times that run back")


@check(ORDER, "SUM-STO-06")
async def a_read_holds_at_most_the_newest_events_of_the_limit(bench: Bench) -> None:
    service = await bench.service(event_limit=4)
    live = await session_with(service)
    for n in range(1, 12):
        await service.append_event(live, said(n))
        expected = [f"e{i}" for i in range(max(1, n - 3), n + 1)]
        expect_equal(ids((await loaded(service)).events), expected, f"a read under limit 4 after {n} events")


@check(ORDER, "SUM-STO-06")
async def the_limit_is_a_thousand_unless_set(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [said(n) for n in range(1003)])
    found = ids((await loaded(service)).events)
    expect_equal((len(found), found[0], found[-1]), (1000, "e3", "e1002"), "number, first and last of 1003 events")


@check(ORDER, "SUM-STO-06")
async def limit_zero_means_all(bench: Bench) -> None:
    service = await bench.service(event_limit=0)
    await session_with(service, [said(n) for n in range(1003)])
    expect_equal(len((await loaded(service)).events), 1003, "events without a limit")


@check(ORDER, "SUM-STO-06")
async def a_summary_deletes_no_event(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 6))
    await put_summary(service, "of four", moment(4), "e4")
    expect_equal(len(await raw_events(service)), 6, "stored events after a summary")
    expect_equal(len((await loaded(service)).events), 6, "events of a read after a summary")


@check(ORDER, "SUM-SVC-07")
async def a_read_can_ask_for_the_newest_few(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 6))
    for n, expected in ((0, "123456"), (6, "123456"), (9, "123456"), (4, "3456"), (3, "56"), (2, "56")):
        found = ids((await loaded(service, event_num=n)).events)
        expect_equal(found, [f"e{one}" for one in expected], f"a read of the newest {n}")


@check(ORDER, "SUM-SVC-07")
async def a_read_can_begin_at_a_moment_that_is_included(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 6))
    for since, expected in ((moment(3), "3456"), (moment(3) + 1, "56"), (moment(0), "123456"), (moment(5), "56")):
        found = ids((await loaded(service, event_time_ns=since)).events)
        expect_equal(found, [f"e{one}" for one in expected], f"a read from moment {since - START_NS} ns on")


@check(ORDER, "SUM-SVC-07")
async def a_read_by_time_finds_events_whose_times_run_back(bench: Bench) -> None:
    service = await bench.service()
    times = (5, 1, 6, 2, 7)
    await session_with(service, [said(n, time_ns=moment(n), id=f"t{n}") for n in times])
    found = ids((await loaded(service, event_time_ns=moment(5))).events)
    expect_equal(found, ["t5", "t6", "t7"], "events from the fifth second on")


@check(ORDER, "SUM-SVC-07")
async def time_and_number_go_together(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 8))
    found = ids((await loaded(service, event_time_ns=moment(3), event_num=2)).events)
    expect_equal(found, ["e7", "e8"], "the newest two of those from the third second on")
    found = ids((await loaded(service, event_time_ns=moment(7), event_num=6)).events)
    expect_equal(found, ["e7", "e8"], "the newest six of those from the seventh second on")


@check(ORDER, "SUM-SVC-07")
async def a_read_begins_with_the_user(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [answered(1), said(2), answered(3), answered(4), answered(5)])
    expect_equal(ids((await loaded(service)).events), ["e2", "e3", "e4", "e5"], "a read that could begin otherwise")
    found = ids((await loaded(service, event_num=2)).events)
    expect_equal(found, ["e2"], "a read of two without a user: the last user message")


@check(ORDER, "SUM-SVC-07")
async def without_any_user_message_a_read_is_empty(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [answered(1), answered(2)])
    expect_equal(ids((await loaded(service)).events), [], "a read of a session in which no user speaks")
    expect_equal(ids(await raw_events(service)), ["e1", "e2"], "its stored events")


@check(ORDER, "SUM-SVC-07")
async def every_short_history_is_read_by_the_rule(bench: Bench) -> None:
    service = await bench.service()
    histories = [roles for length in range(1, 5) for roles in product("ua", repeat=length)]
    for roles in histories:
        key = replace(KEY, session_id="".join(roles))
        events = [said(n) if role == "u" else answered(n) for n, role in enumerate(roles)]
        await session_with(service, events, key)
        for n_newest in range(len(roles) + 1):
            found = ids((await loaded(service, key, event_num=n_newest)).events)
            expected = ids(_view(events, n_newest))
            expect_equal(found, expected, f"the newest {n_newest} of a history {''.join(roles)}")


def _view(events: list[Event], n_newest: int) -> list[Event]:
    """The rule, written as the specification says it."""
    newest = events[-n_newest:] if n_newest else list(events)
    while newest and newest[0].author != "user":
        newest.pop(0)
    return newest or [event for event in events if event.author == "user"][-1:]


@check(ORDER, "SUM-SVC-07")
async def a_narrow_read_changes_nothing_stored(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 6))
    await loaded(service, event_num=1)
    await loaded(service, offset=0, limit=1)
    await loaded(service, event_time_ns=moment(6))
    expect_equal(len((await loaded(service)).events), 6, "events of a full read after narrow ones")
    expect_equal(len(await raw_events(service)), 6, "stored events after narrow reads")


# --- event paging ---------------------------------------------------------------------------------------


@check(PAGING, "SUM-SVC-09")
async def pages_are_counted_from_the_newest_event(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 7))
    for offset, limit, expected in ((0, 3, "567"), (3, 3, "234"), (6, 3, "1"), (1, 1, "6"), (0, 99, "1234567")):
        found = ids((await loaded(service, offset=offset, limit=limit)).events)
        expect_equal(found, [f"e{one}" for one in expected], f"page of {limit} behind {offset}")


@check(PAGING, "SUM-SVC-09")
async def a_page_behind_the_oldest_event_is_empty(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 3))
    for offset in (3, 100):
        found = ids((await loaded(service, offset=offset, limit=5)).events)
        expect_equal(found, [], f"page behind {offset} of 3 events")


@check(PAGING, "SUM-SVC-09")
async def offset_or_limit_alone_make_a_page_too(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 6))
    expect_equal(ids((await loaded(service, limit=2)).events), ["e5", "e6"], "a page with a limit only")
    expect_equal(ids((await loaded(service, offset=4)).events), ["e1", "e2"], "a page with an offset only")


@check(PAGING, "SUM-SVC-09", "SUM-SVC-07")
async def a_page_need_not_begin_with_the_user(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [said(1), answered(2), answered(3)])
    expect_equal(ids((await loaded(service, offset=0, limit=2)).events), ["e2", "e3"], "a page without a user message")


@check(PAGING, "SUM-SVC-09")
async def adjacent_pages_hold_every_event_once(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 23))
    for size in (1, 4, 5, 23):
        collected: list[str] = []
        for offset in range(0, 23, size):
            collected = ids((await loaded(service, offset=offset, limit=size)).events) + collected
        expect_equal(collected, [f"e{n}" for n in range(1, 24)], f"all pages of {size} together")


@check(PAGING, "SUM-SVC-09")
async def a_page_carries_state_and_summaries(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    await service.update_session_state(KEY, {"a": b"1"})
    await put_summary(service, "text", moment(2), "e2")
    page = await loaded(service, offset=0, limit=1)
    expect_equal(page.state, {"a": b"1"}, "state of a page")
    expect_equal(list(page.summaries), [""], "summaries of a page")


@check(PAGING, "SUM-SVC-09", "SUM-ERR-17")
async def pages_and_filters_exclude_each_other(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    for view in ({"offset": 0, "event_num": 1}, {"limit": 2, "event_num": 1}, {"limit": 2, "event_time_ns": moment(1)}):
        await expect_error(service.get_session(KEY, **view), PagingError, f"a read with {view}")


@check(PAGING, "SUM-SVC-09", "SUM-ERR-17")
async def negative_numbers_are_refused(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    for view in ({"offset": -1}, {"limit": -1}, {"event_num": -1}, {"offset": -5, "limit": 2}):
        await expect_error(service.get_session(KEY, **view), PagingError, f"a read with {view}")
    for page in ({"offset": -1}, {"limit": -1}):
        await expect_error(service.list_sessions(OWNER, **page), PagingError, f"a list with {page}")
