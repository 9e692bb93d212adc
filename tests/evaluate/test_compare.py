"""Runs side by side: paired differences, intervals, verdicts, places (WB-TUNE-01, WB-TUNE-06)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import pstdev
from typing import Any

import pytest

from tests.replay.conftest import chat, config, summarising
from tests.report.fakes import FakeRun, fake_run, fake_runs, with_facts_table
from workbench.errors import ConfigError, NotEnoughDataError, ReplayError
from workbench.evaluate.compare import MEASURES, MIN_CONVERSATIONS, N_DRAWS, Comparison, compare, verdict_of
from workbench.evaluate.figures import figures_of
from workbench.evaluate.net import is_baseline, net_tokens, without_shortening
from workbench.recordings import Recordings, load_recordings
from workbench.replay.replay import replay
from workbench.report.comparison import comparison_html, comparison_text
from workbench.report.overview import overview
from workbench.report.page import html_document

pytestmark = pytest.mark.slow  # each of them writes and opens store files; `make test-more` runs these

FEW = fake_runs()
MANY = {f"c{n:02d}": 8 + 3 * n for n in range(14)}


def many(name: str, **options: Any) -> FakeRun:
    return fake_run(name, MANY, **options)


def with_prompts(run: FakeRun, change: dict[str, int]) -> FakeRun:
    """The run with so many tokens more in every prompt of some conversations."""
    calls = [
        {**row, "prompt_tokens": row["prompt_tokens"] + change.get(row["conversation"], 0)} for row in run.rows("calls")
    ]
    return replace(run, tables={**run.tables, "calls": calls})


@pytest.fixture
def chats(tmp_path: Path) -> Recordings:
    return Recordings.of(conversations(tmp_path, 3))


def conversations(folder: Path, n: int) -> list[Any]:
    import json

    path = folder / "chats.jsonl"
    lines = [json.dumps(chat(9 + 2 * i, ident=f"c{i}"), ensure_ascii=False) for i in range(n)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return list(load_recordings(path))


def test_the_net_tokens_of_conversations_sum_to_those_of_the_run(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-06: one rule for a run and for its parts."""
    forked = summarising("fork", summarizer={"max_summary_words": 40, "cache_safe_forking": True})
    for run in replay(chats, [config(name="base"), summarising(), forked], runs=tmp_path, progress=False).values():
        figures = figures_of(run).values()
        assert sum(one.net_tokens for one in figures) == pytest.approx(net_tokens(run))
        assert sum(one.firings for one in figures) == run.facts["firings"]
        assert sum(one.calls for one in figures) == run.facts["calls"]
        assert max(one.peak_prompt_tokens for one in figures) == run.facts["peak_prompt_tokens"]
        for one in figures:
            assert one.net_upto_call[-1] <= one.net_tokens + 1e-6


def test_any_number_of_runs_is_compared_with_the_first_or_the_one_named() -> None:
    """WB-TUNE-01."""
    found = compare(FEW)
    assert (found.reference, [v.run for v in found.verdicts]) == ("no summary", list(FEW)[1:])
    found = compare(FEW["today"], FEW["no summary"], reference="no summary")
    assert [v.run for v in found.verdicts] == ["today"]
    means = {name: [f.prompt_tokens for f in figures_of(FEW[name]).values()] for name in ("today", "no summary")}
    size = found.difference("today", "prompt_tokens")
    assert size.value == pytest.approx(sum(means["today"]) / 7)
    assert size.difference == pytest.approx((sum(means["today"]) - sum(means["no summary"])) / 7)
    assert size.relative == pytest.approx(sum(means["today"]) / sum(means["no summary"]) - 1)


def test_under_ten_conversations_there_is_no_interval() -> None:
    """WB-TUNE-01: null under 10."""
    assert len(MANY) >= MIN_CONVERSATIONS == 10
    for found in compare(FEW).differences:
        assert (found.interval, found.relative_interval, found.is_certain, found.draws) == (None, None, None, 0)
    ten = list(MANY)[:10]
    runs = many("a"), many("b", chars_per_token=1.3)
    assert all(d.interval is not None for d in compare(*runs, conversations=ten).differences)
    assert all(d.interval is None for d in compare(*runs, conversations=ten[:9]).differences)


