"""The audit of replays: a fault built in on purpose is reported with call, message and step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, config, summarising
from workbench.context.assemble import Assembly, Piece
from workbench.context.compact import Compactor
from workbench.context.incremental import ContentAssembler
from workbench.context.inject import Blocks
from workbench.context.project import Lane
from workbench.context.tailor import MiddleOutStrategy, Tailored
from workbench.model.types import SYSTEM, TOOL, Message
from workbench.recordings import Recordings
from workbench.replay.conversation import replay_conversation
from workbench.replay.replay import replay
from workbench.replay.trace import TABLES
from workbench.report.frames import frame

Recorded = Callable[..., Recordings]
Change = Callable[[int, Message, int], list[Message]]
"""(index, message, position) -> what stands in its place."""


def violations(recorded: Recorded, configuration: Any, conversation: dict[str, Any] | None = None) -> list[Any]:
    """`(call, kind, rule, message, event, step, detail)` of each row."""
    (loaded,) = recorded(conversation or chat(3)).load()
    trace = replay_conversation(loaded, configuration)
    return [row[1:] for row in trace.rows["violations"]]


def changed(assembly: Assembly, change: Change) -> Assembly:
    """The same request with other messages; each stands for the event that it came from."""
    lane = Lane()
    rows = enumerate(zip(assembly.messages, assembly.kinds, assembly.positions, strict=True))
    for i, (message, kind, position) in rows:
        for one in change(i, message, position):
            lane.add(one, kind, position)
    return replace(
        assembly,
        pieces=(Piece(lane, 0, len(lane)),),
        shift=0,
        shared_with_previous=0,
        _messages=None,
        _kinds=None,
        _positions=None,
    )


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """An assembler that changes each request on its way."""

    def install(change: Change) -> None:
        assemble = ContentAssembler.assemble

        def assemble_badly(self: ContentAssembler, *args: Any, **kwargs: Any) -> Assembly:
            return changed(assemble(self, *args, **kwargs), change)

        monkeypatch.setattr(ContentAssembler, "assemble", assemble_badly)

    return install


def test_a_sound_replay_has_no_violation(recorded: Recorded, tmp_path: Path) -> None:
    """WB-RPL-13, WB-RPL-18: zero, not unknown."""
    configs = [config(name="a"), summarising(agent={"sync_summary_intra_run": True})]
    for run in replay(recorded(chat(6)), configs, runs=tmp_path, progress=False).values():
        assert run.facts["protocol_violations"] == 0
        assert run.facts["coverage_violations"] == 0
        assert run.rows("violations") == []
        assert next(iter(frame(run, "coverage")["state"])) == "raw"


# --- a seeded fault per rule: protocol ----------------------------------------------------------------


def test_a_lost_result(recorded: Recorded, broken: Any) -> None:
    """WB-RPL-18: `unanswered_call`; WB-RPL-13 sees the same fault as a lost event. Each at its first call only."""
    broken(lambda i, message, position: [] if position == 2 else [message])
    assert violations(recorded, config()) == [
        (1, "coverage", "lost", None, "c1:00003", "projection", ""),
        (1, "protocol", "unanswered_call", 2, "c1:00002", "projection", "t0"),
    ]


def test_a_lost_call(recorded: Recorded, broken: Any) -> None:
    """WB-RPL-18: `stray_result`."""
    broken(lambda i, message, position: [] if position == 1 else [message])
    assert violations(recorded, config())[1:] == [
        (1, "protocol", "stray_result", 2, "c1:00003", "projection", "t0"),
    ]


def test_an_empty_message(recorded: Recorded, broken: Any) -> None:
    """WB-RPL-18: `empty_message`."""
    broken(lambda i, message, position: [replace(message, content="")] if position == 3 else [message])
    assert violations(recorded, config()) == [
        (2, "coverage", "changed", 4, "c1:00004", "projection", ""),
        (2, "protocol", "empty_message", 4, "c1:00004", "projection", "assistant"),
    ]


def test_a_first_role_that_the_model_refuses(recorded: Recorded) -> None:
    """WB-RPL-18: `first_role`: without the resume tail's user message in front, a past answer would come first."""
    configuration = summarising(token=60, model={"user_first": True})
    found = [row for row in violations(recorded, configuration, chat(6)) if row[2] == "first_role"]
    assert found
    assert {(row[1], row[5], row[6]) for row in found} == {("protocol", "projection", "assistant")}


def test_a_second_system_message(recorded: Recorded, broken: Any) -> None:
    """WB-RPL-18: `second_system`, where the model takes one only."""
    note = Message(role=SYSTEM, content="note")
    broken(lambda i, message, position: [note, message] if position == 0 else [message])
    assert violations(recorded, config(), chat(1)) == []
    assert violations(recorded, config(model={"single_system": True}), chat(1)) == [
        (0, "protocol", "second_system", 1, "c1:00001", "projection", "")
    ]


