"""A grid over recordings: shared work, an honest choice, a reason (WB-TUNE-02, WB-TUNE-06)."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat, config, summarising
from tests.replay.test_needed import many
from workbench import build
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.evaluate.figures import ConversationFigures, figures_of
from workbench.evaluate.net import is_baseline
from workbench.evaluate.proposal import propose
from workbench.evaluate.sweep import Sweep, plan_sweep, split, sweep
from workbench.model.extractive import ExtractiveModel
from workbench.recordings import Recordings, load_recordings
from workbench.replay import conversation as replaying
from workbench.replay.replay import replay
from workbench.replay.sources import OnceExtractive
from workbench.report.comparison import plan_text, sweep_html, sweep_text
from workbench.report.labels import display_width
from workbench.report.overview import overview
from workbench.report.page import html_document
from workbench.report.terminal import LINE_WIDTH
from workbench.tokens import TiktokenCounter

pytestmark = pytest.mark.slow  # replays whole data sets; `make test-more` runs these

EXACT = {"encoding": "o200k_base"}
BASE = summarising("base", token=900)
GRID = {"trigger.token": [300, 900], "agent.summary_injection_mode": ["system", "user"]}


def forgetful(**values: Any) -> RunConfig:
    """Summaries too short for what later answers need."""
    return summarising("base", summarizer={"max_summary_words": 4}, **values)


@pytest.fixture
def chats(recorded: Callable[..., Recordings]) -> Recordings:
    return recorded(*(chat(5 + i, ident=f"c{i}") for i in range(5)))


@pytest.fixture
def swept(chats: Recordings, tmp_path: Path) -> Sweep:
    return sweep(chats, BASE, GRID, runs=tmp_path / "runs", progress=False)


def test_each_distinct_text_is_counted_once_over_the_whole_sweep(
    chats: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WB-TUNE-02, PERF-04: counter calls = distinct texts."""
    seen: list[str] = []

    class Watched(TiktokenCounter):
        def __init__(self) -> None:
            super().__init__("o200k_base")
            encode = self._encoding.encode_ordinary

            class Encoding:
                name = self._encoding.name

                @staticmethod
                def encode_ordinary(text: str) -> list[int]:
                    seen.append(text)
                    return encode(text)

            self._encoding = Encoding()

    def texts_of(grid: dict[str, Any], folder: str) -> set[str]:
        seen.clear()
        monkeypatch.setattr(build, "_encoders", {"o200k_base": Watched()})
        sweep(chats, BASE.replace(billing=EXACT), grid, runs=tmp_path / folder, progress=False)
        assert len(seen) == len(set(seen)) == build._encoders["o200k_base"].counter_calls
        return set(seen)

    alone = [texts_of({"trigger.token": [token]}, f"alone{token}") for token in (300, 400, 900)]
    together = texts_of({"trigger.token": [300, 400, 900]}, "together")
    assert together == set.union(*alone)
    assert len(together) < sum(map(len, alone))