def test_the_interval_is_of_conversations_paired_and_seeded() -> None:
    """WB-TUNE-01: over conversations, 2,000 draws, the seed in the row."""
    base = many("base")
    # Every conversation by the same amount per call: pairing leaves only their lengths to vary.
    longer = replace(with_prompts(base, dict.fromkeys(MANY, 10)), name="longer")
    found = compare(base, longer, seed=3).difference("longer", "peak_prompt_tokens")
    assert (found.seed, found.draws, found.conversations) == (3, N_DRAWS, len(MANY))
    assert found.interval == pytest.approx((10, 10)), "each peak moves by 10, whichever conversations are drawn"
    assert found.is_certain
    size = compare(base, longer, seed=3).difference("longer", "prompt_tokens")
    assert size.interval is not None
    assert size.interval[0] < size.difference < size.interval[1]
    again = compare(base, longer, seed=3).difference("longer", "prompt_tokens")
    other = compare(base, longer, seed=4).difference("longer", "prompt_tokens")
    assert again.interval == size.interval != other.interval


def test_a_difference_that_one_conversation_makes_is_not_sure() -> None:
    """WB-TUNE-01."""
    base = many("base")
    changed = replace(with_prompts(base, {"c00": 900, "c03": -40, "c05": 30, "c08": -60}), name="changed")
    found = compare(base, changed).difference("changed", "prompt_tokens")
    assert found.interval is not None
    assert found.interval[0] < 0 < found.interval[1]
    assert found.is_certain is False
    text = comparison_text(compare(base, changed))
    assert "not sure" in text


@pytest.mark.slow
def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """WB-TUNE-01: a bootstrap that draws wrongly covers far more or less than 95 %."""
    import random

    base, hits = many("base"), 0
    names = list(MANY)
    for trial in range(60):
        walk = random.Random(trial)
        shift = {name: round(walk.gauss(200, 150)) for name in names}
        found = compare(base, replace(with_prompts(base, shift), name="shifted"), seed=trial).difference(
            "shifted", "peak_prompt_tokens"
        )
        assert found.interval is not None
        hits += found.interval[0] <= 200 <= found.interval[1]
    assert 48 <= hits <= 60, hits


def test_the_interval_is_as_wide_as_so_many_conversations_make_it() -> None:
    """WB-TUNE-01: draws are as large as the sample: 1.96 standard errors to each side."""
    base, names = many("base"), list(MANY)
    shift = {name: 100 + 40 * (i % 5) for i, name in enumerate(names)}
    found = compare(base, replace(with_prompts(base, shift), name="b")).difference("b", "peak_prompt_tokens")
    assert found.interval is not None
    width = found.interval[1] - found.interval[0]
    assert width == pytest.approx(2 * 1.96 * pstdev(shift.values()) / len(names) ** 0.5, rel=0.1)


def test_only_conversations_that_all_runs_have_unchanged_are_paired() -> None:
    """WB-TUNE-01."""
    base, other = many("base"), many("other", chars_per_token=1.3)
    rows = [
        {**row, "content_hash": "x"} if row["conversation"] == "c02" else row for row in other.rows("conversations")
    ]
    rows = [row for row in rows if row["conversation"] != "c04"]
    changed = replace(other, tables={**other.tables, "conversations": rows})
    found = compare(base, changed)
    assert sorted(found.unpaired) == ["c02", "c04"]
    assert {d.conversations for d in found.differences} == {len(MANY) - 2}
    assert "“c02” and “c04”" in " ".join(comparison_text(found).split())
    nothing = replace(other, tables={**other.tables, "conversations": []})
    with pytest.raises(NotEnoughDataError):
        compare(base, nothing)


@pytest.mark.parametrize(
    ("size", "net", "words"),
    [
        (-5, 5, "smaller, but dearer"),
        (-5, -5, "smaller and cheaper"),
        (-5, 0, "smaller and as dear"),
        (5, -1, "larger, but cheaper"),
        (5, 1, "larger and dearer"),
        (0, 1, "as large and dearer"),
        (0, 0, "no difference"),
    ],
)
def test_a_verdict_says_what_became_of_size_and_cost(size: float, net: float, words: str) -> None:
    """WB-TUNE-06."""
    assert verdict_of(size, net) == words


