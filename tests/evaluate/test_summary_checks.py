"""Checks of summaries without a model: limit, tool calls, answers, invented numbers, language, forbidden strings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import recorded, summarising
from workbench.evaluate.summary_checks import check_summaries, invented_number_rate, languages_of
from workbench.recordings import load_recordings
from workbench.replay.conversation import replay_conversation
from workbench.replay.trace import TABLES

__all__ = ["recorded"]  # the fixture of the replays
DATASETS = Path(__file__).resolve().parents[2] / "datasets"


@pytest.fixture
def check(recorded):
    """The result for one summary text of a short conversation."""

    def run(text: str, *, boundary: int = 3, said: str = "订单 HB-20417，共 1,580 元，3 月 6 日下单", **options: Any):
        turns = [
            ("user", said),
            ("assistant", "已查到订单"),
            ("user", "什么时候到？快递单号呢？"),
            ("assistant", "好的，单号是 SF-887766，预计后天送到您家里，请保持电话畅通。"),
        ]
        messages = [{"role": role, "content": content} for role, content in turns]
        (conversation,) = recorded({"id": "c", "messages": messages}).load()
        row = {
            "summary": 0, "status": "written", "text": text,
            "boundary_event_id": conversation.events[boundary].id,
        }  # fmt: skip
        (result,) = check_summaries(conversation, [row], **options)
        return result

    return run


def test_a_good_summary_has_no_fault(check):
    """WB-RET-04."""
    result = check("客户订单 HB-20417 共 1580 元，3月6日下单，快递 SF-887766。", max_words=60)
    assert result.faults == ()
    assert (result.numbers, result.invented, result.language) == (4, (), "zh")


def test_the_word_limit_is_kept(check):
    """WB-RET-04, WB-RPL-07b: each Han character is a word."""
    assert check("客户询问订单", max_words=6).keeps_limit
    assert check("客户询问订单", max_words=5).faults == ("too_long",)
    assert check("客户询问订单", max_words=0).max_words is None


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "query_order", "arguments": {"id": "HB-20417"}}',
        "客户要查订单。<tool_call>query</tool_call>",
        '{"tool_calls": []}',
        "<function=query>",
    ],
)
def test_a_tool_call_is_no_summary(text: str, check):
    """WB-RET-04."""
    assert "tool_call" in check(text).faults


def test_words_about_a_tool_are_no_call(check):
    """WB-RET-04."""
    assert not check('客服调用了 query_order，参数名为 "name"。').has_tool_call


@pytest.mark.parametrize(
    "text",
    ["好的，您的订单已发货。", "Sure, the order was sent.", "かしこまりました。", "네, 알겠습니다.", "您好，请问"],
)
def test_an_answer_is_no_summary(text: str, check):
    """WB-RET-04: in Chinese, English, Japanese, Korean."""
    assert "answer" in check(text).faults


def test_the_recorded_answer_instead_of_a_summary_is_an_answer(check):
    """WB-RET-04: what only the next answer says can't be a summary of what was before it."""
    text = "客户询问。好的，单号是 SF-887766，预计后天送到您家里，请保持电话畅通。"
    result = check(text, boundary=2)
    assert "answer" in result.faults
    assert "nearly the recorded answer: “好的，单号是 SF-887766" in result.answer
    assert "answer" in check(text.removeprefix("客户询问。").replace("后天", "明天"), boundary=2).faults
    assert "answer" not in check(text, boundary=3).faults


def test_a_summary_that_holds_the_next_answer_is_one(check):
    """WB-RET-04: it says more than the answer does."""
    text = "客户下了订单 HB-20417，共 1,580 元，3 月 6 日下单，问什么时候到，也问快递单号。客服已查到订单。"
    assert check(f"{text}好的，单号是 SF-887766，预计后天送到您家里，请保持电话畅通。", boundary=2).answer == ""


def one_summary(recorded: Any, messages: list[dict[str, Any]], text: str, *, boundary: int) -> Any:
    (conversation,) = recorded({"id": "c", "messages": messages}).load()
    row = {
        "summary": 0, "status": "written", "text": text,
        "boundary_event_id": conversation.events[boundary].id,
    }  # fmt: skip
    (result,) = check_summaries(conversation, [row])
    return result


