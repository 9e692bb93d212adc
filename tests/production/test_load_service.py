"""An exported file, running: the same requests as the replay, and what is refused."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.production.traffic import Traffic, TrafficClock, as_bytes, wire_bytes
from tests.replay.conftest import config, summarising
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.model.extractive import ExtractiveModel
from workbench.production.load import ProductionService, _WithWindow
from workbench.recordings.types import Conversation
from workbench.replay.conversation import replay_conversation
from workbench.tokens import SimpleTokenCounter

ROOT = Path(__file__).resolve().parent.parent.parent

CONFIGS: dict[str, RunConfig] = {
    "system": summarising("system", token=900),
    "user, by scripts": summarising(
        "user, by scripts",
        mode="user",
        token=500,
        counter={"kind": "scripts", "scripts": {"han": 1.2, "kana": 1.1}, "runes_per_token": 3.5},
        summarizer={"max_summary_words": 30, "skip_recent": 2},
    ),
    "compaction": summarising(
        "compaction",
        token=3_500,
        compaction={
            "enabled": True,
            "tool_result_max_tokens": 60,
            "oversized_tool_result_max_tokens": 150,
            "keep_recent_requests": 0,
            "skip_recent": 3,
        },
        agent={"enable_on_demand_session": True, "sync_summary_intra_run": True},
    ),
    "tailoring": summarising(
        "tailoring",
        mode="user",
        trigger={"context": {"ratio": 0.2, "min_tokens": 100}},
        model={"name": "gpt-4o", "context_window": 6_000},
        tailoring={"enabled": True, "max_input_tokens": 3_000, "strategy": "head_out"},
    ),
    "fork": summarising(
        "fork",
        summarizer={"cache_safe_forking": True, "max_summary_words": 50},
        trigger={"any": [{"event": 12}, {"all": [{"token": 300}, {"time": "10m"}]}]},
        compaction={"enabled": True, "threshold_ratio": 0.3},
        model={"context_window": 5_000},
        agent={"sync_summary_intra_run": True},
    ),
    "release of August": summarising("release of August", token=700, profile="TRPC_AGENT_GO_2026_08"),
    "placeholders": config(
        name="placeholders", compaction={"enabled": True, "tool_result_max_tokens": 60, "keep_recent_requests": 0}
    ),
    "limit": config(name="limit", agent={"max_history_runs": 2, "reasoning_content_mode": "discard_all"}),
}


@pytest.fixture(scope="module")
def conversation() -> Conversation:
    found = {one.id: one for one in wb.load_recordings(ROOT / "datasets" / "zh-en-coding")}
    return found["zh-en-coding-02"]


async def sent_by(production: ProductionService, traffic: Traffic) -> list[bytes]:
    """What the main model receives when the conversation happens in production."""
    recorded = traffic.conversation
    async with production:
        agent = production.agent(
            model=traffic,
            name=recorded.calls[0].event.author,
            instruction=recorded.instruction,
            tool_specs=recorded.tools,
            tool_executor=traffic,
        )
        await traffic.run(production.runner(recorded.app_name, agent=agent, **traffic.hooks()))
    return traffic.requests


def production_requests(path: Path, conversation: Conversation, **options: Any) -> list[bytes]:
    clock = TrafficClock()
    production = wb.load_service(path, summary_model=ExtractiveModel(), clock=clock, **options)
    model = production.config.model
    traffic = Traffic(conversation, clock, name=model.name, window=model.context_window or 0)
    return asyncio.run(sent_by(production, traffic))


QUICK = ("compaction",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else (pytest.mark.slow,)) for name in CONFIGS]
)
def test_an_exported_file_sends_what_the_replay_sent_byte_for_byte(
    name: str, conversation: Conversation, tmp_path: Path
) -> None:
    """WB-EXP-03: TOML and JSON, in memory and in a DuckDB file."""
    run = wb.replay([conversation], CONFIGS[name], runs=tmp_path / "runs")[name]
    last = run.call(conversation.id, len(conversation.calls) - 1)
    replayed: list[bytes] = []
    replay_conversation(
        conversation, run.config, on_sent=lambda _, sent: replayed.append(wire_bytes(last.model, sent.request))
    )
    assert as_bytes(last.wire()) == replayed[-1]
    made = wb.export(CONFIGS[name], tmp_path / "out", to=["toml", "json"], evidence=run)
    assert production_requests(made.paths["toml"], conversation) == replayed
    store = tmp_path / "sessions.duckdb"
    assert production_requests(made.paths["json"], conversation, store=store) == replayed
    assert store.exists()
    if CONFIGS[name].summarizer is not None:
        assert run.facts["summaries"] > 0


@pytest.mark.slow
def test_the_configurations_do_what_they_are_named_after(conversation: Conversation, tmp_path: Path) -> None:
    """The comparison above would show little if no summary, placeholder or dropped round were in the requests."""
    runs = wb.replay([conversation], list(CONFIGS.values()), runs=tmp_path)
    compacted = [*runs["compaction"].rows("compactions"), *runs["placeholders"].rows("compactions")]
    assert {row["pass"] for row in compacted} >= {1, 2}
    assert any(row["tailored_messages"] for row in runs["tailoring"].rows("calls"))
    assert {row["mode"] for row in runs["fork"].rows("summaries")} >= {"cache_safe_fork"}
    assert len({runs[name].facts["prompt_tokens"] for name in CONFIGS}) == len(CONFIGS)


def exported(config: RunConfig, folder: Path, **options: Any) -> Path:
    return wb.export(config, folder, to="toml", date="2026-03-01", **options).paths["toml"]


def test_a_service_on_another_counter_is_refused_with_the_reason(tmp_path: Path) -> None:
    """WB-EXP-04: whether the file or the call names the other one; allowed it runs."""
    path = exported(summarising("tuned"), tmp_path)
    with pytest.raises(ConfigError, match=r"tuned with the counter runes, 1 char.* loaded with runes:2.5: its thresh"):
        wb.load_service(path, summary_model=ExtractiveModel(), counter=SimpleTokenCounter(2.5))
    path.write_text(path.read_text("utf-8").replace("runes_per_token = 1.0", "runes_per_token = 2.5", 1), "utf-8")
    with pytest.raises(ConfigError, match=r"loaded with runes, 2.5 characters per token") as refused:
        wb.load_service(path, summary_model=ExtractiveModel())
    assert "allow_other_counter" in refused.value.hint
    assert wb.load_service(path, summary_model=ExtractiveModel(), allow_other_counter=True).config.name == "tuned"
    same = exported(summarising("same"), tmp_path)
    assert wb.load_service(same, summary_model=ExtractiveModel(), counter=SimpleTokenCounter(1.0)).counter is not None


def test_options_of_the_counter_that_its_kind_does_not_use_may_differ(tmp_path: Path) -> None:
    """WB-EXP-04."""
    path = exported(summarising("tuned"), tmp_path)
    text = path.read_text("utf-8").replace("[counter]\n", '[counter]\nencoding = "cl100k_base"\n')
    path.write_text(text, "utf-8")
    assert wb.load_service(path, summary_model=ExtractiveModel()).config.counter.encoding == "cl100k_base"


def test_another_counter_reaches_summarizer_and_agent(tmp_path: Path) -> None:
    """WB-EXP-04: what was allowed is what counts."""
    counter = SimpleTokenCounter(2.5)
    model = wb.ScriptedModel(["yes"])
    production = wb.load_service(
        exported(summarising("tuned"), tmp_path), model=model, counter=counter, allow_other_counter=True
    )
    agent = production.agent()
    assert agent.compaction_counter is agent.tailoring_counter is counter
    assert production.service.summarizer._counter is counter


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_an_export_of_another_version_is_one_clear_sentence(tmp_path: Path, ending: str) -> None:
    """WB-EXP-01: for the service and for whoever loads it as a configuration."""
    path = wb.export(summarising("tuned"), tmp_path, to=ending).paths[ending]
    old, new = ("format = 1", "format = 2") if ending == "toml" else ('"format": 1', '"format": 2')
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    for load in (RunConfig.load, wb.load_service):
        with pytest.raises(ConfigError, match=r"exported in form 2, this program reads form 1") as refused:
            load(path)
        assert "\n" not in refused.value.one_line()
        assert "export again" in refused.value.hint


@pytest.mark.parametrize(
    "table",
    ["export = 3", "[export]\nformat = 1", '[export]\nformat = 1\nprofile = "SEED"\nconfig_hash = 1\ncounter = 5'],
)
def test_a_damaged_export_table_is_told(tmp_path: Path, table: str) -> None:
    """WB-EXP-01."""
    path = tmp_path / "a.toml"
    path.write_text(table, "utf-8")
    with pytest.raises(ConfigError, match="export") as refused:
        wb.load_service(path)
    assert refused.value.hint or refused.value.allowed


@pytest.fixture(scope="module")
def exported_json(runs: Any, tuned: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An export as it was written."""
    folder = tmp_path_factory.mktemp("exported")
    return wb.export(tuned, folder, to="json", evidence=runs["tuned"]).paths["json"].read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("evidence", 5),
        ("evidence", {"run": "a"}),
        ("evidence.figures", [5]),
        ("evidence.figures", [{"name": "a", "doc": "b", "value": "many"}]),
        ("evidence.run_id", 7),
        ("evidence.calls", None),
        ("counter", {"kind": "ten fingers"}),
        ("format", True),
    ],
)
def test_evidence_that_is_none_is_told_before_anything_runs(
    place: str, value: Any, exported_json: str, tmp_path: Path
) -> None:
    """WB-EXP-01: one sentence, without a name of the program's inside."""
    path, values = tmp_path / "tuned.json", json.loads(exported_json)
    *parents, last = f"export.{place}".split(".")
    table = values
    for name in parents:
        table = table[name]
    table[last] = value
    path.write_text(json.dumps(values), "utf-8")
    with pytest.raises(ConfigError, match="export") as refused:
        wb.load_service(path, summary_model=ExtractiveModel())
    assert "__init__" not in refused.value.one_line()
    assert "positional" not in refused.value.one_line()


