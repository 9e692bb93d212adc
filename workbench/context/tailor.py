"""Token tailoring: the last resort, dropping whole rounds until a request fits its budget.

In: the messages of a request (or an `Assembly`), a budget in tokens. Out: a `Tailored`: what is sent, and
which message each one was. Implements ASM-TLR (section 10). Every strategy drops one contiguous block of
rounds, so prefix sums and a binary search find it; sums are kept per lane and grow with it, so that a
request that grew by two messages costs two counts.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from workbench.call import CallContext
from workbench.context.assemble import Assembly, Piece
from workbench.context.counting import TokenMemo
from workbench.context.project import Lane
from workbench.context.settings import TailoringSettings
from workbench.errors import ConfigError, TokenTailoringOverflowError, nearest_name
from workbench.model.types import ASSISTANT, ROLES, SYSTEM, TOOL, USER, Message, Request, ToolSpec
from workbench.model.windows import lookup_model_context_window, lookup_model_output_cap
from workbench.tokens import TokenCounter

FALLBACK_WINDOW_TOKENS = 128_000
_BLANK = " "

DroppedBlock = Callable[[int, int], tuple[int, int]]
"""(older rounds, rounds to keep of them) -> half-open range of the rounds that go."""


# --- the budget (ASM-TLR-02 to -05) -------------------------------------------------------------------


def window_for_tailoring(model_name: str, instance_window: int, *, run_window: int = 0) -> int:
    """The window that tailoring goes by: run (only if the caller gives it, DA5), instance, registry, 128000."""
    for window in (run_window, instance_window, lookup_model_context_window(model_name) or 0):
        if window > 0:
            return window
    return FALLBACK_WINDOW_TOKENS


def input_token_budget(
    settings: TailoringSettings,
    request: Request,
    *,
    window: int,
    model_name: str = "",
    counter: TokenCounter | TokenMemo | None = None,
) -> int:
    """Tokens that the messages of a request may take; 0 when the window is too small for any.

    Source: ASM-TLR-02.
    """
    reserve = max(settings.reserve_output_tokens, _wanted_output(request, model_name))
    margin = int(window * settings.safety_margin_ratio)
    most = max(window - reserve - settings.protocol_overhead_tokens - margin, 0)
    if settings.max_input_tokens > 0:
        return min(settings.max_input_tokens, most)
    automatic = max(min(most, int(window * settings.max_input_tokens_ratio)), settings.input_tokens_floor)
    budget = min(automatic, most)
    return max(budget - tool_schema_tokens(request.tools, counter), 0) if request.tools else budget


def _wanted_output(request: Request, model_name: str) -> int:
    config = request.generation_config
    wanted = config.max_tokens or 0
    if wanted < 1:
        wanted = 0
    cap = lookup_model_output_cap(model_name) if wanted else None
    return max(min(wanted, cap) if cap else wanted, config.thinking_tokens or 0)


def tool_schema_tokens(tools: Sequence[ToolSpec], counter: TokenCounter | TokenMemo | None = None) -> int:
    """Tokens of the tools' declarations as JSON text."""
    if not tools:
        return 0
    text = "[" + ",".join(tool.declaration_json or _declaration(tool) for tool in tools) + "]"
    return _memo_of(counter).tokens_or_estimate(Message(role=USER, content=text))


def _declaration(tool: ToolSpec) -> str:
    fields = [f'"name":{json.dumps(tool.name)}', f'"description":{json.dumps(tool.description, ensure_ascii=False)}']
    if tool.parameters_json:
        fields.append(f'"parameters":{tool.parameters_json}')
    return "{" + ",".join(fields) + "}"


def _memo_of(counter: TokenCounter | TokenMemo | None) -> TokenMemo:
    return counter if isinstance(counter, TokenMemo) else TokenMemo(counter)


# --- the validator (ASM-TLR-20) -----------------------------------------------------------------------


def valid_form(message: Message) -> Message | None:
    """The form of a message that any provider takes: None for unknown roles and for empty messages."""
    if message.role not in ROLES:
        return None
    if message.content:
        return message
    # A tool may answer with an empty text. Its call stays, so its result has to stay too (ASM-TLR-08).
    is_answer = message.role == TOOL and bool(message.tool_id)
    if message.content_parts or message.tool_calls or message.reasoning_content or is_answer:
        return replace(message, content=_BLANK)
    return None


