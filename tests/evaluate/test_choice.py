"""The one rule of a recommendation: cost, recall, peak, window, and what is unknown (WB-TUNE-02, -03, -06)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.evaluate.choice import Decision, decide
from workbench.evaluate.figures import ConversationFigures

FULL = {"agent": {}, "model": {"context_window": 16_000}}
SUMMARISING = {**FULL, "summarizer": {"max_summary_words": 200}}


@dataclass(frozen=True)
class Measured:
    """A run that is nothing but its figures."""

    name: str
    facts: Mapping[str, Any]
    config: Any = field(default_factory=lambda: SUMMARISING)

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        return []


def run(
    name: str, tokens: int, recall: float | None, peak: int = 900, overflow: int | None = 0, **facts: Any
) -> Measured:
    figures = {
        "prompt_tokens": tokens,
        "prefix_tokens": 0,
        "summary_tokens": 0,
        "needed_fact_recall": recall,
        "needed_facts": 12 if recall is None else 100,
        "peak_prompt_tokens": peak,
        "overflow_calls": overflow,
        "conversations": 10,
    }
    return Measured(name, figures | facts, FULL if name == "no summary" else SUMMARISING)


def chosen(*runs: Measured, **options: Any) -> Decision:
    return decide({one.name: one for one in runs}, **options)


BASELINE = run("no summary", 10_000, 1.0, peak=2_000)


def test_the_cheapest_that_keeps_the_facts_is_taken() -> None:
    """WB-TUNE-03: cheapest with recall ≥ 0.98 and no overflow."""
    found = chosen(BASELINE, run("lossy", 4_000, 0.80), run("careful", 7_000, 0.985))
    assert found.recommended == "careful"
    assert [one.name for one in found.standings] == ["careful", "no summary", "lossy"]
    assert found.reason == (
        "fewest net tokens of 3 runs with recall ≥ 0.98 of what no summary keeps and no overflow; "
        "'lossy' costs 43% less, but its recall is 0.80"
    )


def test_recall_is_held_against_what_the_baseline_keeps() -> None:
    """WB-TUNE-02: a history limit of both is no fault of the summary."""
    found = chosen(run("no summary", 10_000, 0.50), run("careful", 7_000, 0.49))
    assert found.recommended == "careful"
    alone = chosen(run("a", 10_000, 1.0), run("b", 7_000, 0.49))
    assert alone.recommended == "a"
    assert "recall ≥ 0.98 and no overflow" in alone.reason


def test_the_front_has_what_none_beats_in_cost_recall_and_peak_at_once() -> None:
    """WB-TUNE-02, WB-CLI-03."""
    small = run("small prompts", 9_000, 0.70, peak=300)
    beaten = run("beaten", 9_500, 0.70, peak=400)
    found = chosen(BASELINE, run("lossy", 4_000, 0.80), run("careful", 7_000, 0.985), small, beaten)
    assert set(found.pareto) == {"no summary", "lossy", "careful", "small prompts"}
    assert found.recommended in found.pareto


def test_what_overflows_is_neither_taken_nor_on_the_front() -> None:
    """WB-TUNE-06: a provider refuses it, however cheap it is."""
    found = chosen(run("no summary", 1_000, 1.0, overflow=3), run("careful", 7_000, 0.99), run("lossy", 5_000, 0.5))
    assert found.recommended == "careful"
    assert set(found.pareto) == {"careful", "lossy"}
    none = chosen(run("no summary", 1_000, 1.0, overflow=3), run("lossy", 5_000, 0.5, overflow=1))
    assert none.recommended is None
    assert none.reason == "each of 2 runs overflows the window; 'lossy' comes closest"


def test_where_nothing_that_fits_keeps_enough_the_one_that_keeps_most_is_taken_and_called_that() -> None:
    """WB-TUNE-02."""
    overflowing, a, b = run("no summary", 9_000, 1.0, overflow=2), run("a", 4_000, 0.6), run("b", 5_000, 0.9)
    limit = "recall ≥ 0.98 of what no summary keeps"
    for runs, reason in (
        ((overflowing, a, b), f"none of the 2 of 3 runs that fit the window has {limit}; it keeps the most, 0.90"),
        ((a, b), "none of 2 runs has recall ≥ 0.98; it keeps the most, 0.90"),
        ((overflowing, b), f"the only one of 2 runs that fits the window doesn't have {limit}; it keeps less, 0.90"),
    ):
        found = chosen(*runs)
        assert found.recommended == "b"
        assert found.reason == reason


def test_too_few_facts_leave_cost_alone_and_that_is_said() -> None:
    """WB-RET-01b: never a percentage of too little."""
    found = chosen(run("no summary", 10_000, None), run("lossy", 4_000, None))
    assert found.recommended == "lossy"
    assert found.reason == (
        "fewest net tokens of 2 runs with no overflow; by cost alone: 12 needed facts, and a share takes 30 from 10 "
        "conversations"
    )
    assert found.as_dict()["recall_unweighed"].startswith("12 needed facts, and")
    assert {one.recall for one in found.standings} == {None}


def test_a_window_that_nobody_knows_is_no_window_that_fits() -> None:
    """WB-TUNE-02: unknown isn't told as “no overflow”."""
    found = chosen(run("no summary", 10_000, 1.0, overflow=None), run("careful", 7_000, 0.99, overflow=None))
    assert found.recommended == "careful"
    assert "no overflow" not in found.reason
    assert found.reason.endswith("the context window is unknown, so overflow isn't checked")


