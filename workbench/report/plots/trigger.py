"""Trigger values: what the trigger saw at each check, and where it fired (WB-UI-02, WB-RPL-04).

In: a run set. Out: one panel per configuration and unit, so that events, tokens and time stand each on their own
axis. The line holds the rows' values; a firing stands at the value that crossed the threshold. A trigger of several
parts has a panel per unit of these: there the line has a gap wherever another part decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from workbench.report.frames import RunLike, Runs
from workbench.report.labels import counted, listed, number, percent, quoted, rhythm, shorten
from workbench.report.palette import Theme, theme_named
from workbench.report.plots.panels import Panel, floats, panels_of, source_line, trigger_counter
from workbench.report.plots.style import (
    LEAST_CALLS,
    Floats,
    ReportFigure,
    call_axis,
    drawing,
    finished,
    marks,
    new_figure,
    panel_title,
    steps,
    text_size_inches,
    tick,
    token_axis,
)

_WIDTH = 8.3
_SINGLE_HEIGHT, _ROW_HEIGHT = 2.7, 1.95
_PLOT_INCHES = 7.3
_LABEL_SIZE = 8.5
_UNITS = {"tokens": "token", "events": "event", "milliseconds": "millisecond"}


@dataclass(frozen=True, slots=True)
class Track:
    """The checks of one configuration that one unit decided: position on the call axis, value, threshold, fired."""

    name: str
    unit: str
    n_firings: int
    """Of the configuration in this conversation, whatever decided them."""
    x: Floats
    until: Floats
    """Where the next check stands, whatever decides that one."""
    value: Floats
    threshold: Floats
    fired: np.ndarray[tuple[int], np.dtype[np.bool_]]


def trigger_value(runs: Runs | RunLike, conversation: str | None = None, *, theme: str = "light") -> ReportFigure:
    """What the trigger measured at each check, the threshold dashed, ▼ where it fired.

    Raises:
        ConfigError: unknown theme, or no run holds the conversation.
    """
    palette = theme_named(theme)
    with drawing(palette):
        shown, panels = panels_of(runs, conversation)
        tracks = [track for panel in panels for track in tracks_of(panel)]
        rows = max(1, len(tracks))
        silent = [quoted(panel.name) for panel in panels if not tracks_of(panel)]
        remarks = ["▼ fired"] if any(track.fired.any() for track in tracks) else []
        remarks += ["no line where something else decided"] if any(map(_is_of_parts, tracks)) else []
        remarks += [f"no measured check in {', '.join(silent)}"] if silent and tracks else []
        figure = new_figure(
            palette,
            title=trigger_finding(panels),
            source=source_line(shown, panels, *remarks, counter=trigger_counter),
            width_inches=_WIDTH,
            axes_height_inches=_SINGLE_HEIGHT if rows == 1 else _ROW_HEIGHT * rows,
        )
        one_unit = len({track.unit for track in tracks}) <= 1
        last = max((float(track.x[-1]) + 1 for track in tracks), default=1.0)
        grid = figure.subplots(rows, 1, sharex=True, sharey=one_unit, squeeze=False)[:, 0]
        for axes, track in zip(grid, tracks, strict=False):
            axes.set_xlim(0, max(last, LEAST_CALLS))
            _draw(axes, track, palette, titled=len(tracks) > 1)
            call_axis(axes, "after model call" if axes is grid[-1] else "")
        if not tracks:
            call_axis(grid[0], "after model call")
            token_axis(grid[0])
        return finished(figure)


def tracks_of(panel: Panel) -> list[Track]:
    """The measured checks of a panel, one track per unit; checks without a measured value are left out."""
    checks = panel.checks
    if not len(checks):
        return []
    checks = checks.assign(x=_positions(checks))
    checks = checks[checks["path"].fillna("") != "copy"]
    checks = checks.assign(until=checks["x"].shift(-1).fillna(checks["x"] + 1))
    unit = checks["unit"].fillna("")
    # With nothing to summarise the trigger isn't asked: such a check has neither unit nor threshold.
    is_asked = (unit != "") | (checks["threshold"].fillna(0) > 0)
    measured = checks[checks["value"].notna() & is_asked]
    n_firings = _firings(panel)
    return [
        Track(
            panel.name,
            str(unit),
            n_firings,
            floats(rows, "x"),
            floats(rows, "until"),
            floats(rows, "value"),
            floats(rows, "threshold"),
            rows["fired"].fillna(False).to_numpy(dtype=bool),
        )
        for unit, rows in measured.groupby("unit", sort=False)
    ]


def _positions(checks: pd.DataFrame) -> pd.Series[float]:
    """Checks between two calls spread evenly after the first of them: a check belongs to the call it follows."""
    by_call = checks.groupby("call")["check"]
    place, together = by_call.cumcount(), by_call.transform("size")
    return ((checks["call"].astype("float64") - 1).clip(lower=0) + place / together).astype("float64")


def trigger_finding(panels: list[Panel]) -> str:
    """The title: how often it fires and by how much it overshoots, or how far it stays below."""
    if not any(len(panel.checks) for panel in panels):
        return "No trigger check: nothing here could fire"
    if len(panels) == 1:
        return _finding_of_one(panels[0])
    alike: dict[str, list[Panel]] = {}
    for panel in panels:
        if len(panel.checks):
            alike.setdefault(_rhythm(panel), []).append(panel)
    if len(alike) > 3:
        return _range_finding(alike)
    return "; ".join(_together(rhythm, group) for rhythm, group in alike.items())


def _together(rhythm: str, group: list[Panel]) -> str:
    names = listed(quoted(panel.name, 30) for panel in group)
    return f"{names} {rhythm if len(group) == 1 else rhythm.replace('fires', 'fire', 1)}"


def _range_finding(alike: dict[str, list[Panel]]) -> str:
    """Many configurations: the one that fires most, the one that fires least, and how many never do."""
    by_firings = sorted(alike.items(), key=lambda item: -_firings(item[1][0]))
    words = [_together(*by_firings[0]), _together(*by_firings[-1])]
    between = sum(len(group) for _, group in by_firings[1:-1])
    return f"{'; '.join(words)}; {between} lie between"


def _firings(panel: Panel) -> int:
    return int(panel.checks["fired"].fillna(False).sum())


def _rhythm(panel: Panel) -> str:
    """`fires every 8 calls`, `fires once`, `never fires`, the last with the nearest it came."""
    calls = [int(call) for call in panel.checks[panel.checks["fired"].fillna(False)]["call"]]
    if not calls:
        nearest = max((float(np.nanmax(t.value / t.threshold)) for t in _limited(panel)), default=None)
        return "never fires" if nearest is None else f"never fires (at most {percent(nearest)} of its threshold)"
    return rhythm(calls, len(panel.calls))


def _limited(panel: Panel) -> list[Track]:
    return [track for track in tracks_of(panel) if np.any(track.threshold > 0)]


def _finding_of_one(panel: Panel) -> str:
    rhythm = _rhythm(panel)
    over = [
        (float(np.max((track.value - track.threshold)[track.fired])), track)
        for track in _limited(panel)
        if track.fired.any()
    ]
    if not over:
        return f"The trigger {rhythm}"
    overshoot, track = max(over, key=lambda item: item[0] / float(np.nanmax(item[1].threshold)))
    words = f"The trigger {rhythm} and overshoots by up to {_amount(overshoot, track.unit)}"
    step = _largest_step(track)
    return f"{words}: one step adds up to {number(step)}" if step > overshoot > 0 else words


def _largest_step(track: Track) -> float:
    """The largest rise between two checks that no firing separates."""
    rises = np.diff(track.value)[~track.fired[:-1]]
    return float(rises.max()) if len(rises) else 0.0


def _amount(value: float, unit: str) -> str:
    if unit == "milliseconds" and value >= 1_000:
        return f"{value / 1_000:,.3g} s"
    return counted(round(value), _UNITS[unit]) if unit in _UNITS else f"{number(value)} {shorten(unit, 20)}"


def _draw(axes: Axes, track: Track, palette: Theme, *, titled: bool) -> None:
    values, edges = _line(track)
    steps(axes, values, edges, edgecolor=palette.history, linewidth=1.8, label="value")
    known = np.nan_to_num(track.threshold)
    dashes: dict[str, Any] = {"color": palette.ink, "linewidth": 1.2, "linestyle": (0, (4, 2.5)), "label": "threshold"}
    if np.ptp(known) == 0:
        axes.axhline(known[0], **dashes)
    else:
        steps(axes, known, np.append(track.x, track.x[-1] + 1), **dashes)
    marks(axes, track.x[track.fired].tolist(), track.value[track.fired].tolist(), palette)
    highest = max(float(track.value.max()), float(known.max()), 1.0)
    axes.set_ylim(0, max(axes.get_ylim()[1], highest * 1.12))
    axes.margins(x=0)
    token_axis(axes, _axis_label(track.unit, short=titled), ticks=4 if titled else 6)
    if track.unit == "milliseconds":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value / 1_000)))
    named = _name_threshold(axes, track, highest, palette)
    limit = "" if named else f", threshold {_amount(float(known[-1]), track.unit)}"
    if titled or limit:
        panel_title(axes, f"{shorten(track.name, 60)}: {_firing_words(track)}{limit}", _PLOT_INCHES)


def _line(track: Track) -> tuple[Floats, Floats]:
    """Values and their edges, with an empty step wherever another part of the trigger decided."""
    values, edges = [], [float(track.x[0])]
    for value, start, end in zip(track.value, track.x, track.until, strict=True):
        if start > edges[-1]:
            values.append(np.nan)
            edges.append(float(start))
        values.append(float(value))
        edges.append(float(end))
    return np.array(values), np.array(edges)


def _is_of_parts(track: Track) -> bool:
    return bool(np.any(track.x[1:] > track.until[:-1]))


def _firing_words(track: Track) -> str:
    """`6 firings`, `4 of 6 firings`, or what the part did where others decided all of them."""
    own = int(track.fired.sum())
    if own == track.n_firings:
        return counted(own, "firing") if own else "never fires"
    if own:
        return f"{number(own)} of {counted(track.n_firings, 'firing')}"
    return f"decided {counted(len(track.x), 'check')}, none of the {counted(track.n_firings, 'firing')}"


def _axis_label(unit: str, *, short: bool) -> str:
    if unit == "milliseconds":
        return "seconds"
    label = shorten(unit, 20) or "value"
    return label if short or unit not in ("tokens", "events") else f"{label} since the last summary"


def _name_threshold(axes: Axes, track: Track, highest: float, palette: Theme) -> bool:
    """Writes the threshold above its line where neither the value nor a mark is in the way; False if nowhere."""
    if np.ptp(track.threshold) > 0:
        return False
    limit = float(track.threshold[-1])
    words = f"threshold {_amount(limit, track.unit) if track.unit == 'milliseconds' else number(limit)}"
    width, height = text_size_inches(words, size=_LABEL_SIZE)
    first, last = axes.get_xlim()
    width_calls = (width + 0.15) / _PLOT_INCHES * (last - first)
    height_units = (height + 0.12) / 1.2 * highest
    edges = np.append(track.x, track.x[-1] + 1)
    for start in np.arange(last - width_calls, first, -max((last - first) / 200, 1e-9)):
        touched = (edges[1:] > start) & (edges[:-1] < start + width_calls)
        if not np.any(track.value[touched] > limit - 0.15 * height_units):
            axes.annotate(
                words, (start + width_calls, limit), xytext=(-2, 3), textcoords="offset points",
                ha="right", size=_LABEL_SIZE, color=palette.ink,
            )  # fmt: skip
            return True
    return False