def validate_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A list that strict providers take: starts with a user message behind the system ones, ends with user or
    tool."""
    forms = [form for message in messages if (form := valid_form(message)) is not None]
    first = next((i for i, form in enumerate(forms) if form.role == USER), len(forms))
    forms = [form for form in forms[:first] if form.role == SYSTEM] + forms[first:]
    while forms and forms[-1].role not in (USER, TOOL):
        forms.pop()
    return tuple(forms)


# --- measuring ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Measure:
    """Prefix sums and landmarks of one lane, extended as the lane grows."""

    lane: Lane
    memo: TokenMemo
    raw: list[int] = field(default_factory=lambda: [0])
    """Tokens of the first i messages."""
    valid: list[Message] = field(default_factory=list)
    """The messages that survive validation, in valid form."""
    valid_sources: list[int] = field(default_factory=list)
    valid_before: list[int] = field(default_factory=lambda: [0])
    """How many of the first i messages survive."""
    valid_sum: list[int] = field(default_factory=lambda: [0])
    """Tokens of the first i survivors."""
    valid_users: list[int] = field(default_factory=list)
    """Which survivors are user messages."""
    valid_changed: list[int] = field(default_factory=list)
    """Which survivors needed another form."""
    users: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """User messages whose previous message in the lane, system ones aside, isn't a user's."""
    assistants: list[int] = field(default_factory=list)
    _after_user: bool = False

    def catch_up(self) -> Measure:
        """Take in the messages that the lane got since the last time."""
        messages = self.lane.messages
        for i in range(len(self.raw) - 1, len(messages)):
            message = messages[i]
            tokens = self.memo.tokens_or_estimate(message)
            self.raw.append(self.raw[-1] + tokens)
            form = valid_form(message)
            if form is not None:
                if form.role == USER:
                    self.valid_users.append(len(self.valid))
                if form is not message:
                    self.valid_changed.append(len(self.valid))
                self.valid.append(form)
                self.valid_sources.append(i)
                n_tokens = tokens if form is message else self.memo.tokens_or_estimate(form)
                self.valid_sum.append(self.valid_sum[-1] + n_tokens)
            self.valid_before.append(len(self.valid))
            role = message.role
            if role == USER:
                self.users.append(i)
                if not self._after_user:
                    self.starts.append(i)
            elif role == ASSISTANT:
                self.assistants.append(i)
            if role != SYSTEM:
                self._after_user = role == USER
        return self


def _measure_of(lane: Lane, memo: TokenMemo) -> Measure:
    measure = lane.measure
    if not isinstance(measure, Measure) or measure.memo.counter is not memo.counter:
        measure = lane.measure = Measure(lane, memo)
    return measure.catch_up()


@dataclass(slots=True)
class _Stretch:
    """A piece of the request behind the head: where it lies and which rounds start in it."""

    measure: Measure
    start: int
    stop: int
    tokens_before: int
    """Raw tokens of the request in front of this piece."""
    index_before: int
    starts: list[int]
    first_start: int
    """Where this piece's own starts begin in `starts`."""
    n_starts: int
    leading_start: int
    """A start that isn't in `starts`, because the lane alone doesn't know what stands before it; -1 = none."""

    def start_at(self, k: int) -> int:
        """Lane index of the k-th round start of this piece."""
        if self.leading_start >= 0:
            return self.leading_start if k == 0 else self.starts[self.first_start + k - 1]
        return self.starts[self.first_start + k]


@dataclass(slots=True)
class _Layout:
    """A measured request: head, and pieces with their rounds."""

    pieces: Sequence[Piece]
    stretches: list[_Stretch] = field(default_factory=list)
    head: list[_Stretch] = field(default_factory=list)
    head_tokens: int = 0
    total_tokens: int = 0
    n_messages: int = 0
    n_rounds: int = 0

    def tokens_before_round(self, k: int) -> int:
        """Raw tokens in front of round k; `n_rounds` means the whole request."""
        for stretch in self.stretches:
            if k < stretch.n_starts:
                raw = stretch.measure.raw
                return stretch.tokens_before + raw[stretch.start_at(k)] - raw[stretch.start]
            k -= stretch.n_starts
        return self.total_tokens

    def place_of_round(self, k: int) -> tuple[int, int]:
        """(index of the stretch, lane index) at which round k starts; the end for `n_rounds`."""
        for i, stretch in enumerate(self.stretches):
            if k < stretch.n_starts:
                return i, stretch.start_at(k)
            k -= stretch.n_starts
        return len(self.stretches), 0