def test_a_summary_in_a_system_message_of_its_own(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-RPL-18: the injection is named when it makes the second system message."""
    import workbench.context.assemble as assemble_module
    from workbench.context.inject import Head, build_head

    def two_heads(base: Any, invocation: Any, blocks: Blocks, profile: Any, suffix: str = "") -> Head:
        head = build_head(base, invocation, Blocks(), profile, suffix)
        if blocks.summary:
            head.lane.add(Message(role=SYSTEM, content=blocks.summary), "summary", -1)
            head.summary_index = len(head.lane) - 1
        return head

    monkeypatch.setattr(assemble_module, "build_head", two_heads)
    monkeypatch.setattr("workbench.context.incremental.build_head", two_heads)
    found = violations(recorded, summarising(model={"single_system": True}), chat(6))
    assert found
    assert {row[1:4] + row[5:6] for row in found} == {("protocol", "second_system", 1, "injection")}


def test_a_missing_current_message(recorded: Recorded, broken: Any) -> None:
    """WB-RPL-18: `no_current_message`, by event identity: an older message of the same text doesn't count."""
    conversation = chat(2, tools=False)
    conversation["messages"][3]["content"] = conversation["messages"][1]["content"]
    broken(lambda i, message, position: [] if position == 2 else [message])
    found = violations(recorded, config(), conversation)
    assert (1, "protocol", "no_current_message", None, "c1:00003", "selection", "") in found


def test_a_compaction_that_loses_the_id(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-RPL-18: the step is compaction."""
    cut = Compactor._cut_oversized

    def cut_badly(self: Compactor, message: Message, event_id: str) -> Any:
        found = cut(self, message, event_id)
        if found is None:
            return None
        bad = replace(found[0], tool_id="?")
        return bad, replace(found[1], message=bad)

    monkeypatch.setattr(Compactor, "_cut_oversized", cut_badly)
    monkeypatch.setattr("workbench.context.incremental.sanitized_lane", lambda lane, schemas: lane)
    compaction = {"enabled": True, "oversized_tool_result_max_tokens": 400, "tool_result_max_tokens": 0}
    conversation = chat(1)
    conversation["messages"][3]["content"] = "x" * 900
    found = [row for row in violations(recorded, config(compaction=compaction), conversation) if row[1] == "protocol"]
    assert found == [
        (1, "protocol", "unanswered_call", 2, "c1:00002", "projection", "t0"),
        (1, "protocol", "stray_result", 3, "c1:00003", "compaction", "?"),
    ]


def test_a_tailoring_that_tears_a_pair(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-RPL-18: the step is tailoring; WB-RPL-13 has a state for what it left out."""
    tailor = MiddleOutStrategy.tailor_assembly

    def tailor_badly(self: MiddleOutStrategy, assembly: Assembly, max_tokens: int) -> Tailored:
        result = tailor(self, assembly, max_tokens)
        parts = []
        for measure, a, b, offset in result.parts:
            torn = next((i for i in range(a, b) if measure.valid[i].role == TOOL), b)
            parts += (
                [(measure, a, torn, offset), (measure, torn + 1, b, offset)] if torn < b else [(measure, a, b, offset)]
            )
        result.parts = tuple(part for part in parts if part[1] < part[2])
        result._messages = result._kept = None
        return result

    monkeypatch.setattr(MiddleOutStrategy, "tailor_assembly", tailor_badly)
    tailoring = {"enabled": True}
    assert violations(recorded, config(tailoring=tailoring, model={"context_window": 100_000}), chat(1)) == [
        (1, "protocol", "unanswered_call", 2, "c1:00002", "tailoring", "t0")
    ]


# --- a seeded fault per rule: coverage ----------------------------------------------------------------


def test_a_lost_turn_message_is_in_no_state(recorded: Recorded, broken: Any) -> None:
    """WB-RPL-13: `lost`."""
    broken(lambda i, message, position: [] if position == 3 else [message])
    assert violations(recorded, config()) == [(2, "coverage", "lost", None, "c1:00004", "projection", "")]


def test_another_text_without_a_pass(recorded: Recorded, broken: Any) -> None:
    """WB-RPL-13: `changed`."""
    broken(lambda i, message, position: [replace(message, content="?")] if position == 3 else [message])
    assert violations(recorded, config()) == [(2, "coverage", "changed", 4, "c1:00004", "projection", "")]


def test_a_message_that_is_sent_twice(recorded: Recorded, broken: Any) -> None:
    """WB-RPL-13: `repeated`."""
    broken(lambda i, message, position: [message] * (2 if position == 3 else 1))
    found = violations(recorded, config())
    assert (2, "coverage", "repeated", 4, "c1:00004", "projection", "") in found


def test_history_that_stays_beside_its_summary(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-RPL-13: `twice`: an assembler that forgets the cutoff."""
    from workbench.context.select import NO_CUTOFF

    monkeypatch.setattr(ContentAssembler, "_cutoff_of", lambda self, boundary: NO_CUTOFF)
    found = violations(recorded, summarising(), chat(6))
    assert found
    assert {row[1:3] + row[5:6] for row in found} == {("coverage", "twice", "selection")}


def test_a_boundary_in_front_of_which_something_was_never_read(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WB-RPL-13: `lost`: a summarizer that skips an event and covers it all the same."""
    from workbench.summary.summarizer import Summarizer

    note = Summarizer._note_source

    def forgetful(ctx: Any, source: Any) -> None:
        source.events, source.event_texts = source.events[1:], source.event_texts[1:]
        note(ctx, source)

    monkeypatch.setattr(Summarizer, "_note_source", staticmethod(forgetful))
    found = violations(recorded, summarising(), chat(6))
    assert found
    assert {row[1:3] + row[5:6] for row in found} == {("coverage", "lost", "selection")}


def test_the_tables_are_documented() -> None:
    """WB-RPL-11."""
    for name in ("coverage", "violations"):
        assert all(column.doc for column in TABLES[name].columns)
