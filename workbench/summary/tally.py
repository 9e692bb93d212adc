"""Running sums over a live session: what a threshold measures, at the same cost for any history.

In: a live session, which only grows at its end and shrinks at its start. Out: for any range of absolute
positions the number of events of a scope, their characters, line blocks and reasoning, and their tokens.
Implements SUM-TOK-09 and performance.md, decisions 1 and 11. The slow way, which counts the whole text and
says what is right, is `ListDelta` in `workbench.summary.delta`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from workbench.session.scope import counts_for_full_session, event_matches, in_scope
from workbench.session.types import Event, Session
from workbench.summary.text import event_blocks, reasoning_texts

_DERIVED = "workbench.summary.tally"
_FORGET_EVERY = 1024
"""Trimmed events after which their sums are dropped too."""

CountText = Callable[[str], int]


class CountsText(Protocol):
    """The part of a line-additive counter that sums need."""

    counter_id: str

    def count_text(self, text: str) -> int:
        """Tokens of one text."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """Which events count: those that match `filter_key` both ways (SUM-KEY-03) and pass the scope."""

    filter_key: str = ""
    scope: str = ""
    """Narrow to this branch (SUM-KEY-04); empty = no narrowing."""
    primary_of: str = ""
    """Narrow to keyless events and this application's own (SUM-CHK-07, full session); empty = no narrowing."""

    def admits(self, event: Event) -> bool:
        if not event_matches(event, self.filter_key) or not in_scope(event, self.scope):
            return False
        return not self.primary_of or counts_for_full_session(event, self.primary_of)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a range of positions holds."""

    n_events: int = 0
    n_blocks: int = 0
    block_chars: int = 0
    n_reasoning: int = 0
    reasoning_chars: int = 0

    def runes(self) -> int:
        """Code points of the joined conversation text plus the joined reasoning text."""
        return self.block_chars + max(self.n_blocks - 1, 0) + self.reasoning_chars + max(self.n_reasoning - 1, 0)


class Tally:
    """Sums for one rule; grows when asked, never recounts."""

    def __init__(self, rule: Rule, first_position: int) -> None:
        self.rule = rule
        self.next_position = first_position
        self._positions = array("q")
        self._sums = tuple(array("q", [0]) for _ in range(4))
        self._lines: dict[str, tuple[LineSums, LineSums]] = {}

    def extend(self, session: Session, end: int) -> None:
        """Take in the events up to `end`."""
        for position in range(max(self.next_position, session.first_position), end):
            event = session.events[position - session.first_position]
            if self.rule.admits(event):
                self._positions.append(position)
                blocks, reasoning = event_blocks(event), reasoning_texts(event)
                facts = (len(blocks), sum(map(len, blocks)), len(reasoning), sum(map(len, reasoning)))
                for sums, fact in zip(self._sums, facts, strict=True):
                    sums.append(sums[-1] + fact)
        self.next_position = max(self.next_position, end)

    def forget(self, first_position: int) -> None:
        """Drop what was kept of events before a position; sums are differences, so they stay right."""
        n_gone = bisect_left(self._positions, first_position)
        for values in (self._positions, *self._sums):
            del values[:n_gone]
        for sums in (sums for pair in self._lines.values() for sums in pair):
            sums.forget(first_position)

    def _range(self, start: int, end: int) -> tuple[int, int]:
        low = bisect_left(self._positions, start)
        return low, bisect_left(self._positions, end, lo=low)

    def totals(self, start: int, end: int) -> Totals:
        """What the admitted events at `start <= position < end` hold."""
        low, high = self._range(start, end)
        return Totals(high - low, *(sums[high] - sums[low] for sums in self._sums))

    def last_position(self, start: int, end: int) -> int | None:
        """Position of the last admitted event of a range."""
        low, high = self._range(start, end)
        return self._positions[high - 1] if high > low else None

    def tokens(self, session: Session, counter: CountsText, start: int, end: int, *, before: list[str]) -> int:
        """Tokens of the range's conversation text, with the blocks `before` in front, plus its reasoning."""
        lines = self._lines.get(counter.counter_id)
        if lines is None:
            lines = LineSums(event_blocks, session.first_position), LineSums(reasoning_texts, session.first_position)
            self._lines[counter.counter_id] = lines
        total = 0
        for sums, lead in zip(lines, (before, []), strict=True):
            sums.extend(session, self._positions, self.next_position, counter)
            total += sums.tokens(session, start, end, lead, counter.count_text)
        return total