def test_smaller_prompts_that_cost_more_are_called_that_with_the_break_even_turn(
    chats: Recordings, tmp_path: Path
) -> None:
    """WB-TUNE-06."""
    base, eager = config(name="base"), summarising("eager", token=40, summarizer={"max_summary_words": 400})
    found = compare(replay(chats, [base, eager], runs=tmp_path, progress=False))
    (verdict,) = found.verdicts
    assert found.difference("eager", "prompt_tokens").difference < 0
    assert found.difference("eager", "net_tokens").difference > 0
    assert (verdict.verdict, verdict.is_certain) == ("smaller, but dearer", None)
    assert (verdict.break_even.call, verdict.break_even.reached) == (None, 0)
    assert "It pays in no conversation of these recordings" in " ".join(comparison_text(found).split())


@pytest.mark.parametrize(
    ("written", "call"),
    [
        ([(2, 300)], 8),  # calls 2 to 7 save 300: even; call 8 is the first that is ahead
        ([(2, 300), (9, 200)], 12),  # ahead at call 8, behind again at 9, even at 11
        ([(2, 300), (15, 500)], None),  # ahead from call 8 to 14, but not at the end
    ],
)
def test_the_break_even_turn_is_the_call_from_which_on_a_run_stays_cheaper(
    written: list[tuple[int, int]], call: int | None
) -> None:
    """WB-TUNE-06: summaries cost what is given here, every call from 2 on saves 50."""
    base = fake_run("base", {"c": 16})
    calls = [{**row, "prompt_tokens": 1_000, "prefix_tokens": None} for row in base.rows("calls")]
    base = replace(base, tables={**base.tables, "calls": calls})
    shorter = [{**row, "prompt_tokens": 950 if row["call"] >= 2 else 1_000} for row in calls]
    summaries = [
        {
            "conversation": "c",
            "call": at,
            "request_tokens": tokens - 50,
            "completion_tokens": 50,
            "prefix_tokens": 0,
            "status": "written",
        }
        for at, tokens in written
    ]
    run = replace(base, name="pays", tables={**base.tables, "calls": shorter, "summaries": summaries})
    (verdict,) = compare(base, run).verdicts
    assert (verdict.break_even.call, verdict.break_even.reached) == (call, int(call is not None))


