"""What a summary request asks for: whose words it holds, and how long the summary may be."""

from __future__ import annotations

import time

import pytest

from workbench.model.request_text import CALL, SUMMARY, Block, conversation_of, word_limit
from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, ContentPart, Message, Request, ToolCall
from workbench.summary.prompt import MAX_SUMMARY_WORDS, built_in_fork_prompt, built_in_prompt, render
from workbench.wording import SOURCE_BOUNDARY_NOTE

TALK = (
    "user: Where is order A20417?\n"
    'assistant: [Called tool: find_order with args: {"id": "A20417"}]\n'
    "assistant: [find_order returned: shipped\non Monday]\n"
    "assistant: It was shipped.\nIt arrives soon."
)
BLOCKS = [
    Block(USER, "user", "Where is order A20417?"),
    Block(CALL, "call", '{"id": "A20417"}'),
    Block(TOOL, "tool", "shipped\non Monday"),
    Block(ASSISTANT, "assistant", "It was shipped.\nIt arrives soon."),
]


def standalone(prompt, *, system=""):
    """A request as SUM-REQ-01 has it."""
    messages = [Message(role=SYSTEM, content=system)] if system else []
    return Request(messages=(*messages, Message(role=USER, content=prompt)))


def built_in(text, limit=0):
    """The built-in prompt around a conversation text."""
    values = {"conversation_text": text, MAX_SUMMARY_WORDS: str(limit)}
    return standalone(render(built_in_prompt(limit), values))


def test_a_standalone_request_holds_the_text_between_its_tags():
    """WB-RPL-07a: the standalone payload."""
    assert conversation_of(built_in(TALK)) == BLOCKS


def test_without_tags_the_instruction_before_the_first_speaker_is_left_out():
    """WB-RPL-07a."""
    assert conversation_of(standalone(f"Sum this up in 90 words:\n{TALK}")) == BLOCKS
    assert conversation_of(standalone("no speaker at all")) == [Block(USER, "user", "no speaker at all")]


def test_a_conversation_may_quote_the_tags():
    text = f"{TALK}\nuser: what does\n</conversation>\nmean?"
    assert conversation_of(built_in(text))[-1] == Block(USER, "user", "what does\n</conversation>\nmean?")


def test_a_first_line_by_system_is_the_previous_summary():
    """WB-RPL-07a, SUM-RUN-03."""
    blocks = conversation_of(built_in(f"system: date: 2026-03-09\nAna wants tea.\nuser: I want tea.\n{TALK}"))
    assert blocks == [
        Block(SUMMARY, "", "date: 2026-03-09\nAna wants tea."),
        Block(USER, "user", "I want tea."),
        *BLOCKS,
    ]


def test_a_previous_summary_that_begins_with_a_speaker_is_not_nested():
    """WB-RPL-07a."""
    blocks = conversation_of(built_in(f"system: user: I want tea.\n{TALK}"))
    assert blocks == [Block(USER, "user", "I want tea."), *BLOCKS]


def test_a_previous_summary_may_stand_between_tags_of_its_own():
    """WB-RPL-07a."""
    prompt = (
        "Update the summary.\n<previous_summary>\nAna wants tea.\n</previous_summary>\n"
        f"<new_conversation>\n{TALK}\n</new_conversation>\nSummary, 80 words:"
    )
    request = standalone(prompt)
    assert conversation_of(request) == [Block(SUMMARY, "", "Ana wants tea."), *BLOCKS]
    assert word_limit(request) == 80


def test_a_late_system_line_is_no_summary():
    assert conversation_of(built_in("user: hi\nsystem: maintenance at 9")) == [
        Block(USER, "user", "hi"),
        Block(SYSTEM, "system", "maintenance at 9"),
    ]


def test_speakers_are_known_by_what_they_do():
    """Labels inside a message are text: only the usual names and those that call tools or answer are speakers."""
    text = (
        "user: my data\nemail: ana@example.com\n"
        "planner: [Called tool: look]\nplanner: Found it.\n"
        "user: and now?\nbooker: Done.\nuser: sure?\nbooker: Yes."
    )
    blocks = conversation_of(built_in(text))
    assert [block.label for block in blocks] == ["user", "planner", "user", "booker", "user", "booker"]
    assert blocks[0].text == "my data\nemail: ana@example.com"


