"""A model as judge: three verdicts, judgements kept by content, and no verdict that turns on noise."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.regression.conftest import HEAD, SuiteFolder, summing_up
from workbench.errors import ModelError
from workbench.evaluate.retention import wilson
from workbench.model.cassette import Cassette
from workbench.model.scripted import ScriptedAnswer, ScriptedModel
from workbench.model.types import Request
from workbench.regression.expectations import findings_of
from workbench.regression.finding import FAIL, PASS, UNDECIDED
from workbench.regression.judging import JudgedSummary, judge_summaries, share_of
from workbench.regression.replaying import Replayed, replay_suite
from workbench.regression.suite import JudgeRules, Suite, load_suite
from workbench.replay.needed import said_by

JUDGE = """
[[judges]]
name = "faithful"
question = "Is everything in the summary said by the conversation?"
min_share = 0.8
replicates = {replicates}
model = "judge-1"
cassette = "judgements.jsonl"
"""


def noisy(share: float, seed: int) -> ScriptedModel:
    """A judge that says yes to a share of all questions, and another time to others."""
    dice = random.Random(seed)
    return ScriptedModel(lambda request: "yes" if dice.random() < share else "No.", name="judge-1")


def judged(mine: SuiteFolder, judge: ScriptedModel | None, replicates: int = 21) -> tuple[str, str]:
    mine.write(JUDGE.replace("{replicates}", str(replicates)), head=HEAD)
    (finding,) = mine.check(judge=judge).findings
    return finding.verdict, finding.detail


def test_a_good_judgement_passes_and_a_bad_one_fails_where_it_is_worst(mine: SuiteFolder) -> None:
    """WB-REG-06."""
    verdict, detail = judged(mine, noisy(1.0, 1))
    assert verdict == PASS
    assert detail.startswith("84 of 84 yes, 0.9999 interval 0.8")
    (mine.folder / "judgements.jsonl").unlink()
    mine.write(JUDGE.replace("{replicates}", "12"), head=HEAD)

    def strict(request: Request) -> str:
        return "no" if "A1004" in request.messages[0].content else "yes"

    result = mine.check(judge=ScriptedModel(strict, name="judge-1"))
    assert not result.passed
    (failure,) = result.failures
    assert (failure.conversation, failure.call, failure.expectation, failure.limit) == (
        "c1",
        11,
        "judges.faithful",
        0.8,
    )
    assert failure.value == pytest.approx(1 / 2)
    assert "summary 4 got 0 of 12" in failure.detail


def test_judgements_are_kept_by_content_each_replicate_for_itself(mine: SuiteFolder) -> None:
    """WB-REG-06: unchanged summaries are never judged twice."""
    judge = noisy(0.9, 3)
    first = judged(mine, judge)
    assert len(judge.requests) == 84  # the first summaries of both conversations are the same question
    assert len(Cassette(mine.folder / "judgements.jsonl")) == 84
    assert judged(mine, judge) == first
    assert judged(mine, None) == first
    assert len(judge.requests) == 84


def test_without_recorded_judgements_a_check_fails_and_nobody_is_asked(mine: SuiteFolder) -> None:
    """WB-REG-06, WB-REG-04: CI needs no key, and a changed summary doesn't silence its judge."""
    verdict, detail = judged(mine, None)
    assert verdict == FAIL
    assert detail.startswith("84 of 84 judgements aren't recorded; `workbench check mine.suite.toml --record`")
    assert not (mine.folder / "judgements.jsonl").exists()


def test_too_few_judgements_are_no_share(mine: SuiteFolder) -> None:
    """WB-REG-06."""
    verdict, detail = judged(mine, noisy(1.0, 1), replicates=2)
    assert (verdict, detail) == (UNDECIDED, "judgements: 8 found, at least 30 needed: raise replicates")


def test_what_is_neither_yes_nor_no_may_mean_either(mine: SuiteFolder) -> None:
    """WB-REG-06."""
    verdict, detail = judged(mine, ScriptedModel([ScriptedAnswer("It depends.")], name="judge-1"))
    assert verdict == UNDECIDED
    assert "84 unclear" in detail


def test_the_judge_reads_what_the_summary_covers_and_no_more(mine: SuiteFolder) -> None:
    judge = ScriptedModel(["yes"], name="judge-1")
    judged(mine, judge)
    text = judge.requests[0].messages[0].content
    assert "user: 第0个问题" in text
    assert "A1002" not in text
    assert text.endswith("Is everything in the summary said by the conversation?\nReply with yes or no only.")


def verdict_of(share: float, limit: float, seed: int, *, n_summaries: int = 20, replicates: int = 10) -> str:
    """A verdict over summaries of one quality, judged by dice."""
    dice = random.Random(seed)
    summaries = []
    for number in range(n_summaries):
        yes = sum(dice.random() < share for _ in range(replicates))
        summaries.append(JudgedSummary("c", number, number, yes, replicates - yes, 0, 0))
    return share_of(summaries, 0.9999).verdict(limit)


