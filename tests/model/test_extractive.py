"""Summaries picked out of the text: what is kept, in which form, within which limit."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.call import EMPTY_CONTEXT
from workbench.errors import ConfigError
from workbench.facts import KINDS, Mentions, argument_values, candidates, words
from workbench.model.client import Model
from workbench.model.extractive import ExtractiveModel, summary_text
from workbench.model.request_text import CALL, SUMMARY, Block, conversation_of
from workbench.model.types import ASSISTANT, TOOL, USER, Message, Request
from workbench.summary.prompt import MAX_SUMMARY_WORDS, built_in_prompt, render

ENGLISH = """user: Hello! I want to move my booking A20417 to March 9, 2026.
assistant: Of course. May I have your e-mail address?
user: It is ana.bell@example.com.
assistant: [Called tool: find_booking with args: {"booking_id": "A20417"}]
assistant: [find_booking returned: {"hotel": "Green Harbour Inn", "nights": 3, "price": 412.5, "room": "R218"}]
assistant: Your booking A20417 at the Green Harbour Inn costs $412.50. The new date is free.
user: Thanks, please confirm it. I don't want breakfast.
assistant: Confirmed. Have a nice day!"""

CHINESE = """user: 你好，我想把订单A20417改到2026年3月9日下午3点。
assistant: 好的，请问您的电话是多少？
user: 电话是021-55501328，入住人是两位大人。
assistant: 已经查到，您住的是青石巷民宿，一共1280元。
user: 那就这样决定吧，不要早餐。
assistant: 好的，青石巷民宿已经确认。祝您旅途愉快！"""

JAPANESE = """user: こんにちは。予約A20417を3月9日の15時に変更したいです。
assistant: かしこまりました。お電話番号を教えてください。
user: 03-5550-0132です。部屋は「桜の間」がいいです。
assistant: 桜通りゲストハウスの料金は12,500円です。
user: それでお願いします。朝食は必要ありません。
assistant: 予約を変更しました。ありがとうございます。"""

KOREAN = """user: 안녕하세요. 예약 A20417을 3월 9일 오후 3시로 변경해 주세요.
assistant: 네, 전화번호를 알려 주세요.
user: 02-5550-0132입니다. 조식은 필요 없어요.
assistant: 한강게스트하우스 요금은 85,000원입니다.
user: 좋아요, 그렇게 하기로 할게요.
assistant: 예약이 확인되었습니다. 감사합니다."""

TALKS = {"en": ENGLISH, "zh": CHINESE, "ja": JAPANESE, "ko": KOREAN}


def request_for(text, limit=0):
    """The summarizer's own request for a conversation text."""
    values = {"conversation_text": text, MAX_SUMMARY_WORDS: str(limit)}
    return Request(messages=(Message(role=USER, content=render(built_in_prompt(limit), values)),))


def response_to(request, **settings):
    """What the model answers."""

    async def ask():
        return [response async for response in ExtractiveModel(**settings).generate(EMPTY_CONTEXT, request)]

    (response,) = asyncio.run(ask())
    return response


def summary_of(text, limit=0, **settings):
    """The summary of a conversation text."""
    return response_to(request_for(text, limit), **settings).choices[0].message.content


def ledger_of(summary):
    """Class -> values of a summary's ledger."""
    parts = (line.partition(": ") for line in summary.splitlines())
    return {kind: values.split(", ") for kind, _, values in parts if kind in KINDS}


# --- what is kept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "facts"),
    [
        ("en", ["A20417", "March 9, 2026", "ana.bell@example.com", "Green Harbour Inn", "$412.50"]),
        ("zh", ["A20417", "2026年3月9日", "下午3点", "021-55501328", "青石巷民宿", "1280元"]),
        ("ja", ["A20417", "3月9日", "15時", "03-5550-0132", "桜通りゲストハウス", "12,500円"]),
        ("ko", ["A20417", "3월 9일", "오후 3시", "02-5550-0132", "한강게스트하우스", "85,000원"]),
    ],
)
def test_the_facts_of_a_conversation_are_in_its_summary(language, facts):
    """WB-RPL-07a, in four languages."""
    mentions = Mentions(summary_of(TALKS[language], 90))
    assert [fact for fact in facts if candidates(fact)[0] not in mentions] == []


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "I don't want breakfast."),
        ("zh", "那就这样决定吧，不要早餐。"),
        ("ja", "朝食は必要ありません。"),
        ("ko", "좋아요, 그렇게 하기로 할게요."),
    ],
)
def test_a_decision_is_kept_as_it_was_said(language, sentence):
    """WB-RPL-07a: decision cues in zh/ja/ko/en; the language of the conversation stays."""
    assert sentence in summary_of(TALKS[language], 90)


