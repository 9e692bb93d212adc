"""Checks of summaries: boundaries, late writes, reading the text."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import Any

from workbench.errors import SummaryError
from workbench.service.conformance.material import (
    APP,
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
from workbench.service.conformance.suite import START_NS, Bench, check, expect, expect_equal, expect_error, until
from workbench.service.in_memory import InMemorySessionService
from workbench.session.types import Session, SessionKey, Summary, SummaryBoundary

SUMMARIES, LATE, READING = "summaries with boundaries", "late writes", "reading a summary"


def _summary(text: str, n: int, filter_key: str = "") -> Summary:
    """A summary whose last covered event is the n-th."""
    return Summary(text, moment(n), SummaryBoundary(filter_key, moment(n), f"e{n}"))


# --- summaries with boundaries --------------------------------------------------------------------------


@check(SUMMARIES, "SUM-SVC-03", "SUM-DM-09", "SUM-DM-10", "SUM-CORE-06")
async def text_and_boundary_are_written_together_to_object_and_store(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    live = await session_with(service, turns(1, 4))
    bench.clock.advance(timedelta(seconds=500))
    await service.create_session_summary(live)
    expected = {"": _summary("summary 1 of e1 e2 e3 e4", 4)}
    expect_equal(live.summaries, expected, "summaries of the live session")
    expect_equal((await loaded(service)).summaries, expected, "stored summaries")


@check(SUMMARIES, "SUM-CORE-03", "SUM-STO-02")
async def the_next_summary_gets_the_previous_one_and_what_is_new(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting)
    live = await session_with(service, turns(1, 2))
    await service.create_session_summary(live)
    for event in turns(3, 4):
        await service.append_event(live, event)
    await service.create_session_summary(live)
    expect_equal([new for _, new in noting.asked], [["e1", "e2"], ["e3", "e4"]], "events of the two summaries")
    expect_equal(noting.previous, ["", "summary 1 of e1 e2"], "previous texts of the two summaries")
    expect_equal((await loaded(service)).summaries[""], _summary("summary 2 of e3 e4", 4), "the stored summary")


@check(SUMMARIES, "SUM-CORE-03", "SUM-DM-10")
async def events_of_one_moment_are_split_by_their_id(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting)
    live = await session_with(service, [said(1, id="a"), said(1, id="b")])
    await service.create_session_summary(live)
    await service.append_event(live, said(1, id="c"))
    again = await loaded(service)
    await service.create_session_summary(again)
    expect_equal(noting.asked[-1][1], ["c"], "events of the second summary, all of one moment")


@check(SUMMARIES, "SUM-DM-09", "SUM-STO-04")
async def the_text_of_a_summary_comes_back_exactly(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    for n, text in enumerate(("总结\0", "\ud800", 'it\'s "q" \\n', "  \n ", "{}", "x" * 1_000_000), start=3):
        await put_summary(service, text, moment(n))
        expect_equal(await stored_text(service), text, "text of a stored summary")


@check(SUMMARIES, "SUM-DM-10", "SUM-DM-15")
async def a_boundary_keeps_every_nanosecond(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    for n in range(1, 4):
        cutoff_ns = moment(2) + n
        await put_summary(service, f"{n}", cutoff_ns, f"id {n}")
        expected = Summary(f"{n}", cutoff_ns, SummaryBoundary("", cutoff_ns, f"id {n}"))
        expect_equal((await loaded(service)).summaries[""], expected, "a stored summary")


@check(SUMMARIES, "SUM-DM-09")
async def topics_and_the_boundarys_version_come_back(bench: Bench) -> None:
    service = await bench.service()
    session = await session_with(service, turns(1, 2))
    boundary = SummaryBoundary("", moment(2), "e2", version=1)
    session.summaries[""] = Summary("text", boundary=boundary, topics=("订单", "a, b", ""))
    await service.create_session_summary(session)
    expected = Summary("text", moment(2), boundary, ("订单", "a, b", ""))
    expect_equal((await loaded(service)).summaries[""], expected, "a stored summary with topics")


@check(SUMMARIES, "SUM-STO-04")
async def each_filter_key_has_one_summary_of_its_own(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    names = ["", "app", "app/a", "app/a/b", "APP", "app/", "分支/一", "it's", "%", "k" * 200]
    for round_ in (1, 2):
        for name in names:
            await put_summary(service, f"{round_} {name}", moment(round_), f"e{round_}", filter_key=name)
    found = (await loaded(service)).summaries
    expected = {name: _summary(f"2 {name}", 2, name) for name in names}
    expect_equal(found, expected, "stored summaries by filter key")


@check(SUMMARIES, "SUM-SVC-03")
async def one_call_summarises_one_key(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting)
    live = await session_with(service, [said(1, filter_key="app/a"), said(2, filter_key="app/b")])
    await service.create_session_summary(live, "app/a")
    expect_equal(noting.asked, [("s:app/a", ["e1"])], "what was summarised")
    expect_equal(list((await loaded(service)).summaries), ["app/a"], "keys of the stored summaries")


@check(SUMMARIES, "SUM-SVC-03", "SUM-CAS-02")
async def a_branch_that_is_not_allowed_is_left_alone(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting, summary_filter_allowlist=("app/a",))
    live = await session_with(service, [said(1, filter_key="app/b")])
    await service.create_session_summary(live, "app/b")
    expect_equal((noting.asked, live.summaries), ([], {}), "what was summarised")


@check(SUMMARIES, "SUM-SVC-03", "SUM-CORE-02")
async def without_news_nothing_is_done(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting)
    live = await session_with(service)
    await service.create_session_summary(live)
    expect_equal(noting.asked, [], "summaries of a session without events")
    await service.append_event(live, said(1))
    for _ in range(3):
        await service.create_session_summary(live)
    await service.create_session_summary(await loaded(service))
    expect_equal(len(noting.asked), 1, "summaries of one event")


@check(SUMMARIES, "SUM-SVC-04")
async def checks_are_obeyed_unless_forced(bench: Bench) -> None:
    noting = NotingSummarizer(is_due=False)
    service = await bench.service(summarizer=noting)
    live = await session_with(service, turns(1, 2))
    await service.create_session_summary(live)
    expect_equal((noting.asked, await stored_text(service)), ([], None), "what was done while the check says no")
    await service.create_session_summary(live, force=True)
    expect_equal(await stored_text(service), "summary 1 of e1 e2", "the forced summary")


@check(SUMMARIES, "SUM-SVC-04", "SUM-CORE-06")
async def a_forced_summary_without_news_moves_no_boundary(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    live = await session_with(service, turns(1, 2))
    await service.create_session_summary(live)
    await service.create_session_summary(live, force=True)
    found = (await loaded(service)).summaries[""]
    expect_equal(found, _summary("summary 2 of ", 2), "the summary that was forced without news")


@check(SUMMARIES, "SUM-SVC-02")
async def without_a_summarizer_both_calls_do_nothing(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service, turns(1, 2))
    for session in (None, live, Session(app_name="", user_id="", id="")):
        await service.create_session_summary(session)
        await service.create_session_summary(session, "app/a", force=True)
        await service.enqueue_summary_job(session, force=True)
    await service.wait_for_summaries()
    expect_equal((live.summaries, (await loaded(service)).summaries), ({}, {}), "live and stored summaries")


@check(SUMMARIES, "SUM-CORE-07")
async def a_failed_summary_leaves_object_and_store_as_they_were(bench: Bench) -> None:
    def answer(name: str, new: list[str]) -> str:
        if "e3" in new and len(new) == 1:
            raise OSError("the model is away")
        return f"of {' '.join(new)}"

    service = await bench.service(summarizer=NotingSummarizer(answer=answer))
    live = await session_with(service, turns(1, 2))
    await service.create_session_summary(live)
    await service.append_event(live, said(3))
    error = await expect_error(service.create_session_summary(live), SummaryError, "a summary whose model is away")
    expect(isinstance(error.__cause__, OSError), "the error doesn't carry its cause")
    expected = {"": _summary("of e1 e2", 2)}
    expect_equal(live.summaries, expected, "summaries of the live session after the failure")
    expect_equal((await loaded(service)).summaries, expected, "stored summaries after the failure")
    await service.append_event(live, said(4))
    await service.create_session_summary(live)
    expect_equal(await stored_text(service), "of e3 e4", "the next summary, over everything since")


@check(SUMMARIES, "SUM-CORE-09")
async def a_summary_changes_no_time_of_the_session(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    live = await session_with(service, turns(1, 2))
    bench.clock.advance(timedelta(seconds=5))
    await service.create_session_summary(live)
    expect_equal((await loaded(service)).updated_ns, START_NS, "updated_ns after a summary")
    (listed,) = await service.list_sessions(OWNER)
    expect_equal(listed.updated_ns, START_NS, "updated_ns in a list after a summary")


@check(SUMMARIES, "SUM-CORE-09")
async def events_that_arrive_while_the_model_works_are_not_covered(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting)
    live = await session_with(service, turns(1, 2))
    run = asyncio.create_task(service.create_session_summary(live))
    await until(lambda: noting.asked, "the summary has begun")
    await service.append_event(live, said(3))
    gate.set()
    await run
    expect_equal((await loaded(service)).summaries[""], _summary("summary 1 of e1 e2", 2), "the stored summary")


@check(SUMMARIES, "SUM-CORE-01", "SUM-CORE-02")
async def two_runs_of_one_key_make_one_summary(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting)
    first = await session_with(service, turns(1, 2))
    second = await loaded(service)
    runs = [asyncio.create_task(service.create_session_summary(one)) for one in (first, second, first)]
    await until(lambda: noting.asked, "the summary has begun")
    gate.set()
    await asyncio.gather(*runs)
    expect_equal(len(noting.asked), 1, "summaries made by three runs at once")
    expect_equal(second.summaries, first.summaries, "summaries of the other object")


@check(SUMMARIES, "SUM-CORE-08")
async def a_copied_summary_is_stored_as_it_is(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service, [said(1), said(2, filter_key="app/x"), said(3, filter_key="other")])
    live.summaries["app/x"] = Summary("copied")
    await service.create_session_summary(live, "app/x")
    expected = {"app/x": _summary("copied", 2, "app/x")}
    expect_equal(live.summaries, expected, "summaries of the live session")
    expect_equal((await loaded(service)).summaries, expected, "stored summaries")


@check(SUMMARIES, "SUM-STO-02", "SUM-CAS-01", "SUM-CAS-06")
async def a_job_for_a_branch_refreshes_the_full_session_too(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting)
    live = await session_with(service, [said(1, filter_key="app/a"), said(2, filter_key="app/b")])
    await service.enqueue_summary_job(live, "app/a")
    await service.wait_for_summaries()
    expect_equal(sorted(noting.asked), [("s:", ["e1", "e2"]), ("s:app/a", ["e1"])], "what was summarised")
    stored = (await loaded(service)).summaries
    expect_equal(sorted(stored), ["", "app/a"], "keys of the stored summaries")
    expect_equal(stored, live.summaries, "stored and live summaries")


@check(SUMMARIES, "SUM-STO-02", "SUM-CAS-05")
async def a_branch_that_is_everything_is_summarised_once_and_copied(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting)
    live = await session_with(service, [said(n, filter_key="app") for n in (1, 2)])
    await service.enqueue_summary_job(live, "app")
    await service.wait_for_summaries()
    text = "summary 1 of e1 e2"
    expected = {"app": _summary(text, 2, "app"), "": _summary(text, 2)}
    expect_equal((await loaded(service)).summaries, expected, "stored summaries")


@check(SUMMARIES, "SUM-STO-06", "SUM-DM-10")
async def a_summary_outlives_the_events_that_it_covers(bench: Bench) -> None:
    service = await bench.service(event_limit=3)
    live = await session_with(service, turns(1, 4))
    await put_summary(service, "of four", moment(4), "e4")
    for event in turns(5, 20):
        await service.append_event(live, event)
    expect_equal((await loaded(service)).summaries[""], _summary("of four", 4), "a summary of events beyond the limit")


@check(SUMMARIES, "SUM-STO-12")
async def a_long_mixed_use_reads_as_from_memory(bench: Bench) -> None:
    """One seeded sequence of all kinds of calls, over this service and over the one in memory."""
    noting, noting_in_memory = NotingSummarizer(), NotingSummarizer()
    ttl: dict[str, Any] = {"session_ttl_s": 40.0, "app_state_ttl_s": 60.0, "user_state_ttl_s": 50.0}
    service = await bench.service(summarizer=noting, event_limit=0, **ttl)
    memory = InMemorySessionService(
        summarizer=noting_in_memory,
        clock=bench.clock,
        session_event_limit=0,
        session_ttl=timedelta(seconds=40),
        app_state_ttl=timedelta(seconds=60),
        user_state_ttl=timedelta(seconds=50),
        cleanup_interval=timedelta(0),
    )
    keys = [SessionKey(APP, user, name) for user in (USER_ID, "user2") for name in ("s", "t")]
    random = Random(20260301)  # noqa: S311 - the same steps every time
    for step in range(150):
        key, kind = random.choice(keys), random.choice("cceeeeeeeeuuapsssdt")
        bench.clock.advance(timedelta(seconds=random.choice((0, 0, 1, 4))))
        answers = [await _step(one, kind, key, step) for one in (service, memory)]
        expect_equal(answers[0], answers[1], f"step {step} ({kind}) on {key.user_id}/{key.session_id}")
    await memory.close()


async def _step(service: Any, kind: str, key: SessionKey, step: int) -> Any:
    """One call, and all that can be read of the session afterwards; an error is answered by its kind."""
    try:
        session = await service.get_session(key)
        if kind == "c" and session is None:
            await service.create_session(key.app_name, key.user_id, key.session_id)
        elif kind == "e" and session is not None:
            delta = {f"k{step % 3}": b"%d" % step} if step % 4 == 0 else {}
            await service.append_event(session, said(step, role="assistant" if step % 3 else "user", state_delta=delta))
        elif kind == "u":
            await service.update_user_state(OWNER, {f"u{step % 5}": b"%d" % step})
        elif kind == "a":
            await service.update_app_state(APP, {f"a{step % 5}": b"%d" % step})
        elif kind == "p":
            await service.update_session_state(key, {f"p{step % 5}": None})
        elif kind == "s" and session is not None:
            await service.create_session_summary(session, "" if step % 2 else "app/a")
        elif kind == "d":
            await service.delete_session(key)
    except Exception as error:
        return type(error).__name__
    again = await service.get_session(key)
    listed = [one.id for one in await service.list_sessions(OWNER)]
    if again is None:
        return None, listed
    facts = (again.state, again.summaries, again.created_ns, again.updated_ns)
    return ids(again.events), facts, ids(await raw_events(service, key)), listed


# --- late writes ----------------------------------------------------------------------------------------


@check(LATE, "SUM-STO-13")
async def a_later_boundary_replaces_an_earlier_one(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    for n in (1, 2, 4):
        await put_summary(service, f"to {n}", moment(n), f"e{n}")
        expect_equal(await stored_text(service), f"to {n}", "the stored summary")


@check(LATE, "SUM-STO-13")
async def an_earlier_boundary_replaces_no_later_one(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    await put_summary(service, "to 3", moment(3), "e3")
    for cutoff_ns, event_id in ((moment(2), "e2"), (moment(3) - 1, "e3"), (moment(1), ""), (1, "e4")):
        late = await put_summary(service, "too late", cutoff_ns, event_id)
        expect_equal((await loaded(service)).summaries[""], _summary("to 3", 3), "the stored summary")
        expect_equal(late.summaries[""].summary, "to 3", "the summary on the object that came too late")


@check(LATE, "SUM-STO-13", "SUM-DM-15")
async def a_nanosecond_decides(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    await put_summary(service, "first", moment(3) + 500)
    await put_summary(service, "a nanosecond earlier", moment(3) + 499)
    expect_equal(await stored_text(service), "first", "the summary after one that is a nanosecond older")
    await put_summary(service, "a nanosecond later", moment(3) + 501)
    expect_equal(await stored_text(service), "a nanosecond later", "the summary after one that is a nanosecond newer")


@check(LATE, "SUM-STO-13")
async def at_equal_cutoffs_the_position_of_the_last_event_decides(bench: Bench) -> None:
    service = await bench.service()
    # Ids in an order that is neither that of the alphabet nor its reverse.
    await session_with(service, [said(1, id=name) for name in ("m", "z", "a")])
    await put_summary(service, "to z", moment(1), "z")
    await put_summary(service, "to m", moment(1), "m")
    expect_equal(await stored_text(service), "to z", "the summary after one that ends at an earlier event")
    await put_summary(service, "to a", moment(1), "a")
    expect_equal(await stored_text(service), "to a", "the summary after one that ends at a later event")
    await put_summary(service, "to z again", moment(1), "z")
    expect_equal(await stored_text(service), "to a", "the summary after one that ends at an earlier event")


@check(LATE, "SUM-STO-13")
async def at_equal_or_unknown_places_the_new_one_wins(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    for n, event_id in enumerate(("e3", "e3", "", "gone", "e3", "gone too")):
        await put_summary(service, f"{n}", moment(3), event_id)
        expect_equal(await stored_text(service), f"{n}", f"the summary after one of the same cutoff to {event_id!r}")


@check(LATE, "SUM-STO-13")
async def each_key_has_a_boundary_of_its_own(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 4))
    await put_summary(service, "full", moment(4), "e4")
    await put_summary(service, "branch", moment(2), "e2", filter_key="app/a")
    await put_summary(service, "other", moment(1), "e1", filter_key="app/b")
    found = {name: summary.summary for name, summary in (await loaded(service)).summaries.items()}
    expect_equal(found, {"": "full", "app/a": "branch", "app/b": "other"}, "summaries by key")


@check(LATE, "SUM-STO-13")
async def whatever_the_order_of_writing_the_newest_is_left(bench: Bench) -> None:
    service = await bench.service()
    random = Random(7)  # noqa: S311 - the same order every time
    for trial in range(5):
        key = SessionKey(APP, USER_ID, f"s{trial}")
        await session_with(service, turns(1, 9), key)
        order = random.sample(range(1, 10), 9)
        for n in order:
            await put_summary(service, f"to {n}", moment(n), f"e{n}", key=key)
        expect_equal(await stored_text(service, key=key), "to 9", f"the summary after writes in the order {order}")


@check(LATE, "SUM-STO-13", "SUM-STO-11")
async def of_writes_at_the_same_time_the_newest_is_left(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 9))
    objects = [await loaded(service) for _ in range(9)]

    async def write(n: int, session: Session) -> None:
        # Different objects, so that what each believes is stored may be out of date.
        session.summaries[""] = Summary(f"to {n}", boundary=SummaryBoundary("", moment(n), f"e{n}"))
        await service.create_session_summary(session)

    await asyncio.gather(*(write(n, objects[n - 1]) for n in (4, 9, 1, 7, 2, 8, 3, 6, 5)))
    expect_equal(await stored_text(service), "to 9", "the summary after nine writes at once")


@check(LATE, "SUM-STO-13", "SUM-CORE-02")
async def an_old_object_makes_no_older_summary(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting)
    live = await session_with(service, turns(1, 2))
    old = await loaded(service)
    for event in turns(3, 4):
        await service.append_event(live, event)
    await service.create_session_summary(live)
    await service.create_session_summary(old)
    await service.create_session_summary(old, force=True)
    boundary = (await loaded(service)).summaries[""].boundary
    expect_equal(boundary, SummaryBoundary("", moment(4), "e4"), "the stored boundary after runs of an old object")
    expect_equal(noting.asked[0], ("s:", ["e1", "e2", "e3", "e4"]), "what the first run summarised")


# --- reading the text -----------------------------------------------------------------------------------


@check(READING, "SUM-GET-01")
async def no_session_and_no_whole_key_have_no_text(bench: Bench) -> None:
    service = await bench.service()
    expect(await service.get_session_summary_text(None) is None, "None has a summary")
    for parts in (("", "u", "s"), ("a", "", "s"), ("a", "u", "")):
        session = Session(app_name=parts[0], user_id=parts[1], id=parts[2], summaries={"": Summary("text", moment(1))})
        found = await service.get_session_summary_text(session)
        expect(found is None, f"a session with the key {parts} has a summary")


@check(READING, "SUM-GET-01")
async def a_session_without_a_summary_has_no_text(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service, turns(1, 2))
    expect(await service.get_session_summary_text(live) is None, "a text was read that nobody wrote")
    stranger = Session(app_name=APP, user_id=USER_ID, id="unknown")
    expect(await service.get_session_summary_text(stranger) is None, "an unknown session has a summary")


@check(READING, "SUM-GET-02")
async def what_the_object_lacks_is_read_from_the_store(bench: Bench) -> None:
    service = await bench.service()
    old = await session_with(service, turns(1, 2))
    await put_summary(service, "stored", moment(2), "e2")
    expect_equal(old.summaries, {}, "summaries of the object that was there before")
    expect_equal(await service.get_session_summary_text(old), "stored", "text read by the older object")


@check(READING, "SUM-GET-02")
async def the_object_goes_before_the_store(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    session = await put_summary(service, "stored", moment(2), "e2")
    session.summaries = {"": _summary("live", 1)}
    expect_equal(await service.get_session_summary_text(session), "live", "text with one on the object")
    session.summaries = {"other": _summary("other", 1)}
    expect_equal(await service.get_session_summary_text(session), "other", "text with another key on the object")


@check(READING, "SUM-GET-03")
async def the_key_goes_before_the_full_session_and_that_before_the_rest(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service, turns(1, 4))
    for name, n in (("f1", 1), ("f2", 3)):
        await put_summary(service, name, moment(n), f"e{n}", filter_key=name)
    read = service.get_session_summary_text
    expect_equal(await read(live, "f1"), "f1", "text of the key itself")
    expect_equal(await read(live, "unknown"), "f2", "text of an unknown key: the newest")
    expect_equal(await read(live), "f2", "text of the full session, which has none: the newest")
    await put_summary(service, "full", moment(1), "e1")
    expect_equal(await read(live), "full", "text of the full session")
    expect_equal(await read(live, "unknown"), "full", "text of an unknown key: the full session's")
    expect_equal(await read(live, "f1"), "f1", "text of the key itself")


@check(READING, "SUM-GET-03")
async def among_the_rest_the_newest_wins_then_the_first_key(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service, turns(1, 4))
    for name in ("c", "a", "b"):
        await put_summary(service, name, moment(3), "e3", filter_key=name)
    await put_summary(service, "older", moment(2), "e2", filter_key="0")
    expect_equal(await service.get_session_summary_text(live), "a", "text among keys of one cutoff")


@check(READING, "SUM-GET-04")
async def what_an_earlier_session_left_is_ignored(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service, turns(1, 2))
    await put_summary(service, "leftover", START_NS - 1, filter_key="old")
    expect(await service.get_session_summary_text(live, "old") is None, "a summary older than its session is read")
    await put_summary(service, "from the first moment", START_NS, filter_key="equal")
    found = await service.get_session_summary_text(live, "equal")
    expect_equal(found, "from the first moment", "a summary as old as its session")
    found = await service.get_session_summary_text(live, "old")
    expect_equal(found, "from the first moment", "what is read in place of the leftover")


@check(READING, "SUM-GET-04", "SUM-GET-02")
async def an_object_without_a_creation_time_ignores_nothing(bench: Bench) -> None:
    service = await bench.service()
    await session_with(service, turns(1, 2))
    session = await loaded(service)
    session.summaries = {"k": Summary("old", START_NS - 1)}
    expect(await service.get_session_summary_text(session, "k") is None, "a summary older than its session is read")
    session.created_ns = 0
    expect_equal(await service.get_session_summary_text(session, "k"), "old", "text of a session without its time")
