"""Metrics on empty, single, all-equal, missing or infinite values: an error or nothing, never a made-up number (REL-18)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.evaluate.costs import OPENAI, OWN_PRICES, Rows, calls
from tests.report.fakes import fake_run
from workbench.errors import NotEnoughDataError
from workbench.evaluate.cache_findings import against_reported, idle_gaps, losses_by_cause, mean_error
from workbench.evaluate.calibrate import calibrate
from workbench.evaluate.compare import compare
from workbench.evaluate.cost import cost_of
from workbench.evaluate.lint import lint, quantiles
from workbench.evaluate.retention import ClassChance, Retention, SurvivalPoint, survival
from workbench.evaluate.savings import break_even, difference_of, mean_interval
from workbench.evaluate.summary_checks import invented_number_rate
from workbench.evaluate.thrash import thrash
from workbench.evaluate.usage import calibrate_usage
from workbench.recordings import Recordings
from workbench.recordings.generate import generate_conversation


def numbers_in(value: Any) -> Iterator[float]:
    """All numbers in plain values."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from numbers_in(one)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def fact(conversation: str, state: str = "visible_raw", *, kind: str = "number") -> dict[str, Any]:
    return {"conversation": conversation, "call": 3, "kind": kind, "value": "1234", "state": state, "summaries": 1}


# --- shares of facts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [fact("c")],
        [fact("c")] * 29,
        [fact("c")] * 300,  # facts enough, from one conversation
        [fact(f"c{i}", kind="code") for i in range(60)],  # a class that isn't in the headline
    ],
    ids=["none", "one", "29", "one conversation", "code only"],
)
@pytest.mark.parametrize("share", [Retention.recall, Retention.floor, Retention.reachable])
def test_a_share_of_too_few_facts_is_an_error(rows: list[dict[str, Any]], share: Callable[[Retention], object]) -> None:
    """REL-18, WB-RET-01b: with what there is and what is needed."""
    with pytest.raises(NotEnoughDataError) as caught:
        share(Retention(tuple(rows), ()))
    assert caught.value.have < caught.value.need


@pytest.mark.parametrize(("state", "share"), [("visible_raw", 1.0), ("lost", 0.0)])
def test_facts_that_are_all_alike_have_a_share_and_a_wide_interval(state: str, share: float) -> None:
    """REL-18: all kept of 40 isn't certainly all."""
    found = Retention(tuple(fact(f"c{i % 12}", state) for i in range(40)), ()).recall()
    assert found.share == share
    assert 0.0 <= found.low <= share <= found.high <= 1.0
    assert found.high - found.low > 0.05


def test_chance_and_survival_of_nothing_are_missing() -> None:
    """REL-18."""
    assert ClassChance("url", 0, 0).share is None
    assert survival([Retention((), ())]) == []
    assert SurvivalPoint(1, "", (), ()).share is None
    assert SurvivalPoint(1, "", (29,), (29,)).share is None
    assert SurvivalPoint(1, "", (40,), (40,)).spread is None


def test_a_rate_of_no_numbers_is_missing() -> None:
    """REL-18."""
    assert invented_number_rate([]) is None


# --- money -----------------------------------------------------------------------------------------------

EMPTY = Rows([], config={"cache": OPENAI, "prices": OWN_PRICES})
PRICED = {"cache": OPENAI, "prices": OWN_PRICES}


def test_a_run_without_calls_costs_nothing_and_has_no_averages() -> None:
    """REL-18."""
    cost = cost_of(EMPTY)
    assert (cost.cost, cost.cost_per_call, cost.cost_per_conversation) == (0, None, None)
    assert cost.cost_per_1000_conversations is None
    assert difference_of(cost, cost) is None
    assert (break_even(cost, cost).median, break_even(cost, cost).longest) == (None, 0)
    assert losses_by_cause(cost) == {}
    assert idle_gaps(EMPTY, cost) is None
    assert mean_error(against_reported(EMPTY, cost)) is None


def test_an_unknown_price_makes_every_sum_missing() -> None:
    """REL-18: never a price of 0."""
    cost = cost_of(Rows(calls([2000, 3000]), model="nobody-knows-it"))
    assert (cost.cost, cost.cost_per_call, cost.cached_tokens, cost.weighed_tokens) == (None, None, None, None)
    known = cost_of(Rows(calls([2000, 3000]), config=PRICED))
    assert difference_of(known, cost) is None
    assert cost.unknown


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([1.0], None),
        ([1.0] * 9, None),
        ([2.5] * 10, (2.5, 2.5)),
        ([math.inf] * 10, None),
        ([1.0] * 10 + [math.nan], None),
    ],
)
def test_an_interval_needs_ten_finite_values(values: list[float], expected: tuple[float, float] | None) -> None:
    """REL-18: numpy's warnings are errors here."""
    assert mean_interval(values) == expected


def test_a_comparison_with_itself_has_no_interval_below_ten_and_a_relative_change_of_nothing_is_missing() -> None:
    """REL-18."""
    few = fake_run("a", {"c1": 4, "c2": 4})
    found = compare(few, fake_run("b", {"c1": 4, "c2": 4}))
    assert {one.interval for one in found.differences} == {None}
    firings = next(one for one in found.differences if one.measure == "firings")
    assert firings.reference_value or firings.relative is None
    assert all(map(math.isfinite, numbers_in(found.as_dict())))


# --- triggers and counters -------------------------------------------------------------------------------


class NoRows:
    """A run over no conversation."""

    name = "empty"
    facts: dict[str, Any] = {}  # noqa: RUF012
    config: dict[str, Any] = {"summarizer": {"max_summary_words": 100}}  # noqa: RUF012

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        return []


def test_quantiles_and_lint_of_nothing_are_empty() -> None:
    """REL-18."""
    assert quantiles([]) == {}
    assert quantiles([7]) == {"p50": 7, "p90": 7, "max": 7}
    empty = lint(NoRows())
    assert (empty.findings, empty.corpus["prompt_tokens"], empty.corpus["seconds_between_requests"]) == ((), {}, {})


def test_no_firing_behaves_in_no_way() -> None:
    """REL-18."""
    assert thrash([], []).as_dict() == {"firings": 0, "saving_little": 0, "consecutive": 0, "growing": 0, "stuck": []}


@pytest.mark.parametrize("texts", [[], [""], ["a text"], ["a text"] * 3])
def test_a_calibration_of_too_little_text_is_an_error(texts: list[str]) -> None:
    """REL-18, WB-CAL-01."""
    with pytest.raises(NotEnoughDataError):
        calibrate(texts)


def test_a_calibration_without_reported_usage_is_an_error(recorded: Callable[..., Recordings]) -> None:
    """REL-18, WB-CAL-03."""
    for conversations in ([], recorded(generate_conversation(n_events=40, seed=1))):
        with pytest.raises(NotEnoughDataError):
            calibrate_usage(conversations)


def test_texts_that_are_all_equal_have_one_ratio() -> None:
    """REL-18: no division by a spread of nothing."""
    found = calibrate(["The same sentence, again and again."] * 80, resamples=50)
    assert found.interval[0] == pytest.approx(found.interval[1])
    assert found.ratio > 1
