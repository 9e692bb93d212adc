"""The calibration figure: what it draws is what was measured, in both themes, with every glyph."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest

from tests.evaluate.texts import conversations, texts
from workbench.errors import ConfigError
from workbench.evaluate.calibrate import calibrate
from workbench.report import calibration_error
from workbench.report.calibration import SCRIPT_NAMES, calibration_text, finding
from workbench.report.palette import THEMES

MIXED = calibrate(conversations(20, kinds=("zh", "ja", "ko", "en", "code", "digits")), resamples=50)


def texts_of(figure):
    return [text.get_text() for axes in figure.axes for text in (*axes.texts, *axes.get_yticklabels())]


def test_the_curve_is_the_share_of_messages_below_a_ratio():
    """WB-UI-02, WB-CAL-01."""
    above, _ = calibration_error(MIXED).axes
    curve = next(line for line in above.lines if len(line.get_xdata()) > 100)
    assert np.array_equal(curve.get_xdata()[1:-1], MIXED.spread)
    assert curve.get_ydata()[1] == 0
    assert curve.get_ydata()[-2] == 1
    at_safe = float(np.interp(MIXED.safe_ratio, MIXED.spread, np.linspace(0, 1, 101)))
    assert at_safe <= MIXED.quantile + 0.01


def test_each_script_stands_at_its_ratio_with_its_interval_and_share():
    """WB-UI-02, WB-CAL-02."""
    figure = calibration_error(MIXED)
    _, below = figure.axes
    names = [label.get_text() for label in below.get_yticklabels()]
    shown = [name for name, one in MIXED.by_script.items() if one.ratio is not None]
    assert names == [SCRIPT_NAMES[name] for name in shown]
    assert {"han", "kana", "hangul", "latin", "code"} <= set(shown)
    dots = [line.get_xdata()[0] for line in below.lines if line.get_marker() == "o"]
    assert dots == pytest.approx([MIXED.by_script[name].ratio for name in shown])
    bars = [tuple(line.get_xdata()) for line in below.lines if line.get_linewidth() == 2.2]
    assert bars == [MIXED.by_script[name].interval for name in shown]


def test_the_divisors_in_question_are_lines_through_both_panels():
    """WB-UI-02."""
    figure = calibration_error(MIXED)
    for axes in figure.axes:
        upright = {line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [0, 1]}
        assert {4.0, MIXED.ratio, MIXED.safe_ratio} <= upright
    assert {"default 4.0", f"ratio {MIXED.ratio:.2f}", f"safe {MIXED.safe_ratio:.2f}"} <= set(texts_of(figure))


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(1.28, "fires 3.1 times too late"), (4.1, "about right"), (8.0, "fires at 50 % of a threshold")],
)
def test_the_title_is_the_finding(ratio, words):
    assert words in finding(replace(MIXED, ratio=ratio))
    assert words in calibration_error(replace(MIXED, ratio=ratio)).finding


@pytest.mark.parametrize("theme", list(THEMES))
def test_it_is_drawn_in_both_themes_with_every_glyph_and_nothing_outside(theme):
    """WB-UI-02, WB-UI-02a."""
    before = dict(mpl.rcParams)
    figure = calibration_error(MIXED, theme=theme)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a missing glyph is a warning
        figure.savefig(picture := io.BytesIO(), format="png")
    assert dict(mpl.rcParams) == before
    assert len(picture.getvalue()) > 10_000
    assert figure.get_facecolor()[:3] == pytest.approx(mpl.colors.to_rgb(THEMES[theme].page))
    size = figure.bbox
    for axes in figure.axes:
        for text in (*axes.texts, *axes.get_yticklabels(), axes.title, axes.xaxis.label):
            if text.get_text():
                box = text.get_window_extent()
                assert box.x0 >= size.x0 - 1, text.get_text()
                assert box.x1 <= size.x1 + 1, text.get_text()


def test_a_corpus_without_any_ratio_by_script_is_drawn_too():
    """WB-UI-02."""
    short = calibrate(["好", "是", "对"] * 8, resamples=50)
    assert all(one.ratio is None for one in short.by_script.values())
    figure = calibration_error(short)
    assert "no script has enough text" in texts_of(figure)
    assert "too little text for a ratio of its own: Han 汉字" in figure.texts[1].get_text().replace("\n", " ")
    assert "scripts" not in {one.counter for one in short.errors}
    with pytest.raises(ConfigError, match="no script had enough text"):
        short.counter("scripts")
    with pytest.raises(ConfigError, match="light, dark"):
        calibration_error(short, theme="blue")


def test_the_terminal_says_the_same_within_its_width():
    """WB-CAL-01, -02."""
    found = calibrate(texts(200, kinds=("zh", "ko")), resamples=50)
    text = calibration_text(found)
    assert text.startswith(finding(found))
    assert f"{found.ratio:.2f}" in text
    assert "No conversation reaches 1,000 or 2,000 or 4,000 tokens." in text
    assert "Kana" not in text
