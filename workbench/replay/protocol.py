"""The protocol check: would a provider take this request (WB-RPL-18)?

In: the messages of a request, the running turn, what the model insists on. Out: the violations, each with the
index of its message. Pure. `violations_of` looks at a whole request; `ProtocolChecker` gives the same answer for
one request after the other, looking only at what stands behind the messages that two requests share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from workbench.model.types import ASSISTANT, SYSTEM, TOOL, USER, Message

PROTOCOL_RULES = {
    "unanswered_call": "a call has no result directly behind it",
    "stray_result": "a result answers no call of the assistant message in front of it, or one that has its result",
    "empty_message": "a message says nothing",
    "first_role": "the first message behind the system message has a role that the model refuses there",
    "second_system": "a system message stands elsewhere than in front, and the model takes only one there",
    "no_current_message": "the user message that this call answers is missing",
    "open_call_covered": "the summary covers a call that still waits for its result",
}


@dataclass(frozen=True, slots=True)
class ModelRules:
    """What a model insists on beyond what every provider does."""

    user_first: bool = False
    """Behind the system message stands a user message; otherwise an assistant's may stand there too."""
    single_system: bool = False
    """One system message, in front of everything."""

    def allows_first(self, role: str) -> bool:
        """A conversation may begin with this role."""
        return role == USER or (role == ASSISTANT and not self.user_first)


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """What a request is for."""

    message: Message
    """The user message that is being answered; one without payload asks for nothing."""
    open_calls: tuple[str, ...] = ()
    """Ids of calls that wait for a result although the summary in the request covers them."""


@dataclass(frozen=True, slots=True, order=True)
class ProtocolViolation:
    """One fault of a request."""

    message: int
    """Index of the message; -1 when it's about something that isn't there."""
    rule: str
    """A key of `PROTOCOL_RULES`."""
    detail: str = ""
    """The call id, or the role."""


def violations_of(
    messages: Sequence[Message], turn: RunningTurn, rules: ModelRules = ModelRules()
) -> tuple[ProtocolViolation, ...]:
    """All faults of one request, in order."""
    return ProtocolChecker(rules).check(messages, turn)


def holds(message: Message, current: Message) -> bool:
    """The message is the current one, perhaps with a block in front of its text or names in front of its parts."""
    if message is current:
        return True
    if not message.is_user_like:
        return False
    text, parts = current.content, current.content_parts
    if text and not message.content.endswith(text):
        return False
    return not parts or message.content_parts[-len(parts) :] == parts


def is_empty(message: Message) -> bool:
    """The message carries nothing; the result of a tool may be an empty text."""
    if message.role == TOOL:
        return False
    return not (message.has_payload or message.tool_calls)


@dataclass(slots=True)
class ProtocolChecker:
    """Checks the requests of one conversation, in order."""

    rules: ModelRules = field(default_factory=ModelRules)
    _messages: list[Message] = field(default_factory=list)
    _faults: list[ProtocolViolation] = field(default_factory=list)
    """Faults that depend on nothing but the messages up to the round they stand in."""
    _first: int = -1
    """Index of the first message that isn't a system message, -1 without any."""
    _current: Message | None = None
    _held_at: int = -1
    """Where the current message was seen last, -1 when it wasn't."""

    def check(self, new: Sequence[Message], turn: RunningTurn, *, n_shared: int = 0) -> tuple[ProtocolViolation, ...]:
        """All faults of the next request.

        Args:
            new: Its messages behind those that it shares with the request before.
            n_shared: How many those are.
        """
        messages = self._messages
        messages[n_shared:] = new
        start = _start_of_round(messages, n_shared)
        del self._faults[bisect_left(self._faults, start, key=lambda fault: fault.message) :]
        if self._first >= start:
            self._first = -1
        if turn.message is not self._current or self._held_at >= start:
            self._current, self._held_at = turn.message, -1
        self._scan(start)
        found = [*self._faults]
        if self._first >= 0 and not self.rules.allows_first(messages[self._first].role):
            found.append(ProtocolViolation(self._first, "first_role", messages[self._first].role))
        if turn.message.has_payload and not self._is_held():
            found.append(ProtocolViolation(-1, "no_current_message"))
        found += [ProtocolViolation(-1, "open_call_covered", call_id) for call_id in turn.open_calls]
        return tuple(sorted(found))

    def _is_held(self) -> bool:
        """The current message is in; an earlier request may have had an equal one, so all are looked at."""
        if self._held_at < 0:
            assert self._current is not None
            for i in range(len(self._messages) - 1, -1, -1):
                if holds(self._messages[i], self._current):
                    self._held_at = i
                    break
        return self._held_at >= 0

    def _scan(self, start: int) -> None:
        messages, faults, current = self._messages, self._faults, self._current
        end = len(messages)
        i = start
        while i < end:
            message = messages[i]
            role = message.role
            if role == SYSTEM:
                if i and self.rules.single_system:
                    faults.append(ProtocolViolation(i, "second_system"))
            elif self._first < 0:
                self._first = i
            if is_empty(message):
                faults.append(ProtocolViolation(i, "empty_message", role))
            if message is current:
                self._held_at = i
            if role == TOOL:
                faults.append(ProtocolViolation(i, "stray_result", message.tool_id))
            i += 1
            if message.tool_calls and role == ASSISTANT:
                i = self._scan_round(i, message)

    def _scan_round(self, start: int, caller: Message) -> int:
        """The results behind a message with calls; the index behind them."""
        messages = self._messages
        waiting = [call.id for call in caller.tool_calls]
        strays = []
        i = start
        while i < len(messages) and messages[i].role == TOOL:
            tool_id = messages[i].tool_id
            if tool_id and tool_id in waiting:
                waiting.remove(tool_id)
            else:
                strays.append(ProtocolViolation(i, "stray_result", tool_id))
            i += 1
        self._faults += [ProtocolViolation(start - 1, "unanswered_call", call_id) for call_id in waiting]
        self._faults += strays
        return i


def _start_of_round(messages: Sequence[Message], index: int) -> int:
    """Where the round begins that a message at this index may belong to."""
    while index and messages[index - 1].role == TOOL:
        index -= 1
    return index - 1 if index and messages[index - 1].tool_calls else index
