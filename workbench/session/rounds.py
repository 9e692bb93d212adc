"""Rounds: which tool results answer which calls, and where a round of dialogue starts.

In: events or messages, oldest first. Out: matches and positions; nothing is changed. Implements the
matching of ASM-HIST-04 (also behind ASM-INTRA-11 and -20) and the rounds of ASM-HIST-16. A call id may be
used again later; a result always belongs to the nearest earlier call that still waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.model.types import Choice, Message
from workbench.session.types import Event

PER_CALL_RESULT = "workbench:per_call_result"
"""Extension of a tool-result event that is one of several for the same round (ASM-HIST-07)."""


@dataclass(slots=True)
class ResultMatch:
    """The choices of one result event that answer one call event."""

    index: int
    """Index of the result event in the list that was matched."""
    choices: list[int] = field(default_factory=list)


def is_call(event: Event) -> bool:
    """The event asks for tools."""
    return event.response is not None and event.response.is_tool_call


def is_result(event: Event) -> bool:
    """The event answers a tool call."""
    return event.response is not None and event.response.is_tool_result


def is_per_call_result(event: Event) -> bool:
    """The event holds one result of a round whose results come one by one."""
    return bool(event.extensions) and bool(event.extensions.get(PER_CALL_RESULT))


def call_ids(event: Event) -> list[str]:
    """Ids of all calls of an event, in order, empty ones included."""
    if event.response is None:
        return []
    return [
        call.id for choice in event.response.choices for call in (*choice.message.tool_calls, *choice.delta.tool_calls)
    ]


def result_id(choice: Choice) -> str:
    """Id of the call that a choice answers; empty if it answers none."""
    return choice.message.tool_id or choice.delta.tool_id


def result_ids(event: Event) -> list[str]:
    """Ids that the choices of an event answer."""
    if event.response is None:
        return []
    return [found for choice in event.response.choices if (found := result_id(choice))]


def match_results(
    events: Sequence[Event], *, include: Callable[[int], bool] | None = None
) -> dict[int, list[ResultMatch]]:
    """Match results to calls: index of a call event -> its result events in order.

    Args:
        events: Oldest first.
        include: Leaves out the events (by index) for which it is false.
    Source: ASM-HIST-04.
    """
    matches: dict[int, list[ResultMatch]] = {}
    waiting: dict[str, list[int]] = {}  # call id -> indices of the call events that wait for it
    for i, event in enumerate(events):
        response = event.response
        if response is None or (include is not None and not include(i)):
            continue
        if response.is_tool_call:
            for call_id in dict.fromkeys(call_ids(event)):
                waiting.setdefault(call_id, []).append(i)
        elif response.is_tool_result:
            for j, choice in enumerate(response.choices):
                callers = waiting.get(result_id(choice))
                if not callers:
                    continue
                found = matches.setdefault(callers.pop(), [])
                if not found or found[-1].index != i:
                    found.append(ResultMatch(i))
                found[-1].choices.append(j)
    return matches


def answered_ids(events: Sequence[Event], matches: Iterable[ResultMatch]) -> set[str]:
    """Ids answered by the matched choices."""
    answered: set[str] = set()
    for match in matches:
        response = events[match.index].response
        if response is not None:
            answered.update(result_id(response.choices[j]) for j in match.choices)
    return answered


def is_complete(events: Sequence[Event], call_index: int, matches: Mapping[int, Sequence[ResultMatch]]) -> bool:
    """Every non-empty call id of the round is answered; a round without any id never is (ASM-INTRA-11)."""
    wanted = {call_id for call_id in call_ids(events[call_index]) if call_id}
    return bool(wanted) and wanted <= answered_ids(events, matches.get(call_index, ()))


def round_starts(messages: Sequence[Message]) -> list[int]:
    """Indices at which a round of dialogue starts: a user message whose predecessor is none (ASM-HIST-16)."""
    starts = []
    after_user = False
    for i, message in enumerate(messages):
        user_like = message.is_user_like
        if user_like and not after_user:
            starts.append(i)
        after_user = user_like
    return starts
