"""What a run costs (WB-COST-01, -02), and when it has paid for itself (WB-TUNE-06)."""

from __future__ import annotations

import random

import pytest

from tests.evaluate.costs import OPENAI, OWN_PRICES, Rows, calls, summary
from workbench.config import CacheSettings, PriceSettings
from workbench.evaluate.cost import cost_of
from workbench.evaluate.prices import Price
from workbench.evaluate.savings import break_even, difference_of, mean_interval

MILLION = 1_000_000
PRICED = {"cache": OPENAI, "prices": OWN_PRICES}


def test_a_call_pays_for_cached_written_and_uncached_tokens_and_its_answer():
    """WB-COST-02."""
    cost = cost_of(Rows(calls([2048, 2200]), config=PRICED))
    first, second = cost.calls
    assert first.use[:3] == (0, 2048, 0)
    assert first.cost * MILLION == pytest.approx(2048 * 12 + 100 * 40)
    assert second.use[:3] == (2048, 128, 24)
    assert second.cost * MILLION == pytest.approx(2048 * 1 + 128 * 12 + 24 * 10 + 100 * 40)
    assert (cost.cached_tokens, cost.written_tokens, cost.uncached_tokens) == (2048, 2176, 24)
    assert cost.priced_by == (("gpt-4.1", "the configuration"),)


def test_summaries_and_their_retries_are_in_the_total():
    """WB-COST-02: per call, conversation and 1,000 conversations."""
    rows = calls([2048, 2200])
    plain = cost_of(Rows(rows, config=PRICED))
    cost = cost_of(Rows(rows, [summary(1, 3000, 200, n=2)], PRICED))
    assert cost.summary_cost * MILLION == pytest.approx(2 * 1408 * 12 + 2 * 92 * 10 + 200 * 40)
    assert cost.cost == pytest.approx(plain.cost + cost.summary_cost)
    assert cost.cost_per_call == pytest.approx(cost.cost / 2)
    assert cost.cost_per_conversation == pytest.approx(cost.cost)
    assert cost.cost_per_1000_conversations == pytest.approx(1000 * cost.cost)
    two = cost_of(Rows([*rows, *calls([2048, 2200], conversation="d")], [summary(1, 3000, 200, n=2)], PRICED))
    assert two.cost_by_conversation == pytest.approx({"c": cost.cost, "d": plain.cost})
    assert two.cost_per_1000_conversations == pytest.approx(500 * (cost.cost + plain.cost))


def test_a_copy_of_a_summary_costs_nothing():
    """WB-COST-02."""
    copied = {**summary(1, 0, 50, n=0), "status": "copied"}
    cost = cost_of(Rows(calls([2048]), [copied], PRICED))
    assert (cost.summary_calls, cost.summary_cost) == ([], 0.0)


def test_a_fork_reads_its_parents_prefix_at_the_price_of_the_cache():
    """WB-CACHE-05, WB-COST-02."""
    cost = cost_of(Rows(calls([2048]), [summary(1, 2100, 200, prefix=2048)], PRICED))
    assert cost.summary_calls[0].use[:3] == (2048, 0, 52)
    assert cost.summary_cached_tokens == 2048
    assert cost.summary_cost * MILLION == pytest.approx(2048 * 1 + 52 * 10 + 200 * 40)


def test_a_fork_to_another_model_finds_no_cache():
    """WB-CACHE-05: its provider never saw the parent."""
    other = {**PRICED, "summaries": {"model": "gpt-4o"}}
    cost = cost_of(
        Rows(calls([2048]), [summary(1, 2100, 200, prefix=2048)], other),
        prices=PriceSettings.parse(OWN_PRICES | {"summary": {"input": 1, "output": 2}}),
    )
    assert cost.summary_calls[0].use.cached == 0
    assert cost.summary_cost * MILLION == pytest.approx(2100 * 1 + 200 * 2)


def test_a_summary_is_told_to_the_cache_at_its_time():
    """WB-CACHE-05: a fork between two calls keeps the prefix alive for the second."""
    rows = calls([2048, 2200], every_s=500)
    late = summary(1, 2100, 200, prefix=2048)
    late["started_ns"] = rows[0]["time_ns"] + 250 * 10**9
    assert cost_of(Rows(rows, config=PRICED)).calls[1].use.cached == 0
    kept = cost_of(Rows(rows, [late], PRICED))
    assert [call.is_summary for call in kept.calls] == [False, True, False]
    assert kept.calls[2].use.cached == 2048


def test_a_mark_behind_the_system_message_has_the_summary_in_front_where_that_is_in_it():
    """WB-CACHE-02: a new summary in the system message leaves no marked end, one in the user message does."""
    rows = calls([6000, 6000], schema_tokens=0, system_tokens=1500, summary_tokens=400)
    rows[1] |= {"prefix_tokens": 1600, "recent_prefix_tokens": 1600, "break_cause": "summary_updated_user"}
    for mode, cached in (("system", 0), ("user", 1500)):
        config = {"cache": {"provider": "anthropic"}, "agent": {"summary_injection_mode": mode}}
        assert cost_of(Rows(rows, config=config)).calls[1].use.cached == cached


def test_an_assumed_clock_has_no_dates_so_the_newest_prices_hold(monkeypatch):
    """WB-COST-01."""
    asked = []

    def listed(model, moment):
        asked.append(moment.year)
        return {"input": Price(1.0), "output": Price(2.0)}

    monkeypatch.setattr("workbench.evaluate.prices.listed_prices", listed)
    monkeypatch.setattr("workbench.evaluate.prices.version", lambda name: "1")
    for assumed in (False, True):
        cost_of(Rows(calls([2048]), config={"cache": OPENAI}, assumed_time=assumed))
    assert asked == [2026, 9999]


