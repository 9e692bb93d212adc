"""Checks of isolation between applications, users and sessions, and of errors."""

from __future__ import annotations

import asyncio

from workbench.errors import (
    InvalidSessionKeyError,
    PagingError,
    SessionError,
    SessionExistsError,
    SessionNotFoundError,
    StateKeyError,
    StoreError,
)
from workbench.service.conformance.material import (
    APP,
    KEY,
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
)
from workbench.service.conformance.suite import Bench, check, expect, expect_equal, expect_error
from workbench.session.types import Session, SessionKey, UserKey

ISOLATION, ERRORS = "isolation", "errors"

# --- isolation ------------------------------------------------------------------------------------------

_NEIGHBOURS = (
    KEY,
    SessionKey(APP, "user2", "s"),
    SessionKey("app2", USER_ID, "s"),
    SessionKey(APP, USER_ID, "s2"),
    SessionKey("APP", USER_ID, "s"),
    SessionKey(APP, "User", "s"),
    SessionKey(APP, USER_ID, "S"),
    # The same text once the parts are joined, in several ways.
    SessionKey("ap", "puser", "s"),
    SessionKey("a:b", "c", "d"),
    SessionKey("a", "b:c", "d"),
    SessionKey("a", "b", "c:d"),
    SessionKey("a/b", "c", "d"),
    SessionKey("a", "b/c", "d"),
    # What other languages take for a pattern.
    SessionKey("%", "_", "*"),
    SessionKey(APP, "use_", "s"),
)


@check(ISOLATION, "SUM-STO-04", "SUM-STO-05")
async def events_stay_in_their_session(bench: Bench) -> None:
    service = await bench.service()
    sessions = [await session_with(service, [], key) for key in _NEIGHBOURS]
    for n in range(3):
        for place, session in enumerate(sessions):
            await service.append_event(session, said(n, id=f"{place}-{n}"))
    for place, key in enumerate(_NEIGHBOURS):
        expected = [f"{place}-{n}" for n in range(3)]
        expect_equal(ids((await loaded(service, key)).events), expected, f"events of {key}")
        expect_equal(ids(await raw_events(service, key)), expected, f"stored events of {key}")


@check(ISOLATION, "SUM-STO-04", "SUM-DM-13")
async def session_state_stays_in_its_session(bench: Bench) -> None:
    service = await bench.service()
    for key in _NEIGHBOURS:
        await session_with(service, [], key)
    for place, key in enumerate(_NEIGHBOURS):
        await service.update_session_state(key, {"place": b"%d" % place})
    for place, key in enumerate(_NEIGHBOURS):
        expect_equal((await loaded(service, key)).state, {"place": b"%d" % place}, f"state of {key}")


@check(ISOLATION, "SUM-STO-04")
async def summaries_stay_in_their_session(bench: Bench) -> None:
    service = await bench.service()
    for place, key in enumerate(_NEIGHBOURS):
        await session_with(service, [said(1)], key)
        if place % 2:
            await put_summary(service, f"of {place}", moment(1), "e1", key=key)
    for place, key in enumerate(_NEIGHBOURS):
        expected = f"of {place}" if place % 2 else None
        expect_equal(await stored_text(service, key=key), expected, f"summary of {key}")


@check(ISOLATION, "SUM-SVC-01")
async def a_list_holds_the_sessions_of_one_user_of_one_application(bench: Bench) -> None:
    service = await bench.service()
    for key in _NEIGHBOURS:
        await session_with(service, [], key)
    for key in _NEIGHBOURS:
        user = UserKey(key.app_name, key.user_id)
        expected = {one.session_id for one in _NEIGHBOURS if UserKey(one.app_name, one.user_id) == user}
        found = await service.list_sessions(user)
        expect_equal({session.id for session in found}, expected, f"sessions of {user}")
        expect_equal(
            {(session.app_name, session.user_id) for session in found},
            {(user.app_name, user.user_id)},
            f"owner of the sessions of {user}",
        )


@check(ISOLATION, "SUM-DM-13")
async def user_state_is_of_one_user_of_one_application(bench: Bench) -> None:
    service = await bench.service()
    users = list(dict.fromkeys(UserKey(key.app_name, key.user_id) for key in _NEIGHBOURS))
    for place, user in enumerate(users):
        await service.update_user_state(user, {"place": b"%d" % place})
    for place, user in enumerate(users):
        expect_equal(await service.list_user_state(user), {"place": b"%d" % place}, f"state of {user}")
        session = await service.create_session(user.app_name, user.user_id, "new")
        expect_equal(session.state, {"user:place": b"%d" % place}, f"user state in a session of {user}")


@check(ISOLATION, "SUM-DM-13")
async def application_state_is_of_one_application(bench: Bench) -> None:
    service = await bench.service()
    apps = list(dict.fromkeys(key.app_name for key in _NEIGHBOURS))
    for app in apps:
        await service.update_app_state(app, {"of": app.encode()})
    for app in apps:
        expect_equal(await service.list_app_state(app), {"of": app.encode()}, f"state of application {app!r}")
        session = await service.create_session(app, "somebody", "new")
        expect_equal(session.state, {"app:of": app.encode()}, f"application state in a session of {app!r}")


