"""Checks of background summaries and of closing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from workbench.call import CallContext
from workbench.errors import InvalidSessionKeyError, SessionError, StoreError, SummaryError
from workbench.service.conformance.material import (
    APP,
    USER_ID,
    NotingSummarizer,
    loaded,
    said,
    session_with,
    turns,
)
from workbench.service.conformance.suite import Bench, check, expect, expect_equal, expect_error, idle, until
from workbench.session.types import Session, SessionKey

JOBS, CLOSE = "background summaries", "close"


@contextmanager
def _logged() -> Iterator[list[logging.LogRecord]]:
    """What is logged meanwhile, by whomever."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    root, handler = logging.getLogger(), Keep(logging.WARNING)
    disabled = root.manager.disable
    logging.disable(logging.NOTSET)  # whoever runs the suite may have asked for silence
    root.addHandler(handler)
    try:
        yield records
    finally:
        root.removeHandler(handler)
        logging.disable(disabled)


def _key_of_worker(worker: int, n_workers: int, *, skip: int = 0) -> SessionKey:
    """The key of a session whose jobs go to this worker, leaving out the first `skip` such keys."""
    number = 0
    while True:
        key = SessionKey(APP, USER_ID, f"s{number}")
        if Session(app_name=APP, user_id=USER_ID, id=key.session_id).hash % n_workers == worker:
            if not skip:
                return key
            skip -= 1
        number += 1


async def _with_full_queue(bench: Bench, **settings: Any) -> tuple[Any, NotingSummarizer, asyncio.Event, Session]:
    """One worker at work, one job waiting, no room for more; the third session is ready to be summarised."""
    gate = bench.gate()

    def answer(name: str, new: list[str]) -> str:
        if name == "s2:" and "e9" in new:
            raise OSError("the model is away")
        return f"of {name}"

    noting = NotingSummarizer(gate=gate, answer=answer)
    service = await bench.service(summarizer=noting, async_summary_num=1, summary_queue_size=1, **settings)
    sessions = [await session_with(service, turns(1, 2), SessionKey(APP, USER_ID, f"s{n}")) for n in range(3)]
    await service.enqueue_summary_job(sessions[0])
    await until(lambda: noting.asked, "the worker is at its first job")
    await service.enqueue_summary_job(sessions[1])
    return service, noting, gate, sessions[2]


# --- background summaries -------------------------------------------------------------------------------


@check(JOBS, "SUM-ASY-03", "SUM-SVC-01")
async def a_job_is_done_in_the_background_and_stored(bench: Bench) -> None:
    gate = bench.gate()
    service = await bench.service(summarizer=NotingSummarizer(gate=gate))
    live = await session_with(service, turns(1, 2))
    await asyncio.wait_for(service.enqueue_summary_job(live), 5)
    expect_equal(live.summaries, {}, "summaries while the model works")
    gate.set()
    await service.wait_for_summaries()
    expect_equal(live.summaries[""].summary, "summary 1 of e1 e2", "text on the live session")
    expect_equal((await loaded(service)).summaries, live.summaries, "stored and live summaries")


@check(JOBS, "SUM-ASY-01")
async def three_workers_work_unless_set(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting)
    for skip in (0, 1):
        for worker in range(3):
            session = await session_with(service, [said(1)], _key_of_worker(worker, 3, skip=skip))
            await service.enqueue_summary_job(session)
    await until(lambda: len(noting.asked) >= 3, "three workers are at work")
    await idle()
    expect_equal(len(noting.asked), 3, "summaries begun of six sessions, two for each of three workers")
    gate.set()
    await service.wait_for_summaries()
    expect_equal(len(noting.asked), 6, "summaries when all is done")


@check(JOBS, "SUM-ASY-01")
async def a_hundred_jobs_may_wait_unless_set(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting)
    live = await session_with(service, turns(1, 2))
    await service.enqueue_summary_job(live)
    await until(lambda: noting.asked, "the worker is at its first job")
    async with asyncio.timeout(5):
        for _ in range(100):
            await service.enqueue_summary_job(live)
    last = asyncio.create_task(service.enqueue_summary_job(live))
    await idle()
    expect(not last.done(), "a job found room although a hundred were waiting")
    gate.set()
    await last
    await service.wait_for_summaries()


