"""What a run costs: cached, written and uncached tokens of every call, and money where prices are known.

In: the stored rows of a run and its configuration, or other cache rules and prices for the same rows, so that an old
run can be priced anew. Out: `RunCost`; what it is against a baseline is `savings.py`. Implements WB-COST-01, WB-CACHE-05.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from workbench.config import CacheSettings, PriceSettings, RunConfig, TokenPrices
from workbench.evaluate.net import net_of_call, net_of_summary, rows_by_conversation
from workbench.evaluate.prices import Rates, rates_of
from workbench.evaluate.providers import CacheRule, CacheSimulation, CacheUse, Sent, cache_rule

Row = Mapping[str, Any]


class StoredRun(Protocol):
    """What is needed of a run."""

    @property
    def config(self) -> Any:
        """The configuration, or its values as a mapping, or something that dumps them."""
        ...

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        """Rows of one trace table."""
        ...


class CallCost(NamedTuple):
    """One call of the main model, or one attempt of a summary."""

    conversation: str
    call: int
    """Index of the call; of a summary, of the first call that can see it."""
    turn: int
    """The top-level request that it belongs to."""
    is_summary: bool
    gap_s: float | None
    """Silence since the call before; None on a first call and for summaries."""
    prefix_tokens: int | None
    prompt_tokens: int
    use: CacheUse | None
    """None where no cache rules are known."""
    cost: float | None
    """None where a price is unknown."""
    lost_cost: float | None
    """What a shorter cached prefix than need be cost."""
    net_tokens: float
    """Tokens of prompt and, for a summary, of its text, with the reused prefix at a tenth."""
    weighed_tokens: float | None
    """Prompt tokens in units of an uncached one, by the factors of the rules."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """What holds for the calls of one conversation to one model."""

    model: str
    rule: CacheRule | None
    own: TokenPrices


@dataclass(frozen=True)
class RunCost:
    """Tokens and money of a run; a figure is None where a part of it is unknown."""

    calls: tuple[CallCost, ...]
    """Main calls and summary calls, by conversation and in the order of their times."""
    rules: tuple[CacheRule, ...]
    """Every set of cache rules that was applied."""
    currency: str
    priced_by: tuple[tuple[str, str], ...]
    """Models, and where the prices of each are from."""
    unknown: tuple[str, ...]
    """Why figures are missing."""
    n_conversations: int

    @property
    def main_calls(self) -> list[CallCost]:
        """Calls of the main model."""
        return [call for call in self.calls if not call.is_summary]

    @property
    def summary_calls(self) -> list[CallCost]:
        """Attempts to make a summary that called a model."""
        return [call for call in self.calls if call.is_summary]

    @cached_property
    def cached_tokens(self) -> int | None:
        """Prompt tokens of main calls that the cache had."""
        return _sum_of(self.main_calls, lambda use: use.cached)

    @cached_property
    def written_tokens(self) -> int | None:
        """Prompt tokens of main calls that went into the cache."""
        return _sum_of(self.main_calls, lambda use: use.written)

    @cached_property
    def uncached_tokens(self) -> int | None:
        """The other prompt tokens of main calls."""
        return _sum_of(self.main_calls, lambda use: use.uncached)

    @cached_property
    def summary_cached_tokens(self) -> int | None:
        """Prompt tokens of summary calls that the cache had."""
        return _sum_of(self.summary_calls, lambda use: use.cached)

    @cached_property
    def cost(self) -> float | None:
        """Main calls, summary calls and retries."""
        return _total(call.cost for call in self.calls)

    @cached_property
    def summary_cost(self) -> float | None:
        """The part of it that made summaries."""
        return _total(call.cost for call in self.summary_calls)

    @property
    def cost_per_call(self) -> float | None:
        """Of the main model, with its share of the summaries."""
        n_calls = len(self.main_calls)
        return None if self.cost is None or not n_calls else self.cost / n_calls

    @property
    def cost_per_conversation(self) -> float | None:
        return None if self.cost is None or not self.n_conversations else self.cost / self.n_conversations

    @property
    def cost_per_1000_conversations(self) -> float | None:
        """What a bill is thought in."""
        return None if self.cost_per_conversation is None else 1000 * self.cost_per_conversation

    @cached_property
    def cost_by_conversation(self) -> dict[str, float | None]:
        """The same for each conversation."""
        return {name: _total(call.cost for call in calls) for name, calls in self.by_conversation.items()}

    @cached_property
    def by_conversation(self) -> dict[str, list[CallCost]]:
        """Calls and summaries of each conversation."""
        grouped: dict[str, list[CallCost]] = {}
        for call in self.calls:
            grouped.setdefault(call.conversation, []).append(call)
        return grouped

    def facts(self) -> dict[str, Any]:
        """The figures of a run that depend on cache rules and prices (WB-CLI-03)."""
        return _facts_of(self.calls, self.rules, self.currency)

    @cached_property
    def weighed_tokens(self) -> float | None:
        """All prompts in units of an uncached token."""
        return _total(call.weighed_tokens for call in self.calls)


def _facts_of(calls: Iterable[CallCost], rules: Collection[CacheRule], currency: str) -> dict[str, Any]:
    """Facts of calls that may come one by one, and of the rules that are known when the last has come."""
    cached: int | None = 0
    written: int | None = 0
    in_summaries: int | None = 0
    costs: array[float] | None = array("d")
    for call in calls:
        use = call.use
        if call.is_summary:
            in_summaries = None if use is None or in_summaries is None else in_summaries + use.cached
        else:
            cached = None if use is None or cached is None else cached + use.cached
            written = None if use is None or written is None else written + use.written
        if call.cost is None:
            costs = None
        elif costs is not None:
            costs.append(call.cost)
    cost = None if costs is None else math.fsum(costs)
    return {
        "cached_tokens": cached,
        "written_tokens": written,
        "summary_cached_tokens": in_summaries,
        "cache_rules": [rule.name for rule in rules] or None,
        "cost": cost,
        "currency": None if cost is None else currency,
        "cost_usd": cost if currency == "USD" else None,
    }


def _sum_of(calls: Sequence[CallCost], part: Callable[[CacheUse], int]) -> int | None:
    found = [part(call.use) for call in calls if call.use is not None]
    return sum(found) if len(found) == len(calls) else None


def _total(values: Iterable[float | None]) -> float | None:
    """The sum; one unknown part makes it unknown."""
    known: list[float] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return math.fsum(known)


def cost_of(run: StoredRun, *, cache: CacheSettings | None = None, prices: PriceSettings | None = None) -> RunCost:
    """What a stored run costs.

    Args:
        run: Has rows and a configuration.
        cache: Other cache rules than the configuration's.
        prices: Other prices than the configuration's.
    Source: WB-COST-01, -02.
    """
    return _Reckoning(run, cache, prices).result()


class CostsByConversation:
    """What the calls of one conversation after the other cost, for who can't hold those of a whole run."""

    def __init__(self, run: StoredRun) -> None:
        self._reckoning = _Reckoning(run, None, None)

    def of(self, row: Row, calls: Sequence[Row], summaries: Sequence[Row]) -> list[CallCost]:
        """Of a conversation's row, with its rows of `calls` and `summaries`."""
        return list(self._reckoning.conversation(row, calls, summaries))