@check(ISOLATION, "SUM-ASY-02", "SUM-STO-05")
async def writers_of_different_sessions_do_not_mix(bench: Bench) -> None:
    service = await bench.service()
    keys = [SessionKey(APP, f"user{n}", "s") for n in range(4)]
    sessions = [await session_with(service, [], key) for key in keys]

    async def write(place: int) -> None:
        for n in range(10):
            await service.append_event(sessions[place], answered(n, id=f"{place}-{n}"))
            await asyncio.sleep(0)

    await asyncio.gather(*(write(place) for place in range(4)))
    for place, key in enumerate(keys):
        expect_equal(ids(await raw_events(service, key)), [f"{place}-{n}" for n in range(10)], f"events of {key}")


# --- errors ---------------------------------------------------------------------------------------------


@check(ERRORS, "SUM-ERR-14")
async def an_empty_part_of_a_key_is_named_in_order(bench: Bench) -> None:
    service = await bench.service()
    cases = ((("", "", ""), "app_name"), (("a", "", ""), "user_id"), (("a", "u", ""), "session_id"))
    for parts, name in cases:
        key = SessionKey(*parts)
        for what in ("get_session", "delete_session", "list_events"):
            error = await expect_error(getattr(service, what)(key), InvalidSessionKeyError, f"{what} with {parts}")
            expect_equal(getattr(error, "field", None), name, f"field that {what} names for {parts}")
        error = await expect_error(
            service.update_session_state(key, {}), InvalidSessionKeyError, f"update_session_state with {parts}"
        )
        expect_equal(getattr(error, "field", None), name, f"field that update_session_state names for {parts}")


@check(ERRORS, "SUM-ERR-14", "SUM-SVC-11")
async def a_session_needs_an_application_and_a_user(bench: Bench) -> None:
    service = await bench.service()
    await expect_error(service.create_session("", USER_ID), InvalidSessionKeyError, "creating without an application")
    await expect_error(service.create_session(APP, ""), InvalidSessionKeyError, "creating without a user")
    await expect_error(service.list_sessions(UserKey(APP, "")), InvalidSessionKeyError, "listing without a user")
    await expect_error(service.list_sessions(UserKey("", "u")), InvalidSessionKeyError, "listing without application")


@check(ERRORS, "SUM-ERR-14", "SUM-SVC-06")
async def an_event_is_not_appended_without_a_whole_key(bench: Bench) -> None:
    service = await bench.service()
    nobody = Session(app_name=APP, user_id="", id="s")
    await expect_error(service.append_event(nobody, said(1)), InvalidSessionKeyError, "appending without a user")
    expect_equal(nobody.events, [], "events of the object that was refused")


@check(ERRORS, "SUM-ERR-16", "SUM-STO-05")
async def appending_to_an_unknown_session_changes_nothing(bench: Bench) -> None:
    service = await bench.service()
    stranger = Session(app_name=APP, user_id=USER_ID, id="s")
    event = said(1, state_delta={"a": b"1"})
    await expect_error(service.append_event(stranger, event), SessionNotFoundError, "appending to an unknown session")
    expect_equal((stranger.events, stranger.state), ([], {}), "events and state of the stranger")
    expect(await service.get_session(KEY) is None, "appending made a session")


@check(ERRORS, "SUM-ERR-17", "SUM-SVC-10")
async def errors_of_values_are_value_errors_too(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service)
    foreign = await expect_error(service.update_session_state(KEY, {"app:x": b""}), StateKeyError, "a foreign prefix")
    negative = await expect_error(service.get_session(KEY, offset=-1), PagingError, "a negative offset")
    for what, error in (("a foreign prefix", foreign), ("a negative offset", negative)):
        expect(isinstance(error, ValueError), f"{what}: {type(error).__name__} is no ValueError")
        expect(isinstance(error, StoreError), f"{what}: {type(error).__name__} is no StoreError")


@check(ERRORS, "SUM-ERR-13", "SUM-ERR-15", "SUM-SVC-03")
async def a_summary_needs_a_session_that_the_store_knows(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    await expect_error(service.create_session_summary(None), SessionError, "summarising None")
    stranger = Session(app_name=APP, user_id=USER_ID, id="unknown", events=[said(1)])
    await expect_error(service.create_session_summary(stranger), SessionNotFoundError, "summarising a stranger")
    expect(await service.get_session(stranger.key) is None, "summarising made a session")


@check(ERRORS, "SUM-SVC-01", "SUM-STO-05")
async def a_service_works_on_after_an_error(bench: Bench) -> None:
    service = await bench.service()
    session = await session_with(service, [said(1)])
    stranger = Session(app_name=APP, user_id=USER_ID, id="unknown")
    for _ in range(3):
        await expect_error(service.append_event(stranger, said(9)), SessionNotFoundError, "appending to a stranger")
        await expect_error(service.create_session(APP, USER_ID, "s"), SessionExistsError, "creating it again")
    await service.append_event(session, said(2))
    expect_equal(ids((await loaded(service)).events), ["e1", "e2"], "events after errors in between")


@check(ERRORS, "SUM-STO-01")
async def errors_say_something_and_hold_no_conversation(bench: Bench) -> None:
    service = await bench.service()
    spoken = "the words of a user"
    stranger = Session(app_name=APP, user_id=USER_ID, id="unknown")
    error = await expect_error(
        service.append_event(stranger, said(1, spoken)), SessionNotFoundError, "appending to an unknown session"
    )
    expect(str(error).strip(), "the error has no text")
    expect(spoken not in str(error), "the error repeats what the user said")
