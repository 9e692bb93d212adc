"""Prompt caches of providers: which part of each request is read from the cache, written to it, or neither.

In: the calls of one conversation as token counts and times, and the rules of a provider. Out: three counts per
call that sum to its prompt, and why a cached prefix couldn't be used. The rules are data, each with source and
date. Implements WB-CACHE-02 and the provider's side of WB-CACHE-03 and -05; pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

from workbench.config import CacheSettings
from workbench.errors import ConfigError
from workbench.replay.trace import BREAK_CAUSES

CAUSES = BREAK_CAUSES | {
    "below_minimum": "the prefix is shorter than what the provider caches",
    "no_breakpoint": "no marked end of an earlier request was near enough",
}
"""Why less was read than could have been: what broke the prefix, and what only a provider's rules know."""

TOOLS, SYSTEM, END = "tools", "system", "end"
_NS = 1_000_000_000


class ForModels(NamedTuple):
    """What differs for models whose name matches; None = as the rule says."""

    pattern: str
    min_tokens: int | None = None
    read_factor: float | None = None


@dataclass(frozen=True, slots=True)
class CacheRule:
    """How a provider caches prompts."""

    name: str
    title: str
    source: str
    date: str
    """When the source said so."""
    min_tokens: int = 0
    """A shorter prefix isn't cached."""
    block_tokens: int = 1
    """A cached prefix is a multiple of this; of no account where only breakpoints match."""
    lifetime_s: float | None = None
    """Silence after which a prefix is gone; None = not published, so nothing expires here."""
    refreshed_by_use: bool = True
    """Reading starts the lifetime anew."""
    breakpoints: tuple[str, ...] = ()
    """Ends that requests mark; only a marked end of an earlier request matches. Empty = every block matches."""
    max_breakpoints: int = 4
    lookback_messages: int | None = None
    """How many messages in front of a mark an earlier mark may be and still be found."""
    lookback_breakpoints: int | None = None
    """How many of the latest marks are looked at."""
    capacity_tokens: int | None = None
    """Room of the cache; None = not the limit."""
    read_factor: float = 1.0
    """Price of a token that is read, against an uncached one, where the model has no price of its own for it."""
    write_factor: float = 1.0
    writes_by_itself: bool = True
    """Every prompt is written; otherwise only what a client marks, and summary calls mark nothing of their own."""
    has_cache: bool = True
    longer: str = ""
    """The same cache with a longer lifetime, if the provider sells one."""
    long_writes: bool = False
    """Writes have the price of the one-hour kind."""
    models: tuple[ForModels, ...] = ()

    def for_model(self, model: str) -> CacheRule:
        """The rule as it is for one model."""
        for row in self.models:
            if re.search(row.pattern, model.lower()):
                return replace(
                    self,
                    min_tokens=self.min_tokens if row.min_tokens is None else row.min_tokens,
                    read_factor=self.read_factor if row.read_factor is None else row.read_factor,
                )
        return self


_OPENAI_READS = (
    ForModels(r"gpt-4o|o1", read_factor=0.5),
    ForModels(r"gpt-4\.1|o3|o4", read_factor=0.25),
)
_ANTHROPIC_MINIMA = (
    ForModels(r"opus-5|-5[-.]5", min_tokens=512),
    ForModels(r"opus-4[-.][56]|haiku-4[-.]5", min_tokens=4096),
    ForModels(r"opus-4[-.]7|haiku-3|3(-\d)?-haiku", min_tokens=2048),
)
_OPENAI = CacheRule(
    name="openai",
    title="OpenAI before GPT-5.6",
    source="developers.openai.com, prompt caching guide: 5 to 10 minutes idle, of which the shorter is taken",
    date="2026",
    min_tokens=1024,
    block_tokens=128,
    lifetime_s=300,
    read_factor=0.1,
    longer="openai-24h",
    models=_OPENAI_READS,
)
_ANTHROPIC = CacheRule(
    name="anthropic",
    title="Anthropic, 5 minutes, marks after tools, system and the newest message",
    source="platform.claude.com, prompt caching; blocks of the look-back are counted as messages",
    date="2026-10",
    min_tokens=1024,
    lifetime_s=300,
    breakpoints=(TOOLS, SYSTEM, END),
    lookback_messages=20,
    read_factor=0.1,
    write_factor=1.25,
    writes_by_itself=False,
    longer="anthropic-1h",
    models=_ANTHROPIC_MINIMA,
)
_QWEN = CacheRule(
    name="qwen",
    title="Qwen on Bailian, implicit",
    source="Alibaba Model Studio, context cache; the lifetime isn't stated, a hit isn't guaranteed",
    date="2026-01-29",
    min_tokens=256,
    read_factor=0.2,
)

