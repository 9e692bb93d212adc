"""Checks of append and read back: whatever is stored comes back as it was given."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

from workbench.model.types import (
    Choice,
    ContentPart,
    Message,
    Response,
    ResponseError,
    ToolCall,
    Usage,
    response_of,
)
from workbench.service.conformance.material import (
    answered,
    ids,
    loaded,
    raw_events,
    said,
    session_with,
)
from workbench.service.conformance.suite import START_NS, Bench, check, expect_equal
from workbench.session.types import Event

READ_BACK = "append and read back"

ALL_BYTES = bytes(range(256))


async def _comes_back(bench: Bench, *events: Event) -> None:
    """The events are stored and read exactly as they were given, by both ways of reading."""
    service = await bench.service()
    given = [said(0, "opens the session"), *events]
    await session_with(service, given)
    for way, found in (("list_events", await raw_events(service)), ("get_session", (await loaded(service)).events)):
        expect_equal(ids(found), ids(given), f"ids from {way}")
        for event, back in zip(given, found, strict=True):
            expect_equal(back, event, f"{way}, event {event.id}")


async def _text_comes_back(bench: Bench, *texts: str) -> None:
    await _comes_back(bench, *(said(n, text) for n, text in enumerate(texts, start=1)))


@check(READ_BACK, "SUM-DM-01", "SUM-STO-04")
async def text_with_nul_comes_back_exactly(bench: Bench) -> None:
    await _text_comes_back(bench, "\0", "before\0after", "ends with\0", "\0" * 10)


@check(READ_BACK, "SUM-DM-01", "SUM-STO-04")
async def control_characters_and_line_ends_come_back_exactly(bench: Bench) -> None:
    await _text_comes_back(
        bench, "".join(map(chr, range(1, 32))), "a\r\nb\rc\nd", "\x7f\x80\x85\x9f", "\u2028 \u2029", "\ufeffmark first"
    )


@check(READ_BACK, "SUM-DM-01", "SUM-STO-04")
async def chinese_japanese_and_korean_come_back_exactly(bench: Bench) -> None:
    await _text_comes_back(bench, "订单到哪了？", "注文はどこですか。", "주문은 어디에 있나요?", "𠮷野家", "ﾊﾝｶｸ　全角")


@check(READ_BACK, "SUM-DM-01", "SUM-STO-04")
async def emoji_and_combined_characters_come_back_exactly(bench: Bench) -> None:
    # The two spellings of one letter stay two spellings.
    await _text_comes_back(bench, "👩‍👩‍👧‍👦🏳️‍🌈", "é", "e\u0301", "\U0010ffff", "عربي עברית", "z̸̖̑a̷l̵g̶o̸")


@check(READ_BACK, "SUM-DM-01", "SUM-STO-04")
async def half_a_surrogate_pair_comes_back_exactly(bench: Bench) -> None:
    await _text_comes_back(bench, "\ud800", "cut \ud83d off", "\udc00\ud800", "\udfff end", "\\ud800 as text")


@check(READ_BACK, "SUM-DM-01", "SUM-STO-04")
async def a_megabyte_of_text_comes_back_exactly(bench: Bench) -> None:
    await _text_comes_back(bench, "0123456789abcde\n" * 65_536)


@check(READ_BACK, "SUM-DM-01", "SUM-STO-04")
async def quotes_backslashes_and_code_come_back_exactly(bench: Bench) -> None:
    await _text_comes_back(
        bench,
        'it\'s "quoted" `so`',
        "\\ \\n \\u0041 \\\\",
        "'); DELETE FROM events; --",
        '{"looks": "like JSON"}',
        "null",
        "123",
        "$1 ? :name %s {} ${x}",
    )


@check(READ_BACK, "SUM-DM-01")
async def blanks_around_a_text_stay(bench: Bench) -> None:
    await _text_comes_back(bench, "  both sides  ", "\n\nlines\n\n", "\t", " ")


@check(READ_BACK, "SUM-DM-05", "SUM-DM-15")
async def times_keep_every_nanosecond(bench: Bench) -> None:
    times = [START_NS + n for n in (1, 2, 999, 1_000, 1_001)] + [1, 10**9 - 1, 9_223_372_036_854_775_807]
    await _comes_back(bench, *(said(n, time_ns=time_ns) for n, time_ns in enumerate(times, start=1)))


@check(READ_BACK, "SUM-DM-05")
async def an_event_without_a_time_gets_none(bench: Bench) -> None:
    await _comes_back(bench, said(1, time_ns=0))


@check(READ_BACK, "SUM-DM-05", "SUM-STO-04")
async def every_field_of_an_event_comes_back(bench: Bench) -> None:
    await _comes_back(
        bench,
        said(
            1,
            author="agent 一",
            request_id="request",
            invocation_id="invocation",
            parent_invocation_id="parent",
            branch="root/child",
            filter_key="app/a/b",
            tag="tag",
            state_delta={"a": b"1"},
            skip_summarization=True,
            extensions={"k": "v"},
        ),
    )


@check(READ_BACK, "SUM-DM-05")
async def the_version_of_a_legacy_event_stays(bench: Bench) -> None:
    await _comes_back(bench, said(1, version=0, branch="old/branch"), said(2, version=1))


@check(READ_BACK, "SUM-DM-05")
async def extensions_keep_value_and_type(bench: Bench) -> None:
    extensions = {
        "big": 2**80,
        "int": 1,
        "float": 1.0,
        "tiny": 5e-324,
        "tenth": 0.1,
        "true": True,
        "none": None,
        "text": "中\0\ud800",
        "list": [1, [2, []], {}],
        "dict": {"": {"nested": [None, False]}},
    }
    service = await bench.service()
    await session_with(service, [said(1, extensions=extensions)])
    (back,) = await raw_events(service)
    # As text, so that 1, 1.0 and True aren't taken for equal.
    expect_equal(json.dumps(dict(back.extensions)), json.dumps(extensions), "extensions of an event")


@check(READ_BACK, "SUM-DM-02")
async def tool_arguments_keep_every_character(bench: Bench) -> None:
    arguments = [
        '{ "b" : 1.0,\n\t"a":1e2 , "c": "\\u00e9\\/" }',
        '{"a": 1, "a": 2}',
        '{"n": 12345678901234567890123, "f": 0.10000000000000000001}',
        '{"cut": "of',
        "",
        "not JSON 中\0",
        "[]",
        "null",
    ]
    calls = tuple(ToolCall(id=f"c{n}", name="tool", arguments=text) for n, text in enumerate(arguments))
    await _comes_back(bench, answered(1, response=response_of(Message(role="assistant", tool_calls=calls))))


@check(READ_BACK, "SUM-DM-02")
async def every_field_of_a_tool_call_comes_back(bench: Bench) -> None:
    calls = (
        ToolCall("c1", "search", "{}", type="custom", description="looks", strict=True, index=0),
        ToolCall("c2", "search", "{}", strict=False, index=7, extra_fields=(("sig", '"a b"'), ("n", "1.0"))),
        ToolCall("c3", "search", "{}", strict=None, index=None),
    )
    message = Message(role="assistant", content="calls", tool_calls=calls)
    await _comes_back(bench, answered(1, response=response_of(message)))


@check(READ_BACK, "SUM-DM-01", "SUM-DM-04")
async def results_of_parallel_tools_come_back_in_order(bench: Bench) -> None:
    results = [Message(role="tool", tool_id=f"c{n}", tool_name=f"tool {n}", content=f"result {n}") for n in range(4)]
    await _comes_back(
        bench,
        said(1, role="tool", response=response_of(*results)),
        said(2, role="tool", response=response_of(Message(role="tool", tool_id="c9"))),
    )


@check(READ_BACK, "SUM-DM-01")
async def content_parts_come_back_in_order(bench: Bench) -> None:
    parts = (
        ContentPart("text", text="look:\0"),
        ContentPart("image", url="data:image/png;base64,iVBORw0KGgo="),
        ContentPart("audio", url="https://example.com/a.mp3"),
        ContentPart("video", url="https://example.com/v.mp4"),
        ContentPart("file", url="file-1", name="报告.pdf"),
    )
    await _comes_back(bench, said(1, response=response_of(Message(role="user", content_parts=parts))))


@check(READ_BACK, "SUM-DM-01")
async def reasoning_and_its_signature_come_back(bench: Bench) -> None:
    message = Message(role="assistant", content="4", reasoning_content="2 + 2\0", reasoning_signature="sig==")
    only = Message(role="assistant", reasoning_content="thought only")
    await _comes_back(bench, answered(1, response=response_of(message)), answered(2, response=response_of(only)))


@check(READ_BACK, "SUM-DM-03")
async def every_field_of_a_response_comes_back(bench: Bench) -> None:
    response = Response(
        choices=(
            Choice(Message(role="assistant", content="first"), index=0, finish_reason="stop"),
            Choice(Message(role="assistant", content="second"), Message(content="delta"), 5, "length"),
        ),
        id="r1",
        object="chat.completion",
        model="model-x",
        usage=Usage(10, 5, 15, 3, 2, 1, 4),
        error=ResponseError("kind", "text", "code", "param"),
        created=1_772_000_000,
        time_ns=START_NS + 7,
        done=False,
    )
    await _comes_back(bench, answered(1, response=response))


@check(READ_BACK, "SUM-DM-03")
async def usage_that_was_not_reported_is_not_zero(bench: Bench) -> None:
    message = Message(role="assistant", content="x")
    usages = (None, Usage(), Usage(prompt_tokens=0), Usage(completion_tokens=0, cached_tokens=0))
    await _comes_back(
        bench, *(answered(n, response=response_of(message, usage=usage)) for n, usage in enumerate(usages, start=1))
    )


@check(READ_BACK, "SUM-DM-05", "SUM-DM-14")
async def the_state_change_of_an_event_keeps_every_byte(bench: Bench) -> None:
    delta = {"all": ALL_BYTES, "none": None, "empty": b"", "键\0": "值".encode(), "json": b'{"a": 1}'}
    await _comes_back(bench, said(1, state_delta=delta))


@check(READ_BACK, "SUM-STO-04", "SUM-STO-05")
async def two_events_may_have_one_id(bench: Bench) -> None:
    await _comes_back(bench, said(1, "first", id="same"), said(2, "second", id="same"), said(3, "third", id=""))


@check(READ_BACK, "SUM-SVC-06")
async def appending_updates_the_live_session_and_the_store(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service)
    bench.clock.advance(timedelta(seconds=3))
    event = said(1, state_delta={"a": b"1"})
    expect_equal(await service.append_event(live, event), event, "what append_event answers")
    for session, what in ((live, "the live session"), (await loaded(service), "the stored session")):
        expect_equal(session.events, [event], f"events of {what}")
        expect_equal(session.state, {"a": b"1"}, f"state of {what}")
        expect_equal(session.updated_ns, START_NS + 3 * 10**9, f"updated_ns of {what}")


@check(READ_BACK, "SUM-SVC-06")
async def what_was_appended_can_not_be_changed_from_outside(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service)
    delta: dict[str, bytes | None] = {"a": b"1"}
    await service.append_event(live, said(1, state_delta=delta))
    delta["b"] = b"2"
    live.drop_oldest(len(live.events))
    again = await loaded(service)
    expect_equal(ids(again.events), ["e1"], "stored events after the live list was emptied")
    expect_equal(again.state, {"a": b"1"}, "stored state after the caller changed its dictionary")


@check(READ_BACK, "SUM-SVC-06", "SUM-DM-06")
async def pieces_of_a_stream_are_not_stored(bench: Bench) -> None:
    service = await bench.service()
    partial = answered(2, response=replace(response_of(Message(role="assistant", content="a")), is_partial=True))
    live = await session_with(service, [said(1), partial, answered(3)])
    expect_equal(ids(live.events), ["e1", "e3"], "events of the live session")
    expect_equal(ids(await raw_events(service)), ["e1", "e3"], "stored events")


@check(READ_BACK, "SUM-SVC-06", "SUM-DM-04")
async def events_without_content_are_not_stored(bench: Bench) -> None:
    service = await bench.service()
    empty = (
        answered(2, response=None),
        answered(3, response=Response()),
        answered(4, response=response_of(Message(role="assistant"))),
        answered(5, response=Response(error=ResponseError("api", "failed"))),
    )
    live = await session_with(service, [said(1), *empty])
    expect_equal(ids(live.events), ["e1"], "events of the live session")
    expect_equal(ids(await raw_events(service)), ["e1"], "stored events")


@check(READ_BACK, "SUM-SVC-06", "SUM-DM-14")
async def state_changes_count_also_where_the_event_is_not_stored(bench: Bench) -> None:
    service = await bench.service()
    whole = response_of(Message(role="assistant", content="a"))
    live = await session_with(
        service,
        [
            said(1, state_delta={"a": b"1", "b": b"1"}),
            answered(2, response=replace(whole, is_partial=True), state_delta={"b": b"2"}),
            answered(3, response=None, state_delta={"c": None}),
        ],
    )
    expected = {"a": b"1", "b": b"2", "c": None}
    expect_equal(live.state, expected, "state of the live session")
    expect_equal((await loaded(service)).state, expected, "stored state")
    expect_equal(ids(await raw_events(service)), ["e1"], "stored events")


@check(READ_BACK, "SUM-SVC-06", "SUM-STO-05")
async def two_objects_of_one_session_both_append(bench: Bench) -> None:
    service = await bench.service()
    first = await session_with(service, [said(1)])
    second = await loaded(service)
    await service.append_event(first, said(2))
    await service.append_event(second, said(3))
    await service.append_event(first, said(4))
    expect_equal(ids(await raw_events(service)), ["e1", "e2", "e3", "e4"], "stored events of two writers")


@check(READ_BACK, "SUM-STO-11", "SUM-STO-05")
async def appends_at_the_same_time_are_all_stored_once(bench: Bench) -> None:
    service = await bench.service()
    live = await session_with(service)
    await asyncio.gather(*(service.append_event(live, said(n)) for n in range(40)))
    expect_equal(sorted(ids(await raw_events(service))), sorted(f"e{n}" for n in range(40)), "ids of the stored events")
