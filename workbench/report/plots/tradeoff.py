"""Cost against recall: what each configuration costs, and what it keeps of the needed facts (WB-UI-02, WB-TUNE-03).

In: a run set, and the decision about it. Out: a point per configuration, those that none beats joined by a line, the
recommended one marked, names beside the points. Where recall isn't weighed, the largest prompt takes its place, and
the source line says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workbench.evaluate.choice import Decision, Standing, decide, limit_words
from workbench.report.frames import RunLike, Runs, each_run
from workbench.report.labels import counted, money, number, percent, quoted, share, shorten
from workbench.report.overview import billing_counter, is_unsure, part_of, summary_source
from workbench.report.palette import Theme, theme_named
from workbench.report.plots.style import (
    DOTS_PER_INCH,
    ReportFigure,
    drawing,
    finished,
    new_figure,
    text_size_inches,
    tick,
)

MAX_NAMES = 14
"""More names beside points can't be told apart; the others stand in the table."""
_MAX_SURELY_NAMED = 6
_WIDTH, _HEIGHT = 8.6, 3.9
_LABEL_SIZE = 8.5
_NAME_WIDTH = 34
_GAP_INCHES = 0.1
_POINT_INCHES, _RING_INCHES = 0.08, 0.13


@dataclass(frozen=True, slots=True)
class _Box:
    """A place on the axes, in inches from their lower left corner."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: _Box) -> bool:
        return self.left < other.right and other.left < self.right and self.low < other.high and other.low < self.high

    def is_inside(self, other: _Box) -> bool:
        return (
            self.left >= other.left and self.right <= other.right and self.low >= other.low and self.high <= other.high
        )


def cost_recall(runs: Runs | RunLike, *, decision: Decision | None = None, theme: str = "light") -> ReportFigure:
    """Cost of every configuration against its needed-fact recall, with the Pareto front.

    Args:
        decision: What was chosen among these runs, perhaps on a part of the conversations; without it by all of them.
    Raises:
        ConfigError: unknown theme.
    """
    palette = theme_named(theme)
    named = {run.name: run for run in each_run(runs)}
    decision = decision or decide(named)
    weighed = not decision.unweighed
    shown = [one for one in decision.standings if one.cost is not None and _height(one, weighed) is not None]
    with drawing(palette):
        figure = new_figure(
            palette,
            title=tradeoff_finding(decision, named),
            source=_source(named, decision, len(shown)),
            width_inches=_WIDTH,
            axes_height_inches=_HEIGHT,
            legend=_legend(shown, decision, palette),
        )
        axes = figure.subplots()
        _scales(axes, shown, decision)
        if shown:
            _draw(axes, shown, decision, palette)
        else:
            axes.text(0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center", color=palette.muted)
        finished(figure)
        _name_points(axes, figure, shown, decision, palette)
        return figure


def _height(one: Standing, weighed: bool) -> float | None:
    return one.recall if weighed else one.peak_prompt_tokens


def _scales(axes: Axes, shown: Sequence[Standing], decision: Decision) -> None:
    weighed = not decision.unweighed
    costs = [one.cost or 0.0 for one in shown]
    heights = [_height(one, weighed) or 0.0 for one in shown]
    top = max(costs, default=1.0) or 1.0
    axes.set_xlim(0, 1.12 * top)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    currency = decision.currency
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda v, _: tick(v) if currency is None else money(v, currency).removesuffix(".00"))
    )
    axes.set_xlabel("net tokens" if currency is None else "cost per 1,000 conversations")
    if weighed:
        low = min([*heights, _limit(decision)], default=0.0)
        room = max(1.0 - low, 0.05)
        axes.set_ylim(max(low - 0.2 * room, -0.04), 1.0 + 0.12 * room)
        axes.set_ylabel("needed-fact recall")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if 0 <= value <= 1 else ""))
    else:
        axes.set_ylim(0, 1.15 * (max(heights, default=1.0) or 1.0))
        axes.set_ylabel("largest prompt, tokens")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(visible=True, axis="y")


def _limit(decision: Decision) -> float:
    """The recall that a recommendation must have."""
    kept = next((one.recall for one in decision.standings if one.is_baseline and one.recall is not None), 1.0)
    return decision.min_recall * kept


def _draw(axes: Axes, shown: Sequence[Standing], decision: Decision, palette: Theme) -> None:
    weighed = not decision.unweighed
    edge = [(one.cost or 0.0, _height(one, weighed) or 0.0) for one in _outline(shown, weighed=weighed)]
    if len(edge) > 1:
        axes.plot(*zip(*edge, strict=True), color=palette.history, linewidth=1.3, drawstyle="steps-post", zorder=1)
    if weighed:
        axes.axhline(_limit(decision), color=palette.muted, linewidth=0.9, linestyle=(0, (4, 2.5)), zorder=0.5)
    for one in shown:
        x, y = one.cost or 0.0, _height(one, weighed) or 0.0
        if one.name == decision.recommended:
            axes.plot([x], [y], "o", markersize=15, markerfacecolor="none", markeredgecolor=palette.tailoring,
                      markeredgewidth=1.8, zorder=3, clip_on=False)  # fmt: skip
        axes.plot([x], [y], zorder=4, clip_on=False, **_marker(one, palette))


def _outline(shown: Sequence[Standing], *, weighed: bool) -> list[Standing]:
    """The best height that each cost buys; what is on the front for its third figure alone adds nothing."""
    front = sorted((one for one in shown if one.is_pareto), key=lambda one: (one.cost or 0.0, -(one.recall or 0.0)))
    edge: list[Standing] = []
    for one in front:
        height, best = _height(one, weighed) or 0.0, (_height(edge[-1], weighed) or 0.0) if edge else None
        if best is None or (height > best if weighed else height < best):
            edge.append(one)
    return edge


def _marker(one: Standing, palette: Theme) -> dict[str, Any]:
    """Filled on the front, hollow behind it, a cross for what exceeds the window; the baseline is a square."""
    if not one.fits:
        return {"marker": "X", "color": palette.firing, "markersize": 8, "markeredgecolor": palette.page}
    marker, size = ("s", 6.5) if one.is_baseline else ("o", 7)
    colour = palette.history
    fill = colour if one.is_pareto else palette.page
    return {"marker": marker, "markersize": size, "markerfacecolor": fill, "markeredgecolor": colour, "color": colour}


def _legend(shown: Sequence[Standing], decision: Decision, palette: Theme) -> list[Artist]:
    """What the marks mean, as far as they occur."""

    def key(label: str, **look: Any) -> Line2D:
        return Line2D([], [], linestyle="none", label=label, **look)

    weighed = not decision.unweighed
    examples: list[tuple[str, Callable[[Standing], bool]]] = [
        (
            f"none is better in cost{', recall' if weighed else ''} and peak at once",
            lambda one: one.fits and one.is_pareto and not one.is_baseline,
        ),
        ("another is better", lambda one: one.fits and not one.is_pareto and not one.is_baseline),
        ("baseline", lambda one: one.fits and one.is_baseline),
        ("exceeds the window", lambda one: not one.fits),
    ]
    keys: list[Artist] = []
    if any(one.name == decision.recommended for one in shown):
        keys.append(
            key(
                "recommended",
                marker="o",
                markersize=11,
                markerfacecolor="none",
                markeredgecolor=palette.tailoring,
                markeredgewidth=1.8,
            )
        )
    for label, fits in examples:
        if (one := next(filter(fits, shown), None)) is not None:
            keys.append(key(label, **_marker(one, palette)))
    if weighed and shown:
        keys.append(
            Line2D([], [], color=palette.muted, linestyle=(0, (4, 2.5)), linewidth=0.9, label=limit_words(decision))
        )
    return keys


# --- names beside the points ----------------------------------------------------------------------------


def _name_points(
    axes: Axes, figure: ReportFigure, shown: Sequence[Standing], decision: Decision, palette: Theme
) -> None:
    """A name beside each point where there is room; the recommended one and the baseline first."""
    if not shown:
        return
    weighed = not decision.unweighed
    frame = axes.get_window_extent()
    room = _Box(0, 0, frame.width / DOTS_PER_INCH, frame.height / DOTS_PER_INCH)
    places = {}
    for one in shown:
        x, y = axes.transData.transform((one.cost or 0.0, _height(one, weighed) or 0.0))
        places[one.name] = ((x - frame.x0) / DOTS_PER_INCH, (y - frame.y0) / DOTS_PER_INCH)
    taken = [_around(place, _POINT_INCHES, _POINT_INCHES) for place in places.values()]
    if decision.recommended in places:
        taken.append(_around(places[decision.recommended], _RING_INCHES, _RING_INCHES))
    taken += _along([places[one.name] for one in _outline(shown, weighed=weighed)])
    order = sorted(shown, key=lambda one: (one.name != decision.recommended, not one.is_baseline, not one.is_pareto))
    for one in order[:MAX_NAMES]:
        words = shorten(one.name, _NAME_WIDTH)
        size = text_size_inches(words, size=_LABEL_SIZE)
        is_best = one.name == decision.recommended
        for centre in _candidates(places[one.name], size, gap=_RING_INCHES + 0.04 if is_best else _GAP_INCHES):
            box = _around(centre, size[0] / 2 + 0.02, size[1] / 2 + 0.01)
            if box.is_inside(room) and not any(box.meets(other) for other in taken):
                taken.append(box)
                text = axes.text(
                    centre[0] / room.right, centre[1] / room.high, words, transform=axes.transAxes, ha="center",
                    va="center", size=_LABEL_SIZE, color=palette.ink, weight="bold" if is_best else "normal",
                )  # fmt: skip
                text.set_in_layout(False)
                break


def _along(points: Sequence[tuple[float, float]]) -> list[_Box]:
    """The steps of the front: level to the next point, then up or down to it."""
    boxes = []
    for (x, y), (next_x, next_y) in pairwise(points):
        low, high = sorted((y, next_y))
        boxes += [_Box(x, y - 0.01, next_x, y + 0.01), _Box(next_x - 0.01, low, next_x + 0.01, high)]
    return boxes


def _around(place: tuple[float, float], half_width: float, half_height: float) -> _Box:
    x, y = place
    return _Box(x - half_width, y - half_height, x + half_width, y + half_height)


def _candidates(place: tuple[float, float], size: tuple[float, float], *, gap: float) -> Iterator[tuple[float, float]]:
    """Centres of a label beside its point: right, left, above, below, and the corners; then the same farther off."""
    x, y = place
    for away in (gap, gap + 0.12):
        across, along = size[0] / 2 + away, size[1] / 2 + away
        yield from ((x + across, y), (x - across, y), (x, y + along), (x, y - along))
        yield from ((x + across, y + along), (x + across, y - along), (x - across, y + along), (x - across, y - along))


# --- words ----------------------------------------------------------------------------------------------


def _source(runs: Runs, decision: Decision, n_shown: int) -> str:
    first = next(iter(runs.values()), None)
    parts = []
    if part := part_of(decision, runs):
        parts.append(f"{part}: those that the choice was made on")
    elif first is not None:
        facts = first.facts
        parts += [counted(facts.get("conversations") or 0, "conversation"), counted(facts.get("calls") or 0, "call")]
    if decision.unweighed:
        parts.append(f"recall isn't weighed: {decision.unweighed}")
    elif any(summary_source(run) == "extractive" for run in runs.values()):
        parts.append("recall of the extractive source, a ceiling")
    if any(one.overflow_calls is None for one in decision.standings):
        parts.append("the context window is unknown")
    if n_shown > _MAX_SURELY_NAMED:
        parts.append("names without room beside their point stand in the table")
    if counters := dict.fromkeys(filter(None, map(billing_counter, runs.values()))):
        parts.append(f"tokens counted with {', '.join(counters)}")
    return " · ".join(parts)


def tradeoff_finding(decision: Decision, runs: Runs) -> str:
    """The title: what the recommendation costs and keeps, and on which conversations; or why there is none."""
    part = part_of(decision, runs)
    return _finding(decision, runs) + (f", on {part}" if part and decision.recommended else "")


def _finding(decision: Decision, runs: Runs) -> str:
    if decision.recommended is None:
        return f"No recommendation: {decision.reason}"
    best = decision.standing(decision.recommended)
    keeps = "" if decision.unweighed else f" and keeps {share(best.recall or 0.0)} of the needed facts"
    if decision.unweighed:
        keeps = f", with a largest prompt of {number(best.peak_prompt_tokens or 0)} tokens"
    baseline = next((one for one in decision.standings if one.is_baseline), None)
    if baseline is best:
        kept = "" if decision.unweighed else f" with {limit_words(decision)}"
        return f"Nothing{kept} costs less than {quoted(best.name)}: {_cost_words(decision, best)}"
    if baseline is None or not baseline.cost or best.cost is None:
        return f"{quoted(best.name)} costs {_cost_words(decision, best)}{keeps}"
    change = best.cost / baseline.cost - 1
    less = "as much as" if round(change, 3) == 0 else f"{percent(change)} {'less' if change < 0 else 'more'} than"
    own, other = runs.get(best.name), runs.get(baseline.name)
    # The interval is one of all conversations: of a part it says nothing.
    unsure = own is not None and other is not None and not part_of(decision, runs) and is_unsure(own, other)
    return f"{quoted(best.name)} costs {less} {quoted(baseline.name)}{' (not sure)' if unsure else ''}{keeps}"


def _cost_words(decision: Decision, one: Standing) -> str:
    if decision.currency is None:
        return f"{number(one.cost or 0.0)} net tokens"
    return f"{money(one.cost or 0.0, decision.currency)} per 1,000 conversations"
