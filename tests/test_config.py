"""Configurations: reading, checking, meaning, hash (WB-CFG)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.build import billing_counter, engine_counter, trigger_checks
from workbench.config import RunConfig, TriggerNode, option_named, options, schema
from workbench.demo import demo_configs
from workbench.errors import ConfigError, RecordingError
from workbench.profiles import PROFILES, SEED, TRPC_AGENT_GO_2026_08, profile_named
from workbench.settings import Settings

FULL = """
profile = "TRPC_AGENT_GO_2026_07"
[counter]
runes_per_token = 1.3
[summarizer]
max_summary_words = 120
overflow_policy = "lossless"
[trigger]
any = [{event = 20}, {all = [{token = 4000}, {time = "5m"}]}, {context = {ratio = 0.3}}]
[service]
summary_filter_allowlist = ["app/a"]
[agent]
add_session_summary = true
summary_injection_mode = "user"
history_limit_unit = "none"
[summaries]
latency_s = "20s"
"""


def test_a_file_is_read_and_takes_its_name_from_the_file(tmp_path: Path) -> None:
    """WB-CFG-02, WB-CFG-03, WB-CFG-04."""
    path = tmp_path / "tuned.toml"
    path.write_text(FULL, encoding="utf-8")
    config = RunConfig.load(path)
    assert config.name == "tuned"
    assert config.counter.runes_per_token == 1.3
    assert config.trigger is not None
    assert config.trigger.any is not None
    assert config.trigger.any[1].all is not None
    assert config.trigger.any[1].all[1].time == 300.0
    assert config.service.summary_filter_allowlist == ("app/a",)
    assert config.agent.history_limit_unit is None
    assert config.summaries.latency_s == 20.0
    assert config.engine_profile.overflow_policy == "lossless"
    assert config.engine_profile.count_previous_summary


def test_an_empty_file_is_the_baseline(tmp_path: Path) -> None:
    """WB-CFG-04: no summarizer, no injection, no compaction."""
    path = tmp_path / "none.toml"
    path.write_text("")
    config = RunConfig.load(path)
    assert config.summarizer is None
    assert not config.agent.add_session_summary
    assert not config.compaction.enabled
    assert config.engine_profile == SEED


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[service]\nevent_treshold = 3", "service.event_treshold: unknown", ""),
        (
            "[agent]\nadd_sesion_summary = true",
            "agent.add_sesion_summary: unknown",
            "did you mean add_session_summary?",
        ),
        (
            "[trigger]\ncontext = {ratio = 50}\n[summarizer]",
            "trigger.context.ratio = 50; allowed: less than or equal to 1",
            "",
        ),
        ("[service]\nasync_summary_num = true", "service.async_summary_num = True; allowed: a whole number", ""),
        ("[counter]\nrunes_per_token = nan", "counter.runes_per_token", ""),
        ("[trigger]\ntoken = 5", "trigger is given but summarizer isn't", "add an empty [summarizer] table"),
        ("[trigger]\n[summarizer]", "allowed: at least one of event, token, time", ""),
        ('profile = "SEAD"', "profile = 'SEAD'", "did you mean SEED?"),
        ('[trigger]\ntime = "soon"\n[summarizer]', "not a duration: 'soon'", ""),
        ("[counter\n", "not TOML", ""),
        ("unknown_table = 1", "unknown_table: unknown", ""),
        ("unknown = 1\n[service]\nevent_limit = 'x'", "(wrong too: ", ""),
    ],
)
def test_every_fault_names_file_field_value_and_what_is_allowed(
    text: str, message: str, hint: str, tmp_path: Path
) -> None:
    """WB-CFG-02, B31, B32; D8."""
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        RunConfig.load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"profile": "SEED", "profile": "SEED"}', "profile"),
        ('{"summarizer": {}, "trigger": {"token": 300, "event": 2, "token": 900}}', "token"),
        ('{"summarizer": {}, "trigger": {"any": [{"token": 1}, {"event": 2, "event": 3}]}}', "event"),
    ],
)
def test_a_json_file_that_says_an_option_twice_is_refused(text: str, key: str, tmp_path: Path) -> None:
    """WB-CFG-02: a reader who takes the first one would be wrong; TOML refuses it too."""
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        RunConfig.load(path)
    assert str(caught.value) == f"{path}: {key!r} stands there twice"
    assert (caught.value.field, caught.value.hint) == (key, "keep one of them")
    path.write_text('{"summarizer": {}, "trigger": {"any": [{"token": 1}, {"token": 2}]}}')
    assert RunConfig.load(path).trigger is not None, "the same key in two tables is none twice"


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="can't be read"):
        RunConfig.load(tmp_path / "nothing.toml")


def test_the_hash_covers_what_is_in_force_and_not_the_name() -> None:
    """WB-CFG-03."""
    one = RunConfig(name="a")
    assert one.config_hash == RunConfig(name="b").config_hash == RunConfig(profile="SEED").config_hash
    explicit = RunConfig.from_values({"service": {"async_summary_num": 3}})
    assert explicit.config_hash == one.config_hash
    others = [
        RunConfig(profile="TRPC_AGENT_GO_2026_08"),
        one.replace(counter={"runes_per_token": 1.3}),
        one.replace(summarizer={}),
        one.replace(**{"service.event_limit": 7}),
    ]
    assert len({one.config_hash, *(other.config_hash for other in others)}) == 5


def test_values_written_down_load_back_equal() -> None:
    """WB-EXP-01 in small: what is saved is what was set."""
    for config in demo_configs():
        again = RunConfig.from_values({"name": config.name, **json.loads(json.dumps(config.to_values()))})
        assert again == config


def test_replace_merges_tables_and_reaches_inside_by_dotted_path() -> None:
    """WB-API-02."""
    config = RunConfig.from_values({"summarizer": {"max_summary_words": 10}, "trigger": {"token": 5}})
    changed = config.replace(**{"summarizer.max_summary_words": 20, "trigger.token": 7}, agent={"max_history_runs": 2})
    assert changed.summarizer is not None
    assert changed.summarizer.max_summary_words == 20
    assert changed.trigger == TriggerNode(token=7)
    assert changed.agent.max_history_runs == 2
    with pytest.raises(ConfigError):
        config.replace(**{"trigger.tokens": 7})


def test_keys_of_one_node_must_all_pass_and_trees_nest() -> None:
    """SUM-CHK-02, SUM-CHK-19."""
    node = TriggerNode.parse({"event": 1, "token": 2, "any": [{"event": 3}, {"event": 4, "token": 5}]})
    checks = trigger_checks(node)
    assert len(checks) == 3
    assert trigger_checks(None) == []


def test_counters_are_made_as_the_configuration_says() -> None:
    """WB-RPL-06."""
    config = RunConfig.from_values({"counter": {"runes_per_token": 2.0}, "billing": {"encoding": "runes:3"}})
    assert engine_counter(config).counter_id == "runes:2"
    assert billing_counter(config).counter_id == "runes:3"
    with pytest.raises(ConfigError, match="runes:N"):
        billing_counter(config.replace(billing={"encoding": "runes:many"}))
    tokens = engine_counter(config.replace(counter={"kind": "tiktoken", "encoding": "cl100k_base"}))
    assert tokens.counter_id == "tiktoken:cl100k_base"


def test_every_option_has_a_type_a_default_and_a_sentence() -> None:
    """WB-CFG-02: `workbench config explain`."""
    table = list(options())
    assert len(table) > 60
    assert [option.path for option in table if not option.doc] == []
    assert option_named("trigger.token").type == "integer | none"
    with pytest.raises(ConfigError) as caught:
        option_named("trigger.tokn")
    assert "did you mean trigger.token?" in caught.value.hint
    assert "properties" in schema()


def test_profiles_differ_in_exactly_the_documented_switches() -> None:
    """summary.md section 21."""
    assert list(PROFILES) == ["SEED", "TRPC_AGENT_GO_2026_07", "TRPC_AGENT_GO_2026_08"]
    newest = TRPC_AGENT_GO_2026_08
    assert (newest.overflow_policy, newest.user_anchors, newest.job_after_error_event) == ("lossless", True, False)
    with pytest.raises(ConfigError):
        profile_named("seed")


class Strict(Settings):
    number: int = 1
    """A number."""


@given(st.one_of(st.booleans(), st.text(), st.floats(), st.none(), st.lists(st.integers())))
def test_a_strict_number_takes_nothing_but_numbers(value: Any) -> None:
    if isinstance(value, float) and value.is_integer():
        return
    with pytest.raises(ConfigError):
        Strict.parse({"number": value})
