"""Timings of the product as ratios; run with `make bench`. Each figure is a ratio taken in one run.

In: nothing (or names of benchmarks). Out: one line per figure with its target. Absolute times belong to one
machine and one moment; the ratios are what the targets of the specification are about.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stores

from workbench.call import EMPTY_CONTEXT
from workbench.clock import FixedClock
from workbench.config import RunConfig
from workbench.model.sized import SizedModel
from workbench.model.types import Message, response_of
from workbench.recordings import load_recordings
from workbench.recordings.generate import generate_conversation
from workbench.recordings.types import Conversation
from workbench.replay.conversation import replay_conversation
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.session.types import Event
from workbench.store.memory import InMemoryStore
from workbench.summary.delta import delta_session
from workbench.summary.summarizer import Summarizer
from workbench.tokens import SimpleTokenCounter

ROUNDS = 3
_RUNES = {"billing": {"encoding": "runes:4"}, "service": {"event_limit": 0}}
_CONFIGS: dict[str, dict[str, Any]] = {
    "no summary": {},
    "trigger that never fires": {
        "summarizer": {},
        "trigger": {"token": 10**9},
        "agent": {"add_session_summary": True},
    },
    "token trigger": {
        "summarizer": {},
        "trigger": {"token": 4000},
        "agent": {"add_session_summary": True},
        "summaries": {"source": "sized", "sized_tokens": 200},
    },
    "compaction and tailoring": {
        "compaction": {"enabled": True, "tool_result_max_tokens": 50},
        "tailoring": {"enabled": True, "max_input_tokens": 8000},
        "model": {"context_window": 32_000},
    },
}


def best_of(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Shortest of several timings, in seconds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def generated(n_events: int, seed: int = 1) -> Conversation:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generated.jsonl"
        conversation = generate_conversation(n_events=n_events, seed=seed)
        path.write_text(json.dumps(conversation, ensure_ascii=False) + "\n", encoding="utf-8")
        return load_recordings(path).load()[0]


def say(name: str, value: str, target: str) -> None:
    print(f"{name:62}{value:>22}   target {target}", flush=True)


def bench_linear() -> None:
    """PERF-03, PERF-06: a conversation of 10,000 events against ten of 1,000, each text read for the first time.

    Repeating one small conversation would compare a warm processor cache with a cold one; CPU time leaves out
    what else the machine does.
    """
    small, big = [generated(1000, seed) for seed in range(1, 11)], generated(10_000)
    for name, values in _CONFIGS.items():
        config = RunConfig.from_values({**_RUNES, **values, "name": name})
        replay_conversation(small[0], config)
        ratios, longest = [], []
        for _ in range(ROUNDS):
            gc.collect()
            start = time.process_time()
            for conversation in small:
                replay_conversation(conversation, config)
            middle = time.process_time()
            gc.collect()
            again = time.process_time()
            replay_conversation(big, config)
            longest.append(time.process_time() - again)
            ratios.append(10 * longest[-1] / (middle - start))
        say(f"replay 10,000 / 1,000 events, {name}", f"{statistics.median(ratios):.1f} x", "<= 11")
        rate = len(big.events) / min(longest)
        say(f"  events per second, {name}", f"{rate:,.0f}", ">= 20,000")


def _session(n_events: int) -> tuple[SessionService, Any]:
    service = SessionService(InMemoryStore(), settings=ServiceSettings(event_limit=0), clock=FixedClock(10**18))

    async def fill() -> Any:
        session = await service.create_session("app", "user", "s")
        for n in range(n_events):
            role = "user" if n % 2 == 0 else "assistant"
            message = Message(role=role, content=f"message {n} " * 20)
            await service.append_event(
                session,
                Event(id=f"e{n}", author=role, time_ns=10**18 + n, response=response_of(message), filter_key="app"),
            )
        return session

    return service, asyncio.run(fill())


def bench_turn() -> None:
    """PERF-01: trigger check and delta of a turn at 200 and at 10,000 events."""
    costs = {}
    for n_events in (200, 10_000):
        _, session = _session(n_events)
        summarizer = Summarizer(SizedModel(10, SimpleTokenCounter()), event_threshold=10**6, token_threshold=10**9)

        async def turns(n: int, session: Any = session, summarizer: Summarizer = summarizer) -> None:
            for i in range(n):
                message = Message(role="user", content=f"new {i}")
                session.append(
                    Event(
                        id=f"n{i}",
                        author="user",
                        time_ns=2 * 10**18 + i,
                        response=response_of(message),
                        filter_key="app",
                    )
                )
                temporary = delta_session(session, filter_key="app", boundary=None, scope="app", now_ns=3 * 10**18)
                await summarizer.should_summarize_with_context(EMPTY_CONTEXT, temporary)

        asyncio.run(turns(5))
        costs[n_events] = statistics.median(best_of(lambda: asyncio.run(turns(500)), 1) / 500 for _ in range(5))
    say("trigger check and delta, turn at 10,000 / at 200 events", f"{costs[10_000] / costs[200]:.2f} x", "<= 1.2")
    say("  microseconds a turn at 10,000 events", f"{costs[10_000] * 1e6:.0f}", "")


def bench_sessions() -> None:
    """10,000 sessions with idle workers."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def make() -> int:
        service = SessionService(InMemoryStore(), summarizer=Summarizer(SizedModel(10, SimpleTokenCounter())))
        for n in range(10_000):
            session = await service.create_session("app", "user", f"s{n}")
            message = Message(role="user", content="hello")
            await service.append_event(
                session,
                Event(id=f"e{n}", author="user", time_ns=n + 1, response=response_of(message), filter_key="app"),
            )
            if n < 10:
                await service.enqueue_summary_job(session, "app")
        await service.wait_for_summaries()
        return n

    asyncio.run(make())
    used_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    say("10,000 sessions with idle workers, MB over the start", f"{used_mb:.0f}", "<= 200")


def bench_stores() -> None:
    """PERF-08, PERF-09: the durable store beside its floors."""
    stores.run(say)


BENCHES = {"stores": bench_stores, "sessions": bench_sessions, "turn": bench_turn, "linear": bench_linear}


def main(names: list[str]) -> int:
    logging.disable(logging.WARNING)
    for name in names or list(BENCHES):
        if name not in BENCHES:
            print(f"no benchmark {name!r}; there are {', '.join(BENCHES)}", file=sys.stderr)
            return 2
        BENCHES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
