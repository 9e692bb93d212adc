"""Checks of the three scopes of state, and of what expires."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from workbench.errors import SessionNotFoundError, StateKeyError
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
from workbench.service.conformance.read_back import ALL_BYTES
from workbench.service.conformance.suite import START_NS, Bench, check, expect, expect_equal, expect_error
from workbench.session.types import SessionKey, UserKey

STATE, EXPIRY = "state scopes", "expiry"

SECOND = timedelta(seconds=1)
TEN_S: dict[str, Any] = {"session_ttl_s": 10.0}


# --- state ----------------------------------------------------------------------------------------------


@check(STATE, "SUM-DM-13", "SUM-SVC-10")
async def a_session_shows_three_scopes_by_their_prefixes(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    await service.update_app_state(APP, {"theme": b"dark"})
    await service.update_user_state(OWNER, {"name": "小明".encode()})
    await service.update_session_state(KEY, {"step": b"1", "temp:x": b"2"})
    expected = {"app:theme": b"dark", "user:name": "小明".encode(), "step": b"1", "temp:x": b"2"}
    expect_equal((await loaded(service)).state, expected, "state of a session that was read")
    (listed,) = await service.list_sessions(OWNER)
    expect_equal(listed.state, expected, "state of a session that was listed")


@check(STATE, "SUM-DM-13", "SUM-SVC-11")
async def a_new_session_shows_the_state_around_it(bench: Bench) -> None:
    service = await bench.service()
    await service.update_app_state(APP, {"a": b"1"})
    await service.update_user_state(OWNER, {"u": b"2"})
    made = await service.create_session(APP, USER_ID, "s", state={"own": b"3"})
    expect_equal(made.state, {"app:a": b"1", "user:u": b"2", "own": b"3"}, "state of a new session")


@check(STATE, "SUM-DM-13")
async def application_state_is_shared_by_its_users(bench: Bench) -> None:
    service = await bench.service()
    await service.update_app_state(APP, {"a": b"1"})
    for user in ("user", "user2"):
        session = await session_with(service, [], SessionKey(APP, user, "s"))
        expect_equal(session.state, {"app:a": b"1"}, f"application state in a session of {user}")


@check(STATE, "SUM-DM-13")
async def user_state_is_shared_by_the_users_sessions(bench: Bench) -> None:
    service = await bench.service()
    keys = [SessionKey(APP, USER_ID, name) for name in ("s", "t")]
    for key in keys:
        await session_with(service, [], key)
    await service.update_user_state(OWNER, {"u": b"1"})
    for key in keys:
        expect_equal((await loaded(service, key)).state, {"user:u": b"1"}, f"user state in {key}")


@check(STATE, "SUM-SVC-10")
async def the_own_prefix_is_taken_off(bench: Bench) -> None:
    service = await bench.service()
    await service.update_app_state(APP, {"app:a": b"1", "b": b"2"})
    await service.update_user_state(OWNER, {"user:a": b"3", "b": b"4"})
    expect_equal(await service.list_app_state(APP), {"a": b"1", "b": b"2"}, "application state")
    expect_equal(await service.list_user_state(OWNER), {"a": b"3", "b": b"4"}, "user state")
    await service.delete_app_state(APP, "app:a")
    await service.delete_user_state(OWNER, "user:a")
    expect_equal(await service.list_app_state(APP), {"b": b"2"}, "application state after a deletion by prefix")
    expect_equal(await service.list_user_state(OWNER), {"b": b"4"}, "user state after a deletion by prefix")


@check(STATE, "SUM-SVC-10", "SUM-ERR-17")
async def user_state_refuses_foreign_prefixes_and_writes_nothing(bench: Bench) -> None:
    service = await bench.service()
    for foreign in ("app:x", "temp:x"):
        call = service.update_user_state(OWNER, {"fine": b"1", foreign: b"2"})
        await expect_error(call, StateKeyError, f"{foreign!r} in user state")
    expect_equal(await service.list_user_state(OWNER), {}, "user state after refusals")


@check(STATE, "SUM-SVC-10", "SUM-ERR-17")
async def session_state_refuses_foreign_prefixes_and_writes_nothing(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    for foreign in ("app:x", "user:x"):
        call = service.update_session_state(KEY, {"fine": b"1", foreign: b"2"})
        await expect_error(call, StateKeyError, f"{foreign!r} in session state")
    expect_equal((await loaded(service)).state, {}, "session state after refusals")


@check(STATE, "SUM-DM-13")
async def state_keeps_every_byte_and_an_explicit_null(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    values = {"all": ALL_BYTES, "none": None, "empty": b"", "utf8": "值".encode(), "b64": b"AA==", "null": b"null"}
    await service.update_app_state(APP, values)
    await service.update_user_state(OWNER, values)
    await service.update_session_state(KEY, values)
    expect_equal(await service.list_app_state(APP), values, "application state")
    expect_equal(await service.list_user_state(OWNER), values, "user state")
    own = {key: value for key, value in (await loaded(service)).state.items() if ":" not in key}
    expect_equal(own, values, "session state")


@check(STATE, "SUM-STO-04", "SUM-DM-13")
async def any_text_can_be_a_state_key(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    values = {
        name: b"%d" % n
        for n, name in enumerate(["", " ", "a.b", "a'b", 'a"b', "$.a", "中", "a\0b", "k" * 300, "A", "a"])
    }
    await service.update_app_state(APP, values)
    await service.update_user_state(OWNER, values)
    await service.update_session_state(KEY, values)
    expect_equal(await service.list_app_state(APP), values, "application state")
    expect_equal(await service.list_user_state(OWNER), values, "user state")
    state = (await loaded(service)).state
    expect_equal({name: state.get(name) for name in values}, values, "session state")


@check(STATE, "SUM-DM-13")
async def updates_merge_key_by_key(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    first, second = {"a": b"1", "b": b"1"}, {"b": b"2", "c": None}
    expected = {"a": b"1", "b": b"2", "c": None}
    for delta in (first, second, {}):
        await service.update_app_state(APP, delta)
        await service.update_user_state(OWNER, delta)
        await service.update_session_state(KEY, delta)
    expect_equal(await service.list_app_state(APP), expected, "application state")
    expect_equal(await service.list_user_state(OWNER), expected, "user state")
    own = {key: value for key, value in (await loaded(service)).state.items() if ":" not in key}
    expect_equal(own, expected, "session state")


@check(STATE, "SUM-SVC-01")
async def deleting_a_key_leaves_the_others(bench: Bench) -> None:
    service = await bench.service()
    await service.update_app_state(APP, {"a": b"1", "b": b"2"})
    await service.update_user_state(OWNER, {"a": b"1", "b": b"2"})
    for name in ("a", "a", "never there"):
        await service.delete_app_state(APP, name)
        await service.delete_user_state(OWNER, name)
    expect_equal(await service.list_app_state(APP), {"b": b"2"}, "application state after a deletion")
    expect_equal(await service.list_user_state(OWNER), {"b": b"2"}, "user state after a deletion")
    await service.update_app_state(APP, {"a": b"3"})
    expect_equal(await service.list_app_state(APP), {"a": b"3", "b": b"2"}, "a deleted key that was written again")


@check(STATE, "SUM-SVC-01")
async def state_that_was_never_written_is_empty(bench: Bench) -> None:
    service = await bench.service()
    expect_equal(await service.list_app_state("nobody"), {}, "state of an unknown application")
    expect_equal(await service.list_user_state(UserKey("nobody", "u")), {}, "state of an unknown user")
    await service.delete_app_state("nobody", "a")
    await service.delete_user_state(UserKey("nobody", "u"), "a")


@check(STATE, "SUM-DM-14")
async def the_state_change_of_an_event_goes_to_its_session_only(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, [said(1, state_delta={"app:a": b"1", "user:u": b"2", "own": b"3"})])
    expect_equal(await service.list_app_state(APP), {}, "application state after an event's change")
    expect_equal(await service.list_user_state(OWNER), {}, "user state after an event's change")
    expect_equal((await loaded(service)).state.get("own"), b"3", "the session's own key")


@check(STATE, "SUM-DM-14")
async def later_state_changes_win_key_by_key(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service)
    for n, delta in enumerate(({"a": b"1", "b": b"1"}, {"a": None}, {"b": b"3", "c": b""})):
        await service.append_event(live, said(n, state_delta=delta))
    expected = {"a": None, "b": b"3", "c": b""}
    expect_equal(live.state, expected, "state of the live session")
    expect_equal((await loaded(service)).state, expected, "stored state")


@check(STATE, "SUM-SVC-01")
async def a_state_that_was_listed_is_the_readers_own(bench: Bench) -> None:
    service = await bench.service()
    await service.update_app_state(APP, {"a": b"1"})
    await service.update_user_state(OWNER, {"a": b"1"})
    (await service.list_app_state(APP))["a"] = b"changed"
    (await service.list_user_state(OWNER)).clear()
    expect_equal(await service.list_app_state(APP), {"a": b"1"}, "application state after a reader changed its copy")
    expect_equal(await service.list_user_state(OWNER), {"a": b"1"}, "user state after a reader changed its copy")


@check(STATE, "SUM-SVC-06", "SUM-SVC-09")
async def writing_session_state_sets_its_time(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    bench.clock.advance(SECOND)
    await service.update_session_state(KEY, {"a": b"1"})
    expect_equal((await loaded(service)).updated_ns, START_NS + 10**9, "updated_ns after a write of state")


@check(STATE, "SUM-SVC-10", "SUM-SVC-01")
async def state_of_a_missing_session_can_not_be_written(bench: Bench) -> None:
    service = await bench.service()
    call = service.update_session_state(KEY, {"a": b"1"})
    await expect_error(call, SessionNotFoundError, "writing state of a missing session")
    expect(await service.get_session(KEY) is None, "writing state made a session")


@check(STATE, "SUM-STO-11", "SUM-DM-13")
async def updates_at_the_same_time_lose_no_key(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    await asyncio.gather(
        *(service.update_app_state(APP, {f"k{n}": b"1"}) for n in range(20)),
        *(service.update_user_state(OWNER, {f"k{n}": b"1"}) for n in range(20)),
        *(service.update_session_state(KEY, {f"k{n}": b"1"}) for n in range(20)),
    )
    expected = {f"k{n}" for n in range(20)}
    expect_equal(set(await service.list_app_state(APP)), expected, "keys of the application")
    expect_equal(set(await service.list_user_state(OWNER)), expected, "keys of the user")
    own = {key for key in (await loaded(service)).state if ":" not in key}
    expect_equal(own, expected, "keys of the session")


# --- expiry ---------------------------------------------------------------------------------------------


async def _is_gone(service: Any, key: SessionKey = KEY) -> bool:
    return await service.get_session(key) is None


@check(EXPIRY, "SUM-STO-07", "SUM-SVC-08")
async def a_session_is_there_until_the_moment_when_its_time_is_over(bench: Bench) -> None:
    service = await bench.service(**TEN_S)
    await session_with(service)
    other = SessionKey(APP, USER_ID, "written to")
    await session_with(service, turns(1, 2), other)
    bench.clock.advance(timedelta(seconds=10) - timedelta(microseconds=1))
    for key in (KEY, other):
        expect(not await _is_gone(service, key), f"{key} is gone a microsecond before its time is over")
    bench.clock.advance(timedelta(microseconds=1))
    for key in (KEY, other):
        expect(await _is_gone(service, key), f"{key} is there at the moment when its time is over")


@check(EXPIRY, "SUM-STO-07")
async def what_has_expired_is_invisible_in_every_read(bench: Bench) -> None:
    service = await bench.service(**TEN_S)
    await session_with(service, turns(1, 2))
    bench.clock.advance(10 * SECOND)
    expect_equal(list(await service.list_sessions(OWNER)), [], "expired sessions in a list")
    expect_equal(ids(await raw_events(service)), [], "events of an expired session")
    expect(await service.get_session(KEY, offset=0, limit=1) is None, "an expired session can be paged")


@check(EXPIRY, "SUM-STO-07", "SUM-SVC-06")
async def appending_begins_the_time_anew(bench: Bench) -> None:
    service = await bench.service(**TEN_S)
    live = await session_with(service)
    for n in range(3):
        bench.clock.advance(9 * SECOND)
        await service.append_event(live, said(n))
    bench.clock.advance(9 * SECOND)
    expect(not await _is_gone(service), "a session is gone 9 s after an append, with a lifetime of 10 s")
    bench.clock.advance(SECOND)
    expect(await _is_gone(service), "a session outlives its lifetime after an append")


@check(EXPIRY, "SUM-STO-07", "SUM-SVC-06")
async def a_state_change_begins_the_time_anew(bench: Bench) -> None:
    service = await bench.service(**TEN_S)
    live = await session_with(service)
    bench.clock.advance(9 * SECOND)
    await service.update_session_state(KEY, {"a": b"1"})
    bench.clock.advance(9 * SECOND)
    expect(not await _is_gone(service), "a write of state hasn't refreshed the lifetime")
    await service.append_event(live, said(1, response=None, state_delta={"b": b"2"}))
    bench.clock.advance(9 * SECOND)
    expect(not await _is_gone(service), "an event that only changes state hasn't refreshed the lifetime")


@check(EXPIRY, "SUM-STO-07", "SUM-SVC-08")
async def reading_does_not_begin_the_time_anew(bench: Bench) -> None:
    service = await bench.service(**TEN_S)
    live = await session_with(service, turns(1, 2))
    for _ in range(9):
        bench.clock.advance(SECOND)
        await loaded(service)
        await service.list_sessions(OWNER)
        await raw_events(service)
        await service.get_session_summary_text(live)
    bench.clock.advance(SECOND)
    expect(await _is_gone(service), "reads have kept a session alive")


@check(EXPIRY, "SUM-STO-07")
async def lifetime_zero_means_for_ever(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    await service.update_app_state(APP, {"a": b"1"})
    await service.update_user_state(OWNER, {"u": b"1"})
    bench.clock.advance(timedelta(days=36_500))
    expected = {"app:a": b"1", "user:u": b"1"}
    expect_equal((await loaded(service)).state, expected, "state of a session after a hundred years")


@check(EXPIRY, "SUM-STO-07", "SUM-ERR-16")
async def an_expired_session_takes_no_writes(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer(), **TEN_S)
    live = await session_with(service, turns(1, 2))
    bench.clock.advance(10 * SECOND)
    await expect_error(service.append_event(live, said(9)), SessionNotFoundError, "appending to an expired session")
    await expect_error(
        service.update_session_state(KEY, {"a": b"1"}), SessionNotFoundError, "writing state of an expired session"
    )
    await expect_error(
        service.create_session_summary(live, force=True), SessionNotFoundError, "summarising an expired session"
    )
    expect(await _is_gone(service), "a write has revived an expired session")


@check(EXPIRY, "SUM-SVC-11", "SUM-STO-08")
async def an_expired_id_can_be_used_again_and_sees_nothing_old(bench: Bench) -> None:
    service = await bench.service(**TEN_S)
    await session_with(service, turns(1, 2))
    await service.update_session_state(KEY, {"a": b"1"})
    await put_summary(service, "old", moment(2), "e2")
    bench.clock.advance(10 * SECOND)
    made = await service.create_session(APP, USER_ID, "s")
    for session in (made, await loaded(service)):
        found = (session.events, session.state, session.summaries)
        expect_equal(found, ([], {}, {}), "events, state and summaries under an expired session's id")
    await service.append_event(made, said(5))
    expect_equal(ids(await raw_events(service)), ["e5"], "events of the second life")
    bench.clock.advance(9 * SECOND)
    expect(not await _is_gone(service), "the second life ends with the first one's time")


@check(EXPIRY, "SUM-STO-08")
async def a_summary_lives_and_dies_with_its_session(bench: Bench) -> None:
    service = await bench.service(**TEN_S)
    live = await session_with(service, turns(1, 2))
    await put_summary(service, "text", moment(2), "e2")
    bench.clock.advance(9 * SECOND)
    await service.append_event(live, said(3))
    bench.clock.advance(9 * SECOND)
    expect_equal(await stored_text(service), "text", "a summary whose session was kept alive")
    bench.clock.advance(SECOND)
    expect(await service.get_session_summary_text(live) is None, "the summary of an expired session can be read")


@check(EXPIRY, "SUM-STO-07")
async def application_and_user_state_have_lifetimes_of_their_own(bench: Bench) -> None:
    service = await bench.service(session_ttl_s=30.0, app_state_ttl_s=10.0, user_state_ttl_s=20.0)
    await session_with(service)
    await service.update_app_state(APP, {"a": b"1"})
    await service.update_user_state(OWNER, {"u": b"1"})
    for seconds, expected in ((9, ["app:a", "user:u"]), (1, ["user:u"]), (9, ["user:u"]), (1, [])):
        bench.clock.advance(seconds * SECOND)
        found = sorted((await loaded(service)).state)
        expect_equal(found, expected, f"state in the session {(bench.clock.now_ns() - START_NS) // 10**9} s later")
    expect_equal(await service.list_app_state(APP), {}, "expired application state")
    expect_equal(await service.list_user_state(OWNER), {}, "expired user state")
    bench.clock.advance(10 * SECOND)
    expect(await _is_gone(service), "the session outlives its own lifetime")


@check(EXPIRY, "SUM-STO-07")
async def writing_state_begins_its_time_anew_and_expired_state_begins_empty(bench: Bench) -> None:
    service = await bench.service(app_state_ttl_s=10.0, user_state_ttl_s=10.0)
    await service.update_app_state(APP, {"a": b"1"})
    await service.update_user_state(OWNER, {"a": b"1"})
    bench.clock.advance(9 * SECOND)
    await service.update_app_state(APP, {"b": b"2"})
    await service.update_user_state(OWNER, {"b": b"2"})
    bench.clock.advance(9 * SECOND)
    expect_equal(await service.list_app_state(APP), {"a": b"1", "b": b"2"}, "application state that was refreshed")
    expect_equal(await service.list_user_state(OWNER), {"a": b"1", "b": b"2"}, "user state that was refreshed")
    bench.clock.advance(SECOND)
    await service.update_app_state(APP, {"c": b"3"})
    await service.update_user_state(OWNER, {"c": b"3"})
    expect_equal(await service.list_app_state(APP), {"c": b"3"}, "application state after its expiry")
    expect_equal(await service.list_user_state(OWNER), {"c": b"3"}, "user state after its expiry")


@check(EXPIRY, "SUM-STO-07")
async def reading_sessions_does_not_keep_state_alive(bench: Bench) -> None:
    service = await bench.service(app_state_ttl_s=10.0, user_state_ttl_s=10.0)
    await session_with(service)
    await service.update_app_state(APP, {"a": b"1"})
    await service.update_user_state(OWNER, {"u": b"1"})
    bench.clock.advance(9 * SECOND)
    await loaded(service)
    await service.list_app_state(APP)
    await service.list_user_state(OWNER)
    bench.clock.advance(SECOND)
    expect_equal((await loaded(service)).state, {}, "state that only reads could have kept alive")


@check(EXPIRY, "SUM-STO-07")
async def each_session_has_its_own_time(bench: Bench) -> None:
    service = await bench.service(**TEN_S)
    for n in range(4):
        await session_with(service, [said(n)], SessionKey(APP, USER_ID, f"s{n}"))
        bench.clock.advance(3 * SECOND)
    left = {session.id for session in await service.list_sessions(OWNER)}
    expect_equal(left, {"s1", "s2", "s3"}, "sessions 12 s after the first, made 3 s apart, with a lifetime of 10 s")


@check(EXPIRY, "SUM-STO-07")
async def what_has_expired_is_removed_later(bench: Bench) -> None:
    service = await bench.service(session_ttl_s=10.0, app_state_ttl_s=10.0, cleanup_interval_s=0.002)
    await session_with(service, turns(1, 2))
    await service.update_app_state(APP, {"a": b"1"})
    # Whether it is gone for good shows when the clock is set back; a sweep in that moment finds nothing.
    for _ in range(100):
        bench.clock.advance(10 * SECOND)
        expect(await _is_gone(service), "an expired session can be read")
        await asyncio.sleep(0.005)
        bench.clock.advance(-10 * SECOND)
        if await _is_gone(service) and not await service.list_app_state(APP):
            return
    expect(condition=False, sentence="what had expired was never removed, with sweeps every 2 ms for half a second")
