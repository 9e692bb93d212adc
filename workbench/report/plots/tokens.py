"""Token usage per call: what each prompt consists of, under each configuration (WB-UI-02).

In: a run set. Out: one panel per configuration, all of the same conversation and on the same axes. The parts are
those of the call row, so a column of the figure is exactly `prompt_tokens` high.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from workbench.report.frames import RunLike, Runs
from workbench.report.labels import counted, listed, number, percent, quoted, shorten
from workbench.report.palette import Theme, theme_named, words_on
from workbench.report.plots.panels import Panel, floats, panels_of, source_line
from workbench.report.plots.style import (
    DOTS_PER_INCH,
    LEAST_CALLS,
    Floats,
    ReportFigure,
    call_axis,
    call_limits,
    drawing,
    finished,
    marks,
    new_figure,
    panel_title,
    steps,
    text_size_inches,
    token_axis,
)

_FULL_WIDTH, _SINGLE_WIDTH = 10.6, 8.0
_PANEL_HEIGHT = 2.9
_AXES_INCHES = _PANEL_HEIGHT - 0.75
_LABEL_SIZE = 8.5
# A window further away than this many times the highest prompt would press the prompts flat: it is only named.
_WINDOW_IN_SIGHT = 2.2


@dataclass(frozen=True, slots=True)
class _Part:
    label: str
    columns: tuple[str, ...]
    colour: str
    hatch: str = ""


# Bottom to top. The summary is hatched: in grey its colour comes close to that of tool results.
_PARTS = (
    _Part("system and schemas", ("system_tokens", "schema_tokens"), "system"),
    _Part("summary", ("summary_tokens",), "summary", "////"),
    _Part("history", ("history_tokens",), "history"),
    _Part("tool results", ("tool_result_tokens",), "tool_results"),
    _Part("current message", ("current_tokens",), "current"),
    _Part("overhead", ("overhead_tokens",), "overhead"),
)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One part in one panel, between `bottom` and `top`."""

    part: _Part
    panel: int
    bottom: Floats
    top: Floats


