"""Needed-fact timeline: at each call, which of the facts it needed were still there (WB-UI-02, WB-RET-01).

In: a run set. Out: one panel per configuration, all of the same conversation and on the same axes. What a request
says stands above the line, what it lacks below; the call that lacks most names one of the lost facts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workbench.evaluate.retention import Retention, retention
from workbench.replay.needed_states import LOST, RECOVERABLE, VISIBLE, VISIBLE_RAW, VISIBLE_SUMMARY
from workbench.report.facts import step_in_words
from workbench.report.frames import RunLike, Runs
from workbench.report.labels import counted, listed, quoted, shorten
from workbench.report.palette import Theme, theme_named
from workbench.report.plots.panels import Panel, panels_of, source_line
from workbench.report.plots.style import (
    LEAST_CALLS,
    Floats,
    ReportFigure,
    bars,
    call_axis,
    drawing,
    finished,
    new_figure,
    panel_title,
    text_size_inches,
)

_WIDTH = 8.6
_PLOT_INCHES = 7.6
_SINGLE_HEIGHT, _ROW_HEIGHT = 2.8, 1.85
_LABEL_SIZE = 8.5
_MAX_NAMED_WIDTH = 28
# State -> (label, name of the colour, hatch); hatched is what must survive black and white.
_LOOKS = {
    VISIBLE_RAW: ("in a message", "history", ""),
    VISIBLE_SUMMARY: ("only in the summary", "summary", "////"),
    RECOVERABLE: ("found by a search", "tool_results", "...."),
    LOST: ("lost", "firing", ""),
}
_BELOW = (RECOVERABLE, LOST)


def needed_facts(runs: Runs | RunLike, conversation: str | None = None, *, theme: str = "light") -> ReportFigure:
    """Needed facts of every call by what became of them; what the request lacks hangs below the line.

    Raises:
        ConfigError: unknown theme, or no run holds the conversation.
    """
    palette = theme_named(theme)
    with drawing(palette):
        shown, panels = panels_of(runs, conversation)
        kept = [_of_conversation(panel) for panel in panels]
        rows = max(1, len(panels))
        present = [state for state in _LOOKS if any(one.states[state] for one in kept)]
        figure = new_figure(
            palette,
            title=_finding(panels, kept),
            source=source_line(shown, panels, *_remarks(kept), counter=lambda run: None),
            width_inches=_WIDTH,
            axes_height_inches=_SINGLE_HEIGHT if rows == 1 else _ROW_HEIGHT * rows + 0.2,
            legend=[_key(state, palette) for state in present],
        )
        grid = figure.subplots(rows, 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        last = max((len(panel.calls) for panel in panels), default=0)
        for axes, panel, one in zip(grid, panels, kept, strict=False):
            _draw(axes, one, palette)
            axes.set_xlim(-0.5, max(last, LEAST_CALLS) - 0.5)
            if rows > 1:
                panel_title(axes, f"{shorten(panel.name, 60)}: {_kept_words(one)}", _PLOT_INCHES)
        for axes in grid:
            call_axis(axes, "model call" if axes is grid[-1] else "")
            axes.tick_params(labelbottom=True)
            _fact_axis(axes)
        _share_limits(grid[0], kept)
        for axes, one in zip(grid, kept, strict=False):
            _name_worst(axes, one, palette, max(last, LEAST_CALLS))
        return finished(figure)


def _of_conversation(panel: Panel) -> Retention:
    """The headline facts of one conversation; which classes count is decided over the whole run."""
    whole = retention(panel.run)
    rows = tuple(row for row in whole.rows if row["conversation"] == panel.conversation)
    return Retention(rows, whole.chance)


def _calls(one: Retention) -> dict[int, dict[str, int]]:
    conversations = {row["conversation"] for row in one.headline}
    return {call: states for name in conversations for call, states in one.by_call(name).items()}


def _draw(axes: Axes, one: Retention, palette: Theme) -> None:
    calls = _calls(one)
    x = np.array(list(calls), dtype=np.float64)
    up, down = np.zeros_like(x), np.zeros_like(x)
    for state, (_, colour, hatch) in _LOOKS.items():
        heights: Floats = np.array([states[state] for states in calls.values()], dtype=np.float64)
        look = {"facecolor": getattr(palette, colour), "hatch": hatch, "edgecolor": palette.page if hatch else "none"}
        if state in _BELOW:
            down = down - heights
            bars(axes, x, heights, width=0.82, bottom=down, **look)
        else:
            bars(axes, x, heights, width=0.82, bottom=up, **look)
            up = up + heights
    axes.axhline(0, color=palette.muted, linewidth=0.8, zorder=3)


def _key(state: str, palette: Theme) -> Patch:
    label, colour, hatch = _LOOKS[state]
    return Patch(
        facecolor=getattr(palette, colour), hatch=hatch, edgecolor=palette.page if hatch else "none", label=label
    )


def _fact_axis(axes: Axes) -> None:
    axes.set_ylabel("needed facts")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{abs(value):g}"))
    axes.grid(visible=True, axis="y")


def _share_limits(axes: Axes, kept: Sequence[Retention]) -> None:
    calls = [states for one in kept for states in _calls(one).values()]
    top = max((sum(states[state] for state in VISIBLE) for states in calls), default=0)
    bottom = max((sum(states[state] for state in _BELOW) for states in calls), default=0)
    room = max(top + bottom, 4)
    # Room below the lowest bar for the name of a lost fact.
    axes.set_ylim(-(bottom + 0.3 * room) if bottom else -0.04 * room, max(top, 1) + 0.06 * room)


def _name_worst(axes: Axes, one: Retention, palette: Theme, n_calls: int) -> None:
    """One lost fact, below the call that lacks most; it stays inside the axes."""
    calls = _calls(one)
    worst = max(calls, key=lambda call: (calls[call][LOST], -call), default=None)
    if worst is None or not calls[worst][LOST]:
        return
    lost = [row["value"] for row in one.headline if row["call"] == worst and row["state"] == LOST]
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    words = f"call {worst} lacks {shorten(lost[0], _MAX_NAMED_WIDTH)}{more}"
    depth = sum(calls[worst][state] for state in _BELOW)
    half = text_size_inches(words, size=_LABEL_SIZE)[0] / _PLOT_INCHES * n_calls / 2
    x = min(max(float(worst), half), n_calls - 1 - half) if 2 * half < n_calls else (n_calls - 1) / 2
    low = axes.get_ylim()[0]
    y = (low - depth) / 2 if worst == x else low * 0.98
    axes.text(x, y, words, size=_LABEL_SIZE, color=palette.firing, ha="center", va="center" if worst == x else "bottom")


# --- words ----------------------------------------------------------------------------------------------


def _kept_words(one: Retention) -> str:
    n = len(one.headline)
    if not n:
        return "no needed fact"
    return f"{sum(one.states[state] for state in VISIBLE):,} of {counted(n, 'needed fact')} visible"


def _finding(panels: Sequence[Panel], kept: Sequence[Retention]) -> str:
    if not any(one.headline for one in kept):
        return "No call here needs a fact from well before it"
    if len(panels) == 1:
        return _finding_of_one(panels[0].name, kept[0])
    lacking = {panel.name: _n_lacking(one) for panel, one in zip(panels, kept, strict=True)}
    n = max(len(one.headline) for one in kept)
    worst, best = max(lacking, key=lambda name: lacking[name]), min(lacking, key=lambda name: lacking[name])
    if lacking[worst] == lacking[best]:
        same = counted(lacking[worst], "needed fact")
        return (
            f"All {len(panels)} configurations lack {same} of {n:,}"
            if lacking[worst]
            else (f"No configuration lacks any of {counted(n, 'needed fact')}")
        )
    step = next(iter(kept[list(lacking).index(worst)].lost_by_step()), "")
    taken = f", mostly taken by {step_in_words(step)}" if step else ""
    rest = "none" if not lacking[best] else f"{lacking[best]:,}"
    return (
        f"{quoted(worst)} lacks {lacking[worst]:,} of {counted(n, 'needed fact')}{taken}; {quoted(best)} lacks {rest}"
    )


def _finding_of_one(name: str, one: Retention) -> str:
    lacking, n = _n_lacking(one), len(one.headline)
    if not lacking:
        return f"{quoted(name)} lacks none of {counted(n, 'needed fact')}"
    step = next(iter(one.lost_by_step()))
    return f"{quoted(name)} lacks {lacking:,} of {counted(n, 'needed fact')}, mostly taken by {step_in_words(step)}"


def _n_lacking(one: Retention) -> int:
    return sum(one.states[state] for state in _BELOW)


def _remarks(kept: Sequence[Retention]) -> list[str]:
    left_out = list(dict.fromkeys(kind for one in kept for kind in one.left_out if _has(one, kind)))
    return [f"without class {listed(left_out)}"] if left_out else []


def _has(one: Retention, kind: str) -> bool:
    return any(row["kind"] == kind for row in one.rows)
