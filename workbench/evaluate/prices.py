"""Prices of tokens: of the maintained price package, by model and date, or as the configuration gives them.

In: a model's name, a time, the `[prices]` table. Out: `Rates`, or the reason why there are none: an unknown model
is counted in tokens only (WB-COST-01). The package holds its data in itself; it loads when a price is first asked
for, and nothing here uses the network.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

from workbench.config import CacheSettings, PriceSettings, TokenPrices
from workbench.evaluate.providers import CacheRule, CacheUse

PACKAGE = "genai-prices"
_MODULE = "genai_prices"
_PER = 1_000_000
# Some prices depend on the time of day, in steps of half hours.
_STEP_NS = 30 * 60 * 1_000_000_000
_LATEST = datetime(9999, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost, which may depend on the length of the prompt."""

    base: float
    tiers: tuple[tuple[int, float], ...] = ()
    """`(tokens, price)`: a longer prompt pays this for all of it; shortest first."""

    def of(self, tokens: int, *, prompt_tokens: int) -> float:
        """What so many tokens of a prompt of that length cost."""
        price = next((price for start, price in reversed(self.tiers) if prompt_tokens > start), self.base)
        return tokens * price / _PER

    def times(self, factor: float) -> Price:
        """This price, multiplied."""
        return Price(self.base * factor, tuple((start, price * factor) for start, price in self.tiers))


@dataclass(frozen=True, slots=True)
class Rates:
    """What one model costs at one time."""

    input: Price
    output: Price
    cache_read: Price
    cache_write: Price
    source: str
    """Where the prices are from."""

    def cost(self, use: CacheUse, output_tokens: int) -> float:
        """One call: the three parts of its prompt, and its answer."""
        prompt = use.cached + use.written + use.uncached
        return (
            self.cache_read.of(use.cached, prompt_tokens=prompt)
            + self.cache_write.of(use.written, prompt_tokens=prompt)
            + self.input.of(use.uncached, prompt_tokens=prompt)
            + self.output.of(output_tokens, prompt_tokens=prompt)
        )

    def cost_of_loss(self, use: CacheUse) -> float:
        """What the tokens that weren't read cost more than reading them would have."""
        prompt = use.cached + use.written + use.uncached
        paid = self.cache_write if use.written else self.input
        return paid.of(use.lost, prompt_tokens=prompt) - self.cache_read.of(use.lost, prompt_tokens=prompt)


def rates_of(
    model: str,
    own: TokenPrices,
    *,
    rule: CacheRule,
    prices: PriceSettings,
    cache: CacheSettings,
    time_ns: int | None,
) -> Rates | str:
    """What a model costs.

    Args:
        model: Its name; may be empty when the configuration gives the prices.
        own: Prices of the configuration; each takes the place of the package's.
        rule: Cache rules; their factors stand in for cache prices that the package lacks.
        time_ns: When; None = unknown, so the newest prices hold. `prices.date` goes before it.
    Returns:
        The rates, or in words why they are unknown.
    """
    given = {
        name: Price(value)
        for name in ("input", "output", "cache_read", "cache_write")
        if (value := getattr(own, name)) is not None
    }
    table: dict[str, Price] = {}
    is_whole = {"input", "output"} <= given.keys()
    if not is_whole:
        if prices.currency != "USD":
            return f"input and output prices in {prices.currency} are missing"
        listed = listed_prices(model, _moment(prices, time_ns))
        if isinstance(listed, str):
            return listed
        table.update(listed)
    if "input" in given:  # the package's cache prices go with its own input price
        table = {name: price for name, price in table.items() if name in ("input", "output")}
    plain = given.get("input") or table["input"]
    write = "cache_write_1h" if rule.long_writes else "cache_write"
    if cache.read_factor is not None or "cache_read" not in table:
        table["cache_read"] = plain.times(rule.read_factor)
    if cache.write_factor is not None or write not in table:
        table["cache_write"] = plain.times(rule.write_factor)
    else:
        table["cache_write"] = table[write]
    table |= given
    source = "the configuration" if is_whole else _package_and_version()
    return Rates(
        table["input"],
        table["output"],
        table["cache_read"],
        table["cache_write"],
        source,
    )


def _moment(prices: PriceSettings, time_ns: int | None) -> datetime:
    if prices.date:
        day = date.fromisoformat(prices.date)
        return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    if time_ns is None:
        return _LATEST
    return datetime.fromtimestamp(time_ns // _STEP_NS * _STEP_NS // 1_000_000_000, UTC)


@cache
def _package_and_version() -> str:
    # Cached: reading a package's metadata takes milliseconds, and a run asks once per half hour of its recordings.
    return f"{PACKAGE} {version(PACKAGE)}"


@cache
def listed_prices(model: str, moment: datetime) -> Mapping[str, Price] | str:
    """The price package's prices of a model, per million tokens, or why there are none."""
    if not model:
        return "the recording names no model; set prices.model"
    if importlib.util.find_spec(_MODULE) is None:
        return f"{PACKAGE} isn't installed: pip install {PACKAGE}"
    from genai_prices import Usage, calc_price

    try:
        listed = calc_price(Usage(input_tokens=1, output_tokens=1), model, genai_request_timestamp=moment).model_price
    except LookupError:
        return f"no price is known for {model!r}; set prices.main.input and prices.main.output"
    found = {
        name: price
        for name in ("input", "output", "cache_read", "cache_write", "cache_write_1h")
        if (price := _price(getattr(listed, f"{name}_mtok", None))) is not None
    }
    if "input" not in found or "output" not in found:
        return f"no price per token is known for {model!r}; set prices.main.input and prices.main.output"
    return found


def _price(listed: Any) -> Price | None:
    if listed is None:
        return None
    if hasattr(listed, "tiers"):
        return Price(float(listed.base), tuple((int(tier.start), float(tier.price)) for tier in listed.tiers))
    return Price(float(listed))