PROVIDERS: dict[str, CacheRule] = {
    rule.name: rule
    for rule in (
        _OPENAI,
        replace(_OPENAI, name="openai-24h", title="OpenAI, kept for 24 hours", lifetime_s=86_400, longer=""),
        CacheRule(
            name="openai-5.6",
            title="OpenAI from GPT-5.6",
            source="developers.openai.com, prompt caching guide: a match at a mark only, kept for 30 minutes and longer",
            date="2026",
            min_tokens=1024,
            lifetime_s=1800,
            breakpoints=(END,),
            lookback_breakpoints=80,
            read_factor=0.1,
            write_factor=1.25,
        ),
        _ANTHROPIC,
        replace(
            _ANTHROPIC,
            name="anthropic-1h",
            title="Anthropic, 1 hour, marks after tools, system and the newest message",
            lifetime_s=3600,
            write_factor=2.0,
            longer="",
            long_writes=True,
        ),
        replace(
            _ANTHROPIC,
            name="anthropic-auto",
            title="Anthropic, 5 minutes, one automatic mark at the newest message",
            breakpoints=(END,),
            max_breakpoints=1,
            writes_by_itself=True,
            longer="",
        ),
        CacheRule(
            name="deepseek",
            title="DeepSeek",
            source="api-docs.deepseek.com, kv_cache: kept for hours to days, of which 2 hours are taken; blocks of 64 "
            "tokens as announced in 2024-08, newer prefix units are coarser",
            date="2026",
            min_tokens=64,
            block_tokens=64,
            lifetime_s=7200,
            read_factor=0.02,
        ),
        CacheRule(
            name="gemini",
            title="Gemini, implicit",
            source="ai.google.dev and Google Cloud documents, which disagree on the minimum: the larger is taken; the "
            "lifetime isn't published",
            date="2026",
            min_tokens=4096,
            read_factor=0.1,
            models=(
                ForModels(r"2\.5-flash", min_tokens=2048),
                ForModels(r"2\.0", read_factor=0.25),
            ),
        ),
        _QWEN,
        replace(
            _QWEN,
            name="qwen-explicit",
            title="Qwen on Bailian, marks after system and the newest message",
            min_tokens=1024,
            lifetime_s=300,
            breakpoints=(SYSTEM, END),
            read_factor=0.1,
            write_factor=1.25,
            writes_by_itself=False,
        ),
        CacheRule(
            name="vllm",
            title="vLLM, blocks of 16",
            source="docs.vllm.ai, prefix caching v0.30; set capacity_tokens to what the cache of this conversation holds",
            date="2026",
            min_tokens=16,
            block_tokens=16,
        ),
        CacheRule(
            name="none", title="no prompt cache", source="nothing is read or written", date="2026", has_cache=False
        ),
    )
}
"""Every provider's rules, by name."""

# By the last part of a model's name. Open weights (gpt-oss, small Qwen) run anywhere, so they say nothing.
_BY_MODEL = (
    (r"gpt-oss", None),
    (r"(chat)?gpt-(5\.([6-9]|\d\d)|[6-9])", "openai-5.6"),
    (r"(chat)?gpt-|o[134]\b", "openai"),
    (r"claude", "anthropic"),
    (r"deepseek-(chat|reasoner|v\d)", "deepseek"),
    (r"gemini", "gemini"),
    (r"qwen[\d.]*-(max|plus|flash|turbo|long|coder-(plus|flash))", "qwen"),
)