def test_sentences_stand_in_source_order_with_who_said_them():
    """WB-RPL-07a: output in source order with role."""
    lines = summary_of(ENGLISH, 80).splitlines()
    told = [line for line in lines if line.split(":")[0] in {"user", "assistant"}]
    assert len(told) > 3
    starts = [ENGLISH.find(line.split(": ", 1)[1].split(".")[0]) for line in told]
    assert -1 not in starts
    assert starts == sorted(starts)


def test_what_one_speaker_said_at_a_time_is_one_line():
    blocks = [Block(USER, "user", "Please cancel order A20417. Never mind the fee.")]
    told = summary_text(blocks, 30, ledger_share=0)
    assert told == "user: Please cancel order A20417. Never mind the fee."


def test_the_ledger_lists_facts_by_class():
    """WB-RPL-07a: `class: a, b, c`."""
    ledger = ledger_of(summary_of(ENGLISH, 100))
    assert ledger["identifier"][0] == "A20417"
    assert ledger["email"] == ["ana.bell@example.com"]
    assert [kind for kind in KINDS if kind in ledger] == list(ledger)


def test_the_ledger_keeps_to_its_share():
    """WB-RPL-07a: a share (default 0.25) of the limit."""
    for share in (0.0, 0.25, 0.5):
        lines = summary_of(ENGLISH, 40, ledger_share=share).splitlines()
        ledger = [line for line in lines if line.split(":")[0] in KINDS]
        assert words("\n".join(ledger)) <= 40 * share


def test_a_fact_said_by_both_in_many_rounds_comes_before_one_seen_once():
    """WB-RPL-07a: rounds, said by user, said by assistant."""
    blocks = [
        Block(TOOL, "tool", "rows B11111 and C22222 and D33333"),
        Block(USER, "user", "Take C22222."),
        Block(ASSISTANT, "assistant", "C22222 it is."),
        Block(USER, "user", "Good."),
        Block(TOOL, "tool", "rows E44444 and F55555"),
    ]
    assert ledger_of(summary_text(blocks, 8)) == {"identifier": ["C22222"]}


def test_of_equal_facts_the_newer_one_comes_first_and_then_the_earlier_place():
    """WB-RPL-07a: recency; ties by position."""
    old, new = Block(USER, "user", "B11111 or C22222"), Block(USER, "user", "E44444 or D33333")
    assert ledger_of(summary_text([old, new], 8)) == {"identifier": ["E44444"]}
    assert ledger_of(summary_text([old], 8)) == {"identifier": ["B11111"]}


def test_a_sentence_over_forty_words_is_cut_at_commas():
    """WB-RPL-07a."""
    parts = [f"part {i} is about item number {i} of it" for i in range(20)]
    parts[7] = "the root cause is pump P-7718 here"
    told = summary_text([Block(ASSISTANT, "assistant", ", ".join(parts))], 40, ledger_share=0)
    assert "P-7718" in told
    assert words(told) <= 40


def test_the_number_of_a_list_item_is_no_sentence():
    told = summary_text([Block(ASSISTANT, "assistant", "1. Room R218 is free. 2. Room R219 is not.")], 50)
    assert "assistant: 1. Room R218 is free. 2. Room R219 is not." in told


def test_arguments_count_by_their_values_and_tool_names_not_at_all():
    """WB-RET-01a: tool names and JSON keys are schema."""
    summary = summary_of(
        'user: Go.\nassistant: [Called tool: find_booking_2 with args: {"booking_id_9": "A20417"}]', 50
    )
    assert "A20417" in summary
    assert "find_booking_2" not in summary
    assert "booking_id_9" not in summary