@pytest.mark.parametrize("share", [0.6, 0.7, 0.75, 0.78, 0.8, 0.82, 0.85, 0.9, 0.97])
def test_noise_never_turns_a_verdict(share: float) -> None:
    """WB-REG-06: 400 times the same quality, judged anew: never passed in one run and failed in another."""
    verdicts = Counter(verdict_of(share, 0.8, seed) for seed in range(400))
    assert not (verdicts[PASS] and verdicts[FAIL]), verdicts
    # What is wrong side of the limit never gets the other verdict by luck either.
    assert verdicts[PASS if share < 0.8 else FAIL if share > 0.8 else "none"] == 0


def test_a_clear_quality_gets_a_clear_verdict() -> None:
    """WB-REG-06: three verdicts, not only the careful one."""
    assert Counter(verdict_of(0.97, 0.8, seed) for seed in range(100))[PASS] > 95
    assert Counter(verdict_of(0.5, 0.8, seed) for seed in range(100))[FAIL] > 95
    assert Counter(verdict_of(0.8, 0.8, seed) for seed in range(100))[UNDECIDED] > 95


@pytest.mark.parametrize("n", [30, 33, 48, 500, 2999])
def test_all_or_none_is_the_end_of_the_scale(n: int) -> None:
    assert wilson(1.0, n, z=3.89)[1] == 1.0
    assert wilson(0.0, n, z=3.89)[0] == 0.0


def test_equal_summaries_are_one_judgement(mine: SuiteFolder) -> None:
    """WB-REG-06: three answers copied to forty summaries are still three."""
    judge = ScriptedModel(["yes"], name="judge-1")
    judged(mine, judge)
    texts = [request.messages[0].content for request in judge.requests]
    assert len(texts) == 84
    assert len(set(texts)) * 21 == 84


@pytest.mark.slow
def test_a_noisy_judge_never_turns_the_verdict_of_a_suite(mine: SuiteFolder, tmp_path: Path) -> None:
    """WB-REG-06, from summaries to verdicts: 40 seeds at each quality."""
    mine.write(JUDGE.replace("{replicates}", "12"), head=HEAD)
    suite = load_suite(mine.path)
    replayed: Replayed = replay_suite(suite)
    (rules,) = suite.rules.judges
    for share in (0.6, 0.8, 0.95):
        seen = Counter(_verdict(replayed, rules, share, seed, tmp_path) for seed in range(40))
        assert not (seen[PASS] and seen[FAIL]), (share, seen)


def _verdict(replayed: Replayed, rules: JudgeRules, share: float, seed: int, folder: Path) -> str:
    found = judge_summaries(replayed, rules, folder / f"{share}-{seed}.jsonl", noisy(share, seed))
    return share_of(found, rules.level).verdict(rules.min_share)


def test_a_judge_that_answers_with_an_error_is_told(mine: SuiteFolder) -> None:
    with pytest.raises(ModelError, match="no room"):
        judged(mine, ScriptedModel([ScriptedAnswer(call_error="no room")], name="judge-1"))


def in_two_branches(mine: SuiteFolder) -> tuple[Suite, Replayed]:
    """The first conversation, whose second request was another agent's; its summaries cover the first agent only."""
    suite = load_suite(mine.path)
    replayed = replay_suite(suite, model=summing_up(lambda text, request: "Nothing of note."))
    first = replayed.conversations[0]
    aside = [event for event in first.events if "A1001" in said_by(event)]
    events = tuple(event.replace(filter_key="shop/b" if event in aside else "shop/a") for event in first.events)
    rows = [{**row, "filter_key": "shop/a"} for row in replayed.rows("summaries", first.id)]
    changed = dataclasses.replace(first, events=events)
    tables = {**replayed.tables, "summaries": rows}
    return suite, dataclasses.replace(replayed, conversations=(changed,), tables=tables)


def test_a_summary_of_one_branch_owes_nothing_that_another_said(mine: SuiteFolder) -> None:
    """WB-REG-01, SUM-KEY-03."""
    mine.write('[[conversations]]\nid = "c1"\nholds = ["A1000", "A1001"]\n')
    suite, replayed = in_two_branches(mine)
    found = {one.expectation: one.verdict for one in findings_of(suite, replayed, ())}
    assert found["conversations.holds 'A1000'"] == FAIL
    assert found["conversations.holds 'A1001'"] == UNDECIDED


def test_the_judge_reads_no_branch_that_the_summary_does_not_cover(mine: SuiteFolder, tmp_path: Path) -> None:
    """WB-REG-06, SUM-KEY-03."""
    mine.write(JUDGE.replace("{replicates}", "1"), head=HEAD + 'cassette = "answers.jsonl"\n')
    suite, replayed = in_two_branches(mine)
    asked: list[str] = []
    judge = ScriptedModel(lambda request: asked.append(request.messages[0].content) or "yes", name="judge-1")
    judge_summaries(replayed, suite.rules.judges[0], tmp_path / "said.jsonl", judge)
    assert len(asked) > 1
    assert all("A1000" in text and "A1001" not in text for text in asked)