def provider_of(model: str) -> str | None:
    """Whose cache rules a model's name speaks for; None if it doesn't say."""
    name = model.lower().removeprefix("ft:").rsplit("/", 1)[-1]
    return next((provider for pattern, provider in _BY_MODEL if re.match(pattern, name)), None)


def cache_rule(settings: CacheSettings, model: str) -> CacheRule | None:
    """The rules that hold for a model: the provider's, with what the configuration replaces.

    Returns:
        None when the configuration leaves the provider to the model's name, and that doesn't say.
    Raises:
        ConfigError: more marks than the provider takes.
    """
    name = provider_of(model) if settings.provider == "auto" else settings.provider
    if name is None:
        return None
    rule = PROVIDERS[name].for_model(model)
    changes = {
        field: value
        for field in (
            "min_tokens",
            "block_tokens",
            "lifetime_s",
            "refreshed_by_use",
            "breakpoints",
            "capacity_tokens",
            "read_factor",
            "write_factor",
        )
        if (value := getattr(settings, field)) is not None
    }
    rule = replace(rule, **changes)
    if len(rule.breakpoints) > rule.max_breakpoints:
        raise ConfigError.for_field(
            "cache.breakpoints", list(rule.breakpoints), f"at most {rule.max_breakpoints} with {rule.name}"
        )
    return rule


# --- simulation ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """One call of the main model, as the trace has it; counts are tokens."""

    time_ns: int
    tokens: int
    """The whole prompt."""
    prefix_tokens: int | None = None
    """Leading tokens equal to an earlier request; None = there is none."""
    prefix_call: int | None = None
    """The newest earlier call with this whole prefix; None = another conversation's, kept alive by others."""
    recent_tokens: int = 0
    """Leading tokens equal to the call just before."""
    partial_tokens: int = 0
    """The end of the prefix that is only the beginning of a message: of no use where whole messages are marked."""
    tools_end: int = 0
    """Tokens of the tool declarations, which stand first."""
    system_end: int = 0
    """Tokens up to the end of the system message."""
    overhead_tokens: int = 0
    """Part of the prompt that belongs to no message."""
    n_messages: int = 0
    cause: str | None = None
    """What broke the prefix, whatever the provider; None = nothing."""


class CacheUse(NamedTuple):
    """Three parts of a prompt, which sum to it, and why less was read than could have been."""

    cached: int
    written: int
    uncached: int
    cause: str | None = None
    lost: int = 0
    """Tokens that would have been read if this call had only added to the one before, in time."""


class _Mark(NamedTuple):
    position: int
    n_messages: int


class _Entry:
    """A marked end in the cache; `parent` is the next shorter one of the same request chain."""

    __slots__ = ("n_messages", "parent", "position", "used_ns", "written_ns")

    def __init__(self, mark: _Mark, time_ns: int, parent: _Entry | None) -> None:
        self.position, self.n_messages = mark
        self.used_ns = self.written_ns = time_ns
        self.parent = parent


