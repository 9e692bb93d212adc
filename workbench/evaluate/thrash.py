"""Firings that don't pay: they save little, come request after request, or the summary grows (WB-RPL-14).

In: rows of the `calls` and `summaries` tables. Out: one `Firing` per written summary with what is wrong with it, and
the conversations that are stuck: three such firings in a row, with the place of the third. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MIN_SAVED_SHARE = 0.10
"""A firing saves little when the prompt that first sees its summary is less than this part smaller by it."""
STUCK_AFTER = 3
"""So many bad firings in a row."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One written summary: what it saved, and what speaks against it."""

    conversation: str
    filter_key: str
    summary: int
    """Its row in the `summaries` table."""
    call: int
    """The first call that can see it."""
    request: int | None
    """The top-level request of that call; None behind the last call."""
    saved_tokens: int | None
    """Covered events and the summary before it, minus the new summary; None behind the last call."""
    saved_share: float | None
    """Of the prompt as it would have been without this summary."""
    saves_little: bool
    is_consecutive: bool
    """The request before had a firing of the same key too."""
    has_grown: bool
    """Longer than every summary before it; around a word limit lengths go up and down, and that is no growth."""

    @property
    def is_thrash(self) -> bool:
        """At least one of the three holds."""
        return self.saves_little or self.is_consecutive or self.has_grown


@dataclass(frozen=True, slots=True)
class Stuck:
    """A conversation that is stuck, and where: the third bad firing in a row."""

    conversation: str
    filter_key: str
    call: int
    first_call: int
    """Where the row of bad firings begins."""
    firings: int
    """How many there are in that row, to its end."""


@dataclass(frozen=True, slots=True)
class Thrash:
    """How a run's firings behave."""

    firings: tuple[Firing, ...]
    stuck: tuple[Stuck, ...]
    """At most one per conversation: the first."""

    def as_dict(self) -> dict[str, Any]:
        """The counts and the places as plain values."""
        return {
            "firings": len(self.firings),
            "saving_little": sum(firing.saves_little for firing in self.firings),
            "consecutive": sum(firing.is_consecutive for firing in self.firings),
            "growing": sum(firing.has_grown for firing in self.firings),
            "stuck": [{name: getattr(one, name) for name in Stuck.__slots__} for one in self.stuck],
        }


def thrash(calls: Iterable[Mapping[str, Any]], summaries: Iterable[Mapping[str, Any]]) -> Thrash:
    """What the firings of a run were good for.

    Args:
        calls: Rows of the `calls` table, in order.
        summaries: Rows of the `summaries` table, in order; failed attempts and copies are no firings.
    """
    calls_of: dict[str, list[Mapping[str, Any]]] = {}
    for row in calls:
        calls_of.setdefault(row["conversation"], []).append(row)
    by_key: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in summaries:
        if row["status"] == "written":
            by_key.setdefault((row["conversation"], row["filter_key"]), []).append(row)
    firings: list[Firing] = []
    stuck: dict[str, Stuck] = {}
    for (conversation, _), rows in by_key.items():
        found = _firings(calls_of.get(conversation, []), rows)
        firings += found
        place = _stuck(found)
        if place is not None and (conversation not in stuck or place.call < stuck[conversation].call):
            stuck[conversation] = place
    return Thrash(tuple(firings), tuple(stuck.values()))


def _firings(calls: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[Firing]:
    """The firings of one key of one conversation."""
    found: list[Firing] = []
    previous_tokens = longest = 0
    for row in rows:
        seen_by = calls[row["call"]] if row["call"] < len(calls) else None
        request = None if seen_by is None else seen_by["request"]
        saved, share = _saved(row, previous_tokens, seen_by)
        before = found[-1] if found else None
        found.append(
            Firing(
                conversation=row["conversation"],
                filter_key=row["filter_key"],
                summary=row["summary"],
                call=row["call"],
                request=request,
                saved_tokens=saved,
                saved_share=share,
                saves_little=share is not None and share < MIN_SAVED_SHARE,
                is_consecutive=before is not None and _follows(before.request, request),
                has_grown=before is not None and row["completion_tokens"] > longest,
            )
        )
        previous_tokens = row["completion_tokens"]
        longest = max(longest, previous_tokens)
    return found


def _saved(
    row: Mapping[str, Any], previous_tokens: int, seen_by: Mapping[str, Any] | None
) -> tuple[int | None, float | None]:
    """What the first prompt with this summary is shorter by; a summary that isn't sent saves nothing."""
    if seen_by is None:
        return None, None
    if seen_by["summary_key"] is None:
        return 0, 0.0
    saved = row["covered_tokens"] + previous_tokens - row["completion_tokens"]
    whole = seen_by["prompt_tokens"] + saved
    return saved, saved / whole if whole > 0 else 0.0


def _follows(before: int | None, request: int | None) -> bool:
    return before is not None and request is not None and request - before <= 1


def _stuck(firings: Sequence[Firing]) -> Stuck | None:
    """The first row of bad firings that is long enough."""
    row: list[Firing] = []
    for firing in (*firings, None):
        if firing is not None and firing.is_thrash:
            row.append(firing)
            continue
        if len(row) >= STUCK_AFTER:
            first = row[0]
            third = row[STUCK_AFTER - 1]
            return Stuck(first.conversation, first.filter_key, third.call, first.call, len(row))
        row = []
    return None
