"""Which summaries a trigger refreshes: targets, allowlist, cascade, the one-branch shortcut.

In: a filter key and the service's policy, or a session. Out: the keys to refresh, in order. Pure. Implements
SUM-CAS-01 to -05.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from workbench.session.scope import is_same_or_below, keys_match, matching_key
from workbench.session.types import SUMMARY_FILTER_KEY_ALL_CONTENTS, Event, EventFold, Session


def cleaned_allowlist(allowlist: Iterable[str] | None) -> tuple[str, ...] | None:
    """Entries stripped, blanks removed; None (every branch allowed) stays None (SUM-CAS-02)."""
    if allowlist is None:
        return None
    return tuple(entry.strip() for entry in allowlist if entry.strip())


def is_allowed(filter_key: str, allowlist: Sequence[str] | None) -> bool:
    """The key may be summarised: the full session always, a branch by the (cleaned) allowlist (SUM-CAS-03)."""
    if filter_key == SUMMARY_FILTER_KEY_ALL_CONTENTS or allowlist is None:
        return True
    return any(keys_match(filter_key, entry) for entry in allowlist)


def summary_targets(filter_key: str, *, allowlist: Sequence[str] | None, cascade: bool) -> list[str]:
    """Keys that a job for `filter_key` refreshes: the branch if allowed, then the full session (SUM-CAS-01)."""
    if filter_key == SUMMARY_FILTER_KEY_ALL_CONTENTS:
        return [SUMMARY_FILTER_KEY_ALL_CONTENTS]
    targets = [filter_key] if is_allowed(filter_key, allowlist) else []
    if cascade:
        targets.append(SUMMARY_FILTER_KEY_ALL_CONTENTS)
    return targets


class KeyCensus(EventFold):
    """How many of a session's events carry each filter key, counted once per event."""

    __slots__ = ("_counts", "_first")

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        self._first = self.start
        self._counts: Counter[tuple[str, str]] = Counter()

    def step(self, position: int, event: Event) -> None:
        self._counts[_keys(event)] += 1

    def keys_of(self, session: Session) -> list[tuple[str, str]]:
        """Distinct `(matching key, effective key)` of the session's events."""
        self.follow(session)
        if self.start + len(self.seen) != session.end_position or session.first_position < self._first:
            return list({_keys(event) for event in session.events})  # the fold is ahead of this clone
        while self._first < session.first_position:
            self._counts[_keys(self.seen[self._first - self.start])] -= 1
            self._first += 1
        return [key for key, count in self._counts.items() if count]


def _keys(event: Event) -> tuple[str, str]:
    return matching_key(event), event.effective_key


def covers_whole_session(session: Session, branch: str, *, by_matching: bool) -> bool:
    """Every event belongs to `branch`, so its summary is the full session's too (SUM-CAS-05).

    Args:
        by_matching: True lets ancestor-keyed events pass although the branch summary lacks their text, as the
            reference does; False asks that each event is in the branch's scope.
    """
    census = session.derived.get(KeyCensus)
    if census is None:
        census = session.derived[KeyCensus] = KeyCensus()
    if by_matching:
        return all(keys_match(key, branch) for key, _ in census.keys_of(session))
    return all(not key or is_same_or_below(key, branch) for _, key in census.keys_of(session))