class CacheSimulation:
    """The cache of one provider during one conversation; calls are told in the order of their times."""

    def __init__(self, rule: CacheRule) -> None:
        self._rule = rule
        self._used_ns: list[int] = []
        """When the whole prompt of a call was last in use."""
        self._head_ns: list[int] = []
        """When the beginning of its prompt was written."""
        self._written: list[int] = []
        """Tokens written since the start, after each call."""
        self._tips: list[_Entry | None] = []
        """The longest marked end that each call left behind."""
        self._last: Sent | None = None

    def call(self, sent: Sent) -> CacheUse:
        """What the cache does for the next call of the main model."""
        if not self._rule.has_cache:
            return CacheUse(0, 0, sent.tokens)
        if self._rule.breakpoints:
            use, potential = self._call_at_marks(sent)
        else:
            use, potential = self._call_in_blocks(sent)
        use = self._explained(use, sent, potential)
        self._last = sent
        return use

    def summary(self, time_ns: int, tokens: int, prefix_tokens: int) -> CacheUse:
        """What it does for a summary call that begins like the main call before it (WB-CACHE-05)."""
        rule = self._rule
        if not rule.has_cache:
            return CacheUse(0, 0, tokens)
        cached = 0
        if self._last is not None and prefix_tokens:
            base = len(self._used_ns) - 1
            if rule.breakpoints:
                # It extends the newest request by an instruction, marks included.
                marks = [*self._marks(self._last), _Mark(tokens, self._last.n_messages + 1)]
                hit, _ = self._entry_within(prefix_tokens, base, marks, time_ns)
                if hit is not None:
                    hit.used_ns = max(hit.used_ns, time_ns)
                    cached = hit.position
            elif self._is_alive(base, time_ns):
                cached = self._whole_blocks(self._kept(prefix_tokens, base))
            if cached:
                self._used_ns[base] = max(self._used_ns[base], time_ns)
        written = self._writable(tokens) - cached if rule.writes_by_itself else 0
        written = max(written, 0)
        return CacheUse(cached, written, tokens - cached - written)

    # --- blocks ------------------------------------------------------------------------------------------

    def _call_in_blocks(self, sent: Sent) -> tuple[CacheUse, int]:
        cached, base = 0, None
        for tokens, holder in self._holders(sent):
            if holder is None:
                found = self._whole_blocks(tokens)
            elif self._is_alive(holder, sent.time_ns):
                found = self._whole_blocks(self._kept(tokens, holder))
            else:
                continue
            if found > cached:
                cached, base = found, holder
        written = max(self._writable(sent.tokens) - cached, 0)
        self._used_ns.append(sent.time_ns)
        self._head_ns.append(sent.time_ns if base is None else self._head_ns[base])
        self._written.append((self._written[-1] if self._written else 0) + sent.tokens - cached)
        use = CacheUse(cached, written, sent.tokens - cached - written)
        return use, self._whole_blocks(sent.prefix_tokens or 0)

    def _holders(self, sent: Sent) -> list[tuple[int, int | None]]:
        """Which earlier calls hold how much of this prompt: the longest prefix, and the newest call's."""
        if sent.prefix_tokens is None:
            return []
        newest = len(self._used_ns) - 1
        holders: list[tuple[int, int | None]] = [(sent.prefix_tokens, sent.prefix_call)]
        if newest >= 0 and sent.prefix_call != newest:
            holders.append((sent.recent_tokens, newest))
        return holders

    def _is_alive(self, call: int, time_ns: int) -> bool:
        since = self._used_ns[call] if self._rule.refreshed_by_use else self._head_ns[call]
        return self._is_young(since, time_ns)

    def _is_young(self, since_ns: int, time_ns: int) -> bool:
        return self._rule.lifetime_s is None or time_ns - since_ns <= self._rule.lifetime_s * _NS

    def _kept(self, tokens: int, call: int) -> int:
        """What room there is for: the end of what was used longest ago has gone first."""
        capacity = self._rule.capacity_tokens
        if capacity is None or not self._written:
            return tokens
        return min(tokens, max(capacity - (self._written[-1] - self._written[call]), 0))

    def _whole_blocks(self, tokens: int) -> int:
        return 0 if tokens < self._rule.min_tokens else tokens // self._rule.block_tokens * self._rule.block_tokens

    def _writable(self, tokens: int) -> int:
        capacity = self._rule.capacity_tokens
        return self._whole_blocks(tokens if capacity is None else min(tokens, capacity))

    # --- marks -------------------------------------------------------------------------------------------

    def _marks(self, sent: Sent) -> list[_Mark]:
        """What a request marks, shortest first; too short ones are silently not cached."""
        places = {
            TOOLS: _Mark(sent.tools_end, 0),
            SYSTEM: _Mark(sent.system_end if sent.system_end > sent.tools_end else 0, 1),
            END: _Mark(sent.tokens - sent.overhead_tokens, sent.n_messages),
        }
        marks = {places[name] for name in self._rule.breakpoints}
        return sorted(mark for mark in marks if mark.position >= max(self._rule.min_tokens, 1))

    def _call_at_marks(self, sent: Sent) -> tuple[CacheUse, int]:
        marks = self._marks(sent)
        hit: _Entry | None = None
        cached = potential = 0
        for shared, holder in self._holders(sent):
            tokens = shared - (sent.partial_tokens if shared == sent.prefix_tokens else 0)
            if holder is None:  # another conversation wrote it: where both have a mark, up to there
                foreign = max((mark.position for mark in marks if mark.position <= tokens), default=0)
                potential = max(potential, foreign)
                if foreign > cached:
                    hit, cached = None, foreign
                continue
            found, longest = self._entry_within(tokens, holder, marks, sent.time_ns)
            potential = max(potential, longest)
            if found is not None and found.position > cached:
                hit, cached = found, found.position
        if hit is not None:
            hit.used_ns = sent.time_ns
        tip = hit
        for mark in marks:
            if mark.position > cached or (hit is None and mark.position <= cached):
                tip = _Entry(mark, sent.time_ns, tip)
        self._tips.append(tip)
        self._used_ns.append(sent.time_ns)
        written = max((mark.position for mark in marks), default=0) - cached
        written = max(written, 0)
        return CacheUse(cached, written, sent.tokens - cached - written), potential

    def _entry_within(self, tokens: int, call: int, marks: list[_Mark], time_ns: int) -> tuple[_Entry | None, int]:
        """The longest living entry of a call's chain that a request finds, and the longest were none forgotten."""
        entry, longest, n_seen = self._tips[call], 0, 0
        while entry is not None:
            if entry.position <= tokens and self._is_near(entry, marks):
                longest = max(longest, entry.position)
                since = entry.used_ns if self._rule.refreshed_by_use else entry.written_ns
                if self._is_young(since, time_ns):
                    return entry, longest
            n_seen += 1
            if self._rule.lookback_breakpoints is not None and n_seen >= self._rule.lookback_breakpoints:
                break
            if entry.parent is not None:  # who uses a prompt uses its beginning
                entry.parent.used_ns = max(entry.parent.used_ns, entry.used_ns)
            entry = entry.parent
        return None, longest

    def _is_near(self, entry: _Entry, marks: list[_Mark]) -> bool:
        limit = self._rule.lookback_messages
        return any(
            mark.position >= entry.position and (limit is None or 0 <= mark.n_messages - entry.n_messages <= limit)
            for mark in marks
        )

    # --- causes ------------------------------------------------------------------------------------------

    def _explained(self, use: CacheUse, sent: Sent, potential: int) -> CacheUse:
        """With the cause, and what it cost against a call that only adds to the one before."""
        if sent.prefix_tokens is None or self._last is None:
            return use._replace(cause="first_call" if sent.prefix_tokens is None else None)
        lost = max(self._reusable(self._last, sent) - use.cached, 0)
        too_old = use.cached < potential or (lost > 0 and not self._was_used_lately(sent))
        if too_old:
            return use._replace(cause="expired", lost=lost)
        if sent.cause is not None and sent.cause != "first_call":
            return use._replace(cause=sent.cause, lost=lost)
        if not use.cached and 0 < sent.prefix_tokens < self._rule.min_tokens:
            return use._replace(cause="below_minimum")
        if self._rule.breakpoints and lost:
            return use._replace(cause="no_breakpoint", lost=lost)
        return use

    def _reusable(self, last: Sent, sent: Sent) -> int:
        if self._rule.breakpoints:
            end = max((mark.position for mark in self._marks(last)), default=0)
            return min(end, sent.tokens - sent.overhead_tokens)
        return self._whole_blocks(min(last.tokens - last.overhead_tokens, sent.tokens - sent.overhead_tokens))

    def _was_used_lately(self, sent: Sent) -> bool:
        newest = len(self._used_ns) - 2  # the last one is the call itself
        return newest < 0 or self._is_young(self._used_ns[newest], sent.time_ns)