def test_a_chinese_run_shared_with_earlier_text_is_a_fact_of_its_own():
    """WB-RPL-07a, WB-RET-01a."""
    blocks = [
        Block(USER, "user", "昨晚参观青石巷博物馆夜场"),
        Block(ASSISTANT, "assistant", "重访青石巷博物馆展厅"),
    ]
    assert "青石巷博物馆" in ledger_of(summary_text(blocks, 60))["cjk"]


# --- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", TALKS)
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 20, 50, 1000])
def test_the_word_limit_of_the_request_is_kept(language, limit):
    """WB-RPL-07a, WB-RPL-07b, WB-RET-04."""
    summary = summary_of(TALKS[language], limit)
    assert 0 < words(summary) <= limit


def test_without_a_limit_in_the_request_the_models_own_holds():
    """WB-RPL-07a: default 200."""
    text = "\n".join(f"user: Item X{i:04d} needs to be checked before the ship leaves port {i}." for i in range(200))
    assert 150 < words(summary_of(text)) <= 200
    assert words(summary_of(text, max_words=50)) <= 50


def test_text_without_spaces_does_not_buy_room():
    """Minified JSON is one word by the count, and would still fill a window."""
    row = json.dumps([{"id": f"A{i:05d}", "n": i} for i in range(300)], separators=(",", ":"))
    assert len(summary_of(f"user: Show all.\nassistant: [list returned: {row}]", 100)) < 3_000