@pytest.mark.slow
def test_it_says_where_runs_differ_most_and_shows_the_two_prompts_there(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-01: the place with the largest difference, and a side-by-side view of the prompts at a call."""
    runs = replay(chats, [config(name="base"), summarising()], runs=tmp_path, progress=False)
    found = compare(runs)
    nets = {
        name: abs(a.net_tokens - figures_of(runs["base"])[name].net_tokens)
        for name, a in figures_of(runs["summaries"]).items()
    }
    assert [place.conversation for place in found.widest] == sorted(nets, key=lambda name: -nets[name])
    place = found.widest[0]
    rows = {run.name: run.rows("calls", place.conversation) for run in runs.values()}
    gaps = [abs(a["prompt_tokens"] - b["prompt_tokens"]) for a, b in zip(rows["base"], rows["summaries"], strict=True)]
    assert gaps[place.call or 0] == max(gaps)
    diff = found.diff("summaries")
    assert (diff.before.index, diff.before.conversation) == (place.call, place.conversation)
    assert (diff.before.run, diff.after.run, diff.is_empty) == ("base", "summaries", False)
    assert found.diff("summaries", "c1", 0).is_empty
    with pytest.raises(ReplayError, match="no run 'base' beside the reference"):
        found.diff("base")


def test_equal_runs_make_no_difference_and_have_no_place() -> None:
    base = many("base")
    found = compare(base, replace(base, name="same"))
    assert (found.verdicts[0].verdict, found.widest) == ("no difference", ())
    with pytest.raises(ReplayError, match="equally long"):
        found.diff("same")


def test_what_cannot_be_compared_is_said() -> None:
    with pytest.raises(ConfigError, match="1 run"):
        compare(FEW["today"])
    with pytest.raises(ConfigError, match="same name"):
        compare(FEW["today"], FEW["today"])
    with pytest.raises(ConfigError, match="reference"):
        compare(FEW, reference="yesterday")
    with pytest.raises(ReplayError, match="net_token'"):
        compare(FEW).difference("today", "net_token")


def test_an_unknown_window_leaves_the_overflow_out() -> None:
    found = compare(fake_runs(window=None))
    assert {d.measure for d in found.differences} == {m.name for m in MEASURES} - {
        "overflow_calls",
        "cost",
        "needed_fact_recall",
    }


def test_with_prices_money_is_compared_and_decides_the_verdict(chats: Recordings, tmp_path: Path) -> None:
    """WB-COST-02, WB-TUNE-06: cheaper or dearer is said of the bill, where there is one."""
    priced = {"cache": {"provider": "openai", "min_tokens": 0, "block_tokens": 1}, "model": {"name": "gpt-4o"}}
    configs = [config(name="base", **priced), summarising("often", token=40, **priced)]
    runs = replay(chats, configs, runs=tmp_path / "runs", progress=False)
    found = compare(runs)
    money, (verdict,) = found.difference("often", "cost"), found.verdicts
    assert found.currency == "USD"
    assert money.difference == pytest.approx((runs["often"].cost.cost - runs["base"].cost.cost) / 3)
    assert (verdict.by, verdict.verdict) == ("cost", "smaller, but dearer")
    assert "money  " in comparison_text(found)
    assert "$" in comparison_text(found)
    assert found.as_dict()["currency"] == "USD"
    for figures in figures_of(runs["often"]).values():
        assert figures.cost_upto_call[-1] <= figures.cost + 1e-12
        assert len(figures.cost_upto_call) == figures.calls


def test_a_comparison_recommends_by_the_rule_of_sweeps_and_reports(chats: Recordings, tmp_path: Path) -> None:
    """WB-TUNE-06, WB-CLI-03: one rule, one answer, with its reason."""
    runs = replay(chats, [config(name="base"), summarising()], runs=tmp_path / "runs", progress=False)
    found = compare(runs)
    assert found.decision.recommended == overview(runs).recommended is not None
    said = found.as_dict()["decision"]
    assert (said["recommended"], said["reason"]) == (found.decision.recommended, found.decision.reason)
    assert comparison_text(found).startswith(f"Take “{found.decision.recommended}”: ")


def test_overflow_is_denied_only_where_a_window_is_known(tmp_path: Path) -> None:
    """WB-TUNE-06: in a comparison, on a part of it and in a report; the run counts what it doesn't know."""
    lines = [json.dumps({**chat(4, ident=name), "model": name}, ensure_ascii=False) for name in ("gpt-4o", "own-model")]
    (tmp_path / "c.jsonl").write_text("\n".join(lines), "utf-8")
    runs = replay(tmp_path / "c.jsonl", [config(name="base"), summarising()], runs=tmp_path / "runs", progress=False)
    assert runs["base"].facts["unknown_windows"] == runs["base"].facts["calls"] / 2 > 0
    assert "no overflow where the window is known" in compare(runs).decision.reason
    known = compare(runs, conversations=["gpt-4o"]).decision.reason
    assert ("no overflow" in known, "where the window is known" in known) == (True, False)
    assert "no overflow where the window is known" in overview(runs).rule


def test_the_baseline_of_a_configuration_keeps_model_and_counters() -> None:
    """WB-TUNE-06."""
    tuned = summarising(model={"context_window": 9_000}, compaction={"enabled": True}, tailoring={"enabled": True})
    base = without_shortening(tuned)

    class Configured:
        config = base

    assert is_baseline(Configured())
    assert (base.model, base.counter, base.billing, base.name) == (
        tuned.model,
        tuned.counter,
        tuned.billing,
        "no summary",
    )


def test_a_comparison_shows_itself_everywhere_alike() -> None:
    """WB-UI-05, WB-UI-04: terminal, notebook and page say the same sentence."""
    runs = {run.name: run for run in (many("base"), many("b", chars_per_token=1.3))}
    found = compare(runs)
    sentence = "“b” against “base”: "
    assert f"\n\n{sentence}" in comparison_text(found)
    assert sentence in comparison_html(found)
    assert sentence in html_document(runs, comparison=found)
    assert repr(found) == f"Comparison(against base: b: {found.verdicts[0].verdict})"
    assert isinstance(found, Comparison)
    assert max(map(len, comparison_text(found).splitlines())) <= 110


def test_facts_of_classes_that_chance_fills_count_in_no_comparison() -> None:
    """WB-RET-01b: nor does class code."""
    run = with_facts_table(next(iter(fake_runs().values())), {2: {"visible_raw": 3, "lost": 1}})
    others = [{**row, "kind": kind} for row in run.tables["needed_facts"] for kind in ("time", "code")]
    mixed = replace(run, tables={**run.tables, "needed_facts": [*run.tables["needed_facts"], *others]})
    (found,) = [one for one in figures_of(mixed).values() if one.needed_facts]
    assert (found.needed_facts, found.visible_facts) == (4, 3)
