"""Calls that wait: which stored calls may still get their result.

In: a session's events, one by one. Out: the positions of calls that wait. A summary must not cover such a call,
since its result would come without it; a confirmation by a person may take days. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from workbench.session.rounds import call_ids, is_call, is_result, result_ids
from workbench.session.types import Event, EventFold, Session


class OpenCalls(EventFold):
    """The calls of a session that wait.

    A call waits until its result is stored, until its request ends with a final answer, or until the user goes on
    with another request on the same branch: then nobody will answer it any more.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[str, list[tuple[int, Event]]] = {}

    @classmethod
    def of(cls, session: Session) -> OpenCalls:
        """The calls of a session, kept up to date with it."""
        calls = session.derived.get(OpenCalls)
        if calls is None:
            calls = session.derived[OpenCalls] = cls()
        calls.follow(session)
        found: OpenCalls = calls
        return found

    def reset(self) -> None:
        self._waiting = {}

    def step(self, position: int, event: Event) -> None:
        """The next stored event."""
        if is_call(event):
            for call_id in call_ids(event):
                if call_id:
                    self._waiting.setdefault(call_id, []).append((position, event))
            return
        if not self._waiting:
            return
        if is_result(event):
            for call_id in result_ids(event):
                callers = self._waiting.get(call_id)
                if callers:
                    callers.pop()
                    if not callers:
                        del self._waiting[call_id]
        elif event.response is not None and (event.response.is_final or event.response.is_user_message):
            self._close(event)

    def _close(self, event: Event) -> None:
        """A final answer ends its own request, a user message the other requests of its branch."""
        is_user = event.response is not None and event.response.is_user_message
        for call_id, callers in list(self._waiting.items()):
            left = []
            for position, call in callers:
                is_same_request = call.request_id == event.request_id
                is_same_branch = (call.branch, call.filter_key) == (event.branch, event.filter_key)
                if (is_user and (is_same_request or not is_same_branch)) or (not is_user and not is_same_request):
                    left.append((position, call))
            if left:
                self._waiting[call_id] = left
            else:
                del self._waiting[call_id]

    def __iter__(self) -> Iterator[tuple[int, Event]]:
        """Position and event of each call that waits, in no fixed order; an event once per call."""
        return (caller for callers in self._waiting.values() for caller in callers)

    def among(self, is_covered: Callable[[int], bool]) -> tuple[str, ...]:
        """Ids of the calls that wait, and whose position is covered."""
        return tuple(
            call_id
            for call_id, callers in self._waiting.items()
            if any(is_covered(position) for position, _ in callers)
        )
