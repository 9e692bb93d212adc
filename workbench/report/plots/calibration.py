"""Calibration error: what a divisor underestimates, and how far the real ratio of each script lies from it (WB-UI-02).

In: a calibration. Out: two panels over one axis of characters per token. Above, the share of messages that a divisor
underestimates; below, the real ratio of each script with its interval. Lines through both are the divisors in question:
the default, the ratio of sums and the safe one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workbench.evaluate.calibrate import Calibration
from workbench.report.calibration import SCRIPT_NAMES, finding, source
from workbench.report.labels import percent
from workbench.report.palette import Theme, theme_named
from workbench.report.plots.style import ReportFigure, drawing, finished, new_figure, panel_title, text_size_inches
from workbench.tokens import DEFAULT_RUNES_PER_TOKEN

_WIDTH = 8.3
_CURVE_HEIGHT, _ROW_HEIGHT, _SCRIPTS_PADDING = 2.3, 0.3, 0.9
_PLOT_INCHES = 7.0
_LABEL_SIZE = 8.5
_MAX_RATIO = 8.0
"""A script of longer tokens than this is drawn at the edge."""


def calibration_error(calibration: Calibration, *, theme: str = "light") -> ReportFigure:
    """Share of messages that a divisor underestimates, and the real ratio of each script.

    Raises:
        ConfigError: unknown theme.
    """
    palette = theme_named(theme)
    scripts = [(name, one) for name, one in calibration.by_script.items() if one.ratio is not None]
    rows = max(len(scripts), 1)
    with drawing(palette):
        judged = "messages" if calibration.window == 1 else f"windows of {calibration.window} messages"
        absent = [SCRIPT_NAMES[name] for name, one in calibration.by_script.items() if one.ratio is None and one.chars]
        few = [f"too little text for a ratio of its own: {', '.join(absent)}"] if absent else []
        figure = new_figure(
            palette,
            title=finding(calibration),
            source=" · ".join([source(calibration), "bars are 95 % intervals", *few]),
            width_inches=_WIDTH,
            axes_height_inches=_CURVE_HEIGHT + rows * _ROW_HEIGHT + _SCRIPTS_PADDING,
        )
        heights = [_CURVE_HEIGHT, rows * _ROW_HEIGHT + _SCRIPTS_PADDING]
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
        edge = _edge(calibration)
        above.set_xlim(0, edge)
        _draw_curve(above, calibration, palette)
        panel_title(above, f"Share of {judged} that a divisor underestimates", _PLOT_INCHES)
        _draw_scripts(below, scripts, palette, edge)
        panel_title(below, "Real characters per token, by script", _PLOT_INCHES)
        below.set_xlabel("characters per token")
        below.xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 5, 10]))
        for x, words, look in _divisors(calibration, palette):
            for axes in (above, below):
                axes.axvline(x, **look)
            _name_line(above, x, words, edge, palette)
        return finished(figure)


def _edge(calibration: Calibration) -> float:
    """The right end of the axis: everything fits, but for a rare script of very long tokens."""
    ends = [one.interval[1] for one in calibration.by_script.values() if one.interval is not None]
    highest = max([DEFAULT_RUNES_PER_TOKEN * 1.15, calibration.spread[99], *ends])
    return min(highest * 1.03, _MAX_RATIO)


def _draw_curve(axes: Axes, calibration: Calibration, palette: Theme) -> None:
    x = np.array(calibration.spread)
    share = np.linspace(0.0, 1.0, len(x))
    # A divisor underestimates the messages whose own ratio is smaller.
    axes.plot([0.0, *x, 1e6], [0.0, *share, 1.0], color=palette.history, linewidth=1.8, drawstyle="default")
    axes.axhline(calibration.quantile, color=palette.muted, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.annotate(
        f"{percent(calibration.quantile)} allowed", (1, calibration.quantile), xycoords=("axes fraction", "data"),
        xytext=(-2, 3), textcoords="offset points", ha="right", size=_LABEL_SIZE, color=palette.muted,
    )  # fmt: skip
    axes.set_ylim(0, 1.3)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}".replace("%", " %")))
    axes.grid(visible=True, axis="y")


def _draw_scripts(axes: Axes, scripts: list[tuple[str, Any]], palette: Theme, edge: float) -> None:
    places = list(range(len(scripts)))[::-1]
    axes.set_ylim(-0.7, max(len(scripts), 1) - 0.3)
    axes.set_yticks(places, [SCRIPT_NAMES[name] for name, _ in scripts])
    axes.tick_params(axis="y", length=0, labelcolor=palette.ink)
    if not scripts:
        axes.text(0.5, 0.5, "no script has enough text", transform=axes.transAxes, ha="center", color=palette.muted)
    for place, (_, one) in zip(places, scripts, strict=True):
        low, high = (min(value, edge) for value in one.interval)
        axes.plot([low, high], [place, place], color=palette.summary, linewidth=2.2, solid_capstyle="butt")
        axes.plot([min(one.ratio, edge)], [place], "o", markersize=6, color=palette.summary, clip_on=False)
        words = f"{one.ratio:.2f} · {percent(one.share)} of the text"
        width = text_size_inches(words, size=_LABEL_SIZE)[0] / _PLOT_INCHES * edge
        to_the_left = high + width + 0.2 > edge
        axes.annotate(
            words, (low if to_the_left else high, place), xytext=(-7 if to_the_left else 7, 0),
            textcoords="offset points", va="center", ha="right" if to_the_left else "left",
            size=_LABEL_SIZE, color=palette.ink,
            bbox={"facecolor": palette.page, "edgecolor": "none", "pad": 1.0},
        )  # fmt: skip


def _divisors(calibration: Calibration, palette: Theme) -> list[tuple[float, str, dict[str, Any]]]:
    dashed: dict[str, Any] = {"linestyle": (0, (4, 2.5)), "linewidth": 1.2, "zorder": 0.5}
    return [
        (DEFAULT_RUNES_PER_TOKEN, f"default {DEFAULT_RUNES_PER_TOKEN:.1f}", {"color": palette.firing, **dashed}),
        (calibration.ratio, f"ratio {calibration.ratio:.2f}", {"color": palette.ink, **dashed}),
        (
            calibration.safe_ratio,
            f"safe {calibration.safe_ratio:.2f}",
            {"color": palette.tailoring, "linewidth": 1.4, "zorder": 0.5},
        ),
    ]


def _name_line(axes: Axes, x: float, words: str, edge: float, palette: Theme) -> None:
    """The name beside the line, above the curve; the safe divisor's on its left, so that two near ones don't meet."""
    on_the_left = words.startswith("safe")
    width = text_size_inches(words, size=_LABEL_SIZE)[0] / _PLOT_INCHES * edge
    if on_the_left and x < width + 0.1:
        on_the_left = False
    height = 1.06 if words.startswith("safe") else 1.18
    axes.annotate(
        words, (x, height), xytext=(-3 if on_the_left else 3, 0), textcoords="offset points",
        ha="right" if on_the_left else "left", va="center", size=_LABEL_SIZE, color=palette.ink,
        bbox={"facecolor": palette.page, "edgecolor": "none", "pad": 0.8},
    )  # fmt: skip
