"""What the prompt cache says about a run: which option lost how much, idle gaps, and how right the rules are.

In: `RunCost`, stored rows. Out: sums per cause and per option (WB-CACHE-03), the idle-gap map with the price of a
longer lifetime (WB-CACHE-06), and predicted against reported tokens (WB-CACHE-04).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from workbench.config import CacheSettings
from workbench.evaluate.cost import CallCost, RunCost, StoredRun, cost_of
from workbench.evaluate.providers import PROVIDERS, CacheRule

SUMMARIES = "summaries"
# The option of a configuration that stands behind each cause of a break; what isn't here comes from the recording.
OPTION_OF_CAUSE = {
    "summary_appeared": SUMMARIES,
    "summary_updated_system": SUMMARIES,
    "summary_updated_user": SUMMARIES,
    "summary_moved": SUMMARIES,
    "resume_tail": SUMMARIES,
    "covered_turn_ended": SUMMARIES,
    "compaction_placeholder": "compaction.tool_result_max_tokens",
    "compaction_truncation": "compaction.oversized_tool_result_max_tokens",
    "tailoring": "tailoring",
    "history_limit": "agent.max_history_runs",
    "preload_changed": "preloads",
    "model_changed": "model",
    "expired": "cache.lifetime_s",
    "no_breakpoint": "cache.breakpoints",
}
_GAPS_S = (
    ("up to 1 min", 60.0),
    ("1 to 5 min", 300.0),
    ("5 to 30 min", 1800.0),
    ("30 min to 1 h", 3600.0),
    ("1 h to 1 day", 86_400.0),
    ("over 1 day", float("inf")),
)


@dataclass(frozen=True, slots=True)
class Loss:
    """Cached tokens that one cause or option cost."""

    calls: int
    tokens: int
    cost: float | None
    """What they cost more than reading them would have; None where a price is unknown."""


def losses_by_cause(cost: RunCost) -> dict[str, Loss]:
    """Which cause cost how many cached tokens, most first. Source: WB-CACHE-03."""
    return _losses((call.use.cause, call) for call in cost.main_calls if call.use is not None and call.use.cause)


def losses_by_option(cost: RunCost) -> dict[str, Loss]:
    """Which option of the configuration cost how many cached tokens, most first. Source: WB-CACHE-03."""
    return _losses(
        (OPTION_OF_CAUSE.get(call.use.cause), call)
        for call in cost.main_calls
        if call.use is not None and call.use.cause
    )


def _losses(found: Iterable[tuple[str | None, CallCost]]) -> dict[str, Loss]:
    grouped: dict[str, list[CallCost]] = {}
    for name, call in found:
        if name is not None and name != "first_call":
            grouped.setdefault(name, []).append(call)
    losses = {name: _loss(calls) for name, calls in grouped.items()}
    return dict(sorted(losses.items(), key=lambda item: -item[1].tokens))


def _loss(calls: list[CallCost]) -> Loss:
    tokens = sum(call.use.lost for call in calls if call.use is not None)
    money = [call.lost_cost for call in calls if call.lost_cost is not None]
    return Loss(len(calls), tokens, sum(money) if len(money) == len(calls) else None)


# --- idle gaps -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gap:
    """Calls that came after a silence of some length."""

    title: str
    calls: int
    expired: int
    """Those that found their prefix gone."""
    prefix_tokens: int
    """What they began with that had been sent before."""
    lost_tokens: int
    """What of it was gone."""


@dataclass(frozen=True, slots=True)
class IdleGaps:
    """How long conversations pause, and what that does to the cache."""

    gaps: tuple[Gap, ...]
    rule: CacheRule
    longer: CacheRule | None
    """The same cache with a longer lifetime, if it is sold."""
    longer_costs: float | None
    """What that one costs more (negative: less), in `unit`; None without one."""
    unit: str
    """A currency, or `uncached tokens` where prices are unknown."""

    @property
    def expired(self) -> int:
        """Calls that found their prefix gone."""
        return sum(gap.expired for gap in self.gaps)

    @property
    def lost_tokens(self) -> int:
        """What was gone for these."""
        return sum(gap.lost_tokens for gap in self.gaps)


def idle_gaps(run: StoredRun, cost: RunCost) -> IdleGaps | None:
    """How many calls arrive after the cache has gone, and whether a longer lifetime would pay.

    Returns:
        None without cache rules, or when conversations of one run have different ones.
    Source: WB-CACHE-06.
    """
    names = {rule.name for rule in cost.rules}
    if len(names) != 1 or cost.cached_tokens is None:
        return None
    rule = cost.rules[0]
    gaps = []
    low = 0.0
    for title, high in _GAPS_S:
        calls = [
            call
            for call in cost.main_calls
            if call.gap_s is not None and (low < call.gap_s <= high or low == call.gap_s == 0)
        ]
        gone = [call.use for call in calls if call.use is not None and call.use.cause == "expired"]
        gaps.append(
            Gap(
                title,
                len(calls),
                len(gone),
                sum(call.prefix_tokens or 0 for call in calls),
                sum(use.lost for use in gone),
            )
        )
        low = high
    longer = PROVIDERS.get(rule.longer)
    if longer is None:
        return IdleGaps(tuple(gaps), rule, None, None, cost.currency)
    # A lifetime or write price of the configuration is the shorter cache's; everything else holds for both.
    settings = _cache_settings(run).replace(provider=longer.name, lifetime_s=None, write_factor=None)
    other = cost_of(run, cache=settings)
    if cost.cost is not None and other.cost is not None:
        return IdleGaps(tuple(gaps), rule, longer, other.cost - cost.cost, cost.currency)
    if cost.weighed_tokens is None or other.weighed_tokens is None:
        return IdleGaps(tuple(gaps), rule, longer, None, cost.currency)
    return IdleGaps(tuple(gaps), rule, longer, other.weighed_tokens - cost.weighed_tokens, "uncached tokens")


def _cache_settings(run: StoredRun) -> CacheSettings:
    config = run.config
    found = config.get("cache") if isinstance(config, dict) else getattr(config, "cache", None)
    return found if isinstance(found, CacheSettings) else CacheSettings.parse(found or {})


# --- against reported usage ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reported:
    """One conversation whose provider reported cached tokens, beside what the rules predict."""

    conversation: str
    calls: int
    prompt_tokens: int
    """Predicted: what the recording holds, by the billing counter."""
    cached_tokens: int
    """Predicted."""
    reported_prompt_tokens: int
    reported_cached_tokens: int

    @property
    def share(self) -> float:
        """Cached part of the prompts as predicted."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def reported_share(self) -> float:
        """The same as reported."""
        return self.reported_cached_tokens / self.reported_prompt_tokens if self.reported_prompt_tokens else 0.0

    @property
    def error(self) -> float:
        """Predicted minus reported share."""
        return self.share - self.reported_share


def against_reported(run: StoredRun, cost: RunCost) -> list[Reported]:
    """Predicted and reported tokens of each conversation that carries cached-token usage.

    Only a run that sends what was recorded can be held against it: no summaries, nothing compacted or dropped.
    Shares are compared, because a recording often lacks what every request began with. Source: WB-CACHE-04.
    """
    uses = {(call.conversation, call.call): call for call in cost.main_calls}
    found: dict[str, list[int]] = {}
    for row in run.rows("calls"):
        cached, prompt = row.get("recorded_cached_tokens"), row.get("recorded_prompt_tokens")
        call = uses.get((row["conversation"], row["call"]))
        if cached is None or prompt is None or call is None or call.use is None:
            continue
        sums = found.setdefault(row["conversation"], [0, 0, 0, 0, 0])
        for i, value in enumerate((1, call.prompt_tokens, call.use.cached, prompt, cached)):
            sums[i] += value
    return [Reported(name, *sums) for name, sums in found.items()]


def mean_error(reported: Iterable[Reported]) -> float | None:
    """Mean absolute error of the cached share, calls weighing equally; None without any."""
    rows = list(reported)
    calls = sum(row.calls for row in rows)
    return sum(abs(row.error) * row.calls for row in rows) / calls if calls else None
