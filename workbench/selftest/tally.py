"""`Tally`: how often something was tried, and what went wrong, for one row of the table."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MAX_EXAMPLES = 20


class Tally:
    """Counts trials, the kinds of faults that are promised not to happen, and what else was seen.

    Args:
        unit: What is counted, in the plural: `kills`.
        faults: The kinds that must stay at 0, in the order of the table.
    """

    def __init__(self, unit: str, *faults: str) -> None:
        self.unit = unit
        self.faults = dict.fromkeys(faults, 0)
        self.n = 0
        self.seen: Counter[str] = Counter()
        """What is no fault but worth a word: `refused 310`."""
        self.examples: list[str] = []
        """The first faults, each in a sentence that lets it be repeated."""

    def trial(self, seen: str = "") -> None:
        """One more; `seen` says how it ended."""
        self.n += 1
        if seen:
            self.seen[seen] += 1

    def fault(self, kind: str, example: str) -> None:
        """Something that must not happen."""
        self.faults[kind] += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(f"{kind}: {example}")

    def expect(self, holds: object, kind: str, example: str) -> None:
        """A fault unless it holds."""
        if not holds:
            self.fault(kind, example)

    @property
    def n_faults(self) -> int:
        """Of all kinds."""
        return sum(self.faults.values())

    def wanted_text(self, n: int, promised: int = 0) -> str:
        """What is asked; `promised` when that is less than it should be."""
        of = f" of {promised:,}" if promised > n else ""
        return f"{n:,}{of} {self.unit}: " + ", ".join(f"{kind} 0" for kind in self.faults)

    def found_text(self) -> str:
        """What was found."""
        text = f"{self.n:,} {self.unit}: " + ", ".join(f"{kind} {n:,}" for kind, n in self.faults.items())
        seen = ", ".join(f"{kind} {n:,}" for kind, n in sorted(self.seen.items()))
        return f"{text} ({seen})" if seen else text


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings of what is done on purpose help nobody."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