def cost_facts(run: StoredRun) -> dict[str, Any]:
    """`cost_of(run).facts()`, without ever holding more than one conversation's calls."""
    return _Reckoning(run, None, None).facts()


class _ModelCache:
    """The cache of one model during one conversation, and the terms of its calls."""

    def __init__(self, terms: _Terms) -> None:
        self.terms = terms
        self.simulation = None if terms.rule is None else CacheSimulation(terms.rule)
        self._places: dict[int, int] = {}
        """Call of the conversation -> call of this model."""

    def call(self, sent: Sent, call: int) -> CacheUse | None:
        """What the cache does for a call; None where no rules are known."""
        if self.simulation is None:
            return None
        holder = None if sent.prefix_call is None else self._places.get(sent.prefix_call)
        if holder != sent.prefix_call:
            # What another model was sent, this one's cache hasn't.
            has_prefix = holder is not None or bool(self._places)
            prefix = sent.prefix_tokens if holder is not None else 0
            sent = replace(sent, prefix_call=holder, prefix_tokens=prefix if has_prefix else None)
        self._places[call] = len(self._places)
        return self.simulation.call(sent)


class _Caches:
    """The models of one conversation; each has its own cache."""

    def __init__(self, terms_of: Callable[[str], _Terms]) -> None:
        self._terms_of = terms_of
        self._found: dict[str, _ModelCache] = {}

    def of(self, model: str) -> _ModelCache:
        """The cache of a model, empty when it is new."""
        if model not in self._found:
            self._found[model] = _ModelCache(self._terms_of(model))
        return self._found[model]


