"""What became of each needed fact at the call that needs it: visible, recoverable or lost (WB-RET-01).

In: the needed facts of a conversation, the requests as they are sent. Out: rows of the table `needed_facts`. A
message is looked through once, when it is first sent, and two requests in a row are told apart by the messages
that they don't share; so the work of a call is that of what is new in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from workbench.agent.flow import SentRequest
from workbench.facts import Candidate, CandidateFinder, Mentions
from workbench.model.types import Message
from workbench.replay.coverage import BOTH, COVERED, COVERED_CUT, DROPPED, HIDDEN, RAW, REWRITTEN, CoverageTracker
from workbench.replay.needed import NeededFact, NeededFacts, said

VISIBLE_RAW = "visible_raw"
VISIBLE_SUMMARY = "visible_summary"
RECOVERABLE = "recoverable"
LOST = "lost"
FACT_STATES = {
    VISIBLE_RAW: "a message of the request says it",
    VISIBLE_SUMMARY: "only the summary in the request says it",
    RECOVERABLE: "not in the request, but `session_search` with the fact as query finds an event that says it",
    LOST: "neither in the request nor found by a search",
}
VISIBLE: Final = (VISIBLE_RAW, VISIBLE_SUMMARY)

Search = Callable[[SentRequest, str], Awaitable[tuple[str, ...]]]
"""Ids of the events that a search during this call gives for a query."""
Found = frozenset[int]
_NOTHING: Found = frozenset()


@dataclass(frozen=True, slots=True)
class FactState:
    """One needed fact at its call."""

    needed: NeededFact
    source_id: str
    candidate: Candidate
    state: str
    """A key of `FACT_STATES`."""
    step: str
    """What took the event that said it first out of the request; empty while it is in as it was said."""
    n_summaries: int
    """How many summaries in a row that event has gone through by then; 0 when none covers it."""


@dataclass(slots=True)
class FactTracker:
    """Follows one conversation call by call.

    Args:
        needed: Of this conversation.
        search: Runs `session_search`; None where it isn't offered.
    """

    needed: NeededFacts
    search: Search | None = None
    _finder: CandidateFinder = field(init=False)
    _by_call: dict[int, list[int]] = field(default_factory=dict)
    _by_text: dict[str, Found] = field(init=False)
    _by_message: dict[int, tuple[Message, Found]] = field(default_factory=dict)
    _raw: list[Found] = field(default_factory=list)
    """Per message of the last request: the facts that it says, its summary aside."""
    _n_raw: Counter[int] = field(default_factory=Counter)
    """Fact -> how many of these messages say it."""
    _summary_place: int = -1
    _summary: Found = _NOTHING

    def __post_init__(self) -> None:
        self._finder = CandidateFinder(self.needed.facts)
        self._by_text = dict(self.needed.mentioned)
        for index, one in enumerate(self.needed.needed):
            self._by_call.setdefault(one.call, []).append(index)

    def observe(self, call: int, sent: SentRequest, n_shared: int, coverage: CoverageTracker) -> list[FactState]:
        """The next call; it shares `n_shared` leading messages with the one before it.

        Recoverable facts are told as lost: `searched` finds out which they are.
        """
        self._take_in(sent, n_shared)
        states = []
        for index in self._by_call.get(call, ()):
            one = self.needed.needed[index]
            source_id = self.needed.source_ids[index]
            if self._n_raw[one.fact]:
                state, step, n_summaries = VISIBLE_RAW, "", 0
            else:
                state = VISIBLE_SUMMARY if one.fact in self._summary else LOST
                step, n_summaries = _removal(source_id, coverage)
            states.append(FactState(one, source_id, self.needed.facts[one.fact], state, step, n_summaries))
        return states

    async def searched(
        self, states: Iterable[FactState], sent: SentRequest, coverage: CoverageTracker
    ) -> list[FactState]:
        """The same states, with what a search would bring back as recoverable."""
        found = []
        for one in states:
            if one.state == LOST and self.search is not None:
                hits = await self.search(sent, one.candidate.value)
                if any(self._event_says(one.needed.fact, event_id, coverage) for event_id in hits):
                    one = replace(one, state=RECOVERABLE)
            found.append(one)
        return found

    def _event_says(self, fact: int, event_id: str, coverage: CoverageTracker) -> bool:
        place = coverage.stored.place_by_id(event_id)
        event = coverage.stored.events[place] if place is not None else None
        return event is not None and any(fact in self._found(message) for message in event.messages)

    # --- what a request says -------------------------------------------------------------------------

    def _take_in(self, sent: SentRequest, n_shared: int) -> None:
        """Take out the messages of the last request that this one hasn't, and take in its own."""
        place = _summary_place(sent)
        if place != self._summary_place:  # a message that loses or gets the summary is read anew
            n_shared = min(n_shared, *(one for one in (place, self._summary_place) if one >= 0))
        for found in self._raw[n_shared:]:
            self._n_raw.subtract(found)
        del self._raw[n_shared:]
        if place < 0:
            self._summary = _NOTHING
        for index, message in enumerate(sent.request.messages_from(n_shared), n_shared):
            if index == place:
                summary = sent.assembly.summary
                assert summary is not None
                self._summary = self._found_in(summary.text)
                found = self._found_in(summary.content_without)
            else:
                found = self._found(message)
            self._raw.append(found)
            self._n_raw.update(found)
        self._summary_place = place

    def _found(self, message: Message) -> Found:
        known = self._by_message.get(id(message))
        if known is None:  # the message is kept, so that its identity stays its own
            known = self._by_message[id(message)] = (message, self._found_in(said(message)))
        return known[1]

    def _found_in(self, text: str) -> Found:
        found = self._by_text.get(text)
        if found is None:
            found = self._by_text[text] = self._finder.found_in(Mentions(text))
        return found


def _summary_place(sent: SentRequest) -> int:
    """Index of the message with the summary in the request as sent; -1 without one."""
    summary = sent.assembly.summary
    if summary is None:
        return -1
    if sent.kept is None:
        return summary.message_index
    return sent.kept.index(summary.message_index) if summary.message_index in sent.kept else -1


_STEPS = {COVERED: "summary", COVERED_CUT: "summary_input_cut", BOTH: "summary", RAW: "projection"}


def _removal(source_id: str, coverage: CoverageTracker) -> tuple[str, int]:
    """The step that took an event's words out of the request, and the summaries it went through."""
    place = coverage.stored.place_by_id(source_id)
    state = coverage.states[place] if place is not None and place < len(coverage.states) else None
    if place is None or state is None:
        return "not_stored", 0
    name, detail = state
    step = detail if name in (REWRITTEN, DROPPED, HIDDEN) else _STEPS.get(name, name)
    return step or name, coverage.n_summaries_of(place)
