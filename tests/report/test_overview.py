"""The table, the recommendation and the sentences, from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.report.fakes import FakeConfig, FakeRun, fake_run, fake_runs
from workbench.evaluate.choice import decide
from workbench.evaluate.net import CACHED_PRICE, is_baseline, net_tokens
from workbench.report.labels import UNKNOWN, number, percent
from workbench.report.overview import (
    billing_counter,
    engine_counter,
    overview,
    sentence,
    summary_source,
    window_of,
)

RUNS = fake_runs()


def with_facts(run: FakeRun, **facts: object) -> FakeRun:
    return replace(run, facts={**run.facts, **facts})


def pair(**facts_of_candidate: object) -> dict[str, FakeRun]:
    """The baseline with 1,000 net tokens, and a candidate."""
    plain = {
        "prompt_tokens": 10_000,
        "prefix_tokens": 10_000,
        "summary_tokens": 0,
        "overflow_calls": 0,
        "peak_prompt_tokens": 900,
    }
    candidate = with_facts(RUNS["1.3 chars/token · user"], **plain)
    return {
        "no summary": with_facts(RUNS["no summary"], **plain),
        candidate.name: with_facts(candidate, **facts_of_candidate),
    }


def test_net_tokens_count_the_reused_prefix_at_a_tenth_and_the_summary_calls_in_full():
    run = with_facts(RUNS["today"], prompt_tokens=1_000, prefix_tokens=600, summary_tokens=50)
    assert net_tokens(run) == pytest.approx(1_000 - (1 - CACHED_PRICE) * 600 + 50)


def test_net_tokens_are_unknown_when_a_part_is_unknown():
    """WB-CLI-03: null is no zero."""
    assert net_tokens(with_facts(RUNS["today"], prefix_tokens=None)) is None
    assert net_tokens(with_facts(RUNS["today"], summary_tokens=None)) is None
    assert net_tokens(with_facts(RUNS["no summary"], summary_tokens=None)) is not None


def test_conversations_of_one_call_have_nothing_to_reuse():
    run = with_facts(RUNS["no summary"], prefix_tokens=None, calls=7, conversations=7, prompt_tokens=500)
    assert net_tokens(run) == 500


def test_the_cheapest_configuration_without_overflow_is_recommended():
    """WB-UI-04, WB-TUNE-06."""
    view = overview(RUNS)
    fitting = [run for run in RUNS.values() if run.facts["overflow_calls"] == 0]
    assert view.recommended == min(fitting, key=lambda run: net_tokens(run) or 0).name
    assert next(row.name for row in view.rows) == view.recommended
    assert view.rows[-1].name == "no summary", "what overflows stands last, however cheap it is"
    assert view.heading.startswith(f"Take “{view.recommended}”")
    assert view.heading.endswith("no overflow")
    some = {name: with_facts(run, unknown_windows=3) for name, run in RUNS.items()}
    assert overview(some).heading.endswith("no overflow where the window is known")


def test_the_heading_holds_the_computed_savings():
    view = overview(RUNS)
    best, today, none = (net_tokens(RUNS[name]) or 0 for name in (view.recommended, "today", "no summary"))
    assert f"{percent(1 - best / today)} fewer net tokens than today" in view.heading
    assert f"{percent(1 - best / none)} fewer than without summaries" in view.heading


def test_the_tags_name_recommendation_baseline_and_today():
    tags = {row.name: row.tags for row in overview(RUNS).rows}
    assert tags["no summary"] == ("baseline",)
    assert "today" in tags["today"]
    assert [name for name, found in tags.items() if "recommended" in found] == [overview(RUNS).recommended]


def test_the_caller_can_say_which_configuration_is_in_production():
    view = overview(RUNS, today="1.3 chars/token · system")
    assert view.today == "1.3 chars/token · system"


def test_the_baseline_wins_plainly_when_summaries_cost_more():
    """WB-TUNE-06."""
    view = overview(pair(prompt_tokens=5_000, prefix_tokens=1_000))
    assert view.recommended == "no summary"
    assert view.heading.startswith("Do without summaries: “no summary” needs the fewest net tokens")


def test_smaller_prompts_that_cost_more_are_called_that():
    """WB-TUNE-06."""
    runs = pair(prompt_tokens=5_000, prefix_tokens=1_000)
    words = sentence(runs["1.3 chars/token · user"], runs["no summary"])
    assert "smaller prompts, but ×4" in words or "smaller prompts, but 310 % more net tokens" in words


def test_equal_configurations_make_no_difference_and_the_baseline_is_kept():
    view = overview(pair())
    assert view.heading == "It makes no difference: both configurations need 1,000 net tokens"
    assert view.recommended == "no summary"


def test_today_is_kept_when_nothing_is_better():
    runs = pair(prompt_tokens=1_000, prefix_tokens=0, summary_tokens=0)
    runs["no summary"] = with_facts(runs["no summary"], prefix_tokens=0)
    view = overview(runs, today="1.3 chars/token · user")
    assert view.heading.startswith("Keep “1.3 chars/token · user”: it needs the fewest net tokens")


def test_nothing_is_recommended_when_everything_overflows():
    runs = pair(overflow_calls=3)
    runs["no summary"] = with_facts(runs["no summary"], overflow_calls=9)
    view = overview(runs)
    assert view.recommended is None
    assert view.heading.startswith(
        "No configuration fits the window of 16k: “1.3 chars/token · user” comes closest, 3 of"
    )


def test_an_unknown_window_is_said_in_the_rule():
    view = overview(fake_runs((5, 4), None))
    assert "the context window is unknown, so overflow isn't checked" in view.rule
    overflow = [column.title for column in view.columns].index("overflow")
    assert {row.cells[overflow].text for row in view.rows} == {UNKNOWN}
    assert all(row.cells[overflow].note for row in view.rows), "a dash has a reason"


def test_one_run_alone_is_compared_with_nothing():
    view = overview({"today": RUNS["today"]})
    assert view.recommended is None
    assert view.heading.endswith("nothing to compare it with")
    assert any("baseline" in remark for remark in view.remarks)


def test_recordings_without_calls_measure_nothing():
    empty = fake_run("no summary", {"客服-01": 0})
    assert overview({"no summary": empty}).heading == "No model call in these recordings: nothing to measure"
    assert sentence(empty, None) == "“no summary” made no model call."


def test_it_is_said_when_the_summary_calls_decide():
    runs = pair(prompt_tokens=2_000, prefix_tokens=2_000, summary_tokens=10_000)
    assert overview(runs).recommended == "no summary"
    assert any("without them “1.3 chars/token · user” would come first" in remark for remark in overview(runs).remarks)


def test_runs_over_different_data_are_not_compared_silently():
    runs = pair(data_hash="another", prompt_tokens=100, prefix_tokens=0)
    assert any("different data" in remark for remark in overview(runs).remarks)


def test_differences_are_against_the_baseline_and_carry_signs():
    """WB-TUNE-06."""
    view = overview(RUNS)
    net = [column.title for column in view.columns].index("net tokens")
    cells = {row.name: row.cells[net] for row in view.rows}
    assert cells["no summary"].difference == ""
    assert cells["today"].difference.startswith("\N{MINUS SIGN}")
    assert "Differences are against “no summary”" in view.rule


def test_only_what_overflows_needs_action():
    rows = {row.name: [cell for cell in row.cells if cell.needs_action] for row in overview(RUNS).rows}
    assert [cell.text for cell in rows["no summary"]] == [
        number(RUNS["no summary"].facts["peak_prompt_tokens"]),
        number(RUNS["no summary"].facts["overflow_calls"]),
    ]
    assert not any(found for name, found in rows.items() if name != "no summary")


def test_columns_that_no_run_knows_are_left_out():
    titles = [column.title for column in overview(RUNS).columns]
    assert "facts kept" not in titles
    known = {name: with_facts(run, needed_fact_recall=0.98) for name, run in RUNS.items()}
    assert "facts kept" in [column.title for column in overview(known).columns]


def test_what_the_line_above_the_table_says_of_all_is_no_column():
    titles = [column.title for column in overview(RUNS).columns]
    assert "calls" not in titles
    assert f" {next(iter(RUNS.values())).facts['calls']} calls" in overview(RUNS).provenance
    first, *_ = RUNS
    fewer = {**RUNS, first: with_facts(RUNS[first], calls=1)}
    assert "calls" in [column.title for column in overview(fewer).columns]


def test_the_rule_says_when_nothing_keeps_enough():
    """WB-TUNE-02."""
    recalls = iter((1.0, 0.6, 0.7))
    known = {
        name: with_facts(
            run, needed_fact_recall=next(recalls, 0.5), needed_facts=100, overflow_calls=int(name == "no summary")
        )
        for name, run in RUNS.items()
    }
    assert "as none keeps so much, the one that keeps most" in overview(known).rule
    enough = {name: with_facts(run, needed_fact_recall=1.0, needed_facts=100) for name, run in RUNS.items()}
    assert "as none keeps so much" not in overview(enough).rule


def test_a_sentence_says_what_a_configuration_did():
    run, baseline = RUNS["today"], RUNS["no summary"]
    words = sentence(run, baseline)
    assert words.startswith(f"“today” wrote {run.facts['summaries']} summaries, one in")
    assert f"{number(baseline.facts['prompt_tokens'])} → {number(run.facts['prompt_tokens'])}" in words
    assert f"{baseline.facts['overflow_calls']} of {baseline.facts['calls']} calls overflow" in sentence(
        baseline, baseline
    )


def test_a_trigger_that_never_fires_is_called_that():
    run = with_facts(RUNS["today"], firings=0, summaries=0, checks=40)
    assert sentence(run, None).startswith("“today” never fired in 40 checks")


def test_firings_without_a_summary_are_told_apart():
    assert "fired 5 times but wrote no summary" in sentence(with_facts(RUNS["today"], firings=5, summaries=0), None)
    assert "(5 firings)" in sentence(with_facts(RUNS["today"], firings=5, summaries=4), None)


def test_the_baseline_is_the_run_that_shortens_nothing():
    assert is_baseline(RUNS["no summary"])
    assert not is_baseline(RUNS["today"])
    compacting = replace(RUNS["no summary"], config={"summarizer": None, "compaction": {"enabled": True}})
    assert not is_baseline(compacting)
    tailoring = replace(RUNS["no summary"], config={"summarizer": None, "tailoring": {"enabled": True}})
    assert not is_baseline(tailoring)
    limited = replace(RUNS["no summary"], config={"summarizer": None, "agent": {"max_history_runs": 20}})
    assert not is_baseline(limited)
    assert "drops rounds that do not fit and makes no summaries" in sentence(with_facts(tailoring, firings=0), None)
    assert not is_baseline(replace(RUNS["no summary"], config=None)), "an unknown configuration is no baseline"


def test_provenance_names_profile_source_and_both_counters():
    """WB-RPL-06: engine and billing counter are always shown apart."""
    line = overview(RUNS).provenance
    for part in (
        "7 conversations",
        "229 calls",
        "profile SEED",
        "summaries: extractive",
        "billing counter: o200k_base",
    ):
        assert part in line
    assert engine_counter(RUNS["today"]) == "4.0 characters per token"
    assert billing_counter(RUNS["today"]) == "o200k_base"
    assert summary_source(RUNS["no summary"]) is None
    assert window_of(RUNS["today"]) == 16_000


def test_faults_show_in_the_table_and_in_the_sentence_only_where_there_are_any():
    """WB-RPL-13, WB-RPL-18: counts only when not zero, and where to look first."""
    assert not {"protocol faults", "coverage faults"} & {column.title for column in overview(RUNS).columns}
    row = {"conversation": "c7", "call": 3, "kind": "protocol", "rule": "unanswered_call", "step": "tailoring"}
    bad = replace(RUNS["today"], tables={**RUNS["today"].tables, "violations": [row]})
    bad = with_facts(bad, protocol_violations=2, coverage_violations=0)
    view = overview({**RUNS, "today": bad})
    titles = [column.title for column in view.columns]
    assert "coverage faults" not in titles
    cell = next(one for one in view.rows if one.name == "today").cells[titles.index("protocol faults")]
    assert (cell.text, cell.needs_action) == ("2", True)
    assert "; 2 protocol faults, first unanswered_call by tailoring in “c7”, call 3." in sentence(bad, None)
    assert "fault" not in sentence(RUNS["today"], None)


def test_a_baseline_with_another_window_than_the_rest_is_pointed_out():
    """An empty file has the recorded model's window, and nothing overflows in a million tokens."""
    runs = fake_runs()
    assert not any("windows differ" in remark for remark in overview(runs).remarks)
    first = next(iter(runs.values()))
    own = replace(first, config=FakeConfig({**first.config.values, "model": {"context_window": None}}))
    (remark,) = [text for text in overview({**runs, first.name: own}).remarks if "windows differ" in text]
    assert "16k tokens by model.context_window" in remark
    assert "the recorded model's own" in remark


