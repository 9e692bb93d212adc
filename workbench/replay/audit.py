"""The audit of a replay: what is wrong with a request, and which step did it.

In: the requests of one conversation as they were sent, and its summaries. Out: rows of the tables `coverage` and
`violations`. Coverage and protocol check find faults; this module says at which call each began, which event is
behind it and which step made it. Implements the records of WB-RPL-13 and WB-RPL-18.
"""

from __future__ import annotations

from collections.abc import Hashable

from workbench.agent.flow import SentRequest
from workbench.config import RunConfig
from workbench.context.assemble import Invocation
from workbench.context.project import KIND_FEW_SHOT, KIND_INJECTED, KIND_LATE, KIND_PROMPT, KIND_SYSTEM
from workbench.model.types import Message
from workbench.replay.coverage import CoverageTracker
from workbench.replay.protocol import (
    ModelRules,
    ProtocolChecker,
    ProtocolViolation,
    RunningTurn,
    violations_of,
)
from workbench.service.summaries import SummaryAttempt
from workbench.session.open_calls import OpenCalls
from workbench.session.types import Event, Session

_KIND_STEPS = {
    KIND_SYSTEM: "instruction",
    KIND_PROMPT: "instruction",
    KIND_FEW_SHOT: "few_shot",
    KIND_INJECTED: "injected_context",
    KIND_LATE: "late_context",
}


class Audit:
    """Follows one conversation.

    Args:
        coverage, violations: Lists that rows are appended to.
    """

    def __init__(
        self,
        conversation: str,
        config: RunConfig,
        coverage: list[tuple[object, ...]],
        violations: list[tuple[object, ...]],
    ) -> None:
        self._conversation = conversation
        self._coverage_rows = coverage
        self._violation_rows = violations
        self._rules = ModelRules(config.model.user_first, config.model.single_system)
        self.coverage = CoverageTracker(config.agent, config.service.event_limit)
        self.protocol = ProtocolChecker(self._rules)
        self._calls = OpenCalls()
        self._n_seen = 0
        self._invocation: Invocation | None = None
        self._asked: Event | None = None
        self._known: dict[Hashable, Message | None] = {}

    def on_session(self, session: Session) -> None:
        """Events were stored that no run may ever see."""
        self.coverage.stored.sync(session)

    def on_attempt(self, attempt: SummaryAttempt) -> None:
        """A summary was written, copied, or failed."""
        self.coverage.add_attempt(attempt)

    def on_call(self, call: int, sent: SentRequest, n_shared: int = 0) -> None:
        """A request was sent; it has `n_shared` leading messages in common with the one before."""
        self._cover(call, sent)
        turn = self._turn(sent)
        found = self.protocol.check(sent.request.messages_from(n_shared), turn, n_shared=n_shared)
        if self._asked is not None and not self.coverage.is_sent(self._asked):
            found = tuple({*found, ProtocolViolation(-1, "no_current_message")})  # an equal older message isn't it
        if not found and not self._known:
            return
        known, self._known = self._known, {}
        for violation in sorted(found):
            index = violation.message if violation.message >= 0 else None
            message = sent.request.message_at(index) if index is not None else None
            event = self._event_at(index, sent) if index is not None else self._asked
            key = (violation.rule, violation.detail, event.id if event is not None else id(message))
            self._known[key] = message
            if key not in known:
                if violation.rule == "open_call_covered":
                    event = None
                step = step_of(violation, sent, turn, self._rules)
                self._write(call, "protocol", violation.rule, index, event, step, violation.detail)

    def _cover(self, call: int, sent: SentRequest) -> None:
        spans, broken = self.coverage.observe(sent)
        events = self.coverage.stored.events
        for span in spans:
            first = events[span.first]
            self._coverage_rows.append(
                (
                    self._conversation,
                    call,
                    span.first,
                    span.last,
                    None if first is None else first.id,
                    span.state,
                    span.detail,
                )
            )
        for violation in broken:
            event = events[violation.position]
            self._write(
                call,
                "coverage",
                violation.rule,
                self._message_of(violation.position, sent),
                event,
                violation.step,
                "",
            )

    def _message_of(self, position: int, sent: SentRequest) -> int | None:
        """Index of the first message of an event in the request."""
        forms = {id(message) for message in self.coverage.sent_messages.at.get(position, ())}
        return next((i for i, message in enumerate(sent.request.messages) if id(message) in forms), None)

    def _turn(self, sent: SentRequest) -> RunningTurn:
        """What the request is for, and the calls that wait although the summary covers them."""
        events, invocation = self.coverage.stored.events, sent.invocation
        for position in range(self._n_seen, len(events)):
            event = events[position]
            if event is not None:
                self._calls.step(position, event)
        self._n_seen = len(events)
        if invocation is not self._invocation:
            self._invocation, self._asked = invocation, None
            if invocation.message.has_payload:
                self._asked = next((e for e in reversed(events) if e and e.id in invocation.current_turn_ids), None)
        return RunningTurn(invocation.message, self._calls.among(self.coverage.is_covered))

    # --- rows ----------------------------------------------------------------------------------------

    def _write(
        self, call: int, kind: str, rule: str, message: int | None, event: Event | None, step: str, detail: str
    ) -> None:
        event_id = None if event is None else event.id
        self._violation_rows.append((self._conversation, call, kind, rule, message, event_id, step, detail))

    def _event_at(self, index: int, sent: SentRequest) -> Event | None:
        """The stored event behind a message."""
        place = _index_in_assembly(index, sent)
        position = sent.assembly.positions[place] if place >= 0 else -1
        return self.coverage.stored.events[self.coverage.stored.place_of(position)] if position >= 0 else None


def step_of(violation: ProtocolViolation, sent: SentRequest, turn: RunningTurn, rules: ModelRules) -> str:
    """The step that made a fault: the last one without which it wouldn't be there."""
    if violation.rule == "open_call_covered":
        return "summary"
    assembly = sent.assembly
    place = _index_in_assembly(violation.message, sent)
    if sent.kept is not None:
        before = violations_of(assembly.messages, turn, rules)
        if not any((one.message, one.rule, one.detail) == (place, violation.rule, violation.detail) for one in before):
            return "tailoring" if sent.tailored is not None else "before_model"
    if place < 0:
        return "selection"
    if assembly.summary is not None and assembly.summary.message_index == place:
        return "injection"
    if assembly.rewrite_at(place) is not None:
        return "compaction"
    position = assembly.positions[place]
    if position < 0:
        return _KIND_STEPS.get(assembly.kinds[place], "injection")
    if assembly.unlimited and position == assembly.first_position:
        return "history_limit"
    return dict(assembly.covered_positions_included).get(position, "projection")


def _index_in_assembly(index: int, sent: SentRequest) -> int:
    """Where a message of the request stood before tailoring and hooks; -1 where it didn't."""
    return sent.kept[index] if index >= 0 and sent.kept is not None else index
