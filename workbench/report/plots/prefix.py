"""Cache-prefix reuse per call, and what broke it (WB-UI-02, WB-CACHE-03).

In: one run. Out: each prompt as a bar: the prefix it shares with an earlier request, what the request before had
too but must be read again, coloured by the cause of the break, and new text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.patches import Patch

from workbench.replay.trace import BREAK_CAUSES
from workbench.report.frames import RunLike
from workbench.report.labels import counted, number, percent, quoted, share
from workbench.report.palette import Theme, theme_named
from workbench.report.plots.panels import Panel, floats, panels_of, source_line
from workbench.report.plots.style import (
    Floats,
    ReportFigure,
    bars,
    call_axis,
    call_limits,
    drawing,
    finished,
    new_figure,
    token_axis,
)

_WIDTH, _HEIGHT = 10.0, 2.9
NO_BREAK = frozenset({"", "first_call"})

# Colour by what did it, hatch by cause: the causes stay apart without colour.
_LOOK = {
    "summary_appeared": ("summary", ".."),
    "summary_updated_system": ("summary", "////"),
    "summary_updated_user": ("summary", "\\\\\\\\"),
    "summary_moved": ("summary", "xx"),
    "covered_turn_ended": ("summary", "++"),
    "compaction_placeholder": ("compaction", "xxx"),
    "compaction_truncation": ("compaction", "++"),
    "tailoring": ("tailoring", "---"),
    "history_limit": ("tailoring", "|||"),
    "resume_tail": ("tailoring", "oo"),
    "expired": ("other", "..."),
    "instruction_changed": ("other", "////"),
    "tools_changed": ("other", "\\\\\\\\"),
    "preload_changed": ("other", "xx"),
    "model_changed": ("other", "++"),
}
_OTHER_LOOK = ("other", "OO")


@dataclass(frozen=True, slots=True)
class Loss:
    """What one cause cost in one conversation; `lost` holds the tokens per call of the figure."""

    cause: str
    calls: int
    lost: Floats

    @property
    def words(self) -> str:
        return BREAK_CAUSES.get(self.cause, self.cause)

    @property
    def tokens(self) -> int:
        return int(self.lost.sum())


def prefix_reuse(run: RunLike, conversation: str | None = None, *, theme: str = "light") -> ReportFigure:
    """Each prompt split into reused prefix, what was lost, by cause, and new text.

    Raises:
        ConfigError: unknown theme, or the run doesn't hold the conversation.
    """
    palette = theme_named(theme)
    with drawing(palette):
        shown, (panel,) = panels_of(run, conversation)
        calls = floats(panel.calls, "call")
        reused = np.nan_to_num(floats(panel.calls, "prefix_tokens"))
        losses = losses_of(panel.calls)
        lost = np.sum([loss.lost for loss in losses], axis=0) if losses else np.zeros(len(calls))
        fresh = np.maximum(floats(panel.calls, "prompt_tokens") - reused - lost, 0)
        figure = new_figure(
            palette,
            title=prefix_finding(panel, losses),
            source=source_line(shown, [panel], *_reuse_words(panel)),
            width_inches=_WIDTH,
            axes_height_inches=_HEIGHT,
            legend=_legend(losses, palette, any_reused=bool(reused.any()), any_call=len(calls) > 0),
        )
        axes = figure.subplots()
        # Gaps between few bars, none between many: they would only flicker.
        width = 0.86 if len(calls) <= 150 else 1.0
        bars(axes, calls, reused, width=width, facecolor=palette.history)
        for loss in losses:
            colour, hatch = look_of_cause(loss.cause, palette)
            bars(
                axes, calls, loss.lost, width=width, bottom=reused, facecolor=colour, hatch=hatch,
                edgecolor=palette.page,
            )  # fmt: skip
        bars(axes, calls, fresh, width=width, bottom=reused + lost, facecolor=palette.new_text)
        axes.set_ylim(0, max(1.0, float((reused + lost + fresh).max(initial=0))) * 1.06)
        call_axis(axes)
        token_axis(axes, "prompt tokens")
        axes.set_xlim(*call_limits(len(calls) - 0.5))
        return finished(figure)


def losses_of(calls: pd.DataFrame) -> list[Loss]:
    """Lost tokens by cause, the costliest first; a first call has lost nothing."""
    causes = calls["break_cause"].fillna("")
    lost = np.nan_to_num(floats(calls, "lost_tokens"))
    losses = [
        Loss(str(cause), int((causes == cause).sum()), np.where(causes == cause, lost, 0.0))
        for cause in causes.unique()
        if cause not in NO_BREAK
    ]
    return sorted(losses, key=lambda loss: -loss.tokens)


def prefix_finding(panel: Panel, losses: Sequence[Loss]) -> str:
    """The title: how much was lost, and through what."""
    name = quoted(panel.name)
    later = int(panel.calls["prefix_tokens"].notna().sum())
    if not len(panel.calls):
        return "No model call: there is no prefix to reuse"
    if not later:
        return "No call has an earlier request: there is no prefix to reuse"
    if not losses:
        return f"The prefix never breaks: {name} reuses all that was cached in {counted(later, 'call')}"
    total, worst = sum(loss.tokens for loss in losses), losses[0]
    if len(losses) == 1:
        return f"{name} loses {number(total)} cached tokens: {_times(worst.calls)} {worst.words}"
    return (
        f"{name} loses {number(total)} cached tokens, {percent(worst.tokens / total if total else 0)} of them where "
        f"{worst.words} ({_times(worst.calls)})"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def _reuse_words(panel: Panel) -> list[str]:
    prefix, reusable = panel.calls["prefix_tokens"].sum(), panel.calls["reusable_tokens"].sum()
    if not reusable:
        return []
    return [f"prefix reuse {share(float(prefix / reusable))} (reused / reusable tokens)"]


def look_of_cause(cause: str, palette: Theme) -> tuple[str, str]:
    """Colour and hatch of a cause, the same in every figure."""
    colour, hatch = _LOOK.get(cause, _OTHER_LOOK)
    return str(getattr(palette, colour)), hatch


def _legend(losses: Sequence[Loss], palette: Theme, *, any_reused: bool, any_call: bool) -> list[Artist]:
    items = [Patch(facecolor=palette.history, label="reused prefix")] if any_reused else []
    for loss in losses:
        colour, hatch = look_of_cause(loss.cause, palette)
        label = f"lost: {loss.words} ({counted(loss.calls, 'call')}, {counted(loss.tokens, 'token')})"
        items.append(Patch(facecolor=colour, hatch=hatch, edgecolor=palette.page, linewidth=0, label=label))
    items += [Patch(facecolor=palette.new_text, label="new text")] if any_call else []
    return list(items)