def _lay_out(pieces: Sequence[Piece], memo: TokenMemo) -> _Layout:
    layout = _Layout(pieces)
    in_head = True
    measures = [_measure_of(piece.lane, memo) for piece in pieces]
    for (lane, start, stop), measure in zip(pieces, measures, strict=True):
        raw = measure.raw
        if in_head:
            end = start
            while end < stop and lane.messages[end].role == SYSTEM:
                end += 1
            if end > start:
                layout.head.append(_stretch(measure, start, end, layout))
                layout.total_tokens += raw[end] - raw[start]
                layout.n_messages += end - start
            if end == stop:
                continue
            in_head = False
            layout.head_tokens = layout.total_tokens
            start = end
        layout.stretches.append(_stretch(measure, start, stop, layout))
        layout.total_tokens += raw[stop] - raw[start]
        layout.n_messages += stop - start
    if in_head:
        layout.head_tokens = layout.total_tokens
    _mark_rounds(layout)
    return layout


def _stretch(measure: Measure, start: int, stop: int, layout: _Layout) -> _Stretch:
    return _Stretch(measure, start, stop, layout.total_tokens, layout.n_messages, [], 0, 0, -1)


def _mark_rounds(layout: _Layout) -> None:
    """Find the rounds of every stretch (ASM-TLR-07)."""
    has_assistant = any(
        _count_between(stretch.measure.assistants, stretch.start, stretch.stop) for stretch in layout.stretches
    )
    after_user = False
    for stretch in layout.stretches:
        measure, messages = stretch.measure, stretch.measure.lane.messages
        if not has_assistant:  # then every user message is a round of its own
            stretch.starts = measure.users
            stretch.first_start = bisect_left(measure.users, stretch.start)
            stretch.n_starts = _count_between(measure.users, stretch.start, stretch.stop)
            layout.n_rounds += stretch.n_starts
            continue
        first = stretch.start
        while first < stretch.stop and messages[first].role == SYSTEM:
            first += 1
        if first == stretch.stop:
            continue
        # Whether the first message starts a round depends on the piece before, so it's taken by itself.
        if messages[first].role == USER and not after_user:
            stretch.leading_start = first
        stretch.starts = measure.starts
        stretch.first_start = bisect_left(measure.starts, first + 1)
        stretch.n_starts = _count_between(measure.starts, first + 1, stretch.stop) + (stretch.leading_start >= 0)
        layout.n_rounds += stretch.n_starts
        last = stretch.stop - 1
        while messages[last].role == SYSTEM:
            last -= 1
        after_user = messages[last].role == USER


def _count_between(ascending: Sequence[int], start: int, stop: int) -> int:
    return bisect_left(ascending, stop) - bisect_left(ascending, start)


# --- strategies ---------------------------------------------------------------------------------------


def _middle_block(n_older: int, n_kept: int) -> tuple[int, int]:
    """Dropping `older[len(older) // 2]` again and again leaves as many in front as behind, one more in front."""
    if n_kept == n_older:
        return n_older, n_older
    left = (n_kept + 1) // 2
    return left, n_older - (n_kept - left)


def _head_block(n_older: int, n_kept: int) -> tuple[int, int]:
    return 0, n_older - n_kept


def _tail_block(n_older: int, n_kept: int) -> tuple[int, int]:
    return n_kept, n_older


