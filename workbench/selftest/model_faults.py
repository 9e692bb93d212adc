"""Summaries over a model that fails in every known way, and a queue that is full (REL-08, REL-09).

In: a number of trials, a seed. Out: a tally. Whatever the model does: one typed error, events and old summary as
they were, attempts bounded; and every call of a service that is closing returns.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from workbench.agent.agent import LLMAgent
from workbench.agent.runner import Runner
from workbench.agent.tools import FunctionTool
from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.context.settings import AgentSettings
from workbench.errors import EmptySummaryError, SummaryError, SummaryModelError
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import Message, Request, Response, ToolCall
from workbench.selftest.fake_server import CONTEXT_LENGTH_WORDINGS, FAULTS, ODDITIES, TEXT, FakeServer
from workbench.selftest.faulty_model import EXPECTED, SAYS_NOTHING, TRIED_ONCE, faulty, model_of
from workbench.selftest.store_files import KEY, event_of
from workbench.selftest.tally import Tally, quiet
from workbench.service.conformance.suite import idle
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.session.types import Session
from workbench.store.memory import InMemoryStore
from workbench.summary.context import context_with_cache_safe_fork_request
from workbench.summary.summarizer import Summarizer

USES = ("standalone", "fork", "queued", "intra-run")
N_ATTEMPTS = 2
"""Of each model call; a summary makes at most two model calls."""
ODD_TEXT = "上\u2028下\x85🙂 \U0001f9ea"
_PARENT = Request(messages=(Message("system", "你是客服。"), Message("user", "text 1"), Message("assistant", "text 2")))
_TIMEOUT_S = 20.0


async def summarise(service: SessionService, use: str, *, parent: Request = _PARENT) -> None:
    """Make a summary in one of the ways in which summaries are made."""
    session = await service.get_session(KEY)
    assert session is not None
    if use == "queued":
        await service.enqueue_summary_job(session)
        await service.wait_for_summaries()
    elif use == "intra-run":
        asked = ToolCall(id="t1", name="look", arguments="{}")
        main = ScriptedModel([ScriptedAnswer(tool_calls=(asked,)), "回答"])
        agent = LLMAgent(
            name="agent",
            model=main,
            tools=[FunctionTool(lambda: "found", name="look")],
            settings=AgentSettings(sync_summary_intra_run=True),
        )
        runner = Runner(app_name=KEY.app_name, agent=agent, session_service=service)
        events = [event async for event in runner.run(KEY.user_id, KEY.session_id, "请看")]
        assert events[-1].message.content == "回答", "the run didn't go on to its answer"
        await service.wait_for_summaries()
    else:
        ctx = context_with_cache_safe_fork_request(EMPTY_CONTEXT, parent) if use == "fork" else EMPTY_CONTEXT
        await service.create_session_summary(session, ctx=ctx)


async def _service_with(summarizer: Summarizer, numbers: Sequence[int]) -> tuple[SessionService, Session]:
    service = SessionService(InMemoryStore(event_limit=0), settings=ServiceSettings(), summarizer=summarizer)
    session = await service.create_session(KEY.app_name, KEY.user_id, KEY.session_id)
    for n in numbers:
        await service.append_event(session, event_of(n))
    return service, session


# --- faults and oddities (REL-09) ---------------------------------------------------------------------


def fault_trials() -> list[tuple[str, str]]:
    """Each fault in each use; all faults in one use come before the next use."""
    return [(name, use) for use in USES for name in (*EXPECTED, *SAYS_NOTHING)]


def oddity_trials() -> list[tuple[str, str]]:
    """Each oddity in each use."""
    return [(name, use) for use in USES for name in ODDITIES]


def model_faults(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-09: connection, status, body and stream fail; nothing changes, and the run goes on."""
    del folder
    tally = Tally("model faults", "something changed", "other errors", "other attempts")
    trials = fault_trials()
    random.Random(seed).shuffle(trials)
    with FakeServer() as server, quiet():
        for name, use in trials[:n]:
            asyncio.run(fail(server, name, use, tally))
            tally.trial(use)
    return tally


def expected_attempts(name: str) -> int:
    """A request that is too long, and an empty answer, get a second call (SUM-CALL-03)."""
    if name in CONTEXT_LENGTH_WORDINGS or name in SAYS_NOTHING:
        return 2
    handed_on = {"stream-without-end", "stream-broken-chunk", "stream-error-object"}
    return 1 if name in TRIED_ONCE or name in handed_on else N_ATTEMPTS


async def fail(server: FakeServer, name: str, use: str, tally: Tally) -> None:
    """One fault in one use, over a session that has a summary already."""
    where = f"{name}, {use}"
    summarizer = Summarizer(ScriptedModel(["旧的摘要"]), prompt="{conversation_text}", cache_safe_forking=use == "fork")
    service, _ = await _service_with(summarizer, (1, 2))
    await summarise(service, "standalone")
    session = await service.get_session(KEY)
    assert session is not None
    for n in (3, 4):
        await service.append_event(session, event_of(n))
    old, events = dict(session.summaries), await service.list_events(KEY)
    before = server.n_connections
    raised: BaseException | None = None
    with faulty(server, name, max_retries=N_ATTEMPTS - 1) as model:
        summarizer.set_model(model)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await summarise(service, use)
        except Exception as error:
            raised = error
        await model.aclose()
    after = await service.get_session(KEY)
    assert after is not None
    tally.expect(old and after.summaries == old, "something changed", f"{where}: summary {after.summaries}")
    stored = await service.list_events(KEY)
    tally.expect(stored[: len(events)] == events, "something changed", f"{where}: events")
    if use in ("standalone", "fork"):
        is_right = type(raised) is (EmptySummaryError if name in SAYS_NOTHING else SummaryModelError)
        if is_right and name in EXPECTED:
            behind = raised.__cause__ if raised is not None else None
            is_right = behind is not None and type(behind.__cause__) is EXPECTED[name]
        tally.expect(is_right, "other errors", f"{where}: {raised!r}")
    else:
        tally.expect(raised is None, "other errors", f"{where}: {raised!r}")
    n_summaries = 3 if use == "intra-run" else 1
    n_connections = server.n_connections - before
    tally.expect(n_connections <= 2 * N_ATTEMPTS * n_summaries, "other attempts", f"{where}: {n_connections}")
    if name in FAULTS and use in ("standalone", "fork"):
        wanted = expected_attempts(name)
        tally.expect(n_connections == wanted, "other attempts", f"{where}: {n_connections} instead of {wanted}")
    await service.close()


