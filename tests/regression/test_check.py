"""A check from end to end: verdicts, places, the baseline, and what is printed and written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import workbench as wb
from tests.regression.conftest import CONFIG, EXPECTATIONS, HEAD, WITH_CASSETTE, SuiteFolder, failing, found, summing_up
from tests.replay.conftest import chat
from workbench.cli import main
from workbench.errors import CassetteFormatError, ConfigError
from workbench.model.cassette import FORMAT_NAME, FORMAT_VERSION
from workbench.regression.finding import FAIL, PASS, UNDECIDED, Finding
from workbench.regression.junit import junit_xml

HEAD_OF_CASSETTE = {"format": FORMAT_NAME, "version": FORMAT_VERSION}
LIMITS_OF_EACH_FIGURE = """
[limits]
prompt_tokens = { max = 5000 }
peak_prompt_tokens = { max = 800 }
summary_tokens = { max = 100 }
firings = { min = 9 }
summaries = { max = 1 }
overflow_calls = { max = 0 }
cost = { max = 0.01 }
needed_fact_recall = { min = 0.9 }
probe_recall = { min = 0.9 }
lost_probes = { max = 0 }
"""


def test_the_public_name_checks_a_suite(mine: SuiteFolder) -> None:
    """WB-REG-01."""
    mine.accepted()
    result = wb.check(mine.path)
    assert result.passed
    assert repr(result) == "CheckResult(mine: passed; 31 passed, 0 failed, 0 undecided)"
    assert {row["verdict"] for row in result.rows()} == {"pass"}
    assert set(result.rows()[0]) == {"conversation", "call", "expectation", "value", "limit", "verdict", "detail"}


def test_each_limit_names_the_place_to_look_at(mine: SuiteFolder) -> None:
    """WB-REG-01, WB-REG-02: conversation, call, expectation, value, limit."""
    mine.write(LIMITS_OF_EACH_FIGURE, head=HEAD, config=CONFIG + "[config.model]\ncontext_window = 700\n")
    result = mine.check()
    rows = {row["expectation"]: row for row in result.rows()}
    assert rows["limits.prompt_tokens.max"] | {"detail": ""} == {
        "conversation": "c1",
        "call": 14,
        "expectation": "limits.prompt_tokens.max",
        "value": 19355,
        "limit": 5000,
        "verdict": "fail",
        "detail": "",
    }
    assert (rows["limits.peak_prompt_tokens.max"]["conversation"], rows["limits.peak_prompt_tokens.max"]["call"]) == (
        "c1",
        14,
    )
    assert rows["limits.firings.min"]["value"] == 7
    assert rows["limits.summaries.max"]["call"] == 7  # the second one
    assert rows["limits.overflow_calls.max"]["call"] == 3
    assert rows["limits.cost.max"]["verdict"] == "fail"
    assert {name for name, row in rows.items() if row["verdict"] == "undecided"} == {
        "limits.needed_fact_recall.min",
        "limits.probe_recall.min",
    }


def test_what_is_not_known_is_undecided_and_never_a_number(mine: SuiteFolder) -> None:
    """WB-REG-06, WB-RET-01b: too little for a percentage, no window, no price, no baseline."""
    no_price = CONFIG + '[config.model]\nname = "nobody-knows-it"\n'
    mine.write(LIMITS_OF_EACH_FIGURE + "[drift]\nfirings = 0\n", head=HEAD, config=no_price)
    undecided = [one for one in mine.check().findings if one.verdict == UNDECIDED]
    assert [one.expectation for one in undecided] == [
        "limits.overflow_calls.max",
        "limits.cost.max",
        "limits.needed_fact_recall.min",
        "limits.probe_recall.min",
        "drift.firings",
    ]
    assert {one.value for one in undecided} == {None}
    assert all(one.detail for one in undecided)
    assert "needed facts: 0 found, at least 30 needed" in undecided[2].detail


def test_an_unknown_window_is_never_a_prompt_that_fits(mine: SuiteFolder) -> None:
    """One conversation's model is known, the other's isn't: none over the window can't be told, one too many can."""
    mine.record_chats({**chat(8), "model": "gpt-4.1-mini"}, {**chat(8, ident="c2"), "model": "nobody-knows-it"})
    mine.write("[limits]\noverflow_calls = { max = 0 }\n[each]\noverflow_calls = { max = 0 }\n", head=HEAD)
    by_scope = {(one.scope, one.verdict): one for one in mine.check().findings}
    assert set(by_scope) == {("", UNDECIDED), ("c1", PASS), ("c2", UNDECIDED)}
    assert by_scope["", UNDECIDED].detail == "no window is known in 'c2': set model.context_window"
    assert main(["check", str(mine.path), "--strict"]) == 1

    two_windows = "[[config.model.changes]]\nrequest = 2\nname = 'gpt-4.1-mini'\ncontext_window = 300\n"
    mine.record_chats({**chat(8), "model": "nobody-knows-it"})
    mine.write("[limits]\noverflow_calls = { max = 0 }\n", head=HEAD, config=CONFIG + two_windows)
    (one,) = mine.check().findings
    assert (one.verdict, one.conversation) == (FAIL, "c1")
    assert one.value > 0


def test_a_suite_that_can_tell_nothing_has_not_passed(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """Like a test run without a test."""
    mine.write("[limits]\nneeded_fact_recall = { min = 0.5 }\n", head=HEAD)
    result = mine.check()
    assert not result.passed
    assert "undecided" in repr(result)
    assert main(["check", str(mine.path)]) == 1
    assert "mine: undecided" in capsys.readouterr().out


@pytest.mark.slow
def test_a_recall_is_judged_when_there_are_facts_enough(mine: SuiteFolder) -> None:
    """WB-REG-01: 30 facts of 10 conversations."""
    asks_again = []
    for number in range(12):
        conversation = chat(8, ident=f"r{number}")
        for turn in (-1, -5):
            conversation["messages"][turn]["content"] += f" 另外，订单 A1000 和 A1001 也已处理，工号 K{number}88."
        own = json.dumps(conversation).replace("A10", f"Q{number + 10}")
        asks_again.append(json.loads(own))
    mine.record_chats(*asks_again)
    mine.write("[limits]\nneeded_fact_recall = { min = 0.99 }\n[drift]\nneeded_fact_recall = 0.01\n", head=HEAD)
    kept = mine.check(accept=True)
    assert kept.findings[0].value is not None
    forgetful = CONFIG.replace("max_summary_words = 60", "max_summary_words = 5")
    mine.write(
        "[limits]\nneeded_fact_recall = { min = 0.99 }\n[drift]\nneeded_fact_recall = 0.01\n",
        head=HEAD,
        config=forgetful,
    )
    result = mine.check()
    assert failing(result) == ["limits.needed_fact_recall.min", "drift.needed_fact_recall"]
    drifted = result.failures[1]
    assert drifted.conversation.startswith("r")
    assert drifted.call is not None
    assert "lost now: " in drifted.detail


def test_facts_are_due_once_they_were_said(mine: SuiteFolder) -> None:
    """WB-REG-01."""
    rules = '[[conversations]]\nid = "c1"\nholds = ["A1004", "A1999"]\nlacks = ["A1005", "B7"]\n'
    mine.write(rules, head=HEAD)
    result = mine.check()
    (held,) = found(result, "conversations.holds 'A1004'")
    assert (held.verdict, held.value) == ("pass", "in 2 of 2")
    (never,) = found(result, "conversations.holds 'A1999'")
    assert (never.verdict, never.detail) == (UNDECIDED, "the conversation never says it")
    (lacked,) = found(result, "conversations.lacks 'A1005'")
    assert (lacked.verdict, lacked.conversation, lacked.call, lacked.value) == (FAIL, "c1", 11, "in 2 of 4")
    assert found(result, "conversations.lacks 'B7'")[0].verdict == "pass"


def test_a_conversation_that_is_not_recorded_fails_with_the_nearest_name(mine: SuiteFolder) -> None:
    mine.write('[[conversations]]\nid = "c11"\nholds = ["A1004"]\n', head=HEAD)
    (finding,) = mine.check().findings
    assert (finding.verdict, finding.detail) == (FAIL, "did you mean c1?")


def test_another_spelling_of_a_fact_counts(mine: SuiteFolder) -> None:
    """WB-RET-01a: amounts and dates are compared by value."""
    conversation = chat(6, ident="c1")
    conversation["messages"][1]["content"] = "退款 1,250.00 元，2026-03-05 前到账"
    mine.record_chats(conversation)
    mine.write('[[conversations]]\nid = "c1"\nholds = ["1250.00 元", "2026年3月5日"]\n')
    result = mine.check(model=summing_up(lambda text, request: f"{text}\n1,250.00 元 2026-03-05"))
    assert [one.verdict for one in result.findings] == ["pass", "pass"]


# --- the baseline ---------------------------------------------------------------------------------------


def test_accepting_shows_the_difference_first_and_writes_then(
    mine: SuiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """WB-REG-02."""
    mine.write(head=HEAD)
    assert main(["check", str(mine.path), "--accept"]) == 0
    capsys.readouterr()
    mine.write(head=HEAD, config=CONFIG.replace("token = 300", "token = 600"))
    assert main(["check", str(mine.path)]) == 1
    said = capsys.readouterr().out
    assert "options that differ from the accepted ones: trigger.token 300 → 600" in said
    assert "fail: c1, call 3: drift.firings: 4 → 2 firings" in said
    before = (mine.folder / "mine.baseline.toml").read_text(encoding="utf-8")
    assert main(["check", str(mine.path), "--accept"]) == 0
    said = capsys.readouterr().out
    assert (
        said.index("mine.baseline.toml: ")
        < said.index("trigger.token")
        < said.index("mine: passed")
        < said.index("accepted: ")
    )
    assert "summaries at call:event  3:6 7:14 11:22 15:30" in said
    assert (mine.folder / "mine.baseline.toml").read_text(encoding="utf-8") != before
    assert main(["check", str(mine.path)]) == 0


def test_the_difference_is_seen_before_the_file_changes(mine: SuiteFolder) -> None:
    """WB-REG-02."""
    mine.accepted()
    baseline = mine.folder / "mine.baseline.toml"
    mine.write(EXPECTATIONS, head=HEAD, config=CONFIG.replace("token = 300", "token = 600"))
    old = baseline.read_bytes()
    seen: list[tuple[bytes, int]] = []
    result = mine.check(
        accept=True, before_accepting=lambda found: seen.append((baseline.read_bytes(), len(found.changes)))
    )
    assert seen == [(old, len(result.changes))]
    assert baseline.read_bytes() != old
    assert result.accepted == baseline


def test_a_baseline_that_cannot_be_written_stays_as_it_was(mine: SuiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """WB-REG-02, REL-07: whole or not at all."""
    mine.accepted()
    baseline = mine.folder / "mine.baseline.toml"
    old = baseline.read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    mine.write(EXPECTATIONS, head=HEAD, config=CONFIG.replace("token = 300", "token = 600"))
    with pytest.raises(ConfigError, match=r"can't be written: No space left on device"):
        mine.check(accept=True)
    assert baseline.read_bytes() == old
    assert [path.name for path in mine.folder.iterdir() if path.name.endswith(".part")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("baseline = 1", "baseline = 7", "baseline version 7; this program reads 1"),
        ("baseline = 1\n", "", "not a baseline"),
        ('billing = "runes:1 +0', 'billing = "o200k_base +0', "accepted for the counter 'o200k_base +0 per message"),
        ('id = "c2"', 'id = "c9"', "accepted for other recordings: conversation 'c2' isn't in it"),
        ("lost_probes = []", "lost_probe = []", "conversations.0.lost_probes = missing"),
    ],
    ids=["version", "no-baseline", "counter", "recordings", "field"],
)
def test_a_baseline_that_does_not_fit_is_one_clear_sentence(
    mine: SuiteFolder, capsys: pytest.CaptureFixture[str], old: str, new: str, sentence: str
) -> None:
    """WB-REG-02: of another version, for another counter, of other recordings."""
    mine.accepted()
    baseline = mine.folder / "mine.baseline.toml"
    text = baseline.read_text(encoding="utf-8")
    assert old in text
    baseline.write_text(text.replace(old, new), encoding="utf-8")
    assert main(["check", str(mine.path)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_a_baseline_that_does_not_fit_can_be_accepted_anew(mine: SuiteFolder) -> None:
    """WB-REG-02."""
    mine.accepted()
    (mine.folder / "mine.baseline.toml").write_text("baseline = 7\n", encoding="utf-8")
    assert mine.check(accept=True).passed
    assert mine.check().passed


def test_a_changed_recording_is_told(mine: SuiteFolder) -> None:
    mine.write(head=HEAD)
    mine.check(accept=True)
    mine.record_chats(chat(8, ident="c1"), chat(9, ident="c2"))
    with pytest.raises(ConfigError, match=r"conversation 'c2' is another recording now"):
        mine.check()
    mine.record_chats(chat(8, ident="c1"))
    with pytest.raises(ConfigError, match=r"conversation 'c2' isn't recorded any more"):
        mine.check()


# --- the cassette ---------------------------------------------------------------------------------------


def test_without_its_cassette_a_suite_says_how_to_record(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-REG-04."""
    assert main(["check", str(mine.path)]) == 1
    said = capsys.readouterr()
    assert "nothing is recorded yet; `workbench check mine.suite.toml --record` records it" in " ".join(
        said.out.split()
    )
    assert said.err == ""
    (mine.folder / "answers.jsonl").write_text(json.dumps(HEAD_OF_CASSETTE) + "\n", encoding="utf-8")
    assert failing(mine.check()) == ["cassette"]
    assert main(["check", str(mine.path), "--record"]) == 0
    assert main(["check", str(mine.path)]) == 0


