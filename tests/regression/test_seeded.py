"""WB-REG-05: nine regressions, each seeded on purpose, each caught by the suite that a user would write."""

from __future__ import annotations

from typing import Any

import pytest

from tests.regression.conftest import CONFIG, HEAD, SuiteFolder, failing
from tests.replay.test_audit import changed
from workbench.config import RunConfig
from workbench.context.assemble import Assembly
from workbench.context.incremental import ContentAssembler
from workbench.model.types import Message, Request
from workbench.regression.check import CheckResult
from workbench.summary import summarizer
from workbench.summary.boundary import record_boundary
from workbench.summary.text import Formatters, tool_result_text
from workbench.tokens import SimpleTokenCounter

LONG = "订单和物流都已经按照客户的要求处理完毕，客户表示满意。"


def place(result: CheckResult, expectation: str) -> tuple[str, int | None]:
    """Where the first failure of an expectation is."""
    failure = next(one for one in result.failures if one.expectation == expectation)
    assert failure.detail
    assert failure.limit is not None
    return failure.conversation, failure.call


def without_fact(text: str, request: Request) -> str:
    return text.replace("A1000", "一个订单")


def with_number(text: str, request: Request) -> str:
    return f"{text}\n退款 8250.75 元" if "A1002" in text else text


def in_english(text: str, request: Request) -> str:
    return "The customer asked about orders A1000 and A1001, and support has handled both of them."


def as_answer(text: str, request: Request) -> str:
    return f"好的，订单 A1000 我马上为您处理。{text[-20:]}"


def as_refusal(text: str, request: Request) -> str:
    return "A1000：请提供需要总结的对话内容。"


def as_tool_call(text: str, request: Request) -> str:
    return '<tool_call>{"name": "query", "arguments": {"n": 1}}</tool_call> A1000'


def too_long(text: str, request: Request) -> str:
    return text + LONG * 4


@pytest.mark.parametrize(
    ("change", "expectation", "call"),
    [
        (without_fact, "conversations.holds 'A1000'", 3),
        (with_number, "summaries.invented_numbers", 7),
        (in_english, "summaries.keeps_language", 3),
        (as_answer, "summaries.is_summary", 3),
        (as_refusal, "summaries.is_summary", 3),
        (as_tool_call, "summaries.is_summary", 3),
        (too_long, "summaries.max_words", 3),
    ],
    ids=["dropped-fact", "invented-number", "wrong-language", "answer", "refusal", "tool-call", "over-long"],
)
def test_a_worse_summary_is_caught_where_it_is(mine: SuiteFolder, change: Any, expectation: str, call: int) -> None:
    """WB-REG-05: the model was changed, and its summaries recorded anew."""
    assert mine.accepted().passed
    result = mine.record_anew(change)
    assert not result.passed
    assert place(result, expectation) == ("c1", call)


def test_an_answer_is_shown_with_what_to_do(mine: SuiteFolder) -> None:
    """WB-RET-04, WB-REG-02: whoever reads the failure can judge it."""
    mine.accepted()
    detail = mine.record_anew(as_answer).failures[0].detail
    assert (
        "it begins as an answer does: “好的，订单 A1000 我马上为您处理。”; let summarizer.prompt forbid that" in detail
    )
    assert "leave `is_summary` out" in detail


def test_a_prompt_without_its_instruction_is_caught_before_any_answer(mine: SuiteFolder) -> None:
    """WB-REG-04, WB-REG-05: with a cassette the request has no recorded answer."""
    mine.accepted()
    mine.write(config=CONFIG.replace("max_summary_words = 60", _PROMPT))
    result = mine.check()
    assert failing(result) == ["cassette"]
    assert place(result, "cassette") == ("c1", 3)
    detail = result.failures[0].detail
    assert "first differs in messages[0].content at character " in detail
    assert "`workbench check mine.suite.toml --record`" in detail
    assert "now “Summarise" in detail
    assert "the closest entry (line " in detail


_PROMPT = "prompt = '''Summarise.\n<conversation>\n{conversation_text}\n</conversation>'''"


def test_a_prompt_without_its_instruction_is_caught_without_a_cassette_too(mine: SuiteFolder) -> None:
    """WB-REG-05."""
    mine.write(head=HEAD)
    mine.check(accept=True)
    mine.write(head=HEAD, config=CONFIG.replace("max_summary_words = 60", _PROMPT))
    result = mine.check()
    assert place(result, "summaries.prompt_holds") == ("c1", 3)
    assert "doesn't say “Use only what the conversation says”" in str(result.failures)