@check(JOBS, "SUM-ASY-02")
async def jobs_of_one_session_run_in_order_one_at_a_time(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting, async_summary_num=4, cascade_full_session_summary=False)
    names = [f"app/{name}" for name in "dbca"]
    live = await session_with(service, [said(n, filter_key=name) for n, name in enumerate(names)])
    for name in names:
        await service.enqueue_summary_job(live, name)
    await until(lambda: noting.asked, "the first job has begun")
    await idle()
    expect_equal([name for name, _ in noting.asked], ["s:app/d"], "jobs begun while the first is at work")
    gate.set()
    await service.wait_for_summaries()
    expect_equal([name for name, _ in noting.asked], [f"s:{name}" for name in names], "order of the jobs")


@check(JOBS, "SUM-ASY-02")
async def the_worker_of_a_session_is_found_by_its_hash(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting, async_summary_num=2)
    keys = [_key_of_worker(0, 2), _key_of_worker(0, 2, skip=1), _key_of_worker(1, 2)]
    for key in keys:
        await service.enqueue_summary_job(await session_with(service, [said(1)], key))
    await until(lambda: len(noting.asked) == 2, "both workers are at work")
    await idle()
    begun = sorted(name for name, _ in noting.asked)
    expect_equal(begun, sorted(f"{keys[n].session_id}:" for n in (0, 2)), "sessions begun, of two workers")
    gate.set()
    await service.wait_for_summaries()


