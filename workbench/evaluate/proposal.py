"""A grid made from the recordings: which options to try, with which values, and why (WB-TUNE-02).

In: recordings and a base configuration. Out: a `Proposal`: the base with summaries switched on, a grid, and one
`Choice` per option with the observation behind it. Sizes are counted as the bill counts them, so that the replay,
which counts the same texts, has nothing to count anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from workbench.build import billing_counter
from workbench.config import RunConfig
from workbench.errors import ConfigError, NotEnoughDataError
from workbench.facts.scripts import HAN, KANA, SYLLABLE
from workbench.model.types import TOOL
from workbench.model.windows import lookup_model_context_window
from workbench.recordings.types import Conversation
from workbench.replay.cache import part_text
from workbench.summary.checkers import DEFAULT_MIN_TOKENS
from workbench.tokens import LineCounter

_SCRIPTS = tuple(
    (name, re.compile(f"[{inside}]"))
    for name, inside in (("Han", HAN), ("Kana", KANA), ("Hangul", SYLLABLE), ("Latin", "A-Za-z"), ("digits", "0-9"))
)
_MAX_SUMMARY_WORDS = 200
_TURNS_PER_SUMMARY = 4
"""A summary for fewer typical requests than so many costs more cached prefix than it saves."""
_WINDOW_SHARES = (0.3, 0.6)
_TOOL_SHARE = 0.2
"""Tool results under this part of all tokens aren't worth compacting."""
_MIN_RESULT_TOKENS = 100
_IDLE_S = 300.0
"""After so much silence providers have mostly forgotten the prompt: then a new summary breaks no cached prefix."""
_IDLE_SHARE = 0.05
_OWN_SCRIPT = 0.1
"""Part of all letters and digits from which on a script may want a ratio of its own."""
_CALIBRATED_CHARS = 300_000
"""So much text says what the ratios are; of more, conversations are picked evenly."""
_SAME_RATIO = 0.15
_SAME_LIMIT = 0.25