def test_equal_summary_requests_are_answered_once(
    recorded: Callable[..., Recordings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WB-TUNE-02: summaries cached by their inputs; where a summary is put doesn't change what it says."""
    monkeypatch.setattr(OnceExtractive, "_texts", type(OnceExtractive._texts)())
    chats, base = recorded(chat(12)), summarising("base", token=300)
    start = OnceExtractive.n_made
    one = replay(chats, base, runs=tmp_path / "one", progress=False)
    made = OnceExtractive.n_made - start
    assert 1 < made == one["base"].facts["summaries"]
    placements = [base.replace(name=mode, agent={"summary_injection_mode": mode}) for mode in ("system", "user")]
    two = replay(chats, placements, runs=tmp_path / "two", progress=False)
    assert OnceExtractive.n_made - start == made
    assert sum(run.facts["summaries"] for run in two.values()) == 2 * made
    replay(chats, base.replace(summarizer={"max_summary_words": 30}), runs=tmp_path / "shorter", progress=False)
    assert OnceExtractive.n_made - start > made, "another limit is another input"


def test_a_shared_summary_is_the_one_that_would_have_been_made(
    chats: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WB-TUNE-02, WB-RPL-09."""
    forked = BASE.replace(name="fork", summarizer={"cache_safe_forking": True})
    shared = [
        run.facts["trace_hash"] for run in replay(chats, [BASE, forked], runs=tmp_path / "a", progress=False).values()
    ]
    monkeypatch.setattr(replaying, "summary_model", lambda config, billing: ExtractiveModel())
    plain = [
        run.facts["trace_hash"] for run in replay(chats, [BASE, forked], runs=tmp_path / "b", progress=False).values()
    ]
    assert shared == plain


def test_the_baseline_and_the_base_are_always_candidates(swept: Sweep) -> None:
    """WB-TUNE-06: no summary, no compaction."""
    assert len(swept.candidates) == 5, "four of the grid, one of which is the base, and the baseline"
    assert is_baseline(swept.runs[swept.baseline])
    assert "base" in swept.runs
    assert swept.runs[swept.baseline].config.billing == BASE.billing


def test_a_sweep_chooses_on_seventy_percent_and_reports_on_the_rest(swept: Sweep) -> None:
    """WB-TUNE-02."""
    assert (len(swept.chosen_on), len(swept.reported_on)) == (4, 1)
    assert {*swept.chosen_on, *swept.reported_on} == {f"c{i}" for i in range(5)}
    figures = {name: figures_of(run) for name, run in swept.runs.items()}
    net = {name: sum(figures[name][c].net_tokens for c in swept.chosen_on) for name in figures}
    assert {one.name: one.net_tokens for one in swept.candidates} == pytest.approx(net)
    paid = {name: sum(figures[name][c].cost or 0 for c in swept.chosen_on) for name in figures}
    assert swept.recommended == min(paid, key=lambda name: paid[name])
    (held,) = swept.reported_on
    for one in swept.candidates:
        before = figures[swept.baseline][held]
        size = figures[one.name][held].prompt_tokens / before.prompt_tokens - 1
        assert one.rest_prompt_change == pytest.approx(size)
        cost = figures[one.name][held].cost
        assert cost is not None
        assert one.rest_cost_change == pytest.approx(cost / (before.cost or 0) - 1)
    assert {d.conversations for d in swept.comparison.differences} == {1}


def figures_named(names: list[str]) -> list[ConversationFigures]:
    return [
        ConversationFigures(name, f"hash of {name}", 1, 1.0, 1, 1, 0, 0, 0, 0, 0, 0, (1,), (1.0,)) for name in names
    ]


def test_the_split_is_seeded_and_knows_no_order() -> None:
    """WB-TUNE-02."""
    names = [f"c{i}" for i in range(40)]
    chosen, rest = split(figures_named(names), seed=1)
    assert (len(chosen), len(rest), set(chosen) & set(rest)) == (28, 12, set())
    again, _ = split(figures_named(names[::-1]), seed=1)
    assert set(again) == set(chosen)
    assert set(split(figures_named(names), seed=2)[0]) != set(chosen)
    assert split(figures_named(["only"]), seed=1) == (("only",), ("only",))
    assert [len(part) for part in split(figures_named(["a", "b"]), seed=1)] == [1, 1]


def test_a_sweep_of_what_only_costs_more_recommends_the_baseline(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-06: it is called smaller, but dearer."""
    found = sweep(chats, summarising("base", token=40), {"trigger.token": [20, 30]}, runs=tmp_path, progress=False)
    assert found.recommended == found.baseline
    assert found.reason.startswith("nothing costs less than doing without summaries")
    assert all(one.break_even_turn is None for one in found.candidates)
    assert {one.verdict for one in found.candidates if one.name != found.baseline} == {"smaller, but dearer"}
    assert found.config is not None
    assert is_baseline(found.runs[found.recommended])


def test_what_overflows_is_not_recommended(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-06."""
    tight = summarising("base", token=10_000, model={"context_window": 1_200})
    found = sweep(chats, tight, {"trigger.token": [150, 10_001]}, runs=tmp_path / "a", progress=False)
    assert found.recommended == "token=150"
    assert [bool(one.standing.overflow_calls) for one in found.candidates] == [False, True, True, True]
    hopeless = tight.replace(model={"context_window": 20})
    none = sweep(chats, hopeless, {"trigger.token": [150]}, runs=tmp_path / "b", progress=False)
    assert (none.recommended, none.config) == (None, None)
    assert "overflows the window" in none.reason
    assert sweep_text(none).startswith("No recommendation: ")


def test_nothing_on_the_front_is_beaten(swept: Sweep) -> None:
    """WB-TUNE-02, WB-CLI-03: pareto."""
    points = {one.name: (one.standing.cost, one.standing.peak_prompt_tokens) for one in swept.candidates}
    for name, point in points.items():
        beaten = any(
            other != point and all(a <= b for a, b in zip(other, point, strict=True)) for other in points.values()
        )
        assert (name in swept.pareto) == (not beaten)
    assert swept.recommended in swept.pareto
    said = swept.as_dict()
    ids = {run.run_id: name for name, run in swept.runs.items()}
    assert tuple(ids[one] for one in said["pareto"]) == swept.pareto
    assert ids[said["recommended"]] == swept.recommended


def test_a_sweep_weighs_what_the_needed_facts_cost(recorded: Callable[..., Recordings], tmp_path: Path) -> None:
    """WB-TUNE-02, -03, WB-RET-01: the cheapest loses facts and isn't taken, unless it is said that it may."""
    base = forgetful(token=500)
    found = sweep(recorded(*many(20)), base, {"trigger.token": [400]}, runs=tmp_path, progress=False)
    lossy = next(one.standing for one in found.candidates if one.name == "base")
    assert found.decision.unweighed == ""
    assert lossy.recall is not None
    assert lossy.recall < 0.98
    assert not lossy.keeps_enough
    assert found.recommended == found.baseline
    assert "recall ≥ 0.98 of what no summary keeps" in found.reason
    assert found.as_dict()["recall_unweighed"] is None
    assert "Recall of the extractive source is a ceiling" in " ".join(sweep_text(found).split())
    brave = sweep(recorded(*many(20)), base, {"trigger.token": [400]}, min_recall=0.1, runs=tmp_path, progress=False)
    cheapest = min(found.candidates, key=lambda one: one.standing.cost or 0)
    assert brave.recommended == cheapest.name
    assert "recall ≥ 0.1" in brave.reason


def test_a_sweep_with_prices_chooses_by_money(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-02, WB-COST-02: the cost of a candidate is that of its part, per 1,000 conversations."""
    base = BASE.replace(cache={"provider": "openai"}, model={"name": "gpt-4o"})
    found = sweep(chats, base, {"trigger.token": [300]}, runs=tmp_path, progress=False)
    assert found.decision.currency == "USD"
    for one in found.candidates:
        own = found.runs[one.name].cost.cost_by_conversation
        paid = sum(own[name] or 0 for name in found.chosen_on)
        assert one.standing.cost == pytest.approx(1000 * paid / len(found.chosen_on))
    assert found.recommended == min(found.candidates, key=lambda one: one.standing.cost or 0).name
    assert found.reason.startswith(("cheapest of 3 runs", "nothing costs less than doing without summaries: cheapest"))
    assert "$" in sweep_text(found)


def test_a_grid_of_thresholds_needs_no_configuration_with_summaries(chats: Recordings) -> None:
    """WB-TUNE-02: as in the command's own example; that summaries are switched on is said."""
    plan = plan_sweep(chats, RunConfig(billing=EXACT), {"trigger.token": [300, 900]})
    made = [one for one in plan.configs if one.trigger is not None]
    assert [one.trigger.token for one in made if one.trigger is not None] == [300, 900]
    assert all(one.summarizer is not None and one.agent.add_session_summary for one in made)
    assert [choice.option for choice in plan.choices] == ["summarizer", "agent.add_session_summary"]


def test_a_plan_says_runs_calls_and_time_before_anything_is_stored(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-02: prints runs, calls, expected time."""
    plan = plan_sweep(chats, BASE, GRID)
    calls = sum(len(conversation.calls) for conversation in chats)
    assert (plan.runs, plan.calls, plan.live_tokens) == (5, 5 * calls, 0)
    assert plan.expected_s > 0
    assert plan_text(plan).startswith(f"5 runs over 5 conversations, {5 * calls} calls, about ")
    with pytest.raises(ConfigError, match="limit 3"):
        plan_sweep(chats, BASE, GRID, max_runs=3)


def test_a_plan_with_a_live_model_says_how_many_tokens_and_calls_none(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-02: live tokens first; every test forbids a model call."""
    live = BASE.replace(summaries={"source": "live", "model": "some-model", "cassette": str(tmp_path / "a.jsonl")})
    plan = plan_sweep(chats, live, GRID)
    assert plan.live_tokens > 0
    assert "tokens of the live model" in plan_text(plan)


def test_the_same_sweep_gives_the_same_result_and_costs_nothing_again(
    chats: Recordings, swept: Sweep, tmp_path: Path
) -> None:
    """WB-RPL-09, WB-RPL-10."""
    again = sweep(chats, BASE, GRID, runs=tmp_path / "runs", progress=False).as_dict()
    first = swept.as_dict()
    for found in (again, first):
        del found["plan"]["expected_s"]  # measured anew
    assert again == first


def test_a_grid_is_made_from_the_recordings_and_every_choice_has_a_reason(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-02: sizes, languages, tool results, the window."""
    proposal = propose(chats, RunConfig(billing=EXACT, model={"context_window": 3_000}))
    choices = {choice.option: choice for choice in proposal.choices}
    assert "han 1" in choices["counter"].why, "Chinese has fewer characters per token than English"
    trigger = choices["trigger"]
    assert any("token" in value for value in trigger.values)
    assert all(value.get("token", 1) > 0 for value in trigger.values)
    assert choices["compaction.enabled"].values == (False, True)
    assert all(choice.why for choice in proposal.choices)
    assert proposal.base.summarizer is not None
    assert proposal.base.agent.add_session_summary
    text = " ".join(plan_text(plan_sweep(chats, RunConfig(billing=EXACT))).split())
    assert "no share of the window" not in text, "the recorded model names one"
    assert "characters per token" in text


def test_what_the_recordings_give_no_reason_for_is_left_out(recorded: Callable[..., Recordings]) -> None:
    """WB-TUNE-02."""
    plain = {**chat(6, tools=False), "model": "nobody-knows"}
    base = config(name="base")
    choices = {choice.option: choice for choice in propose(recorded(plain), base).choices}
    assert choices["compaction.enabled"].values == ()
    assert choices["compaction.enabled"].why == "left out: tool results are 0% of all tokens"
    assert choices["counter.runes_per_token"].values == ()
    assert "set model.context_window" in choices["trigger"].why
    exact = base.replace(counter={"kind": "tiktoken"})
    assert "counts exactly" in propose(recorded(plain), exact).choices[0].why


def test_pauses_in_which_the_cache_goes_are_a_reason_for_a_trigger_by_time(
    recorded: Callable[..., Recordings],
) -> None:
    """WB-TUNE-02."""
    slow = chat(8)
    for message in slow["messages"]:
        minute = int(message["timestamp"][14:16])
        message["timestamp"] = f"2026-03-01T{10 + minute:02d}:00:{message['timestamp'][17:]}"
    triggers = {c.option: c for c in propose(recorded(slow), config(name="b")).choices}["trigger"]
    assert "7 of 7 pauses are over 5 minutes" in triggers.why
    assert any("all" in value for value in triggers.values)
    quick = {c.option: c for c in propose(recorded(chat(8)), config(name="b")).choices}["trigger"]
    assert not any("all" in value for value in quick.values)


def test_a_sweep_without_a_grid_ends_with_a_configuration_that_loads(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-02."""
    found = sweep(chats, config(name="today"), runs=tmp_path / "runs", progress=False)
    assert found.config is not None
    path = tmp_path / "recommended.toml"
    path.write_text(found.config.to_toml(), encoding="utf-8")
    assert RunConfig.load(path).config_hash == found.config.config_hash
    assert found.plan.choices
    assert json.loads(json.dumps(found.as_dict()))["plan"]["choices"][0]["why"]


def test_a_sweep_says_what_it_chose_and_on_what(swept: Sweep) -> None:
    """WB-UI-05."""
    text = sweep_text(swept)
    assert text.startswith(f"Take “{swept.recommended}”: ")
    assert "4 conversations (seed 0)" in " ".join(text.split())
    assert "by cost alone: without any needed fact, and a share takes 30 from 10 conversations" in " ".join(
        text.split()
    )
    (taken,) = [line for line in text.split("\n") if line.startswith("→")]
    assert taken.removeprefix("→* ").split("  ")[0] in swept.recommended.replace("token=", "")  # type: ignore[union-attr]
    assert max(map(display_width, text.split("\n"))) <= LINE_WIDTH
    assert "Fewer tokens" in text
    assert "Take “" in sweep_html(swept)
    assert repr(swept).startswith("Sweep(5 runs: ")


def test_languages_that_no_single_ratio_serves_get_the_counter_with_a_ratio_per_script() -> None:
    """WB-TUNE-02, WB-CAL-02."""
    names = ("zh-service", "en-research", "ja-support")
    mixed = load_recordings([Path(__file__).parents[2] / "datasets" / name for name in names])
    proposal = propose(mixed, RunConfig())
    choice = proposal.choices[0]
    (counter,) = proposal.grid["counter"]
    assert (choice.option, choice.values) == ("counter", (counter,))
    assert "no single ratio serves" in choice.why
    ratios = RunConfig(counter=counter).counter.scripts
    assert ratios.han is not None
    assert ratios.latin is not None
    assert 0.8 < ratios.han < 1.5
    assert 3 < ratios.latin < 5
    chosen = propose(mixed, RunConfig(counter={"runes_per_token": 2.5})).choices[0]
    assert chosen.option == "counter.runes_per_token", "whoever chose a ratio gets no other counter"


def test_scripts_that_come_in_every_message_alike_get_one_ratio(recorded: Callable[..., Recordings]) -> None:
    """WB-CAL-02: mixed text alone is no reason; only that a ratio per script is better is one."""
    said = [f"订单 order number {n:03d} 已经发货 was shipped 昨天 yesterday." for n in range(400)]
    turns = [
        [{"role": "user", "content": said[n]}, {"role": "assistant", "content": said[n + 1]}] for n in range(0, 400, 2)
    ]
    alike = recorded(*({"id": f"c{i}", "messages": [one for turn in turns[i::10] for one in turn]} for i in range(10)))
    choice = propose(alike, RunConfig()).choices[0]
    assert choice.option == "counter.runes_per_token"
    assert all(f"{name} " in choice.why for name in ("Han", "Latin"))


def test_one_language_gets_one_ratio_and_hears_how_late_the_default_fires() -> None:
    """WB-TUNE-02, WB-CAL-01."""
    japanese = load_recordings(Path(__file__).parents[2] / "datasets" / "ja-support")
    counter = propose(japanese, RunConfig()).choices[0]
    assert counter.option == "counter.runes_per_token"
    assert 0.8 < counter.values[0] < 2.5
    assert "Kana" in counter.why
    assert "too late" in counter.why


def test_the_page_of_a_sweep_makes_the_recommendation_of_the_sweep_and_no_other(swept: Sweep) -> None:
    """WB-TUNE-02, WB-UI-04: also where all conversations together would choose another configuration."""
    other = next(one.name for one in swept.candidates if one.name not in (swept.recommended, swept.baseline))
    standings = sorted(swept.decision.standings, key=lambda one: one.name != other)
    decision = replace(
        swept.decision, standings=tuple(standings), recommended=other, reason="it was the best on these four"
    )
    assert overview(swept.comparison.runs).recommended != other
    for comparison in (swept.comparison, replace(swept.comparison, decision=decision)):
        document = html.unescape(html_document(swept.comparison.runs, comparison=comparison))
        assert set(re.findall("(?:Take|Keep|summaries:) “([^”]*)”", document)) == {comparison.decision.recommended}
        assert comparison.decision.reason[1:] in document
        assert "chosen on 4 of 5 conversations" in document
        assert "of 1 conversation held back, which are none of the 4 of the choice" in document
    assert swept.comparison.decision.reason == swept.reason
