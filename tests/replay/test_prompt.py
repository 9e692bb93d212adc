"""The exact request of a call: made again, compared with what was stored, and with another configuration's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.conftest import chat, config, summarising
from workbench.errors import ReplayError
from workbench.model.types import Message
from workbench.recordings import Recordings
from workbench.replay.conversation import replay_conversation
from workbench.replay.prompt import PromptMessage, _blocks
from workbench.replay.replay import replay
from workbench.replay.runs import Run, load_runs

pytestmark = pytest.mark.slow  # each of them writes and opens store files; `make test-more` runs these

WINDOW = {"context_window": 9000}
CONFIGS = {
    "nothing": config(name="nothing"),
    "summaries": summarising("summaries"),
    "late": summarising("late", summaries={"latency_s": "50s"}),
    "user": summarising("user", mode="user", cache={"scope": "corpus"}),
    "compaction": config(
        name="compaction", compaction={"enabled": True, "tool_result_max_tokens": 300, "keep_recent_requests": 1}
    ),
    "tailoring": config(name="tailoring", model=WINDOW, tailoring={"enabled": True}),
    "intra": summarising("intra", token=60, agent={"sync_summary_intra_run": True}, summaries={"latency_s": 10.0}),
}


@pytest.fixture
def two(recorded: Callable[..., Recordings]) -> Recordings:
    return recorded(chat(1, ident="c0"), chat(12, n_repeats=400))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_request_is_made_again_as_the_replay_made_it(name: str, two: Recordings, tmp_path: Path) -> None:
    """WB-RPL-12, WB-RPL-01: one engine, stopped at the call."""
    run = replay(two, CONFIGS[name], runs=tmp_path, progress=False)[name]
    sent: list[Any] = []
    replay_conversation(two.load()[1], CONFIGS[name], on_sent=lambda facts, request: sent.append(request.request))
    assert len(sent) == 24
    for index in (0, 13, 23):
        call = run.call("c1", index)
        assert call.request == sent[index]
        assert call.row == run.rows("calls", "c1")[index]
        assert call.index == index
        counted = sum(message.tokens for message in call.messages)
        assert counted + call.row["schema_tokens"] + call.row["overhead_tokens"] == call.row["prompt_tokens"]


def test_each_message_says_what_it_is_and_which_event_stands_behind_it(two: Recordings, tmp_path: Path) -> None:
    """WB-RPL-12."""
    runs = replay(two, [CONFIGS["summaries"], CONFIGS["compaction"]], runs=tmp_path, progress=False)
    call = runs["summaries"].call("c1", 21)
    assert call.messages[0].part == "system + summary"
    assert call.messages[0].event_id == ""
    current = next(message for message in call.messages if message.part == "current")
    event = next(event for event in two.load()[1].events if event.id == current.event_id)
    assert event.message.content == current.message.content
    rewritten = [m for m in runs["compaction"].call("c1", 21).messages if m.part == "tool result, pass 1"]
    assert len(rewritten) == runs["compaction"].rows("calls", "c1")[21]["pass1_results"] > 0


def test_the_wire_form_is_the_body_of_a_chat_completion(two: Recordings, tmp_path: Path) -> None:
    """WB-RPL-12: whoever wants to send it can."""
    call = replay(two, CONFIGS["nothing"], runs=tmp_path, progress=False)["nothing"].call("c1", 1)
    body = call.wire()
    assert (body["model"], [m["role"] for m in body["messages"]]) == ("gpt-4o", ["system", "user", "assistant", "tool"])
    assert body["messages"][2]["tool_calls"][0]["id"] == body["messages"][3]["tool_call_id"] == "t0"
    assert body["tools"][0]["function"]["name"] == "query"
    assert call.as_dict()["request"] == body
    assert len(call.digest) == 64


def test_the_checks_are_those_since_the_call_before(two: Recordings, tmp_path: Path) -> None:
    """WB-RPL-12: estimate, limit, reason and truth table of the decision that this call met."""
    run = replay(two, CONFIGS["summaries"], runs=tmp_path, progress=False)["summaries"]
    fired = next(row for row in run.rows("checks", "c1") if row["fired"])
    call = run.call("c1", fired["call"])
    assert fired in call.checks
    assert "fired; token_threshold" in call.explanation
    assert "tokens of more than 300" in call.explanation
    assert run.call("c1", 0).explanation == "no trigger was checked before this call"
    nothing = replay(two, CONFIGS["nothing"], runs=tmp_path, progress=False)["nothing"]
    assert nothing.call("c1", 20).explanation == "this configuration makes no summaries"


def test_another_recording_under_the_same_name_is_an_error(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-12: a request that isn't the one that was counted is never shown."""
    run = replay(recorded(chat(4)), summarising(), runs=tmp_path / "runs", progress=False)["summaries"]
    changed = chat(4)
    changed["messages"][1]["content"] += "!"
    other = Run(run.path, conversations=recorded(changed))
    with pytest.raises(ReplayError, match=r"call 3 of c1 .* can't be made again: column content_hash .* changed"):
        other.call("c1", 3)
    with pytest.raises(ReplayError, match="isn't in these recordings"):
        Run(run.path, conversations=recorded(chat(4, ident="c9"))).call("c1", 3)


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        (
            "UPDATE calls SET prompt_tokens = prompt_tokens + 1 WHERE call = 2",
            "column prompt_tokens of row 2 of calls was",
        ),
        ("UPDATE summaries SET text = text || '!'", "column text of row 0 of summaries has changed"),
        ('DELETE FROM checks WHERE "check" = 0', "checks"),
        ("DELETE FROM checks WHERE call = 20", "table checks had"),
    ],
    ids=["tokens", "text", "row", "last-row"],
)
def test_a_stored_row_that_differs_is_an_error(statement: str, fault: str, two: Recordings, tmp_path: Path) -> None:
    """WB-RPL-12: compared row by row, up to the call; what a text says isn't in the error."""
    run = replay(two, CONFIGS["summaries"], runs=tmp_path, progress=False)["summaries"]
    with duckdb.connect(str(run.path)) as connection:
        connection.execute(statement)
    with pytest.raises(ReplayError, match="can't be made again") as caught:
        Run(run.path, conversations=two).call("c1", 20)
    assert fault in str(caught.value)
    assert "编号" not in str(caught.value)


