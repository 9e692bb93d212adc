"""The script-aware counter: which class a character has, and that counts are exact sums."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.conftest import chat
from workbench.build import engine_counter
from workbench.call import EMPTY_CONTEXT
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.model.types import Message, ToolCall
from workbench.script_counter import CLASSES, ScriptTokenCounter, class_counts
from workbench.tokens import SimpleTokenCounter, TokenCounter

RATIOS = {"han": 1.25, "kana": 1.5, "hangul": 1.6, "latin": 4.5, "digits": 2.5, "code": 3.0, "emoji": 0.5, "other": 1}
TEXTS = st.lists(st.sampled_from([*'你はア한aé9{}":, \t\n', "👍", "。", "и", "𠮷", "\u0000"])).map("".join)


def counts(text: str) -> dict[str, int]:
    return {name: n for name, n in zip(CLASSES, class_counts(text), strict=True) if n}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("订单到哪了？", {"han": 5, "other": 1}),
        ("𠮷々", {"han": 2}),
        ("ひらがなとカタカナ", {"kana": 9}),
        ("ﾊﾝｶｸー", {"kana": 5}),
        ("안녕하세요", {"hangul": 5}),
        ("ㅋㅋㅠ", {"hangul": 3}),
        ("yes, café.", {"latin": 10}),
        ("2026年３月", {"han": 2, "digits": 5}),
        ("👍🏽👨‍👩‍👧", {"emoji": 7}),
        ("🇨🇳☀️", {"emoji": 4}),
        ("привет", {"other": 6}),
        ('{"id": "订单", "n": 3}', {"han": 2, "digits": 1, "code": 17}),
        ('He said "yes" to all of the people who were there.', {"latin": 48, "code": 2}),
        ("prose above\nx = f(y[0])", {"latin": 12, "digits": 1, "code": 10}),
        ("", {}),
    ],
)
def test_characters_have_the_class_of_their_script(text, expected):
    """WB-CAL-02."""
    assert counts(text) == expected


@given(TEXTS)
def test_every_character_has_one_class_and_lines_stand_for_themselves(text):
    """WB-CAL-02, SUM-TOK-09."""
    whole = class_counts(text)
    assert sum(whole) == len(text)
    by_line = [class_counts(line) for line in text.splitlines(keepends=True) if "\r" not in line]
    assert [sum(column) for column in zip(*by_line, strict=True)] == list(whole) or not text


def test_tokens_are_characters_divided_by_the_ratio_of_their_class():
    """WB-CAL-02, SUM-TOK-03: content, reasoning and calls count; what isn't empty counts at least 1."""
    counter = ScriptTokenCounter(RATIOS)
    assert isinstance(counter, TokenCounter)
    assert counter.count_text("订单到哪里去") == int(6 / 1.25)
    assert counter.count_text("好" * 5 + "a" * 9) == 6
    message = Message(content="订单" * 5, reasoning_content="い" * 3, tool_calls=(ToolCall(id="x" * 9, name="y" * 9),))
    assert counter.count_tokens(EMPTY_CONTEXT, message) == int(10 / 1.25 + 3 / 1.5 + (8 + 18) / 4.5)
    assert counter.count_tokens(EMPTY_CONTEXT, Message(content="a")) == 1
    assert counter.count_tokens(EMPTY_CONTEXT, Message()) == 0
    assert counter.count_tokens_range(EMPTY_CONTEXT, [message, Message(content="a")], 0, 2) == 17 - 1
    with pytest.raises(ValueError, match="range"):
        counter.count_tokens_range(EMPTY_CONTEXT, [], 0, 1)


@given(TEXTS)
def test_with_one_ratio_for_all_it_agrees_with_the_simple_counter(text):
    """WB-CAL-02."""
    message = Message(content=text)
    simple = SimpleTokenCounter(4.0).count_tokens(EMPTY_CONTEXT, message)
    assert ScriptTokenCounter({}, default=4.0).count_tokens(EMPTY_CONTEXT, message) == simple


@pytest.mark.parametrize("ratios", [{"han": 0}, {"han": -1.0}, {"hangu": 1.0}, {"han": float("inf")}])
def test_an_impossible_ratio_is_refused(ratios):
    with pytest.raises(ConfigError, match="scripts"):
        ScriptTokenCounter(ratios)


def test_a_configuration_names_the_counter_and_its_ratios():
    """WB-CAL-02, WB-CFG-01."""
    values = {"counter": {"kind": "scripts", "runes_per_token": 2, "scripts": {"han": 1.25, "latin": 4.5}}}
    config = RunConfig.from_values(values)
    counter = engine_counter(config)
    assert isinstance(counter, ScriptTokenCounter)
    assert counter.ratios == {**dict.fromkeys(CLASSES, 2.0), "han": 1.25, "latin": 4.5}
    assert RunConfig.from_values(config.to_values()) == config
    assert config.config_hash != RunConfig.from_values({"counter": {"runes_per_token": 2}}).config_hash
    with pytest.raises(ConfigError, match="at least one ratio"):
        RunConfig.from_values({"counter": {"kind": "scripts"}})
    with pytest.raises(ConfigError, match="unknown"):
        RunConfig.from_values({"counter": {"kind": "scripts", "scripts": {"hann": 1}}})


def test_a_replay_under_it_fires_where_its_estimate_crosses(tmp_path):
    """WB-CAL-02, WB-RPL-01: the engine uses it as its counter; with one ratio for all it fires as `runes` does."""
    import json

    from workbench.recordings import load_recordings
    from workbench.replay.replay import replay

    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(chat(8), ensure_ascii=False), encoding="utf-8")
    base = {"summarizer": {}, "trigger": {"token": 150}, "agent": {"add_session_summary": True}}
    equal = dict.fromkeys(CLASSES, 2.0)
    configs = [
        RunConfig.from_values({"name": name, "counter": counter, **base})
        for name, counter in {
            "runes": {"runes_per_token": 2.0},
            "equal": {"kind": "scripts", "scripts": equal},
            "cheap": {"kind": "scripts", "scripts": {**equal, "han": 20.0}},
        }.items()
    ]
    runs = replay(load_recordings(path), configs, runs=tmp_path / "runs", progress=False)
    checks = {name: [(row["value"], row["fired"]) for row in run.rows("checks")] for name, run in runs.items()}
    assert checks["equal"] == checks["runes"]
    assert 0 < runs["cheap"].facts["firings"] < runs["runes"].facts["firings"]