class LineSums:
    """Token sums of the line blocks of one kind, exact to the token (SUM-TOK-09).

    A tokenizer splits its text into pieces, and a newline in front of a letter always ends a piece. So blocks
    that start with a letter are counted alone, with their newline; any other block is counted together with
    its predecessor. One such run of blocks is a group.
    """

    def __init__(self, blocks_of: Callable[[Event], list[str]], first_position: int) -> None:
        self._blocks_of = blocks_of
        self._next_position = first_position
        self._positions = array("q")
        """Event position of each block."""
        self._group_starts = array("q")
        """First block of each group."""
        self._sums = array("q", [0])
        """Tokens of the closed groups before each group, newlines included."""
        self._open: list[str] = []
        """Blocks of the last group, which the next block may still join."""
        self._first_joins = False
        """The very first block opens a group only because nothing stands before it."""
        self._done_blocks = 0
        """Blocks of the next event that are in already: a counter may fail in the middle of one."""

    def extend(self, session: Session, positions: array[int], end: int, counter: CountsText) -> None:
        """Take in the blocks of the admitted events from where it stopped up to `end`."""
        for position in positions[bisect_left(positions, max(self._next_position, session.first_position)) :]:
            if position >= end:
                break
            blocks = self._blocks_of(session.events[position - session.first_position])
            for block in blocks[self._done_blocks :]:
                self._take(position, block, counter)
                self._done_blocks += 1
            self._next_position, self._done_blocks = position + 1, 0

    def _take(self, position: int, block: str, counter: CountsText) -> None:
        if not self._open or block[0].isalpha():
            if self._open:
                self._sums.append(self._sums[-1] + _count_line(counter, "\n".join(self._open)))
            if not self._group_starts:
                self._first_joins = not block[0].isalpha()
            self._group_starts.append(len(self._positions))
            self._open = []
        self._positions.append(position)
        self._open.append(block)

    def forget(self, first_position: int) -> None:
        """Drop the groups that end before a position; one that reaches over it stays whole."""
        group = bisect_right(self._group_starts, bisect_left(self._positions, first_position)) - 1
        if group <= 0:
            return
        n_gone = self._group_starts[group]
        del self._positions[:n_gone]
        del self._sums[:group]
        self._group_starts = array("q", [start - n_gone for start in self._group_starts[group:]])
        self._first_joins = False

    def tokens(self, session: Session, start: int, end: int, lead: list[str], count_text: CountText) -> int:
        """Tokens of the text of `lead` and the blocks at `start <= position < end`."""
        low = bisect_left(self._positions, start)
        high = bisect_left(self._positions, end, lo=low)
        group = bisect_left(self._group_starts, low)
        if group == 0 and lead and self._first_joins:
            group = 1
        whole_from = min(self._group_starts[group], high) if group < len(self._group_starts) else high
        first = [*lead, *self._blocks(session, low, whole_from)]
        total = 0
        if first:
            total = count_text("\n".join(first) + ("\n" if whole_from < high else ""))
        if whole_from < high:
            last_group = bisect_left(self._group_starts, high) - 1
            total += self._sums[last_group] - self._sums[group]
            total += count_text("\n".join(self._blocks(session, self._group_starts[last_group], high)))
        return total

    def _blocks(self, session: Session, low: int, high: int) -> Iterable[str]:
        """The texts of blocks `low` to `high`; only ends of ranges are asked for, so few."""
        if low >= high:
            return ()
        if low == self._group_starts[-1] and high == len(self._positions):
            return self._open
        offset = low - bisect_left(self._positions, self._positions[low])
        texts: list[str] = []
        for position in dict.fromkeys(self._positions[low:high]):
            texts += self._blocks_of(session.events[position - session.first_position])
        return texts[offset : offset + high - low]


def _count_line(counter: CountsText, text: str) -> int:
    """Tokens of a text and a newline; some counters know a cheaper way."""
    count_line: CountText | None = getattr(counter, "count_line", None)
    return counter.count_text(text + "\n") if count_line is None else count_line(text)


class SessionTallies:
    """All tallies of one live session, kept in its `derived`."""

    def __init__(self, session: Session) -> None:
        self._tallies: dict[Rule, Tally] = {}
        self._forgotten = session.first_position
        self._descents_seen = session.first_position
        self._last_descent = session.first_position - 1

    @classmethod
    def of(cls, session: Session) -> SessionTallies:
        """The session's tallies, new ones the first time."""
        tallies = session.derived.get(_DERIVED)
        if not isinstance(tallies, SessionTallies):
            tallies = session.derived[_DERIVED] = cls(session)
        return tallies

    def tally(self, session: Session, rule: Rule, end: int) -> Tally:
        """The sums of a rule, up to date at least to position `end`."""
        tally = self._tallies.get(rule)
        if tally is None:
            tally = self._tallies[rule] = Tally(rule, session.first_position)
        tally.extend(session, end)
        if session.first_position - self._forgotten >= _FORGET_EVERY:
            self._forgotten = session.first_position
            for kept in self._tallies.values():
                kept.forget(session.first_position)
        return tally

    def times_ascend_from(self, session: Session) -> int:
        """The first position from which on no event is older than its predecessor."""
        start = max(self._descents_seen, session.first_position + 1)
        events, base = session.events, session.first_position
        for position in range(start, session.end_position):
            if events[position - base].time_ns < events[position - base - 1].time_ns:
                self._last_descent = position
        self._descents_seen = max(session.end_position, self._descents_seen)
        return max(self._last_descent, base)
