"""What the explorer shows: two figures, the key numbers, and the sentence above them.

In: rows, firings and tracks. Out: HTML of fixed size, every figure in light and dark, so that nothing jumps and a dark
notebook gets dark figures. Text from outside goes through `markup.py`. Figures are drawn anew at each move: fixed
places instead of a layout engine, titles as HTML, and no more marks than can be told apart keep that short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg

from workbench.replay.planner import ThresholdSums
from workbench.replay.threshold_sums import Firings, Track
from workbench.report.explorer.work import Replayed
from workbench.report.labels import (
    UNKNOWN,
    counted,
    difference,
    money,
    number,
    percent,
    quoted,
    rhythm,
    shorten,
)
from workbench.report.markup import Markup, element, joined, text, verbatim
from workbench.report.overview import billing_counter, engine_counter
from workbench.report.palette import DARK, LIGHT, Theme, in_dark
from workbench.report.pictures import picture, svg_of
from workbench.report.plots.style import (
    DOTS_PER_INCH,
    Floats,
    ReportFigure,
    call_axis,
    call_limits,
    drawing,
    marks,
    steps,
    token_axis,
)
from workbench.report.stylesheet import carried_face

WIDTH_PX, TRIGGER_PX, PROMPT_PX = 700, 190, 250
_LEFT_PX, _RIGHT_PX, _TOP_PX, _BOTTOM_PX = 58, 12, 14, 38
_MOST_MARKS, _MOST_COLUMNS = 240, 1200
_PARTS = (
    ("system and schemas", ("system_tokens", "schema_tokens"), "system", ""),
    ("summary", ("summary_tokens",), "summary", "////"),
    ("history", ("history_tokens",), "history", ""),
    ("tool results", ("tool_result_tokens",), "tool_results", ""),
    ("current message", ("current_tokens",), "current", ""),
)

# JupyterLab marks its theme on the body; other notebooks stay light. `wbx` keeps these rules to the explorer.
STYLE = verbatim(
    f"""<style>
.wbx img.on-dark{{display:none}}
body[data-jp-theme-light="false"] .wbx img.on-dark{{display:inline}}
body[data-jp-theme-light="false"] .wbx img.on-light{{display:none}}
.wbx{{font:13px/1.4 "carried glyphs",var(--jp-ui-font-family,system-ui),"Noto Sans CJK SC","PingFang SC",sans-serif;color:var(--jp-ui-font-color1,{LIGHT.ink})}}
.wbx .muted{{color:var(--jp-ui-font-color2,{LIGHT.muted})}}
.wbx .action{{color:{LIGHT.firing};font-weight:600}}
body[data-jp-theme-light="false"] .wbx .action{{color:{DARK.firing}}}
.wbx .lead{{font-size:16px;font-weight:600;line-height:1.3;overflow-wrap:anywhere}}
.wbx table{{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}}
.wbx th,.wbx td{{padding:2px 8px;text-align:right;font-weight:400;border-bottom:1px solid rgba(128,128,128,.25)}}
.wbx th:first-child,.wbx td:first-child{{text-align:left;padding-left:0}}
.wbx thead th{{color:var(--jp-ui-font-color2,{LIGHT.muted});font-weight:600;vertical-align:bottom}}
.wbx td.now{{font-weight:600}}
.wbx .key{{display:inline-block;width:11px;height:11px;margin:0 4px 0 10px;vertical-align:-1px}}
.wbx.prompt table{{width:auto;margin:4px 0}}
.wbx.prompt th,.wbx.prompt td{{vertical-align:top;white-space:normal}}
.wbx.prompt td:first-child{{padding-left:6px}}
.wbx.prompt summary{{cursor:pointer}}
.wbx-stale{{opacity:.45}}
</style>"""
)


def glyphs_style(glyphs: bytes | None) -> Markup:
    """A face with the Chinese, Japanese and Korean characters of a conversation, for browsers that have none."""
    if glyphs is None:
        return verbatim("")
    return verbatim(f"<style>{carried_face(glyphs)}</style>")


def framed(*content: str, height_px: int | None = None, class_: str = "") -> Markup:
    """A piece of the explorer, of a height that doesn't change."""
    style = None if height_px is None else f"height:{height_px}px;overflow:hidden"
    return element("div", *content, class_=f"wbx {class_}".strip(), style=style)


