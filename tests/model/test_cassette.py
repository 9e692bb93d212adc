"""Recorded answers: what is kept, how it is found again, and what is said of a file that isn't right (REL-15)."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.call import EMPTY_CONTEXT, CallContext
from workbench.clock import FixedClock
from workbench.errors import (
    CassetteFormatError,
    CassetteMissError,
    ConfigError,
    ContentFilterError,
    ContextLengthError,
    ModelError,
    ReplayError,
)
from workbench.model.cassette import Cassette, CassetteModel, recorded_model
from workbench.model.cassette_entry import Entry, canonical_json, first_difference, request_fields, request_key
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import (
    Choice,
    ContentPart,
    GenerationConfig,
    Message,
    Request,
    Response,
    ResponseError,
    ToolCall,
    ToolSpec,
    Usage,
)

ASKED = [Request(messages=(Message("system", "规则"), Message("user", f"总结第{i}次对话"))) for i in range(4)]


class Counted(ScriptedModel):
    """A scripted model that must not be asked more often than the test says."""

    @property
    def n_calls(self) -> int:
        return len(self.requests)


def responses_of(model: CassetteModel, request: Request) -> list[Response]:
    async def main() -> list[Response]:
        return [response async for response in model.generate(EMPTY_CONTEXT, request)]

    return asyncio.run(main())


def text_of(model: CassetteModel, request: Request) -> str:
    return responses_of(model, request)[-1].choices[0].message.content


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "answers.jsonl"


@pytest.fixture
def recorded(path: Path) -> Path:
    """A cassette with the answers to the first three requests."""
    model = CassetteModel(Cassette(path), Counted(["一", "二", "三"], context_window=1000), "auto")
    assert [text_of(model, request) for request in ASKED[:3]] == ["一", "二", "三"]
    return path


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def change(path: Path, edit: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(edit(lines_of(path))))


# --- recording and playing ------------------------------------------------------------------------------


def test_what_was_recorded_is_played_and_nobody_is_asked(recorded: Path) -> None:
    """REL-15, WB-RPL-07."""
    inner = Counted(["falsch"])
    model = CassetteModel(Cassette(recorded), inner, "play")
    assert [text_of(model, request) for request in reversed(ASKED[:3])] == ["三", "二", "一"]
    assert (inner.n_calls, model.n_asked, model.n_played) == (0, 0, 3)
    alone = CassetteModel(Cassette(recorded))
    assert (alone.name, alone.context_window) == ("scripted", 1000)
    assert text_of(alone, ASKED[0]) == "一"


def test_auto_asks_once_for_what_is_missing(recorded: Path) -> None:
    inner = Counted(["新"])
    model = CassetteModel(Cassette(recorded), inner, "auto")
    assert [text_of(model, request) for request in (*ASKED, *ASKED)] == ["一", "二", "三", "新"] * 2
    assert (inner.n_calls, model.n_asked, model.n_played) == (1, 1, 7)


def test_record_asks_anew_once_for_each_request_and_leaves_one_answer_to_each(recorded: Path) -> None:
    inner = Counted(["新一", "新二"])
    model = CassetteModel(Cassette(recorded), inner, "record")
    assert [text_of(model, request) for request in (ASKED[0], ASKED[1], ASKED[0])] == ["新一", "新二", "新一"]
    assert inner.n_calls == 2
    again = CassetteModel(Cassette(recorded))
    assert [text_of(again, request) for request in ASKED[:3]] == ["新一", "新二", "三"]
    assert len(lines_of(recorded)) == 4


def test_entries_stand_in_the_file_as_soon_as_they_are_handed_on(path: Path) -> None:
    model = CassetteModel(Cassette(path), Counted(), "auto")

    async def main() -> None:
        async for _ in model.generate(EMPTY_CONTEXT, ASKED[0]):
            assert len(Cassette(path)) == 1

    asyncio.run(main())


def test_how_long_an_answer_took_is_kept(path: Path) -> None:
    clock = FixedClock(1)

    class Slow(ScriptedModel):
        async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
            clock.advance(timedelta(seconds=2.5))
            async for response in super().generate(ctx, request):
                yield response

    text_of(CassetteModel(Cassette(path), Slow(), "auto", clock=clock), ASKED[0])
    assert [entry.duration_s for entry in Cassette(path).entries()] == [2.5]


def test_deltas_are_not_kept_but_pieces_that_add_up_are(path: Path) -> None:
    """SUM-CALL-01: what a summary is joined of plays back."""
    answers = [
        ScriptedAnswer("完整", chunks=("完", "整")),
        ScriptedAnswer("尾", chunks=("头",), chunks_are_messages=True),
    ]
    model = CassetteModel(Cassette(path), ScriptedModel(answers), "auto")
    played = CassetteModel(Cassette(path), ScriptedModel(), "auto")
    for request, expected in zip(ASKED, (["完整"], ["头", "尾"]), strict=False):
        for one in (model, played):
            assert [response.choices[0].message.content for response in responses_of(one, request)] == expected


@pytest.mark.parametrize(
    "failure",
    [
        ContextLengthError("model m: too long", needed_tokens=9000, max_tokens=8192, hint="set the window"),
        ContentFilterError("model m: filtered"),
    ],
    ids=["context-length", "content-filter"],
)
def test_a_refusal_that_is_about_the_request_plays_back_as_the_same_error(path: Path, failure: ModelError) -> None:
    class Refusing(Counted):
        async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
            self.requests.append(request)
            raise failure
            yield

    inner = Refusing()
    for cassette in (Cassette(path), Cassette(path)):
        for _ in range(2):
            with pytest.raises(type(failure)) as caught:
                responses_of(CassetteModel(cassette, inner, "auto"), ASKED[0])
            assert str(caught.value) == str(failure)
            assert caught.value.hint == failure.hint
            if isinstance(caught.value, ContextLengthError):
                assert (caught.value.needed_tokens, caught.value.max_tokens) == (9000, 8192)
    assert inner.n_calls == 1


def test_a_failure_that_says_nothing_about_the_request_is_not_kept(path: Path) -> None:
    model = CassetteModel(Cassette(path), Counted([ScriptedAnswer(call_error="broken"), "好"]), "auto")
    with pytest.raises(ModelError, match="broken"):
        responses_of(model, ASKED[0])
    assert text_of(model, ASKED[0]) == "好"
    assert len(Cassette(path)) == 1


# --- what a request is ----------------------------------------------------------------------------------


def test_headers_and_extra_fields_neither_count_nor_get_into_the_file(path: Path) -> None:
    """SEC-08: an allow-list of fields."""
    secret = ASKED[0].replace(headers={"authorization": "Bearer canary-0000"}, extra_fields={"key": "canary-0000"})
    text_of(CassetteModel(Cassette(path), ScriptedModel(["一"]), "auto"), secret)
    assert b"canary" not in path.read_bytes()
    assert text_of(CassetteModel(Cassette(path)), ASKED[0]) == "一"


CALL = ToolCall(id="t1", name="query", arguments='{"n": 1}')
BASE = Request(
    messages=(
        Message("user", "问", content_parts=(ContentPart("image", url="data:,a"),)),
        Message("assistant", tool_calls=(CALL,), reasoning_content="想"),
        Message("tool", "结果", tool_id="t1", tool_name="query"),
    ),
    tools=(ToolSpec("query", "查询", '{"type": "object"}'),),
    generation_config=GenerationConfig(temperature=0.2, stop=("。",)),
    structured_output={"type": "json_object"},
)


def with_message(index: int, **changes: Any) -> Request:
    messages = list(BASE.messages)
    fields = {name: getattr(messages[index], name) for name in Message.__slots__}
    messages[index] = Message(**{**fields, **changes})
    return BASE.replace(messages=tuple(messages))


@pytest.mark.parametrize(
    ("request_", "field", "position"),
    [
        (with_message(0, content="问？"), "messages[0].content", 1),
        (with_message(0, role="system"), "messages[0].role", 0),
        (with_message(0, content_parts=()), "messages[0].content_parts", None),
        (with_message(1, tool_calls=(ToolCall("t1", "query", '{"n": 2}'),)), "messages[1].tool_calls[0].arguments", 6),
        (with_message(1, reasoning_content=""), "messages[1].reasoning_content", None),
        (with_message(2, tool_id="t2"), "messages[2].tool_id", 1),
        (BASE.replace(messages=BASE.messages[:2]), "messages[2]", None),
        (BASE.replace(tools=()), "tools", None),
        (BASE.replace(tools=(ToolSpec("query", "查"),)), "tools[0].description", 1),
        (
            BASE.replace(generation_config=GenerationConfig(temperature=0.3, stop=("。",))),
            "generation_config.temperature",
            None,
        ),
        (BASE.replace(structured_output=None), "structured_output", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_field_that_decides_an_answer_counts_and_a_miss_names_it(
    path: Path, request_: Request, field: str, position: int | None
) -> None:
    """REL-15, WB-REG-04."""
    text_of(CassetteModel(Cassette(path), ScriptedModel(), "auto"), BASE)
    with pytest.raises(CassetteMissError) as caught:
        responses_of(CassetteModel(Cassette(path)), request_)
    assert (caught.value.field, caught.value.position) == (field, position)


def test_whether_an_answer_streams_does_not_count() -> None:
    streamed = BASE.replace(generation_config=GenerationConfig(stream=True, temperature=0.2, stop=("。",)))
    assert request_key(request_fields("m", streamed)) == request_key(request_fields("m", BASE))
    assert request_key(request_fields("other", BASE)) != request_key(request_fields("m", BASE))


# --- misses ---------------------------------------------------------------------------------------------


def test_a_miss_names_the_closest_entry_the_first_difference_and_how_to_record(recorded: Path) -> None:
    """REL-15, WB-REG-04."""
    changed = ASKED[1].replace(messages=(ASKED[1].messages[0], Message("user", "总结第1次的对话")))
    with pytest.raises(CassetteMissError) as caught:
        responses_of(CassetteModel(Cassette(recorded)), changed)
    error = caught.value
    assert isinstance(error, ReplayError)
    assert (error.closest, error.field, error.position) == ("line 3", "messages[1].content", 5)
    assert "the closest entry (line 3) first differs in messages[1].content at character 5" in str(error)
    assert "--summaries live" in error.hint
    assert "总结" not in str(error)


def test_a_changed_prompt_is_told_from_a_changed_conversation(recorded: Path) -> None:
    """WB-REG-04: what is equal from the end counts as much as what is equal from the start."""
    changed = ASKED[2].replace(messages=(Message("system", "别的规则"), ASKED[2].messages[1]))
    with pytest.raises(CassetteMissError) as caught:
        responses_of(CassetteModel(Cassette(recorded)), changed)
    assert (caught.value.closest, caught.value.field, caught.value.position) == ("line 4", "messages[0].content", 0)


def test_a_missing_entry_is_a_miss(recorded: Path) -> None:
    """REL-15."""
    inner = Counted()
    change(recorded, lambda lines: [*lines[:2], *lines[3:]])
    model = CassetteModel(Cassette(recorded), inner, "play")
    assert (text_of(model, ASKED[0]), text_of(model, ASKED[2])) == ("一", "三")
    with pytest.raises(CassetteMissError, match=r"first differs in messages\[1\]\.content at character 3"):
        responses_of(model, ASKED[1])
    assert inner.n_calls == 0


def test_an_empty_cassette_misses_without_a_closest_entry(recorded: Path) -> None:
    change(recorded, lambda lines: lines[:1])
    with pytest.raises(CassetteMissError, match="the cassette has no entry") as caught:
        responses_of(CassetteModel(Cassette(recorded), name="m"), ASKED[0])
    assert (caught.value.closest, caught.value.field) == ("", "")


# --- files that aren't right ----------------------------------------------------------------------------


def test_the_order_of_entries_means_nothing(recorded: Path) -> None:
    """REL-15: reordered entries play, and are the same source."""
    before = Cassette(recorded).content_hash
    change(recorded, lambda lines: [lines[0], *reversed(lines[1:])])
    assert Cassette(recorded).content_hash == before
    model = CassetteModel(Cassette(recorded))
    assert [text_of(model, request) for request in ASKED[:3]] == ["一", "二", "三"]


def test_a_repeated_entry_does_no_harm_and_is_noted(recorded: Path) -> None:
    """REL-15."""
    before = Cassette(recorded).content_hash
    change(recorded, lambda lines: [*lines, lines[2]])
    cassette = Cassette(recorded)
    assert cassette.content_hash == before
    assert cassette.notes == ["line 5 repeats line 3"]


def test_two_answers_to_one_request_are_an_error(recorded: Path, tmp_path: Path) -> None:
    """REL-15: as after merging two recordings."""
    other = tmp_path / "other.jsonl"
    text_of(CassetteModel(Cassette(other), ScriptedModel(["另一个"]), "auto"), ASKED[1])
    change(recorded, lambda lines: [*lines, lines_of(other)[1]])
    with pytest.raises(CassetteFormatError, match="another answer to the request of line 3") as caught:
        CassetteModel(Cassette(recorded))
    assert (caught.value.path, caught.value.line) == (str(recorded), 5)


@pytest.mark.parametrize(
    ("old", "new"),
    [("二", "假"), ("总结第1次对话", "总结第9次对话"), ('"duration_s":', '"duration_s":1'), ('"key":"', '"key":"0')],
    ids=["answer", "request", "time", "key"],
)
def test_a_changed_entry_is_noticed(recorded: Path, old: str, new: str) -> None:
    """REL-15."""
    change(
        recorded,
        lambda lines: [line.replace(old.encode(), new.encode()) if i == 2 else line for i, line in enumerate(lines)],
    )
    with pytest.raises(CassetteFormatError, match="it was changed after it had been recorded") as caught:
        Cassette(recorded).entries()
    assert caught.value.line == 3


@pytest.mark.parametrize("n_bytes", [1, 2, 40, 200])
def test_a_cut_last_line_is_left_out_with_a_note_and_written_anew(recorded: Path, n_bytes: int) -> None:
    """REL-15."""
    data = recorded.read_bytes()
    recorded.write_bytes(data[:-n_bytes])
    cassette = Cassette(recorded)
    n_entries = len(cassette)
    assert n_entries == (3 if n_bytes == 1 else 2)
    assert cassette.notes == ([] if n_bytes == 1 else ["line 4 is cut; left out"])
    model = CassetteModel(cassette, Counted(["又三", "四"]), "auto")
    assert text_of(model, ASKED[2]) == ("三" if n_bytes == 1 else "又三")
    text_of(model, ASKED[3])
    assert cassette.notes == []
    assert len(Cassette(recorded)) == 4
    assert all(json.loads(line) for line in lines_of(recorded))


def test_wherever_a_file_is_cut_the_entries_before_play(recorded: Path) -> None:
    """REL-15."""
    whole = recorded.read_bytes()
    ends = [i for i, byte in enumerate(whole) if byte == ord("\n")]
    for n_bytes in sorted({*range(0, len(whole), 7), *(end + step for end in ends for step in (-1, 0, 1))}):
        recorded.write_bytes(whole[:n_bytes])
        if n_bytes < ends[0]:
            with pytest.raises(CassetteFormatError):
                Cassette(recorded).entries()
        else:
            cassette = Cassette(recorded)
            # A line whose end alone is missing is complete.
            assert len(cassette) == sum(end <= n_bytes for end in ends) - 1
            assert bool(cassette.notes) == (n_bytes not in {*ends, *(end + 1 for end in ends)})


def test_a_line_that_is_broken_in_the_middle_is_an_error(recorded: Path) -> None:
    """REL-15."""
    change(recorded, lambda lines: [*lines[:2], lines[2][:50] + b"\n", lines[3]])
    with pytest.raises(CassetteFormatError, match=r"answers\.jsonl:3: not JSON"):
        Cassette(recorded).entries()


def test_an_empty_line_at_the_end_does_no_harm(recorded: Path) -> None:
    change(recorded, lambda lines: [*lines, b"\n"])
    model = CassetteModel(Cassette(recorded), Counted(["四"]), "auto")
    text_of(model, ASKED[3])
    assert len(Cassette(recorded)) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "answers.jsonl:1: not a cassette"),
        (b'{"format": "other", "version": 1}\n', "answers.jsonl:1: not a cassette"),
        (b'{"format": "workbench-cassette", "version": 9}\n', "format version 9; this release reads 1"),
        (b'{"format": "workbench-cassette"}\n', "format version None"),
        (b'{"format": "workbench-cassette", "version": 1}\n[1]\n', "answers.jsonl:2: not an entry"),
        (b'{"format": "workbench-cassette", "version": 1}\n{"a": 1}\n', "answers.jsonl:2: not an entry"),
        (b"[" * 100_000 + b"\n", "not a cassette"),
    ],
    ids=["empty", "text", "other-format", "newer", "no-version", "list", "object", "deep"],
)
def test_a_file_that_is_no_cassette_is_neither_read_nor_written_to(path: Path, content: bytes, message: str) -> None:
    """REL-15."""
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(CassetteFormatError, match=message) as caught:
        Cassette(path).entries()
    assert caught.value.path == str(path)
    with pytest.raises(CassetteFormatError, match=message):
        CassetteModel(Cassette(path), name="m")
    if content:
        with pytest.raises(CassetteFormatError, match=message):
            text_of(CassetteModel(Cassette(path), Counted(), "auto"), ASKED[0])
        assert path.read_bytes() == content


def test_a_missing_file_can_be_recorded_but_not_played(path: Path) -> None:
    with pytest.raises(CassetteFormatError, match="the cassette can't be read: No such file"):
        CassetteModel(Cassette(path), name="m")
    with pytest.raises(CassetteFormatError, match="the cassette can't be written"):
        text_of(CassetteModel(Cassette(Path("/proc/none/a.jsonl")), Counted(), "auto"), ASKED[0])


def test_line_separators_inside_texts_end_no_line(path: Path) -> None:
    """M18."""
    request = Request(messages=(Message("user", "甲\u2028乙\x85丙\r\n丁"),))
    text_of(CassetteModel(Cassette(path), ScriptedModel(["戊\u2028己"]), "auto"), request)
    assert text_of(CassetteModel(Cassette(path)), request) == "戊\u2028己"


def test_half_a_surrogate_pair_is_kept(path: Path) -> None:
    """M16."""
    request = Request(messages=(Message("user", json.loads('"\\ud800"')),))
    text_of(CassetteModel(Cassette(path), ScriptedModel(["\ud800"]), "auto"), request)
    assert text_of(CassetteModel(Cassette(path)), request) == "\ud800"


def test_a_file_that_goes_away_is_recorded_anew(recorded: Path) -> None:
    inner = Counted(["新"])
    model = CassetteModel(Cassette(recorded), inner, "auto")
    assert text_of(model, ASKED[0]) == "一"
    recorded.unlink()
    assert text_of(model, ASKED[0]) == "新"
    assert len(Cassette(recorded)) == 1


def test_a_file_that_goes_away_while_the_model_answers_is_made_anew(recorded: Path) -> None:
    delete = recorded.unlink

    class Deleting(Counted):
        async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
            delete()
            async for response in super().generate(ctx, request):
                yield response

    assert text_of(CassetteModel(Cassette(recorded), Deleting(["四"]), "auto"), ASKED[3]) == "四"
    assert [entry.request for entry in Cassette(recorded).entries()] == [request_fields("scripted", ASKED[3])]


# --- several writers ------------------------------------------------------------------------------------


def test_the_first_answer_stays_when_two_ask_the_same_at_the_same_time(path: Path) -> None:
    first = CassetteModel(Cassette(path), Counted(["一"]), "auto")
    second = CassetteModel(Cassette(path), Counted(["二"]), "auto")
    assert len(second.cassette.entries() if path.exists() else ()) == 0

    async def ask(model: CassetteModel) -> str:
        entry = await model._ask(EMPTY_CONTEXT, Counted([model.name]), ASKED[0], request_fields("m", ASKED[0]))
        return entry.responses[-1].choices[0].message.content

    async def main() -> list[str]:
        first.name, second.name = "一", "二"
        return [await ask(first), await ask(second)]

    assert asyncio.run(main()) == ["一", "一"]
    assert len(Cassette(path)) == 1


def test_what_another_process_adds_is_found(recorded: Path) -> None:
    reader = CassetteModel(Cassette(recorded), Counted(), "auto")
    assert text_of(reader, ASKED[0]) == "一"
    writer = CassetteModel(Cassette(recorded), Counted(["四"]), "auto")
    text_of(writer, ASKED[3])
    assert text_of(reader, ASKED[3]) == "四"
    assert reader.n_asked == 0


def write_entries(path: str, start: int) -> None:
    """Add twenty entries; runs in a process of its own."""
    cassette = Cassette(path)
    for i in range(start, start + 20):
        request = Request(messages=(Message("user", f"{i}" * 2000),))
        response = Response(choices=(Choice(Message("assistant", "答" * 1000)),))
        cassette.add(Entry(request_fields("m", request), (response,)))


@pytest.mark.slow
def test_processes_that_write_at_the_same_time_lose_nothing(path: Path) -> None:
    """REL-15, REL-03."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_entries, args=(str(path), start)) for start in (0, 10, 40)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(Cassette(path)) == 50


