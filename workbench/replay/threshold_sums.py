"""Sums over the texts of a conversation, and gates that find where a trigger passes, for any threshold (WB-TUNE-05).

In: the moments at which a replay checked its trigger, and the events by then (`Heard`). Out: gates, one per check of a
trigger tree, which give the first moment that passes behind a boundary, and what each check measures. A metric is a
difference of two sums, so that no text is looked at twice. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from workbench.session.scope import counts_for_full_session, event_matches, in_scope
from workbench.session.types import Event
from workbench.summary.text import event_blocks, reasoning_texts
from workbench.tokens import SimpleTokenCounter

if TYPE_CHECKING:
    import numpy as np

    Ints = np.ndarray[Any, np.dtype[np.int64]]

SEVERAL_BRANCHES = "the conversation has several branches"
_PATHS = frozenset({"async", "sync", "intra_run"})
_NS_PER_MS = 1_000_000
_SCALARS, _FIRST_CHUNK = 6, 48
"""How many moments are looked at one by one before whole stretches are; both are only a matter of speed."""


@dataclass(frozen=True, slots=True)
class Track:
    """What one check of the trigger measures at every moment, the boundary moved by each firing."""

    name: str
    unit: str
    """events, tokens, milliseconds."""
    threshold: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Firings:
    """Where a trigger fires."""

    moments: tuple[int, ...]
    """Indexes into `ThresholdSums.calls` and the tracks."""
    calls: tuple[int, ...]
    """For each firing the first call that sees its summary, as in the `checks` table."""

    def __len__(self) -> int:
        return len(self.moments)


@dataclass(frozen=True, slots=True)
class Moment:
    """One check of the engine in the replay that listens."""

    call: int
    end: int
    """Absolute position behind the last event that a summary made here would cover."""
    first: int
    """Position of the oldest event that the session still holds."""
    time_ns: int
    live_end: int
    path: str
    filter_key: str
    started_ns: int
    gap_ns: int
    """Silence before the request; -1 when the engine observes none."""
    window: int


class Heard:
    """What a replay that never fires has told: the moments of its checks, the events, and sums over their texts."""

    def __init__(self, moments: list[Moment], events: list[Event]) -> None:
        self.moments, self.events = moments, events
        self.ends = [moment.end for moment in moments]
        self.firsts = [moment.first for moment in moments]
        self.n_blocks, self.n_reasoning, self.runes = [0], [0], [0]
        """Sums over the texts in front of each position; `runes` with a line break per text."""
        for event in events:
            blocks, reasoning = event_blocks(event), reasoning_texts(event)
            self.n_blocks.append(self.n_blocks[-1] + len(blocks))
            self.n_reasoning.append(self.n_reasoning[-1] + len(reasoning))
            chars = sum(map(len, blocks)) + sum(map(len, reasoning))
            self.runes.append(self.runes[-1] + chars + len(blocks) + len(reasoning))
        self.runes_at_ends = [self.runes[end] for end in self.ends]

    def __len__(self) -> int:
        return len(self.moments)

    def has_text(self, start: int, end: int) -> bool:
        """Something of the events at `start <= position < end` counts as text."""
        return end > start and (
            self.n_blocks[end] > self.n_blocks[start] or self.n_reasoning[end] > self.n_reasoning[start]
        )

    def fault(self, app_name: str, branch: str) -> str:
        """Why sums over these events can't stand for the engine; empty when they can."""
        return self._fault_of_moments() or self._fault_of_events(app_name, branch)

    def _fault_of_moments(self) -> str:
        for moment in self.moments:
            if moment.path not in _PATHS:
                return f"checks come by the path {moment.path}"
            is_last = moment.live_end >= len(self.events)
            if moment.path != "intra_run" and not is_last and self.events[moment.live_end].time_ns <= moment.time_ns:
                return "an event has the very time of the check before it, so a summary could come too late for it"
        for before, after in pairwise(self.moments):
            if after.end < before.end or after.first < before.first:
                return "what a summary would cover doesn't only grow"
        return ""

    def _fault_of_events(self, app_name: str, branch: str) -> str:
        if any(later.time_ns < earlier.time_ns for earlier, later in pairwise(self.events)):
            return "the times of the events don't ascend"
        if len({event.id for event in self.events}) < len(self.events):
            return "two events have the same id"
        for event in self.events:
            counts = counts_for_full_session(event, app_name)
            if not (event_matches(event, branch) and in_scope(event, branch) and counts):
                return SEVERAL_BRANCHES
        return ""


