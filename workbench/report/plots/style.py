"""What all figures share: colours, faces, the title that wraps, the source line, the legend.

In: a theme name. Out: a `ReportFigure` with the places for title, legend and source line already taken from the
space of the axes. Nothing here changes matplotlib's settings outside the `with` block of `drawing` (WB-UI-02).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.patches import StepPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import offset_copy

from workbench.report import fonts
from workbench.report.labels import number, units_to_wrap
from workbench.report.palette import Theme

Floats = np.ndarray[Any, np.dtype[np.float64]]

DOTS_PER_INCH = 100
_TITLE_SIZE, _PANEL_SIZE, _TEXT_SIZE, _SMALL_SIZE = 11.5, 9.5, 9.0, 8.0
_MARGIN_INCHES = 0.12
_LINE_SPACING = 1.25
LEAST_CALLS = 8


class ReportFigure(Figure):
    """A figure that knows its finding, and that a notebook shows without pyplot."""

    finding: str = ""
    """The title on one line."""

    @property
    def has_pixels(self) -> bool:
        """Whether some axes hold an image, such as a map."""
        return any(axes.images for axes in self.axes)

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=DOTS_PER_INCH)
        return picture.getvalue()


@contextmanager
def drawing(theme: Theme) -> Iterator[None]:
    """The settings under which all artists of a figure are made; the caller's own come back afterwards."""
    with mpl.rc_context(
        {
            "font.family": list(fonts.families()),
            "font.size": _TEXT_SIZE,
            "text.color": theme.ink,
            "text.usetex": False,
            "text.parse_math": False,  # a name like `$x_$` is a name (M22)
            "axes.facecolor": theme.page,
            "axes.edgecolor": theme.muted,
            "axes.labelcolor": theme.ink,
            "axes.labelsize": _TEXT_SIZE,
            "axes.titlesize": _PANEL_SIZE,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": False,
            "axes.axisbelow": True,
            "axes.unicode_minus": True,
            "axes.formatter.use_mathtext": False,
            "figure.facecolor": theme.page,
            "figure.dpi": DOTS_PER_INCH,
            "grid.color": theme.grid,
            "grid.linewidth": 0.8,
            "hatch.linewidth": 0.9,
            "xtick.color": theme.muted,
            "ytick.color": theme.muted,
            "xtick.labelsize": _TEXT_SIZE,
            "ytick.labelsize": _TEXT_SIZE,
            "legend.frameon": False,
            "legend.fontsize": _TEXT_SIZE,
            "legend.labelcolor": theme.ink,
            "savefig.facecolor": "auto",
            "savefig.bbox": None,
        }
    ):
        yield


def new_figure(
    theme: Theme,
    *,
    title: str,
    source: str,
    width_inches: float,
    axes_height_inches: float,
    legend: Sequence[Artist] = (),
) -> ReportFigure:
    """An empty figure with its title above, its legend and its source line below the room for the axes."""
    figure = ReportFigure(figsize=(width_inches, axes_height_inches), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    figure.finding = title
    room = width_inches - 2 * _MARGIN_INCHES
    heading = figure.text(
        0, 0, "\n".join(wrapped(title, room, size=_TITLE_SIZE, weight="bold")),
        size=_TITLE_SIZE, weight="bold", va="top", linespacing=_LINE_SPACING,
    )  # fmt: skip
    footing = figure.text(
        0, 0, "\n".join(wrapped(source, room, size=_SMALL_SIZE)),
        size=_SMALL_SIZE, color=theme.muted, va="bottom", linespacing=_LINE_SPACING,
    )  # fmt: skip
    key = _legend_that_fits(figure, legend, room) if legend else None

    # The height of the figure follows from what its texts need; then everything gets its place in it.
    above = _MARGIN_INCHES + _height_inches(heading) + 0.05
    under_key = _MARGIN_INCHES + _height_inches(footing) + 0.05
    below = under_key + (_height_inches(key) + 0.08 if key else 0)
    height = axes_height_inches + above + below
    figure.set_size_inches(width_inches, height)
    left = _MARGIN_INCHES / width_inches
    heading.set_position((left, 1 - _MARGIN_INCHES / height))
    footing.set_position((left, _MARGIN_INCHES / height))
    if key:
        key.set_bbox_to_anchor((left, under_key / height))
    figure.set_layout_engine(
        "constrained",
        rect=(0, below / height, 1, axes_height_inches / height),
        w_pad=0.08,
        h_pad=0.04,
        wspace=0.02,
        hspace=0.04,
    )
    return figure


def _legend_that_fits(figure: Figure, items: Sequence[Artist], room_inches: float) -> Legend:
    """The legend with as many columns as there is room for."""
    for columns in range(len(items), 0, -1):
        legend = figure.legend(
            handles=list(items), loc="lower left", ncols=columns, borderaxespad=0, borderpad=0,
            handlelength=1.9, handleheight=0.9, columnspacing=1.6, labelspacing=0.45,
        )  # fmt: skip
        if columns == 1 or legend.get_window_extent(_renderer()).width / DOTS_PER_INCH <= room_inches:
            break
        legend.remove()
    return legend


def _height_inches(artist: Artist) -> float:
    return float(artist.get_window_extent(_renderer()).height) / DOTS_PER_INCH


def finished(figure: ReportFigure) -> ReportFigure:
    """The figure with every tick label made and every place fixed, while our settings still hold."""
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
    figure.set_layout_engine("none")
    return figure


def text_size_inches(text: str, *, size: float, weight: str = "normal") -> tuple[float, float]:
    """Width and height of one line, measured with the faces that will draw it."""
    face = FontProperties(family=list(fonts.families()), size=size, weight=weight)
    width, height, descent = _renderer().get_text_width_height_descent(text, face, False)
    return float(width) / DOTS_PER_INCH, float(height + descent) / DOTS_PER_INCH


@cache
def _renderer() -> Any:
    """A renderer that only measures; matplotlib gives its methods no types."""
    canvas: Any = FigureCanvasAgg(Figure(dpi=DOTS_PER_INCH))
    return canvas.get_renderer()


def wrapped(text: str, room_inches: float, *, size: float, weight: str = "normal") -> list[str]:
    """Lines of `text` that fit the room."""

    def width(piece: str) -> float:
        return _width_inches(piece, size, weight)

    lines, line, used = [], "", 0.0
    for piece in units_to_wrap(fonts.drawable(text)):
        taken = width(piece)
        if line and not piece.isspace() and used + taken > room_inches:
            lines.append(line.rstrip())
            line, used = "", 0.0
        if taken > room_inches:
            *full, line = _cut(piece, room_inches, width)
            lines += full
            used = width(line)
        elif line or not piece.isspace():
            line, used = line + piece, used + taken
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


@cache
def _width_inches(piece: str, size: float, weight: str) -> float:
    return text_size_inches(piece, size=size, weight=weight)[0]


def _cut(word: str, room_inches: float, width: Callable[[str], float]) -> list[str]:
    """A word wider than the room in pieces that fit."""
    pieces, start = [], 0
    for end in range(1, len(word) + 1):
        if end - start > 1 and width(word[start:end]) > room_inches:
            pieces.append(word[start : end - 1])
            start = end - 1
    return [*pieces, word[start:]]


def panel_title(axes: Axes, text: str, width_inches: float) -> None:
    """The title of one panel, on at most as many lines as it needs."""
    lines = wrapped(text, width_inches, size=_PANEL_SIZE, weight="bold")
    axes.set_title("\n".join(lines), pad=6)


def call_axis(axes: Axes, label: str = "model call") -> None:
    """An axis that counts calls: whole numbers only."""
    axes.set_xlabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7, min_n_ticks=1, steps=[1, 2, 5, 10]))


