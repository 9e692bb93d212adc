"""The report as plain text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

from tests.report.fakes import fake_run, fake_runs
from workbench.report import terminal
from workbench.report.labels import display_width
from workbench.report.overview import overview
from workbench.report.terminal import LINE_WIDTH, figures_table, runs_table, sentence, summary, text_table

RUNS = fake_runs()
LONG = "conversation-configuration-with-a-name-that-does-not-end-before-the-terminal-does"


def test_the_table_is_aligned_where_names_are_cjk():
    runs = {name: fake_run(name, {"客服-01": 30}, chars_per_token=1.3) for name in ("会话摘要", "abc", "한국어 설정")}
    _, _, rule, *lines = runs_table(runs).split("\n")
    assert {display_width(line) for line in lines} == {display_width(rule)}


def test_no_line_is_wider_than_the_terminal():
    runs = {
        **RUNS,
        LONG: fake_run(LONG, {"客服-01": 30}, chars_per_token=2.0),
        "客户服务" * 12: fake_run("客户服务" * 12, {"客服-01": 30}, chars_per_token=2.0),
    }
    for line in (summary(runs) + "\n" + runs_table(runs)).split("\n"):
        assert display_width(line) <= LINE_WIDTH, line


def test_names_too_long_for_their_column_go_on_below_and_stay_apart():
    names = [f"a configuration with a name of some length, the variant number {n}" for n in range(3)]
    runs = {name: fake_run(name, {"客服-01": 30}, chars_per_token=1 + n) for n, name in enumerate(names)}
    shown = " ".join(runs_table(runs).split())
    assert [f"number {n}" in shown for n in range(3)] == [True, True, True]
    assert "[recommended]" in shown


def test_tags_are_never_cut_and_the_end_of_a_name_stays_whole(monkeypatch):
    """WB-UI-05: tags that don't fit beside each other stand one below the other."""
    best = RUNS[overview(RUNS).recommended]
    for name in ("best", "token:3200 summary_injection_mode=system tool_result_max_tokens=340", "客户服务" * 12):
        runs = {**RUNS, name: replace(best, name=name)}
        del runs[best.name]
        for width in range(85, 120):
            monkeypatch.setattr(terminal, "LINE_WIDTH", width)
            table = runs_table(runs, today=name)
            tags = re.findall(r"\[([^\]]*)\]", table)
            assert sorted(tag for group in tags for tag in group.split(", ")) == ["baseline", "recommended", "today"]
            assert "=340" in table or "=340" not in name


def test_summary_holds_recommendation_table_sentences_and_rule():
    text = summary(RUNS)
    heading, table = text.index("Take “"), text.index("configuration")
    sentences = text.index("sends the whole history")
    assert heading < table < sentences < text.index("Rule: fewest net tokens")
    assert runs_table(RUNS) in text


def test_what_needs_action_is_marked_without_colour():
    baseline = next(line for line in runs_table(RUNS).split("\n") if line.startswith("no summary"))
    assert f"!{RUNS['no summary'].facts['overflow_calls']}" in baseline


def test_no_name_can_move_the_cursor():
    """SEC-07."""
    name = "evil\x1b[2J\rname\n"
    text = summary({name: fake_run(name, {"a\x1b[31m": 3}), "b": fake_run("b", {"a": 3})})
    assert not {"\x1b", "\r"} & set(text)


def test_any_rows_are_shown_with_numbers_to_the_right_and_unknown_as_a_dash():
    lines = text_table(["calls", "名前"], [(7, "客服"), (1_200, None)]).split("\n")
    assert lines == ["calls  名前", "───────────", "    7  客服", " 1200  —"]


def test_an_empty_result_is_a_heading_only():
    assert text_table(["a", "b"], []).split("\n")[0] == "a  b"
    assert summary({}) == "No run to show."


def test_sentence_is_the_one_of_the_page():
    assert sentence(RUNS["today"], RUNS["no summary"]) in " ".join(summary(RUNS).split())


def test_the_command_line_loads_no_plotting_for_the_table():
    """PERF-11."""
    code = (
        "import json, sys; import workbench.report, workbench.report.terminal; "
        "print(json.dumps([name for name in ('pandas', 'matplotlib', 'numpy') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_a_name_gives_way_in_a_wide_table_and_several_names_stay():
    columns, long = ["run", *(f"figure {n}" for n in range(8))], "a configuration of many words " * 4
    shown = figures_table(columns, [[long, *["12,345"] * 8], ["short", *["1"] * 8]])
    assert max(map(display_width, shown.split("\n"))) == LINE_WIDTH
    assert "…" in shown
    assert long.strip() in figures_table(columns, [[long.strip(), "other", *["1"] * 7]], n_names=2)