class _Reckoning:
    """One pass over the rows of a run."""

    def __init__(self, run: StoredRun, cache: CacheSettings | None, prices: PriceSettings | None) -> None:
        values = _values_of(run.config)
        self._cache = cache or CacheSettings.parse(values.get("cache") or {})
        self._prices = prices or PriceSettings.parse(values.get("prices") or {})
        self._model = str((values.get("model") or {}).get("name") or "")
        self._summary_model = str((values.get("summaries") or {}).get("model") or "")
        mode = (values.get("agent") or {}).get("summary_injection_mode")
        self._summary_in_system = mode in (None, "system")
        self._run = run
        self._rules: dict[str, CacheRule] = {}
        self._sources: dict[tuple[str, str], None] = {}
        self._unknown: dict[str, None] = {}
        self._rates: dict[tuple[bool, str, int | None], Rates | None] = {}

    def result(self) -> RunCost:
        found: list[CallCost] = []
        n_conversations = 0
        for costs in self._each():
            n_conversations += 1
            found += costs
        return RunCost(
            calls=tuple(found),
            rules=tuple(self._rules.values()),
            currency=self._prices.currency,
            priced_by=tuple(self._sources),
            unknown=tuple(self._unknown),
            n_conversations=n_conversations,
        )

    def facts(self) -> dict[str, Any]:
        """The facts of `RunCost`."""
        # The rules are looked at when all calls have been seen.
        return _facts_of(itertools.chain.from_iterable(self._each()), self._rules.values(), self._prices.currency)

    def _each(self) -> Iterator[Iterator[CallCost]]:
        for row, rows in rows_by_conversation(self._run, ("calls", "summaries")):
            yield self.conversation(row, rows["calls"], rows["summaries"])

    def conversation(self, row: Row, calls: Sequence[Row], summaries: Sequence[Row]) -> Iterator[CallCost]:
        recorded = self._prices.model or self._model or row.get("model") or ""
        caches = _Caches(lambda model: self._terms(model, self._prices.main))
        summary_model = self._prices.summary_model or self._summary_model
        # Its own prices, if it has any; a summary by the main model costs what the main model costs.
        has_own = any(value is not None for value in self._prices.summary.model_dump().values())
        own = self._prices.summary if has_own or summary_model else self._prices.main
        is_timed = not row.get("assumed_time")
        apart: CacheSimulation | None = None
        waiting = sorted(
            (one for one in summaries if one.get("model_calls")),
            key=lambda one: (_started(one), one["summary"]),
        )
        before: Row | None = None

        def summarised(one: Row, model: str) -> CallCost:
            nonlocal apart
            terms = self._terms(summary_model or model, own)
            if not summary_model or summary_model == model:
                return self._summary(one, terms, caches.of(model).simulation, before, is_timed)
            if apart is None and terms.rule is not None:
                apart = CacheSimulation(terms.rule)
            return self._summary(one, terms, apart, before, is_timed)

        model = recorded
        for call in calls:
            # A configuration's own price model holds for all calls; else each call is billed by its model.
            own_model = self._prices.model or call.get("model") or recorded
            while waiting and _is_before(waiting[0], call):
                yield summarised(waiting.pop(0), model if before is not None else own_model)
            model = own_model
            yield self._call(call, caches.of(model), before, is_timed)
            before = call
        for one in waiting:
            yield summarised(one, model)

    def _terms(self, model: str, own: TokenPrices) -> _Terms:
        rule = cache_rule(self._cache, model)
        if rule is None:
            of = f"of {model!r}" if model else "without a model's name"
            self._unknown[f"no cache rules are known {of}; set cache.provider"] = None
        else:
            self._rules[f"{rule.name} {rule.min_tokens} {rule.read_factor}"] = rule
        return _Terms(model, rule, own)

    def _call(self, row: Row, cache: _ModelCache, before: Row | None, is_timed: bool) -> CallCost:
        terms = cache.terms
        time_ns = _time(row)
        use = cache.call(self._sent(row), row["call"])
        if use is not None and row.get("break_cause") == "model_changed" and before is not None:
            # The new model's cache knows nothing of what the other had: that is what the change cost.
            overhead = row.get("overhead_tokens") or 0
            reusable = min(before["prompt_tokens"], row["prompt_tokens"]) - overhead
            use = use._replace(cause="model_changed", lost=max(reusable - use.cached, 0))
        gap_s = None if before is None else (time_ns - _time(before)) / 1e9
        prompt = row["prompt_tokens"]
        prefix = row.get("prefix_tokens")
        cost, lost_cost = self._money(use, row.get("answer_tokens") or 0, terms, time_ns if is_timed else None)
        return CallCost(
            row["conversation"],
            row["call"],
            row.get("request") or 0,
            False,
            gap_s,
            prefix,
            prompt,
            use,
            cost,
            lost_cost,
            net_of_call(row),
            _weighed(use, terms.rule),
        )

    def _sent(self, row: Row) -> Sent:
        schema = row.get("schema_tokens") or 0
        system = row.get("system_tokens") or 0
        system += (row.get("summary_tokens") or 0) if self._summary_in_system else 0
        prefix = row.get("prefix_tokens")
        # Rows of before these two columns: the call just before holds the prefix, as it does with one agent.
        holder = row["prefix_call"] if "prefix_call" in row else row["call"] - 1
        return Sent(
            time_ns=_time(row),
            tokens=row["prompt_tokens"],
            prefix_tokens=prefix,
            prefix_call=holder,
            partial_tokens=row.get("partial_tokens") or 0,
            recent_tokens=(prefix if (recent := row.get("recent_prefix_tokens")) is None else recent) or 0,
            tools_end=schema,
            system_end=schema + system if system else 0,
            overhead_tokens=row.get("overhead_tokens") or 0,
            n_messages=row.get("messages") or 0,
            cause=row.get("break_cause"),
        )

    def _summary(
        self, row: Row, terms: _Terms, simulation: CacheSimulation | None, before: Row | None, is_timed: bool
    ) -> CallCost:
        """All requests of one attempt; a retry is another request of about the same size."""
        started = _started(row) if row.get("started_ns") is not None else (0 if before is None else _time(before))
        n_requests = row["model_calls"]
        prompt, prefix = row.get("request_tokens") or 0, row.get("prefix_tokens") or 0
        output = row.get("completion_tokens") or 0
        parts = [
            None if simulation is None else simulation.summary(started, tokens, shared)
            for tokens, shared in zip(_split(prompt, n_requests), _split(prefix, n_requests), strict=True)
        ]
        known = [part for part in parts if part is not None]
        use = _joined(known) if len(known) == len(parts) else None
        moment = started if is_timed else None
        costs = [
            self._money(part, output if i == len(parts) - 1 else 0, terms, moment)[0] for i, part in enumerate(parts)
        ]
        return CallCost(
            row["conversation"],
            row["call"],
            0 if before is None else before.get("request") or 0,
            True,
            None,
            prefix,
            prompt,
            use,
            _total(costs),
            None,
            net_of_summary(row),
            _total(_weighed(part, terms.rule) for part in parts),
        )

    def _money(
        self, use: CacheUse | None, output: int, terms: _Terms, time_ns: int | None
    ) -> tuple[float | None, float | None]:
        if use is None or terms.rule is None:
            return None, None
        rates = self._rates_at(terms, time_ns)
        if rates is None:
            return None, None
        return rates.cost(use, output), rates.cost_of_loss(use)

    def _rates_at(self, terms: _Terms, time_ns: int | None) -> Rates | None:
        assert terms.rule is not None
        step = None if time_ns is None else time_ns // (30 * 60 * 1_000_000_000)
        key = (terms.own is self._prices.main, terms.model, step)
        if key not in self._rates:
            rates = rates_of(
                terms.model, terms.own, rule=terms.rule, prices=self._prices, cache=self._cache, time_ns=time_ns
            )
            if isinstance(rates, str):
                self._unknown[rates] = None
                self._rates[key] = None
            else:
                self._sources[terms.model, rates.source] = None
                self._rates[key] = rates
        return self._rates[key]


