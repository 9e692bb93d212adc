"""How one request is shown, in a terminal and in a notebook."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.replay.conftest import chat, config, summarising
from workbench.recordings import load_recordings
from workbench.replay.replay import replay
from workbench.replay.runs import RunSet
from workbench.report.labels import display_width
from workbench.report.prompt import calls_text
from workbench.report.terminal import LINE_WIDTH

EVIL = "<img src=x onerror=alert(1)>\x1b[2J\x9b31m\u202eabc</pre><script>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> RunSet:
    folder = tmp_path_factory.mktemp("prompt")
    conversation = chat(12, n_repeats=400)
    conversation["messages"][-4]["content"] = f"{EVIL}\nsecond line"  # the last question
    path = folder / "chats.jsonl"
    path.write_text(json.dumps(conversation, ensure_ascii=True) + "\n", encoding="utf-8")
    compaction = {"enabled": True, "tool_result_max_tokens": 300, "keep_recent_requests": 1}
    configs = [
        config(name=f"nothing {EVIL}", model={"context_window": 9000}),
        summarising("summaries", model={"context_window": 9000}),
        config(name="compaction", model={"context_window": 9000}, compaction=compaction),
        config(name="tailoring", model={"context_window": 9000}, tailoring={"enabled": True}),
    ]
    return replay(load_recordings(path), configs, runs=folder / "runs", progress=False)


def is_harmless(text: str) -> bool:
    return not {"\x1b", "\x9b", "\u202e"} & set(text)


def test_one_call_shows_parts_reasons_and_every_message(runs: RunSet) -> None:
    """WB-RPL-12: tokens per part, trigger, prefix and its break, summary."""
    run = runs["summaries"]
    index = next(row["call"] for row in run.rows("calls") if row["break_cause"] == "summary_updated_system")
    text = calls_text([run.call("c1", index)])
    row = run.rows("calls")[index]
    lines = text.split("\n")
    assert lines[0].startswith(f"“c1”, call {index}: {row['prompt_tokens']:,} tokens in {row['messages']} messages")
    parts = dict(line.rsplit(None, 1) for line in text.split("\n\n")[1].split("\n")[2:])
    assert parts["summary"] == f"{row['summary_tokens']:,}"
    assert parts["whole prompt"] == f"{row['prompt_tokens']:,}"
    flat = " ".join(text.split())
    assert "fired; token_threshold" in flat
    assert "tokens of more than 300" in flat
    assert f"a new summary changed the system message: {row['lost_tokens']:,} tokens sent anew" in flat
    assert sum(line.startswith("     ") and "  user  " in line for line in lines) >= 1
    assert all(display_width(line) <= LINE_WIDTH for line in lines)


@pytest.mark.slow
def test_another_configuration_is_a_diff_with_equal_stretches_folded(runs: RunSet) -> None:
    """WB-RPL-12: what both send is one line, the rest stands below each other."""
    names = list(runs)
    text = calls_text([runs[names[0]].call("c1", 22), runs["compaction"].call("c1", 22)])
    row = runs["compaction"].rows("calls")[22]
    lines = text.split("\n")
    assert sum(line.startswith("-") for line in lines) == row["pass1_results"] + row["pass2_results"] > 0
    assert sum(line.startswith("+") for line in lines) == row["pass1_results"] + row["pass2_results"]
    folded = [line for line in lines if "equal message" in line]
    assert folded
    assert all("tokens" in line for line in folded)
    assert f"compacted {row['pass1_results']} results by pass 1" in " ".join(text.split())
    same = calls_text([runs[names[0]].call("c1", 2), runs["compaction"].call("c1", 2)])
    assert "send the same request" in same
    assert "  … 6 equal messages, " in same


def test_a_text_that_begins_alike_is_shown_from_where_it_differs(runs: RunSet) -> None:
    run = runs["summaries"]
    seen = [row["call"] for row in run.rows("calls") if row["break_cause"] == "summary_updated_system"]
    text = calls_text([run.call("c1", seen[0] - 1), run.call("c1", seen[0])])
    assert text.count("equal characters]") == 2
    whole = calls_text([run.call("c1", seen[0] - 1), run.call("c1", seen[0])], full=True)
    assert "equal characters]" not in whole
    assert whole.count("你是客服。") == 2


def test_no_text_and_no_name_reaches_the_terminal_as_it_is(runs: RunSet) -> None:
    """SEC-13: control, escape and direction characters are shown escaped."""
    names = list(runs)
    calls = [runs[names[0]].call("c1", 22), runs["summaries"].call("c1", 22)]
    for full in (False, True):
        text = calls_text(calls, full=full) + calls_text(calls[:1], full=full)
        assert is_harmless(text)
        assert r"\x1b[2J\x9b31m\u202eabc" in text
    assert "        second line" in calls_text(calls[:1], full=True).split("\n")


class Tags(HTMLParser):
    """Which tags and attributes a page has."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def test_a_notebook_shows_a_call_and_a_diff_with_everything_escaped(runs: RunSet) -> None:
    """SEC-07, WB-UI-05."""
    names = list(runs)
    before, after = runs[names[0]].call("c1", 22), runs["summaries"].call("c1", 22)
    for made in (before._repr_html_(), before.diff(after)._repr_html_()):
        reader = Tags()
        reader.feed(made)
        own = {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre"}
        assert reader.tags <= own
        assert reader.attributes <= {"style", "colspan"}
        assert "&lt;img src=x onerror=alert(1)&gt;" in made
        assert is_harmless(made)
    assert "equal message" in before.diff(runs["compaction"].call("c1", 22))._repr_html_()


def test_a_request_without_earlier_ones_says_so(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(chat(1)), encoding="utf-8")
    run = replay(load_recordings(path), config(name="a"), runs=tmp_path, progress=False)["a"]
    text = calls_text([run.call("c1", 0)])
    assert "no earlier request in this conversation" in text
    assert "this configuration makes no summaries" in text
    assert "% of the window" in text
    assert repr(run.call("c1", 0)).startswith("Call(a: c1, call 0, 2 messages, ")