def test_a_tidy_file_is_the_same_in_whatever_order_it_was_written(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    entries = [Entry(request_fields("m", request), (Response(id=f"{i}"),)) for i, request in enumerate(ASKED)]
    for file, order in ((path, entries), (other, entries[::-1])):
        cassette = Cassette(file)
        for entry in order:
            cassette.add(entry)
        assert [entry.key for entry in Cassette(file).entries()] == [entry.key for entry in order]
        cassette.tidy()
        assert cassette.find(entries[2].key) is not None
    assert path.read_bytes() == other.read_bytes()
    keys = [entry.key for entry in Cassette(path).entries()]
    assert keys == sorted(keys)
    assert sorted(tmp_path.rglob("*.jsonl")) == sorted([path, other])
    Cassette(tmp_path / "none.jsonl").tidy()
    assert not (tmp_path / "none.jsonl").exists()


# --- which model ----------------------------------------------------------------------------------------


def test_a_cassette_of_several_models_wants_one_named(recorded: Path) -> None:
    text_of(CassetteModel(Cassette(recorded), ScriptedModel(["别"], name="other"), "auto"), ASKED[0])
    with pytest.raises(ConfigError, match="has answers of other, scripted"):
        recorded_model(Cassette(recorded))
    assert text_of(CassetteModel(Cassette(recorded), name="other"), ASKED[0]) == "别"
    assert CassetteModel(Cassette(recorded), name="scripted").context_window == 1000


def test_modes_that_ask_need_somebody_to_ask(path: Path) -> None:
    for mode in ("auto", "record"):
        with pytest.raises(ConfigError, match="needs a model to ask"):
            CassetteModel(Cassette(path), None, mode)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="allowed: play, record or auto"):
        CassetteModel(Cassette(path), ScriptedModel(), "replay")  # type: ignore[arg-type]