def is_first_call(message: Message) -> bool:
    return any(call.id == "t0" for call in message.tool_calls)


def record_early(session: Any, event: Any) -> None:
    """The event before the last one that was summarised becomes the boundary."""
    ids = [one.id for one in session.events]
    record_boundary(session, session.events[max(ids.index(event.id) - 1, 0)])


def test_a_boundary_that_is_off_by_one_is_caught(mine: SuiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-REG-05."""
    mine.write(head=HEAD)
    mine.check(accept=True)
    monkeypatch.setattr(summarizer, "record_boundary", record_early)
    result = mine.check()
    assert place(result, "drift.moved_summaries") == ("c1", 3)
    assert "summary 0 ended at event 6, seen by call 3 before, ended at event 5" in str(result.failures)


def test_with_a_cassette_a_moved_boundary_is_caught_as_well(mine: SuiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-REG-04, WB-REG-05: the next request holds another conversation text."""
    mine.accepted()
    monkeypatch.setattr(summarizer, "record_boundary", record_early)
    assert failing(mine.check()) == ["cassette"]


def test_a_split_tool_pair_is_caught(mine: SuiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-REG-05: requests come out with a tool result whose call was left behind."""
    mine.accepted()
    assemble = ContentAssembler.assemble

    def assemble_badly(self: ContentAssembler, *args: Any, **kwargs: Any) -> Assembly:
        """Leave the first tool call out, and its result in."""
        return changed(
            assemble(self, *args, **kwargs), lambda i, message, position: [] if is_first_call(message) else [message]
        )

    monkeypatch.setattr(ContentAssembler, "assemble", assemble_badly)
    result = mine.check()
    assert place(result, "limits.protocol_violations.max") == ("c1", 1)
    assert "stray_result t0 by projection (c1, call 1)" in str(result.failures)


def doubled(config: RunConfig) -> SimpleTokenCounter:
    """A counter that sees twice as many tokens as there are."""
    return SimpleTokenCounter(config.counter.runes_per_token / 2)


def test_a_doubled_estimate_is_caught(mine: SuiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-REG-05: the engine's counter is wrong, nothing else has changed."""
    mine.write(head=HEAD)
    mine.check(accept=True)
    monkeypatch.setattr("workbench.build.engine_counter", doubled)
    monkeypatch.setattr("workbench.replay.conversation.engine_counter", doubled)
    result = mine.check()
    conversation, call = place(result, "drift.firings")
    assert conversation == "c1"
    assert call == 1


def test_a_doubled_estimate_in_the_configuration_says_which_option_it_was(mine: SuiteFolder) -> None:
    """WB-REG-05."""
    mine.write(head=HEAD)
    mine.check(accept=True)
    mine.write(head=HEAD, config=CONFIG.replace("runes_per_token = 1.0", "runes_per_token = 0.5"))
    result = mine.check()
    assert place(result, "drift.firings")[0] == "c1"
    assert "counter.runes_per_token 1.0 → 0.5" in " ".join(result.notes)


def test_a_changed_formatter_is_caught(mine: SuiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-REG-04: how a tool result is written into the conversation text is part of the request."""
    mine.accepted()
    changed = Formatters(tool_result=lambda message: tool_result_text(message).replace("returned", "gave"))
    monkeypatch.setattr(summarizer, "formatters_of", lambda *given: changed)
    result = mine.check()
    assert failing(result) == ["cassette"]
    assert "now “" in result.failures[0].detail


def test_an_engine_that_stops_halfway_is_caught_by_any_suite(
    mine: SuiteFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """WB-REG-05: fewer calls mean fewer tokens, which no upper limit would notice."""
    mine.write("[limits]\nprompt_tokens = { max = 100000 }\n", head=HEAD)
    assert mine.check().passed
    assemble = ContentAssembler.assemble

    def assemble_little(self: ContentAssembler, *args: Any, **kwargs: Any) -> Assembly:
        assembly = assemble(self, *args, **kwargs)
        if len(assembly.messages) > 4:
            raise RuntimeError("no room")
        return assembly

    monkeypatch.setattr(ContentAssembler, "assemble", assemble_little)
    result = mine.check()
    assert place(result, "replay") == ("c1", 2)
    refused = mine.check(accept=True)
    assert refused.accepted is None
    assert "nothing was accepted" in refused.notes[0]
    assert not (mine.folder / "mine.baseline.toml").exists()
    assert [one.value for one in result.failures] == ["2 of 16 calls", "2 of 14 calls"]
