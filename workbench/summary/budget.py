"""Making a summary request fit the summary model (SUM-FIT, section 10).

In: a request and a budget in tokens. Out: a request that fits, and how much of the source it lacks; or
`SummaryInputTooLargeError`. Policy "bounded" cuts the source and says so; policy "lossless" never cuts the
conversation and summarizes an older, complete part of it instead.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from workbench.call import CallContext
from workbench.errors import SummaryInputTooLargeError
from workbench.model.client import BudgetedModel, Model
from workbench.model.types import SYSTEM, USER, Choice, Message, Request, ToolSpec
from workbench.model.windows import resolve_context_window
from workbench.session.types import Event
from workbench.summary.fork import (
    payload_chars,
    source_chars,
    with_message,
    with_payload_omitted,
    without_oldest_round,
)
from workbench.tokens import TokenCounter
from workbench.wording import CONVERSATION_CUT, PREVIOUS_SUMMARY_CUT

INPUT_SHARE = 0.7
"""Share of the summary model's window that its input may take (SUM-FIT-02)."""
RETRY_SHARE = 0.5
"""Share of the first budget that a retry may take (SUM-CALL-03)."""

OverflowPolicy = Literal["bounded", "lossless"]
BuildStandalone = Callable[["SourceText"], Request]


class SourceText(NamedTuple):
    """The two payloads of a standalone request."""

    conversation: str = ""
    previous: str = ""

    @property
    def n_chars(self) -> int:
        return len(self.conversation) + len(self.previous)


class SourceTooLargeError(SummaryInputTooLargeError):
    """The conversation alone doesn't fit and may not be cut; a complete part of it might fit."""


@dataclass(slots=True)
class Source:
    """What one summary is made of; a complete-prefix fallback makes it shorter."""

    text: SourceText
    boundary_event: Event | None
    """The event that a new boundary will name."""
    events: Sequence[Event] = ()
    """The events behind the conversation text."""
    event_texts: Sequence[str] = ()
    """The conversation text of each event."""
    may_shorten: bool = False
    """A part of the events may be summarized instead of all (SUM-FIT-22)."""

    def shorten(self, n_events: int) -> None:
        """Keep the first `n_events` only; the boundary moves to their end."""
        self.events = self.events[:n_events]
        self.event_texts = self.event_texts[:n_events]
        self.boundary_event = self.events[-1]
        self.text = SourceText(joined_texts(self.event_texts), self.text.previous)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request that fits, and what it lacks."""

    request: Request
    dropped_chars: int = 0
    dropped_rounds: int = 0


@dataclass(frozen=True, slots=True)
class Estimator:
    """Token estimates of requests by one counter, which may also be a coroutine one (SUM-FIT-04)."""

    counter: TokenCounter
    ctx: CallContext

    async def message(self, message: Message) -> int:
        """Tokens of one message."""
        tokens = self.counter.count_tokens(self.ctx, message)
        return await tokens if inspect.isawaitable(tokens) else tokens

    async def messages(self, messages: Sequence[Message]) -> int:
        """Tokens of all messages."""
        if not messages:
            return 0
        tokens = self.counter.count_tokens_range(self.ctx, messages, 0, len(messages))
        return await tokens if inspect.isawaitable(tokens) else tokens

    async def request(self, request: Request) -> int:
        """Tokens of the messages plus, in name order, of each tool's declaration as a system message."""
        total = await self.messages(request.messages)
        for tool in sorted(request.tools, key=lambda tool: tool.name):
            total += await self.message(Message(role=SYSTEM, content=declaration_text(tool)))
        return total

    async def messages_or_sum(self, messages: Sequence[Message]) -> int:
        """Tokens of all messages for a report, where a failing range call falls back to single ones."""
        try:
            return await self.messages(messages)
        except Exception:  # the figure is informative only
            try:
                return sum([await self.message(message) for message in messages])
            except Exception:
                return 0


def declaration_text(tool: ToolSpec) -> str:
    """The JSON declaration of a tool: the source's own text, else name, description and schema, compact."""
    if tool.declaration_json:
        return tool.declaration_json
    declaration = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": _json_or_text(tool.parameters_json),
    }
    if tool.output_json:
        declaration["outputSchema"] = _json_or_text(tool.output_json)
    return json.dumps(declaration, ensure_ascii=False, separators=(",", ":"))