def _values_of(config: Any) -> Mapping[str, Any]:
    if isinstance(config, RunConfig):
        return config.model_dump(mode="json")
    values = config.model_dump() if hasattr(config, "model_dump") else config
    return values if isinstance(values, Mapping) else {}


def _time(row: Row) -> int:
    return int(row.get("time_ns") or 0)


def _started(row: Row) -> int:
    return int(row.get("started_ns") or 0)


def _is_before(summary: Row, call: Row) -> bool:
    """A summary that started before a call; at the same time the index of the call decides."""
    started = summary.get("started_ns")
    if started is None or started == _time(call):
        return bool(summary["call"] <= call["call"])
    return bool(started < _time(call))


def _split(tokens: int, n_parts: int) -> list[int]:
    """In parts of about the same size."""
    part, rest = divmod(tokens, n_parts)
    return [part + (i < rest) for i in range(n_parts)]


def _joined(uses: Sequence[CacheUse]) -> CacheUse:
    """Several requests of one attempt as one."""
    return CacheUse(
        sum(use.cached for use in uses), sum(use.written for use in uses), sum(use.uncached for use in uses)
    )


def _weighed(use: CacheUse | None, rule: CacheRule | None) -> float | None:
    if use is None or rule is None:
        return None
    return use.uncached + use.written * rule.write_factor + use.cached * rule.read_factor
