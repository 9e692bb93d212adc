"""What compaction and tailoring saved, pass by pass, and what that cost in cached prefix."""

from __future__ import annotations

import json

import pytest

from tests.replay.conftest import chat, config
from tests.report.fakes import fake_runs
from workbench.recordings import load_recordings
from workbench.replay.replay import replay
from workbench.replay.runs import RunSet
from workbench.report.labels import display_width
from workbench.report.page import html_document
from workbench.report.shortening import COLUMNS, PASSES, TAILORING, shortening_sentences, shortenings
from workbench.report.terminal import LINE_WIDTH, summary

pytestmark = pytest.mark.slow  # replays whole data sets; `make test-more` runs these

COMPACTION = {
    "enabled": True,
    "tool_result_max_tokens": 300,
    "oversized_tool_result_max_tokens": 600,
    "keep_recent_requests": 1,
}
EVIL = "<b>\x1b[2J"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> RunSet:
    folder = tmp_path_factory.mktemp("shortening")
    path = folder / "chats.jsonl"
    lines = [json.dumps(chat(n, ident=ident, n_repeats=400)) for n, ident in ((12, "long"), (3, f"short {EVIL}"))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = {"context_window": 9000}
    configs = [
        config(name="nothing", model=model),
        config(name="passes 1 and 2", model=model, compaction=COMPACTION),
        config(name="pass 0", model=model, compaction={"enabled": True, "force_clean_tool_names": ["query"]}),
        config(name="tailoring", model=model, tailoring={"enabled": True}),
        config(name="too generous", compaction={"enabled": True, "tool_result_max_tokens": 100_000}),
    ]
    return replay(load_recordings(path), configs, runs=folder / "runs", progress=False)


def test_every_pass_that_did_something_has_a_row_per_conversation(runs: RunSet) -> None:
    """WB-RPL-03: results, calls and tokens per pass; what did nothing has no row."""
    found = shortenings(runs, runs)
    steps = {name: {one.step for one in found if one.run == name} for name in runs}
    assert steps == {
        "nothing": set(),
        "passes 1 and 2": {"pass 1", "pass 2"},
        "pass 0": {"pass 0"},
        "tailoring": {TAILORING},
        "too generous": set(),
    }
    calls = runs["passes 1 and 2"].rows("calls", "long")
    first = next(one for one in found if (one.step, one.conversation) == ("pass 1", "long"))
    assert first.calls == sum(row["pass1_results"] > 0 for row in calls) > 5
    assert first.saved_tokens == sum(row["pass1_saved_tokens"] for row in calls) > 0


def test_the_passes_add_up_to_what_compaction_saved(runs: RunSet) -> None:
    """ASM-CMP-22, WB-RPL-03."""
    for name in ("passes 1 and 2", "pass 0"):
        for row in runs[name].rows("calls"):
            assert (
                sum(row[f"{step.replace(' ', '')}_saved_tokens"] for step in PASSES) == row["compaction_saved_tokens"]
            )
            for n in range(3):
                assert (row[f"pass{n}_saved_tokens"] > 0) == (row[f"pass{n}_results"] > 0)


# A dropped message also takes its role, names and ids along, which only the billing counter counts.
@pytest.mark.parametrize(("name", "tolerance"), [("passes 1 and 2", 0.02), ("pass 0", 0.02), ("tailoring", 0.15)])
def test_saved_tokens_are_those_that_the_prompts_lack(name: str, tolerance: float, runs: RunSet) -> None:
    """WB-RPL-03: both counters of these runs count characters, so saving and prompts can be compared."""
    whole, shortened = (runs[run].facts["prompt_tokens"] for run in ("nothing", name))
    saved = sum(one.saved_tokens for one in shortenings(runs, [name]))
    assert saved == pytest.approx(whole - shortened, rel=tolerance)


def test_every_lost_token_is_charged_to_one_step(runs: RunSet) -> None:
    """WB-CACHE-03: what a step broke stands in its row."""
    for name in ("passes 1 and 2", "pass 0", "tailoring"):
        broken = [row for row in runs[name].rows("calls") if row["break_cause"] not in (None, "first_call")]
        causes = {row["break_cause"] for row in broken}
        assert causes <= {"compaction_placeholder", "compaction_truncation", "tailoring"}
        found = shortenings(runs, [name])
        assert sum(one.breaks for one in found) == len(broken) > 0
        assert sum(one.lost_tokens for one in found) == sum(row["lost_tokens"] for row in broken)
    assert sum(one.lost_tokens for one in shortenings(runs, ["passes 1 and 2"])) > 0


def test_sentences_set_the_saving_against_its_cost(runs: RunSet) -> None:
    found = shortenings(runs, ["tailoring", "pass 0"])
    first, second = shortening_sentences(found)
    assert first.startswith("“tailoring” kept ")
    assert "cached ones anew" in first
    assert second.startswith("“pass 0” kept ")
    assert shortening_sentences([]) == []


def test_terminal_and_page_show_the_table(runs: RunSet) -> None:
    """WB-UI-04, SEC-07, SEC-13."""
    text = summary(runs)
    heading = next(line for line in text.split("\n") if line.startswith("configuration") and "saved" in line)
    assert heading.split("  ")[0] == COLUMNS[0]
    assert "pass 2: oversized tool results" in text
    assert "\x1b" not in text
    assert all(display_width(line) <= LINE_WIDTH for line in text.split("\n") if "pass " not in line)
    page = html_document(runs)
    assert "What compaction and tailoring saved" in page
    assert page.count("tailoring: whole rounds") == len(shortenings(runs, ["tailoring"]))
    assert "<b>\ufffd" not in page
    assert "&lt;b&gt;" in page


def test_runs_that_shorten_nothing_have_no_such_table() -> None:
    runs = fake_runs((12, 4))
    assert "what it took out" not in summary(runs)
    assert "What compaction and tailoring saved" not in html_document(runs)