def test_the_inner_model_s_own_budget_is_passed_on(path: Path) -> None:
    """ASM-TLR-02, SUM-FIT-02."""
    model = CassetteModel(Cassette(path), ScriptedModel(input_token_budget=77), "auto")
    assert model.input_token_budget(ASKED[0]) == 77


# --- laws -----------------------------------------------------------------------------------------------

texts = st.text(max_size=20)
messages = st.builds(
    Message,
    role=st.sampled_from(["", "system", "user", "assistant", "tool"]),
    content=texts,
    content_parts=st.lists(
        st.builds(ContentPart, st.sampled_from(["text", "image"]), texts, texts, texts), max_size=2
    ).map(tuple),
    tool_id=texts,
    tool_name=texts,
    tool_calls=st.lists(
        st.builds(ToolCall, texts, texts, texts, extra_fields=st.lists(st.tuples(texts, texts), max_size=1).map(tuple)),
        max_size=2,
    ).map(tuple),
    reasoning_content=texts,
    reasoning_signature=texts,
)
counts = st.none() | st.integers(0, 10**6)
responses = st.builds(
    Response,
    choices=st.lists(st.builds(Choice, messages, messages, st.integers(0, 3), texts), max_size=2).map(tuple),
    id=texts,
    object=texts,
    model=texts,
    usage=st.none() | st.builds(Usage, *[counts] * 7),
    error=st.none() | st.builds(ResponseError, texts, texts, texts, texts),
    created=st.integers(0, 2**40),
    done=st.booleans(),
    is_partial=st.booleans(),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cassettes")


@given(st.lists(messages, max_size=3).map(tuple), st.lists(responses, max_size=2).map(tuple))
def test_any_entry_comes_back_from_the_file_as_it_was(
    folder: Path, asked: tuple[Message, ...], answers: tuple[Response, ...]
) -> None:
    path = folder / "law.jsonl"
    path.unlink(missing_ok=True)
    entry = Entry(request_fields("m", Request(messages=asked)), answers)
    Cassette(path).add(entry)
    [found] = Cassette(path).entries()
    assert found.responses == answers
    assert found.key == entry.key
    assert canonical_json(found.request) == canonical_json(entry.request)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(json_values, json_values)
def test_there_is_a_first_difference_exactly_when_values_differ(left: Any, right: Any) -> None:
    holder = {"x": left}
    # A missing field and an empty one are the same here: null fields aren't written.
    same = canonical_json(left) == canonical_json(right)
    if same:
        assert first_difference(holder, {"x": right}) is None
    elif "null" not in canonical_json([left, right]):
        assert first_difference(holder, {"x": right}) is not None
