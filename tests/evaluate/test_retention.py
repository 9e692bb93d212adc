"""Recall of needed facts from the rows of a run: honest figures, examples, survival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.replay.conftest import config, recorded, summarising
from tests.replay.test_needed import many
from workbench.errors import NotEnoughDataError
from workbench.evaluate.retention import Retention, recall_of, retention, survival
from workbench.replay.replay import replay

__all__ = ["recorded"]  # the fixture of the replays


@dataclass
class Rows:
    needed_facts: list[dict[str, Any]]
    fact_chance: list[dict[str, Any]]

    def rows(self, table: str, conversation: str | None = None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = getattr(self, table)
        return [row for row in rows if conversation is None or row["conversation"] == conversation]


def row(conversation: str = "c0", **values: Any) -> dict[str, Any]:
    return {
        "conversation": conversation, "call": 5, "kind": "identifier", "value": "订单-A1001", "source_position": 0,
        "source_event_id": f"{conversation}:0", "source_role": "user", "state": "visible_raw", "step": "",
        "summaries": 0, **values,
    }  # fmt: skip


def chance(kind: str, needed: int, by_chance: int) -> dict[str, Any]:
    return {"conversation": "c0", "compared_with": "c1", "kind": kind, "needed": needed, "by_chance": by_chance}


def kept(n: int, visible: int, *, conversations: int = 10, **values: Any) -> list[dict[str, Any]]:
    lost = {"state": "lost", "step": "summary", "summaries": 1, **values}
    return [row(f"c{i % conversations}", **(values if i < visible else lost)) for i in range(n)]


def test_recall_is_visible_of_needed():
    """WB-RET-01."""
    found = retention(Rows(kept(40, 30), []))
    recall = found.recall()
    assert (recall.needed, recall.visible, recall.share) == (40, 30, 0.75)
    assert recall.low < 0.75 < recall.high
    assert found.states == {"visible_raw": 30, "visible_summary": 0, "recoverable": 0, "lost": 10}


@pytest.mark.parametrize(
    ("n", "conversations", "have", "need"), [(29, 10, 29, 30), (30, 9, 9, 10), (0, 1, 0, 30)], ids=str
)
def test_too_few_facts_are_no_percentage(n, conversations, have, need):
    """WB-RET-01b."""
    found = retention(Rows(kept(n, n, conversations=conversations), []))
    assert not found.has_enough
    for figure in (found.recall, found.floor, found.reachable):
        with pytest.raises(NotEnoughDataError) as caught:
            figure()
        assert (caught.value.have, caught.value.need) == (have, need)


def test_thirty_facts_from_ten_conversations_are_enough():
    """WB-RET-01b."""
    assert retention(Rows(kept(30, 30), [])).recall().share == 1.0


def test_a_class_that_chance_fills_is_left_out():
    """WB-RET-01b: above 20 %; 20 % is not above it."""
    rows = [*kept(40, 40), *kept(40, 0, kind="time"), *kept(40, 40, kind="date")]
    found = retention(Rows(rows, [chance("time", 100, 21), chance("date", 100, 20), chance("identifier", 40, 0)]))
    assert found.left_out == ("time", "code")
    assert (found.recall().needed, found.recall().share) == (80, 1.0)
    assert [(one.kind, one.share) for one in found.chance] == [("date", 0.2), ("time", 0.21), ("identifier", 0.0)]
    assert found.by_class()["time"] == (40, 0)


def test_a_class_found_only_by_chance_is_left_out():
    """WB-RET-01b."""
    assert retention(Rows([], [chance("phone", 0, 1)])).left_out == ("phone", "code")


def test_code_is_not_in_the_headline():
    """WB-RET-01a."""
    assert retention(Rows([*kept(30, 30), *kept(30, 0, kind="code")], [])).recall().share == 1.0


def test_floor_and_ceiling_stand_around_what_summaries_add():
    """WB-RPL-07a: the floor is what empty summaries would leave."""
    rows = [*kept(30, 30), *kept(20, 20, state="visible_summary"), *kept(10, 10, state="recoverable"), *kept(10, 0)]
    found = retention(Rows(rows, []))
    assert [figure().visible for figure in (found.floor, found.recall, found.reachable)] == [30, 50, 60]


def test_facts_of_one_conversation_count_as_related():
    """WB-RET-01b: kept or lost together, forty facts say little more than ten."""
    together = [row(f"c{i % 10}", state="lost" if i % 10 < 5 else "visible_raw") for i in range(40)]
    mixed = [row(f"c{i % 10}", state="lost" if i // 10 < 2 else "visible_raw") for i in range(40)]
    wide, narrow = recall_of(together), recall_of(mixed)
    assert wide.share == narrow.share == 0.5
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_an_example_says_what_was_lost_where_and_by_which_step():
    """WB-RET-03."""
    rows = [
        row("客服", state="lost", step="tailoring", value="HB-20417", call=9, source_position=3, source_role="tool"),
        row("客服", state="lost", step="tailoring", value="HB-20417", call=11),
        row("客服", state="lost", step="summary", value="KJ-70154"),
        row("other", state="lost", step="oversized", value="QX-30511"),
        row("other", state="visible_raw"),
    ]
    found = retention(Rows(rows, []))
    first = found.examples(2)
    assert [(one.conversation, one.value) for one in first] == [("客服", "HB-20417"), ("other", "QX-30511")]
    example = first[0]
    assert (example.source_position, example.source_role, example.call, example.step) == (3, "tool", 9, "tailoring")
    assert len(found.examples()) == 3, "each fact once"
    assert found.lost_by_step() == {"tailoring": 2, "summary": 1, "oversized": 1}


def test_recall_per_call():
    """WB-RET-01: also per call."""
    rows = [row(call=3), row(call=3, state="lost"), row(call=7, state="visible_summary"), row("c1", call=3)]
    calls = retention(Rows(rows, [])).by_call("c0")
    assert list(calls) == [3, 7]
    assert (calls[3]["visible_raw"], calls[3]["lost"], calls[7]["visible_summary"]) == (1, 1, 1)


# --- survival -------------------------------------------------------------------------------------------


def after(n_summaries: int, n: int, visible: int, kind: str = "identifier") -> list[dict[str, Any]]:
    states = ["visible_summary"] * visible + ["lost"] * (n - visible)
    return [row(f"c{i % 10}", state=state, summaries=n_summaries, kind=kind) for i, state in enumerate(states)]


def test_survival_says_what_is_left_after_each_further_summary():
    """WB-RET-05."""
    rows = [*after(1, 40, 36), *after(2, 40, 20), *after(3, 5, 0), *kept(50, 50)]
    points = survival([Retention(tuple(rows), ())])
    assert [(one.summaries, one.needed, one.share) for one in points] == [
        (1, (40,), 0.9), (2, (40,), 0.5), (3, (5,), None)
    ]  # fmt: skip


def test_survival_tells_classes_apart():
    """WB-RET-05: by fact class."""
    rows = [*after(1, 40, 20), *after(1, 40, 40, "date")]
    points = survival([Retention(tuple(rows), ())], kinds=("identifier", "date"))
    assert [(one.kind, one.share) for one in points] == [("identifier", 0.5), ("date", 1.0)]


def test_replicates_give_a_spread():
    """WB-RET-05: where the summary model isn't deterministic."""
    one, two = (Retention(tuple(after(1, 40, visible)), ()) for visible in (30, 38))
    (point,) = survival([one, two])
    assert (point.share, point.spread) == (0.85, (0.75, 0.95))
    assert survival([one])[0].spread is None


# --- a real run -----------------------------------------------------------------------------------------


def test_the_figure_of_a_run_is_the_one_of_its_rows(recorded, tmp_path):
    """WB-CLI-03: one rule, told twice."""
    runs = replay(recorded(*many(12)), [config(name="all"), summarising(token=300)], runs=tmp_path)
    for run in runs.values():
        found = retention(run)
        assert run.facts["needed_facts"] == len(found.headline) == 36
        assert run.facts["needed_fact_recall"] == pytest.approx(found.recall().share)
        assert found.left_out == ("time", "code")
    assert retention(runs["summaries"]).floor().share < retention(runs["all"]).floor().share == 1.0
