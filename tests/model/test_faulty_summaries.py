"""Summaries over a model that fails in every known way: nothing changes, and the run goes on (REL-09, SEC-08)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.service.helpers import say, session_with
from workbench.errors import SummaryError
from workbench.model.cassette import Cassette, CassetteModel
from workbench.model.types import Message, Request
from workbench.selftest.fake_server import ECHOES, FAULTS, ODDITIES, FakeServer, saying
from workbench.selftest.faulty_model import (
    CANARY_FIELD,
    CANARY_HEADER,
    CANARY_KEY,
    EXPECTED,
    SAYS_NOTHING,
    assert_no_canary,
    everything_about,
    model_of,
)
from workbench.selftest.model_faults import USES, fail, summarise, take
from workbench.selftest.tally import Tally
from workbench.service.service import SessionService
from workbench.service.settings import ServiceSettings
from workbench.session.types import SessionKey
from workbench.store.memory import InMemoryStore
from workbench.summary.summarizer import Summarizer

KEY = SessionKey("app", "user", "s")
PARENT = Request(
    messages=(Message("system", "你是客服。"), Message("user", "text 1"), Message("assistant", "text 2")),
    headers={"x-tenant": CANARY_HEADER},
    extra_fields={"tenant": CANARY_FIELD},
)


SAMPLE = {
    "first-byte-timeout",
    "context-openai",
    "server-error",
    "empty-text",
    "stream-without-end",
    "fine",
    "comments",
}


def in_every_use(names: Iterable[str]) -> list[Any]:
    """Each name in each use; of the uses in the background the quick tests take a sample."""
    return [
        pytest.param(name, use, marks=() if use in USES[:2] or name in SAMPLE else pytest.mark.slow)
        for name in names
        for use in USES
    ]


@pytest.mark.parametrize(("name", "use"), in_every_use([*EXPECTED, *SAYS_NOTHING]))
def test_a_summary_that_fails_changes_nothing(server: FakeServer, name: str, use: str) -> None:
    """REL-09: one typed error, events and old summary as before, boundary not moved, attempts bounded."""
    tally = Tally("model faults", "something changed", "other errors", "other attempts")
    asyncio.run(fail(server, name, use, tally))
    assert tally.examples == []


@pytest.mark.parametrize(("name", "use"), in_every_use(["fine", *ODDITIES]))
def test_a_summary_over_an_oddity_is_complete(server: FakeServer, name: str, use: str) -> None:
    """REL-09."""
    tally = Tally("odd answers", "not taken", "not complete")
    asyncio.run(take(server, name, use, tally))
    assert tally.examples == []


def test_a_request_that_is_too_long_is_tried_once_more_at_half_the_budget(server: FakeServer) -> None:
    """REL-09, SUM-CALL-03."""

    async def main() -> None:
        server.script("short", FAULTS["context-llama-cpp"], saying("短的摘要"))
        model = model_of(server, "short", context_window=1000)
        summarizer = Summarizer(model, prompt="{conversation_text}")
        service = SessionService(InMemoryStore(event_limit=0), settings=ServiceSettings(), summarizer=summarizer)
        await session_with(service, say(1, "话" * 2400), say(2, role="assistant"))
        await summarise(service, "standalone")
        session = await service.get_session(KEY)
        assert session is not None
        assert session.summaries[""].summary == "短的摘要"
        lengths = [len(one.body["messages"][-1]["content"]) for one in server.received if one.body["model"] == "short"]
        assert len(lengths) == 2
        assert lengths[1] // 4 <= 350 < lengths[0] // 4
        await service.close()

    asyncio.run(main())


@pytest.mark.parametrize("name", ["fine", "wrong-key", "stream-error-object", *ECHOES[:5]])
def test_a_fork_sends_the_parent_s_headers_and_fields_to_the_wire_only(
    server: FakeServer, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-08: not into errors with all their frames' locals, logs, reports or cassettes."""
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    async def main() -> None:
        model = model_of(server, name, api_key=CANARY_KEY, stream="stream" in name)
        recorder = CassetteModel(Cassette(tmp_path / "answers.jsonl"), model, "auto")
        summarizer = Summarizer(
            recorder,
            prompt="{conversation_text}",
            cache_safe_forking=True,
            report_hook=lambda ctx, report: told.append(repr(report)),
        )
        service = SessionService(InMemoryStore(event_limit=0), settings=ServiceSettings(), summarizer=summarizer)
        await session_with(service, say(1), say(2, role="assistant"))
        try:
            await summarise(service, "fork", parent=PARENT)
        except SummaryError as error:
            told.extend(everything_about(error))
        await service.close()

    asyncio.run(main())
    received = server.received[-1]
    assert received.headers["authorization"] == f"Bearer {CANARY_KEY}"
    assert received.headers["x-tenant"] == CANARY_HEADER
    assert received.body["tenant"] == CANARY_FIELD
    files = [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()]
    assert (len(files), len(told) > 0) == (1 if name == "fine" else 0, True)
    assert_no_canary(caplog.text, *told, *files)


def test_usage_that_cannot_be_true_is_no_number_in_the_report(server: FakeServer) -> None:
    """REL-09, SUM-REP-06."""
    reports: list[tuple[int, int]] = []

    async def main() -> None:
        for name in ("fine", "usage-absurd"):
            summarizer = Summarizer(
                model_of(server, name),
                prompt="{conversation_text}",
                report_hook=lambda ctx, report: reports.append((report.call.prompt_tokens, report.call.cached_tokens)),
            )
            service = SessionService(InMemoryStore(event_limit=0), settings=ServiceSettings(), summarizer=summarizer)
            await session_with(service, say(1))
            await summarise(service, "standalone")
            await service.close()

    asyncio.run(main())
    assert reports == [(120, 100), (0, 0)]
