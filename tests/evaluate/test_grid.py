"""A grid of options as configurations (WB-TUNE-02)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.replay.conftest import config, summarising
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.evaluate.grid import axes_of, configurations

BASE = summarising("base")


def values_of(said: Any) -> tuple[Any, ...]:
    (axis,) = axes_of({"trigger.token": said})
    return axis.values


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ([1000, 2000], (1000, 2000)),
        ({"from": 1000, "to": 4000, "steps": 4}, (1000, 2000, 3000, 4000)),
        ({"from": 1000, "to": 8000, "steps": 4, "scale": "log"}, (1000, 2000, 4000, 8000)),
        ({"from": 1000, "to": 2400, "step": 500}, (1000, 1500, 2000)),
        ({"from": 1.0, "to": 2.0, "steps": 3}, (1.0, 1.5, 2.0)),
        ({"from": 0.1, "to": 0.3, "step": 0.1}, (0.1, 0.2, 0.3)),
        ({"from": 7, "to": 7, "steps": 1}, (7,)),
        ({"from": 1, "to": 3, "steps": 9}, (1, 2, 3)),
    ],
)
def test_an_axis_is_a_list_or_a_range(said: Any, values: tuple[Any, ...]) -> None:
    """WB-TUNE-02: lists or ranges."""
    assert values_of(said) == values


@pytest.mark.parametrize(
    "said",
    [
        1000,
        "1000",
        {"from": 5, "to": 1, "steps": 2},
        {"from": 1, "to": 5},
        {"from": 1, "to": 5, "steps": 2, "step": 1},
        {"from": 0, "to": 5, "steps": 3, "scale": "log"},
        {"from": 1, "to": 5, "steps": 3, "scale": "cubic"},
        {"from": 1, "to": 5, "step": 0},
        {"from": True, "to": 5, "steps": 2},
        {"from": 1, "to": 5, "stepps": 2},
        {"values": [1], "whem": {}},
    ],
)
def test_what_is_no_axis_is_refused(said: Any) -> None:
    with pytest.raises(ConfigError):
        axes_of({"trigger.token": said})


@pytest.mark.parametrize(
    "said",
    [
        {"from": 1, "to": math.inf, "step": 1},
        {"from": 1, "to": math.nan, "steps": 2},
        {"from": 1, "to": 10**400, "steps": 2},
        {"from": -1e308, "to": 1e308, "steps": 2},
        {"from": 1, "to": 10, "steps": 2.5},
        {"from": 1, "to": 10, "steps": math.nan},
        {"from": 0, "to": 1e300, "step": 1e-300},
        {"values": [1], "when": [1]},
    ],
)
def test_an_axis_of_impossible_numbers_is_refused(said: Any) -> None:
    """Never a raw error of Python, and never a range that doesn't reach its end."""
    with pytest.raises(ConfigError, match=r"trigger\.token"):
        axes_of({"trigger.token": said})


@pytest.mark.parametrize("said", [[], {"values": []}, {"from": 1, "to": 5, "steps": 0}])
def test_an_empty_axis_stops_the_sweep(said: Any) -> None:
    """B35."""
    with pytest.raises(ConfigError, match=r"sweep: trigger\.token has no values"):
        axes_of({"trigger.token": said})


def test_an_unknown_option_is_told_with_the_nearest() -> None:
    """WB-API-02: checked at once, also in a condition."""
    with pytest.raises(ConfigError, match=r"trigger\.tokens: unknown option") as caught:
        axes_of({"trigger.tokens": [1]})
    assert caught.value.hint == "did you mean trigger.token?"
    with pytest.raises(ConfigError, match="unknown option"):
        axes_of({"trigger.token": {"values": [1], "when": {"agent.nothing": [True]}}})


def test_every_combination_is_one_run_named_by_what_it_changes() -> None:
    """WB-TUNE-02."""
    grid = {"trigger.token": [100, 200], "agent.summary_injection_mode": ["system", "user"]}
    found = configurations(BASE, grid)
    assert [one.name for one in found] == [
        "token=100 in=system",
        "token=100 in=user",
        "token=200 in=system",
        "token=200 in=user",
    ]
    assert found[3].trigger is not None
    assert (found[3].trigger.token, found[3].agent.summary_injection_mode) == (200, "user")
    assert found[3].summarizer == BASE.summarizer


