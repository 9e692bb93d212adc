"""Logged requests, which repeat the history each time, chained back to conversations (WB-REC-04a).

In: exchanges, a request with its answer, in log order. Out: chains: the messages of one conversation, each
with the exchange that brought it. An exchange continues the chain whose messages, answer included, are the
longest start of its own; with a session id only chains of that session are looked at. A shorter or edited
history starts a new chain. Leading system messages aren't compared: many agents put the time there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.model.types import SYSTEM, Message, Usage
from workbench.recordings.draft import Draft
from workbench.recordings.problems import FaultyRecordError
from workbench.recordings.reading import Reading
from workbench.recordings.types import Conversation


@dataclass(frozen=True, slots=True)
class Exchange:
    """One logged request with its answer."""

    line: int
    session_id: str
    messages: tuple[Message, ...]
    answer: Message | None
    usage: Usage | None = None
    model: str = ""
    answer_id: str = ""
    finish_reason: str = ""
    time_ns: int | None = None
    answered_ns: int | None = None
    """When the answer was there, if the log knows both times."""
    extensions: Mapping[str, Any] | None = None
    """What else the answer reported."""
    source: Any = None
    """The row, for whoever builds the conversation."""


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """One message of a chain and the exchange that brought it."""

    message: Message
    exchange: Exchange
    is_answer: bool
    """It's the answer of that exchange, not part of its history."""


@dataclass(slots=True)
class Chain:
    """One conversation put together from exchanges."""

    messages: list[LoggedMessage]
    first: Exchange
    last: Exchange
    n_exchanges: int = 1
    instructions: set[str] = field(default_factory=set)

    def draft(self, reading: Reading) -> Draft:
        """All messages, each answer with what its own exchange reported.

        Raises:
            FaultyRecordError: they don't make a conversation.
        """
        draft = Draft(reading, line=self.first.line)
        for logged in self.messages:
            exchange = logged.exchange
            if not logged.is_answer:
                draft.add(logged.message, line=exchange.line, time_ns=exchange.time_ns)
                continue
            draft.add(
                logged.message,
                line=exchange.line,
                time_ns=exchange.answered_ns or exchange.time_ns,
                usage=exchange.usage,
                model=exchange.model,
                answer_id=exchange.answer_id,
                finish_reason=exchange.finish_reason,
                extensions=exchange.extensions,
            )
        return draft


Build = Callable[[Chain, Reading], Conversation]


def _key(message: Message) -> str:
    """What must be equal: clients don't send back reasoning, and give calls other extras."""
    calls = tuple((call.id, call.name, call.arguments) for call in message.tool_calls)
    return repr((message.role, message.content, message.content_parts, message.tool_id, calls))


def _prefixes(messages: Sequence[Message]) -> Iterator[bytes]:
    """A digest of each prefix, the empty one first."""
    digest = hashlib.blake2b(digest_size=16)
    yield digest.digest()
    for message in messages:
        digest.update(_key(message).encode("utf-8", "surrogatepass"))
        yield digest.digest()


class RequestLog:
    """The chains of one file."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._chains: list[Chain] = []
        self._ends: dict[tuple[str, bytes], Chain] = {}
        """Chains by session id and by digest of all their messages."""

    def take(self, exchange: Exchange) -> None:
        """Continue a chain, or start one."""
        leading, history = split_leading_system(exchange.messages)
        whole = history if exchange.answer is None else (*history, exchange.answer)
        prefixes = list(_prefixes(whole))
        session = exchange.session_id
        for length in range(len(history), 0, -1):
            chain = self._ends.pop((session, prefixes[length]), None)
            if chain is not None:
                break
        else:
            length = 0
            chain = Chain([], exchange, exchange, 0)
            self._chains.append(chain)
        chain.messages += [
            LoggedMessage(message, exchange, position == len(history))
            for position, message in enumerate(whole[length:], length)
        ]
        chain.last = exchange
        chain.n_exchanges += 1
        chain.instructions.add("\n\n".join(message.content for message in leading))
        self._ends[session, prefixes[-1]] = chain

    def conversations(self, build: Build) -> Iterator[Conversation]:
        """The conversations, in the order of their first exchange."""
        for chain in self._chains:
            leading, _ = split_leading_system(chain.last.messages)
            chain.messages[:0] = [LoggedMessage(message, chain.first, False) for message in leading]
            try:
                conversation = build(chain, self._reading)
            except FaultyRecordError as fault:
                fault.line = fault.line or chain.first.line
                self._reading.refuse(fault)
                continue
            if chain.n_exchanges > 1:
                self._reading.lose("logged requests chained to conversations", chain.n_exchanges)
            if len(chain.instructions) > 1:
                self._reading.lose("conversations whose instruction changed; the last one is kept")
            if chain.first.session_id and chain.first.session_id != conversation.id:
                self._reading.lose("branches of a session (shorter or edited history), kept as conversations")
            yield conversation


def split_leading_system(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The system messages at the start, and the rest."""
    start = next((i for i, message in enumerate(messages) if message.role != SYSTEM), len(messages))
    return messages[:start], messages[start:]