def test_a_file_that_was_changed_by_hand_is_loaded_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """WB-EXP-03: its evidence isn't about it any more."""
    path = exported(summarising("tuned", token=300), tmp_path)
    path.write_text(path.read_text("utf-8").replace("token = 300", "token = 301"), "utf-8")
    with caplog.at_level(logging.WARNING):
        production = wb.load_service(path, summary_model=ExtractiveModel())
    assert "its evidence isn't about this configuration" in caplog.text
    assert production.stamp is not None


def test_a_file_that_somebody_wrote_needs_no_export(tmp_path: Path) -> None:
    """WB-EXP-03."""
    (tmp_path / "own.toml").write_text("[agent]\nmax_history_runs = 3\n", "utf-8")
    production = wb.load_service(tmp_path / "own.toml", model=wb.ScriptedModel(["hello"]))
    assert production.stamp is None
    assert production.agent().settings.max_history_runs == 3


@pytest.mark.parametrize("path", [5, None, b"tuned.toml", ["tuned.toml"]])
def test_what_is_no_path_is_told_with_what_is_accepted(path: Any) -> None:
    """WB-EXP-03: for the service and for whoever loads it as a configuration."""
    for load in (RunConfig.load, wb.load_service):
        with pytest.raises(ConfigError) as refused:
            load(path)
        assert str(refused.value) == f"path = {path!r}; allowed: the path of a TOML or JSON file"


