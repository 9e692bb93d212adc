"""A small suite as a user would write it: two conversations, a cassette, an accepted baseline."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat
from workbench.call import EMPTY_CONTEXT
from workbench.model.extractive import ExtractiveModel
from workbench.model.scripted import ScriptedModel
from workbench.model.types import Request
from workbench.regression.check import CheckResult, check
from workbench.replay.loop import VirtualLoop

CONFIG = """
[config.summarizer]
max_summary_words = 60
[config.trigger]
token = 300
[config.agent]
add_session_summary = true
[config.counter]
runes_per_token = 1.0
[config.billing]
encoding = "runes:1"
"""
EXPECTATIONS = """
[limits]
firings = { min = 2, max = 12 }
failed_summaries = { max = 0 }
protocol_violations = { max = 0 }
coverage_violations = { max = 0 }

[each]
peak_prompt_tokens = { max = 2000 }

[summaries]
max_words = 60
invented_numbers = 0
keeps_language = true
is_summary = true
forbidden = ["as an AI"]
prompt_holds = ["Use only what the conversation says"]

[[conversations]]
id = "c1"
holds = ["A1000"]
lacks = ["退款失败"]

[drift]
prompt_tokens = 0.02
summary_tokens = 0.1
firings = 0
moved_summaries = 0
lost_facts = 0
"""
HEAD = 'suite = 1\nrecordings = ["chats.jsonl"]\n'
WITH_CASSETTE = 'cassette = "answers.jsonl"\n'


class SuiteFolder:
    """A folder with recordings and a suite; `model` answers what isn't recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "mine.suite.toml"
        self.write()

    def record_chats(self, *conversations: dict[str, Any]) -> None:
        lines = [json.dumps(conversation, ensure_ascii=False) for conversation in conversations]
        (self.folder / "chats.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def write(
        self, expectations: str = EXPECTATIONS, *, head: str = HEAD + WITH_CASSETTE, config: str = CONFIG
    ) -> None:
        self.path.write_text(head + expectations + config, encoding="utf-8")

    def check(self, **options: Any) -> CheckResult:
        return check(self.path, **options)

    def accepted(self, model: Any = None) -> CheckResult:
        """Record good summaries and accept what they give."""
        return self.check(model=model or summing_up(), accept=True)

    def record_anew(self, change: Callable[[str, Request], str]) -> CheckResult:
        """Somebody changed the model: all summaries are recorded again, with a fault."""
        (self.folder / "answers.jsonl").unlink()
        self.check(model=summing_up(change))
        return self.check()


def summing_up(change: Callable[[str, Request], str] = lambda text, request: text) -> ScriptedModel:
    """A model that sums up by rule, and a change of each answer."""

    def answer(request: Request) -> str:
        return change(extract_of(request), request)

    return ScriptedModel(answer, name="small")


def extract_of(request: Request) -> str:
    async def text() -> str:
        responses = [response async for response in ExtractiveModel().generate(EMPTY_CONTEXT, request)]
        return responses[-1].choices[0].message.content

    loop = VirtualLoop()
    try:
        return loop.run(text())
    finally:
        loop.close()


@pytest.fixture
def mine(tmp_path: Path) -> SuiteFolder:
    folder = SuiteFolder(tmp_path)
    folder.record_chats(chat(8, ident="c1"), chat(7, ident="c2"))
    return folder


def failing(result: CheckResult) -> list[str]:
    """Expectations that failed, each once, in order."""
    return list(dict.fromkeys(one.expectation for one in result.failures))


def found(result: CheckResult, expectation: str) -> Sequence[Any]:
    """Findings of one expectation."""
    return [one for one in result.findings if one.expectation == expectation]