@dataclass(slots=True)
class Tailored:
    """The messages that are sent, and where each came from."""

    max_tokens: int
    tokens_before: int
    """Tokens of the messages as they came."""
    tokens: int
    """Tokens of the messages as they go."""
    n_rounds_dropped: int = 0
    overflow: TokenTailoringOverflowError | None = None
    """Set when even the smallest context is over the budget; the messages are that context (ASM-TLR-11)."""
    kept_original: bool = False
    """There was nothing left to send, so the messages are those that came (ASM-TLR-12)."""
    n_before: int = 0
    """How many messages came."""
    parts: tuple[tuple[Measure, int, int, int], ...] = ()
    """(measure, first survivor, end, index of the lane's first message in the request) in order."""
    _messages: tuple[Message, ...] | None = None
    _kept: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self._messages) if self._messages is not None else sum(b - a for _, a, b, _ in self.parts)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is sent."""
        if self._messages is None:
            out: list[Message] = []
            for measure, a, b, _ in self.parts:
                out += measure.valid[a:b]
            self._messages = tuple(out)
        return self._messages

    @property
    def kept(self) -> tuple[int, ...]:
        """Index, in the messages that came, of each message that goes."""
        if self._kept is None:
            self._kept = tuple(
                source + offset for measure, a, b, offset in self.parts for source in measure.valid_sources[a:b]
            )
        return self._kept

    @property
    def is_unchanged(self) -> bool:
        """What goes is what came."""
        if self.kept_original:
            return True
        return len(self) == self.n_before and not any(
            _count_between(measure.valid_changed, a, b) for measure, a, b, _ in self.parts
        )

    def keep_all(self, messages: tuple[Message, ...]) -> None:
        """Send what came after all."""
        self.kept_original = True
        self.tokens = self.tokens_before
        self._messages = messages
        self._kept = tuple(range(len(messages)))


class TailoringStrategy(Protocol):
    """Makes a message list fit."""

    def tailor(self, messages: Sequence[Message], max_tokens: int) -> Tailored:
        """The messages within a budget, or the smallest context with its overflow."""
        ...


class _BlockStrategy:
    """A strategy that drops one block of rounds; head and last round stay."""

    block: DroppedBlock

    def __init__(self, counter: TokenCounter | TokenMemo | None = None) -> None:
        self.memo = _memo_of(counter)

    def tailor(self, messages: Sequence[Message], max_tokens: int) -> Tailored:
        """The messages within a budget, or the smallest context with its overflow."""
        lane = Lane(list(messages))
        return self._tailor((Piece(lane, 0, len(lane)),), max_tokens)

    def tailor_assembly(self, assembly: Assembly, max_tokens: int) -> Tailored:
        """The same for an assembled request, without counting anew what was counted before."""
        return self._tailor(assembly.pieces, max_tokens)

    def _tailor(self, pieces: Sequence[Piece], max_tokens: int) -> Tailored:
        layout = _lay_out(pieces, self.memo)
        result = Tailored(max_tokens, layout.total_tokens, layout.total_tokens, n_before=layout.n_messages)
        if layout.total_tokens <= max_tokens:
            _take(result, layout.head + layout.stretches)
            return result
        if not layout.n_rounds:
            _take(result, layout.head)
            return result
        n_older = layout.n_rounds - 1
        n_kept = self._largest_fit(layout, n_older, max_tokens)
        result.n_rounds_dropped = n_older - n_kept
        first, last = type(self).block(n_older, n_kept)
        _take(result, [*layout.head, *_between(layout, 0, first), *_between(layout, last, layout.n_rounds)])
        if result.tokens > max_tokens or max_tokens <= 0:
            self._reduce_to_minimum(result)
        return result

    def _largest_fit(self, layout: _Layout, n_older: int, max_tokens: int) -> int:
        """How many of the older rounds fit beside head and last round."""
        all_rounds_start = layout.tokens_before_round(0)
        last_round = layout.total_tokens - layout.tokens_before_round(n_older)
        room = max_tokens - layout.head_tokens - last_round
        low, high = 0, n_older
        while low < high:
            n_kept = (low + high + 1) // 2
            first, last = type(self).block(n_older, n_kept)
            tokens = (
                layout.tokens_before_round(first)
                - all_rounds_start
                + layout.tokens_before_round(n_older)
                - layout.tokens_before_round(last)
            )
            if tokens <= room:
                low = n_kept
            else:
                high = n_kept - 1
        return low

    def _reduce_to_minimum(self, result: Tailored) -> None:
        """Head and latest group; over the budget still, it's returned with the overflow (ASM-TLR-10, -11)."""
        result.parts = tuple(_minimal_parts(result.parts))
        result.tokens = _tokens_of(result.parts)
        if result.parts and (result.tokens > result.max_tokens or result.max_tokens <= 0):
            result.overflow = TokenTailoringOverflowError(result.messages, result.tokens, result.max_tokens)


class MiddleOutStrategy(_BlockStrategy):
    """Drops rounds from the middle: models read beginning and end best."""

    block = staticmethod(_middle_block)


class HeadOutStrategy(_BlockStrategy):
    """Drops the oldest rounds."""

    block = staticmethod(_head_block)


class TailOutStrategy(_BlockStrategy):
    """Drops the newest rounds, starting before the last."""

    block = staticmethod(_tail_block)


STRATEGIES: dict[str, type[_BlockStrategy]] = {
    "middle_out": MiddleOutStrategy,
    "head_out": HeadOutStrategy,
    "tail_out": TailOutStrategy,
}


def strategy_named(name: str, counter: TokenCounter | TokenMemo | None = None) -> _BlockStrategy:
    """A strategy by its name in the settings.

    Raises:
        ConfigError: there is none.
    """
    try:
        return STRATEGIES[name](counter)
    except KeyError:
        raise ConfigError.for_field(
            "strategy", name, ", ".join(STRATEGIES), hint=nearest_name(name, STRATEGIES)
        ) from None


