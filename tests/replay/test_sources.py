"""Summaries of a replay from a live model or a cassette: paid once, the same trace, no key anywhere."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, summarising
from workbench.build import billing_counter
from workbench.cli import main
from workbench.config import RunConfig
from workbench.errors import CassetteFormatError, CassetteMissError, ConfigError, ModelAuthError, ReplayError
from workbench.model.cassette import Cassette
from workbench.recordings import Conversation, Recordings
from workbench.replay.conversation import replay_conversation
from workbench.replay.replay import replay
from workbench.replay.runs import Run
from workbench.replay.sources import SUMMARY_SOURCE_VERSION, source_version, summary_model
from workbench.replay.trace import TABLES
from workbench.selftest.fake_server import FAULTS, FakeServer, answers, refusal, saying

CANARY = "sk-canary-0000-Zq8vTnWk3xYb7"


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def live(server: FakeServer, tmp_path: Path) -> Callable[..., RunConfig]:
    """A configuration with live summaries from the local server."""

    def make(model: str = "fine", name: str = "live", **values: Any) -> RunConfig:
        summaries = {"source": "live", "model": model, "base_url": server.base_url, **values.pop("summaries", {})}
        summaries.setdefault("cassette", str(tmp_path / "answers.jsonl"))
        return summarising(name, summaries=summaries, **values)

    return make


def run_of(recordings: Recordings, config: RunConfig, folder: Path, **options: Any) -> Run:
    return replay(recordings, config, runs=folder, progress=False, **options)[config.name]


def summaries_of(conversation: Conversation, config: RunConfig) -> tuple[str, list[dict[str, Any]]]:
    """Hash of the trace and rows of the summaries, without a file."""
    trace = replay_conversation(conversation, config)
    columns = TABLES["summaries"].column_names
    return trace.digest(), [dict(zip(columns, row, strict=True)) for row in trace.rows["summaries"]]


def played(config: RunConfig, **summaries: Any) -> RunConfig:
    return config.replace(summaries={"source": "cassette", **summaries})


def test_a_live_replay_pays_once_and_its_trace_is_the_same_again_and_from_the_cassette(
    server: FakeServer, live: Callable[..., RunConfig], recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-07, WB-RPL-09, WB-API-01."""
    recordings = recorded(chat(9), chat(6, ident="c2", tools=False))
    before = server.calls()
    first = run_of(recordings, live(), tmp_path / "a")
    n_calls = server.calls() - before
    assert n_calls == len(Cassette(tmp_path / "answers.jsonl")) == first.facts["summaries"] >= 3
    keys = [entry.key for entry in Cassette(tmp_path / "answers.jsonl").entries()]
    assert keys == sorted(keys)
    again = run_of(recordings, live(), tmp_path / "a", fresh=True)
    alone = run_of(recordings, played(live(), base_url="http://127.0.0.1:9/v1"), tmp_path / "b")
    assert server.calls() - before == n_calls
    assert len({run.facts["trace_hash"] for run in (first, again, alone)}) == 1


