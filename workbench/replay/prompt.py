"""One call of a run, made again: exactly what the model would have received, and why (WB-RPL-12).

In: the conversation and configuration of a stored run. Out: a `Call`, or a `PromptDiff` of two. No request is
stored: the engine that made it makes it again, up to that call, and every row of the trace on the way there has to
be the stored one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from workbench.agent.flow import SentRequest
from workbench.build import billing_counter
from workbench.config import RunConfig
from workbench.context.project import KIND_SUMMARY
from workbench.errors import ReplayError
from workbench.model.chat_wire import BodyForm, chat_body
from workbench.model.types import Message, Request
from workbench.recordings.types import Conversation
from workbench.replay.cache import part_text
from workbench.replay.conversation import replay_conversation
from workbench.replay.explain import explain_check
from workbench.replay.meter import CallFacts, shared_messages
from workbench.replay.models import UNNAMED
from workbench.replay.trace import TABLES

StoredRows = Mapping[str, list[dict[str, Any]]]
"""Table -> its stored rows of one conversation."""

_WHOLE = BodyForm(sends_reasoning=True)


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a request, with what it is made of."""

    message: Message
    part: str
    """What it is: system, summary, history, tool result, current ...; with the compaction pass that rewrote it."""
    tokens: int
    """By the billing counter, without the overhead per message."""
    event_id: str
    """The event behind it; empty for what no event stands behind."""