def test_a_conditional_option_varies_only_where_its_condition_holds() -> None:
    """WB-TUNE-02: conditional options."""
    grid = {
        "compaction.tool_result_max_tokens": {"values": [100, 200, 300], "when": {"compaction.enabled": [True]}},
        "compaction.enabled": [False, True],
    }
    found = configurations(BASE, grid)
    assert [(one.compaction.enabled, one.compaction.tool_result_max_tokens) for one in found] == [
        (False, 1024),
        (True, 100),
        (True, 200),
        (True, 300),
    ]
    at_base = {"summarizer.skip_recent": {"values": [1, 2], "when": {"agent.add_session_summary": True}}}
    assert len(configurations(BASE, at_base)) == 2, "what the base says counts too"
    off = BASE.replace(agent={"add_session_summary": False})
    assert len(configurations(off, at_base)) == 1


def test_whole_tables_and_nothing_can_be_values() -> None:
    triggers: list[Any] = [{"token": 300}, {"any": [{"event": 9}, {"time": 60}]}, None]
    found = configurations(BASE, {"trigger": triggers})
    assert [one.trigger is None for one in found] == [False, False, True]
    assert [one.name for one in found] == ["token:300", "any:[event:9,time:60]", "trigger=null"]


def test_configurations_that_come_to_the_same_are_one() -> None:
    found = configurations(BASE, {"trigger.token": [300, 300], "trigger.time": [60, 60.0, "1m"]})
    assert len(found) == 1


def test_options_of_the_same_last_name_are_told_apart() -> None:
    grid = {"agent.reasoning_content_mode": ["keep_all", "discard_previous_turns"], "compaction.enabled": [True, False]}
    names = [one.name for one in configurations(BASE, grid)]
    assert names[0] == "reasoning_content_mode=keep_all compaction=on"
    assert len(set(names)) == 4
    names = [one.name for one in configurations(BASE, {"trigger.token": [1, 2], "summaries.sized_tokens": [1, 2]})]
    assert names[0] == "token=1 sized_tokens=1"


def test_switches_of_the_same_name_are_told_apart_by_their_tables() -> None:
    grid = {"compaction.enabled": [True, False], "tailoring.enabled": [True, False]}
    names = [one.name for one in configurations(BASE, grid)]
    assert names[0] == "compaction=on tailoring=on"
    assert len(set(names)) == 4


def test_too_many_runs_are_refused_before_any_is_made() -> None:
    """B35: 10 million runs."""
    numbers = {"from": 1, "to": 10_000_000, "steps": 100}
    grid = {"trigger.token": numbers, "trigger.event": numbers, "summarizer.skip_recent": list(range(1000))}
    with pytest.raises(ConfigError, match=r"sweep: 10,000,000 runs; limit 10,000") as caught:
        configurations(BASE, grid)
    assert caught.value.hint == "raise max_runs"
    assert len(configurations(BASE, {"trigger.token": [1, 2, 3]}, max_runs=3)) == 3
    with pytest.raises(ConfigError, match="sweep: 3 runs; limit 2"):
        configurations(BASE, {"trigger.token": [1, 2, 3]}, max_runs=2)


def test_a_range_of_too_many_values_is_refused_before_it_is_made() -> None:
    """B35."""
    with pytest.raises(ConfigError, match=r"trigger\.token alone has 10,000,000 values"):
        configurations(BASE, {"trigger.token": {"from": 1, "to": 10_000_000, "step": 1}})


def test_conditions_that_never_hold_do_not_count_against_the_limit() -> None:
    """B35."""
    hidden = {"values": list(range(100)), "when": {"compaction.enabled": [True]}}
    grid = {"compaction.tool_result_max_tokens": hidden, "compaction.enabled": [False]}
    assert len(configurations(BASE, grid, max_runs=5)) == 1
    with pytest.raises(ConfigError, match="more than 5 runs"):
        configurations(BASE, {**grid, "compaction.enabled": [True]}, max_runs=5)


def test_an_impossible_combination_is_named() -> None:
    """WB-CFG-02."""
    with pytest.raises(ConfigError, match="sweep: token=5"):
        configurations(config(name="no summaries"), {"trigger.token": [5, 6]})


def test_a_configuration_written_as_toml_loads_back_equal(tmp_path: Any) -> None:
    """WB-EXP-01, WB-TUNE-02: the recommendation is a file."""
    from workbench.demo import demo_configs

    nasty = summarising(
        'a "name"\n\\ with\x7f 订单',
        trigger={"any": [{"token": 3}, {"all": [{"event": 2}, {"time": "5m"}]}, {"context": {"ratio": 0.25}}]},
        summarizer={},
        compaction={"enabled": True, "keep_tool_names": ["a", "b"]},
    )
    for i, one in enumerate([*demo_configs(), nasty, RunConfig()]):
        path = tmp_path / f"{i}.toml"
        path.write_text(one.to_toml(), encoding="utf-8")
        again = RunConfig.load(path)
        assert again.config_hash == one.config_hash
        assert again.name == (one.name or f"{i}")