def test_a_fork_holds_all_messages_before_its_instruction():
    """WB-RPL-07a: fork messages before the last instruction."""
    messages = (
        Message(role=SYSTEM, content="You help with orders."),
        Message(
            role=USER, content_parts=(ContentPart("text", "Where is order A20417?"), ContentPart("image", url="x"))
        ),
        Message(role=ASSISTANT, tool_calls=(ToolCall("c1", "find_order", '{"id": "A20417"}'), ToolCall("c2", "now"))),
        Message(role=TOOL, tool_id="c1", content="shipped\non Monday"),
        Message(role=ASSISTANT, content="It was shipped.\nIt arrives soon."),
        Message(role=USER, content=render(built_in_fork_prompt(60), {MAX_SUMMARY_WORDS: "60"})),
    )
    assert conversation_of(Request(messages=messages)) == BLOCKS
    assert word_limit(Request(messages=messages)) == 60


@pytest.mark.parametrize("role", [SYSTEM, USER])
def test_a_fork_carries_the_injected_summary(role):
    """WB-RPL-07a, ASM-INJ-10."""
    block = (
        "Context from previous interactions:\n\n<summary_of_previous_interactions>\n"
        "date: 2026-03-09\nuser: I want tea.\n</summary_of_previous_interactions>\n\nMay be old.\n"
    )
    messages = (
        Message(role=role, content=block),
        Message(role=USER, content="Two cups."),
        Message(role=USER, content="Summarize."),
    )
    assert conversation_of(Request(messages=messages)) == [
        Block(SUMMARY, "", "date: 2026-03-09"),
        Block(USER, "user", "I want tea."),
        Block(USER, "user", "Two cups."),
    ]


@pytest.mark.parametrize(
    ("instruction", "limit"),
    [
        ("Keep it within 150 words.", 150),
        ("Use at most 1,000 words.", 1000),
        ("Write a 120-word summary.", 120),
        ("Between 50 and 90 words.", 90),
        ("请控制在 180 字以内。", 180),
        ("不超过200个字", 200),
        ("最多 80 个词", 80),
        ("300文字以内で要約してください。", 300),
        ("100語以内で", 100),
        ("250자 이내로 요약하세요.", 250),
        ("60단어 이내로", 60),
        ("Limit: 75", 75),
        ("上限 90", 90),
        ("要約は120以内", 120),
        ("Use 3 parts.", None),
        ("At most 0 words.", None),
        ("Be short.", None),
        ("", None),
    ],
)
def test_the_word_limit_is_read_from_the_instruction(instruction, limit):
    """WB-RPL-07a: the word limit."""
    assert word_limit(standalone(f"{instruction}\n<conversation>\n{TALK}\n</conversation>")) == limit
    assert word_limit(standalone(f"<conversation>\n{TALK}\n</conversation>", system=instruction)) == limit


def test_numbers_in_the_conversation_are_no_limit():
    """WB-RPL-07a."""
    assert word_limit(built_in("user: Write me an essay of at most 500 words.", limit=40)) == 40
    assert word_limit(built_in("user: Write me an essay of at most 500 words.")) is None


def test_a_fork_prompt_behind_the_source_note_is_instruction():
    """SUM-REQ-05."""
    request = standalone(f"Sum up:\n{TALK}\n\n{SOURCE_BOUNDARY_NOTE}\n\nUse at most 70 words.")
    assert conversation_of(request) == BLOCKS
    assert word_limit(request) == 70


def test_an_empty_request_holds_nothing():
    assert conversation_of(Request()) == []
    assert word_limit(Request()) is None
    assert conversation_of(built_in("")) == []


@pytest.mark.parametrize(
    "unit", ["<a>\n", "<conversation>\n", "user: a\n", "x: [", "user: a\nb: c\n", "system: ", "9 "]
)
def test_reading_takes_time_in_proportion_to_the_text(unit):
    request = built_in(unit * (100_000 // len(unit)))
    before = time.process_time()
    conversation_of(request)
    word_limit(request)
    assert time.process_time() - before < 2
