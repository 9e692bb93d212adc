"""A list that only grows at its end, and whose copies share what they have in common.

In: items, one after the other. Out: a sequence. Every request reads its session, and a session handed out is a
copy; with lists that would be work for the whole history at each request. Here a copy is a window on the same
tape: it costs nothing, and stays what it was when others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class SharedLog(Sequence[T], Generic[T]):
    """A window on a tape of items. Windows of one tape may be appended to independently.

    The first that appends writes on the tape; another that appends the very same object only moves its end; one
    that appends something else gets a tape of its own. Slices are lists.
    """

    __slots__ = ("_start", "_stop", "_tape")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._tape: list[T] = list(items)
        self._start = 0
        self._stop = len(self._tape)

    def copy(self) -> SharedLog[T]:
        """Another window on the same items."""
        twin: SharedLog[T] = SharedLog.__new__(SharedLog)
        twin._tape, twin._start, twin._stop = self._tape, self._start, self._stop
        return twin

    def append(self, item: T) -> None:
        """Add an item at the end; other windows don't see it."""
        tape = self._tape
        if self._stop == len(tape):
            tape.append(item)
        # Another thread may have appended in between, so it's looked at after the fact: appending is atomic.
        if tape[self._stop] is not item:
            tape = self._tape = tape[self._start : self._stop]
            self._start, self._stop = 0, len(tape)
            tape.append(item)
        self._stop += 1

    def drop_oldest(self, n: int) -> None:
        """Forget the first `n` items; the tape is left for a shorter one when most of it is forgotten."""
        self._start = min(self._start + max(n, 0), self._stop)
        if self._start > self._stop - self._start:
            self._tape = self._tape[self._start : self._stop]
            self._start, self._stop = 0, len(self._tape)

    def continues(self, earlier: SharedLog[T]) -> bool:
        """Both windows lie on one tape, and this one begins and ends no earlier: what both show is the same."""
        return self._tape is earlier._tape and self._start >= earlier._start and self._stop >= earlier._stop

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._stop - self._start)
            if step != 1:
                return self._tape[self._start : self._stop][index]
            return self._tape[self._start + start : self._start + max(start, stop)]
        place = index + (self._start if index >= 0 else self._stop)
        if not self._start <= place < self._stop:
            raise IndexError("no such item")
        return self._tape[place]

    def __iter__(self) -> Iterator[T]:
        return islice(self._tape, self._stop) if not self._start else iter(self[:])

    def __reversed__(self) -> Iterator[T]:
        tape = self._tape
        return (tape[place] for place in range(self._stop - 1, self._start - 1, -1))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SharedLog):
            other = other[:]
        return self[:] == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SharedLog({self[:]!r})"