def _json_or_text(text: str) -> object:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def input_budget(model: Model, request: Request) -> int:
    """Tokens that a request's input may take: 70 % of the window, or less if the model says so (SUM-FIT-02)."""
    budget = int(INPUT_SHARE * resolve_context_window(model=model))
    if isinstance(model, BudgetedModel):
        own = model.input_token_budget(request.replace(tools=()))
        budget = min(budget, own) if own > 0 else budget
    return max(budget, 1)


# --- cutting texts ----------------------------------------------------------------------------------------


def head_and_tail(text: str, n_chars: int, *, marker: str) -> str:
    """The first and last characters of a text with a marker line between, `n_chars` of it kept (SUM-FIT-08)."""
    if n_chars >= len(text):
        return text
    if n_chars <= 0:
        return ""
    n_tail = n_chars // 2
    return f"{text[: n_chars - n_tail]}\n{marker}\n{text[len(text) - n_tail :]}"


def cut_source(source: SourceText, n_chars: int) -> SourceText:
    """Both payloads cut in proportion to `n_chars` in all; a single character goes to the conversation
    (SUM-FIT-13)."""
    if n_chars >= source.n_chars:
        return source
    if not source.conversation:
        return SourceText(previous=head_and_tail(source.previous, n_chars, marker=PREVIOUS_SUMMARY_CUT))
    n_previous = 0
    if source.previous and n_chars > 1:
        n_previous = max(1, n_chars * len(source.previous) // source.n_chars)
    return SourceText(
        head_and_tail(source.conversation, n_chars - n_previous, marker=CONVERSATION_CUT),
        head_and_tail(source.previous, n_previous, marker=PREVIOUS_SUMMARY_CUT),
    )


def joined_texts(texts: Sequence[str]) -> str:
    """The conversation text of several events, from their own texts."""
    return "\n".join(text for text in texts if text)


# --- fitting ----------------------------------------------------------------------------------------------


async def largest_that_fits(
    low: int, high: int, candidate: Callable[[int], Awaitable[Fitted | None]]
) -> tuple[int, Fitted] | None:
    """The largest number in `low..high` for which `candidate` gives a request; binary search."""
    best: tuple[int, Fitted] | None = None
    while low <= high:
        middle = (low + high) // 2
        fitted = await candidate(middle)
        if fitted is not None:
            best, low = (middle, fitted), middle + 1
        else:
            high = middle - 1
    return best


@dataclass(slots=True)
class Fitter:
    """Fits one summary's requests under one policy."""

    estimator: Estimator
    policy: OverflowPolicy
    standalone: BuildStandalone
    _drops_rounds: bool = field(init=False)

    def __post_init__(self) -> None:
        self._drops_rounds = self.policy == "bounded"

    async def _fits(self, request: Request, budget: int) -> bool:
        return await self.estimator.request(request) <= budget

    async def fit_fork(self, request: Request, budget: int) -> Fitted | None:
        """The fork, made smaller step by step until it fits; None when it can't (SUM-FIT-10, -20)."""
        if await self._fits(request, budget):
            return Fitted(request)
        fitted = Fitted(request.replace(tools=()))
        if await self._fits(fitted.request, budget):
            return fitted
        while self._drops_rounds and (shorter := without_oldest_round(fitted.request)) is not None:
            dropped_chars = source_chars(fitted.request.messages) - source_chars(shorter.messages)
            fitted = Fitted(shorter, fitted.dropped_chars + dropped_chars, fitted.dropped_rounds + 1)
            if await self._fits(shorter, budget):
                return fitted
        for index, replacement in await self._omissions(fitted.request.messages):
            chars = fitted.dropped_chars + payload_chars(fitted.request.messages[index])
            fitted = replace(fitted, request=with_message(fitted.request, index, replacement), dropped_chars=chars)
            if await self._fits(fitted.request, budget):
                return fitted
        return None

    async def _omissions(self, messages: Sequence[Message]) -> list[tuple[int, Message]]:
        """Messages that get smaller without their payload, the largest saving first (SUM-FIT-07)."""
        found: list[tuple[int, int, Message]] = []
        for index, message in enumerate(messages):
            replacement = with_payload_omitted(message)
            if replacement is None:
                continue
            saved = await self.estimator.message(message) - await self.estimator.message(replacement)
            if saved > 0:
                found.append((saved, index, replacement))
        found.sort(key=lambda item: -item[0])
        return [(index, replacement) for _, index, replacement in found]

    async def fit_standalone(self, source: SourceText, budget: int) -> Fitted:
        """A standalone request that fits (SUM-FIT-12, -21).

        Raises:
            SourceTooLargeError: policy "lossless" and the conversation doesn't fit whole.
            SummaryInputTooLargeError: nothing of the source fits.
        """
        whole = self.standalone(source)
        if await self._fits(whole, budget):
            return Fitted(whole)
        if self.policy == "bounded":
            return await self._cut_both(source, budget)
        return await self._cut_previous(source, budget)

    async def _cut_both(self, source: SourceText, budget: int) -> Fitted:
        fixed_tokens = await self.estimator.request(self.standalone(SourceText()))
        if fixed_tokens >= budget:
            raise SummaryInputTooLargeError(
                f"the summary prompt alone needs {fixed_tokens} tokens, the budget is {budget}",
                hint="shorten the prompt or take a summary model with a larger window",
            )
        best = await largest_that_fits(
            1, source.n_chars, lambda n: self._candidate(cut_source(source, n), n, source, budget)
        )
        if best is None:
            raise SummaryInputTooLargeError(
                f"not one character of the source fits beside the prompt, the budget is {budget} tokens",
                hint="shorten the prompt or take a summary model with a larger window",
            )
        return best[1]

    async def _cut_previous(self, source: SourceText, budget: int) -> Fitted:
        bare = source._replace(previous="")
        request = self.standalone(bare)
        tokens = await self.estimator.request(request)
        if tokens > budget:
            raise SourceTooLargeError(
                f"the conversation alone needs {tokens} tokens, the budget is {budget}",
                hint="summarize more often, or take a summary model with a larger window",
            )
        best = await largest_that_fits(
            1,
            len(source.previous),
            lambda n: self._candidate(
                bare._replace(previous=head_and_tail(source.previous, n, marker=PREVIOUS_SUMMARY_CUT)),
                len(source.conversation) + n,
                source,
                budget,
            ),
        )
        return best[1] if best is not None else Fitted(request, dropped_chars=len(source.previous))

    async def _candidate(self, cut: SourceText, n_kept: int, source: SourceText, budget: int) -> Fitted | None:
        request = self.standalone(cut)
        if not await self._fits(request, budget):
            return None
        return Fitted(request, dropped_chars=source.n_chars - n_kept)

    async def fit_prefix(self, source: Source, budget: int) -> Fitted | None:
        """The longest complete prefix that fits, the shortest tried first; shortens `source` to it
        (SUM-FIT-22, -24). None when no prefix fits."""
        ends = prefix_ends(source.events, source.event_texts)

        async def candidate(choice: int) -> Fitted | None:
            text = source.text._replace(conversation=joined_texts(source.event_texts[: ends[choice]]))
            try:
                return await self.fit_standalone(text, budget)
            except SourceTooLargeError:
                return None

        shortest = await candidate(0) if ends else None
        if shortest is None:
            return None
        best = await largest_that_fits(1, len(ends) - 1, candidate) or (0, shortest)
        source.shorten(ends[best[0]])
        return best[1]


# --- complete prefixes ------------------------------------------------------------------------------------


def prefix_ends(events: Sequence[Event], texts: Sequence[str]) -> list[int]:
    """Lengths of prefixes after which a raw tail may start: no response and no tool round is split, and each
    adds text over the one before (SUM-FIT-23)."""
    ends: list[int] = []
    pending: set[str] = set()
    seen: set[str] = set()
    has_new_text = False
    for index, event in enumerate(events[:-1]):
        has_new_text = has_new_text or bool(texts[index])
        call_ids = _call_ids(event)
        if "" in call_ids or len(set(call_ids)) < len(call_ids) or not seen.isdisjoint(call_ids):
            break  # a later result could belong to either call, so nothing behind this is sure
        seen.update(call_ids)
        pending.update(call_ids)
        pending.difference_update(message.tool_id for message in _both_messages(event))
        if has_new_text and not pending and not call_ids and _may_end(event, events[index + 1]):
            ends.append(index + 1)
            has_new_text = False
    return ends


def _may_end(event: Event, following: Event) -> bool:
    response = event.response
    if response is None or not event.id or not event.time_ns or response.is_partial or not response.is_valid_content:
        return False
    speakers = {event.author, *(message.role for message in _both_messages(event))}
    if speakers & {USER, SYSTEM}:
        return False
    return not response.id or following.response is None or following.response.id != response.id


def _both_messages(event: Event) -> list[Message]:
    choices: tuple[Choice, ...] = event.response.choices if event.response is not None else ()
    return [message for choice in choices for message in (choice.message, choice.delta)]


def _call_ids(event: Event) -> list[str]:
    return [call.id for message in _both_messages(event) for call in message.tool_calls]
