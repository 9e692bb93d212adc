"""Colours, and the dark theme made of the light one."""

from __future__ import annotations

import re

import pytest

from tests.report.fakes import fake_runs
from workbench.errors import ConfigError
from workbench.report import prefix_reuse, tokens_per_call, trigger_value
from workbench.report.palette import DARK, LIGHT, in_dark, theme_named, words_on
from workbench.report.pictures import svg_of

RUNS = fake_runs((20, 6))
AREAS = ("system", "history", "tool_results", "summary", "current", "overhead")


def contrast(colour: str, other: str) -> float:
    """Contrast by the web's rule: 1 for none, 21 for black on white."""

    def luminance(text: str) -> float:
        parts = [int(text[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_the_page_and_in_areas(theme):
    """WB-UI-02."""
    assert contrast(theme.ink, theme.page) > 7
    assert contrast(theme.muted, theme.page) > 4.5
    assert contrast(theme.firing, theme.page) > 4.5
    assert all(contrast(words_on(area, theme), getattr(theme, area)) > 4 for area in AREAS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw",
    [
        lambda theme: tokens_per_call(RUNS, theme=theme),
        lambda theme: trigger_value(RUNS, theme=theme),
        lambda theme: prefix_reuse(RUNS["today"], theme=theme),
    ],
    ids=["tokens", "trigger", "prefix"],
)
def test_a_recoloured_figure_is_the_figure_drawn_dark(draw):
    """WB-UI-04."""
    # matplotlib makes its element names from the colours too.
    names = re.compile(r'(?<=id=")[^"]+|(?<=#)[mph][0-9a-f]{10}|(?<=href="#)[^"]+')
    recoloured, drawn = in_dark(svg_of(draw("light"))), svg_of(draw("dark"))
    assert names.sub("", recoloured) == names.sub("", drawn)


def test_an_unknown_theme_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="light, dark"):
        theme_named("drak")
