"""Reading answers from bytes: the same answer however the bytes are cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import ModelError, ModelStreamError
from workbench.model.call_faults import Censor, Faults
from workbench.model.chat_wire import MAX_BODY_BYTES, MAX_LINE_BYTES, StreamedAnswer, WholeAnswer, usage_of
from workbench.model.types import Message, Response, ToolCall, Usage
from workbench.selftest.fake_server import TEXT, chunk, end_events, event, text_events, whole

CALLS = b"".join(
    event(chunk({"tool_calls": [piece]}))
    for piece in (
        {"index": 0, "id": "t1", "type": "function", "function": {"name": "query", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"城市": "北'}},
        {"index": 1, "id": "t2", "function": {"name": "look", "arguments": "{}"}, "extra_content": {"a": [1]}},
        {"index": 0, "function": {"arguments": '京"}'}},
    )
)
STREAMS = {
    "text": text_events("上\u2028下\x85🙂\u2029 \U0001f9ea") + end_events(),
    "crlf": (text_events() + end_events()).replace(b"\n", b"\r\n"),
    "cr": (text_events() + end_events()).replace(b"\n", b"\r"),
    "calls": CALLS + end_events(finish="tool_calls"),
    "comments": b": a\r\n\r\n" + text_events() + b":\n\n" + end_events(),
    "two-lines": b'data: {"id": "x", "choices":\ndata: [{"index": 0, "delta": {"content": "hi"},\ndata: "finish_reason": "stop"}]}\n\n',
    "piece-behind-the-end": text_events() + event(chunk({}, finish="stop")) + event(chunk()) + event("[DONE]"),
    "no-last-line-end": (text_events() + end_events()).rstrip(b"\n"),
    "byte-order-mark": b"\xef\xbb\xbf" + text_events() + end_events(),
}
STREAMS["two-lines-crlf"] = STREAMS["two-lines"].replace(b"\n", b"\r\n")


def read(parts: list[bytes]) -> tuple[list[Response], Response]:
    reader = StreamedAnswer(Faults("m", Censor()))
    partial = [response for part in parts for response in reader.feed(part)]
    return partial, reader.finish()


def cut_at(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 2000), max_size=12))
def test_a_stream_reads_the_same_wherever_it_is_cut(name: str, places: list[int]) -> None:
    """REL-09, M18."""
    data = STREAMS[name]
    assert read(cut_at(data, [place % (len(data) + 1) for place in places])) == read([data])


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_reads_the_same_byte_by_byte(name: str) -> None:
    """REL-09, M18."""
    data = STREAMS[name]
    assert read([data[i : i + 1] for i in range(len(data))]) == read([data])


def test_the_texts_of_a_stream_are_those_that_were_sent() -> None:
    assert read([STREAMS["text"]])[1].choices[0].message.content == "上\u2028下\x85🙂\u2029 \U0001f9ea"
    for name in ("crlf", "cr", "comments", "no-last-line-end", "byte-order-mark", "piece-behind-the-end"):
        assert read([STREAMS[name]])[1].choices[0].message == Message("assistant", TEXT)
    assert read([STREAMS["two-lines"]])[1].choices[0].message.content == "hi"


def test_pieces_of_tool_calls_come_together_by_their_index() -> None:
    partial, response = read([STREAMS["calls"]])
    assert partial == []
    assert response.choices[0].message.tool_calls == (
        ToolCall("t1", "query", '{"城市": "北京"}', index=0),
        ToolCall("t2", "look", "{}", index=1, extra_fields=(("extra_content", '{"a":[1]}'),)),
    )


def test_pieces_of_tool_calls_without_an_index_belong_to_the_last_call_unless_their_id_is_new() -> None:
    pieces = [
        {"id": "t1", "function": {"name": "query", "arguments": "{"}},
        {"function": {"arguments": "}"}},
        {"id": "t2", "function": {"name": "look", "arguments": {"n": 1}}},
    ]
    _, response = read([*(event(chunk({"tool_calls": [piece]})) for piece in pieces), end_events()])
    assert [(call.id, call.arguments) for call in response.choices[0].message.tool_calls] == [
        ("t1", "{}"),
        ("t2", '{"n":1}'),
    ]


def test_a_tool_call_without_arguments_keeps_none() -> None:
    piece = {"index": 0, "id": "t1", "function": {"name": "query"}}
    _, response = read([event(chunk({"tool_calls": [piece]})), end_events(finish="tool_calls")])
    assert response.choices[0].message.tool_calls[0].arguments == ""


def test_reasoning_refusals_and_lists_of_parts_are_texts_of_the_answer() -> None:
    body = whole([{"type": "text", "text": "甲"}, {"type": "text", "text": "乙"}], message={"reasoning": "想"})
    refused = whole(None, message={"refusal": "不行"})
    assert read_whole(body).choices[0].message == Message("assistant", "甲乙", reasoning_content="想")
    assert read_whole(refused).choices[0].message == Message("assistant", "不行")


def read_whole(body: Any) -> Response:
    reader = WholeAnswer(Faults("m", Censor()))
    list(reader.feed(body if isinstance(body, bytes) else json.dumps(body).encode()))
    return reader.finish()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "an empty body"),
        (b"<html></html>", "a web page"),
        (b"[]", "JSON, but no object"),
        (b"[" * 100_000, "a text that isn't JSON"),
        ({"choices": None}, "no choices"),
        ({"choices": [{"message": None}]}, "no choices"),
        ({"choices": ["text"]}, "no choices"),
        ({"error": "the engine is gone"}, "the provider sent an error: the engine is gone"),
        ({"error": {"message": "over", "code": 502}}, r"sent an error: over \(code: 502\)"),
        (whole("半", finish="error"), "gave up in the middle"),
    ],
    ids=str,
)
def test_a_body_that_is_no_answer_is_an_error_that_says_what_it_is(body: Any, message: str) -> None:
    """REL-09."""
    with pytest.raises(ModelError, match=message):
        read_whole(body)


@pytest.mark.parametrize(
    "data",
    [b"data: \xff\xfe\n\n", b"data: [1]\n\n", b"data: " + b"[" * 100_000 + b"\n\n", b"data: {'a': 1}\n\n"],
    ids=["not-utf-8", "list", "deep", "quotes"],
)
def test_a_chunk_that_is_none_is_an_error(data: bytes) -> None:
    """REL-09."""
    with pytest.raises(ModelStreamError, match="broken chunk"):
        read([text_events(), data])


def test_a_line_and_a_body_have_a_longest_length() -> None:
    """REL-09, SEC-12."""
    reader = StreamedAnswer(Faults("m", Censor()))
    assert list(reader.feed(b"x" * MAX_LINE_BYTES)) == []
    with pytest.raises(ModelStreamError, match="longer than"):
        list(reader.feed(b"x"))
    body = WholeAnswer(Faults("m", Censor()))
    body.feed(b" " * MAX_BODY_BYTES)
    with pytest.raises(ModelError, match="longer than"):
        body.feed(b" ")


def test_what_comes_behind_the_end_mark_is_not_looked_at() -> None:
    _, response = read([text_events() + end_events() + b"data: {broken\n\n" + b"x" * 100])
    assert response.choices[0].message.content == TEXT


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, None),
        ({}, None),
        ([], None),
        ({"prompt_tokens": None}, None),
        ({"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 10}, Usage(10, 0, 10)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}, Usage(10, cached_tokens=0)),
        ({"prompt_tokens": 10, "cached_tokens": 4}, Usage(10, cached_tokens=4)),
        ({"prompt_tokens": 10, "prompt_cache_hit_tokens": 4}, Usage(10, cached_tokens=4)),
        ({"prompt_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 3}}, Usage(10, reasoning_tokens=3)),
        (
            {"cache_read_input_tokens": 5, "cache_creation_input_tokens": 6},
            Usage(cache_creation_tokens=6, cache_read_tokens=5),
        ),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": 10**8}, None),
        ({"prompt_tokens": 1.5}, None),
        ({"prompt_tokens": True}, None),
        ({"prompt_tokens": "12"}, None),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 12}, None),
        ({"prompt_tokens": 10, "cached_tokens": 11}, None),
    ],
    ids=str,
)
def test_usage_is_what_was_reported_or_unknown(raw: Any, expected: Usage | None) -> None:
    """REL-09, WB-REC-07: never a number that can't be, and nothing isn't 0."""
    assert usage_of(raw) == expected