@pytest.mark.slow
def test_recording_asks_only_for_what_is_missing(mine: SuiteFolder) -> None:
    """WB-REG-04."""
    model = summing_up()
    mine.accepted(model)
    n_asked = len(model.requests)
    assert n_asked > 0
    again = summing_up()
    mine.check(model=again)
    assert again.requests == []
    kept = (mine.folder / "answers.jsonl").read_bytes()
    mine.write(config=CONFIG.replace("max_summary_words = 60", "max_summary_words = 50"))
    result = mine.check()
    assert failing(result) == ["cassette"]
    assert [one.conversation for one in result.failures] == ["c1", "c2"]
    assert "recorded “" in result.failures[0].detail
    mine.check(model=again)
    assert 0 < len(again.requests) <= n_asked
    assert "cassette" not in failing(mine.check())
    assert (mine.folder / "answers.jsonl").read_bytes() != kept


def test_a_miss_is_nothing_to_accept(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-REG-04."""
    mine.accepted()
    baseline = (mine.folder / "mine.baseline.toml").read_bytes()
    mine.write(config=CONFIG.replace("max_summary_words = 60", "max_summary_words = 50"))
    assert main(["check", str(mine.path), "--accept"]) == 1
    assert "nothing was accepted" in capsys.readouterr().out
    assert (mine.folder / "mine.baseline.toml").read_bytes() == baseline


def test_a_cassette_of_another_version_is_one_clear_sentence(mine: SuiteFolder) -> None:
    """WB-REG-04."""
    mine.accepted()
    path = mine.folder / "answers.jsonl"
    path.write_text(
        path.read_text(encoding="utf-8").replace(f'"version":{FORMAT_VERSION}', '"version":9', 1), encoding="utf-8"
    )
    with pytest.raises(CassetteFormatError, match=r"format version 9; this release reads 1"):
        mine.check()
    path.write_text("", encoding="utf-8")
    with pytest.raises(CassetteFormatError, match=r"empty"):
        mine.check()


def test_a_cassette_names_nobody_to_ask(mine: SuiteFolder) -> None:
    """WB-REG-04."""
    mine.write(config=CONFIG + '[config.summaries]\nsource = "cassette"\ncassette = "answers.jsonl"\n')
    with pytest.raises(ConfigError, match=r"names nobody to ask"):
        mine.check(record=True)
    mine.write(head=HEAD)
    with pytest.raises(ConfigError, match=r"cassette is missing"):
        mine.check(record=True)


# --- what is printed and written ------------------------------------------------------------------------


def test_a_failure_exits_with_1_and_names_it_all(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-REG-02: conversation, call, expectation, value, limit."""
    mine.write(EXPECTATIONS.replace("max = 2000", "max = 800"), head=HEAD)
    assert main(["check", str(mine.path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("fail"))
    assert row.split() == ["fail", "c1", "14", "each.peak_prompt_tokens.max", "855", "800"]
    assert lines[0].startswith("mine: failed - ")


def shown(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints, with line breaks as blanks."""
    main(["check", str(mine.path)])
    return " ".join(capsys.readouterr().out.split())


def test_a_limit_over_all_is_not_pinned_on_one_conversation(
    mine: SuiteFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """WB-REG-02: the table says whose limit it is, and the line below where to look."""
    mine.write("[limits]\nprompt_tokens = { max = 5000 }\n", head=HEAD)
    said = shown(mine, capsys)
    assert "fail all — limits.prompt_tokens.max 19,355 5,000" in said
    assert "fail: limits.prompt_tokens.max over all conversations, see c1, call 14: 10,503 of them here" in said
    message = ET.fromstring(mine.check().junit()).find(".//failure").attrib["message"]  # type: ignore[union-attr]
    assert message == "all conversations: limits.prompt_tokens.max is 19355, limit 5000; see c1, call 14"


def test_a_lost_fact_is_called_lost(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-REG-01, WB-REG-02."""
    conversation = chat(8, ident="c1")
    conversation["messages"][-1]["content"] += " 另外，订单 A1000 已处理，退款 203.13 元。"
    conversation["messages"][3]["content"] += " 退款 203.13 元。"
    mine.record_chats(conversation)
    mine.write("[limits]\nlost_facts = { max = 0 }\n", head=HEAD, config=CONFIG.replace("= 60", "= 5"))
    assert re.search(r"limits.lost_facts.max over all conversations, see c1, call \d+: lost \w+ ", shown(mine, capsys))


def test_what_drift_is_counted_in_is_said(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-REG-02: and the option that was changed comes before what follows from it."""
    mine.write("[drift]\nprompt_tokens = 0.001\nfirings = 0\nmoved_summaries = 0\n", head=HEAD)
    mine.check(accept=True)
    assert "drift.prompt_tokens by 0 % 0.1 % pass" in shown(mine, capsys)
    mine.write(
        "[drift]\nprompt_tokens = 0.001\nfirings = 0\nmoved_summaries = 0\n",
        head=HEAD,
        config=CONFIG.replace("runes_per_token = 1.0", "runes_per_token = 0.5"),
    )
    said = shown(mine, capsys)
    assert re.search(r"fail c1 \d+ drift.prompt_tokens by \d+(\.\d+)? % 0.1 % ", said)
    assert re.search(r"drift.firings by \d 0 ", said)
    assert re.search(r"drift.moved_summaries \d+ 0 ", said)
    assert said.index("options that differ from the accepted ones: ") < said.index("verdict conversation call")
    html = mine.check()._repr_html_()
    assert html.index("options that differ from the accepted ones: ") < html.index("<table")


def test_a_summary_in_another_language_says_which(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-RET-04, WB-REG-02."""
    mine.accepted()
    mine.record_anew(lambda text, request: "The customer asked about orders A1000 and A1001; both are handled.")
    said = shown(mine, capsys)
    assert "fail c1 3 summaries.keeps_language no yes" in said
    assert "it is in a language with Latin letters, the conversation in Chinese" in said


def test_strict_counts_what_is_undecided(mine: SuiteFolder) -> None:
    mine.write(head=HEAD)
    assert main(["check", str(mine.path)]) == 0
    assert main(["check", str(mine.path), "--strict"]) == 1


def test_json_is_one_object_with_the_documented_keys(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-CLI-03."""
    mine.accepted()
    assert main(["check", str(mine.path), "--json"]) == 0
    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert {"passed", "failed", "undecided", "results"} <= set(shown)
    assert (shown["passed"], shown["failed"], shown["undecided"]) == (31, 0, 0)
    assert all({"conversation", "expectation", "value", "limit", "verdict"} <= set(row) for row in shown["results"])
    assert printed.err == ""


def test_junit_has_a_case_per_expectation(mine: SuiteFolder) -> None:
    """WB-REG-02."""
    target = mine.folder / "reports" / "summaries.xml"
    mine.write(EXPECTATIONS.replace("max = 2000", "max = 800"), head=HEAD)
    assert main(["check", str(mine.path), "--junit", str(target)]) == 1
    root = ET.fromstring(target.read_text(encoding="utf-8"))
    suite = root.find("testsuite")
    assert suite is not None
    cases = suite.findall("testcase")
    result = mine.check()
    assert len(cases) == len(result.findings) == int(suite.attrib["tests"])
    failed = [case for case in cases if case.find("failure") is not None]
    assert len(failed) == int(suite.attrib["failures"]) == 2
    message = failed[0].find("failure").attrib["message"]  # type: ignore[union-attr]
    assert message == "c1, call 14: each.peak_prompt_tokens.max is 855, limit 800"
    assert int(suite.attrib["skipped"]) == result.counts["undecided"] > 0
    assert "time=" not in target.read_text(encoding="utf-8").replace('time="0"', "")


HOSTILE = "</testcase><x/>&amp;\"'\x00\x1b[31m\ud800\u202e]]>\ufffe\r\n\t日本"


def test_hostile_text_stays_text_in_junit() -> None:
    """WB-REG-02, SEC-07, SEC-13."""
    finding = Finding(HOSTILE, FAIL, HOSTILE, HOSTILE, 3, HOSTILE, 1, HOSTILE)
    undecided = Finding(HOSTILE, UNDECIDED, HOSTILE, detail=HOSTILE)
    text = junit_xml(HOSTILE, [finding, undecided])
    text.encode("utf-8")
    root = ET.fromstring(text)
    assert [child.tag for child in root.iter()] == [
        "testsuites", "testsuite", "testcase", "failure", "testcase", "skipped"
    ]  # fmt: skip
    assert "\\x00\\x1b[31m\\ud800\\u202e" in root[0][0].attrib["name"]
    assert not any(char in text for char in "\x00\x1b\ud800\u202e\ufffe")


def test_hostile_names_stay_text_in_table_and_notebook(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-07, SEC-13."""
    name = "<img src=x onerror=alert(1)>\x1b[31m"
    mine.record_chats(chat(8, ident=name))
    rules = f'[each]\nprompt_tokens = {{ max = 1 }}\n[[conversations]]\nid = {json.dumps(name)}\nlacks = ["<b>A1000"]\n'
    mine.write(rules, head=HEAD)
    assert main(["check", str(mine.path)]) == 1
    assert "\x1b" not in capsys.readouterr().out
    html = mine.check()._repr_html_()
    assert "<img" not in html
    assert "<b>A1000" not in html
    assert "&lt;img" in html
    assert main(["check", str(mine.path), "--json"]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_a_junit_file_that_cannot_be_written_is_told(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    mine.write(head=HEAD)
    (mine.folder / "file").write_text("", encoding="utf-8")
    assert main(["check", str(mine.path), "--junit", str(mine.folder / "file" / "x.xml")]) == 2
    assert "can't be written" in capsys.readouterr().err


# --- probes ---------------------------------------------------------------------------------------------


def probe(number: int, **changes: Any) -> str:
    values = {"id": f"p{number}", "conversation": "c1", "question": "编号？", "answer": "A1000"}
    return json.dumps(values | {"source_index": 1, "needed_index": 32} | changes, ensure_ascii=False)


def test_a_lost_probe_is_named_with_its_call(mine: SuiteFolder) -> None:
    """WB-REG-01, WB-RET-02."""
    (mine.folder / "probes.jsonl").write_text(probe(1) + "\n", encoding="utf-8")
    rules = "[limits]\nlost_probes = { max = 0 }\n[drift]\nlost_probes = 0\n"
    head = HEAD + WITH_CASSETTE + 'probes = ["probes.jsonl"]\n'
    mine.write(rules, head=head)
    assert mine.accepted().passed
    result = mine.record_anew(lambda text, request: text.replace("A1000", "一个订单"))
    assert [(one.expectation, one.conversation, one.call) for one in result.failures] == [
        ("limits.lost_probes.max", "c1", 15),
        ("drift.lost_probes", "c1", 15),
    ]
    assert "p1" in result.failures[0].detail
    assert result.failures[1].detail == "lost now: p1"


def test_a_probe_about_nobody_is_told(mine: SuiteFolder) -> None:
    (mine.folder / "probes.jsonl").write_text(probe(1, conversation="c7") + "\n", encoding="utf-8")
    mine.write(head=HEAD + 'probes = ["probes.jsonl"]\n')
    with pytest.raises(ConfigError, match=r"p1 asks about conversation 'c7', which isn't recorded here"):
        mine.check()
    (mine.folder / "probes.jsonl").write_text(f"{probe(1)}\n{probe(1)}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"two are named 'p1'"):
        mine.check()


def test_what_could_not_be_read_is_told(mine: SuiteFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with (mine.folder / "chats.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"id": "c3", "messages": [\n')
    mine.write(head=HEAD)
    assert main(["check", str(mine.path)]) == 0
    assert "chats.jsonl:3" in capsys.readouterr().err
    mine.write("[limits]\nfirings = { min = 1 }\n", head=HEAD)
    assert main(["check", str(mine.path)]) == 0
    assert main(["check", str(mine.path), "--strict"]) == 1


def test_a_named_baseline_that_is_not_there_fails(mine: SuiteFolder) -> None:
    """WB-REG-01: a deleted file isn't good news; one that was never named is accepted first."""
    mine.write("[drift]\nfirings = 0\n", head=HEAD + 'baseline = "accepted.toml"\n')
    (one,) = mine.check().findings
    assert one.verdict == FAIL
    assert "accepted.toml isn't there: `workbench check mine.suite.toml --accept` writes it" in one.detail
    assert mine.check(accept=True).passed
    assert mine.check().passed


def test_a_recording_that_is_named_twice_counts_once(mine: SuiteFolder) -> None:
    """WB-REG-01."""
    expected = mine.check(model=summing_up()).figures
    (mine.folder / "answers.jsonl").unlink()
    mine.write(head='suite = 1\nrecordings = ["chats.jsonl", "*.jsonl"]\n')
    assert [one.conversation for one in mine.check().figures] == [one.conversation for one in expected]


@pytest.mark.parametrize(
    ("head", "field"),
    [
        ('baseline = "mine.suite.toml"', "baseline: mine.suite.toml is the suite itself"),
        ('baseline = "chats.jsonl"', "baseline: chats.jsonl is recordings"),
        ('cassette = "./chats.jsonl"', "cassette: chats.jsonl is recordings"),
        ('cassette = "a.jsonl"\nbaseline = "a.jsonl"', "cassette: a.jsonl is baseline"),
    ],
)
def test_a_file_of_a_suite_is_one_thing_only(mine: SuiteFolder, head: str, field: str) -> None:
    """WB-REG-02: accepting or recording would write over it."""
    mine.write(head=f"{HEAD}{head}\n")
    before = {path: path.read_bytes() for path in mine.folder.iterdir()}
    for options in ({}, {"accept": True}, {"model": summing_up()}):
        with pytest.raises(ConfigError, match=f"{field} already"):
            mine.check(**options)
    assert {path: path.read_bytes() for path in mine.folder.iterdir()} == before


def test_a_configuration_without_summaries_can_be_checked_too(mine: SuiteFolder, tmp_path: Path) -> None:
    mine.write(
        "[limits]\nsummaries = { max = 0 }\n", head=HEAD, config='[config]\nbilling = { encoding = "runes:1" }\n'
    )
    assert mine.check().passed


def test_conversations_that_need_no_summary_need_no_cassette(mine: SuiteFolder) -> None:
    """WB-REG-04: nothing was asked, so nothing is missing."""
    mine.record_chats(chat(1, ident="c1"))
    mine.write("[limits]\nsummaries = { max = 0 }\n")
    assert mine.check(record=True).passed
    assert mine.check().passed


@pytest.mark.parametrize("name", ["tuned.toml", "own.jsonl"])
def test_accepting_writes_over_no_file_that_is_no_baseline(mine: SuiteFolder, name: str) -> None:
    """WB-REG-02: a suite that names its own configuration or a recording as baseline."""
    victim = mine.path.parent / name
    victim.write_text("[counter]\nrunes_per_token = 2.0\n" if name.endswith("toml") else "{}\n", encoding="utf-8")
    before = victim.read_bytes()
    mine.path.write_text(f'baseline = "{name}"\n' + mine.path.read_text("utf-8"), encoding="utf-8")
    with pytest.raises(ConfigError, match="not a baseline"):
        mine.accepted()
    assert victim.read_bytes() == before
