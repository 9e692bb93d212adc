"""Replays as a whole: what is written down, that it is right, and that it is the same every time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.replay.conftest import chat, config, summarising
from workbench.agent.flow import SentRequest
from workbench.build import billing_counter, engine_counter
from workbench.call import EMPTY_CONTEXT
from workbench.errors import ConfigError, ReplayError, StoreError, StoreLockedError
from workbench.recordings import Recordings
from workbench.replay.cache import common_prefix_tokens, part_text, tools_text
from workbench.replay.conversation import replay_conversation
from workbench.replay.meter import CallFacts
from workbench.replay.replay import replay
from workbench.replay.runs import FACT_NAMES, Run, RunKey, RunWriter, load_runs, query_runs
from workbench.replay.trace import TABLES

PARTS = (
    "system_tokens",
    "summary_tokens",
    "history_tokens",
    "tool_result_tokens",
    "schema_tokens",
    "current_tokens",
    "overhead_tokens",
)

CONFIGS = [
    config(name="no summary"),
    summarising("system"),
    summarising("user", mode="user"),
    summarising("small", token=120),
    summarising("intra-run", agent={"sync_summary_intra_run": True}),
    summarising("slow", summaries={"latency_s": 20.0}),
    config(name="compacted", compaction={"enabled": True, "tool_result_max_tokens": 20, "keep_recent_requests": 0}),
    config(name="limited", agent={"max_history_runs": 3}),
    config(
        name="tailored",
        model={"context_window": 4000},
        tailoring={"enabled": True, "max_input_tokens": 700, "reserve_output_tokens": 100},
    ),
]


@pytest.mark.parametrize("run_config", CONFIGS, ids=lambda c: c.name)
def test_each_row_equals_a_slow_recount_of_the_whole_request(
    run_config: Any, recorded: Callable[..., Recordings]
) -> None:
    """WB-RPL-03, WB-CACHE-01: parts add up, and parts, estimate and prefix equal what counting anew gives."""
    conversation = recorded(chat(24)).load()[0]
    billing, engine = billing_counter(run_config), engine_counter(run_config)
    sent: list[tuple[CallFacts, SentRequest]] = []
    trace = replay_conversation(conversation, run_config, on_sent=lambda facts, request: sent.append((facts, request)))
    columns = TABLES["calls"].column_names
    rows = [dict(zip(columns, row, strict=True)) for row in trace.rows["calls"]]
    assert len(rows) == len(sent) == 48
    earlier: list[list[str]] = []
    for row, (_, request_sent) in zip(rows, sent, strict=True):
        request = request_sent.request
        texts = [tools_text(request.tools), *map(part_text, request.messages)]
        tokens = [billing.count_text(text) for text in texts]
        assert row["prompt_tokens"] == sum(tokens) == sum(row[part] for part in PARTS)
        assert all(row[part] >= 0 for part in PARTS)
        assert row["schema_tokens"] == tokens[0]
        tool_tokens = [n for n, m in zip(tokens[1:], request.messages, strict=True) if m.role == "tool"]
        assert row["tool_result_tokens"] == sum(tool_tokens)
        estimate = sum(engine.count_tokens(EMPTY_CONTEXT, message) for message in request.messages)
        assert row["estimated_tokens"] == estimate
        if earlier:
            assert row["prefix_tokens"] == common_prefix_tokens(texts, earlier, billing)
            assert row["reusable_tokens"] == max(sum(map(billing.count_text, other)) for other in earlier)
            before = earlier[-1]
            assert (row["break_cause"] is None) == (texts[: len(before)] == before)
        else:
            assert (row["prefix_tokens"], row["break_cause"]) == (None, "first_call")
        earlier.append(texts)


def test_an_append_only_history_reuses_its_whole_prefix(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-CACHE-01a."""
    runs = replay(recorded(chat(5), chat(7, ident="c2")), config(name="plain"), runs=tmp_path, progress=False)
    facts = runs["plain"].facts
    assert facts["prefix_reuse"] == 1.0
    assert facts["calls"] == 24
    assert tuple(facts) == FACT_NAMES