def test_what_a_tool_call_says_is_no_answer(recorded):
    """WB-RET-04: a summary may name the file that is looked at next."""
    path = "src/ledger/exchange_rates/client_9.py"
    function = {"name": "read", "arguments": f'{{"path": "{path}"}}'}
    messages = [
        {"role": "user", "content": f"The rounding in {path} is wrong."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "t", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "t", "content": "def rounded(): ..."},
        {"role": "assistant", "content": "The rounding now goes half to even, as the tests of the ledger want."},
    ]
    for text in (f"The rounding in {path} is wrong.", path, f"Wrong rounding: {path}"):
        assert one_summary(recorded, messages, text, boundary=0).answer == ""
    answer = "The rounding now goes half to even, as tests of the ledger want."
    assert "answer" in one_summary(recorded, messages, answer, boundary=0).faults


@pytest.mark.parametrize(
    "canned",
    ["好的，您的问题已经记录下来，我们会在两个工作日内处理。", "Sure, your ticket is open; we answer in two days."],
)
def test_words_that_were_said_before_are_no_proof_of_an_answer(canned: str, recorded):
    """WB-RET-04: a reply that is always the same may be quoted."""
    messages = [{"role": role, "content": text} for role, text in [("user", "A-1?"), ("assistant", canned)] * 3]
    assert one_summary(recorded, messages, canned, boundary=3).answer == ""
    assert one_summary(recorded, messages, f"{canned} A-1", boundary=3).answer == ""
    assert "answer" in one_summary(recorded, messages, canned, boundary=0).faults


def test_a_number_that_nothing_before_says_is_invented(check):
    """WB-RET-04: invented-number rate."""
    result = check("订单 HB-20417 共 1,850 元，4月6日下单", boundary=1)
    assert result.invented == ("1,850 元", "4月6日")
    assert invented_number_rate([result]) == pytest.approx(2 / 3)
    assert invented_number_rate([]) is None


def test_a_number_that_comes_only_behind_the_boundary_is_invented(check):
    """WB-RET-04."""
    assert check("快递 SF-887766", boundary=2).invented == ("SF-887766",)
    assert check("快递 SF-887766", boundary=3).invented == ()


def test_the_language_of_the_conversation_is_kept(check):
    """WB-RET-04."""
    assert check("The customer asked when the order arrives.").faults == ("language",)
    assert check("").keeps_language


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("客户询问订单", ("zh",)),
        ("お客様はルーターの交換を希望しています", ("ja",)),
        ("고객이 환불을 요청했습니다", ("ko",)),
        ("The customer wants a refund", ("latin",)),
        ("修复 parse_fee in the module billing 的问题", ("latin", "zh")),
        ("1234", ()),
    ],
)
def test_languages_are_told_by_their_letters(text: str, languages: tuple[str, ...]):
    """WB-RET-04."""
    assert languages_of(text) == languages


def test_forbidden_strings_are_found_whatever_their_case(check):
    """WB-RET-04."""
    assert check("客户的 API_KEY 是", forbidden=["api_key", "密码"]).forbidden == ("api_key",)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["ja-support", "ko-support", "zh-service", "en-research"])
def test_the_extractive_source_passes(folder: str):
    """WB-RET-04, WB-RPL-07a: it invents nothing and keeps its limit and language."""
    columns = TABLES["summaries"].column_names
    n_checked = 0
    for conversation in list(load_recordings(DATASETS / folder))[-1:]:
        trace = replay_conversation(conversation, summarising(token=800, summarizer={"max_summary_words": 120}))
        rows = [dict(zip(columns, row, strict=True)) for row in trace.rows["summaries"]]
        results = check_summaries(conversation, rows, max_words=120, forbidden=["<summary>"])
        n_checked += len(results)
        assert [(one.summary, one.invented) for one in results if one.invented] == []
        assert [one.faults for one in results if one.faults] == []
    assert n_checked > 1