def oddities(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-09: answers that are odd, but whole, are taken as they are."""
    del folder
    tally = Tally("odd answers", "not taken", "not complete")
    trials = oddity_trials()
    random.Random(seed).shuffle(trials)
    with FakeServer() as server, quiet():
        for name, use in trials[:n]:
            asyncio.run(take(server, name, use, tally))
            tally.trial(use)
    return tally


async def take(server: FakeServer, name: str, use: str, tally: Tally) -> None:
    """One oddity in one use."""
    model = model_of(server, name)
    summarizer = Summarizer(model, prompt="{conversation_text}", cache_safe_forking=use == "fork")
    service, _ = await _service_with(summarizer, (1, 2))
    try:
        await summarise(service, use)
    except SummaryError as error:
        tally.fault("not taken", f"{name}, {use}: {error}")
    session = await service.get_session(KEY)
    assert session is not None
    summary = session.summaries.get("")
    expected = ODD_TEXT if name == "split-characters" else TEXT
    tally.expect(summary is not None and summary.summary == expected, "not complete", f"{name}, {use}: {summary}")
    await model.aclose()
    await service.close()


# --- a full queue (REL-08) ----------------------------------------------------------------------------


class _Gated(ScriptedModel):
    """A model that answers once its gate is open."""

    def __init__(self) -> None:
        super().__init__(lambda request: "summary")
        self.gate = asyncio.Event()

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        await self.gate.wait()
        async for response in super().generate(ctx, request):
            yield response


def full_queue(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-08: one worker, room for one job, a blocked model, `n` jobs; then it answers."""
    del folder, seed
    tally = Tally("jobs", "never returned", "not summarised", "summarised twice", "fallbacks without a warning")
    told = _Counter()
    logger = logging.getLogger("workbench.service.summaries")
    logger.addHandler(told)
    propagates, logger.propagate = logger.propagate, False
    try:
        asyncio.run(_fill_queue(n, told, tally))
    finally:
        logger.removeHandler(told)
        logger.propagate = propagates
    return tally


class _Counter(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.n = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.n += "queue is full" in record.getMessage()


async def _fill_queue(n: int, told: _Counter, tally: Tally) -> None:
    model = _Gated()
    summarizer = Summarizer(model, prompt="{conversation_text}")
    settings = ServiceSettings(async_summary_num=1, summary_queue_size=1)
    service = SessionService(InMemoryStore(), settings=settings, summarizer=summarizer)
    sessions = [await service.create_session("app", "user", f"s{i}") for i in range(n)]
    for session in sessions:
        await service.append_event(session, event_of(1))
    tasks = [asyncio.create_task(service.enqueue_summary_job(session)) for session in sessions]
    await idle()
    n_queued = sum(task.done() for task in tasks)
    model.gate.set()
    _, waiting = await asyncio.wait(tasks, timeout=_TIMEOUT_S)
    for task in tasks:
        tally.trial("refused by the queue" if task in waiting else "")
        tally.expect(task.done(), "never returned", str(task))
    await asyncio.wait_for(service.close(), _TIMEOUT_S)
    tally.seen["queued"] = n_queued
    tally.expect(told.n == n - n_queued, "fallbacks without a warning", f"{told.n} warnings, {n_queued} of {n} queued")
    for session in sessions:
        tally.expect(session.summaries, "not summarised", session.id)
    tally.expect(len(model.requests) == n, "summarised twice", f"{len(model.requests)} model calls for {n} deltas")


def queue_rounds(folder: Path, *, n: int, seed: int) -> Tally:
    """REL-08: jobs offered while the service closes."""
    del folder, seed
    tally = Tally("rounds of enqueue against close", "deadlocks", "not summarised")

    async def one_round(i: int) -> None:
        summarizer = Summarizer(ScriptedModel(lambda request: "summary"), prompt="{conversation_text}")
        settings = ServiceSettings(async_summary_num=1, summary_queue_size=1)
        service = SessionService(InMemoryStore(), settings=settings, summarizer=summarizer)
        session = await service.create_session(KEY.app_name, KEY.user_id, KEY.session_id)
        await service.append_event(session, event_of(1))
        jobs = [asyncio.create_task(service.enqueue_summary_job(session)) for _ in range(3)]
        if i % 2:
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await asyncio.gather(service.close(), *jobs)
        except TimeoutError:
            tally.fault("deadlocks", f"round {i}")
        tally.expect(session.summaries, "not summarised", f"round {i}")

    async def main() -> None:
        for i in range(n):
            await one_round(i)
            tally.trial()

    with quiet():
        asyncio.run(main())
    return tally
