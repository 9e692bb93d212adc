"""Checks of the two optional capabilities that read old history: event windows and search."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from workbench.errors import ConfigError, EventWindowAnchorNotFoundError, InvalidSessionKeyError, PagingError
from workbench.model.types import ContentPart, Message, ToolCall, response_of
from workbench.service.conformance.material import (
    APP,
    KEY,
    OWNER,
    USER_ID,
    answered,
    moment,
    put_summary,
    said,
    session_with,
    turns,
)
from workbench.service.conformance.suite import (
    EVENT_WINDOW,
    SEARCH,
    Bench,
    check,
    expect,
    expect_equal,
    expect_error,
)
from workbench.session.recall_types import EventSearchRequest, EventSearchResult, EventWindow, EventWindowRequest
from workbench.session.types import Event, SessionKey, UserKey
from workbench.store.indexing import HashEmbedder


def _call(n: int) -> Event:
    calls = (ToolCall(f"c{n}", "weather", "{}"),)
    return answered(n, response=response_of(Message(role="assistant", content="let me look", tool_calls=calls)))


def _result(n: int, text: str) -> Event:
    message = Message(role="tool", tool_id=f"c{n - 1}", tool_name="weather", content=text)
    return said(n, role="tool", response=response_of(message))


# --- windows --------------------------------------------------------------------------------------------


def _ids(window: EventWindow) -> list[str]:
    return [entry.event.id for entry in window.entries]


async def _window(service: Any, anchor: str, before: int, after: int, **more: Any) -> list[str]:
    return _ids(await service.get_event_window(EventWindowRequest(KEY, anchor, before, after, **more)))


@check(EVENT_WINDOW, "SUM-WIN-01", "SUM-WIN-03", needs=EVENT_WINDOW)
async def a_window_holds_what_is_around_its_anchor(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 9))
    for before, after, expected in ((0, 0, "5"), (1, 1, "456"), (2, 0, "345"), (0, 3, "5678"), (99, 99, "123456789")):
        found = await _window(service, "e5", before, after)
        expect_equal(found, [f"e{n}" for n in expected], f"window of {before} before and {after} after e5")


@check(EVENT_WINDOW, "SUM-WIN-03", needs=EVENT_WINDOW)
async def a_window_names_its_key_anchor_and_times(bench: Bench) -> None:
    service = await bench.service()
    events = turns(1, 3)
    await session_with(service, events)
    window = await service.get_event_window(EventWindowRequest(KEY, " e2 ", 1, 1))
    expect_equal((window.key, window.anchor_event_id), (KEY, "e2"), "key and anchor of a window")
    expect_equal([entry.event for entry in window.entries], events, "events of a window")
    times = [entry.created_ns for entry in window.entries]
    expect(times == sorted(times) and all(times), f"the entries' times don't ascend: {times}")


@check(EVENT_WINDOW, "SUM-WIN-01", "SUM-SVC-07", needs=EVENT_WINDOW)
async def a_window_reads_raw_events_not_the_view(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [answered(n) for n in range(1, 5)])
    await put_summary(service, "of all", moment(4), "e4")
    expect_equal(await _window(service, "e2", 1, 1), ["e1", "e2", "e3"], "window in a session without a user")


@check(EVENT_WINDOW, "SUM-WIN-02", needs=EVENT_WINDOW)
async def only_messages_count_in_a_window(bench: Bench) -> None:
    service = await bench.service()
    blank = answered(5, response=response_of(Message(role="assistant", content=" \n", reasoning_content="thought")))
    parts = Message(role="user", content_parts=(ContentPart("text", text="in parts"),))
    events = [said(1), _call(2), _result(3, "sunny"), said(4, "rules", role="system"), blank, answered(6)]
    await session_with(service, [*events, said(7, response=response_of(parts))])
    expect_equal(await _window(service, "e3", 1, 2), ["e1", "e3", "e6", "e7"], "window around a tool result")


@check(EVENT_WINDOW, "SUM-WIN-02", needs=EVENT_WINDOW)
async def roles_are_chosen_before_counting(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [said(1), answered(2), said(3), _call(4), _result(5, "sunny"), answered(6), said(7)])
    expect_equal(await _window(service, "e3", 1, 1, roles=("user",)), ["e1", "e3", "e7"], "window of users")
    found = await _window(service, "e5", 1, 1, roles=("tool", "assistant"))
    expect_equal(found, ["e2", "e5", "e6"], "window of tools and assistants")


@check(EVENT_WINDOW, "SUM-WIN-03", needs=EVENT_WINDOW)
async def an_anchor_that_is_no_message_of_the_session_is_not_found(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [said(1), _call(2), _result(3, "sunny")])
    await session_with(service, [said(9)], replace(KEY, session_id="other"))
    for anchor, roles in (("gone", ()), ("e2", ()), ("e9", ()), ("e1", ("assistant",))):
        call = service.get_event_window(EventWindowRequest(KEY, anchor, roles=roles))
        await expect_error(call, EventWindowAnchorNotFoundError, f"a window around {anchor!r} of roles {roles}")


@check(EVENT_WINDOW, "SUM-WIN-03", "SUM-STO-07", needs=EVENT_WINDOW)
async def there_is_no_window_into_what_is_gone(bench: Bench) -> None:
    service = await bench.service(session_ttl_s=10.0)
    other = replace(KEY, session_id="deleted")
    await session_with(service, turns(1, 3))
    await session_with(service, turns(1, 3), other)
    await service.delete_session(other)
    bench.clock.advance(timedelta(seconds=10))
    for key in (KEY, other, SessionKey("never", "made", "s")):
        call = service.get_event_window(EventWindowRequest(key, "e2"))
        await expect_error(call, EventWindowAnchorNotFoundError, f"a window into {key}")


@check(EVENT_WINDOW, "SUM-WIN-01", "SUM-ERR-17", needs=EVENT_WINDOW)
async def a_window_needs_a_key_an_anchor_and_sizes(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 3))
    for before, after in ((-1, 0), (0, -1)):
        call = service.get_event_window(EventWindowRequest(KEY, "e2", before, after))
        await expect_error(call, PagingError, f"a window of {before} before and {after} after")
    await expect_error(service.get_event_window(EventWindowRequest(KEY, "  ")), PagingError, "no anchor")
    nobody = SessionKey(APP, "", "s")
    await expect_error(service.get_event_window(EventWindowRequest(nobody, "e2")), InvalidSessionKeyError, "no user")


@check(EVENT_WINDOW, "SUM-WIN-03", "SUM-STO-05", needs=EVENT_WINDOW)
async def a_window_has_the_stored_order(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [said(1, id=name, time_ns=moment(9 - n)) for n, name in enumerate("zamb")])
    expect_equal(await _window(service, "m", 9, 9), list("zamb"), "window with ids and times in disorder")


# --- search ---------------------------------------------------------------------------------------------

_TEXTS = (
    "The blue bicycle stands in the garage",
    "Please order two pizzas for tonight",
    "订单七七三一到哪了",
    "The garage door is broken again",
)


async def _searchable(bench: Bench, **settings: Any) -> Any:
    return await bench.service(options={"embedder": HashEmbedder(256)}, **settings)


async def _search(service: Any, query: str, **more: Any) -> Sequence[EventSearchResult]:
    """Results of a search; an index may follow the writes, so an empty answer is asked for again."""
    request = EventSearchRequest(query, **{"user_key": OWNER, "search_mode": "hybrid", **more})
    results: Sequence[EventSearchResult] = []
    for _ in range(100):
        results = await service.search_events(request)
        if results:
            break
        await asyncio.sleep(0.01)
    return results


async def _indexed(service: Any, *markers: str) -> None:
    """Wait until the index has what was written last, so that absence means something."""
    for marker in markers:
        expect(await _search(service, marker), f"an event with the word {marker!r} was never found")


def _found(results: Sequence[EventSearchResult]) -> list[str]:
    return [result.event.id for result in results]


@check(SEARCH, "SUM-SCH-01", "SUM-SCH-04", needs=SEARCH)
async def what_fits_best_comes_first(bench: Bench) -> None:
    service = await _searchable(bench)
    await session_with(service, [said(n, text) for n, text in enumerate(_TEXTS, start=1)])
    await _indexed(service, "broken")
    for mode in ("dense", "hybrid"):
        for query, best in (("blue bicycle", "e1"), ("pizzas tonight", "e2"), ("garage door broken", "e4")):
            found = _found(await _search(service, query, search_mode=mode))
            expect_equal(found[:1], [best], f"best hit of a {mode} search for {query!r}")


@check(SEARCH, "SUM-SCH-02", needs=SEARCH)
async def chinese_is_found_without_word_breaks(bench: Bench) -> None:
    service = await _searchable(bench)
    await session_with(service, [said(n, text) for n, text in enumerate(_TEXTS, start=1)])
    expect_equal(_found(await _search(service, "订单"))[:1], ["e3"], "best hit of a search for 订单")


@check(SEARCH, "SUM-SCH-01", needs=SEARCH)
async def a_hit_names_its_session_event_text_and_role(bench: Bench) -> None:
    service = await _searchable(bench)
    event = said(1, _TEXTS[0])
    await session_with(service, [event])
    (hit,) = await _search(service, "bicycle")
    facts = (hit.session_key, hit.event, hit.role, hit.text)
    expect_equal(facts, (KEY, event, "user", _TEXTS[0]), "key, event, role and text of a hit")
    expect(hit.score > 0, f"the score of a hit is {hit.score}")


@check(SEARCH, "SUM-SCH-02", needs=SEARCH)
async def tool_results_are_found_but_calls_are_not(bench: Bench) -> None:
    service = await _searchable(bench)
    await session_with(service, [said(1, "how is it outside"), _call(2), _result(3, "sunny with clouds")])
    hits = await _search(service, "sunny clouds")
    expect_equal(
        [(hit.event.id, hit.role, hit.text) for hit in hits][:1],
        [("e3", "tool", "weather: sunny with clouds")],
        "best hit",
    )
    found = _found(await _search(service, "let me look sunny", max_results=10))
    expect("e2" not in found, "an event that calls tools was found")


@check(SEARCH, "SUM-SCH-03", needs=SEARCH)
async def a_blank_query_finds_nothing(bench: Bench) -> None:
    service = await _searchable(bench)
    await session_with(service, [said(1, _TEXTS[0])])
    await _indexed(service, "bicycle")
    for query in ("", "  \n"):
        results = await service.search_events(EventSearchRequest(query, OWNER))
        expect_equal(list(results), [], f"results for {query!r}")


@check(SEARCH, "SUM-SCH-03", needs=SEARCH)
async def an_unknown_mode_and_a_missing_user_are_errors(bench: Bench) -> None:
    service = await _searchable(bench)
    await session_with(service, [said(1, _TEXTS[0])])
    unknown = EventSearchRequest("bicycle", OWNER, search_mode="psychic")
    await expect_error(service.search_events(unknown), ConfigError, "a search in an unknown mode")
    nobody = EventSearchRequest("bicycle", UserKey(APP, ""))
    await expect_error(service.search_events(nobody), InvalidSessionKeyError, "a search for no user")


@check(SEARCH, "SUM-SCH-03", needs=SEARCH)
async def without_an_embedder_an_unknown_mode_is_an_error_too(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [said(1, _TEXTS[0])])
    unknown = EventSearchRequest("bicycle", OWNER, search_mode="psychic")
    await expect_error(service.search_events(unknown), ConfigError, "a search in an unknown mode, without an embedder")


@check(SEARCH, "SUM-SCH-03", "SUM-STO-07", "SUM-STO-09", needs=SEARCH)
async def what_is_gone_is_not_found(bench: Bench) -> None:
    service = await _searchable(bench, session_ttl_s=10.0)
    for name in ("expired", "deleted", "alive"):
        await session_with(service, [said(1, f"{name} bicycle")], SessionKey(APP, USER_ID, name))
    await _indexed(service, "expired", "deleted", "alive")
    await service.delete_session(SessionKey(APP, USER_ID, "deleted"))
    found = {hit.session_key.session_id for hit in await _search(service, "bicycle", max_results=10)}
    expect_equal(found, {"expired", "alive"}, "sessions found after a deletion")
    bench.clock.advance(timedelta(seconds=9))
    await service.update_session_state(SessionKey(APP, USER_ID, "alive"), {"a": b"1"})
    bench.clock.advance(timedelta(seconds=1))
    found = {hit.session_key.session_id for hit in await _search(service, "bicycle", max_results=10)}
    expect_equal(found, {"alive"}, "sessions found after an expiry")


@check(SEARCH, "SUM-SCH-01", needs=SEARCH)
async def only_the_users_own_sessions_are_searched(bench: Bench) -> None:
    service = await _searchable(bench)
    keys = [KEY, SessionKey(APP, "user2", "s"), SessionKey("app2", USER_ID, "s")]
    for n, key in enumerate(keys):
        await session_with(service, [said(n, "blue bicycle")], key)
    for key in keys:
        hits = await _search(service, "bicycle", user_key=UserKey(key.app_name, key.user_id), max_results=10)
        expect_equal([hit.session_key for hit in hits], [key], f"where a search of {key} found something")


@check(SEARCH, "SUM-SCH-01", needs=SEARCH)
async def sessions_can_be_chosen_or_left_out(bench: Bench) -> None:
    service = await _searchable(bench)
    for name in "abc":
        await session_with(service, [said(1, f"bicycle {name}{name}")], SessionKey(APP, USER_ID, name))
    await _indexed(service, "aa", "bb", "cc")
    for more, expected in (
        ({"session_ids": ("a", "c")}, {"a", "c"}),
        ({"exclude_session_ids": ("a",)}, {"b", "c"}),
        ({"session_ids": ("a", "b"), "exclude_session_ids": ("b",)}, {"a"}),
    ):
        found = {hit.session_key.session_id for hit in await _search(service, "bicycle", max_results=10, **more)}
        expect_equal(found, expected, f"sessions found with {more}")


@check(SEARCH, "SUM-SCH-01", needs=SEARCH)
async def roles_times_and_keys_narrow_a_search(bench: Bench) -> None:
    service = await _searchable(bench)
    events = [
        said(1, "bicycle one", filter_key="app/a"),
        answered(2, "bicycle two", filter_key="app/a/x"),
        said(3, "bicycle three", filter_key="app/b"),
        answered(4, "bicycle four"),
    ]
    await session_with(service, events)
    await _indexed(service, "one", "two", "three", "four")
    for more, expected in (
        ({"roles": ("user",)}, "13"),
        ({"roles": ("assistant", "tool")}, "24"),
        ({"created_after_ns": moment(3)}, "34"),
        ({"created_before_ns": moment(2)}, "12"),
        ({"created_after_ns": moment(2), "created_before_ns": moment(2)}, "2"),
        ({"filter_key": "app/a"}, "124"),
        ({"filter_key": "app/a/x/y"}, "124"),
    ):
        found = sorted(_found(await _search(service, "bicycle", max_results=10, **more)))
        expect_equal(found, [f"e{n}" for n in expected], f"events found with {more}")


@check(SEARCH, "SUM-SCH-01", "SUM-SCH-04", needs=SEARCH)
async def a_search_answers_with_five_unless_asked_for_more_or_fewer(bench: Bench) -> None:
    service = await _searchable(bench)
    await session_with(service, [said(n, f"bicycle w{n}") for n in range(9)])
    await _indexed(service, *(f"w{n}" for n in range(9)))
    for more, expected in (({}, 5), ({"max_results": 2}, 2), ({"max_results": 20}, 9)):
        expect_equal(len(await _search(service, "bicycle", **more)), expected, f"results with {more}")


@check(SEARCH, "SUM-SCH-04", needs=SEARCH)
async def among_equals_the_newest_comes_first(bench: Bench) -> None:
    service = await _searchable(bench)
    events = [said(n, "blue bicycle", time_ns=moment(n)) for n in (2, 5, 1, 4, 3)]
    await session_with(service, events)
    for _ in range(100):  # an index may follow the writes
        if len(await _search(service, "bicycle", max_results=10)) == len(events):
            break
        await asyncio.sleep(0.01)
    found = _found(await _search(service, "bicycle", search_mode="dense", max_results=10))
    expect_equal(found, ["e5", "e4", "e3", "e2", "e1"], "order of five equal texts")


@check(SEARCH, "SUM-SCH-04", needs=SEARCH)
async def a_least_score_filters_the_dense_part(bench: Bench) -> None:
    service = await _searchable(bench)
    await session_with(service, [said(n, text) for n, text in enumerate(_TEXTS, start=1)])
    await _indexed(service, "broken")
    hits = await _search(service, _TEXTS[0], search_mode="dense", min_score=0.9)
    expect_equal(_found(hits), ["e1"], "dense hits with a score of 0.9 or more")
    expect(all(hit.score >= 0.9 for hit in hits), f"scores under the least one: {[hit.score for hit in hits]}")