def test_what_a_part_decided_is_told_with_its_own_reason_and_without_savings_of_the_whole():
    """WB-TUNE-02: one recommendation, and every figure says of which conversations it is."""
    of_all = decide(RUNS)
    turned_down, other = of_all.standings[0].name, of_all.standings[1].name
    order = sorted(of_all.standings, key=lambda one: one.name != other)
    part = replace(
        of_all, standings=tuple(order), recommended=other, reason="it won on these", chosen_on=("a", "b", "c")
    )
    view = overview(RUNS, decision=part)
    n = RUNS[other].facts["conversations"]
    assert view.recommended == view.rows[0].name == other
    assert view.heading.endswith(f"chosen on 3 of {n} conversations")
    assert view.heading.startswith((f"Take “{other}”", f"Keep “{other}”"))
    assert "%" not in view.heading
    assert view.reason == f"It won on these. The table is of all {n} conversations, in the order of the choice."
    assert f", over 3 of {n} conversations; " in view.rule
    assert not any(turned_down in remark for remark in view.remarks)


def test_what_all_conversations_decided_says_so():
    view = overview(RUNS)
    assert view.reason == ""
    assert f", over all {RUNS['today'].facts['conversations']} conversations; " in view.rule


def test_runs_that_a_page_leaves_out_are_counted():
    few = {name: run for name, run in RUNS.items() if name != decide(RUNS).standings[-1].name}
    assert "Not shown: 1 run that" in overview(few, decision=decide(RUNS)).rule