# --- gates: the first moment at which something passes --------------------------------------------------


class Gate(Protocol):
    def first(self, boundary: int, at: int) -> int:
        """The first moment from `at` on that passes with this boundary; the number of moments when none does."""
        ...


@dataclass(frozen=True, slots=True)
class AllOf:
    gates: tuple[Gate, ...]

    def first(self, boundary: int, at: int) -> int:
        while True:
            start = at
            for gate in self.gates:
                at = gate.first(boundary, at)
            if at == start:
                return at


@dataclass(frozen=True, slots=True)
class AnyOf:
    gates: tuple[Gate, ...]
    n_moments: int

    def first(self, boundary: int, at: int) -> int:
        return min([gate.first(boundary, at) for gate in self.gates], default=self.n_moments)


class Content:
    """There is something to summarize: with a summary before there always is (SUM-CHK-04)."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def first(self, boundary: int, at: int) -> int:
        heard = self._heard
        while at < len(heard):
            end, start = heard.ends[at], max(boundary + 1, heard.firsts[at])
            if end > start and (boundary >= 0 or heard.n_blocks[end] > heard.n_blocks[start]):
                return at
            at += 1
        return len(heard)


class Metric(Protocol):
    """What a threshold measures; never falls while the boundary stays and nothing is trimmed."""

    fault: str

    def value(self, start: int, end: int) -> int:
        """Of the events at `start <= position < end`."""
        ...

    def first_above(self, start: int, lo: int, hi: int, threshold: int) -> int:
        """The first of the moments `lo..hi` with more than the threshold, all measured from `start`; `hi` if none."""
        ...

    def trimmed_above(self, threshold: int) -> list[int]:
        """All moments with more than the threshold when measured from the oldest event that is still there."""
        ...


class Threshold:
    """One event, token or context check."""

    def __init__(self, heard: Heard, name: str, unit: str, threshold: int, metric: Metric) -> None:
        self._heard, self._metric = heard, metric
        self.name, self.unit, self.threshold = name, unit, threshold
        self._trimmed: list[int] | None = None

    def first(self, boundary: int, at: int) -> int:
        heard, start, n_moments = self._heard, boundary + 1, len(self._heard)
        # While the event behind the boundary is there, everything is measured from it.
        n_whole = n_moments
        if n_moments and heard.firsts[-1] > start:
            n_whole = bisect_right(heard.firsts, start)
        if at < n_whole:
            found = self._metric.first_above(start, at, n_whole, self.threshold)
            if found < n_whole:
                return found
            at = n_whole
        if at >= n_moments:
            return n_moments
        if self._trimmed is None:
            self._trimmed = self._metric.trimmed_above(self.threshold)
        place = bisect_left(self._trimmed, at)
        return self._trimmed[place] if place < len(self._trimmed) else n_moments

    def track(self, firings: Firings) -> Track:
        heard, values, boundary, fired = self._heard, [], -1, set(firings.moments)
        for at, (end, first) in enumerate(zip(heard.ends, heard.firsts, strict=True)):
            values.append(self._metric.value(max(boundary + 1, first), end))
            if at in fired:
                boundary = end - 1
        return Track(self.name, self.unit, self.threshold, tuple(values))


class Silence:
    """A time check: how long it was quiet before the request, as the runner observed it."""

    def __init__(self, heard: Heard, interval_ns: int) -> None:
        self._heard = heard
        self._interval_ns = interval_ns
        self._long = [i for i, moment in enumerate(heard.moments) if moment.gap_ns > interval_ns]

    def first(self, boundary: int, at: int) -> int:
        place = bisect_left(self._long, at)
        while place < len(self._long) and not self._is_observed(boundary, self._long[place]):
            place += 1
        return self._long[place] if place < len(self._long) else len(self._heard)

    def _is_observed(self, boundary: int, at: int) -> bool:
        """After a summary in the middle of a request its silence is used up (SUM-RNR-02)."""
        return boundary < 0 or self._heard.events[boundary].time_ns < self._heard.moments[at].started_ns

    def track(self, firings: Firings) -> Track:
        values, boundary, fired = [], -1, set(firings.moments)
        for at, moment in enumerate(self._heard.moments):
            observed = moment.gap_ns >= 0 and self._is_observed(boundary, at)
            values.append(int(moment.gap_ns / _NS_PER_MS) if observed else 0)
            if at in fired:
                boundary = moment.end - 1
        return Track("time_threshold", "milliseconds", int(self._interval_ns / _NS_PER_MS), tuple(values))


# --- metrics: sums over events ---------------------------------------------------------------------------


class EventSums:
    """The number of events; all of them count, since the conversation has one branch."""

    fault = ""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def value(self, start: int, end: int) -> int:
        return max(end - start, 0)

    def first_above(self, start: int, lo: int, hi: int, threshold: int) -> int:
        return bisect_right(self._heard.ends, start + threshold, lo, hi)

    def trimmed_above(self, threshold: int) -> list[int]:
        heard = self._heard
        return [
            i for i, (end, first) in enumerate(zip(heard.ends, heard.firsts, strict=True)) if end - first > threshold
        ]


class RuneSums:
    """Tokens by a counter that divides code points: sums of code points serve every ratio."""

    fault = ""

    def __init__(self, heard: Heard, counter: SimpleTokenCounter) -> None:
        self._heard, self._counter = heard, counter
        self._needed: tuple[int, int] = (-1, 0)

    def _measured(self, start: int, end: int) -> int:
        """Code points of the joined texts of a range, -1 for a range without any."""
        heard = self._heard
        if end <= start:
            return -1
        n_blocks = heard.n_blocks[end] - heard.n_blocks[start]
        n_reasoning = heard.n_reasoning[end] - heard.n_reasoning[start]
        if not n_blocks and not n_reasoning:
            return -1
        return heard.runes[end] - heard.runes[start] - (n_blocks > 0) - (n_reasoning > 0)

    def value(self, start: int, end: int) -> int:
        runes = self._measured(start, end)
        return 0 if runes < 0 else self._counter.tokens_from_runes(runes, non_empty=True)

    def _runes_needed(self, threshold: int) -> int:
        """The least number of code points that is more than the threshold in tokens."""
        if self._needed[0] == threshold:
            return self._needed[1]
        if threshold == 0:
            needed = 0  # every text counts at least one token
        else:
            ratio = self._counter.approx_runes_per_token
            needed = max(math.floor((threshold + 1) * ratio) - 2, 0)
            while int(needed / ratio) <= threshold:
                needed += 1
        self._needed = (threshold, needed)
        return needed

    def first_above(self, start: int, lo: int, hi: int, threshold: int) -> int:
        needed = self._runes_needed(threshold)
        heard = self._heard
        at = bisect_left(heard.runes_at_ends, heard.runes[start] + needed, lo, hi)
        while at < hi and self._measured(start, heard.ends[at]) < needed:
            at += 1
        return at

    def trimmed_above(self, threshold: int) -> list[int]:
        needed, heard = self._runes_needed(threshold), self._heard
        pairs = zip(heard.firsts, heard.ends, strict=True)
        return [i for i, (first, end) in enumerate(pairs) if self._measured(first, end) >= needed]


class LineSums:
    """Tokens by a counter that is exact on lines: tiktoken, and a counter by script, whose units are.

    A text's count is the sum over its lines where each starts with a letter (SUM-TOK-09): every line but the last with
    its line break.
    """

    def __init__(self, heard: Heard, counter: Any) -> None:
        import numpy as np

        self._heard = heard
        self._from_units = getattr(counter, "tokens_from_units", None)
        self.fault = ""
        counts = getattr(counter, "unit_counter", counter)
        self._parts = [
            (*self._part(counts, texts_of), np.asarray(n_texts, dtype=np.int64))
            for texts_of, n_texts in ((event_blocks, heard.n_blocks), (reasoning_texts, heard.n_reasoning))
        ]
        self._ends = np.asarray(heard.ends, dtype=np.int64)
        self._firsts = np.asarray(heard.firsts, dtype=np.int64)
        self._needed: dict[int, int] = {}
        # One kind of text, and sums that only grow: then the first moment above a threshold is found by bisection.
        spoken = [open_ended[self._ends] for _, open_ended, n_texts in self._parts if n_texts[-1]]
        self._ascending = spoken[0].tolist() if len(spoken) == 1 and bool((np.diff(spoken[0]) >= 0).all()) else None

    def _part(self, counter: Any, texts_of: Callable[[Event], list[str]]) -> tuple[Ints, Ints]:
        """Two sums per position over the texts in front of it: all with their line break, and all but the last."""
        import numpy as np

        count_line = getattr(counter, "count_line", None) or (lambda text: counter.count_text(text + "\n"))
        whole, open_ended = [0], [0]
        for event in self._heard.events:
            total, last = whole[-1], open_ended[-1]
            for text in texts_of(event):
                if not text[0].isalpha():
                    self.fault = "a line that doesn't start with a letter isn't counted alone"
                line, bare = count_line(text), counter.count_text(text)
                last = total + bare
                total += line
            whole.append(total)
            open_ended.append(last)
        return np.asarray(whole, dtype=np.int64), np.asarray(open_ended, dtype=np.int64)

    def _measured(self, start: int, end: int) -> int:
        if end <= start:
            return 0
        return sum(
            int(open_ended[end]) - int(whole[start])
            for whole, open_ended, n_texts in self._parts
            if n_texts[end] > n_texts[start]
        )

    def value(self, start: int, end: int) -> int:
        found = self._measured(start, end)
        if self._from_units is None:
            return found
        return int(self._from_units(found, non_empty=self._heard.has_text(start, end)))

    def _least(self, threshold: int) -> int:
        """The least sum that is more than the threshold."""
        if self._from_units is None:
            return threshold + 1
        if threshold not in self._needed:
            low, high = 0, 1
            while self._from_units(high, non_empty=True) <= threshold:
                low, high = high, high * 2
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._from_units(middle, non_empty=True) <= threshold else (low, middle)
            self._needed[threshold] = high
        return self._needed[threshold]

    def first_above(self, start: int, lo: int, hi: int, threshold: int) -> int:
        least = self._least(threshold)
        if self._ascending is not None:
            before = sum(int(whole[start]) for whole, _, n_texts in self._parts if n_texts[-1])
            at = bisect_left(self._ascending, before + least, lo, hi)
            while at < hi and self._measured(start, self._heard.ends[at]) < least:
                at += 1
            return at
        for at in range(lo, min(lo + _SCALARS, hi)):
            end = self._heard.ends[at]
            if end > start and self._measured(start, end) >= least:
                return at
        at, size = min(lo + _SCALARS, hi), _FIRST_CHUNK
        while at < hi:
            above = self._above(start, at, min(at + size, hi), least)
            if len(above):
                return at + int(above[0])
            at, size = at + size, size * 4
        return hi

    def _above(self, start: int | Ints, lo: int, hi: int, least: int) -> Ints:
        """Which of the moments `lo..hi` measure at least so much, as offsets from `lo`."""
        import numpy as np

        ends = self._ends[lo:hi]
        total = np.zeros(len(ends), dtype=np.int64)
        for whole, open_ended, n_texts in self._parts:
            total += np.where(n_texts[ends] > n_texts[start], open_ended[ends] - whole[start], 0)
        return np.flatnonzero((total >= least) & (ends > start))

    def trimmed_above(self, threshold: int) -> list[int]:
        return [int(i) for i in self._above(self._firsts, 0, len(self._ends), self._least(threshold))]
