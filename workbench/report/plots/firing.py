"""Firing map: how full the trigger is at each call of each conversation (WB-UI-02).

In: one run. Out: a row per conversation, longest first, a column per call; the colour is value / threshold, ▼ a
firing. Many conversations share rows, in groups of neighbours by length, and the figure says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, LinearSegmentedColormap, ListedColormap, Normalize
from matplotlib.image import AxesImage

from workbench.report.fonts import drawable
from workbench.report.frames import RunLike, frame
from workbench.report.labels import counted, quoted, shorten
from workbench.report.palette import Theme, theme_named
from workbench.report.plots.style import (
    Floats,
    ReportFigure,
    call_axis,
    call_limits,
    drawing,
    finished,
    marks,
    new_figure,
)

MAX_ROWS = 60
_WIDTH = 8.3
_ROW_INCHES, _BASE_INCHES = 0.21, 0.75
_NAME_WIDTH = 30
_TOP_OF_SCALE = 1.25


@dataclass(frozen=True, slots=True)
class FiringGrid:
    """What the map shows: rows by calls. `fullness` is not-a-number where no check measured."""

    labels: tuple[str, ...]
    group_size: int
    calls: tuple[int, ...]
    fullness: Floats
    fired: np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def firing_map(run: RunLike, *, theme: str = "light") -> ReportFigure:
    """Conversations by calls, longest first; the colour says how full the trigger is, ▼ where it fired.

    Raises:
        ConfigError: unknown theme.
    """
    palette = theme_named(theme)
    with drawing(palette):
        grid = firing_grid(run)
        rows = len(grid.labels)
        figure = new_figure(
            palette,
            title=firing_finding(run),
            source=_source(run, grid),
            width_inches=_WIDTH,
            axes_height_inches=max(1.6, _ROW_INCHES * rows + _BASE_INCHES),
        )
        axes = figure.subplots()
        call_axis(axes)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.tick_params(length=0)
        if grid.fullness.size:
            image = _draw(axes, grid, palette)
            if np.isfinite(grid.fullness).any():
                _scale(figure, axes, image)
        else:
            axes.set_yticks([])
        return finished(figure)


def firing_grid(run: RunLike) -> FiringGrid:
    """The cells of the map, from the check rows."""
    conversations = frame(run, "conversations").sort_values(
        ["calls", "position"], ascending=[False, True], kind="stable", ignore_index=True
    )
    conversations = conversations[conversations["calls"].fillna(0) > 0]
    names = [str(name) for name in conversations["conversation"]]
    calls = [int(count) for count in conversations["calls"]]
    width = max(calls, default=0)
    fullness, fired = np.full((len(names), width), np.nan), np.zeros((len(names), width), dtype=bool)
    row_of = {name: row for row, name in enumerate(names)}
    checks = _measured(run)
    for name, call, value, hit in zip(
        checks["conversation"], checks["at"], checks["fullness"], checks["hit"], strict=True
    ):
        if name in row_of and call < width:
            row = row_of[name]
            # Of several checks after one call the fullest counts: it is what a firing was about.
            fullness[row, call] = np.fmax(fullness[row, call], value)
            fired[row, call] |= hit
    size = -(-len(names) // MAX_ROWS) if names else 1
    return _grouped(names, calls, fullness, fired, size)


def _measured(run: RunLike) -> pd.DataFrame:
    checks = frame(run, "checks")
    checks = checks[checks["path"].fillna("") != "copy"]
    value = checks["value"].to_numpy(dtype="float64", na_value=np.nan)
    threshold = checks["threshold"].to_numpy(dtype="float64", na_value=np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        fullness = np.where(threshold > 0, value / threshold, np.nan)
    return checks.assign(
        at=(checks["call"].fillna(0).astype("int64") - 1).clip(lower=0),
        fullness=fullness,
        hit=checks["fired"].fillna(False).astype(bool),
    )


def _grouped(
    names: list[str],
    calls: list[int],
    fullness: Floats,
    fired: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    size: int,
) -> FiringGrid:
    """Neighbours by length in one row: the mean of those that reach a call, and a firing where half of them fired."""
    if size == 1:
        return FiringGrid(tuple(shorten(name, _NAME_WIDTH) for name in names), 1, tuple(calls), fullness, fired)
    starts = range(0, len(names), size)
    blocks = [fullness[start : start + size] for start in starts]
    known = np.array([np.isfinite(block).sum(axis=0) for block in blocks])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.array([np.nansum(block, axis=0) for block in blocks]) / np.where(known, known, np.nan)
    lengths = [(calls[start], calls[min(start + size, len(calls)) - 1]) for start in starts]
    labels = tuple(f"{most} calls" if most == least else f"{least}–{most} calls" for most, least in lengths)
    hits = np.array([2 * fired[start : start + size].sum(axis=0) >= size for start in starts])
    return FiringGrid(labels, size, tuple(most for most, _ in lengths), mean, hits)


def firing_finding(run: RunLike) -> str:
    """The title: how often conversations fire, and how many never do."""
    conversations = frame(run, "conversations")
    total = int((conversations["calls"].fillna(0) > 0).sum())
    checks = _measured(run)
    if not total:
        return "No model call: nothing here could fire"
    if not len(checks):
        return f"{quoted(run.name)} never checks a trigger: nothing here could fire"
    hits = checks[checks["hit"]].groupby("conversation")["at"].agg(list)
    never = total - len(hits)
    if not len(hits):
        nearest = checks["fullness"].max()
        near = "" if pd.isna(nearest) else f"; the fullest reaches {nearest:.0%} of its threshold".replace("%", " %")
        return f"{quoted(run.name)} never fires in {counted(total, 'conversation')}{near}"
    silent = "" if not never else f"; {never} of {total} conversations never {'fires' if never == 1 else 'fire'}"
    gaps = [median(b - a for a, b in pairwise(calls)) for calls in hits if len(calls) > 1]
    if not gaps:
        return f"No conversation fires more than once in {quoted(run.name)}: {len(hits)} of {total} fire"
    low, high = round(min(gaps)), round(max(gaps))
    if high <= 1:
        return f"{quoted(run.name)} fires at almost every call{silent}"
    every = f"{high} calls" if low == high else f"{low} to {high} calls"
    return f"{quoted(run.name)} fires every {every}{silent}"


def _draw(axes: Axes, grid: FiringGrid, palette: Theme) -> AxesImage:
    rows, width = grid.fullness.shape
    extent = (-0.5, width - 0.5, rows - 0.5, -0.5)
    # A call without a measured check is grey, the room after the last call stays empty.
    reached = np.arange(width)[None, :] < np.array(grid.calls)[:, None]
    unmeasured = np.where(reached & ~np.isfinite(grid.fullness), 1.0, np.nan)
    axes.imshow(
        unmeasured, cmap=ListedColormap([palette.grid]), norm=BoundaryNorm([0, 2], 1), extent=extent,
        aspect="auto", interpolation="none",
    )  # fmt: skip
    image = axes.imshow(
        np.minimum(grid.fullness, _TOP_OF_SCALE), cmap=LinearSegmentedColormap.from_list("fullness", palette.ramp),
        norm=Normalize(0, _TOP_OF_SCALE), extent=extent, aspect="auto", interpolation="none",
    )  # fmt: skip
    for row in range(1, rows):
        axes.axhline(row - 0.5, color=palette.page, linewidth=1.2)
    hit_rows, hit_calls = np.nonzero(grid.fired)
    marks(axes, hit_calls.tolist(), hit_rows.tolist(), palette)
    axes.set_yticks(range(rows), labels=[drawable(text) for text in grid.labels])
    axes.set_xlim(*call_limits(width - 0.5))
    return image


def _scale(figure: ReportFigure, axes: Axes, image: AxesImage) -> None:
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.02, aspect=14)
    bar.set_ticks([0, 1], labels=["empty", "threshold"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=3)


def _source(run: RunLike, grid: FiringGrid) -> str:
    parts = [shorten(run.name, 48), counted(len(run.rows("conversations")), "conversation")]
    if grid.group_size > 1:
        parts.append(f"each row the mean of {grid.group_size} conversations of similar length")
    if grid.fired.any():
        parts.append("▼ fired" if grid.group_size == 1 else "▼ at least half of them fired")
    if np.nanmax(grid.fullness, initial=0) > 1:
        parts.append(f"darkest: {_TOP_OF_SCALE:g} times the threshold or more")
    if profile := run.facts.get("profile"):
        parts.append(f"profile {profile}")
    return " · ".join(parts)