@pytest.mark.slow
def test_processes_share_one_cassette_and_give_the_same_traces_and_the_same_file(
    server: FakeServer, live: Callable[..., RunConfig], recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-09, WB-TUNE-04."""
    recordings = recorded(*(chat(9, ident=f"c{i}", tools=i % 2 == 0) for i in range(4)))
    found = []
    for jobs in (1, 2):
        path = tmp_path / f"{jobs}.jsonl"
        configs = [live("fine", f"token-{n}", token=n, summaries={"cassette": str(path)}) for n in (300, 500)]
        runs = replay(recordings, configs, runs=tmp_path / f"{jobs}", jobs=jobs, progress=False)
        keys = [entry.key for entry in Cassette(path).entries()]
        assert keys == sorted(set(keys))
        found.append(([run.facts["trace_hash"] for run in runs.values()], keys))
    assert found[0] == found[1]


def test_a_replay_works_inside_a_running_event_loop(
    live: Callable[..., RunConfig], recorded: Callable[..., Recordings]
) -> None:
    """WB-API-01: as in a notebook."""
    conversation = recorded(chat(6)).load()[0]

    async def notebook() -> tuple[str, list[dict[str, Any]]]:
        return summaries_of(conversation, live())

    digest, rows = asyncio.run(notebook())
    assert rows
    assert digest == summaries_of(conversation, played(live()))[0]


def test_latency_counts_on_top_of_recorded_answers(
    live: Callable[..., RunConfig], recorded: Callable[..., Recordings]
) -> None:
    """WB-RPL-08."""
    _, rows = summaries_of(recorded(chat(6)).load()[0], live(summaries={"latency_s": 20.0}))
    assert rows
    took_ns = {row["status"]: row["written_ns"] - row["started_ns"] for row in rows}
    assert took_ns == {"written": 20 * 10**9, "copied": 0}


# --- which run is whose ---------------------------------------------------------------------------------


def test_recorded_latency_is_as_long_as_the_recorded_answer_took(
    recorded: Callable[..., Recordings], live: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """WB-RPL-08: summary_latency = recorded."""
    recordings = recorded(chat(8))
    run = replay(recordings, live("fine", "paid"), runs=tmp_path / "paid", progress=False)["paid"]
    cassette = tmp_path / "answers.jsonl"
    lines = [json.loads(line) for line in cassette.read_text(encoding="utf-8").splitlines()]
    durations = sorted(round(line["duration_s"] * 10**9) for line in lines if "duration_s" in line)
    timed = played(run.config.replace(name="timed"), cassette=str(cassette), latency_s="recorded")
    rows = replay(recordings, timed, runs=tmp_path / "timed", progress=False)["timed"].rows("summaries")
    written = [row for row in rows if row["status"] == "written"]
    assert sorted(row["written_ns"] - row["started_ns"] for row in written) == durations
    assert sum(durations) > 0


def test_another_answer_in_the_cassette_makes_another_run(
    server: FakeServer, live: Callable[..., RunConfig], recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-CFG-03: a stored run isn't taken for one with other summaries."""
    recordings = recorded(chat(6))
    config, path = played(live()), tmp_path / "answers.jsonl"
    run_of(recordings, live(), tmp_path / "runs")
    first = run_of(recordings, config, tmp_path / "runs")
    assert run_of(recordings, config, tmp_path / "runs").run_id == first.run_id
    before = source_version(config)
    path.unlink()
    server.script("fine", saying("别的摘要"))
    run_of(recordings, live(), tmp_path / "runs", fresh=True)
    server.script("fine", saying("摘要：退款 A1001 已处理 🙂。"))
    assert source_version(config) != before
    second = run_of(recordings, config, tmp_path / "runs")
    assert second.run_id != first.run_id
    assert {row["text"] for row in second.rows("summaries")} == {"别的摘要"}


def test_the_identity_of_a_source_names_the_model_or_the_content_and_no_key(
    live: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """WB-CFG-03, SEC-08."""
    monkeypatch.setenv("TEST_API_KEY", CANARY)
    config = live("gpt-x", summaries={"api_key_env": "TEST_API_KEY"})
    assert source_version(config) == f"{SUMMARY_SOURCE_VERSION} live gpt-x"
    assert CANARY not in str(config.resolved())
    assert source_version(summarising()) == SUMMARY_SOURCE_VERSION
    with pytest.raises(CassetteFormatError):
        source_version(played(config))
    without = played(config).replace(summarizer=None, trigger=None)
    assert source_version(without) == SUMMARY_SOURCE_VERSION
    assert summary_model(without, billing_counter(without)).name == "extractive"


# --- what a replay can't go on from ---------------------------------------------------------------------


def test_a_changed_option_is_a_miss_that_stops_the_replay_and_names_what_differs(
    live: Callable[..., RunConfig], recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-REG-04, REL-15, B39."""
    recordings = recorded(chat(6))
    run_of(recordings, live(), tmp_path / "runs")
    changed = played(live()).replace(summarizer={"max_summary_words": 41})
    with pytest.raises(
        ReplayError, match=r"conversation 'c1' under 'live': .*first differs in messages\[0\]"
    ) as caught:
        run_of(recordings, changed, tmp_path / "runs")
    miss = caught.value.__cause__
    assert isinstance(miss, CassetteMissError)
    assert miss.field == "messages[0].content"
    assert "--summaries live" in caught.value.hint


def test_a_live_model_that_does_not_answer_stops_the_replay_and_what_was_paid_is_kept(
    server: FakeServer, live: Callable[..., RunConfig], recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """WB-RPL-09, WB-RPL-10: a trace of failures would show the network, not the configuration."""
    recordings = recorded(chat(9))
    server.script("dies", saying("一"), FAULTS["wrong-key"])
    with pytest.raises(ReplayError, match="answered 401") as caught:
        run_of(recordings, live("dies"), tmp_path / "runs")
    assert isinstance(caught.value.__cause__, ModelAuthError)
    assert caught.value.exit_code == 5
    assert len(Cassette(tmp_path / "answers.jsonl")) == 1
    assert list((tmp_path / "runs").glob("*.duckdb")) == list((tmp_path / "runs").glob("*.partial.duckdb"))
    before = server.calls("dies")
    server.script("dies", saying("二"))
    run = run_of(recordings, live("dies"), tmp_path / "runs")
    assert server.calls("dies") - before == run.facts["summaries"] - 1


@pytest.mark.parametrize("fault", ["context-plain", "content-filter"])
def test_a_refusal_that_is_about_the_request_is_a_failed_summary_and_replays_as_one(
    server: FakeServer, live: Callable[..., RunConfig], recorded: Callable[..., Recordings], fault: str
) -> None:
    """WB-RPL-09, SUM-CALL-03."""
    conversation = recorded(chat(6)).load()[0]
    server.script(fault, FAULTS[fault])
    first, rows = summaries_of(conversation, live(fault))
    before = server.calls()
    assert {row["status"] for row in rows} == {"failed"}
    assert summaries_of(conversation, live(fault)) == (first, rows)
    assert summaries_of(conversation, played(live(fault))) == (first, rows)
    assert server.calls() == before


def test_no_key_gets_into_a_cassette_a_run_an_error_or_a_log(
    server: FakeServer,
    live: Callable[..., RunConfig],
    recorded: Callable[..., Recordings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SEC-08."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("TEST_API_KEY", CANARY)
    recordings = recorded(chat(6))
    config = live(summaries={"api_key_env": "TEST_API_KEY"})
    run = run_of(recordings, config, tmp_path / "runs")
    assert server.received[-1].headers["authorization"] == f"Bearer {CANARY}"
    server.script("quotes", answers(refusal(f"wrong key {CANARY}"), "401 Unauthorized"))
    with pytest.raises(ReplayError) as caught:
        run_of(recordings, live("quotes", "quoting", summaries={"api_key_env": "TEST_API_KEY"}), tmp_path / "runs")
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for text in (caplog.text, str(caught.value), repr(run), str(run.config.resolved())):
        assert CANARY not in text
    assert CANARY.encode() not in written
    assert CANARY[8:] not in str(caught.value)


# --- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("summaries", "message"),
    [
        ({"source": "live"}, "model is missing"),
        ({"source": "live", "model": "m"}, "cassette is missing"),
        ({"source": "cassette"}, "cassette is missing"),
        ({"latency_s": "recorded"}, "has no recorded durations"),
        ({"source": "tape"}, "summaries.source = 'tape'"),
        ({"base_url": "api.example.com"}, "base_url = 'api.example.com'"),
        ({"base_url": "https://me:canary-1234@example.com"}, "base_url has a password"),
        ({"api_key_env": "sk-canary-1234"}, "api_key_env is no name"),
        ({"api_key": "sk-canary-1234"}, "summaries.api_key: unknown"),
        ({"context_window": 0}, "summaries.context_window = 0"),
    ],
    ids=str,
)
def test_what_a_source_lacks_is_said_before_any_work(summaries: dict[str, Any], message: str) -> None:
    """WB-CFG-02, SEC-08: and a key that somebody put into the file isn't repeated."""
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_values({"summaries": summaries})
    assert message in str(caught.value)
    assert caught.value.field.startswith("summaries.")
    cause = caught.value.__cause__
    assert "canary" not in caught.value.one_line() + str(cause) + repr(cause)


def test_the_command_line_takes_both_sources(
    server: FakeServer, recorded: Callable[..., Recordings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """WB-CLI-03, WB-RPL-07."""
    recorded(chat(6))
    settings = tmp_path / "live.toml"
    settings.write_text(
        "[summarizer]\n[trigger]\ntoken = 300\n[counter]\nrunes_per_token = 1.0\n[billing]\nencoding = 'runes:1'\n"
    )
    options = [
        "replay", str(tmp_path / "chats.jsonl"), "--config", str(settings), "--runs", str(tmp_path / "runs"), "--json",
        "--set", "summaries.model=fine", "--set", f"summaries.base_url={server.base_url}",
    ]  # fmt: skip
    before = server.calls()
    cassette = ["--set", f"summaries.cassette={tmp_path / 'answers.jsonl'}"]
    assert main([*options, "--summaries", "live"]) == 2
    assert "cassette is missing" in capsys.readouterr().err
    assert main([*options, *cassette, "--summaries", "live"]) == 0
    n_calls = server.calls() - before
    assert n_calls > 0
    assert main([*options, *cassette, "--summaries", "cassette"]) == 0
    assert server.calls() - before == n_calls
    assert main([*options, *cassette, "--summaries", "cassette", "--set", "trigger.token=200"]) == 1
    assert "no recorded answer" in capsys.readouterr().err
    assert main([*options, *cassette, "--summaries", "live", "--set", "summaries.model=wrong-key"]) == 5


@pytest.mark.parametrize("source", ["extractive", "sized"])
def test_the_window_of_the_summary_model_holds_for_every_source(
    source: str, recorded: Callable[..., Recordings], tmp_path: Path
) -> None:
    """SUM-FIT-02: a fork that doesn't fit loses what its parent had, and with it the cached prefix."""
    summarizer = {"max_summary_words": 40, "cache_safe_forking": True}
    configs = [
        summarising(
            str(window),
            token=2_000,
            summarizer=summarizer,
            counter={"runes_per_token": 1.0},
            summaries={"source": source, "context_window": window},
        )
        for window in (1_000, 200_000)
    ]
    runs = replay(recorded(chat(30, n_repeats=40)), configs, runs=tmp_path, progress=False)
    cut, whole = (
        [row["prefix_tokens"] for row in run.rows("summaries") if row["status"] == "written"] for run in runs.values()
    )
    calls = runs["200000"].rows("calls")
    written = [row for row in runs["200000"].rows("summaries") if row["status"] == "written"]
    assert whole == [calls[row["call"] - 1]["prompt_tokens"] for row in written]
    assert cut[0] < whole[0]
