"""A session that the durable service recorded, replayed under its own configuration: the same requests, byte for byte."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from workbench.agent.flow import InvocationState, SentRequest
from workbench.agent.runner import Runner, RunOptions
from workbench.agent.tools import FunctionTool, LocalTools
from workbench.build import billing_counter, build_agent, build_summarizer
from workbench.call import CallContext
from workbench.clock import FixedClock
from workbench.config import RunConfig
from workbench.model.chat_wire import BodyForm, chat_body
from workbench.model.client import Model
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import Request, Response, ToolCall, Usage
from workbench.recordings import Recordings, load_recordings, write_recording
from workbench.replay.conversation import replay_conversation
from workbench.replay.sources import summary_model
from workbench.service.duckdb import DuckDBSessionService

pytestmark = pytest.mark.slow  # each of them writes and opens store files; `make test-more` runs these

START_NS = 1_772_000_000 * 10**9
INSTRUCTION = "You help customers of a shop. Answer briefly. 请用客户的语言回答。"
WORDS = [
    "order",
    "parcel",
    "refund",
    "订单",
    "退款",
    "7731",
    "8,200.50",
    "EUR",
    "tomorrow",
    "address",
    "地址",
    "invoice",
    "発送",
    "배송",
    "😀",
    "<tag>",
    "{x}",
]


def text(seed: random.Random, n_words: int) -> str:
    return " ".join(seed.choice(WORDS) for _ in range(n_words))


class Waiting:
    """A summary model that answers when it may."""

    def __init__(self, model: Model, may_answer: asyncio.Event) -> None:
        self._model, self._may_answer = model, may_answer
        self.name, self.context_window = model.name, model.context_window

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        await self._may_answer.wait()
        async for response in self._model.generate(ctx, request):
            yield response


class Shop:
    """An application with sessions of its own, and everything it sent to its model."""

    def __init__(
        self, path: Path, config: RunConfig, seed: int, *, filter_key: str = "", is_late: bool = False
    ) -> None:
        self.config, self.random = config, random.Random(seed)
        self.clock = FixedClock(START_NS)
        self.sent: dict[str, list[bytes]] = {}
        self.filter_key = filter_key
        self.is_late = is_late
        self.may_summarize = asyncio.Event()
        source = Waiting(summary_model(config, billing_counter(config)), self.may_summarize)
        self.service = DuckDBSessionService(
            path,
            summarizer=build_summarizer(config, source, clock=self.clock),
            clock=self.clock,
            profile=config.engine_profile,
            session_event_limit=config.service.event_limit,
            cascade_full_session_summary=config.service.cascade_full_session_summary,
        )
        self.tools = [FunctionTool(self.look_up), FunctionTool(self.cancel)]
        agent = build_agent(
            config,
            ScriptedModel(self.answer, name="shop-model", context_window=config.model.context_window or 0),
            name="support",
            instruction=INSTRUCTION,
            tool_specs=[tool.spec for tool in self.tools],
            tool_executor=LocalTools(self.tools),
        )
        self.runner = Runner(
            app_name="shop",
            agent=agent,
            session_service=self.service,
            clock=self.clock,
            profile=config.engine_profile,
            on_request=self.note,
            before_step=self.before_step,
        )
        self.left = 0

    async def before_step(self, state: InvocationState) -> None:
        if not self.is_late:
            await self.service.wait_for_summaries()
        for _ in range(20):  # a model takes its time: whatever can begin meanwhile has begun
            await asyncio.sleep(0)

    def pause(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def look_up(self, order: str) -> dict[str, str]:
        """Where an order is."""
        self.pause(0.5)
        if self.random.random() < 0.15:
            raise ValueError("no such order")
        return {"order": order, "status": text(self.random, self.random.choice([2, 20, 300]))}

    def cancel(self, order: str, reason: str = "") -> str:
        """Cancel an order."""
        self.pause(0.25)
        return f"cancelled {order}"

    def answer(self, request: Request) -> ScriptedAnswer:
        self.pause(self.random.choice([1, 2.5, 7]))
        usage = Usage(
            prompt_tokens=len(request.messages) * 10, completion_tokens=5, total_tokens=len(request.messages) * 10 + 5
        )
        if self.left > 0 and self.random.random() < 0.7:
            self.left -= 1
            calls = tuple(self.call(n) for n in range(self.random.choice([1, 1, 2])))
            return ScriptedAnswer(content=self.random.choice(["", "Let me see."]), tool_calls=calls, usage=usage)
        return ScriptedAnswer(content=text(self.random, self.random.randrange(3, 60)), usage=usage)

    def call(self, n: int) -> ToolCall:
        names = ["look_up", "look_up", "cancel"]
        arguments: dict[str, Any] = {"order": str(self.random.randrange(9999))}
        if self.config.agent.enable_on_demand_session and self.random.random() < 0.5:
            names, arguments = ["session_search"], {"query": self.random.choice(WORDS)}
        name = self.random.choice(names)
        return ToolCall(id=f"c{self.random.randrange(10**9)}-{n}", name=name, arguments=json.dumps(arguments))

    def note(self, sent: SentRequest) -> None:
        self.sent.setdefault(sent.session.id, []).append(wire(sent.request))

    async def talk(self, user: str, session: str, n_requests: int) -> None:
        for _ in range(n_requests):
            self.left = self.random.choice([0, 0, 1, 4])
            options = RunOptions(event_filter_key=self.filter_key)
            if self.is_late:
                self.may_summarize.clear()
            else:
                self.may_summarize.set()
            async for _ in self.runner.run(user, session, text(self.random, self.random.randrange(2, 40)), options):
                pass
            self.may_summarize.set()
            await self.service.wait_for_summaries()
            self.pause(self.random.choice([5, 60, 900]) if not self.is_late else 3600)


def wire(request: Request) -> bytes:
    """The body that goes out."""
    return json.dumps(chat_body("m", request, streams=False, form=BodyForm()), ensure_ascii=False).encode()


def replayed(recordings: Recordings, config: RunConfig) -> dict[str, list[bytes]]:
    sent: dict[str, list[bytes]] = {}
    for conversation in recordings:
        found = sent[conversation.id] = []
        replay_conversation(
            conversation, config, on_sent=lambda facts, one, found=found: found.append(wire(one.request))
        )
    return sent


def first_difference(ours: Sequence[bytes], theirs: Sequence[bytes]) -> str:
    for n, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            left, right = (json.loads(body) for body in (one, other))
            for place, pair in enumerate(zip(left["messages"], right["messages"], strict=False)):
                if pair[0] != pair[1]:
                    return f"call {n}, message {place}: sent {pair[0]!r}, replayed {pair[1]!r}"[:1500]
            return f"call {n}: {len(left['messages'])} messages sent, {len(right['messages'])} replayed"
    return f"{len(ours)} calls sent, {len(theirs)} replayed"


SUMMARIES: dict[str, Any] = {"summarizer": {"max_summary_words": 60}, "agent": {"add_session_summary": True}}
CONFIGS: dict[str, dict[str, Any]] = {
    "no-summary": {},
    "events-extractive": {**SUMMARIES, "trigger": {"event": 6}},
    "skip-recent-user": {
        "summarizer": {"skip_recent": 3},
        "trigger": {"event": 5},
        "agent": {"add_session_summary": True, "summary_injection_mode": "user"},
    },
    "tokens-sized": {**SUMMARIES, "trigger": {"token": 300}, "summaries": {"source": "sized", "sized_tokens": 80}},
    "fork": {
        "summarizer": {"cache_safe_forking": True},
        "trigger": {"token": 400},
        "agent": {"add_session_summary": True},
        "counter": {"runes_per_token": 1.3},
    },
    "intra-run": {
        "summarizer": {},
        "trigger": {"any": [{"event": 4}, {"time": "5m"}]},
        "agent": {"add_session_summary": True, "sync_summary_intra_run": True},
    },
    "compaction": {
        "compaction": {"enabled": True, "tool_result_max_tokens": 40, "oversized_tool_result_max_tokens": 150},
        "agent": {"tool_transcript_mode": "omit_previous_completed"},
    },
    "near-the-window": {
        "summarizer": {},
        "trigger": {"context": {"ratio": 0.4, "min_tokens": 0}},
        "counter": {"runes_per_token": 1.2},
        "agent": {"add_session_summary": True},
        "compaction": {"enabled": True, "threshold_ratio": 0.5, "keep_recent_requests": 0},
        "model": {"context_window": 4500},
    },
    "tailoring": {"tailoring": {"enabled": True, "max_input_tokens": 700}, "model": {"context_window": 4000}},
    "history-limits": {"agent": {"max_history_runs": 3}, "service": {"event_limit": 9}},
    "idle": {**SUMMARIES, "trigger": {"time": "10m"}},
    "on-demand": {
        "summarizer": {},
        "trigger": {"event": 6},
        "agent": {"add_session_summary": True, "enable_on_demand_session": True},
    },
    "reference-2026-07": {"profile": "TRPC_AGENT_GO_2026_07", **SUMMARIES, "trigger": {"event": 6}},
    "reference-2026-08": {"profile": "TRPC_AGENT_GO_2026_08", **SUMMARIES, "trigger": {"event": 6}},
}


QUICK = ("events-extractive", "tokens-sized", "compaction", "near-the-window", "on-demand")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CONFIGS]
)
def test_a_recorded_session_sends_the_same_requests_again(name: str, tmp_path: Path) -> None:
    """The same bytes at every call: messages and tools, with summaries, compaction, tailoring and history tools."""
    config = RunConfig(name=name, **CONFIGS[name])
    path = tmp_path / "sessions.duckdb"

    shop = run_shop(path, config, seed=len(name))
    recordings = load_recordings(path, instruction=INSTRUCTION, tools=shop.tools)
    assert not recordings.problems
    again = replayed(recordings, config)
    assert sorted(again) == sorted(shop.sent) == ["s1", "s2"]
    for session, sent in shop.sent.items():
        assert len(sent) > 4
        assert again[session] == sent, f"{session}: {first_difference(sent, again[session])}"
    n_summarised = sum(b"summary_of_previous" in body for body in shop.sent["s1"])
    assert (n_summarised > 3) == (config.summarizer is not None)


def run_shop(path: Path, config: RunConfig, seed: int, **options: Any) -> Shop:
    async def main() -> Shop:
        shop = Shop(path, config, seed=seed, **options)
        await shop.talk("ann", "s1", 12)
        await shop.talk("bob", "s2", 5)
        await shop.service.close()
        return shop

    return asyncio.run(main())


def test_summaries_that_come_late_come_late_again(tmp_path: Path) -> None:
    """WB-RPL-08: calls until then carried the old history; `latency_s` says for how long."""
    config = RunConfig(**CONFIGS["events-extractive"])
    path = tmp_path / "sessions.duckdb"
    shop = run_shop(path, config, seed=5, is_late=True)
    recordings = load_recordings(path, instruction=INSTRUCTION, tools=shop.tools)
    assert replayed(recordings, config.replace(**{"summaries.latency_s": 50.0})) == shop.sent
    assert replayed(recordings, config) != shop.sent  # finished at once, they are in earlier calls


def test_a_branch_a_restart_and_a_native_file_change_nothing(tmp_path: Path) -> None:
    """Production to workbench while the service runs, and on as a native file: no conversion in between."""
    config = RunConfig(**CONFIGS["events-extractive"])
    path, native = tmp_path / "sessions.duckdb", tmp_path / "native.jsonl"
    shop = run_shop(path, config, seed=3, filter_key="shop/chat")

    async def go_on() -> Recordings:
        again = Shop(path, config, seed=4, filter_key="shop/chat")
        again.sent = shop.sent
        again.clock.advance(timedelta(days=1))
        await again.talk("ann", "s1", 4)
        recordings = await asyncio.to_thread(load_recordings, path, instruction=INSTRUCTION, tools=again.tools)
        await again.service.close()
        return recordings

    recordings = asyncio.run(go_on())
    write_recording(native, recordings)
    assert replayed(recordings, config) == shop.sent
    assert replayed(load_recordings(native), config) == shop.sent
    assert any(b"summary_of_previous" in body for body in shop.sent["s1"])
    # What isn't stored has to be given: without it, the requests are others.
    bare = replayed(load_recordings(path, user="ann"), config)["s1"]
    assert len(bare) == len(shop.sent["s1"])
    assert bare[0] != shop.sent["s1"][0]
