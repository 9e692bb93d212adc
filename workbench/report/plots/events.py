"""Summary coverage: in which form each call has the events of its conversation (WB-UI-02, WB-RPL-13).

In: one run. Out: a step per call: how many events the request says as they are, how many only the summary stands for,
how many were rewritten, left out or cut before the summary model read them. Counted from the coverage intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workbench.report.frames import RunLike
from workbench.report.labels import counted, listed, number, quoted
from workbench.report.palette import Theme, theme_named
from workbench.report.plots.panels import Panel, panels_of, source_line
from workbench.report.plots.style import (
    Floats,
    ReportFigure,
    call_axis,
    call_limits,
    drawing,
    finished,
    new_figure,
    steps,
    tick,
)

_WIDTH, _HEIGHT = 8.6, 2.9
# State -> (label, name of the colour, hatch), from the bottom up: what summaries stand for, what is missing, what is said.
LOOKS = {
    "covered_cut": ("cut before it was summarised", "summary", "xxx"),
    "covered": ("only in the summary", "summary", ""),
    "lost": ("lost", "firing", "///"),
    "dropped": ("dropped", "tailoring", "---"),
    "hidden": ("another agent's", "overhead", "..."),
    "rewritten": ("rewritten", "compaction", "///"),
    "raw_and_covered": ("as it was, and in the summary", "history", "///"),
    "raw": ("as it was", "history", ""),
}


def coverage(run: RunLike, conversation: str | None = None, *, theme: str = "light") -> ReportFigure:
    """Events of a conversation at each call, by the form in which the request has them.

    Raises:
        ConfigError: unknown theme, or the run doesn't hold the conversation.
    """
    palette = theme_named(theme)
    with drawing(palette):
        shown, (panel,) = panels_of(run, conversation)
        n_calls = len(panel.calls)
        counts = events_by_state(run.rows("coverage", shown), n_calls)
        figure = new_figure(
            palette,
            title=coverage_finding(panel, counts),
            source=source_line(shown, [panel], counter=lambda run: None),
            width_inches=_WIDTH,
            axes_height_inches=_HEIGHT,
            legend=[_key(state, palette) for state in LOOKS if counts[state].any()],
        )
        axes = figure.subplots()
        bottom: Floats = np.zeros(n_calls)
        edges: Floats = np.arange(n_calls + 1, dtype=np.float64) - 0.5
        for state, (label, colour, hatch) in LOOKS.items():
            if n_calls and counts[state].any():
                steps(
                    axes, bottom + counts[state], edges, baseline=bottom, label=label, hatch=hatch, linewidth=0,
                    facecolor=getattr(palette, colour), edgecolor=palette.page,
                )  # fmt: skip
            bottom = np.asarray(bottom + counts[state], dtype=np.float64)
        axes.set_ylim(0, max(1.0, float(bottom.max(initial=0))) * 1.06)
        axes.set_xlim(*call_limits(n_calls - 0.5))
        call_axis(axes)
        axes.set_ylabel("events")
        axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        axes.grid(visible=True, axis="y")
        return finished(figure)


def events_by_state(rows: Iterable[Mapping[str, Any]], n_calls: int) -> dict[str, Floats]:
    """State -> events in it at each call; rows hold the changes of each call, in order."""
    by_call: dict[int, list[Mapping[str, Any]]] = {}
    n_events = 0
    for row in rows:
        by_call.setdefault(row["call"], []).append(row)
        n_events = max(n_events, row["last_position"] + 1)
    names = list(LOOKS)
    now = np.full(n_events, len(names), dtype=np.int64)  # behind the last state: not there yet
    totals = np.zeros((len(names), n_calls))
    held = np.zeros(len(names) + 1, dtype=np.int64)
    for call in range(n_calls):
        for row in by_call.get(call, ()):
            # The work is that of the changes: an event whose state stays is not looked at again.
            place = slice(row["first_position"], row["last_position"] + 1)
            held -= np.bincount(now[place], minlength=len(held))
            now[place] = names.index(row["state"])
            held += np.bincount(now[place], minlength=len(held))
        totals[:, call] = held[:-1]
    return {name: totals[index] for index, name in enumerate(names)}


def _key(state: str, palette: Theme) -> Patch:
    label, colour, hatch = LOOKS[state]
    return Patch(facecolor=getattr(palette, colour), hatch=hatch, edgecolor=palette.page, linewidth=0, label=label)


def coverage_finding(panel: Panel, counts: Mapping[str, Floats]) -> str:
    """The title: what the last call has of its conversation, and in which form."""
    name = quoted(panel.name)
    if not len(panel.calls):
        return "No model call: nothing is covered, nothing left out"
    last = {state: int(values[-1]) for state, values in counts.items()}
    total = sum(last.values())
    if not total:
        return f"{name} keeps no record of coverage in this conversation"
    covered, cut = last["covered"] + last["covered_cut"], last["covered_cut"]
    missing = [
        f"{number(n)} {words}"
        for state, words in (
            ("lost", "lost"),
            ("dropped", "dropped"),
            ("rewritten", "rewritten"),
            ("hidden", "another agent's"),
        )
        if (n := last[state])
    ]
    rest = f"; {listed(missing)}" if missing else ""
    if covered:
        short = f" ({number(cut)} of them cut before it was made)" if cut else ""
        return f"{name}: at the last call its summary stands for {number(covered)} of {counted(total, 'event')}{short}{rest}"
    raw = last["raw"] + last["raw_and_covered"]
    whole = f"all {counted(total, 'event')}" if raw == total else f"{number(raw)} of {counted(total, 'event')}"
    return f"{name} sends {whole} as they were with the last call{rest}"
