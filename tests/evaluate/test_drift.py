"""A stored calibration against newer recordings, and which firings a counter moves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.evaluate.texts import conversation, conversations
from tests.replay.conftest import chat
from workbench.config import RunConfig
from workbench.errors import ConfigError, NotEnoughDataError
from workbench.evaluate.calibrate import calibrate
from workbench.evaluate.drift import drift
from workbench.evaluate.firings import moved_firings
from workbench.evaluate.tokenizers import Tokenizer, tokenizer_named
from workbench.recordings import load_recordings
from workbench.replay.replay import replay
from workbench.script_counter import ScriptTokenCounter
from workbench.tokens import SimpleTokenCounter

pytestmark = pytest.mark.slow  # replays whole data sets; `make test-more` runs these

THEN = calibrate(conversations(30, kinds=("zh", "en")), "o200k_base")


def test_a_calibration_holds_for_recordings_of_the_same_kind():
    """WB-CAL-05."""
    for seed in range(1, 6):
        found = drift(THEN, conversations(30, seed=seed, kinds=("zh", "en")))
        assert found.warnings == ()
        assert found.holds
        assert not found.same_recordings
        assert found.now != found.then
    assert drift(THEN, conversations(30, kinds=("zh", "en"))).same_recordings


def test_it_warns_when_newer_recordings_disagree():
    """WB-CAL-05: ratio, safe ratio and mix of scripts, each in a sentence with both numbers."""
    found = drift(THEN, conversations(30, seed=1, kinds=("zh",)))
    assert not found.holds
    ratio, safe, *mix = found.warnings
    assert f"{found.now:.3g} characters per token, the file says {THEN.ratio:.3g}" in ratio
    assert "later than meant" in ratio
    assert "calibrate again" in ratio
    assert f"the safe ratio {THEN.safe_ratio:g} underestimates" in safe
    assert found.underestimated > THEN.quantile
    assert any(sentence.startswith("han is ") for sentence in mix)
    english = drift(THEN, conversations(30, seed=1, kinds=("en",)))
    assert "earlier than meant" in english.warnings[0]
    assert english.underestimated == 0


def test_what_chance_explains_is_no_warning():
    """WB-CAL-05: 3 of 40 messages underestimated is more than 5 %, but says nothing yet; 30 of 400 does."""
    dear = Tokenizer("dear", "1", lambda text: len(text) * (3 if text[0] == "贵" else 1) // 2)
    plain = ["便宜" * 10] * 97 + ["贵" * 20] * 3
    then = calibrate([conversation(str(i), plain[i::10]) for i in range(10)], dear)
    assert then.safe_ratio == 2.0

    def newer(times):
        said = (["便宜" * 10] * 37 + ["贵" * 20] * 3) * times
        return [conversation(str(i), said[i :: 10 * times]) for i in range(10 * times)]

    few, many = (drift(then, newer(times), tokenizer=dear) for times in (1, 10))
    assert few.underestimated == many.underestimated == 0.075
    assert few.holds
    assert any("the safe ratio 2 underestimates 8 %" in warning for warning in many.warnings)


def test_it_warns_of_another_version_of_the_tokenizer():
    """WB-CAL-05, WB-CAL-04."""
    found = drift(replace(THEN, tokenizer_version="tiktoken 0.0"), conversations(30, seed=1, kinds=("zh", "en")))
    assert found.warnings == (f"measured with {THEN.tokenizer_version}, the file with tiktoken 0.0",)
    with pytest.raises(ConfigError, match="which the file was made with"):
        drift(THEN, conversations(30), tokenizer=tokenizer_named("cl100k_base"))


def test_too_few_new_recordings_say_nothing():
    """WB-CAL-05."""
    with pytest.raises(NotEnoughDataError):
        drift(THEN, conversations(1, messages=5))


# --- firings that move ------------------------------------------------------------------------------------


BASE = {"summarizer": {}, "trigger": {"token": 200}, "agent": {"add_session_summary": True}}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "own.jsonl"
    lines = [json.dumps(chat(n, ident="c"), ensure_ascii=False) for n in (3, 8, 12)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_recordings(path)


@pytest.mark.parametrize("kind", ["runes", "safe", "scripts"])
def test_the_firings_that_move_are_those_of_two_replays(kind, recordings, tmp_path):
    """WB-CAL-05, WB-CAL-01: which firings move is what the engine itself does under both counters."""
    counter = calibrate(recordings, "o200k_base", resamples=50).counter(kind)
    config = RunConfig.from_values({"name": "today", **BASE})
    moved = moved_firings(recordings, config, counter)
    other = config.replace(name="other", counter=counter)
    runs = replay(recordings, [config, other], runs=tmp_path, progress=False)
    assert (moved.n_before, moved.n_after) == (runs["today"].facts["firings"], runs["other"].facts["firings"])
    assert moved.n_after > moved.n_before
    fired = {
        name: {
            found: tuple(row["call"] for row in run.rows("checks", found) if row["fired"])
            for found in ("c", "c~2", "c~3")
        }
        for name, run in runs.items()
    }
    differ = [found for found in fired["today"] if fired["today"][found] != fired["other"][found]]
    assert [move.conversation for move in moved.moves] == differ
    for move in moved.moves:
        assert (move.before, move.after) == (fired["today"][move.conversation], fired["other"][move.conversation])
    kept = sum(len(set(fired["today"][one]) & set(fired["other"][one])) for one in fired["today"])
    assert moved.n_kept == kept


def test_the_same_counter_moves_nothing(recordings):
    """WB-CAL-05."""
    config = RunConfig.from_values({"name": "today", **BASE, "counter": {"runes_per_token": 1.7}})
    moved = moved_firings(recordings, config, {"runes_per_token": 1.7})
    assert moved.moves == ()
    assert moved.n_before == moved.n_after == moved.n_kept > 0
    assert moved.before == moved.after == "1.7 characters per token"


@pytest.mark.parametrize("trigger", [{"event": 5}, {"time": "5m"}, {"any": [{"event": 5}, {"all": [{"time": 3}]}]}])
def test_a_trigger_that_counts_no_tokens_is_refused(trigger, recordings):
    """WB-CAL-05."""
    config = RunConfig.from_values({"summarizer": {}, "trigger": trigger})
    with pytest.raises(ConfigError, match="no counter can move a firing"):
        moved_firings(recordings, config, {"runes_per_token": 1.0})
    nested = {"any": [trigger, {"all": [{"token": 200}]}]}
    assert moved_firings(recordings, config.replace(trigger=nested), {"runes_per_token": 1.0}).n_after > 0


def test_a_script_aware_counter_sees_one_language_as_it_sees_another(recordings):
    """WB-CAL-02: the same number of real tokens, in Chinese and in English; one ratio can't be right for both."""
    counter = tokenizer_named("o200k_base")
    found = calibrate(conversations(60, kinds=("zh", "en")), counter)
    by_script = ScriptTokenCounter(found.counter("scripts")["scripts"], default=found.ratio)
    single = SimpleTokenCounter(found.ratio)
    for kind in ("zh", "en"):
        text = "".join(m.content for one in conversations(5, seed=9, kinds=(kind,)) for m in one.messages)
        real = counter.count(text)
        assert abs(by_script.count_text(text) / real - 1) < 0.12
        assert abs(single.count_text(text) / real - 1) > 0.25