@pytest.mark.slow
def test_the_same_replay_gives_the_same_trace_in_any_number_of_processes(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-09."""
    recordings = recorded(*(chat(4, ident=f"c{i}") for i in range(4)))
    configs = [config(name="plain"), summarising()]
    hashes = [
        [run.facts["trace_hash"] for run in replay(recordings, configs, runs=tmp_path / name, jobs=jobs).values()]
        for name, jobs in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert hashes[0] == hashes[1] == hashes[2]


def test_a_trigger_fires_and_the_next_call_shows_the_summary_and_why_the_prefix_broke(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-04, -05, WB-CACHE-03."""
    run = replay(recorded(chat(12)), summarising(), runs=tmp_path, progress=False)["summaries"]
    fired = [row for row in run.rows("checks") if row["fired"]]
    written = [row for row in run.rows("summaries") if row["status"] == "written"]
    assert len(fired) == len(written) == run.facts["firings"] >= 2
    for check, summary in zip(fired, written, strict=True):
        assert check["value"] > check["threshold"] == 300
        assert summary["events_covered"] > 0
        call = run.rows("calls")[summary["call"]]
        assert call["boundary_event_id"] == summary["boundary_event_id"]
        assert call["summary_tokens"] > 0
        assert call["break_cause"] in ("summary_appeared", "summary_updated_system")
        assert call["lost_tokens"] > 0


def test_a_summary_that_takes_time_is_seen_later(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-08: written at s + latency; calls before that don't see it."""
    recordings = recorded(chat(12))
    quick, slow = summarising("quick"), summarising("slow", summaries={"latency_s": "50s"})
    runs = replay(recordings, [quick, slow], runs=tmp_path, progress=False)
    first = {name: run.rows("summaries")[0] for name, run in runs.items()}
    assert first["quick"]["started_ns"] == first["quick"]["written_ns"] == first["slow"]["started_ns"]
    assert first["slow"]["written_ns"] - first["slow"]["started_ns"] == 50 * 10**9
    seen = {
        name: next(row["time_ns"] for row in run.rows("calls") if row["summary_key"] is not None)
        for name, run in runs.items()
    }
    assert seen["quick"] < first["slow"]["written_ns"] <= seen["slow"]


def test_a_higher_ratio_of_characters_per_token_fires_later(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """SUM-TOK-05: at 4.0 Chinese text looks a third as long as at 1.3."""
    configs = [
        summarising(f"at {ratio}", token=200).replace(name=f"at {ratio}", counter={"runes_per_token": ratio})
        for ratio in (1.3, 4.0)
    ]
    runs = replay(recorded(chat(40)), configs, runs=tmp_path, progress=False)
    first = {name: next(row["call"] for row in run.rows("checks") if row["fired"]) for name, run in runs.items()}
    assert first["at 4.0"] > 2 * first["at 1.3"]


def test_finished_runs_are_used_again_and_other_options_make_another_run(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-CFG-03."""
    recordings = recorded(chat(4))
    first = replay(recordings, summarising("same"), runs=tmp_path, progress=False)["same"]
    written = first.path.stat().st_mtime_ns
    again = replay(recordings, summarising("same"), runs=tmp_path, progress=False)["same"]
    assert (again.path, again.path.stat().st_mtime_ns) == (first.path, written)
    other = replay(recordings, summarising("same", token=301), runs=tmp_path, progress=False)["same"]
    assert other.path != first.path


def test_the_exact_request_of_a_call_can_be_had_again(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-12."""
    run = replay(recorded(chat(12)), summarising(), runs=tmp_path, progress=False)["summaries"]
    call = run.call("c1", 20)
    assert call.row["messages"] == len(call.request.messages)
    assert call.request.messages[0].content.startswith("你是客服。")
    with pytest.raises(ReplayError, match="no call 99"):
        run.call("c1", 99)
    with pytest.raises(ReplayError, match="no conversation 'c2'"):
        run.call("c2", 0)


def test_runs_answer_sql_together(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-11."""
    runs = replay(
        recorded(chat(4)), [config(name="a"), config(name="b", model={"name": "x"})], runs=tmp_path, progress=False
    )
    assert runs.sql("SELECT run, max(call) FROM calls GROUP BY run ORDER BY run")[1] == [("a", 7), ("b", 7)]
    assert "a" in runs["a"]._repr_html_()
    columns, rows = query_runs("SELECT run_file, count(*) AS n FROM calls GROUP BY ALL ORDER BY ALL", tmp_path)
    assert columns == ["run_file", "n"]
    assert [row[1] for row in rows] == [8, 8]
    assert sorted(load_runs(tmp_path)) == ["a", "b"]


def test_two_configurations_of_one_name_are_refused(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two configurations are named 'a'"):
        replay(recorded(chat(2)), [config(name="a"), summarising("a")], runs=tmp_path)


_KILLED = """
import sys
from tests.replay.conftest import chat, summarising
from workbench.recordings import load_recordings
import workbench.replay.replay as module
module.BLOCK_EVENTS = 100
module.replay(load_recordings(sys.argv[1]), summarising(), runs=sys.argv[2], progress=False)
"""


@pytest.mark.slow
def test_a_killed_replay_resumes_and_ends_with_the_same_trace(
    recorded: Callable[..., Recordings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WB-RPL-10: nothing half-written is taken for a finished run, and finished conversations aren't replayed."""
    recordings = recorded(*(chat(16, ident=f"c{i:02d}") for i in range(10)))
    source = tmp_path / "chats.jsonl"
    undisturbed = replay(recordings, summarising(), runs=tmp_path / "whole", progress=False)["summaries"]
    folder = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(source), str(folder)], cwd=Path(__file__).parents[2])
    partial = folder / f"{undisturbed.run_id}.partial.duckdb"
    deadline = time.monotonic() + 60
    log = partial.with_name(partial.name + ".wal")
    while not (log.exists() and log.stat().st_size > 40_000) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if (folder / f"{undisturbed.run_id}.duckdb").exists():
        pytest.fail("the replay was finished before it could be killed: make it longer")
    resumed = replay(recordings, summarising(), runs=folder, progress=False)["summaries"]
    assert resumed.facts == undisturbed.facts


def test_a_conversation_id_that_occurs_twice_gets_a_number(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    run = replay(recorded(chat(2), chat(3, tools=False)), config(name="a"), runs=tmp_path, progress=False)["a"]
    assert [row["conversation"] for row in run.rows("conversations")] == ["c1", "c1~2"]


def test_what_is_recorded_behind_the_last_answer_is_seen_by_the_next_call(recorded: Callable[..., Recordings]) -> None:
    """WB-RPL-02: a note after an answer belongs to the history."""
    conversation = {
        "id": "c",
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi"},
            {"role": "system", "content": "note: the customer is a member"},
            {"role": "user", "content": "again"},
            {"role": "assistant", "content": "yes"},
        ],
    }
    sent: list[SentRequest] = []
    (loaded,) = recorded(conversation).load()
    replay_conversation(loaded, config(), on_sent=lambda facts, request: sent.append(request))
    note = "note: the customer is a member"
    assert [m.content for m in sent[1].request.messages] == ["hello", "hi", note, "again"]


def test_a_fresh_replay_that_fails_leaves_the_finished_run(
    recorded: Callable[..., Recordings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WB-RPL-10."""
    recordings = recorded(chat(2))
    (run,) = replay(recordings, [config(name="a")], runs=tmp_path / "runs").values()
    facts = run.facts

    def fail(*args: Any, **kwargs: Any) -> None:
        raise ReplayError("broken")

    with monkeypatch.context() as patch:
        patch.setattr("workbench.replay.replay.replay_conversation", fail)
        with pytest.raises(ReplayError, match="broken"):
            replay(recordings, [config(name="a")], runs=tmp_path / "runs", fresh=True)
    assert load_runs(tmp_path / "runs")["a"].facts == facts


def test_equal_configurations_of_two_names_are_two_runs(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    recordings = recorded(chat(1))
    first = replay(recordings, [config(name="基线")], runs=tmp_path / "runs")
    second = replay(recordings, [config(name="调整"), config(name="x y"), config(name="x-y")], runs=tmp_path / "runs")
    assert list(first) == ["基线"]
    assert list(second) == ["调整", "x y", "x-y"]
    assert len(load_runs(tmp_path / "runs")) == 4


def test_runs_of_another_version_are_left_out_by_name(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-RPL-10: their tables may lack what this version asks for."""
    folder = tmp_path / "runs"
    replay(recorded(chat(2)), [config(name="new")], runs=folder)
    (old,) = replay(recorded(chat(2)), [config(name="old")], runs=folder).values()
    with duckdb.connect(str(old.path)) as connection:
        connection.execute("UPDATE run SET trace_version = trace_version - 1")
        connection.execute("DROP TABLE coverage")
    assert list(load_runs(folder)) == ["new"]
    assert query_runs("SELECT count(DISTINCT run_file) FROM calls", folder)[1] == [(1,)]
    with pytest.raises(ReplayError, match="another version"):
        load_runs(folder, ["old"])
    load_runs(folder)["new"].path.unlink()
    with pytest.raises(StoreError, match="no finished run"):
        load_runs(folder)


def test_a_session_that_expired_between_two_requests_is_made_anew(recorded: Callable[..., Recordings]) -> None:
    (loaded,) = recorded(chat(3)).load()
    columns = TABLES["calls"].column_names
    trace = replay_conversation(loaded, config(service={"session_ttl_s": 20.0}))
    rows = [dict(zip(columns, row, strict=True)) for row in trace.rows["calls"]]
    assert len(rows) == 6
    assert rows[0]["history_tokens"] == rows[2]["history_tokens"]


def test_the_cause_is_the_history_limit_when_nothing_but_the_oldest_message_goes(
    recorded: Callable[..., Recordings],
) -> None:
    """WB-CACHE-03."""
    (loaded,) = recorded(chat(3, tools=False)).load()
    trace = replay_conversation(loaded, config(agent={"max_history_runs": 4, "history_limit_unit": "message"}))
    causes = [row[TABLES["calls"].column_names.index("break_cause")] for row in trace.rows["calls"]]
    assert causes == ["first_call", None, "history_limit"]


def test_a_run_is_read_one_conversation_after_the_other_with_the_rows_of_each(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    recordings = recorded(*(chat(4 + i, ident=f"c{i}") for i in range(3)))
    run = replay(recordings, summarising(), runs=tmp_path, progress=False)["summaries"]
    tables = ("calls", "summaries", "violations")
    found = list(run.by_conversation(tables))
    assert [row for row, _ in found] == run.rows("conversations")
    for table in tables:
        assert [one for _, rows in found for one in rows[table]] == run.rows(table)
    assert all(one["conversation"] == row["conversation"] for row, rows in found for one in rows["calls"])


def test_a_run_that_another_process_goes_on_with_between_two_blocks_is_let_be(
    recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    (conversation,) = recorded(chat(2)).load()
    key = RunKey(summarising(), "data", "source", "engine")
    first, second = RunWriter(tmp_path, key), RunWriter(tmp_path, key)
    first.begin(fresh=False)
    first.close()
    second.begin(fresh=False)
    second.add([replay_conversation(conversation, key.config)])
    second.close()
    with pytest.raises(StoreLockedError, match="another process replays the same run"):
        first.add([replay_conversation(conversation, key.config)])
    first.close()
    second.finish()
    with pytest.raises(StoreLockedError, match="another process replays the same run"):
        first.finish()
    assert Run(second.path).rows("conversations")[0]["conversation"] == conversation.id