def test_a_file_that_is_not_there_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    """WB-EXP-03: one kind of error for all that can be wrong with the file."""
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match="configuration can't be read") as refused:
            wb.load_service(path)
        assert str(path) in str(refused.value)
        assert refused.value.hint == "check the path"


def test_a_traceback_of_an_unknown_option_names_the_nearest_one(tmp_path: Path) -> None:
    """WB-CFG-02: a program that loads the file prints no hint by itself, as the commands do."""
    path = exported(summarising("tuned", token=300), tmp_path)
    path.write_text(path.read_text("utf-8").replace("token = 300", "tokens = 300"), "utf-8")
    with pytest.raises(ConfigError) as refused:
        wb.load_service(path, summary_model=ExtractiveModel())
    shown = "".join(traceback.format_exception_only(refused.value))
    assert "trigger.tokens: unknown\n" in shown
    assert "did you mean token?" in shown
    assert not hasattr(ConfigError("no hint"), "__notes__"), "and there is no empty line without one"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"store": 5}, "store = 5; allowed: None, a path of a DuckDB file, or a session store"),
        ({"store": wb.InMemorySessionService}, "or a session store"),
        ({"store": "a\0b.duckdb"}, "path = 'a\\x00b.duckdb'; allowed: a path, which holds no NUL character"),
        ({"model": "gpt-4.1-mini"}, "model = 'gpt-4.1-mini'; allowed: a model, such as OpenAIModel("),
        ({"model": wb.ScriptedModel}, "; allowed: a model, such as OpenAIModel("),
        ({"summary_model": 3}, "summary_model = 3; allowed: a model, such as OpenAIModel("),
    ],
)
def test_what_is_no_model_and_no_store_is_told_at_once(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    """WB-EXP-03: not at the first request."""
    path = exported(summarising("tuned"), tmp_path)
    with pytest.raises(ConfigError) as refused:
        wb.load_service(path, **({"model": ExtractiveModel()} | given))
    assert told in refused.value.one_line()
    assert refused.value.one_line().count("\n") == 0
    production = wb.load_service(path, model=ExtractiveModel())
    for ask in (production.agent, lambda **options: production.runner("shop", **options)):
        with pytest.raises(ConfigError, match="model = 'x'; allowed: a model"):
            ask(model="x")


def test_a_path_with_a_nul_is_told_for_stores_and_configurations() -> None:
    """WB-EXP-03."""
    with pytest.raises(ConfigError, match="no NUL character"):
        wb.DuckDBSessionService("a\0b.duckdb")
    with pytest.raises(ConfigError, match="NUL"):
        wb.load_service("a\0b.toml", model=ExtractiveModel())


def test_somebody_has_to_write_the_summaries(tmp_path: Path) -> None:
    """WB-EXP-03: a model given, one that the file names, or the main model."""
    path = exported(summarising("tuned"), tmp_path)
    with pytest.raises(ConfigError, match="nothing says which model writes the summaries"):
        wb.load_service(path)
    main = wb.ScriptedModel(["hello"])
    assert wb.load_service(path, model=main).service.summarizer.model is main
    named = summarising(
        "named",
        summaries={
            "source": "live",
            "model": "small-1",
            "cassette": "c.jsonl",
            "base_url": "http://127.0.0.1:9/v1",
            "context_window": 9_000,
        },
    )
    writer = wb.load_service(exported(named, tmp_path), model=main).service.summarizer.model
    assert (writer.name, writer.base_url, writer.context_window) == ("small-1", "http://127.0.0.1:9/v1", 9_000)


def test_the_file_says_how_much_the_main_model_takes(tmp_path: Path) -> None:
    """WB-EXP-03: a share of the window fires where it fired in the replay."""
    path = exported(config(name="w", model={"name": "some-model", "context_window": 4_321}), tmp_path)
    production = wb.load_service(path)
    assert (production.agent().model.name, production.agent().model.context_window) == ("some-model", 4_321)
    given = production.agent(model=wb.ScriptedModel(["hello"], name="other")).model
    assert (given.name, given.context_window) == ("other", 4_321)
    with pytest.raises(ConfigError, match="the agent has no model"):
        wb.load_service(exported(config(name="none"), tmp_path)).agent()


def test_a_service_answers_with_tools_as_in_the_readme(tmp_path: Path) -> None:
    """WB-EXP-03: `runner` makes agent and runner at once."""

    def look_up(order: str) -> dict[str, str]:
        """Where an order is."""
        return {"order": order, "status": "shipped"}

    call = wb.ToolCall(id="c1", name="look_up", arguments='{"order": "7731"}')
    model = wb.ScriptedModel([wb.ScriptedAnswer(tool_calls=(call,)), "It was shipped."])

    async def ask() -> list[str]:
        path = exported(summarising("tuned", token=5), tmp_path)
        summary_model = wb.ScriptedModel(["Order 7731 was shipped."])
        async with wb.load_service(path, model=model, summary_model=summary_model) as production:
            runner = production.runner("shop", instruction="Be brief.", tools=[wb.FunctionTool(look_up)])
            said = [event.message.content async for event in runner.run("u", "s", "Where is it?")]
            await production.service.wait_for_summaries()
            session = await production.service.get_session(wb.SessionKey("shop", "u", "s"))
            return [*said, await production.service.get_session_summary_text(session)]

    said = asyncio.run(ask())
    assert json.loads(said[-3]) == {"order": "7731", "status": "shipped"}
    assert said[-2:] == ["It was shipped.", "Order 7731 was shipped."]


def test_a_model_with_a_given_window_can_be_copied() -> None:
    model = copy.copy(_WithWindow(wb.ScriptedModel(["Hello."]), 500))
    assert (model.context_window, model.name) == (500, wb.ScriptedModel().name)
