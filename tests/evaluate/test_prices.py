"""Prices by model and date (WB-COST-01)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from workbench.config import CacheSettings, PriceSettings, RunConfig, TokenPrices
from workbench.errors import ConfigError
from workbench.evaluate.prices import Price, Rates, listed_prices, rates_of
from workbench.evaluate.providers import PROVIDERS, CacheUse, cache_rule

NO_PRICES = TokenPrices()
MARCH = datetime(2026, 3, 1, 12, tzinfo=UTC)
MARCH_NS = int(MARCH.timestamp()) * 1_000_000_000


def rates(
    model: str,
    own: TokenPrices = NO_PRICES,
    *,
    provider: str = "openai",
    cache: CacheSettings | None = None,
    time_ns: int | None = MARCH_NS,
    **prices: object,
) -> Rates | str:
    return rates_of(
        model,
        own,
        rule=PROVIDERS[provider].for_model(model),
        prices=PriceSettings(**prices),
        cache=cache or CacheSettings(),
        time_ns=time_ns,
    )


@pytest.mark.parametrize("model", ["gpt-4.1-mini", "gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro", "deepseek-chat"])
@pytest.mark.parametrize("prompt", [1000, 199_999, 200_000, 200_001, 900_000])
def test_a_call_costs_what_the_price_package_says(model, prompt):
    """WB-COST-01: cached, uncached and answer, also where long prompts cost more."""
    package = pytest.importorskip("genai_prices")
    usage = package.Usage(input_tokens=prompt, cache_read_tokens=800, output_tokens=50)
    expected = package.calc_price(usage, model, genai_request_timestamp=MARCH).total_price
    found = rates(model)
    assert found.cost(CacheUse(800, 0, prompt - 800), 50) == pytest.approx(float(expected), rel=1e-12)
    assert found.source.startswith("genai-prices ")


@pytest.mark.parametrize(
    ("provider", "key"), [("anthropic", "cache_write_tokens"), ("anthropic-1h", "cache_write_1h_tokens")]
)
def test_writes_have_the_price_of_their_lifetime(provider, key):
    """WB-COST-01, WB-COST-02: five minutes and an hour."""
    package = pytest.importorskip("genai_prices")
    usage = package.Usage(
        input_tokens=5000, output_tokens=0, cache_write_tokens=4000, **({key: 4000} if "1h" in key else {})
    )
    expected = package.calc_price(usage, "claude-sonnet-4-5", genai_request_timestamp=MARCH).total_price
    found = rates("claude-sonnet-4-5", provider=provider)
    assert found.cost(CacheUse(0, 4000, 1000), 0) == pytest.approx(float(expected), rel=1e-12)


def test_the_price_is_that_of_the_day():
    """WB-COST-01: by date; a day in the configuration goes before the day of the call."""
    pytest.importorskip("genai_prices")
    early, late = datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2026, 11, 1, 12, tzinfo=UTC)
    moved = next(
        (
            name
            for name in ("o3", "gpt-4o", "deepseek-chat", "gemini-2.5-flash")
            if listed_prices(name, early) != listed_prices(name, late)
        ),
        None,
    )
    assert moved, "no price of these ever changed"
    on_a_day = rates(moved, date="2024-01-01")
    assert on_a_day.input == listed_prices(moved, early)["input"]
    assert rates(moved, time_ns=int(late.timestamp()) * 10**9).output == listed_prices(moved, late)["output"]
    assert rates(moved, time_ns=None).input == listed_prices(moved, datetime(9999, 1, 1, 12, tzinfo=UTC))["input"]


@pytest.mark.parametrize(
    ("model", "words"), [("never-heard-of-it", "no price is known for 'never-heard-of-it'"), ("", "names no model")]
)
def test_an_unknown_model_has_no_price(model, words):
    """WB-COST-01: never a made-up price."""
    pytest.importorskip("genai_prices")
    assert words in rates(model)


def test_without_the_package_there_is_no_price_but_the_configurations(monkeypatch):
    """WB-COST-01."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    listed_prices.cache_clear()
    try:
        assert rates("gpt-4o") == "genai-prices isn't installed: pip install genai-prices"
        assert rates("gpt-4o", TokenPrices(input=1.0, output=2.0)).output == Price(2.0)
    finally:
        listed_prices.cache_clear()


def test_prices_of_the_configuration_take_the_place_of_listed_ones():
    """WB-COST-01: cache prices follow from the rules where they aren't given."""
    found = rates("house-model", TokenPrices(input=10.0, output=40.0), provider="anthropic")
    assert found == Rates(Price(10.0), Price(40.0), Price(1.0), Price(12.5), "the configuration")
    given = rates("", TokenPrices(input=10.0, output=40.0, cache_read=3.0, cache_write=11.0), provider="anthropic")
    assert (given.cache_read, given.cache_write) == (Price(3.0), Price(11.0))


def test_an_own_input_price_brings_its_own_cache_prices():
    """WB-COST-01: half of the package's, half of the configuration's would be nobody's price."""
    pytest.importorskip("genai_prices")
    found = rates("gpt-4o", TokenPrices(input=1.0))
    assert found.cache_read == Price(0.5)
    assert found.output == listed_prices("gpt-4o", MARCH)["output"]


def test_a_factor_of_the_configuration_goes_before_the_listed_price():
    """WB-COST-01, WB-CACHE-02."""
    pytest.importorskip("genai_prices")
    plain = listed_prices("gpt-4o", MARCH)["input"].base
    settings = CacheSettings(read_factor=0.125, write_factor=2.0)
    rule = cache_rule(settings, "gpt-4o")
    found = rates_of("gpt-4o", NO_PRICES, rule=rule, prices=PriceSettings(), cache=settings, time_ns=MARCH_NS)
    assert (found.cache_read.base, found.cache_write.base) == (plain * 0.125, plain * 2.0)


def test_another_currency_needs_prices_of_its_own():
    """WB-COST-01."""
    assert rates("gpt-4o", currency="CNY") == "input and output prices in CNY are missing"
    found = rates("gpt-4o", TokenPrices(input=8.0, output=24.0), currency="CNY")
    assert found.input == Price(8.0)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"date": "March"}, "prices.date"),
        ({"currency": "dollars"}, "prices.currency"),
        ({"main": {"input": -1}}, "prices.main.input"),
        ({"main": {"read": 1}}, "prices.main.read"),
    ],
)
def test_an_impossible_price_is_told_by_its_place(values, field):
    """WB-COST-01, WB-CFG-02."""
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_values({"prices": values})
    assert caught.value.field == field