def test_an_unknown_price_blocks_the_total_but_not_the_tokens():
    """WB-COST-01: tokens only, and why."""
    cost = cost_of(Rows(calls([2048, 2200]), config={"cache": OPENAI}, model="never-heard-of-it"))
    assert (cost.cached_tokens, cost.cost, cost.cost_per_1000_conversations) == (2048, None, None)
    assert len(cost.unknown) == 1


def test_an_unknown_provider_leaves_tokens_unknown_too():
    """WB-COST-01, WB-CACHE-02."""
    cost = cost_of(Rows(calls([2048]), config={"prices": OWN_PRICES}, model="house-model"))
    assert (cost.cached_tokens, cost.cost) == (None, None)
    assert cost.unknown == ("no cache rules are known of 'house-model'; set cache.provider",)


def test_stored_rows_are_priced_anew_by_other_rules_and_prices():
    """WB-COST-01: an old run needs no replay; rows of before there were these columns do too."""
    rows = calls([2048, 2200])
    run = Rows(rows, config=PRICED)
    none = cost_of(run, cache=CacheSettings(provider="none"))
    assert (none.cached_tokens, none.uncached_tokens) == (0, 4248)
    dear = cost_of(run, prices=PriceSettings.parse({"currency": "CNY", "main": {"input": 100, "output": 400}}))
    assert (dear.currency, dear.cost > 5 * cost_of(run).cost) == ("CNY", True)
    old = [{k: v for k, v in row.items() if k not in ("prefix_call", "recent_prefix_tokens")} for row in rows]
    assert cost_of(Rows(old, config=PRICED)).calls == cost_of(run).calls


def test_the_difference_to_a_baseline_is_paired_and_has_an_interval():
    """WB-COST-02."""
    sizes = {f"c{i}": [2048 + 128 * i, 2500 + 200 * i] for i in range(12)}
    base = cost_of(Rows([row for name, two in sizes.items() for row in calls(two, conversation=name)], config=PRICED))
    half = [row for name, two in sizes.items() for row in calls([n // 2 for n in two], conversation=name)]
    found = difference_of(cost_of(Rows(half, config=PRICED)), base)
    assert found.n_conversations == 12
    assert found.relative < 0
    low, high = found.interval
    assert low < found.per_1000_conversations < high < 0
    assert difference_of(base, base).interval == (0.0, 0.0)


def test_few_conversations_have_no_interval_and_other_currencies_no_difference():
    """WB-COST-02."""
    one = cost_of(Rows(calls([2048]), config=PRICED))
    assert difference_of(one, one).interval is None
    other = cost_of(Rows(calls([2048]), config=PRICED), prices=PriceSettings.parse(OWN_PRICES | {"currency": "EUR"}))
    assert difference_of(one, other) is None


def test_the_interval_holds_the_mean_about_as_often_as_it_says():
    """WB-COST-02: 95 % nominal; the seed makes it repeatable."""
    walk = random.Random(7)
    samples = [[walk.gauss(5.0, 2.0) for _ in range(30)] for _ in range(40)]
    held = sum(low <= 5.0 <= high for low, high in map(mean_interval, samples))
    assert held >= 33
    assert mean_interval(samples[0]) == mean_interval(samples[0])


def test_a_configuration_that_starts_dearer_breaks_even_at_a_turn():
    """WB-TUNE-06."""
    base = cost_of(Rows(calls([2000] * 6, prefix_tokens=None, answer=0), config=PRICED))
    tuned = cost_of(
        Rows(calls([2000, 2000, 500, 500, 500, 500], prefix_tokens=None, answer=0), [summary(2, 3000, 10)], PRICED)
    )
    found = break_even(tuned, base)
    # The summary costs about 36,000, each of the short calls saves about 19,000.
    assert found.turns == {"c": 4}
    assert (found.reached, found.median, found.longest) == ([4], 4, 6)
    never = cost_of(Rows(calls([2000] * 6, prefix_tokens=None, answer=0), [summary(2, 3000, 10)], PRICED))
    assert break_even(never, base).turns == {"c": None}
    assert break_even(base, base).turns == {"c": 1}


def test_without_prices_break_even_goes_by_net_tokens():
    """WB-TUNE-06."""
    base = cost_of(Rows(calls([2000] * 6, prefix_tokens=None), model=""))
    tuned = cost_of(Rows(calls([2000, 2000, 500, 500, 500, 500], prefix_tokens=None), [summary(2, 3000, 10)], model=""))
    assert (base.cost, break_even(tuned, base).turns) == (None, {"c": 5})


def test_the_facts_of_a_cost_are_its_sums():
    """WB-CLI-03."""
    cost = cost_of(Rows(calls([2048, 2200]), [summary(1, 2100, 200, prefix=2048)], PRICED))
    facts = cost.facts()
    assert (facts["cached_tokens"], facts["written_tokens"]) == (cost.cached_tokens, cost.written_tokens)
    assert facts["summary_cached_tokens"] == cost.summary_cached_tokens == 2048
    assert facts["cost"] == facts["cost_usd"] == cost.cost
    unknown = cost_of(Rows(calls([2048]), config={"model": {"name": "nobody-knows"}})).facts()
    assert {unknown[name] for name in ("cached_tokens", "written_tokens", "cost", "currency")} == {None}
