"""Figures: what they draw is what the rows say, and it can be read."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.patches import StepPatch
from matplotlib.text import Text

from tests.report.fakes import THRESHOLD, WINDOW, FakeRun, fake_run, fake_runs
from workbench.errors import ConfigError
from workbench.evaluate.choice import decide
from workbench.replay.trace import BREAK_CAUSES
from workbench.report import (
    cache_breaks,
    cost_recall,
    coverage,
    firing_map,
    prefix_reuse,
    tokens_per_call,
    trigger_value,
)
from workbench.report.fonts import drawable
from workbench.report.labels import number
from workbench.report.overview import settings_of
from workbench.report.palette import DARK, LIGHT
from workbench.report.plots.events import LOOKS
from workbench.report.plots.firing import MAX_ROWS, firing_grid
from workbench.report.plots.prefix import look_of_cause

RUNS = fake_runs()
TODAY, NONE, USER = RUNS["today"], RUNS["no summary"], RUNS["1.3 chars/token · user"]
SHORT = fake_run("today", {"客服-01": 12, "客服-02": 3}, chars_per_token=1.3)
LONGEST = "客服-01"
PARTS = {
    "system and schemas": ("system_tokens", "schema_tokens"),
    "summary": ("summary_tokens",),
    "history": ("history_tokens",),
    "tool results": ("tool_result_tokens",),
    "current message": ("current_tokens",),
    "overhead": ("overhead_tokens",),
}


_DRAWN: dict[tuple[object, int], object] = {}


def once(draw, runs):
    """A figure that several tests look at and none changes. For runs that live as long as this module."""
    key = (draw, id(runs))
    if key not in _DRAWN:
        _DRAWN[key] = draw(runs)
    return _DRAWN[key]


def changed(run: FakeRun, table: str, change) -> FakeRun:
    """A copy of a run with `change(row)` applied to the rows of one table."""
    rows = [{**row, **change(row)} for row in run.tables[table]]
    return replace(run, tables={**run.tables, table: rows})


def column(run: FakeRun, table: str, name: str, conversation: str = LONGEST) -> list:
    return [row[name] for row in run.rows(table, conversation)]


def steps_of(axes, label: str) -> StepPatch:
    return next(patch for patch in axes.patches if isinstance(patch, StepPatch) and patch.get_label() == label)


def marks_of(axes) -> list[tuple[float, float]]:
    return [point for line in axes.lines if line.get_marker() == "v" for point in map(tuple, line.get_xydata())]


def visible_texts(figure) -> list[Text]:
    """Everything written in a figure that is seen."""
    hidden = [axes for axes in figure.axes if not axes.get_visible()]
    inside = {id(text) for axes in hidden for text in axes.findobj(Text)}
    return [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in inside
    ]


def boxes(figure) -> list[tuple[str, object]]:
    """Place of every text on the canvas, in dots; tick labels outside the axes' limits aren't drawn."""
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not low <= tick.get_loc() <= high:
                    tick.label1.set_visible(False)
                    tick.label2.set_visible(False)
                if not axis.get_tick_params().get("labelbottom", True) and axis is axes.xaxis:
                    tick.label1.set_visible(False)
    return [(text.get_text(), text.get_window_extent()) for text in visible_texts(figure)]


# --- tokens per call --------------------------------------------------------------------------------------


def test_each_part_is_as_high_as_its_columns():
    """WB-UI-02, WB-RPL-03."""
    figure = once(tokens_per_call, RUNS)
    for axes, run in zip(figure.axes, RUNS.values(), strict=True):
        for label, columns in PARTS.items():
            rows = np.sum([column(run, "calls", name) for name in columns], axis=0)
            if not rows.any():
                continue
            top, _, bottom = steps_of(axes, label).get_data()
            assert np.array_equal(top - bottom, rows), label
        top, edges, _ = steps_of(axes, "overhead").get_data()
        assert np.array_equal(top, column(run, "calls", "prompt_tokens"))
        assert np.array_equal(edges, np.arange(len(top) + 1) - 0.5)


def test_all_panels_share_their_axes():
    figure = once(tokens_per_call, RUNS)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_a_mark_stands_on_the_last_call_before_each_written_summary():
    figure = once(tokens_per_call, TODAY)
    prompts = column(TODAY, "calls", "prompt_tokens")
    expected = [(call - 1, prompts[call - 1]) for call in column(TODAY, "summaries", "call")]
    assert marks_of(figure.axes[0]) == expected


def test_failed_summaries_are_marked_hollow():
    failed = changed(TODAY, "summaries", lambda row: {"status": "failed"})
    figure = tokens_per_call(failed)
    assert marks_of(figure.axes[0])
    assert "▽ summary failed" in figure.texts[1].get_text()
    assert "▼ summary written" not in figure.texts[1].get_text()


def test_the_title_says_who_exceeds_the_window_and_from_which_call():
    prompts = column(NONE, "calls", "prompt_tokens")
    first = next(index for index, tokens in enumerate(prompts) if tokens > WINDOW)
    lowest = min(RUNS.values(), key=lambda run: max(column(run, "calls", "prompt_tokens")))
    assert once(tokens_per_call, RUNS).finding == (
        f"“no summary” exceeds the window of 16k from call {first} on; "
        f"“{lowest.name}” peaks at {number(max(column(lowest, 'calls', 'prompt_tokens')))}"
    )


def test_without_a_window_the_title_compares_the_peaks():
    runs = fake_runs(window=None)
    peaks = [max(column(run, "calls", "prompt_tokens")) for run in runs.values()]
    assert f"{max(peaks) / min(peaks):.1f} times as much" in tokens_per_call(runs).finding


def test_the_title_says_plainly_when_nothing_differs():
    assert tokens_per_call(fake_runs((2,))).finding.startswith("No configuration changes the peak: all 4 reach")


def test_the_window_is_a_line_when_it_is_near_and_a_word_when_it_is_far():
    def lines_at(figure, height: float) -> int:
        return sum(list(line.get_ydata()) == [height, height] for axes in figure.axes for line in axes.lines)

    assert lines_at(once(tokens_per_call, RUNS), WINDOW) == len(RUNS)
    far = tokens_per_call(fake_runs((5, 3), 128_000))
    assert lines_at(far, 128_000) == 0
    assert "window 128k, above this scale" in far.texts[1].get_text()


def test_the_source_line_names_recording_calls_profile_and_counter():
    """WB-RPL-06."""
    source = once(tokens_per_call, RUNS).texts[1].get_text()
    assert source == "客服-01 · 60 calls · ▼ summary written · profile SEED · tokens counted with o200k_base"


def test_the_conversation_with_the_most_calls_is_shown_unless_another_is_named():
    assert once(tokens_per_call, RUNS).texts[1].get_text().startswith(LONGEST)
    assert tokens_per_call(RUNS, "客服-03").texts[1].get_text().startswith("客服-03 · 47 calls")
    with pytest.raises(ConfigError, match="客服-99") as caught:
        tokens_per_call(RUNS, "客服-99")
    assert caught.value.hint.startswith("did you mean 客服-0")


# --- trigger values ---------------------------------------------------------------------------------------


def test_the_line_holds_the_values_of_the_checks():
    """WB-UI-02, WB-RPL-04."""
    axes = once(trigger_value, TODAY).axes[0]
    values, edges, _ = steps_of(axes, "value").get_data()
    assert np.array_equal(values, column(TODAY, "checks", "value"))
    assert np.array_equal(edges[:-1], [call - 1 for call in column(TODAY, "checks", "call")])


def test_a_firing_stands_at_the_value_that_crossed():
    axes = once(trigger_value, TODAY).axes[0]
    fired = [(row["call"] - 1, row["value"]) for row in TODAY.rows("checks", LONGEST) if row["fired"]]
    assert marks_of(axes) == fired
    assert all(value > THRESHOLD for _, value in fired)
    assert [THRESHOLD, THRESHOLD] in [list(line.get_ydata()) for line in axes.lines]


def test_the_title_holds_rhythm_and_overshoot():
    fired = [row for row in TODAY.rows("checks", LONGEST) if row["fired"]]
    overshoot = max(row["value"] - row["threshold"] for row in fired)
    assert f"overshoots by up to {number(overshoot)} tokens" in once(trigger_value, TODAY).finding
    gaps = np.diff([row["call"] for row in fired])
    about = "" if np.ptp(gaps) == 0 else "about "
    assert once(trigger_value, TODAY).finding.startswith(
        f"The trigger fires {about}every {round(np.median(gaps))} calls"
    )


def test_configurations_with_one_rhythm_are_named_together():
    finding = once(trigger_value, RUNS).finding
    assert "“1.3 chars/token · system” and “1.3 chars/token · user” fire about every 7 calls" in finding


def test_a_silent_trigger_says_how_near_it_came():
    quiet = changed(TODAY, "checks", lambda row: {"fired": False, "threshold": 10 * THRESHOLD})
    nearest = max(column(quiet, "checks", "value")) / (10 * THRESHOLD)
    assert f"never fires (at most {nearest:.0%}".replace("%", " %") in trigger_value(quiet).finding
    assert once(trigger_value, NONE).finding == "No trigger check: nothing here could fire"


def test_each_unit_has_its_own_axis_and_time_is_shown_in_seconds():
    """WB-UI-02."""

    def mixed(row):
        kind = row["check"] % 3
        return (
            {},
            {"unit": "events", "value": row["check"] * 2.0, "threshold": 40.0},
            {"unit": "milliseconds", "value": row["check"] * 5_000.0, "threshold": 300_000.0},
        )[kind]

    figure = trigger_value(changed(TODAY, "checks", mixed))
    assert [axes.get_ylabel() for axes in figure.axes] == ["tokens", "events", "seconds"]
    labels = [text.get_text() for text in figure.axes[2].get_yticklabels()]
    assert labels[:2] == ["0", "100"]


def test_a_part_that_held_back_what_another_let_fire_is_not_said_never_to_fire():
    """WB-RPL-04: of a trigger of several parts the check that decided is drawn, and nothing where another one did."""

    def both(row):
        held_back = {"unit": "milliseconds", "value": 4_000.0, "threshold": 300_000.0}
        return {} if row["fired"] or row["check"] % 3 == 0 else held_back

    mixed = changed(TODAY, "checks", both)
    rows = mixed.rows("checks", LONGEST)
    fired = sum(row["fired"] for row in rows)
    by_unit = {unit: [row for row in rows if row["unit"] == unit] for unit in ("tokens", "milliseconds")}
    figure = trigger_value(mixed)
    titles = {axes.get_ylabel(): axes.get_title(loc="left").replace("\n", " ") for axes in figure.axes}
    assert titles["tokens"] == f"today: {fired} firings"
    assert titles["seconds"] == f"today: decided {len(by_unit['milliseconds'])} checks, none of the {fired} firings"
    assert "no line where something else decided" in figure.texts[1].get_text().replace("\n", " ")
    for axes, own in zip(figure.axes, by_unit.values(), strict=True):
        values, edges, _ = steps_of(axes, "value").get_data()
        drawn = {edge: value for edge, value in zip(edges[:-1], values, strict=True) if not np.isnan(value)}
        assert drawn == {row["call"] - 1: row["value"] for row in own}
        assert np.isnan(values).any()


def test_a_check_with_nothing_to_summarise_has_no_panel():
    idle = changed(
        TODAY, "checks", lambda row: {"unit": "", "value": 0.0, "threshold": 0.0} if row["check"] % 2 else {}
    )
    assert [axes.get_ylabel() for axes in trigger_value(idle).axes] == ["tokens since the last summary"]


def test_checks_without_a_measured_value_are_left_out():
    forced = changed(TODAY, "checks", lambda row: {"value": None, "threshold": None, "name": "force"})
    figure = trigger_value({"forced": forced, "today": TODAY})
    assert len(figure.axes) == 1
    assert "no measured check in “today”" in trigger_value({"a": forced, "b": USER}).texts[1].get_text()


def test_several_checks_between_two_calls_stand_side_by_side():
    doubled = changed(TODAY, "checks", lambda row: {"call": row["check"] // 2 + 1})
    _, edges, _ = steps_of(trigger_value(doubled).axes[0], "value").get_data()
    assert list(edges[:4]) == [0.0, 0.5, 1.0, 1.5]


# --- prefix reuse -----------------------------------------------------------------------------------------


def heights(axes) -> list[dict[int, float]]:
    """Height per call of each kind of bar, from the bottom up."""
    found = []
    for bars in axes.collections:
        assert isinstance(bars, PolyCollection)
        spans = [(path.vertices[:4, 0].mean(), np.ptp(path.vertices[:4, 1])) for path in bars.get_paths()]
        found.append({round(float(x)): float(height) for x, height in spans})
    return found


def test_reused_lost_and_new_add_up_to_the_prompt():
    """WB-UI-02, WB-CACHE-03."""
    reused, *lost, fresh = heights(once(prefix_reuse, USER).axes[0])
    causes = {row["break_cause"] for row in USER.rows("calls", LONGEST)} - {None, "first_call"}
    assert len(lost) == len(causes)
    for row in USER.rows("calls", LONGEST):
        call = row["call"]
        assert reused.get(call, 0) == pytest.approx(row["prefix_tokens"] or 0)
        assert sum(part.get(call, 0) for part in lost) == pytest.approx(row["lost_tokens"])
        total = reused.get(call, 0) + sum(part.get(call, 0) for part in lost) + fresh.get(call, 0)
        assert total == pytest.approx(row["prompt_tokens"])


def test_the_title_holds_the_lost_tokens_and_their_main_cause():
    rows = USER.rows("calls", LONGEST)
    total = sum(row["lost_tokens"] for row in rows)
    updated = [row["lost_tokens"] for row in rows if row["break_cause"] == "summary_updated_user"]
    assert once(prefix_reuse, USER).finding == (
        f"“{USER.name}” loses {number(total)} cached tokens, {100 * sum(updated) / total:.0f} % of them where "
        f"{BREAK_CAUSES['summary_updated_user']} ({len(updated)} times)"
    )


def test_the_legend_counts_calls_and_tokens_by_cause():
    labels = [text.get_text() for text in once(prefix_reuse, USER).legends[0].get_texts()]
    assert labels[0] == "reused prefix"
    assert labels[-1] == "new text"
    rows = [row for row in USER.rows("calls", LONGEST) if row["break_cause"] == "summary_updated_user"]
    lost = sum(row["lost_tokens"] for row in rows)
    assert f"lost: a new summary changed the user block ({len(rows)} calls, {number(lost)} tokens)" in labels


def test_the_source_line_says_which_of_the_two_shares_it_is():
    """WB-CACHE-01a."""
    rows = [row for row in USER.rows("calls", LONGEST) if row["prefix_tokens"] is not None]
    reuse = sum(row["prefix_tokens"] for row in rows) / sum(row["reusable_tokens"] for row in rows)
    assert f"prefix reuse {reuse:.2f} (reused / reusable tokens)" in once(prefix_reuse, USER).texts[1].get_text()


def test_a_prefix_that_never_breaks_is_called_that():
    assert (
        once(prefix_reuse, NONE).finding
        == "The prefix never breaks: “no summary” reuses all that was cached in 59 calls"
    )
    one_call = fake_run("no summary", {"客服-01": 1})
    assert prefix_reuse(one_call).finding == "No call has an earlier request: there is no prefix to reuse"


def test_causes_stay_apart_without_colour():
    """WB-UI-02: readable in black and white."""
    causes = [cause for cause in BREAK_CAUSES if cause != "first_call"]
    looks = [look_of_cause(cause, LIGHT) for cause in causes]
    assert len(set(looks)) == len(causes)
    assert all(hatch for _, hatch in looks)


# --- firing map -------------------------------------------------------------------------------------------


def test_the_map_holds_value_over_threshold_longest_conversation_first():
    """WB-UI-02."""
    grid = firing_grid(USER)
    assert grid.labels == tuple(f"客服-{n:02d}" for n in range(1, 8))
    for row, name in enumerate(grid.labels):
        checks = USER.rows("checks", name)
        assert np.allclose(grid.fullness[row, : len(checks)], [check["value"] / check["threshold"] for check in checks])
        assert np.isnan(grid.fullness[row, len(checks) :]).all()
        assert list(grid.fired[row, : len(checks)]) == [check["fired"] for check in checks]


def test_the_map_marks_every_firing():
    rows, calls = np.nonzero(firing_grid(USER).fired)
    assert sorted(marks_of(once(firing_map, USER).axes[0])) == sorted(zip(calls, rows, strict=True))
    assert len(rows) == USER.facts["firings"]


def test_the_title_counts_calls_between_firings_and_who_never_fires():
    assert (
        once(firing_map, USER).finding == f"“{USER.name}” fires every 6 to 10 calls; 1 of 7 conversations never fires"
    )
    assert once(firing_map, NONE).finding == "“no summary” never checks a trigger: nothing here could fire"
    quiet = changed(TODAY, "checks", lambda row: {"fired": False, "threshold": 10.0 * THRESHOLD})
    assert "never fires in 7 conversations; the fullest reaches" in firing_map(quiet).finding


def test_many_conversations_share_rows_and_the_figure_says_so():
    many = fake_run("many", {f"c{n:03d}": 3 + n % 20 for n in range(130)}, chars_per_token=1.3)
    grid = firing_grid(many)
    assert len(grid.labels) <= MAX_ROWS
    assert grid.group_size == 3
    assert grid.labels[0] == "22 calls"
    group = sorted(many.rows("conversations"), key=lambda row: (-row["calls"], row["position"]))[:3]
    first = [many.rows("checks", row["conversation"])[0] for row in group]
    assert grid.fullness[0, 0] == pytest.approx(np.mean([check["value"] / check["threshold"] for check in first]))
    assert "each row the mean of 3 conversations" in firing_map(many).texts[1].get_text()


def test_copied_summaries_are_no_checks_of_their_own():
    copies = changed(TODAY, "checks", lambda row: {"path": "copy"})
    assert firing_map(copies).finding == "“today” never checks a trigger: nothing here could fire"


# --- cost against recall ----------------------------------------------------------------------------------


def with_recall(runs: dict[str, FakeRun], *recalls: float) -> dict[str, FakeRun]:
    return {
        name: replace(run, facts={**run.facts, "needed_fact_recall": recall, "needed_facts": 80, "overflow_calls": 0})
        for (name, run), recall in zip(runs.items(), recalls, strict=True)
    }


KEPT = with_recall(RUNS, 1.0, 0.99, 0.7, 0.6)


def points_of(axes) -> list[tuple[float, float]]:
    """The marks of configurations; the ring around the recommended one is no mark of its own."""
    marked = [line for line in axes.lines if line.get_marker() in ("o", "s", "X") and line.get_markersize() < 12]
    return [tuple(map(float, line.get_xydata()[0])) for line in marked]


def test_a_point_stands_at_cost_and_recall_and_the_front_joins_what_none_beats():
    """WB-UI-02, WB-TUNE-03."""
    (axes,) = once(cost_recall, KEPT).axes
    decision = decide(KEPT)
    expected = [(one.cost, one.recall) for one in decision.standings]
    assert sorted(points_of(axes)) == sorted(expected)
    (front,) = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    corners = [tuple(point) for point in front.get_xydata()]
    assert corners == sorted(corners)
    assert [recall for _, recall in corners] == sorted(recall for _, recall in corners)
    assert {corner[0] for corner in corners} <= {decision.standing(name).cost for name in decision.pareto}


def test_the_recommended_point_has_a_ring_and_its_name_and_the_title_says_what_it_keeps():
    """WB-UI-02."""
    figure = once(cost_recall, KEPT)
    decision = decide(KEPT)
    best = decision.standing(decision.recommended)
    (ring,) = [line for line in figure.axes[0].lines if line.get_markersize() >= 12]
    assert tuple(map(float, ring.get_xydata()[0])) == pytest.approx((best.cost, best.recall))
    assert best.name in [text.get_text() for text in figure.axes[0].texts]
    less = 1 - best.cost / decision.standing("no summary").cost
    assert (
        figure.finding
        == f"“{best.name}” costs {100 * less:.0f} % less than “no summary” and keeps 0.99 of the needed facts"
    )
    assert "recall ≥ 0.98 of what no summary keeps" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_without_facts_enough_the_largest_prompt_takes_the_place_of_recall_and_the_reason_stands_below():
    """WB-RET-01b: no percentage of too little."""
    figure = once(cost_recall, RUNS)
    assert figure.axes[0].get_ylabel() == "largest prompt, tokens"
    assert {y for _, y in points_of(figure.axes[0])} == {run.facts["peak_prompt_tokens"] for run in RUNS.values()}
    source = figure.texts[1].get_text().replace("\n", " ")
    assert "recall isn't weighed: these runs didn't look for needed facts" in source
    assert "with a largest prompt of" in figure.finding


def test_what_exceeds_the_window_is_a_cross_and_an_unknown_window_is_said():
    """WB-TUNE-06."""
    (axes,) = once(cost_recall, RUNS).axes
    crosses = [float(line.get_xydata()[0][1]) for line in axes.lines if line.get_marker() == "X"]
    assert crosses == [NONE.facts["peak_prompt_tokens"]]
    unknown = cost_recall(fake_runs((5, 3), None))
    assert "the context window is unknown" in unknown.texts[1].get_text().replace("\n", " ")


def test_the_figure_shows_the_decision_that_it_is_given():
    """WB-TUNE-02: a sweep's choice, also of runs that the page doesn't show."""
    decision = decide(KEPT, min_recall=0.5)
    few = {name: KEPT[name] for name in list(KEPT)[:2]}
    figure = cost_recall(few, decision=decision)
    assert len(points_of(figure.axes[0])) == 4
    assert f"“{decision.recommended}”" in figure.finding


def test_a_figure_of_a_part_says_how_many_conversations_its_values_are_of():
    """WB-TUNE-02."""
    total = KEPT["no summary"].facts["conversations"]
    figure = cost_recall(KEPT, decision=replace(decide(KEPT), chosen_on=("a", "b")))
    assert figure.finding.endswith(f", on 2 of {total} conversations")
    below = figure.texts[1].get_text().replace("\n", " ")
    assert below.startswith(f"2 of {total} conversations: those that the choice was made on")
    whole = cost_recall(KEPT)
    assert "conversations" not in whole.finding
    assert whole.texts[1].get_text().startswith(f"{total} conversations · ")


def test_many_points_are_named_only_where_there_is_room():
    runs = {f"run {i:02d}": replace(USER, name=f"run {i:02d}") for i in range(30)}
    figure = cost_recall(runs)
    assert 1 <= len(figure.axes[0].texts) < 14
    assert "names without room" in figure.texts[1].get_text().replace("\n", " ")


# --- cache breaks -----------------------------------------------------------------------------------------


def lost_by_cause(run: FakeRun) -> dict[str, int]:
    lost: dict[str, int] = {}
    for row in run.rows("calls"):
        if row["break_cause"] not in (None, "first_call"):
            lost[row["break_cause"]] = lost.get(row["break_cause"], 0) + row["lost_tokens"]
    return lost


def test_each_cause_has_a_bar_as_long_as_what_it_cost():
    """WB-UI-02, WB-CACHE-03: small multiples on one axis."""
    figure = once(cache_breaks, RUNS)
    for axes, run in zip(figure.axes, RUNS.values(), strict=True):
        lost = lost_by_cause(run)
        assert sorted(bar.get_width() for bar in axes.patches) == sorted(lost.values())
        assert axes.get_title(loc="left") == f"{run.name}: {number(sum(lost.values()))} tokens lost"
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_the_title_names_who_loses_most_through_what_and_who_least():
    lost = {name: lost_by_cause(run) for name, run in RUNS.items()}
    most = max(lost, key=lambda name: sum(lost[name].values()))
    total = sum(lost[most].values())
    cause = max(lost[most], key=lambda name: lost[most][name])
    assert once(cache_breaks, RUNS).finding == (
        f"“{most}” loses {number(total)} cached tokens ({100 * lost[most][cause] / total:.0f} %: {BREAK_CAUSES[cause]}); "
        "“no summary” loses none"
    )
    assert cache_breaks(NONE).finding.startswith("No cached token is lost")


def test_rare_causes_share_one_bar():
    causes = [cause for cause in BREAK_CAUSES if cause != "first_call"]
    mixed = changed(
        TODAY, "calls", lambda row: {"break_cause": causes[row["call"] % 12], "lost_tokens": 5 + row["call"]}
    )
    (axes,) = cache_breaks(mixed).axes
    assert len(axes.patches) == 8
    assert axes.get_yticklabels()[-1].get_text() == "all other causes"
    assert sum(bar.get_width() for bar in axes.patches) == sum(lost_by_cause(mixed).values())


# --- coverage ---------------------------------------------------------------------------------------------


def test_each_state_is_as_high_as_its_events():
    """WB-UI-02, WB-RPL-13."""
    axes = once(coverage, TODAY).axes[0]
    state: dict[int, str] = {}
    covered, raw = [], []
    for call in range(60):
        for row in TODAY.rows("coverage", LONGEST):
            if row["call"] == call:
                state |= dict.fromkeys(range(row["first_position"], row["last_position"] + 1), row["state"])
        covered.append(sum(value == "covered" for value in state.values()))
        raw.append(sum(value == "raw" for value in state.values()))
    top, _, bottom = steps_of(axes, "only in the summary").get_data()
    assert np.array_equal(top - bottom, covered)
    top, _, bottom = steps_of(axes, "as it was").get_data()
    assert np.array_equal(top - bottom, raw)
    assert once(coverage, TODAY).finding == (
        f"“today”: at the last call its summary stands for {covered[-1]} of {covered[-1] + raw[-1]} events"
    )


def test_the_title_counts_what_was_cut_dropped_and_rewritten():
    """WB-RPL-13."""
    states = ["covered_cut", "covered", "dropped", "rewritten", "raw_and_covered", "hidden", "raw"]
    rows = [
        {**TODAY.rows("coverage")[0], "call": 0, "first_position": i, "last_position": i, "state": state}
        for i, state in enumerate(states)
    ]
    figure = coverage(replace(TODAY, tables={**TODAY.tables, "coverage": rows}))
    assert figure.finding == (
        "“today”: at the last call its summary stands for 2 of 7 events (1 of them cut before it was made); "
        "1 dropped, 1 rewritten and 1 another agent's"
    )
    assert len(figure.legends[0].get_texts()) == 7
    assert once(coverage, NONE).finding == "“no summary” sends all 178 events as they were with the last call"


def test_states_of_coverage_stay_apart_without_colour():
    """WB-UI-02: readable in black and white; the whole ones differ in lightness."""
    looks = list(LOOKS.values())
    assert len({(colour, hatch) for _, colour, hatch in looks}) == len(looks)
    assert [state for state, (_, _, hatch) in LOOKS.items() if not hatch] == ["covered", "raw"]


# --- every figure -----------------------------------------------------------------------------------------

HOSTILE = (
    "$x_$ & \\frac{",
    "<script>",
    "\x1b[31mred\u202egnp",
    "SWE-agent/" + "django__" * 12,
    "客户服务" * 15,
    "line\nbreak",
)
HOSTILE_RUNS = {
    name: fake_run(name, {HOSTILE[0]: 30, HOSTILE[4]: 9, HOSTILE[3]: 8, HOSTILE[5]: 3}, chars_per_token=rate)
    for name, rate in zip(HOSTILE[:4], (None, 1.3, 2.0, 4.0), strict=True)
}
CASES = {
    "usual": RUNS,
    "one call": fake_runs((1,), None),
    "few calls": fake_runs((4, 2), 128_000),
    "hostile names": HOSTILE_RUNS,
    "no calls": {"no summary": fake_run("no summary", {"客服-01": 0})},
    "with recall": KEPT,
}


def last_prefix(runs):
    return prefix_reuse(list(runs.values())[-1])


def last_map(runs):
    return firing_map(list(runs.values())[-1])


def last_coverage(runs):
    return coverage(list(runs.values())[-1])


FIGURES = {
    "tokens": tokens_per_call,
    "trigger": trigger_value,
    "prefix": last_prefix,
    "map": last_map,
    "tradeoff": cost_recall,
    "breaks": cache_breaks,
    "coverage": last_coverage,
}
every_figure = pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES)


one_case_and_more = pytest.mark.parametrize(
    "runs",
    [
        pytest.param(runs, id=name.replace(" ", "-"), marks=() if name == "hostile names" else (pytest.mark.slow,))
        for name, runs in CASES.items()
    ],
)


@every_figure
@one_case_and_more
def test_no_text_is_clipped_or_written_over_another(draw, runs):
    """WB-UI-02."""
    figure = once(draw, runs)
    placed = boxes(figure)
    width, height = figure.bbox.width, figure.bbox.height
    for words, box in placed:
        assert box.x0 >= 0, words
        assert box.y0 >= 0, words
        assert box.x1 <= width, words
        assert box.y1 <= height, words
    for (words, box), (other, other_box) in combinations(placed, 2):
        across = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        along = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert across < 1 or along < 2, f"{words!r} over {other!r}"


@every_figure
def test_hostile_names_are_shown_as_they_are(draw):
    """SEC-07, M22."""
    figure = once(draw, HOSTILE_RUNS)
    picture = io.BytesIO()
    figure.savefig(picture, format="svg")
    kinds = {node.tag.rpartition("}")[2] for node in ET.fromstring(picture.getvalue()).iter()}
    assert "script" not in kinds
    assert not any(text.get_parse_math() for text in figure.findobj(Text) if text.get_text())
    assert not any("\x1b" in text.get_text() or "\u202e" in text.get_text() for text in figure.findobj(Text))


@pytest.mark.slow
@every_figure
def test_drawing_changes_no_setting_and_leaves_no_figure_open(draw):
    """WB-UI-02."""
    import matplotlib.pyplot as plt

    before = dict(mpl.rcParams)
    draw(CASES["one call"])
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    "draw", [tokens_per_call, trigger_value, prefix_reuse, firing_map, cost_recall, cache_breaks, coverage]
)
def test_a_figure_can_be_drawn_on_a_dark_page(draw):
    figure = draw(SHORT, theme="dark")
    assert figure.get_facecolor() == mpl.colors.to_rgba(DARK.page)
    with pytest.raises(ConfigError, match="theme = 'dusk'"):
        draw(SHORT, theme="dusk")


@pytest.mark.slow
@every_figure
def test_a_notebook_shows_the_figure_without_pyplot(draw):
    """WB-UI-02."""
    assert once(draw, CASES["one call"])._repr_png_().startswith(b"\x89PNG")


@every_figure
@one_case_and_more
def test_the_title_is_the_finding_and_never_empty(draw, runs):
    """WB-UI-02."""
    figure = once(draw, runs)
    title = figure.texts[0].get_text().replace("\n", "")
    assert title
    assert title.replace(" ", "") == drawable(figure.finding).replace(" ", "")


def test_the_trigger_figure_names_the_counter_of_the_trigger_not_that_of_the_bill():
    run = replace(USER, config={**settings_of(USER), "counter": {"kind": "runes", "runes_per_token": 1.3}})
    source = " ".join(text.get_text() for text in trigger_value(run).findobj(Text))
    assert "tokens counted with 1.3 characters per token" in source
    assert "o200k" not in source
    exact = replace(USER, config={**settings_of(USER), "counter": {"kind": "tiktoken", "encoding": "cl100k_base"}})
    assert "tokens counted with cl100k_base" in " ".join(t.get_text() for t in trigger_value(exact).findobj(Text))