def tokens_per_call(runs: Runs | RunLike, conversation: str | None = None, *, theme: str = "light") -> ReportFigure:
    """Parts of every prompt, stacked; window dashed; ▼ where a summary was written.

    Raises:
        ConfigError: unknown theme, or no run holds the conversation.
    """
    palette = theme_named(theme)
    with drawing(palette):
        shown, panels = panels_of(runs, conversation)
        columns = _panel_columns(len(panels))
        rows = -(-max(1, len(panels)) // columns)
        width = _SINGLE_WIDTH if len(panels) == 1 else _FULL_WIDTH
        limit, remark = _upper_limit(panels)
        layers = [layer for index, panel in enumerate(panels) for layer in _layers(index, panel)]
        panel_inches = (width - 0.9 - 0.2 * columns) / columns
        spots = _label_spots(panels, layers, limit, panel_inches)
        legend = _legend(layers, spots, palette, limit)
        figure = new_figure(
            palette,
            title=tokens_finding(panels),
            source=source_line(shown, panels, *_mark_words(panels), *remark),
            width_inches=width,
            axes_height_inches=_PANEL_HEIGHT * rows + 0.3,
            legend=legend,
        )
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        cells = list(grid.flat)
        for axes in cells[len(panels) :]:
            axes.set_visible(False)
        for index, panel in enumerate(panels):
            axes = cells[index]
            _draw_panel(axes, panel, [layer for layer in layers if layer.panel == index], palette, limit)
            _window_line(axes, panel, palette, limit, panel_inches, named=_first_with_window(panels) == index)
            call_axis(axes, "model call" if index + columns >= len(panels) else "")
            axes.tick_params(labelbottom=True)
            token_axis(axes, "prompt tokens" if index % columns == 0 else "")
            panel_title(axes, _panel_words(panel), panel_inches)
        for layer, x, y in spots.values():
            colour = getattr(palette, layer.part.colour)
            cells[layer.panel].text(
                x, y, layer.part.label,
                size=_LABEL_SIZE, weight="bold", color=words_on(layer.part.colour, palette), ha="center", va="center",
                bbox={"facecolor": colour, "edgecolor": "none", "pad": 1.0} if layer.part.hatch else None,
            )  # fmt: skip
        return finished(figure)


def _panel_columns(panels: int) -> int:
    """Up to three side by side; four stand two by two."""
    return 2 if panels == 4 else min(3, max(1, panels))


def tokens_finding(panels: list[Panel]) -> str:
    """The title: who exceeds the window, or how far the peaks are apart."""
    peaks = {panel.name: int(panel.calls["prompt_tokens"].max()) for panel in panels if len(panel.calls)}
    if not peaks:
        return "No model call: there is no prompt to measure"
    lowest, highest = min(peaks, key=lambda name: peaks[name]), max(peaks, key=lambda name: peaks[name])
    if len(peaks) == 1:
        only = panels[0]
        return f"{quoted(only.name)} peaks at {number(peaks[only.name])} tokens{_against_window(only)}"
    if peaks[lowest] == peaks[highest]:
        return f"No configuration changes the peak: all {len(peaks)} reach {counted(peaks[lowest], 'token')}"
    over = [panel for panel in panels if _first_overflow(panel) is not None]
    if over and len(over) < len(peaks):
        worst = max(over, key=lambda panel: peaks[panel.name])
        return (
            f"{quoted(worst.name)} exceeds the window of {number(_window(worst) or 0)} from call "
            f"{_first_overflow(worst)} on; {quoted(lowest)} peaks at {number(peaks[lowest])}"
        )
    times = peaks[highest] / peaks[lowest]
    factor = f"{times:.1f} times as much" if times >= 1.15 else f"{percent(times - 1)} more"
    return f"{quoted(lowest)} peaks at {number(peaks[lowest])} tokens, {quoted(highest)} at {number(peaks[highest])}: {factor}"


def _against_window(panel: Panel) -> str:
    window, overflow = _window(panel), _first_overflow(panel)
    if window is None:
        return "; the window is unknown"
    if overflow is not None:
        return f" and exceeds the window of {number(window)} from call {overflow} on"
    return f", {percent(int(panel.calls['prompt_tokens'].max()) / window)} of the window"


def _window(panel: Panel) -> int | None:
    windows = panel.calls["window"].dropna()
    return int(windows.max()) if len(windows) else None


def _first_overflow(panel: Panel) -> int | None:
    over = panel.calls[panel.calls["overflow"].fillna(False)]
    return int(over["call"].iloc[0]) if len(over) else None


def _panel_words(panel: Panel) -> str:
    name = shorten(panel.name, 44)
    if not len(panel.calls):
        return f"{name}: no call"
    firings = int(panel.checks["fired"].fillna(False).sum())
    written = len(_written(panel))
    words = "never fires" if not firings else counted(firings, "firing")
    if written != firings:
        words += f", {counted(written, 'summary', 'summaries')}"
    return f"{name}: peak {number(int(panel.calls['prompt_tokens'].max()))}, {words}"


def _written(panel: Panel) -> list[int]:
    """The last call before each written summary."""
    written = panel.summaries[panel.summaries["status"] == "written"]["call"].dropna()
    return [max(0, int(call) - 1) for call in written]


def _failed(panel: Panel) -> list[int]:
    failed = panel.summaries[panel.summaries["status"].isin(["failed", "discarded"])]["call"].dropna()
    return [max(0, int(call) - 1) for call in failed]


def _mark_words(panels: list[Panel]) -> list[str]:
    written = ["▼ summary written"] if any(_written(panel) for panel in panels) else []
    return written + (["▽ summary failed"] if any(_failed(panel) for panel in panels) else [])


def _upper_limit(panels: list[Panel]) -> tuple[float, list[str]]:
    """Top of the token axis, and what to say when the window lies above it."""
    peak = max((float(panel.calls["prompt_tokens"].max()) for panel in panels if len(panel.calls)), default=1.0)
    windows = {window for panel in panels if (window := _window(panel)) is not None}
    near = [window for window in windows if window <= _WINDOW_IN_SIGHT * peak]
    far = sorted(windows - set(near))
    remark = [f"window {listed(number(window) for window in far)}, above this scale"] if far else []
    return max([peak, *near]) * 1.12, remark


def _layers(index: int, panel: Panel) -> list[_Layer]:
    layers = []
    bottom = np.zeros(len(panel.calls))
    for part in _PARTS:
        top = bottom + np.nan_to_num(floats(panel.calls, *part.columns))
        layers.append(_Layer(part, index, bottom, top))
        bottom = top
    return [layer for layer in layers if np.any(layer.top > layer.bottom)]


def _draw_panel(axes: Axes, panel: Panel, layers: list[_Layer], palette: Theme, limit: float) -> None:
    calls = floats(panel.calls, "call")
    edges = np.append(calls - 0.5, calls[-1] + 0.5) if len(calls) else np.array([-0.5, 0.5])
    for layer in layers:
        colour = getattr(palette, layer.part.colour)
        steps(
            axes, layer.top, edges, baseline=layer.bottom, facecolor=colour, linewidth=0,
            hatch=layer.part.hatch or None, edgecolor=palette.page, label=layer.part.label,
        )  # fmt: skip
    prompts = floats(panel.calls, "prompt_tokens")
    for calls_marked, hollow in ((_written(panel), False), (_failed(panel), True)):
        at = [call for call in calls_marked if call < len(prompts)]
        marks(axes, at, prompts[at].tolist(), palette, hollow=hollow, lift_points=6)
    axes.set_xlim(*call_limits(edges[-1]))
    axes.set_ylim(0, limit)


def _first_with_window(panels: list[Panel]) -> int | None:
    return next((index for index, panel in enumerate(panels) if _window(panel) is not None), None)


def _window_line(axes: Axes, panel: Panel, palette: Theme, limit: float, panel_inches: float, *, named: bool) -> None:
    window = _window(panel)
    if window is None or window >= limit:
        return
    axes.axhline(window, color=palette.ink, linewidth=1.2, dashes=(4, 2.5), zorder=4)
    if not named:
        return
    # The label goes to the end of the line where the prompts are lower.
    prompts = floats(panel.calls, "prompt_tokens")
    span = max(1, round(len(prompts) * 0.9 / panel_inches))
    left = prompts[:span].max() <= prompts[-span:].max()
    axes.annotate(
        f"window {number(window)}",
        (0.0 if left else 1.0, window),
        xycoords=("axes fraction", "data"),
        xytext=(4 if left else -4, 3),
        textcoords="offset points",
        ha="left" if left else "right",
        size=_LABEL_SIZE,
        color=palette.ink,
        zorder=6,
        bbox={"facecolor": palette.page, "edgecolor": "none", "pad": 0.6, "alpha": 0.75},
    )


def _label_spots(
    panels: list[Panel], layers: list[_Layer], limit: float, panel_inches: float
) -> dict[str, tuple[_Layer, float, float]]:
    """For each part the roomiest place for its name inside its own area, in any panel; none if it fits nowhere."""
    longest = max([LEAST_CALLS, *(len(panel.calls) for panel in panels)])
    spots: dict[str, tuple[_Layer, float, float]] = {}
    best: dict[str, float] = {}
    for layer in layers:
        width, height = text_size_inches(layer.part.label, size=_LABEL_SIZE, weight="bold")
        span = int(np.ceil((width + 0.1) / panel_inches * longest))
        if span > len(layer.top):
            continue
        lower = np.lib.stride_tricks.sliding_window_view(layer.bottom, span).max(axis=1)
        upper = np.lib.stride_tricks.sliding_window_view(layer.top, span).min(axis=1)
        # The name stays clear of the window line: it goes below or above it.
        line = _window(panels[layer.panel]) or np.inf
        for low, high in ((lower, np.minimum(upper, line)), (np.maximum(lower, line), upper)):
            clearance = (high - low) / limit * _AXES_INCHES
            place = int(np.argmax(clearance))
            if clearance[place] > max(height * 1.1, best.get(layer.part.label, 0.0) * 1.15):
                best[layer.part.label] = float(clearance[place])
                middle = place + (span - 1) / 2
                spots[layer.part.label] = (layer, middle, float(low[place] + high[place]) / 2)
    return spots


def _legend(
    layers: list[_Layer], spots: dict[str, tuple[_Layer, float, float]], palette: Theme, limit: float
) -> list[Artist]:
    """The parts that can be seen but have no room for their name in their own area."""
    two_dots = 2 / DOTS_PER_INCH / _AXES_INCHES * limit
    visible = {layer.part.label for layer in layers if np.any(layer.top - layer.bottom > two_dots)}
    return [
        Patch(
            facecolor=getattr(palette, part.colour), edgecolor=palette.page, linewidth=0,
            hatch=part.hatch or None, label=part.label,
        )
        for part in _PARTS
        if part.label in visible and part.label not in spots
    ]  # fmt: skip