def test_what_happened_after_the_call_does_not_matter(two: Recordings, tmp_path: Path) -> None:
    """WB-RPL-12: the replay stops at the call."""
    run = replay(two, CONFIGS["summaries"], runs=tmp_path, progress=False)["summaries"]
    with duckdb.connect(str(run.path)) as connection:
        connection.execute("UPDATE calls SET prompt_tokens = 0 WHERE call > 5")
    assert Run(run.path, conversations=two).call("c1", 5).row["prompt_tokens"] > 0


def test_unknown_names_get_the_nearest_and_the_range(two: Recordings, tmp_path: Path) -> None:
    """WB-RPL-12."""
    run = replay(two, CONFIGS["nothing"], runs=tmp_path, progress=False)["nothing"]
    with pytest.raises(ReplayError) as caught:
        run.call("c11", 0)
    assert caught.value.one_line().endswith("the nearest is 'c1', which has calls 0 to 23")
    for call in (24, -1):
        with pytest.raises(ReplayError) as caught:
            run.call("c1", call)
        assert caught.value.one_line() == f"no call {call} in conversation 'c1'; it has calls 0 to 23"
    with pytest.raises(ReplayError, match="aren't loaded"):
        load_runs(tmp_path)["nothing"].call("c1", 0)


def test_a_diff_shows_what_a_summary_took_the_place_of(two: Recordings, tmp_path: Path) -> None:
    """WB-RPL-12, WB-UI-03."""
    runs = replay(two, [CONFIGS["nothing"], CONFIGS["summaries"]], runs=tmp_path, progress=False)
    before, after = runs["nothing"].call("c1", 21), runs["summaries"].call("c1", 21)
    diff = before.diff(after)
    assert not diff.is_empty
    assert diff.same_tools
    changed = [block for block in diff.blocks if not block.is_equal]
    assert changed[0].before[0] == changed[0].after[0] == 0
    assert sum(len(b.before) for b in changed) > sum(len(b.after) for b in changed)
    less, more = (sum(diff.tokens_of(block)[i] for block in changed) for i in (0, 1))
    assert after.row["prompt_tokens"] - before.row["prompt_tokens"] == more - less
    assert before.diff(runs["nothing"].call("c1", 21)).is_empty
    assert diff.as_dict()["blocks"][0]["equal"] is False


MESSAGES = st.lists(st.sampled_from([PromptMessage(Message(role="user", content=c), "history", 1, "") for c in "abcd"]))


@given(before=MESSAGES, after=MESSAGES)
def test_blocks_cover_both_requests_in_order(before: list[PromptMessage], after: list[PromptMessage]) -> None:
    """WB-RPL-12: equal stretches are equal, and nothing is left out or shown twice."""
    blocks = list(_blocks(before, after))
    assert [i for block in blocks for i in block.before] == list(range(len(before)))
    assert [i for block in blocks for i in block.after] == list(range(len(after)))
    for block in blocks:
        if block.is_equal:
            assert [before[i].message for i in block.before] == [after[i].message for i in block.after]
        else:
            assert block.before or block.after
    if before == after:
        assert all(block.is_equal for block in blocks)