def token_axis(axes: Axes, label: str = "", *, ticks: int = 6) -> None:
    """An axis of amounts, with a quiet grid."""
    axes.set_ylabel(label)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=ticks, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axes.grid(visible=True, axis="y")


def marks(
    axes: Axes, x: Sequence[float], y: Sequence[float], theme: Theme, *, hollow: bool = False, lift_points: float = 0
) -> None:
    """▼ at the given places, in front of everything; nothing at all for no places."""
    if not len(x):
        # An empty unclipped line would claim room at the corner of the figure.
        return
    axes.plot(
        x, y, "v", markersize=7, clip_on=False, zorder=5, markeredgewidth=0.9,
        transform=offset_copy(axes.transData, axes.get_figure(root=True), y=lift_points, units="points"),
        color=theme.page if hollow else theme.firing,
        markeredgecolor=theme.firing if hollow else theme.page,
    )  # fmt: skip


def steps(axes: Axes, values: Floats, edges: Floats, *, baseline: Floats | None = None, **look: Any) -> StepPatch:
    """A step per value, filled down to the baseline if there is one; the limits of the axes are the caller's."""
    # matplotlib's types know only a number as the baseline.
    shape: dict[str, Any] = {"baseline": baseline, "fill": baseline is not None}
    drawn = StepPatch(values, edges, **shape, **look)
    return cast("StepPatch", axes.add_artist(drawn))


def bars(
    axes: Axes, x: Floats, heights: Floats, *, width: float, bottom: Floats | float = 0.0, **look: Any
) -> PolyCollection | None:
    """A bar per height above zero, all of one look: one artist, so that hundreds cost no more than a few."""
    bottoms = np.broadcast_to(bottom, heights.shape)
    shown = heights > 0
    if not shown.any():
        return None
    left, low, high = x[shown] - width / 2, bottoms[shown], (bottoms + heights)[shown]
    corners = [(left, low), (left, high), (left + width, high), (left + width, low)]
    drawn = PolyCollection(list(np.stack([np.stack(c, axis=-1) for c in corners], axis=1)), linewidth=0, **look)
    axes.add_collection(drawn)
    return drawn


def call_limits(last_edge: float) -> tuple[float, float]:
    """Ends of a call axis: a conversation of one or two calls doesn't fill the figure with one bar."""
    return -0.5, max(last_edge, LEAST_CALLS - 0.5)


def tick(value: float) -> str:
    """`2.5k`, `10k`: short, and exact for the round numbers of an axis."""
    size = abs(value)
    if size < 1_000:
        return f"{value:g}".replace("-", "\N{MINUS SIGN}")
    if size < 1_000_000:
        return f"{value / 1_000:g}k".replace("-", "\N{MINUS SIGN}")
    return number(value)
