"""What a page shows in detail: some configurations, some conversations, the calls of one configuration.

In: a run set and its overview. Out: `Selection`. A page stays readable and small with hundreds of conversations;
where something is left out, the page says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.report.overview import Overview

if TYPE_CHECKING:
    from workbench.report.frames import RunLike, Runs

MAX_PANELS = 6
MAX_CONVERSATION_ROWS = 500
MAX_CALL_ROWS = 1_500


class ReadOnce:
    """A run whose tables are read once for the whole page: a stored run opens its file for every reading."""

    def __init__(self, run: RunLike) -> None:
        self.name, self.facts, self.config = run.name, run.facts, run.config
        self.cost = getattr(run, "cost", None)
        self._run = run
        self._tables: dict[str, list[dict[str, Any]]] = {}

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        if table not in self._tables:
            self._tables[table] = self._run.rows(table)
        rows = self._tables[table]
        return rows if conversation is None else [row for row in rows if row["conversation"] == conversation]


@dataclass(frozen=True, slots=True)
class Selection:
    """What the page shows in detail: a few configurations, and the calls of the main one."""

    runs: Runs
    view: Overview
    names: tuple[str, ...]
    """Configurations of the figures and of the conversation table, in the order of the table."""
    main: str
    """The configuration whose calls are listed: the recommended one, else the first."""
    conversations: tuple[dict[str, Any], ...]
    """Rows of the conversations, most calls first."""
    with_calls: tuple[str, ...]
    """Conversations whose calls are listed."""

    @classmethod
    def of(cls, runs: Runs, view: Overview) -> Selection:
        wanted = list(dict.fromkeys(name for name in (view.recommended, view.baseline, view.today) if name))
        wanted += [row.name for row in view.rows if row.name not in wanted]
        names = tuple(row.name for row in view.rows if row.name in wanted[:MAX_PANELS])
        main = view.recommended or view.rows[0].name
        rows = sorted(runs[main].rows("conversations"), key=lambda row: -(row.get("calls") or 0))
        listed_calls, room = [], MAX_CALL_ROWS
        for row in rows[:MAX_CONVERSATION_ROWS]:
            room -= row.get("calls") or 0
            if room < 0:
                break
            listed_calls.append(row["conversation"])
        return cls(runs, view, names, main, tuple(rows), tuple(listed_calls))

    def anchor(self, conversation: str) -> str:
        """Anchors are numbers: names from outside are no ids."""
        return f"calls-{self.with_calls.index(conversation) + 1}"