def both_themes(draw: Callable[[Theme], ReportFigure]) -> Markup:
    """A figure that follows the notebook's theme: drawn once, coloured twice."""
    with drawing(LIGHT):
        figure = draw(LIGHT)
        svg = svg_of(figure)
    return joined([picture(figure, svg, "on-light"), picture(figure, in_dark(svg), "on-dark")])


def _axes(height_px: int) -> tuple[ReportFigure, Axes]:
    """Axes at a fixed place, one pixel being a hundredth of an inch."""
    figure = ReportFigure(figsize=(WIDTH_PX / DOTS_PER_INCH, height_px / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    axes = figure.add_axes(
        (
            _LEFT_PX / WIDTH_PX,
            _BOTTOM_PX / height_px,
            (WIDTH_PX - _LEFT_PX - _RIGHT_PX) / WIDTH_PX,
            (height_px - _TOP_PX - _BOTTOM_PX) / height_px,
        )
    )
    return figure, axes


# --- what the trigger sees --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TriggerView:
    """What one check measures, by the call it follows, and where the whole trigger fires."""

    track: Track
    after_calls: tuple[int, ...]
    fired: tuple[int, ...]
    """Places in the track."""


def planned_view(sums: ThresholdSums, firings: Firings, track: Track) -> TriggerView:
    """From sums."""
    return TriggerView(track, tuple(max(call - 1, 0) for call in sums.calls), firings.moments)


def replayed_view(replayed: Replayed) -> TriggerView | None:
    """From the rows of a replay, in the unit of most of its checks; None when nothing was measured."""
    measured = [
        row for row in replayed.tables["checks"] if row["value"] is not None and row["unit"] and row["path"] != "copy"
    ]
    units = [row["unit"] for row in measured]
    if not units:
        return None
    unit = max(dict.fromkeys(units), key=units.count)
    rows = [row for row in measured if row["unit"] == unit]
    track = Track(rows[-1]["name"], unit, round(rows[-1]["threshold"]), tuple(round(row["value"]) for row in rows))
    after = tuple(max(row["call"] - 1, 0) for row in rows)
    return TriggerView(track, after, tuple(i for i, row in enumerate(rows) if row["fired"]))


_UNITS = {"events": "new events", "tokens": "new tokens", "milliseconds": "seconds of silence"}


def trigger_figure(view: TriggerView | None, n_calls: int) -> Markup:
    """The trigger's own value at every check, its threshold, and the firings (WB-RPL-19)."""

    def draw(theme: Theme) -> ReportFigure:
        figure, axes = _axes(TRIGGER_PX)
        call_axis(axes, "after model call")
        if view is None or not view.track.values:
            token_axis(axes, ticks=4)
            axes.set_xlim(*call_limits(n_calls - 0.5))
            axes.set_ylim(0, 1)
            axes.set_yticks([])
            axes.text(0.5, 0.5, "nothing is checked", transform=axes.transAxes, ha="center", color=theme.muted)
            figure.finding = "nothing is checked"
            return figure
        scale = 1000 if view.track.unit == "milliseconds" else 1
        values = np.asarray(view.track.values, dtype=np.float64) / scale
        threshold = view.track.threshold / scale
        x = _spread(view.after_calls)
        steps(axes, values, np.append(x, x[-1] + 1), edgecolor=theme.history, linewidth=1.6)
        axes.axhline(threshold, color=theme.ink, linewidth=1.1, dashes=(4, 2.5))
        shown = _some(view.fired)
        marks(axes, x[shown].tolist(), values[shown].tolist(), theme)
        axes.set_xlim(*call_limits(n_calls - 0.5))
        axes.set_ylim(0, max(float(values.max()), min(threshold, 3 * float(values.max())), 1.0) * 1.18)
        token_axis(axes, _UNITS.get(view.track.unit, view.track.unit), ticks=4)
        figure.finding = f"{view.track.name}: {counted(len(view.fired), 'firing')}"
        return figure

    return both_themes(draw)


def _spread(after_calls: Sequence[int]) -> Floats:
    """Several checks after one call stand evenly behind it."""
    calls = np.asarray(after_calls, dtype=np.float64)
    _, first, together = np.unique(calls, return_index=True, return_counts=True)
    place = np.arange(len(calls)) - np.repeat(first, together)
    return np.asarray(calls + place / np.repeat(together, together), dtype=np.float64)


def _some(places: Sequence[int]) -> list[int]:
    """At most as many as can be told apart."""
    every = -(-len(places) // _MOST_MARKS) or 1
    return list(places[::every])


# --- how big the prompts are ------------------------------------------------------------------------------


def prompt_figure(now: Replayed | None, against: Replayed | None, call: int) -> Markup:
    """The parts of every prompt, and behind them, as a grey outline, the other configuration's."""

    def draw(theme: Theme) -> ReportFigure:
        figure, axes = _axes(PROMPT_PX)
        call_axis(axes)
        rows = _thinned(now.tables["calls"] if now is not None else [])
        others = _thinned(against.tables["calls"] if against is not None else [])
        highest = max([1.0, *(row["prompt_tokens"] for row in [*rows, *others])])
        if others:
            heights, edges = _column(others, ("prompt_tokens",)), _edges(others)
            steps(axes, heights, edges, baseline=np.zeros(len(heights)), facecolor=theme.grid, linewidth=0)
            steps(axes, heights, edges, edgecolor=theme.muted, linewidth=1.0)
        if rows:
            edges, bottom = _edges(rows), np.zeros(len(rows))
            for _, columns, colour, hatch in _PARTS:
                top = bottom + _column(rows, columns)
                if np.any(top > bottom):
                    steps(
                        axes, top, edges, baseline=bottom, facecolor=getattr(theme, colour), linewidth=0,
                        hatch=hatch or None, edgecolor=theme.page,
                    )  # fmt: skip
                bottom = top
            _mark_summaries(axes, now, theme)
        window = (rows or others or [{"window": None}])[0]["window"]
        if window is not None and window <= 2.2 * highest:
            axes.axhline(window, color=theme.ink, linewidth=1.1, dashes=(4, 2.5))
            highest = max(highest, window)
        axes.axvline(call, color=theme.ink, linewidth=0.8, dashes=(1, 2))
        last = max([row["call"] for row in [*rows, *others]], default=0)
        axes.set_xlim(*call_limits(last + 0.5))
        axes.set_ylim(0, highest * 1.12)
        token_axis(axes, "prompt tokens", ticks=5)
        figure.finding = "tokens of every prompt"
        return figure

    return both_themes(draw)


def _mark_summaries(axes: Axes, now: Replayed | None, theme: Theme) -> None:
    assert now is not None
    prompts = [row["prompt_tokens"] for row in now.tables["calls"]]
    written = [row["call"] - 1 for row in now.tables["summaries"] if row["status"] == "written"]
    at = _some([call for call in dict.fromkeys(written) if 0 <= call < len(prompts)])
    marks(axes, at, [prompts[call] for call in at], theme, lift_points=6)


def _thinned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of neighbouring calls only the largest, where there are more than columns."""
    every = -(-len(rows) // _MOST_COLUMNS) or 1
    if every == 1:
        return rows
    groups = (rows[i : i + every] for i in range(0, len(rows), every))
    return [max(group, key=lambda row: row["prompt_tokens"]) for group in groups]


def _column(rows: list[dict[str, Any]], columns: Iterable[str]) -> Floats:
    return np.asarray([sum(row[column] or 0 for column in columns) for row in rows], dtype=np.float64)


def _edges(rows: list[dict[str, Any]]) -> Floats:
    calls = np.asarray([row["call"] for row in rows], dtype=np.float64)
    middles = (calls[1:] + calls[:-1]) / 2
    return np.concatenate(([calls[0] - 0.5], middles, [calls[-1] + 0.5]))


def prompt_key(against: str) -> Markup:
    """Which colour is what."""
    parts = [_key(label, colour, hatch) for label, _, colour, hatch in _PARTS]
    ghost = joined([_swatch(LIGHT.grid, border=LIGHT.muted), text(quoted(against, 28))])
    return element("div", joined([*parts, ghost, text("   ▼ summary, ┄ window, ┊ call below")]), class_="muted")


def _key(label: str, colour: str, hatch: str) -> Markup:
    fill = getattr(LIGHT, colour)
    pattern = f"repeating-linear-gradient(135deg,{fill} 0 3px,#fff 3px 4px)" if hatch else fill
    return joined([_swatch(pattern), text(label)])


def _swatch(fill: str, *, border: str = "transparent") -> Markup:
    return element("span", class_="key", style=f"background:{fill};border:1px solid {border}")


# --- words and numbers ------------------------------------------------------------------------------------


def headline(
    now: Replayed | None,
    against: Replayed | None,
    calls: Sequence[int] | None,
    n_calls: int,
    *,
    is_coming: bool = True,
) -> str:
    """The finding: how often it fires, and what that does to prompts and money; `is_coming`: a replay will tell."""
    if now is None:
        if calls is None:
            return "Replaying …" if is_coming else "Not replayed, so nothing is known"
        what = "is being replayed" if is_coming else "isn't known: it wasn't replayed"
        return f"The trigger {rhythm(calls, n_calls)}; what that does to the prompts {what}"
    found = now.numbers
    if now.config.summarizer is None:
        words = ["No summary is made"]
    else:
        words = [f"The trigger {rhythm(found['fired_calls'], found['calls'])}"]
    if found["overflow_calls"]:
        words.append(f"{counted(found['overflow_calls'], 'prompt')} of {found['calls']} exceed the window")
    if against is not None and against.config.config_hash != now.config.config_hash:
        other = against.numbers
        apart = [
            f"{what} {difference(found[key], other[key])}"
            for what, key in (("prompts", "prompt_tokens"), ("cost", "cost"))
            if found[key] is not None and other[key]
        ]
        if apart:
            words.append(f"{', '.join(apart)} against {quoted(against.name, 30)}")
    return "; ".join(words)


def numbers_table(now: Replayed | None, against: Replayed | None) -> Markup:
    """Key numbers of both configurations, and how far they are apart."""
    head = element(
        "tr",
        element("th", ""),
        element("th", "now"),
        element("th", "—" if against is None else shorten(against.name, 22)),
        element("th", "difference"),
    )
    body = [_number_row(label, cell, now, against, compared=compared) for label, cell, compared in _NUMBERS]
    return element("table", element("thead", head), element("tbody", *body))


def _number_row(
    label: str,
    cell: Callable[[dict[str, Any]], str],
    now: Replayed | None,
    against: Replayed | None,
    *,
    compared: str,
) -> Markup:
    mine = None if now is None else now.numbers
    other = None if against is None else against.numbers
    apart = ""
    if mine and other and compared and mine[compared] is not None and other[compared]:
        apart = difference(mine[compared], other[compared])
    needs_action = compared == "overflow_calls" and mine is not None and bool(mine["overflow_calls"])
    return element(
        "tr",
        element("td", label),
        element("td", UNKNOWN if mine is None else cell(mine), class_="now action" if needs_action else "now"),
        element("td", UNKNOWN if other is None else cell(other)),
        element("td", apart, class_="muted"),
    )


def _known(value: float | None) -> str:
    return UNKNOWN if value is None else number(value)


def _window_cell(numbers: dict[str, Any]) -> str:
    peak, window = numbers["peak_prompt_tokens"], numbers["window"]
    if peak is None:
        return UNKNOWN
    return number(peak) if window is None else f"{number(peak)} of {number(window)}"


_NUMBERS: tuple[tuple[str, Callable[[dict[str, Any]], str], str], ...] = (
    ("firings", lambda n: number(n["firings"]), ""),
    ("tokens of all prompts", lambda n: _known(n["prompt_tokens"]), "prompt_tokens"),
    ("largest prompt", _window_cell, "peak_prompt_tokens"),
    ("prompts over the window", lambda n: _known(n["overflow_calls"]), "overflow_calls"),
    ("sent before (cacheable)", lambda n: UNKNOWN if n["prefix_share"] is None else percent(n["prefix_share"]), ""),
    ("summary model tokens", lambda n: _known(n["summary_tokens"]), "summary_tokens"),
    (
        "needed facts out of sight",
        lambda n: f"{n['lost_facts']} of {n['needed_facts']}" if n["needed_facts"] else UNKNOWN,
        "",
    ),
    ("cost of this conversation", lambda n: UNKNOWN if n["cost"] is None else money(n["cost"], n["currency"]), "cost"),
)


def source_words(now: Replayed | None, conversation: str, n_calls: int) -> str:
    """The line below the figures: recording, counters, profile."""
    parts = [shorten(conversation, 40), counted(n_calls, "call")]
    if now is not None:
        parts += [
            f"profile {now.config.profile}",
            f"prompts counted with {billing_counter(now)}",
            f"trigger counts {engine_counter(now)}",
        ]
    return " · ".join(parts)


def duration_words(seconds: float) -> str:
    """`5 min`, `30 s`, `2 h`."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"
