"""Cached tokens lost, by cause, one panel per configuration (WB-UI-02, WB-CACHE-03).

In: a run set. Out: panels on one axis of tokens, each with a bar per cause that broke a prefix, its tokens and calls
beside it. By the provider's rules where those of every run are known, else by the texts of the requests.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workbench.evaluate.providers import CAUSES
from workbench.report.cache_words import break_totals
from workbench.report.frames import RunLike, Runs, each_run
from workbench.report.labels import counted, number, percent, quoted, shorten
from workbench.report.overview import billing_counter
from workbench.report.palette import Theme, theme_named
from workbench.report.plots.prefix import look_of_cause
from workbench.report.plots.style import (
    ReportFigure,
    drawing,
    finished,
    new_figure,
    panel_title,
    text_size_inches,
    tick,
    wrapped,
)

MAX_CAUSES = 8
"""Further causes share one bar: a panel stays small enough to be seen beside the others."""
_WIDTH = 8.6
_CAUSE_INCHES = 2.5
_PLOT_INCHES = 5.4
_BAR_INCHES, _PANEL_INCHES, _AXIS_INCHES = 0.34, 0.42, 0.35
_LABEL_SIZE = 8.5
_REST = "rest"
Totals = dict[str, tuple[int, int]]


def cache_breaks(runs: Runs | RunLike, *, theme: str = "light") -> ReportFigure:
    """Cached tokens that each configuration loses, by what broke the prefix.

    Raises:
        ConfigError: unknown theme.
    """
    palette = theme_named(theme)
    named = {run.name: run for run in each_run(runs)}
    totals, by_rules = break_totals(named)
    shown = {name: _shortened(causes) for name, causes in totals.items()}
    with drawing(palette):
        bars = [max(len(causes), 1) for causes in shown.values()] or [1]
        heights = [n * _BAR_INCHES + _PANEL_INCHES for n in bars]
        figure = new_figure(
            palette,
            title=breaks_finding(totals),
            source=_source(named, by_rules=by_rules),
            width_inches=_WIDTH,
            axes_height_inches=sum(heights) + _AXIS_INCHES,
        )
        grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        longest = max((tokens for causes in shown.values() for _, tokens in causes.values()), default=0)
        edge = max(longest, 1) / (1 - _room_of_labels(shown) / _PLOT_INCHES)
        for axes, (name, causes) in zip(grid, shown.items(), strict=False):
            _draw(axes, causes, palette)
            panel_title(axes, f"{shorten(name, 60)}: {_lost_words(totals[name])}", _PLOT_INCHES)
        for axes in grid:
            axes.set_xlim(0, edge)
            axes.tick_params(axis="y", length=0, labelcolor=palette.ink, labelsize=_LABEL_SIZE)
            axes.tick_params(axis="x", bottom=axes is grid[-1], labelbottom=axes is grid[-1])
            axes.spines["bottom"].set_visible(axes is grid[-1])
        grid[-1].xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 2.5, 5, 10]))
        grid[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        grid[-1].set_xlabel("cached tokens lost")
        return finished(figure)


def _shortened(causes: Totals) -> Totals:
    """The costliest causes, and the others as one; what cost nothing needs no bar."""
    ordered = sorted(((cause, total) for cause, total in causes.items() if total[1]), key=lambda item: -item[1][1])
    if len(ordered) <= MAX_CAUSES:
        return dict(ordered)
    rest = [total for _, total in ordered[MAX_CAUSES - 1 :]]
    return dict(ordered[: MAX_CAUSES - 1]) | {_REST: (sum(calls for calls, _ in rest), sum(lost for _, lost in rest))}


def _draw(axes: Axes, causes: Totals, palette: Theme) -> None:
    places = list(range(len(causes)))[::-1]
    axes.set_ylim(-0.6, max(len(causes), 1) - 0.4)
    axes.set_yticks(places, ["\n".join(wrapped(_words(cause), _CAUSE_INCHES, size=_LABEL_SIZE)) for cause in causes])
    if not causes:
        axes.set_yticks([])
        axes.annotate(
            "nothing is lost", (0, 0), xytext=(4, 0), textcoords="offset points", va="center", size=_LABEL_SIZE,
            color=palette.muted,
        )  # fmt: skip
    for place, (cause, total) in zip(places, causes.items(), strict=True):
        colour, hatch = look_of_cause(cause, palette)
        axes.barh(place, total[1], height=0.62, facecolor=colour, hatch=hatch, edgecolor=palette.page, linewidth=0)
        axes.annotate(
            _amount(total), (total[1], place), xytext=(4, 0), textcoords="offset points", va="center",
            size=_LABEL_SIZE, color=palette.ink,
        )  # fmt: skip


def _words(cause: str) -> str:
    return "all other causes" if cause == _REST else CAUSES.get(cause, cause)


def _amount(total: tuple[int, int]) -> str:
    return f"{number(total[1])} · {counted(total[0], 'call')}"


def _room_of_labels(shown: Mapping[str, Totals]) -> float:
    """Inches that the longest label beside a bar takes."""
    labels = [_amount(total) for causes in shown.values() for total in causes.values()]
    return max((text_size_inches(label, size=_LABEL_SIZE)[0] for label in labels), default=0.0) + 0.15


def _source(runs: Mapping[str, RunLike], *, by_rules: bool) -> str:
    first = next(iter(runs.values()), None)
    parts = []
    if first is not None:
        facts = first.facts
        parts += [counted(facts.get("conversations") or 0, "conversation"), counted(facts.get("calls") or 0, "call")]
    parts.append(
        "by the provider's cache rules" if by_rules else "by the texts of the requests, without a provider's rules"
    )
    if counters := dict.fromkeys(filter(None, map(billing_counter, runs.values()))):
        parts.append(f"tokens counted with {', '.join(counters)}")
    return " · ".join(parts)


# --- words ----------------------------------------------------------------------------------------------


def _lost_words(causes: Totals) -> str:
    return f"{number(sum(lost for _, lost in causes.values()))} tokens lost"


def breaks_finding(totals: Mapping[str, Totals]) -> str:
    """The title: who loses most and through what, against who loses least."""
    lost = {name: sum(tokens for _, tokens in causes.values()) for name, causes in totals.items()}
    if not any(lost.values()):
        return "No cached token is lost: no request breaks an earlier one's prefix"
    most, least = max(lost, key=lambda name: lost[name]), min(lost, key=lambda name: lost[name])
    cause, (_, tokens) = max(totals[most].items(), key=lambda item: item[1][1])
    share = "all of them" if tokens == lost[most] else percent(tokens / lost[most])
    words = f"{quoted(most)} loses {number(lost[most])} cached tokens ({share}: {_words(cause)})"
    if len(lost) < 2 or lost[most] == lost[least]:
        return words
    return f"{words}; {quoted(least)} loses {number(lost[least]) if lost[least] else 'none'}"