def tailor_assembly(assembly: Assembly, strategy: _BlockStrategy, max_tokens: int) -> Tailored:
    """What the model adapter sends: never an empty list for a request that had messages (ASM-TLR-12)."""
    tailored = strategy.tailor_assembly(assembly, max_tokens)
    if not len(tailored) and len(assembly):
        tailored.keep_all(assembly.messages)
    return tailored


def tokens_of_assembly(assembly: Assembly, counter: TokenCounter, ctx: CallContext) -> int | Awaitable[int]:
    """Tokens of an assembled request, as `count_tokens_range` over all of it gives them.

    A counter that says `message_additive` has counted nearly all of these messages for the request before: sums of
    them are kept with the assembly, so that only what is new is counted.
    """
    if not getattr(counter, "message_additive", False):
        messages = assembly.messages
        return counter.count_tokens_range(ctx, messages, 0, len(messages))
    memo, total = TokenMemo(counter), 0
    for lane, start, stop in assembly.pieces:
        raw = _measure_of(lane, memo).raw
        total += raw[stop] - raw[start]
    return total


def _between(layout: _Layout, first: int, last: int) -> list[_Stretch]:
    """The stretches that hold rounds `first` to `last`, cut to them."""
    if first >= last:
        return []
    i, start = layout.place_of_round(first)
    j, stop = layout.place_of_round(last)
    cut = []
    for k in range(i, min(j + 1, len(layout.stretches))):
        stretch = layout.stretches[k]
        a = start if k == i else stretch.start
        b = stop if k == j else stretch.stop
        if a < b:
            cut.append(_cut(stretch, a, b))
    return cut


def _cut(stretch: _Stretch, start: int, stop: int) -> _Stretch:
    moved = stretch.index_before + start - stretch.start
    return _Stretch(stretch.measure, start, stop, 0, moved, [], 0, 0, -1)


def _take(result: Tailored, stretches: Sequence[_Stretch]) -> None:
    """Make the validated messages of some stretches the result."""
    parts = []
    for stretch in stretches:
        measure = stretch.measure
        a, b = measure.valid_before[stretch.start], measure.valid_before[stretch.stop]
        if a < b:
            parts.append((measure, a, b, stretch.index_before - stretch.start))
    parts = _without_tail(_without_lead(parts))
    result.parts = tuple(parts)
    result.tokens = _tokens_of(parts)


_Part = tuple[Measure, int, int, int]


def _without_lead(parts: list[_Part]) -> list[_Part]:
    """Drop what stands before the first user message, system messages aside."""
    kept: list[_Part] = []
    for n, (measure, a, b, offset) in enumerate(parts):
        for i in range(a, b):
            role = measure.valid[i].role
            if role == USER:
                return [*kept, (measure, i, b, offset), *parts[n + 1 :]]
            if role == SYSTEM:
                if kept and kept[-1][0] is measure and kept[-1][2] == i:
                    kept[-1] = (measure, kept[-1][1], i + 1, offset)
                else:
                    kept.append((measure, i, i + 1, offset))
    return kept


def _without_tail(parts: list[_Part]) -> list[_Part]:
    """Drop what stands behind the last user or tool message."""
    while parts:
        measure, a, b, offset = parts[-1]
        while b > a and measure.valid[b - 1].role not in (USER, TOOL):
            b -= 1
        if b > a:
            return [*parts[:-1], (measure, a, b, offset)]
        parts = parts[:-1]
    return parts


def _minimal_parts(parts: Sequence[_Part]) -> list[_Part]:
    """The leading system messages and the latest group of validated messages (ASM-TLR-10)."""
    head: list[_Part] = []
    for measure, a, b, offset in parts:
        end = a
        while end < b and measure.valid[end].role == SYSTEM:
            end += 1
        if end > a:
            head.append((measure, a, end, offset))
        if end < b:
            return head + _latest_group(parts)
    return []


def _latest_group(parts: Sequence[_Part]) -> list[_Part]:
    """The last message; if it's a tool's, all from the user message that it goes back to."""
    measure, _, b, offset = parts[-1]
    if measure.valid[b - 1].role == USER:
        return [(measure, b - 1, b, offset)]
    for n in range(len(parts) - 1, -1, -1):
        measure, a, b, offset = parts[n]
        j = bisect_left(measure.valid_users, b) - 1
        if j >= 0 and measure.valid_users[j] >= a:
            return [(measure, measure.valid_users[j], b, offset), *parts[n + 1 :]]
    return []


def _tokens_of(parts: Sequence[_Part]) -> int:
    return sum(measure.valid_sum[b] - measure.valid_sum[a] for measure, a, b, _ in parts)