PIECES = (
    "user: ", "assistant: ", "system: ", "\n", " ", "A20417", "3月9日", "确认青石巷民宿", "。", ". ", "Ana Bell", "date: 2026-03-09",
    "identifier: A1B2C3, D4E5F6", "name: Ana Bell", '[Called tool: f with args: {"a": "B77"}]', "[f returned: C88-9]",
    "サーバールーム", "예약을 변경", "we must cancel, ", "$1,250", ", ", ": ", "<conversation>", "</conversation>", '"', "x" * 50,
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(TEXTS | st.text(max_size=60), st.integers(1, 60), st.sampled_from([0.0, 0.25, 1.0]))
def test_no_text_breaks_the_limit_and_the_same_text_gives_the_same_summary(text, limit, share):
    """WB-RPL-07a, WB-RPL-09."""
    summary = summary_of(text, limit, ledger_share=share)
    assert words(summary) <= limit
    assert summary == summary_of(text, limit, ledger_share=share)


@given(TEXTS, st.lists(TEXTS, max_size=3), st.integers(5, 60))
def test_repeated_summaries_stay_in_the_limit_and_nest_no_labels(text, later, limit):
    """WB-RPL-07a: lines of the previous summary are units."""
    summary = summary_of(text, limit)
    for more in later:
        summary = summary_of(f"system: {summary}\nuser: {more}", limit)
        assert words(summary) <= limit


# --- over several rounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", TALKS)
def test_a_previous_summary_is_read_back_not_repeated_as_a_sentence(language):
    """WB-RPL-07a."""
    first = summary_of(TALKS[language], 60)
    summary = first
    for number in range(4):
        summary = summary_of(f"system: {summary}\nuser: Step {number}.", 60)
        lines = summary.splitlines()
        labels = [line.split(": ")[0] for line in lines if line.split(": ")[0] in KINDS]
        assert labels == list(dict.fromkeys(labels))
        assert words(summary) <= 60
        assert "system:" not in summary
        assert not any(f"{one}: {two}: " in summary for one in ("user", "assistant") for two in ("user", "assistant"))
    kept = Mentions(summary)
    assert [
        one.value for one in candidates(first) if one.kind in {"identifier", "phone", "email"} and one not in kept
    ] == []


def test_lines_of_another_models_summary_stay_lines():
    """WB-RPL-07a: lines of the previous summary are units."""
    summary = summary_of(
        "system: Ana Bell decided to keep booking A20417.\nShe pays by card.\nuser: What is left to do?", 60
    )
    assert "\nAna Bell decided to keep booking A20417. She pays by card.\nuser: What is left to do?" in summary
    assert ledger_of(summary)["name"] == ["Ana Bell"]


def test_every_ledger_line_reads_back_as_it_was_written():
    """WB-RPL-07a."""
    for talk in TALKS.values():
        ledger = ledger_of(summary_of(talk, 100, ledger_share=1.0))
        again = ledger_of(summary_text([Block(SUMMARY, "", f"{k}: {', '.join(v)}") for k, v in ledger.items()], 500))
        assert {kind: sorted(values) for kind, values in again.items()} == {
            kind: sorted(values) for kind, values in ledger.items()
        }


# --- the model -----------------------------------------------------------------------------------------------


def test_it_is_a_model_that_reports_no_usage():
    """WB-RPL-07a: a Model."""
    assert isinstance(ExtractiveModel(), Model)
    response = response_to(request_for(ENGLISH))
    assert response.done
    assert not response.is_partial
    assert response.usage is None
    assert ExtractiveModel(name="x", context_window=9).context_window == 9


def test_a_fork_and_a_standalone_request_give_the_same_summary():
    """WB-RPL-07a: standalone payload, or fork messages before the last instruction."""
    messages = tuple(
        Message(role=USER if line.startswith("user: ") else ASSISTANT, content=line.split(": ", 1)[1])
        for line in CHINESE.splitlines()
    )
    fork = Request(messages=(*messages, Message(role=USER, content="请控制在 50 字以内。")))
    assert response_to(fork).choices[0].message.content == summary_of(CHINESE, 50)


def test_nothing_said_gives_nothing():
    assert summary_of("", 50) == ""
    assert response_to(Request()).choices[0].message.content == ""


def test_what_has_no_sentence_is_cut():
    assert summary_text([Block(USER, "user", "word " * 50)], 7) == "word word word word word word word"
    assert summary_text([Block(USER, "user", "。。。")], 7) == "。。。"


@pytest.mark.parametrize(("field", "value"), [("max_words", 0), ("max_words", True), ("ledger_share", 1.5)])
def test_settings_out_of_range_are_refused(field, value):
    with pytest.raises(ConfigError, match=field):
        ExtractiveModel(**{field: value})


@pytest.mark.parametrize(
    "unit", ["user: we must check item X77. ", "青石巷民宿已经确认，", '{"id": "A77"}, ', "a, b 12 ", "call: "]
)
def test_time_grows_with_the_text_and_no_faster(unit):
    """WB-RPL-07a."""
    request = request_for("user: " + unit * (60_000 // len(unit)))
    before = time.process_time()
    response_to(request)
    assert time.process_time() - before < 3


# --- real conversations ------------------------------------------------------------------------------------------


def lines_of(messages):
    """The conversation text of recorded chat messages."""
    for message in messages:
        for call in message.get("tool_calls") or ():
            yield f"assistant: [Called tool: {call['function']['name']} with args: {call['function']['arguments']}]"
        if content := message.get("content"):
            is_result = message["role"] == "tool"
            yield (
                f"assistant: [{message['name']} returned: {content}]" if is_result else f"{message['role']}: {content}"
            )


def used_later(messages):
    """Candidates of what the assistant said and asked tools for."""
    for message in messages:
        if message["role"] == "assistant":
            arguments = (argument_values(call["function"]["arguments"]) for call in message.get("tool_calls") or ())
            yield from candidates("\n".join([message.get("content") or "", *arguments]))


def test_most_of_what_is_needed_later_is_in_the_summary(shared_path):
    """WB-RPL-07a: at 200 words about 0.89 of the needed facts on tau-bench."""
    path = shared_path / "data" / "tau-bench" / "gpt-4o-airline.tasks00-24.json"
    n_needed = n_kept = 0
    for task in json.loads(path.read_text(encoding="utf-8"))[:16]:
        system, *messages = task["traj"]
        middle = len(messages) // 2
        text = "\n".join(lines_of(messages[:middle]))
        said, given = Mentions(text), Mentions(system["content"])
        kept = Mentions(summary_of(text, 200))
        later = {one.key: one for one in used_later(messages[middle + 4 :]) if one in said and one not in given}
        n_needed += len(later)
        n_kept += sum(one in kept for one in later.values())
    assert n_needed > 60
    assert n_kept / n_needed > 0.8


def test_the_blocks_that_tests_use_are_what_requests_hold():
    assert [block.role for block in conversation_of(request_for(ENGLISH))] == [
        USER, ASSISTANT, USER, CALL, TOOL, ASSISTANT, USER, ASSISTANT,
    ]  # fmt: skip
