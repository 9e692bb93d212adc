"""Probes: questions with known answers, their states, and answers that a judge looks at."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.replay.conftest import config, summarising
from workbench.errors import ModelError, RecordingError
from workbench.evaluate.probes import Probe, judge_probes, load_probes, probe_states
from workbench.model.scripted import ScriptedModel
from workbench.recordings import load_recordings

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
FOLDERS = sorted(path.parent.name for path in DATASETS.glob("*/probes.jsonl"))


def states_of(folder: str, run_config):
    probes = load_probes(DATASETS / folder / "probes.jsonl")
    return [
        state for one in load_recordings(DATASETS / folder) for state in probe_states(one, probes, run_config)
    ], probes


@pytest.mark.parametrize("folder", ["ja-support", "ko-support", "multi-agent", "en-research"])
def test_the_whole_history_shows_every_answer(folder: str):
    """WB-RET-02: the same states as needed facts have."""
    states, probes = states_of(folder, config())
    assert len(states) == len(probes) > 3
    assert [one.probe.id for one in states if one.state != "visible_raw"] == []
    assert all(one.is_visible and not one.step for one in states)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_bundled_probe_is_visible_in_the_whole_history(folder: str):
    """WB-RET-02."""
    states, probes = states_of(folder, config())
    assert len(states) == len(probes)
    assert [one.probe.id for one in states if not one.is_visible] == []


def test_a_summary_without_facts_loses_the_answers():
    """WB-RET-02, WB-RET-03: with the step that took them."""
    empty = summarising(token=800, summaries={"source": "sized", "sized_tokens": 5})
    states, probes = states_of("ko-support", empty)
    assert {one.state for one in states} <= {"lost", "visible_raw"}
    lost = [one for one in states if one.state == "lost"]
    assert len(lost) >= 3
    assert {one.step for one in lost} == {"summary"}
    assert {one.probe for one in states} == set(probes)


def test_states_stand_with_the_request_of_their_call():
    """WB-RET-02."""
    states, _ = states_of("ja-support", config())
    assert all(one.probe.answer in "".join(m.content for m in one.request.messages) for one in states)


@pytest.mark.parametrize(
    ("line", "text"),
    [("{", "a probe is an object"), ("[]", "a probe is an object"), ('{"id": 1}', "a probe is an object")],
    ids=["json", "list", "keys"],
)
def test_a_line_that_is_no_probe_is_named(line: str, text: str, tmp_path: Path):
    """WB-RET-02, WB-REC-05: with path and line."""
    path = tmp_path / "probes.jsonl"
    good = {"id": "a", "conversation": "c", "question": "?", "answer": "1", "source_index": 0, "needed_index": 1}
    path.write_text(json.dumps(good) + "\n\n" + line + "\n", encoding="utf-8")
    with pytest.raises(RecordingError, match=text) as caught:
        load_probes(path)
    assert caught.value.line == 3


@pytest.mark.parametrize(("source", "needed"), [(999, 40), (-1, 40), (3, 999), (3, 1)])
def test_a_probe_that_points_nowhere_is_refused(source: int, needed: int):
    """WB-RET-02."""
    (conversation,) = load_recordings(DATASETS / "ja-support")
    probe = Probe("p", conversation.id, "?", "KJ", source, needed)
    with pytest.raises(RecordingError, match="probe p"):
        probe_states(conversation, [probe], config())


def test_probes_of_other_conversations_are_passed_over():
    """WB-RET-02."""
    (conversation,) = load_recordings(DATASETS / "ja-support")
    assert probe_states(conversation, [Probe("p", "another", "?", "x", 0, 1)], config()) == []


# --- judged answers -------------------------------------------------------------------------------------


def test_answers_of_a_model_are_judged_and_judgements_kept():
    """WB-RET-02: model-judged when a model is given, cached by content."""
    states, _ = states_of("ko-support", config())
    model, judge = ScriptedModel(["412,000원"] * 9), ScriptedModel(["Yes.", "no", "maybe", "아니", "예"], name="judge")
    cache: dict[str, str] = {}
    judged = asyncio.run(judge_probes(states, model, judge=judge, cache=cache))
    assert [one.is_right for one in judged][:3] == [True, False, None]
    asked = [request.messages[-1].content for request in model.requests]
    assert asked == [one.probe.question for one in states]
    assert model.requests[0].messages[:-1] == states[0].request.messages
    n_calls = len(model.requests), len(judge.requests)
    again = asyncio.run(judge_probes(states, model, judge=judge, cache=cache))
    assert again == judged
    assert (len(model.requests), len(judge.requests)) == n_calls, "nothing is asked twice"


def test_a_model_without_an_answer_is_an_error():
    """WB-RET-02."""
    states, _ = states_of("ko-support", config())
    with pytest.raises(ModelError, match="no text"):
        asyncio.run(judge_probes(states[:1], ScriptedModel([""]), cache={}))
