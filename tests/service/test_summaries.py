"""Summary runs of the service: one key, cascade, workers, cancellation, reading (SUM-CORE, -CAS, -ASY, -GET)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.service.helpers import SECOND, START_NS, Watch, say, service_of, session_with, summary_model
from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import FixedClock
from workbench.errors import SessionError, SessionNotFoundError, SummaryError
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import Message, Request
from workbench.service.run_sync import run_sync
from workbench.service.summaries import observe_request_gap
from workbench.session.types import Session, SessionKey, Summary, SummaryBoundary
from workbench.summary.context import (
    RequestStart,
    context_with_cache_safe_fork_request,
)
from workbench.summary.dynamic import DynamicSummarizer
from workbench.summary.summarizer import Summarizer

KEY = SessionKey("app", "user", "s")


class Blocking:
    """A summary model that waits until it is let go."""

    name = "blocking"
    context_window = 0

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.entered = asyncio.Event()
        self.calls = 0

    async def generate(self, ctx: CallContext, request: Request) -> Any:
        self.calls += 1
        self.entered.set()
        await self.go.wait()
        async for response in ScriptedModel([f"summary {self.calls}"]).generate(ctx, request):
            yield response


def test_without_a_summarizer_both_calls_do_nothing_and_check_nothing() -> None:
    """SUM-SVC-02."""

    async def main() -> None:
        service = service_of()
        await service.create_session_summary(None)
        await service.enqueue_summary_job(None)

    asyncio.run(main())


def test_a_missing_session_is_an_error_when_there_is_a_summarizer() -> None:
    """SUM-ERR-13, SUM-ERR-15."""

    async def main() -> None:
        service = service_of(summary_model())
        with pytest.raises(SessionError, match="session is None"):
            await service.create_session_summary(None)
        with pytest.raises(SessionError, match="session is None"):
            await service.enqueue_summary_job(None)
        stranger = Session(app_name="app", user_id="user", id="stranger", events=[say(1)])
        with pytest.raises(SessionNotFoundError):
            await service.create_session_summary(stranger)

    asyncio.run(main())


def test_text_and_boundary_are_written_together_to_the_live_object_and_the_store() -> None:
    """SUM-CORE-06, SUM-CORE-09, SUM-DM-09, SUM-SVC-03."""

    async def main() -> None:
        clock = FixedClock(START_NS + 500 * SECOND)
        service = service_of(summary_model("总结"), clock=clock)
        session = await session_with(service, say(1), say(2, role="assistant"))
        clock.advance(timedelta(seconds=5))
        await service.create_session_summary(session)
        expected = Summary("总结", START_NS + 2 * SECOND, SummaryBoundary("", START_NS + 2 * SECOND, "e2"))
        assert session.summaries == {"": expected}
        stored = await service.get_session(KEY)
        assert stored is not None
        assert stored.summaries == {"": expected}
        assert stored.updated_ns == START_NS + 500 * SECOND

    asyncio.run(main())


def test_events_that_arrive_while_the_model_works_are_not_covered() -> None:
    """SUM-CORE-09, SUM-CORE-04."""

    async def main() -> None:
        model = Blocking()
        service = service_of(model)
        session = await session_with(service, say(1))
        run = asyncio.create_task(service.create_session_summary(session))
        await model.entered.wait()
        await service.append_event(session, say(2))
        model.go.set()
        await run
        assert session.summaries[""].boundary == SummaryBoundary("", START_NS + SECOND, "e1")

    asyncio.run(main())


def test_two_concurrent_runs_of_one_key_make_one_model_call() -> None:
    """SUM-CORE-01, SUM-CORE-02, E34."""

    async def main() -> None:
        model = Blocking()
        service = service_of(model)
        session = await session_with(service, say(1))
        runs = [asyncio.create_task(service.create_session_summary(session)) for _ in range(2)]
        await model.entered.wait()
        model.go.set()
        await asyncio.gather(*runs)
        assert model.calls == 1

    asyncio.run(main())


def test_two_services_over_one_store_share_the_lock_and_the_result() -> None:
    """SUM-CORE-01: process-wide, shared by all service objects."""

    async def main() -> None:
        model = Blocking()
        first = service_of(model)
        second = service_of(model, store=first.store)
        session = await session_with(first, say(1))
        twin = await second.get_session(KEY)
        runs = [
            asyncio.create_task(first.create_session_summary(session)),
            asyncio.create_task(second.create_session_summary(twin)),
        ]
        await model.entered.wait()
        model.go.set()
        await asyncio.gather(*runs)
        assert model.calls == 1
        assert twin is not None
        assert twin.summaries == session.summaries

    asyncio.run(main())


def test_a_waiter_can_be_cancelled_without_hurting_the_one_at_work() -> None:
    """E35, SUM-CORE-01."""

    async def main() -> None:
        model = Blocking()
        service = service_of(model)
        session = await session_with(service, say(1))
        working = asyncio.create_task(service.create_session_summary(session))
        await model.entered.wait()
        waiting = asyncio.create_task(service.create_session_summary(session))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        model.go.set()
        await working
        assert session.summaries[""].summary == "summary 1"

    asyncio.run(main())


class Swallowing:
    """A summarizer that returns a text although it was cancelled."""

    async def should_summarize(self, session: Session) -> bool:
        return True

    async def summarize(self, session: Session, *, ctx: CallContext = EMPTY_CONTEXT) -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return "too late"

    def set_prompt(self, prompt: str) -> None:
        """Nothing to set."""

    def set_model(self, model: Any) -> None:
        """Nothing to set."""

    def metadata(self) -> dict[str, Any]:
        return {}


def test_a_text_that_comes_after_the_job_was_cancelled_is_thrown_away() -> None:
    """SUM-CORE-05, E36, SUM-OPT-07: also with a summarizer of the base protocol only."""

    async def main() -> None:
        watch = Watch()
        service = service_of(summarizer=Swallowing(), settings={"summary_job_timeout_s": 0.01}, observer=watch)
        session = await session_with(service, say(1))
        await service.enqueue_summary_job(session)
        await service.wait_for_summaries()
        assert session.summaries == {}
        assert [attempt.status for attempt in watch.attempts] == ["discarded"]

    asyncio.run(main())


def test_a_failed_attempt_leaves_text_and_boundary_and_the_next_covers_everything_since() -> None:
    """SUM-RUN-04, SUM-CORE-07; BUG-16."""

    async def main() -> None:
        model = summary_model(
            ScriptedAnswer(content="one"),
            ScriptedAnswer(call_error="status 503"),
            ScriptedAnswer(content=""),
            ScriptedAnswer(content=""),
            ScriptedAnswer(content="four"),
        )
        watch = Watch()
        service = service_of(model, observer=watch)
        session = await session_with(service, say(1))
        await service.create_session_summary(session)
        first = session.summaries[""]
        for n in (2, 3):
            await service.append_event(session, say(n))
            with pytest.raises(SummaryError, match="session s: ") as caught:
                await service.create_session_summary(session)
            assert caught.value.__cause__ is not None
            assert session.summaries == {"": first}
        await service.append_event(session, say(4))
        await service.create_session_summary(session)
        assert session.summaries[""].summary == "four"
        assert model.requests[-1].messages[-1].content == "system: one\nuser: text 2\nuser: text 3\nuser: text 4"
        assert [attempt.status for attempt in watch.attempts] == ["written", "failed", "failed", "written"]

    asyncio.run(main())


def test_force_skips_the_checks_and_an_empty_delta_but_moves_no_boundary() -> None:
    """SUM-SVC-04, E37."""

    async def main() -> None:
        model = summary_model("first", "again")
        service = service_of(model, summary={"event_threshold": 100})
        session = await session_with(service, say(1))
        await service.create_session_summary(session)
        assert model.requests == []
        await service.create_session_summary(session, force=True)
        boundary = session.summaries[""].boundary
        await service.create_session_summary(session, force=True)
        assert session.summaries[""].summary == "again"
        assert session.summaries[""].boundary == boundary
        assert model.requests[-1].messages[-1].content == "system: first"

    asyncio.run(main())


def test_a_copied_summary_without_a_time_is_stored_without_a_model() -> None:
    """SUM-CORE-08, E38."""

    async def main() -> None:
        service = service_of()
        session = await session_with(service, say(1), say(2, key="app/x"))
        session.summaries["app/x"] = Summary("copied")
        await service.create_session_summary(session, "app/x")
        assert session.summaries["app/x"].boundary == SummaryBoundary("app/x", START_NS + 2 * SECOND, "e2")

    asyncio.run(main())


def test_a_branch_that_is_not_allowed_is_silently_left_alone() -> None:
    """SUM-SVC-03, SUM-CAS-02."""

    async def main() -> None:
        model = summary_model()
        service = service_of(model, settings={"summary_filter_allowlist": ("app/a",)})
        session = await session_with(service, say(1, key="app/b"))
        await service.create_session_summary(session, "app/b")
        assert (model.requests, session.summaries) == ([], {})

    asyncio.run(main())


def test_one_branch_is_summarised_once_and_copied_with_its_key() -> None:
    """SUM-CAS-05."""

    async def main() -> None:
        model = summary_model("both")
        service = service_of(model)
        session = await session_with(service, say(1), say(2, role="assistant"))
        await service.enqueue_summary_job(session, "app")
        await service.wait_for_summaries()
        assert len(model.requests) == 1
        assert session.summaries["app"].summary == session.summaries[""].summary == "both"
        assert session.summaries[""].boundary == SummaryBoundary("", START_NS + 2 * SECOND, "e2")

    asyncio.run(main())


def test_when_one_of_two_targets_fails_the_other_completes_and_the_error_is_raised() -> None:
    """SUM-CAS-06, E39."""

    def answer(request: Request) -> ScriptedAnswer:
        text = request.messages[-1].content
        return ScriptedAnswer(call_error="branch fails") if "other" not in text else ScriptedAnswer(content="full")

    async def main() -> None:
        service = service_of(ScriptedModel(answer), settings={"async_summary_num": 1, "summary_queue_size": 1})
        session = await session_with(service, say(1, key="app/a"), say(2, "other", key="app/b"))
        await service.close()  # a closed service runs the job in its caller, who then gets the error
        with pytest.raises(SummaryError, match="branch fails"):
            await service.enqueue_summary_job(session, "app/a")
        assert session.summaries[""].summary == "full"
        assert "app/a" not in session.summaries

    asyncio.run(main())


def test_a_fork_of_a_branch_skips_the_cascaded_full_summary_even_when_forced() -> None:
    """SUM-CAS-07."""
    parent = Request(messages=(Message(role="user", content="seen by the branch"),))

    async def main() -> None:
        model = summary_model("branch")
        service = service_of(model, summary={"cache_safe_forking": True})
        session = await session_with(service, say(1, key="app/a"), say(2, key="app/b"))
        ctx = context_with_cache_safe_fork_request(EMPTY_CONTEXT, parent)
        await service.enqueue_summary_job(session, "app/a", force=True, ctx=ctx)
        await service.wait_for_summaries()
        assert list(session.summaries) == ["app/a"]
        await service.enqueue_summary_job(session, "app/a", force=True)
        await service.wait_for_summaries()
        assert sorted(session.summaries) == ["", "app/a"]

    asyncio.run(main())


def test_the_dynamic_summarizer_is_asked_whether_it_forks() -> None:
    """SUM-DYN-04, SUM-DYN-05, SUM-CAS-07."""
    parent = Request(messages=(Message(role="user", content="x"),))

    async def main() -> None:
        inner = Summarizer(summary_model("s"), prompt="{conversation_text}", cache_safe_forking=True)
        service = service_of(summarizer=DynamicSummarizer(lambda ctx, session: inner))
        session = await session_with(service, say(1, key="app/a"), say(2, key="app/b"))
        ctx = context_with_cache_safe_fork_request(EMPTY_CONTEXT, parent)
        await service.enqueue_summary_job(session, "app/a", ctx=ctx)
        await service.wait_for_summaries()
        assert list(session.summaries) == ["app/a"]

    asyncio.run(main())


def test_jobs_see_the_callers_values_and_the_events_appended_before_they_run() -> None:
    """SUM-ASY-04, SUM-ASY-08, SUM-ASY-02."""
    seen: list[Any] = []

    async def main() -> None:
        model = Blocking()
        summarizer = Summarizer(
            model,
            prompt="{conversation_text}",
            checks_any_context=[lambda ctx, session: not seen.append(ctx.value("tenant"))],
        )
        service = service_of(summarizer=summarizer, settings={"async_summary_num": 1})
        session = await session_with(service, say(1))
        ctx = CallContext().with_value("tenant", "acme")
        await service.enqueue_summary_job(session, ctx=ctx)
        await model.entered.wait()
        await service.append_event(session, say(2))
        await service.enqueue_summary_job(session, ctx=ctx)
        await service.append_event(session, say(3))
        model.go.set()
        await service.wait_for_summaries()
        assert session.summaries[""].boundary == SummaryBoundary("", START_NS + 3 * SECOND, "e3")

    asyncio.run(main())
    assert seen == ["acme", "acme"]


def test_a_full_queue_runs_the_job_in_its_caller_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """SUM-ASY-03, SUM-ASY-06, SUM-ASY-01."""

    async def main() -> None:
        model = Blocking()
        service = service_of(model, settings={"async_summary_num": 1, "summary_queue_size": 1})
        sessions = [await session_with(service, say(1), session_id=f"s{i}") for i in range(3)]
        await service.enqueue_summary_job(sessions[0])
        await model.entered.wait()
        await service.enqueue_summary_job(sessions[1])
        third = asyncio.create_task(service.enqueue_summary_job(sessions[2]))
        await asyncio.sleep(0.01)
        assert not third.done()
        model.go.set()
        await third
        assert sessions[2].summaries[""].summary
        await service.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert any("queue is full" in record.message for record in caplog.records)


def test_a_job_that_takes_too_long_is_a_warning_and_the_worker_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """SUM-ASY-05."""

    async def main() -> None:
        model = summary_model(ScriptedAnswer(never_answers=True), ScriptedAnswer(content="second"))
        service = service_of(model, settings={"summary_job_timeout_s": 0.02, "async_summary_num": 1})
        slow = await session_with(service, say(1), session_id="slow")
        good = await session_with(service, say(1), session_id="good")
        await service.enqueue_summary_job(slow)
        await service.enqueue_summary_job(good)
        await service.close()
        assert slow.summaries == {}
        assert good.summaries[""].summary == "second"

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert any("took longer than 0.02 s" in record.message for record in caplog.records)


def test_jobs_whose_event_loop_ended_are_run_by_the_next_use() -> None:
    """SUM-ASY-07: a script may call `run_sync` several times."""
    model = summary_model(ScriptedAnswer(never_answers=True), ScriptedAnswer(content="second"))
    service = service_of(model, settings={"async_summary_num": 1})

    async def first() -> Any:
        session = await session_with(service, say(1), session_id="s")
        other = await session_with(service, say(1), session_id="other")
        await service.enqueue_summary_job(session)
        await service.enqueue_summary_job(other)
        return session, other  # the loop ends while the worker waits for the first answer

    session, other = run_sync(first())
    assert not session.summaries
    assert not other.summaries
    run_sync(service.close())
    assert not session.summaries, "the cancelled one left everything as it was"
    assert other.summaries[""].summary == "second"


def test_leaving_the_services_block_drains_the_queue() -> None:
    """SUM-ASY-07."""

    async def main() -> None:
        async with service_of(summary_model(), settings={"async_summary_num": 1}) as service:
            session = await session_with(service, say(1), session_id="s")
            await service.enqueue_summary_job(session)
        assert session.summaries[""].summary

    asyncio.run(main())


def test_closing_drains_the_queue_and_may_be_done_twice() -> None:
    """SUM-ASY-07."""

    async def main() -> None:
        model = summary_model()
        service = service_of(model, settings={"async_summary_num": 2})
        sessions = [await session_with(service, say(1), session_id=f"s{i}") for i in range(20)]
        for session in sessions:
            await service.enqueue_summary_job(session)
        await service.close()
        await service.close()
        assert all(session.summaries for session in sessions)

    asyncio.run(main())


def test_a_thousand_rounds_of_enqueue_against_close_never_deadlock() -> None:
    """SUM-ASY-07, REL-08."""

    async def one_round(i: int) -> None:
        service = service_of(summary_model(), settings={"async_summary_num": 1, "summary_queue_size": 1})
        session = await session_with(service, say(1))
        jobs = [asyncio.create_task(service.enqueue_summary_job(session)) for _ in range(3)]
        if i % 2:
            await asyncio.sleep(0)
        await asyncio.gather(service.close(), *jobs)
        assert session.summaries

    async def main() -> None:
        async with asyncio.timeout(60):
            for i in range(1000):
                await one_round(i)

    logging.disable(logging.WARNING)
    try:
        asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)


def test_cancelling_at_any_await_leaves_both_old_or_both_new() -> None:
    """REL-10, SUM-CORE-05: text and boundary, live object and store."""

    async def run_until(step: int) -> bool:
        """Drive one summary run, cancel at its n-th suspension; True when it ended before."""
        service = service_of(summary_model("one", "two"))
        session = await session_with(service, say(1))
        await service.create_session_summary(session)
        old = dict(session.summaries)
        await service.append_event(session, say(2))
        coroutine = service.create_session_summary(session)
        ended = False
        try:
            for _ in range(step):
                coroutine.send(None)
            with pytest.raises((asyncio.CancelledError, SummaryError)):
                coroutine.throw(asyncio.CancelledError())
        except StopIteration:
            ended = True
        finally:
            coroutine.close()
        stored = await service.get_session(KEY)
        assert stored is not None
        assert stored.summaries == session.summaries
        assert session.summaries == old or session.summaries[""].boundary == SummaryBoundary(
            "", START_NS + 2 * SECOND, "e2"
        )
        return ended

    async def main() -> int:
        for step in range(200):
            if await run_until(step):
                return step
        return -1

    assert asyncio.run(main()) >= 0


def test_reading_the_text_prefers_the_key_then_the_full_session_then_the_newest_other() -> None:
    """SUM-GET-01, SUM-GET-02, SUM-GET-03, E44."""

    async def main() -> None:
        service = service_of()
        session = await session_with(service, say(1))
        assert await service.get_session_summary_text(None) is None
        assert await service.get_session_summary_text(session) is None
        session.summaries = {
            "f1": Summary("older", START_NS + 1),
            "f2": Summary("newer", START_NS + 2),
            "f3": Summary("newer too", START_NS + 2),
        }
        assert await service.get_session_summary_text(session) == "newer"
        assert await service.get_session_summary_text(session, "f1") == "older"
        session.summaries[""] = Summary("full", START_NS)
        assert await service.get_session_summary_text(session, "unknown") == "full"

    asyncio.run(main())


def test_summaries_of_an_earlier_session_with_this_id_are_ignored() -> None:
    """SUM-GET-04, E45."""

    async def main() -> None:
        service = service_of()
        session = await session_with(service)
        session.summaries = {"k": Summary("old", START_NS - 1), "": Summary("full", START_NS)}
        assert await service.get_session_summary_text(session, "k") == "full"
        session.created_ns = 0
        assert await service.get_session_summary_text(session, "k") == "old"

    asyncio.run(main())


def test_a_failing_store_reads_as_not_found() -> None:
    """SUM-ERR-18."""

    async def main() -> None:
        service = service_of()
        session = await session_with(service)

        async def fail(*args: Any, **kwargs: Any) -> Any:
            raise OSError("disk on fire")

        service.store.load_summaries = fail  # type: ignore[method-assign]
        assert await service.get_session_summary_text(session) is None

    asyncio.run(main())


def test_an_older_boundary_never_replaces_a_newer_one() -> None:
    """SUM-STO-13."""

    async def main() -> None:
        service = service_of()
        await session_with(service, say(1), say(1, id="e1b"), say(2))
        store = service.store

        async def save(text: str, cutoff: int, event_id: str = "") -> bool:
            boundary = SummaryBoundary("", cutoff, event_id)
            return await store.save_summary(KEY, "", Summary(text, cutoff, boundary), now_ns=START_NS)

        at = START_NS + SECOND
        assert await save("a", at, "e1b")
        assert not await save("older", at - 1)
        assert not await save("equal time, earlier event", at, "e1")
        assert await save("equal, unknown event", at, "gone")
        assert await save("newer", at + SECOND, "e2")

    asyncio.run(main())


def gap(*events: Any, started: int, request: str = "r2", scope: str = "", boundary: Any = None) -> tuple[bool, int]:
    session = Session(app_name="app", user_id="u", id="s", events=list(events))
    seen = observe_request_gap(session, scope, RequestStart(request, started), boundary)
    return seen.available, seen.elapsed_ns // SECOND


def test_the_request_gap_is_the_silence_before_the_request_came_in() -> None:
    """SUM-RNR-02, E40, E41."""
    start = START_NS + 100 * SECOND
    before, same = say(10, request_id="r1"), say(20, request_id="r2")
    assert gap(before, started=start) == (True, 90)
    assert gap(before, say(100), started=start) == (True, 90)
    assert gap(started=start) == (False, 0)
    assert gap(before, same, started=start) == (False, 0)
    assert gap(before, started=start, request="") == (False, 0)
    assert gap(before, started=start, boundary=SummaryBoundary("", start)) == (False, 0)
    assert gap(before, say(50, key="app/b"), started=start, scope="app/a") == (False, 0)
    assert gap(say(10, key="app/a/x"), say(50, key="app/b"), started=start, scope="app/a") == (True, 90)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("say"), st.integers(0, 6), st.sampled_from(["app/a", "app/b"]), st.sampled_from("12")),
            st.tuples(st.just("ask"), st.integers(0, 6), st.sampled_from(["", "app/a"]), st.sampled_from("12")),
            st.tuples(st.just("drop"), st.integers(0, 3)),
            st.tuples(st.just("branch")),
        ),
        max_size=30,
    )
)
@example([("say", 1, "app/a", "1"), ("say", 4, "app/a", "1"), ("ask", 5, "", "2"), ("ask", 3, "", "2")])
@example([("say", 1, "app/a", "1"), ("say", 6, "app/a", "1"), ("ask", 5, "", "2"), ("drop", 1), ("ask", 5, "", "2")])
def test_a_gap_looked_for_again_is_the_gap_of_the_whole_history(steps: list[tuple[Any, ...]]) -> None:
    """SUM-RNR-02: only what is new is looked at, in any order of events, drops and copies."""
    live = [Session(app_name="app", user_id="u", id="s")]
    for n, (kind, *values) in enumerate(steps):
        session = live[n % len(live)]
        if kind == "say":
            seconds, key, request = values
            session.append(say(seconds, id=f"e{n}", key=key, request_id=request))
        elif kind == "drop":
            session.drop_oldest(values[0])
        elif kind == "branch":
            live.append(session.clone())
        else:
            seconds, scope, request = values
            start = RequestStart(request, START_NS + seconds * SECOND)
            anew = Session(app_name="app", user_id="u", id="s", events=list(session.events))
            assert observe_request_gap(session, scope, start, None) == observe_request_gap(anew, scope, start, None)


STEP = st.sampled_from(["append", "append", "append", "summarise", "fail", "empty", "force"])


@given(st.lists(STEP, max_size=25))
def test_every_event_is_covered_exactly_once_and_the_boundary_never_moves_back(steps: list[str]) -> None:
    """SUM-CORE-03, SUM-CORE-06: over any sequence of appends, summaries and failures."""
    covered: list[str] = []

    def answer(request: Request) -> ScriptedAnswer:
        if mode == "fail":
            return ScriptedAnswer(call_error="no")
        if mode == "empty":
            return ScriptedAnswer(content="")
        lines = request.messages[-1].content.split("\n")
        covered.extend(line.removeprefix("user: ") for line in lines if line.startswith("user: "))
        return ScriptedAnswer(content="S")

    async def main() -> None:
        nonlocal mode
        service = service_of(ScriptedModel(answer))
        session = await session_with(service)
        n = 0
        last = -1
        for mode in steps:
            if mode == "append":
                # Equal times on purpose: three events share each second.
                await service.append_event(session, say(n // 3, f"t{n}", id=f"e{n}"))
                n += 1
                continue
            with suppress(SummaryError):
                await service.create_session_summary(session, force=mode == "force")
            summary = session.summaries.get("")
            boundary = summary.boundary if summary is not None else None
            position = session.position_of(boundary.last_event_id) if boundary is not None else None
            if position is not None:
                assert position >= last
                last = position
                assert covered == [f"t{i}" for i in range(position + 1)]

    mode = ""
    asyncio.run(main())