@check(JOBS, "SUM-ASY-03", "SUM-ERR-13", "SUM-ERR-14")
async def a_job_needs_a_session_with_a_whole_key(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    await expect_error(service.enqueue_summary_job(None), SessionError, "a job for None")
    for parts, name in ((("", "", ""), "app_name"), (("a", "", ""), "user_id"), (("a", "u", ""), "session_id")):
        session = Session(app_name=parts[0], user_id=parts[1], id=parts[2])
        error = await expect_error(service.enqueue_summary_job(session), InvalidSessionKeyError, f"a job for {parts}")
        expect_equal(getattr(error, "field", None), name, f"field that is named for {parts}")


@check(JOBS, "SUM-ASY-03")
async def with_a_full_queue_the_caller_does_the_job(bench: Bench) -> None:
    service, noting, gate, third = await _with_full_queue(bench)
    call = asyncio.create_task(service.enqueue_summary_job(third))
    await until(lambda: ("s2:", ["e1", "e2"]) in noting.asked, "the caller has begun the third job")
    await idle()
    expect(not call.done(), "the caller didn't wait for the job that it has to do itself")
    gate.set()
    await call
    expect_equal(third.summaries[""].summary, "of s2:", "text when the caller is done")
    await service.wait_for_summaries()


@check(JOBS, "SUM-ASY-03")
async def the_caller_gets_the_error_of_the_job_that_it_does(bench: Bench) -> None:
    service, _, gate, third = await _with_full_queue(bench)
    await service.append_event(third, said(9))
    gate.set()
    await expect_error(service.enqueue_summary_job(third), SummaryError, "a job done by its caller, without a model")
    expect_equal((await loaded(service, third.key)).summaries, {}, "stored summaries after the failure")
    await service.wait_for_summaries()


@check(JOBS, "SUM-ASY-03")
async def the_callers_own_job_has_the_time_limit_too(bench: Bench) -> None:
    service, _, gate, third = await _with_full_queue(bench, summary_job_timeout_s=0.4)
    async with asyncio.timeout(10):
        await expect_error(service.enqueue_summary_job(third), TimeoutError, "a job done by its caller that never ends")
    expect_equal(third.summaries, {}, "summaries of the job that took too long")
    gate.set()
    await service.wait_for_summaries()


@check(JOBS, "SUM-ASY-03")
async def a_caller_that_is_cancelled_while_it_does_the_job_does_not_stop_it(bench: Bench) -> None:
    service, noting, gate, third = await _with_full_queue(bench)
    call = asyncio.create_task(service.enqueue_summary_job(third))
    await until(lambda: ("s2:", ["e1", "e2"]) in noting.asked, "the caller has begun the third job")
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    gate.set()
    await until(lambda: third.summaries, "the job that was begun is finished")
    await service.wait_for_summaries()


@check(JOBS, "SUM-ASY-03")
async def a_caller_that_is_already_cancelled_does_the_job_itself(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    live = await session_with(service, turns(1, 2))
    done: list[bool] = []

    async def caller() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await service.enqueue_summary_job(live)
            done.append("" in live.summaries)
            raise

    task = asyncio.create_task(caller())
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    expect_equal(done, [True], "the summary is there when the cancelled caller goes on")


@check(JOBS, "SUM-ASY-04")
async def a_job_sees_the_values_of_its_callers_context(bench: Bench) -> None:
    seen: list[Any] = []

    def is_due(ctx: CallContext, session: Session) -> bool:
        seen.append(ctx.value("tenant"))
        return True

    service = await bench.service(summarizer=NotingSummarizer(is_due=is_due))
    live = await session_with(service, turns(1, 2))
    for tenant in ("acme", "other"):
        await service.append_event(live, said(len(seen) + 5))
        await service.enqueue_summary_job(live, ctx=CallContext().with_value("tenant", tenant))
        await service.wait_for_summaries()
    expect_equal(seen, ["acme", "other"], "what the jobs saw")


@check(JOBS, "SUM-ASY-04")
async def a_job_outlives_its_caller(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting)
    live = await session_with(service, turns(1, 2))

    async def caller() -> None:
        await service.enqueue_summary_job(live)
        await asyncio.Event().wait()

    task = asyncio.create_task(caller())
    await until(lambda: noting.asked, "the job has begun")
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    gate.set()
    await service.wait_for_summaries()
    expect_equal(list(live.summaries), [""], "summaries after the caller was cancelled")


@check(JOBS, "SUM-ASY-05")
async def a_failed_job_is_a_warning_and_the_worker_goes_on(bench: Bench) -> None:
    def answer(name: str, new: list[str]) -> str:
        if name.startswith("bad"):
            raise OSError("the model is away")
        return "good"

    service = await bench.service(summarizer=NotingSummarizer(answer=answer), async_summary_num=1)
    bad = await session_with(service, [said(1)], SessionKey(APP, USER_ID, "bad"))
    good = await session_with(service, [said(1)], SessionKey(APP, USER_ID, "good"))
    with _logged() as records:
        await service.enqueue_summary_job(bad)
        await service.enqueue_summary_job(good)
        await service.wait_for_summaries()
    expect_equal((bad.summaries, good.summaries[""].summary), ({}, "good"), "summaries of the bad and the good one")
    expect(any(record.levelno == logging.WARNING for record in records), "no warning tells of the failed job")


@check(JOBS, "SUM-ASY-05")
async def a_crash_is_an_error_and_the_worker_goes_on(bench: Bench) -> None:
    def is_due(ctx: CallContext, session: Session) -> bool:
        if session.id.startswith("bad"):
            raise ZeroDivisionError
        return True

    service = await bench.service(summarizer=NotingSummarizer(is_due=is_due), async_summary_num=1)
    bad = await session_with(service, [said(1)], SessionKey(APP, USER_ID, "bad"))
    good = await session_with(service, [said(1)], SessionKey(APP, USER_ID, "good"))
    with _logged() as records:
        await service.enqueue_summary_job(bad)
        await service.enqueue_summary_job(good)
        await service.wait_for_summaries()
    expect_equal((list(bad.summaries), list(good.summaries)), ([], [""]), "summaries of the bad and the good one")
    expect(any(record.levelno >= logging.ERROR for record in records), "no error tells of the crashed job")


@check(JOBS, "SUM-ASY-01", "SUM-ASY-05")
async def a_job_that_takes_too_long_is_given_up_and_the_worker_goes_on(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting, async_summary_num=1, summary_job_timeout_s=0.4)
    slow = await session_with(service, [said(1)], SessionKey(APP, USER_ID, "slow"))
    good = await session_with(service, [said(1)], SessionKey(APP, USER_ID, "good"))
    with _logged() as records:
        await service.enqueue_summary_job(slow)
        await until(lambda: noting.asked, "the slow job has begun")
        await until(lambda: records, "a warning tells of the job that took too long")
        gate.set()
        await service.enqueue_summary_job(good)
        await service.wait_for_summaries()
    expect_equal((list(slow.summaries), list(good.summaries)), ([], [""]), "summaries of the slow and the good one")


@check(JOBS, "SUM-ASY-06")
async def a_warning_says_that_the_queue_is_full(bench: Bench) -> None:
    service, _, gate, third = await _with_full_queue(bench)
    with _logged() as records:
        call = asyncio.create_task(service.enqueue_summary_job(third))
        await until(lambda: records, "a warning tells of the full queue")
        gate.set()
        await call
    texts = [record.getMessage() for record in records if record.levelno == logging.WARNING]
    expect(any("queue is full" in text for text in texts), f"no warning contains 'queue is full': {texts}")
    await service.wait_for_summaries()


@check(JOBS, "SUM-ASY-08")
async def a_job_covers_what_was_appended_before_it_runs(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting, async_summary_num=1)
    first = await session_with(service, [said(1)], SessionKey(APP, USER_ID, "first"))
    live = await session_with(service, turns(1, 2))
    await service.enqueue_summary_job(first)
    await until(lambda: noting.asked, "the worker is at its first job")
    await service.enqueue_summary_job(live)
    await service.append_event(live, said(3))
    gate.set()
    await service.wait_for_summaries()
    expect_equal(noting.asked[-1], ("s:", ["e1", "e2", "e3"]), "what the waiting job summarised")


# --- close ----------------------------------------------------------------------------------------------


@check(CLOSE, "SUM-ASY-07", "SUM-SVC-01")
async def closing_finishes_what_was_queued(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting, async_summary_num=2)
    sessions = [await session_with(service, turns(1, 2), SessionKey(APP, USER_ID, f"s{n}")) for n in range(12)]
    for session in sessions:
        await service.enqueue_summary_job(session)
    await service.close()
    left = [session.id for session in sessions if "" not in session.summaries]
    expect_equal(left, [], "sessions whose job was lost by closing")


@check(CLOSE, "SUM-ASY-07")
async def closing_waits_for_the_job_at_work(bench: Bench) -> None:
    gate = bench.gate()
    noting = NotingSummarizer(gate=gate)
    service = await bench.service(summarizer=noting)
    live = await session_with(service, turns(1, 2))
    await service.enqueue_summary_job(live)
    await until(lambda: noting.asked, "the job has begun")
    closing = asyncio.create_task(service.close())
    await idle()
    expect(not closing.done(), "close returned while a job was at work")
    gate.set()
    await closing
    expect_equal(list(live.summaries), [""], "summaries after closing")


@check(CLOSE, "SUM-ASY-07", "SUM-SVC-01")
async def closing_may_be_repeated(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    live = await session_with(service, turns(1, 2))
    await service.enqueue_summary_job(live)
    await asyncio.gather(service.close(), service.close())
    await service.close()
    expect_equal(list(live.summaries), [""], "summaries after closing three times")


@check(CLOSE, "SUM-ASY-07")
async def a_service_that_was_never_used_closes(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer(), session_ttl_s=10.0, cleanup_interval_s=300.0)
    async with asyncio.timeout(5):
        await service.close()
        await service.close()


@check(CLOSE, "SUM-ASY-07", "SUM-STO-07")
async def closing_ends_every_task_of_the_service(bench: Bench) -> None:
    before = asyncio.all_tasks()
    service = await bench.service(summarizer=NotingSummarizer(), session_ttl_s=10.0, cleanup_interval_s=300.0)
    await service.enqueue_summary_job(await session_with(service, turns(1, 2)))
    await service.close()
    await idle()
    left = sorted(task.get_name() for task in asyncio.all_tasks() - before)
    expect_equal(left, [], "tasks that go on after closing")


@check(CLOSE, "SUM-ASY-07", "SUM-ASY-03")
async def jobs_offered_while_closing_are_done_or_refused_but_never_lost(bench: Bench) -> None:
    noting = NotingSummarizer()
    service = await bench.service(summarizer=noting, async_summary_num=1, summary_queue_size=1)
    sessions = [await session_with(service, turns(1, 2), SessionKey(APP, USER_ID, f"s{n}")) for n in range(6)]
    async with asyncio.timeout(10):
        outcomes = await asyncio.gather(
            *(service.enqueue_summary_job(session) for session in sessions[:3]),
            service.close(),
            *(service.enqueue_summary_job(session) for session in sessions[3:]),
            return_exceptions=True,
        )
    del outcomes[3]
    for session, outcome in zip(sessions, outcomes, strict=True):
        refused = isinstance(outcome, StoreError | SummaryError)
        expect(refused or "" in session.summaries, f"the job of {session.id} was lost: it ended with {outcome!r}")


@check(CLOSE, "SUM-ASY-03", "SUM-ASY-07")
async def a_closed_service_does_the_job_in_its_caller_or_says_no(bench: Bench) -> None:
    service = await bench.service(summarizer=NotingSummarizer())
    live = await session_with(service, turns(1, 2))
    await service.close()
    async with asyncio.timeout(5):
        try:
            await service.enqueue_summary_job(live)
        except (StoreError, SummaryError):
            return
    expect_equal(list(live.summaries), [""], "summaries after a job for a closed service, which raised nothing")