@dataclass(frozen=True, slots=True)
class Choice:
    """One option of the grid: its values, or none, and why."""

    option: str
    values: tuple[Any, ...]
    """Empty for an option that was left out."""
    why: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"option": self.option, "values": list(self.values), "why": self.why}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A grid with its reasons."""

    base: RunConfig
    """What each run of the grid starts from."""
    grid: Mapping[str, Any]
    choices: tuple[Choice, ...]


@dataclass(slots=True)
class _Corpus:
    """What the recordings have, by the billing counter."""

    chars: int = 0
    tokens: int = 0
    by_script: dict[str, int] = field(default_factory=dict)
    conversations: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    windows: set[int] = field(default_factory=set)

    def add(self, conversation: Conversation, config: RunConfig, counter: LineCounter) -> None:
        tokens_of: dict[str, int] = {}
        for event in conversation.events:
            for message in event.messages:
                text = message.content
                self.chars += len(text)
                self.tokens += counter.count_text(text)
                for name, pattern in _SCRIPTS:
                    self.by_script[name] = self.by_script.get(name, 0) + len(pattern.findall(text))
                size = counter.count_text(part_text(message))
                tokens_of[event.id] = tokens_of.get(event.id, 0) + size
                if message.role == TOOL or message.tool_id:
                    self.results.append(size)
        self.conversations.append(sum(tokens_of.values()))
        for request in conversation.requests:
            own = (*request.inputs, *request.steps)
            self.requests.append(sum(tokens_of[event.id] for event in own))
            self.events.append(len(own))
        if not conversation.assumed_time:
            ends = [((*one.inputs, *one.steps)[-1].time_ns, one.inputs[0].time_ns) for one in conversation.requests]
            self.gaps_s += [(start - end) / 1e9 for (end, _), (_, start) in pairwise(ends)]
        window = config.model.context_window or lookup_model_context_window(config.model.name or conversation.model)
        if window:
            self.windows.add(window)


def propose(conversations: Iterable[Conversation], base: RunConfig) -> Proposal:
    """A grid for these recordings.

    Args:
        base: Model, counters, cache and everything else that isn't tried; summaries are switched on.
    """
    corpus, counter, conversations = _Corpus(), billing_counter(base), list(conversations)
    for conversation in conversations:
        corpus.add(conversation, base, counter)
    words = _MAX_SUMMARY_WORDS if base.summarizer is None else base.summarizer.max_summary_words
    start = base.replace(
        name="", summarizer={"max_summary_words": words}, trigger=None, agent={"add_session_summary": True}
    )
    choices = [
        _scripts_choice(conversations, corpus, base) or _counter_choice(corpus, base),
        _trigger_choice(corpus, base),
        _placement_choice(),
        *_compaction_choices(corpus),
    ]
    grid: dict[str, Any] = {choice.option: list(choice.values) for choice in choices if choice.values}
    if "compaction.tool_result_max_tokens" in grid:
        limits = grid["compaction.tool_result_max_tokens"]
        grid["compaction.tool_result_max_tokens"] = {"values": limits, "when": {"compaction.enabled": [True]}}
    return Proposal(start, grid, tuple(choices))


def _scripts_choice(conversations: Sequence[Conversation], corpus: _Corpus, base: RunConfig) -> Choice | None:
    """The counter with a ratio per script, where no single ratio serves; None where one does or too little is known."""
    is_mixed = sum(count > _OWN_SCRIPT * sum(corpus.by_script.values()) for count in corpus.by_script.values()) > 1
    is_set = base.counter != type(base.counter)()  # whoever chose a ratio gets no other counter
    if is_set or base.billing.encoding.startswith("runes:") or not is_mixed:
        return None
    from workbench.evaluate.calibrate import calibrate

    every = max(corpus.chars // _CALIBRATED_CHARS, 1)
    try:
        found = calibrate(conversations[::every], base.billing.encoding, thresholds=(), resamples=100)
    except (NotEnoughDataError, ConfigError):
        return None
    validation = found.cross_validation
    if validation is None or not validation.needs_scripts:
        return None
    ratios = ", ".join(f"{name} {one.ratio:.2g}" for name, one in found.by_script.items() if one.ratio is not None)
    return Choice(
        "counter",
        (found.counter("scripts"),),
        f"no single ratio serves: the best, {found.ratio:.2f} characters per token, is off by "
        f"{validation.single_error:.0%} per message, one per script by {validation.scripts_error:.0%} ({ratios}); "
        f"trpc-agent-go has none: for it set counter.runes_per_token = {found.ratio:.2g}",
    )


def _counter_choice(corpus: _Corpus, base: RunConfig) -> Choice:
    option = "counter.runes_per_token"
    if base.counter.kind != "runes":
        return Choice(option, (), f"left out: the engine counts exactly, with {base.counter.encoding}")
    if not corpus.tokens:
        return Choice(option, (), "left out: the recordings hold no text")
    ratio, now = corpus.chars / corpus.tokens, base.counter.runes_per_token
    letters = sum(corpus.by_script.values()) or 1
    mix = ", ".join(
        f"{name} {count / letters:.0%}"
        for name, count in sorted(corpus.by_script.items(), key=lambda item: -item[1])
        if count / letters >= 0.01
    )
    seen = f"the bill's counter finds {ratio:.2f} characters per token ({mix})"
    if abs(ratio / now - 1) <= _SAME_RATIO:
        return Choice(option, (), f"left out: {seen}, close enough to the {now:g} in force")
    late = f"{now / ratio:.1f} times too late" if now > ratio else f"{ratio / now:.1f} times too early"
    return Choice(
        option, (max(float(f"{ratio:.2g}"), 0.1),), f"{seen}; with {now:g} every token threshold fires {late}"
    )


def _trigger_choice(corpus: _Corpus, base: RunConfig) -> Choice:
    """Whole triggers: token thresholds by quantiles, shares of the window, silence."""
    typical, large = _quantile(corpus.requests, 0.5), _quantile(corpus.requests, 0.9)
    middle, long = _quantile(corpus.conversations, 0.5), _quantile(corpus.conversations, 0.9)
    longest = max(corpus.conversations, default=0)
    wanted = (_TURNS_PER_SUMMARY * typical, _TURNS_PER_SUMMARY * large, middle / 2, long / 2)
    limits = _apart(_rounded(limit) for limit in wanted if 0 < _rounded(limit) < longest)
    values: list[Any] = [{"token": limit} for limit in limits]
    sizes = (
        f"half of the requests add at most {typical:,.0f} tokens, 90 % at most {large:,.0f}; a conversation "
        f"has {middle:,.0f} (half) to {long:,.0f} (90 %): thresholds at {_TURNS_PER_SUMMARY} requests and at half a conversation"
    )
    why = [sizes]
    for window in sorted(corpus.windows)[:1]:
        shares = [share for share in _WINDOW_SHARES if window * share < longest]
        values += [{"context": {"ratio": share} | _floor(int(window * share))} for share in shares]
        left = [f"{share:g}" for share in _WINDOW_SHARES if share not in shares]
        why.append(f"the window is {window:,}, the longest conversation {longest:,}")
        if left:
            why.append(f"a share of {' or '.join(left)} would never be reached")
    if not corpus.windows:
        why.append("no share of the window: no model names one; set model.context_window")
    idle = sum(gap > _IDLE_S for gap in corpus.gaps_s)
    if corpus.gaps_s and idle / len(corpus.gaps_s) >= _IDLE_SHARE:
        events = max(round(_TURNS_PER_SUMMARY * _quantile(corpus.events, 0.5)), 1)
        values.append({"all": [{"time": _IDLE_S}, {"event": events}]})
        why.append(f"{idle:,} of {len(corpus.gaps_s):,} pauses are over 5 minutes: the cache has gone by then")
    if not values:
        values = [{"token": max(_rounded(middle / 2), 1)}]
        why.append("short conversations: one threshold at half of one")
    return Choice("trigger", tuple(values), "; ".join(why))


def _floor(limit: int) -> dict[str, int]:
    """The default floor would decide over a small share of a small window: then there is none."""
    return {"min_tokens": 0} if limit < DEFAULT_MIN_TOKENS else {}


def _apart(limits: Iterable[int]) -> list[int]:
    """Without those that are close to a smaller one: they would fire at much the same calls."""
    kept: list[int] = []
    for limit in sorted(limits):
        if not kept or limit > kept[-1] * (1 + _SAME_LIMIT):
            kept.append(limit)
    return kept


def _placement_choice() -> Choice:
    why = (
        "a summary in the system message breaks the prefix at its start, one in the user message behind the instruction"
    )
    return Choice("agent.summary_injection_mode", ("system", "user"), why)


def _compaction_choices(corpus: _Corpus) -> list[Choice]:
    total, of_tools = sum(corpus.conversations), sum(corpus.results)
    share = of_tools / total if total else 0.0
    if share < _TOOL_SHARE:
        return [Choice("compaction.enabled", (), f"left out: tool results are {share:.0%} of all tokens")]
    limit = _rounded(max(_quantile(corpus.results, 0.5), _MIN_RESULT_TOKENS))
    larger = sum(size for size in corpus.results if size > limit)
    on = f"tool results are {share:.0%} of all tokens, {len(corpus.results):,} of them"
    size = f"half of the results are at most {_quantile(corpus.results, 0.5):,.0f} tokens; those over {limit:,} hold {larger / of_tools:.0%}"
    return [
        Choice("compaction.enabled", (False, True), on),
        Choice("compaction.tool_result_max_tokens", (limit,), f"{size}; tried where compaction is on"),
    ]


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return float(ordered[round(share * (len(ordered) - 1))]) if ordered else 0.0


def _rounded(value: float) -> int:
    """Two significant digits: nobody deploys a threshold of 1,937."""
    return int(float(f"{value:.2g}"))