def test_no_overflow_is_said_only_of_windows_that_are_known() -> None:
    """WB-TUNE-02, WB-TUNE-06: of whole runs, and of a part of the conversations."""
    runs = [run("no summary", 10_000, 1.0, unknown_windows=7), run("careful", 7_000, 0.99, unknown_windows=7)]
    assert "recall ≥ 0.98 of what no summary keeps and no overflow where the window is known" in chosen(*runs).reason
    runs = [run("no summary", 10_000, 1.0, unknown_windows=0), run("careful", 7_000, 0.99, unknown_windows=0)]
    assert chosen(*runs).reason.endswith(" and no overflow")


def test_money_decides_where_every_run_has_a_price() -> None:
    """WB-TUNE-02, WB-COST-01: else net tokens."""
    priced = {"currency": "USD"}
    runs = [run("no summary", 10_000, 1.0, cost=0.5, **priced), run("careful", 70_000, 0.99, cost=0.25, **priced)]
    found = chosen(*runs)
    assert (found.recommended, found.currency) == ("careful", "USD")
    assert found.reason.startswith("cheapest of 2 runs")
    assert found.standing("careful").cost == 25.0, "per 1,000 conversations"
    mixed = chosen(*runs, run("unpriced", 20_000, 0.99))
    assert (mixed.recommended, mixed.currency) == ("no summary", None)
    assert mixed.as_dict()["unit"] == "net tokens"


def test_of_equals_the_baseline_is_taken() -> None:
    """WB-TUNE-06: it is the simpler thing to run."""
    found = chosen(run("same", 10_000, 1.0, peak=2_000), BASELINE)
    assert found.recommended == "no summary"
    assert found.reason.startswith("nothing costs less than doing without summaries: ")


def test_one_run_alone_is_no_choice() -> None:
    found = chosen(BASELINE)
    assert (found.recommended, found.reason) == (None, "one run alone: nothing to choose from")


def test_an_unknown_cost_is_no_low_one() -> None:
    unknown = run("unknown", 10, 1.0, calls=99, prefix_tokens=None)
    assert chosen(BASELINE, unknown).recommended == "no summary"
    assert chosen(unknown, run("too", 10, 1.0, calls=99, prefix_tokens=None)).recommended is None


def test_a_limit_outside_of_shares_is_refused() -> None:
    with pytest.raises(ConfigError, match="min_recall"):
        chosen(BASELINE, min_recall=98)


def test_overflows_that_are_known_count_beside_windows_that_are_not() -> None:
    """WB-TUNE-06: on a part of the conversations as on whole runs."""

    def of(conversation: str, tokens: int, overflow: int | None) -> ConversationFigures:
        return ConversationFigures(
            conversation, conversation, 1, tokens, tokens, tokens, 0, 0, 0, overflow, 0, 0, (tokens,), (tokens,)
        )

    runs = {one.name: one for one in (BASELINE, run("small", 4_000, None))}
    figures = {
        "no summary": {"a": of("a", 900, 0), "b": of("b", 900, None)},
        "small": {"a": of("a", 400, 7), "b": of("b", 400, None)},
    }
    found = decide(runs, figures=figures, conversations=["a", "b"])
    assert {one.name: one.overflow_calls for one in found.standings} == {"no summary": 0, "small": 7}
    assert found.recommended == "no summary"
