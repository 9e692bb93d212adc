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
import sweeps

from workbench.call import EMPTY_CONTEXT
from workbench.clock import FixedClock
from workbench.config import RunConfig
from workbench.context.assemble import Invocation
from workbench.context.incremental import ContentAssembler
from workbench.context.settings import AgentSettings, CompactionSettings
from workbench.context.tailor import strategy_named, tailor_assembly
from workbench.model.sized import SizedModel
from workbench.model.types import Message, Request, response_of
from workbench.recordings import load_recordings
from workbench.recordings.generate import generate_conversation
from workbench.recordings.types import Conversation
from workbench.replay.conversation import replay_conversation
from workbench.replay.planner import ThresholdSums
from workbench.report.explorer import Explorer
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


class _Turns:
    """A session of some length and the engine over it; each turn is a message, a check and a prompt."""

    def __init__(self, n_events: int) -> None:
        _, self.session = _session(n_events)
        counter = SimpleTokenCounter()
        self.summarizer = Summarizer(SizedModel(10, counter), event_threshold=10**6, token_threshold=10**9)
        self.assembler = ContentAssembler(AgentSettings(), CompactionSettings(), counter=counter, sanitize=True)
        self.strategy = strategy_named("middle_out", counter)
        self.n = 0

    def turn(self, budget: int | None) -> int:
        """One turn; the number of messages of its prompt."""
        self.n += 1
        run = f"r{self.n}"
        for role in ("user", "assistant"):
            message = Message(role=role, content=f"new {self.n} " * 20)
            event = Event(
                id=f"{run}{role}", author=role, time_ns=2 * 10**18 + self.n, response=response_of(message),
                filter_key="app", request_id=run, invocation_id=run,
            )  # fmt: skip
            self.session.append(event)
        temporary = delta_session(self.session, filter_key="app", boundary=None, scope="app", now_ns=3 * 10**18)
        asyncio.run(self.summarizer.should_summarize_with_context(EMPTY_CONTEXT, temporary))
        invocation = Invocation(
            session=self.session, agent_name="assistant", invocation_id=run, request_id=run, filter_key="app"
        )
        assembly = self.assembler.assemble(invocation, Request())
        if budget is not None:
            return len(tailor_assembly(assembly, self.strategy, budget).messages)
        return len(assembly.request(Request()).messages)


def bench_turn() -> None:
    """PERF-01, PERF-02: trigger check, delta and prompt of a turn, under a budget and with the full history."""
    for name, budget in (("under a budget of 4,000 tokens", 4000), ("with the full history", None)):
        engines = {n_events: _Turns(n_events) for n_events in (200, 10_000)}
        for engine in engines.values():
            for _ in range(20):
                engine.turn(budget)
        times: dict[int, list[float]] = {n_events: [] for n_events in engines}
        for _ in range(400):  # in turn, so that both see the same machine
            for n_events, engine in engines.items():
                start = time.perf_counter()
                engine.turn(budget)
                times[n_events].append(time.perf_counter() - start)
        short, long = statistics.median(times[200]), statistics.median(times[10_000])
        texts = [(event.author, event.message.content) for event in engines[10_000].session.events]
        floor = best_of(lambda texts=texts: [{"role": role, "content": text} for role, text in texts], 5)  # type: ignore[misc]
        if budget is not None:
            say(f"turn at 10,000 / at 200 events, {name}", f"{long / short:.2f} x", "<= 1.2")
        else:
            say(f"turn at 10,000 events {name} / one dict per event", f"{long / floor:.2f} x", "<= 4")
        say("  microseconds a turn at 10,000 events", f"{long * 1e6:.0f}", "")


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


def bench_sweep() -> None:
    """PERF-04: sixteen configurations against one, in time and memory."""
    sweeps.run(say, ("sized", "extractive"))


def bench_report() -> None:
    """The comparison report of a thousand conversations."""
    sweeps.run_report(say)


def bench_thresholds() -> None:
    """WB-TUNE-05: one threshold, and a whole slider of them, from sums over 10,000 events."""
    config = RunConfig.from_values({**_RUNES, "summarizer": {}, "trigger": {"token": 2000}, "name": "thresholds"})
    conversation = generated(10_000)
    start = time.perf_counter()
    sums = ThresholdSums(conversation, config)
    listening = time.perf_counter() - start
    slider = [round(500 * 1.1**n) for n in range(60)]
    for counter in ("runes", "tiktoken"):
        counted = config.replace(counter={"kind": counter})
        sums.firings(counted)  # texts are counted once
        one = best_of(lambda counted=counted: sums.firings(counted))  # type: ignore[misc]
        many = best_of(lambda counted=counted: sums.counts(counted, "token", slider))  # type: ignore[misc]
        say(f"firings at one threshold, 10,000 events, {counter}", f"{one * 1e3:.1f} ms", "< 100 ms")
        say("  of the replay that made the sums", f"{one / listening:.1e}", "")
        say("  at 60 thresholds, 500 to 138,000 tokens", f"{many * 1e3:.0f} ms", "< 100 ms")


def bench_explorer() -> None:
    """WB-UI-03: what stands there at once after a move of a threshold, the figure drawn included."""
    config = RunConfig.from_values({**_RUNES, "summarizer": {}, "trigger": {"token": 2000}, "name": "explored"})

    async def redrawn(counter: str) -> float:
        explorer = Explorer([generated(10_000)], config.replace(counter={"kind": counter})).wait()
        times = []
        for n in range(15):
            start = time.perf_counter()
            explorer.set(token=1500 + 137 * n)
            times.append(time.perf_counter() - start)
            # The exact replay behind it is a thread that the next move would have stopped.
            explorer.cancel()
            explorer.wait()
        return statistics.median(times)

    for counter in ("runes", "tiktoken"):
        say(
            f"explorer after a move, 10,000 events, {counter}",
            f"{asyncio.run(redrawn(counter)) * 1e3:.0f} ms",
            "< 100 ms",
        )


BENCHES = {
    "thresholds": bench_thresholds,
    "explorer": bench_explorer,
    "stores": bench_stores,
    "sessions": bench_sessions,
    "turn": bench_turn,
    "linear": bench_linear,
    "sweep": bench_sweep,
    "report": bench_report,
}


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
