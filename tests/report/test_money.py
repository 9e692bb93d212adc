"""Money and the provider's cache in reports, over real runs of small conversations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, config, recorded, summarising
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.evaluate.compare import compare
from workbench.evaluate.figures import figures_of
from workbench.recordings import Recordings
from workbench.replay.replay import replay
from workbench.replay.runs import FACT_NAMES, Run, RunSet, load_runs
from workbench.report.cache_words import gap_sentence, gaps_of, option_sentences, reported_of, reported_sentence
from workbench.report.labels import money
from workbench.report.overview import cost_in_detail, overview, scale_of, sentence
from workbench.report.page import html_document
from workbench.report.plots import cost_recall
from workbench.report.terminal import summary

__all__ = ["recorded"]

pytestmark = pytest.mark.slow  # replays whole data sets; `make test-more` runs these

CACHE = {"provider": "openai", "min_tokens": 1, "block_tokens": 1}
PRICES = {"main": {"input": 10.0, "output": 40.0, "cache_read": 1.0, "cache_write": 10.0}}
TERMS = {"cache": CACHE, "prices": PRICES}


def configs(**terms: Any) -> list[RunConfig]:
    """The baseline, seldom summaries, and summaries all the time."""
    return [
        config(name="no summary", **terms),
        summarising("seldom", token=1500, **terms),
        summarising("always", token=60, **terms),
    ]


@pytest.fixture
def runs(recorded: Callable[..., Recordings], tmp_path: Path) -> RunSet:
    conversations = [chat(14 + i % 3, ident=f"c{i}") for i in range(10)]
    return replay(recorded(*conversations), configs(**TERMS), runs=tmp_path / "runs", progress=False)


def column(view: Any, title: str) -> list[Any]:
    index = [one.title for one in view.columns].index(title)
    return [row.cells[index] for row in view.rows]


@pytest.mark.parametrize(
    ("value", "currency", "text"),
    [
        (0.0, "USD", "$0.00"),
        (3.071, "USD", "$3.07"),
        (187.7, "USD", "$188"),
        (20_640, "EUR", "€20.6k"),
        (-1420, "CHF", "\N{MINUS SIGN}CHF 1,420"),
        (0.00423, "CNY", "CN¥0.0042"),
    ],
)
def test_an_amount_is_told_with_its_currency(value, currency, text):
    assert money(value, currency) == text


def test_the_finding_names_money_when_it_is_known(runs):
    """WB-COST-02, WB-UI-04: the cheapest is recommended, by money and not by tokens."""
    view = overview(runs)
    costs = {name: run.facts["cost"] for name, run in runs.items()}
    assert view.recommended == min(costs, key=costs.get)
    assert [row.name for row in view.rows] == sorted(costs, key=costs.get)
    amount = money(100 * min(costs.values()), "USD")  # ten conversations
    assert amount in column(view, "cost per 1,000")[0].text
    assert "cheap" in view.heading
    assert "lowest cost" in view.rule
    assert "prices: gpt-4o by the configuration" in view.provenance
    assert "cache: OpenAI before GPT-5.6" in view.provenance


def test_the_cost_says_its_difference_and_how_sure_that_is(runs):
    """WB-COST-02."""
    view = overview(runs)
    cells = dict(zip((row.name for row in view.rows), column(view, "cost per 1,000"), strict=True))
    assert cells["no summary"].difference == ""
    assert cells["always"].difference.endswith("%")
    words = sentence(runs["always"], runs["no summary"])
    assert "per 1,000 conversations; difference $" in words
    assert ", 95 %)" in words
    assert "of it for summaries" in cells["always"].note


def test_a_saving_whose_interval_holds_nothing_is_called_unsure_wherever_it_is_told(recorded, runs, tmp_path):
    """WB-COST-02, WB-TUNE-01: one long conversation pays for the others, which it may not elsewhere."""
    conversations = [chat(60 if i == 0 else 3, ident=f"c{i}") for i in range(10)]
    configs = [config(name="no summary", **TERMS), summarising("often", token=1500, **TERMS)]
    one_pays = replay(recorded(*conversations), configs, runs=tmp_path / "one", progress=False)
    often, without = one_pays["often"], one_pays["no summary"]
    assert often.facts["cost"] < without.facts["cost"]
    (verdict,) = compare(one_pays, reference="no summary").verdicts
    assert verdict.is_certain is False
    assert " cheaper than without summaries (not sure), " in overview(one_pays).heading
    assert ", 95 %: not sure)" in sentence(often, without)
    assert " less than “no summary” (not sure)" in cost_recall(one_pays).finding
    for name in ("seldom", "always"):
        verdict = next(one for one in compare(runs, reference="no summary").verdicts if one.run == name)
        assert verdict.is_certain
        assert "not sure" not in sentence(runs[name], runs["no summary"])
    assert "not sure" not in overview(runs).heading + cost_recall(runs).finding


def test_smaller_prompts_that_cost_more_are_called_that_with_the_break_even_turn(runs):
    """WB-TUNE-06, WB-COST-02: "smaller, but dearer"."""
    assert runs["always"].facts["prompt_tokens"] < runs["no summary"].facts["prompt_tokens"]
    assert runs["always"].facts["cost"] > runs["no summary"].facts["cost"]
    words = sentence(runs["always"], runs["no summary"])
    assert "; smaller, but dearer: " in words
    assert "breaks even in " in words
    assert " turns" in words or "at turn " in words


def test_each_option_says_what_it_cost_in_cached_tokens_and_money(runs):
    """WB-CACHE-03."""
    (words,) = [text for text in option_sentences(runs, runs) if text.startswith("“always”")]
    assert "summaries cost " in words
    assert " cached tokens ($" in words
    assert option_sentences(runs, ["no summary"]) == []


def test_terminal_and_page_show_cost_causes_and_pauses(runs):
    """WB-CACHE-03, WB-CACHE-06, WB-COST-02."""
    text, page = summary(runs), html_document(runs)
    assert max(map(len, text.splitlines())) <= 100
    for words in ("cost per", "later calls came after the cached"):
        assert words in " ".join(text.split())
    for words in (
        "cost per 1,000",
        "Pauses and the lifetime of the cache",
        "silence before a call",
        "summaries cost ",
    ):
        assert words in page
    assert "aren't in it" not in page


def test_pauses_are_told_with_what_a_longer_lifetime_would_save(runs):
    """WB-CACHE-06."""
    run = runs["no summary"]
    assert gap_sentence(run, gaps_of(run)).endswith("openai-24h would change nothing.")
    short = run.priced(cache={"lifetime_s": 20})
    found = gaps_of(short)
    assert found.expired > 50
    assert "openai-24h would save $" in gap_sentence(short, found)


def test_an_unpriced_run_is_compared_by_net_tokens_and_says_why(recorded, tmp_path):
    """WB-COST-01: unknown model = tokens only; it blocks the comparison by money."""
    conversation = {**chat(8), "model": "never-heard-of-it"}
    runs = replay(recorded(conversation), configs(cache=CACHE), runs=tmp_path / "runs", progress=False)
    view = overview(runs)
    assert scale_of(runs.values()).currency is None
    assert "cost per 1,000" not in [one.title for one in view.columns]
    assert [remark for remark in view.remarks if "never-heard-of-it" in remark or "genai-prices isn't" in remark]
    facts = runs["always"].facts
    assert (facts["cost"], facts["cost_usd"], facts["currency"]) == (None, None, None)
    assert facts["cached_tokens"] > 0
    assert facts["cache_rules"] == ["openai"]


def test_facts_have_the_documented_keys_and_sums(runs):
    """WB-CLI-03, WB-CACHE-02."""
    for run in runs.values():
        assert tuple(run.facts) == FACT_NAMES
        assert run.facts["cost_usd"] == run.facts["cost"] == pytest.approx(sum(call.cost for call in run.cost.calls))
        parts = (run.facts["cached_tokens"], run.facts["written_tokens"], run.cost.uncached_tokens)
        assert sum(parts) == run.facts["prompt_tokens"]
        # One agent, no minimum, nothing expires: what the provider has is what was sent before.
        assert run.facts["cached_tokens"] == run.facts["prefix_tokens"]


def test_a_stored_run_is_priced_anew_without_a_replay(runs, tmp_path):
    """WB-COST-01: other provider, other prices, the same rows."""
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()}
    loaded = load_runs(tmp_path / "runs")
    none = loaded["always"].priced(cache={"provider": "none"})
    assert (none.facts["cached_tokens"], none.facts["written_tokens"]) == (0, 0)
    assert none.facts["cost"] > loaded["always"].facts["cost"]
    yuan = loaded["always"].priced(prices={"currency": "CNY"})
    assert (yuan.facts["currency"], yuan.facts["cost_usd"]) == ("CNY", None)
    assert yuan.facts["cost"] == loaded["always"].facts["cost"]
    assert scale_of([yuan, loaded["always"]]).currency is None
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "runs").iterdir()} == before
    assert loaded["always"].priced(**{"prices.main.output": 80.0}).facts["cost"] > loaded["always"].facts["cost"]


@pytest.mark.parametrize("changes", [{"trigger.token": 5}, {"cache": {"scope": "corpus"}}, {"cache.scope": "corpus"}])
def test_what_needs_a_replay_is_refused(runs, changes):
    """WB-COST-01."""
    with pytest.raises(ConfigError, match=r"options of cache \(but scope\) and prices"):
        runs["always"].priced(**changes)


def test_reported_cache_reads_stand_beside_the_prediction(recorded, tmp_path):
    """WB-CACHE-04."""
    conversation = chat(6, tools=False)
    sent = 0
    for message in conversation["messages"]:
        if message["role"] == "assistant":
            details = {"cached_tokens": sent}
            sent += 80
            message["usage"] = {"prompt_tokens": sent, "completion_tokens": 9, "prompt_tokens_details": details}
    runs = replay(recorded(conversation), configs(**TERMS), runs=tmp_path / "runs", progress=False)
    (found,) = reported_of(runs)
    assert (found.calls, found.reported_cached_tokens, found.reported_prompt_tokens) == (6, 1200, 1680)
    assert found.cached_tokens == runs["no summary"].facts["cached_tokens"]
    assert abs(found.error) < 0.2
    assert "6 calls with reported usage" in reported_sentence([found])
    assert "Predicted and reported cache reads" in html_document(runs)


def test_a_fork_costs_less_than_the_same_summary_asked_for_alone(recorded, tmp_path):
    """WB-CACHE-05: its prefix is the parent's, which the cache has."""
    two = [
        summarising("alone", token=400, **TERMS),
        summarising("fork", token=400, summarizer={"max_summary_words": 40, "cache_safe_forking": True}, **TERMS),
    ]
    runs = replay(recorded(chat(14)), two, runs=tmp_path / "runs", progress=False)
    alone, fork = (cost_in_detail(runs[name]) for name in ("alone", "fork"))
    assert alone.summary_cached_tokens == 0
    assert fork.summary_cached_tokens == runs["fork"].facts["summary_prefix_tokens"] > 0
    uncached = runs["fork"].priced(cache={"provider": "none"})
    assert fork.summary_cost < uncached.cost.summary_cost


def test_a_page_of_runs_without_cost_is_as_before(runs):
    """WB-UI-04: a run that is only rows and facts has no sections about money."""
    from tests.report.fakes import fake_runs

    page = html_document(fake_runs())
    assert "Pauses and the lifetime" not in page
    assert "cost per" not in page
    assert json.dumps(runs["always"].facts)
    assert replace(overview(runs), heading="").heading == ""


def test_a_run_too_large_to_hold_has_the_same_figures_worked_out_on_the_way(runs, monkeypatch):
    """PERF-04, WB-COST-01: costs are exact sums, whoever adds them."""
    whole = {name: (run.facts, figures_of(run)) for name, run in runs.items()}
    monkeypatch.setattr("workbench.replay.runs._COSTS_KEPT", 0)
    monkeypatch.setattr("workbench.evaluate.cost.cost_of", lambda *_: pytest.fail("all calls were held at once"))
    for name, (facts, figures) in whole.items():
        again = Run(runs[name].path)
        assert again.is_large
        assert again.facts == facts
        assert figures_of(again) == figures
        assert any(one.cost for one in figures.values())
