"""What the figures read: the conversation they show, one panel per configuration, the source line.

In: a run set. Out: data frames per configuration and the words that stand under every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import numpy as np
import pandas as pd

from workbench.errors import ConfigError, nearest_name
from workbench.evaluate.net import settings_of
from workbench.report.frames import RunLike, Runs, each_run, frame
from workbench.report.labels import counted, listed, quoted, shorten
from workbench.report.overview import SCRIPT_RATIOS, billing_counter
from workbench.report.plots.style import Floats

_SOURCE_NAME_WIDTH = 48


class Panel:
    """One configuration in one conversation; each table is read when a figure asks for it."""

    def __init__(self, run: RunLike, conversation: str) -> None:
        self.run = run
        self.conversation = conversation

    @property
    def name(self) -> str:
        return self.run.name

    @cached_property
    def calls(self) -> pd.DataFrame:
        return self._rows("calls", "call")

    @cached_property
    def checks(self) -> pd.DataFrame:
        return self._rows("checks", "check")

    @cached_property
    def summaries(self) -> pd.DataFrame:
        return self._rows("summaries", "summary")

    def _rows(self, table: str, index: str) -> pd.DataFrame:
        rows = frame(self.run, table, self.conversation)
        rows.attrs = {}  # pandas copies them, all column docs, with every selection
        return rows.sort_values(index, kind="stable", ignore_index=True)


def panels_of(runs: Runs | RunLike, conversation: str | None) -> tuple[str, list[Panel]]:
    """The conversation shown and a panel per run; without a name the conversation with the most calls.

    Raises:
        ConfigError: no run holds that conversation.
    """
    shown = chosen_conversation(runs, conversation)
    return shown, [Panel(run, shown) for run in each_run(runs)]


def chosen_conversation(runs: Runs | RunLike, conversation: str | None) -> str:
    """The named conversation, or the one with the most calls; empty when the runs hold none."""
    calls: dict[str, int] = {}
    for run in each_run(runs):
        for row in run.rows("conversations"):
            calls[row["conversation"]] = max(calls.get(row["conversation"], 0), row.get("calls") or 0)
    if conversation is None:
        return max(calls, key=lambda name: calls[name], default="")
    if conversation not in calls:
        known = listed([quoted(name) for name in list(calls)[:5]]) or "none: the runs hold no conversation"
        raise ConfigError.for_field("conversation", conversation, known, hint=nearest_name(conversation, calls))
    return conversation


def floats(table: pd.DataFrame, *columns: str) -> Floats:
    """The sum of columns as floats; unknown is not-a-number."""
    parts = [table[column].to_numpy(dtype="float64", na_value=np.nan) for column in columns]
    total = np.sum(parts, axis=0)
    return np.asarray(total, dtype=np.float64)


def trigger_counter(run: RunLike) -> str | None:
    """The counter that the engine's triggers measure with, in words."""
    counter = settings_of(run).get("counter")
    if not isinstance(counter, Mapping):
        return None
    if counter.get("kind") == "tiktoken":
        return str(counter.get("encoding"))
    if counter.get("kind") == "scripts":
        return SCRIPT_RATIOS
    return f"{counter.get('runes_per_token', 0):g} characters per token"


def source_line(
    conversation: str,
    panels: Iterable[Panel],
    *remarks: str,
    counter: Callable[[RunLike], str | None] = billing_counter,
) -> str:
    """Recording, calls, remarks, profile and counter: the line below a figure."""
    panels = list(panels)
    counters = dict.fromkeys(filter(None, (counter(panel.run) for panel in panels)))
    profiles = dict.fromkeys(str(p) for panel in panels if (p := panel.run.facts.get("profile")))
    calls = max((len(panel.calls) for panel in panels), default=0)
    parts = [shorten(conversation, _SOURCE_NAME_WIDTH) or "no conversation", counted(calls, "call"), *remarks]
    if profiles:
        parts.append(f"profile {listed(profiles)}")
    if counters:
        parts.append(f"tokens counted with {listed(counters)}")
    return " · ".join(parts)