@dataclass(frozen=True, slots=True)
class Call:
    """One model call of a run: its row, and exactly what the model would have received."""

    run: str
    """Name of the configuration."""
    run_id: str
    config: RunConfig
    row: dict[str, Any]
    """The row of the `calls` table."""
    request: Request
    sent: SentRequest
    model: str
    messages: tuple[PromptMessage, ...]
    checks: tuple[dict[str, Any], ...]
    """Trigger checks since the call before; without any, the last one before that."""

    @property
    def conversation(self) -> str:
        """Id of the conversation."""
        return str(self.row["conversation"])

    @property
    def index(self) -> int:
        """Number of the call in its conversation, from 0, as in reports."""
        return int(self.row["call"])

    @property
    def explanation(self) -> str:
        """What the trigger saw before this call: value, limit, reason and truth table of each check."""
        if self.checks:
            return "\n".join(map(explain_check, self.checks))
        makes_none = self.config.summarizer is None
        return "this configuration makes no summaries" if makes_none else "no trigger was checked before this call"

    def wire(self) -> dict[str, Any]:
        """The request as the body of a chat completion; reasoning texts are in it, since they are counted."""
        return chat_body(self.model, self.request, streams=False, form=_WHOLE)

    @property
    def digest(self) -> str:
        """sha256 of `wire()` as compact JSON with sorted keys: equal requests have equal ones."""
        text = json.dumps(self.wire(), ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values: the request as it goes over the wire, and what is known about it."""
        about = [{"part": m.part, "tokens": m.tokens, "event_id": m.event_id or None} for m in self.messages]
        return {
            "run_id": self.run_id,
            "config": self.run,
            "conversation": self.conversation,
            "call": self.index,
            "digest": self.digest,
            "request": self.wire(),
            "messages": about,
            "figures": self.row,
            "checks": list(self.checks),
            "explanation": self.explanation,
        }

    def diff(self, other: Call) -> PromptDiff:
        """What another request has instead: the same call under another configuration, or an earlier call."""
        return PromptDiff(self, other, tuple(_blocks(self.messages, other.messages)))

    def __repr__(self) -> str:
        n_messages, tokens = len(self.messages), self.row["prompt_tokens"]
        return f"Call({self.run}: {self.conversation}, call {self.index}, {n_messages} messages, {tokens:,} tokens)"

    def _repr_html_(self) -> str:
        from workbench.report.prompt import call_html

        return call_html(self)


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """A stretch of two requests: the same messages in both, or what one has in the place of the other's."""

    is_equal: bool
    before: range
    """Indexes in the first request."""
    after: range
    """Indexes in the second."""


@dataclass(frozen=True, slots=True)
class PromptDiff:
    """Two requests, message by message."""

    before: Call
    after: Call
    blocks: tuple[DiffBlock, ...]

    @property
    def is_empty(self) -> bool:
        """Both requests are the same."""
        return all(block.is_equal for block in self.blocks) and self.same_tools

    @property
    def same_tools(self) -> bool:
        """Both declare the same tools."""
        return self.before.request.tools == self.after.request.tools

    def tokens_of(self, block: DiffBlock) -> tuple[int, int]:
        """Tokens of a stretch in the first request and in the second."""
        before = sum(self.before.messages[i].tokens for i in block.before)
        return before, sum(self.after.messages[i].tokens for i in block.after)

    def as_dict(self) -> dict[str, Any]:
        """Names and index ranges as plain values."""
        return {
            "before": self.before.run,
            "after": self.after.run,
            "same_tools": self.same_tools,
            "blocks": [
                {
                    "equal": block.is_equal,
                    "before": [block.before.start, block.before.stop],
                    "after": [block.after.start, block.after.stop],
                    "tokens": list(self.tokens_of(block)),
                }
                for block in self.blocks
            ],
        }

    def __repr__(self) -> str:
        n_removed = sum(len(block.before) for block in self.blocks if not block.is_equal)
        n_added = sum(len(block.after) for block in self.blocks if not block.is_equal)
        return f"PromptDiff({self.before.run} -> {self.after.run}: -{n_removed} +{n_added} messages)"

    def _repr_html_(self) -> str:
        from workbench.report.prompt import diff_html

        return diff_html(self)


# Needed facts hang on the other conversations too, and don't change a request.
_OF_THE_CORPUS = frozenset({"needed_facts", "fact_chance"})


def call_made_again(
    conversation: Conversation,
    config: RunConfig,
    call: int,
    *,
    run_id: str,
    stored: StoredRows,
    cache_seed: Sequence[Sequence[str]] = (),
) -> Call:
    """Replay a conversation up to one call and give that call.

    Args:
        conversation: As the run names it.
        stored: What the run wrote down; the conversation and the call are in it.
        cache_seed: What the run's cache had seen of other conversations.
    Raises:
        ReplayError: what comes out isn't what the run wrote down.
    """
    found: list[SentRequest] = []

    def keep(facts: CallFacts, sent: SentRequest) -> None:
        if facts.call == call:
            found.append(sent)

    position = int(stored["conversations"][0]["position"])
    trace = replay_conversation(
        conversation, config, position=position, cache_seed=cache_seed, on_sent=keep, until_call=call
    )
    rows = {name: [row for row in stored[name] if row.get("call", 0) <= call] for name in TABLES}
    for name, made in trace.rows.items():
        if name in _OF_THE_CORPUS:
            continue
        fault = _first_difference(name, rows[name], made)
        if fault:
            raise ReplayError(
                f"call {call} of {conversation.id} in run {run_id} can't be made again: {fault}",
                hint="the recording or the engine has changed since: replay it anew (--fresh)",
            )
    sent = found[0]
    return Call(
        run=config.label(),
        run_id=run_id,
        config=config,
        row=rows["calls"][-1],
        request=sent.request,
        sent=sent,
        model=rows["calls"][-1]["model"] or UNNAMED,
        messages=tuple(_messages(sent, config)),
        checks=_checks_before(rows["checks"], call),
    )


def _first_difference(table: str, stored: Sequence[Mapping[str, Any]], made: Sequence[Sequence[object]]) -> str:
    """Where a table differs from the stored one, empty if nowhere; what a text says isn't told."""
    columns = TABLES[table].columns
    for n, (old, new) in enumerate(zip(stored, made, strict=False)):
        for column, value in zip(columns, new, strict=True):
            known = old[column.name]
            if not column.hashed or known == value or (isinstance(value, str) and known == _as_stored(value)):
                continue
            place = f"column {column.name} of row {n} of {table}"
            return f"{place} was {known:,}, now {value:,}" if _are_numbers(known, value) else f"{place} has changed"
    return "" if len(stored) == len(made) else f"table {table} had {len(stored)} rows up to there, now {len(made)}"


def _as_stored(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _are_numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _checks_before(checks: Sequence[dict[str, Any]], call: int) -> tuple[dict[str, Any], ...]:
    since = [row for row in checks if row["call"] == call]
    return tuple(since or checks[-1:])


def _messages(sent: SentRequest, config: RunConfig) -> Iterator[PromptMessage]:
    assembly, billing = sent.assembly, billing_counter(config)
    first, events = sent.session.first_position, sent.session.events
    summary_index = -1 if assembly.summary is None else assembly.summary.message_index
    for i, message in enumerate(sent.request.messages):
        source = i if sent.kept is None else sent.kept[i]
        part, event_id = "added", ""  # a hook's message, which no part of the assembly stands behind
        if source >= 0:
            part = assembly.kinds[source].replace("_", " ")
            if source == summary_index and part != KIND_SUMMARY:
                part += " + summary"
            rewrite = assembly.rewrite_at(source)
            if rewrite is not None:
                part += f", pass {rewrite.by_pass}"
            position = assembly.positions[source]
            event_id = events[position - first].id if position >= first else ""
        yield PromptMessage(message, part, billing.count_text(part_text(message)), event_id)


def _blocks(before: Sequence[PromptMessage], after: Sequence[PromptMessage]) -> Iterator[DiffBlock]:
    """Equal and different stretches in order; common ends are cut off first, since requests mostly share them."""
    old, new = tuple(m.message for m in before), tuple(m.message for m in after)
    head = shared_messages(old, new)
    tail = shared_messages(old[head:][::-1], new[head:][::-1])
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    opcodes = SequenceMatcher(None, middle_old, middle_new, autojunk=False).get_opcodes()
    if head:
        yield DiffBlock(is_equal=True, before=range(head), after=range(head))
    for tag, a, b, c, d in opcodes:
        yield DiffBlock(is_equal=tag == "equal", before=range(head + a, head + b), after=range(head + c, head + d))
    if tail:
        before_tail, after_tail = range(len(old) - tail, len(old)), range(len(new) - tail, len(new))
        yield DiffBlock(is_equal=True, before=before_tail, after=after_tail)
