"""The command line: objects, messages, exit codes (WB-CLI)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import TUNED, write_own_recording
from workbench.cli import main
from workbench.replay.runs import FACT_NAMES


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a recording and a configuration, to run commands in."""
    monkeypatch.chdir(tmp_path)
    write_own_recording(tmp_path)
    (tmp_path / "tools.json").write_text('{"name": "look_up"}', encoding="utf-8")
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_import_prints_exactly_the_documented_object(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-CLI-03."""
    found = as_json(capsys, "import", "own.jsonl")
    assert set(found) >= {"conversations", "events", "messages", "calls", "formats", "problems"}
    assert (found["conversations"], found["calls"], found["formats"]) == (2, 24, {"openai-chat": 2})
    code, out, _ = run(capsys, "import", "own.jsonl", "--to", "native.jsonl")
    assert (code, "written: native.jsonl" in out) == (0, True)
    again = as_json(capsys, "import", "native.jsonl")
    assert again["calls"] == 24


def test_import_reports_what_was_kept_dropped_and_assumed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-REC-07: a row for each format, with its problems; below them what became of their conversations."""
    good = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    lines = [json.dumps(good), '{"messages": [{"role": "narrator", "content": "x"}]}', "{'a'", json.dumps(good)]
    Path("mixed").mkdir()
    Path("mixed/chat.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("mixed/table.csv").write_text("role,content,score\nuser,hi,1\nassistant,ho,2\n", encoding="utf-8")
    code, out, err = run(capsys, "import", "mixed")
    assert code == 0
    assert out.splitlines()[0].split() == ["format", "conversations", "events", "messages", "calls", "problems"]
    table = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()[2:5]}
    assert table == {
        "openai-chat": "2 4 4 2 2 problems, see below",
        "csv": "1 2 2 1 none",
        "together": "3 6 6 3 2 problems, see below",
    }
    assert "kept: every message; no times, usage, instruction, tools or model known of 3" in out
    assert 'note: columns without a meaning here: "score": 1 in' in out
    assert "note: no event has a timestamp; synthetic clock used: 3 in 2 files" in out
    assert [line.split(": ", 2)[1] for line in err.splitlines()] == ["mixed/chat.jsonl:2", "mixed/chat.jsonl:3:2"]
    assert all(line.endswith("(its conversation is left out, the others are kept)") for line in err.splitlines())
    assert run(capsys, "import", "mixed", "--strict")[0] == 3


def test_import_replaces_personal_data_when_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-REC-06: one placeholder for one value in the whole file."""
    records = [
        {"id": name, "messages": [{"role": "user", "content": f"我是{name}，手机13812345678"}]}
        for name in ("zhang@example.com", "li@example.com")
    ]
    Path("private.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n", encoding="utf-8")
    code, out, _ = run(capsys, "import", "private.jsonl", "--redact", "--to", "shared.jsonl")
    assert (code, "note: phone numbers replaced: 2 (1 different)" in out) == (0, True)
    shared = Path("shared.jsonl").read_text(encoding="utf-8")
    assert "我是[EMAIL_1]，手机[PHONE_1]" in shared
    assert "我是[EMAIL_2]，手机[PHONE_1]" in shared
    assert "example.com" not in shared
    assert "1381234" not in shared
    found = as_json(capsys, "import", "private.jsonl", "--redact", "--to", "shared.jsonl")
    assert found["replaced"]["PHONE"] == 2
    code, _, err = run(capsys, "import", "private.jsonl", "--redact")
    assert (code, "--to FILE" in err) == (2, True)


def test_replay_prints_exactly_the_documented_object(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-CLI-03, WB-CLI-04."""
    changes = ("--set", "trigger.token=200", "--set", "prices.model=never-heard-of-it")
    found = as_json(capsys, "replay", "own.jsonl", "--config", "tuned.toml", *changes)
    assert set(found) == {"runs", "problems"}
    facts = found["runs"][0]
    assert tuple(facts) == FACT_NAMES
    assert (facts["config"], facts["calls"], facts["needed_facts"], facts["cost_usd"]) == ("tuned", 24, 0, None)
    assert facts["firings"] > 0
    again = as_json(capsys, "replay", "own.jsonl", "--config", "tuned.toml", *changes, "--fresh")
    assert again["runs"][0]["trace_hash"] == facts["trace_hash"]


def test_replay_shows_the_exact_request_of_a_call(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-RPL-12, WB-CLI-03: as text, and with --json as it goes over the wire."""
    shown = ("replay", "own.jsonl", "--config", "tuned.toml", "--show", "c1:11")
    code, out, err = run(capsys, *shown, "--report", "own.html")
    assert (code, err) == (0, "")
    assert out.endswith(f"\nreport: {here / 'own.html'}\n")
    assert (here / "own.html").exists()
    assert out.startswith("“c1”, call 11: ")
    assert "tokens of more than 300" in out
    found = as_json(capsys, *shown)
    assert set(found) == {"calls", "diffs", "problems"}
    (call,) = found["calls"]
    assert set(call) == {
        "run_id",
        "config",
        "conversation",
        "call",
        "digest",
        "request",
        "messages",
        "figures",
        "checks",
        "explanation",
    }
    assert len(call["request"]["messages"]) == len(call["messages"]) == call["figures"]["messages"]
    assert call["request"]["messages"][0]["content"].startswith("你是客服。")


def test_replay_shows_what_another_configuration_sends_instead(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-RPL-12."""
    (here / "base.toml").write_text('name = "base"\n[billing]\nencoding = "runes:1"\n', encoding="utf-8")
    two = ("replay", "own.jsonl", "--config", "base.toml", "--config", "tuned.toml", "--show", "c1:11")
    code, out, _ = run(capsys, *two)
    assert code == 0
    assert "From “base” to “tuned”: " in out
    assert "\n+    0  system" in out
    code, whole, _ = run(capsys, *two, "--full")
    assert len(whole.splitlines()) > len(out.splitlines())
    found = as_json(capsys, *two)
    assert [call["config"] for call in found["calls"]] == ["base", "tuned"]
    (diff,) = found["diffs"]
    assert (diff["before"], diff["after"]) == ("base", "tuned")
    assert any(not block["equal"] for block in diff["blocks"])


def test_json_holds_no_character_that_a_terminal_obeys(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-13: what stands inside a string is its escape, and means the same."""
    evil = "a\x9b31m\u202eb\u2028\x7f 订单"
    conversation = {"id": "e", "messages": [{"role": "user", "content": evil}, {"role": "assistant", "content": "x"}]}
    (here / "evil.jsonl").write_text(json.dumps(conversation) + "\n", encoding="utf-8")
    code, out, _ = run(capsys, "replay", "evil.jsonl", "--set", "billing.encoding=runes:1", "--show", "e:0", "--json")
    assert code == 0
    assert not {"\x9b", "\u202e", "\u2028", "\x7f"} & set(out)
    assert "订单" in out
    content = json.loads(out)["calls"][0]["request"]["messages"][0]["content"]
    assert content == evil


@pytest.mark.slow
def test_replay_then_sql_then_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "replay", "own.jsonl", "--config", "tuned.toml")
    assert code == 0
    assert "tuned" in out
    table = as_json(capsys, "sql", "SELECT count(*) AS n FROM calls")
    assert table == {"columns": ["n"], "rows": [[24]]}
    described = {one["name"]: one for one in as_json(capsys, "sql", "--tables")["tables"]}
    assert {column["name"] for column in described["calls"]["columns"]} >= {"conversation", "call", "prompt_tokens"}
    code, _, err = run(capsys, "sql", "SELECT CAST(event_id AS INTEGER) FROM calls")
    assert code == 4
    assert "Could not convert" in err
    assert "damaged" not in err
    code, out, _ = run(capsys, "sql", "--tables")
    assert "prompt_tokens" in out
    code, out, _ = run(capsys, "report", "--run", "tuned", "--report", "again.html")
    assert (code, (here / "again.html").exists()) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["replai", "x"], 2, "unknown command 'replai'; did you mean replay?"),
        (["replay", "own.jsonl", "--jbos", "2"], 2, "unknown option --jbos; did you mean --jobs?"),
        (["replay"], 2, "the following arguments are required: PATH"),
        (["replay", "missing.jsonl"], 3, "missing.jsonl"),
        (["replay", "own.jsonl", "--config", "gone.toml"], 3, "configuration can't be read"),
        (["replay", "own.jsonl", "--set", "trigger.tokn=5"], 2, "did you mean trigger.token?"),
        (["replay", "own.jsonl", "--set", "nonsense"], 2, "OPTION=VALUE"),
        (["replay", "own.jsonl", "--profile", "SEAD"], 2, "did you mean SEED?"),
        (["replay", "own.jsonl", "--jobs", "0"], 2, "jobs = 0"),
        (["replay", "own.jsonl", "--full"], 2, "--show CONVERSATION:CALL"),
        (["replay", "own.jsonl", "--show", "c1"], 2, "CONVERSATION:CALL"),
        (["replay", "own.jsonl", "--show", "c1:-1"], 2, "CONVERSATION:CALL"),
        (["replay", "own.jsonl", "--show", "c11:0"], 1, "the nearest is 'c1', which has calls 0 to 11"),
        (["replay", "own.jsonl", "--show", "c1:12"], 1, "no call 12 in conversation 'c1'; it has calls 0 to 11"),
        (["replay", "own.jsonl", "--gap", "soon"], 2, "not a duration"),
        (["sql", "SELECT 1"], 4, "no finished run to query"),
        (["report", "--runs", "nowhere"], 4, "no finished run"),
        (["config", "check"], 2, "needs a file"),
        (["conformance", "own.jsonl"], 3, "not JSON"),
        (["import", "own.jsonl", "--map", "user"], 2, "FIELD=NAME"),
        (["import", "own.jsonl", "--app", "other"], 3, "none of the 2 conversations is one that was asked for"),
        (["import", "own.jsonl", "--since", "soon"], 2, "since = 'soon'; allowed: a day such as 2026-03-01"),
        (["import", "own.jsonl", "--instruction", "gone.txt"], 3, "gone.txt: can't be read"),
        (["import", "own.jsonl", "--tools", "own.jsonl"], 3, "own.jsonl: not JSON"),
        (["import", "own.jsonl", "--tools", "tools.json"], 3, "tools.json: expected a list of tools"),
        (["conformance", "own.jsonl", "--store", "redis"], 2, "invalid choice: 'redis'"),
        (["store", "check", "own.jsonl"], 4, "own.jsonl: is another kind of file, not DuckDB; give a DuckDB file"),
        (["store", "check", "gone.duckdb"], 4, "doesn't exist"),
        (["store", "copy", "gone.duckdb"], 2, "only copy takes a target, and needs one"),
        (["store", "vacuum", "gone.duckdb", "x.duckdb"], 2, "only copy takes a target"),
    ],
)
def test_every_mistake_is_one_line_with_what_to_do(
    arguments: list[str], code: int, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """WB-CLI, style section 6: documented exit codes, no traceback, the nearest valid name."""
    seen, _, err = run(capsys, *arguments)
    assert seen == code
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err


def test_debug_shows_the_traceback(here: Path) -> None:
    with pytest.raises(Exception, match="no finished run"):
        main(["--debug", "sql", "SELECT 1"])


def test_sql_can_not_reach_other_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-02."""
    run(capsys, "replay", "own.jsonl", "--config", "tuned.toml")
    for query in (
        "SELECT * FROM read_csv('own.jsonl')",
        "COPY calls TO 'x.csv'",
        "ATTACH 'y.duckdb'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ):
        code, _, err = run(capsys, "sql", query)
        assert code == 4, query
        assert err.startswith("workbench: ")
    assert not (here / "x.csv").exists()
    code, _, err = run(capsys, "sql", "SELEC 1")
    assert (code, "syntax error" in err.lower()) == (4, True)


def test_a_file_that_only_looks_like_a_run_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-03, B38."""
    (here / "runs").mkdir()
    (here / "runs" / "bad.duckdb").write_text("SQLite format 3\0 and more")
    code, _, err = run(capsys, "report")
    assert code == 4
    assert "is a SQLite file, not DuckDB" in err


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_no_finished_run(here: Path) -> None:
    """REL-06 in small: one sentence, exit code 4, nothing half-written is taken for a finished run."""
    script = (
        "import resource, sys, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000));"
        "from workbench.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "replay", "own.jsonl", "--config", "tuned.toml"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert done.returncode == 4, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [path for path in (here / "runs").glob("*.duckdb") if "partial" not in path.name] == []
    assert main(["replay", "own.jsonl", "--config", "tuned.toml"]) == 0


def test_config_explains_shows_and_checks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-CFG-02."""
    code, out, _ = run(capsys, "config", "check", "tuned.toml")
    assert (code, out.startswith("tuned.toml: fine")) == (0, True)
    _, out, _ = run(capsys, "config", "explain", "trigger")
    assert "trigger.token" in out
    assert "service" not in out
    shown = as_json(capsys, "config", "show", "tuned.toml")
    assert shown["tuned"]["trigger"]["token"] == 300
    assert "properties" in as_json(capsys, "config", "schema")


def test_conformance_ends_with_passed_and_failed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-CLI-01: exit 0 only when none failed and at least one ran."""
    good = {
        "id": "token_counter-1",
        "input": {"message": {"content": "abcd"}},
        "expected": {"tokens": 1, "error": False},
    }
    (here / "v.json").write_text(json.dumps([good]))
    code, out, _ = run(capsys, "conformance", "v.json")
    assert (code, out.splitlines()[-1]) == (0, "3 passed, 0 failed")
    (here / "v.json").write_text(json.dumps([{**good, "expected": {"tokens": 2, "error": False}}]))
    code, out, _ = run(capsys, "conformance", "v.json", "--profile", "SEED")
    assert (code, out.splitlines()[-1]) == (1, "0 passed, 1 failed")
    (here / "v.json").write_text("[]")
    assert run(capsys, "conformance", "v.json")[0] == 1


def test_doctor_names_what_is_missing_with_the_command_that_brings_it(capsys: pytest.CaptureFixture[str]) -> None:
    """WB-CLI-02."""
    found = as_json(capsys, "doctor")["findings"]
    names = {finding["name"] for finding in found}
    assert {"python", "duckdb", "o200k_base", "CJK font", "model endpoint"} <= names
    assert all(finding["remedy"] for finding in found if not finding["found"])


def test_selftest_ends_with_one_table_of_asked_and_found(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0 only when all rows are kept; the table also goes into a file."""
    code, out, err = run(capsys, "selftest", "SEC-02", "--seed", "5", "-o", "table.md")
    assert code == 0
    row = "12 canary statements: not refused 0, store harmed 0"
    assert out.count(row) == 2
    assert err.startswith(f"SEC-02: {row}, ")
    page = (here / "table.md").read_text(encoding="utf-8")
    assert "Made by `workbench selftest SEC-02 --seed 5`" in page
    assert f"| SEC-02 | {row} | {row} | 5 | " in page
    found = as_json(capsys, "selftest", "SEC-02", "-o", "table.json")
    assert json.loads((here / "table.json").read_text())["holds"] is found["holds"] is True
    assert found["goals"][0]["found"] == row
    code, _, err = run(capsys, "selftest", "REL-99")
    assert (code, "there is no goal 'REL-99'" in err) == (2, True)
    assert run(capsys, "selftest", "SEC-02", "--share", "2")[0] == 2


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        "demo",
        "import",
        "replay",
        "sql",
        "report",
        "config",
        "store",
        "conformance",
        "doctor",
        "selftest",
    ):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        out = capsys.readouterr().out
        assert f"example:\n  workbench {command}" in out


@pytest.mark.slow
def test_compare_prints_differences_and_the_prompts_where_they_are_largest(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """WB-TUNE-01, WB-CLI-03: with one configuration against its baseline, which is replayed too (WB-TUNE-06)."""
    code, out, err = run(capsys, "compare", "own.jsonl", "--config", "tuned.toml", "--show", "--report", "both.html")
    assert (code, err) == (0, "")
    assert out.startswith("Take “no summary”: ")
    assert "\n\n“tuned” against “no summary”: " in out
    assert "From “no summary” to “tuned”: " in out
    assert out.endswith(f"\nreport: {here / 'both.html'}\n")
    assert "Compared conversation by conversation" in (here / "both.html").read_text(encoding="utf-8")
    found = as_json(capsys, "compare", "own.jsonl", "--config", "tuned.toml", "--show", "c1:3")
    assert set(found) == {
        "reference",
        "seed",
        "differences",
        "verdicts",
        "widest",
        "unpaired",
        "currency",
        "decision",
        "runs",
        "problems",
        "diffs",
    }
    assert [diff["after"] for diff in found["diffs"]] == ["tuned"]
    assert {row["interval"] for row in found["differences"]} == {None}


@pytest.mark.slow
def test_replay_and_compare_say_what_was_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-RET-02, WB-RET-04, WB-RET-05: facts, checks of the summaries, and probes beside the recordings."""
    probe = {"id": "p1", "conversation": "c0", "question": "哪个编号？", "answer": "A1000", "source_index": 1}
    (here / "probes.jsonl").write_text(json.dumps(probe | {"needed_index": 4}) + "\n", encoding="utf-8")
    code, out, err = run(capsys, "replay", "own.jsonl", "--config", "tuned.toml", "--facts", "--forbid", "订单")
    assert (code, err) == (0, "")
    assert "“tuned”: the requests answer 1 of 1 probe" in out
    assert "checked without a model: " in out
    found = as_json(capsys, "compare", "own.jsonl", "--config", "tuned.toml", "--facts")["facts"]
    assert set(found) == {"no summary", "tuned"}
    assert [one["state"] for one in found["no summary"]["probes"]] == ["visible_raw"]
    assert set(found["tuned"]["summaries"]["faults"]) >= {"too_long", "invented_numbers", "language"}
    code, _, err = run(capsys, "replay", "own.jsonl", "--forbid", "a")
    assert (code, "--forbid belongs to --facts" in err) == (2, True)


@pytest.mark.slow
def test_compare_takes_finished_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-TUNE-01: prompts are shown when the recordings are given too."""
    (here / "base.toml").write_text('name = "base"\n[billing]\nencoding = "runes:1"\n', encoding="utf-8")
    run(capsys, "replay", "own.jsonl", "--config", "base.toml", "--config", "tuned.toml")
    found = as_json(capsys, "compare", "--run", "tuned", "--run", "base", "--against", "base")
    assert (found["reference"], [verdict["run"] for verdict in found["verdicts"]]) == ("base", ["tuned"])
    code, _, err = run(capsys, "compare", "--run", "base", "--run", "tuned", "--show")
    assert (code, "recordings of this run aren't loaded" in err) == (1, True)
    code, out, _ = run(capsys, "compare", "own.jsonl", "--run", "base", "--run", "tuned", "--show")
    assert (code, "From “base” to “tuned”: " in out) == (0, True)
    code, _, err = run(capsys, "compare", "--config", "tuned.toml")
    assert (code, "give a PATH" in err) == (2, True)


def test_lint_prints_findings_and_is_strict_when_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-TUNE-07, WB-CLI-03."""
    never = ("lint", "own.jsonl", "--config", "tuned.toml", "--set", "trigger.token=90000")
    code, out, _ = run(capsys, *never)
    assert (code, "warning: the trigger never fires" in out) == (0, True)
    found = as_json(capsys, *never)
    assert {finding["rule"] for finding in found["configs"][0]["findings"]} >= {"never-fires", "never-passes"}
    assert run(capsys, *never, "--strict")[0] == 1
    code, out, _ = run(capsys, *never, "--next")
    assert (code, "A summary made now (extractive text, no model called):" in out) == (0, True)
    found = as_json(capsys, *never, "--next")
    assert [one["conversation"] for one in found["configs"][0]["next"]] == ["c0", "c1"]
    assert all(one["events_covered"] == 24 for one in found["configs"][0]["next"])


def test_the_report_of_stored_runs_can_be_priced_anew(tmp_path, capsys):
    """WB-COST-01: `workbench report --set`; the runs aren't replayed."""
    path = tmp_path / "own.jsonl"
    turns = [{"role": role, "content": "订单 7731 到哪了？"} for role in ("user", "assistant") * 3]
    path.write_text(json.dumps({"id": "a", "messages": turns}, ensure_ascii=False) + "\n", encoding="utf-8")
    runs, report = str(tmp_path / "runs"), str(tmp_path / "report.html")
    assert main(["replay", str(path), "--runs", runs]) == 0
    assert "cost per" not in capsys.readouterr().out
    prices = ["--set", "cache.provider=openai", "--set", "prices.main.input=10", "--set", "prices.main.output=40"]
    assert main(["report", "--runs", runs, "--report", report, *prices]) == 0
    assert "cost per" in capsys.readouterr().out
    assert main(["report", "--runs", runs, "--report", report, "--set", "trigger.token=5"]) == 2
    assert "replay to change any other" in capsys.readouterr().err


@pytest.mark.slow
def test_sweep_writes_the_recommended_configuration(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-TUNE-02, WB-CLI-03."""
    wanted = ("sweep", "own.jsonl", "--config", "tuned.toml", "--over", "trigger.token=200,400", "--out", "best.toml")
    code, out, _ = run(capsys, *wanted, "--yes", "--report", "best.html")
    assert (code, "\nrecommended configuration: " in out) == (0, True)
    assert out.startswith("4 runs over 2 conversations, 96 calls, about ")
    command = next(line for line in out.splitlines() if " to production: " in line).partition(": ")[2]
    assert main([*shlex.split(command)[1:], "--allow-unreachable"]) == 0
    assert "Replayed in run " in capsys.readouterr().out
    code, _, _ = run(capsys, "replay", "own.jsonl", "--config", "best.toml")
    assert code == 0
    assert (here / "best.html").exists()
    found = as_json(capsys, *wanted, "--yes", "--set", "trigger.time=20s", "--over", "trigger.event=2..6/3")
    assert set(found) >= {"runs", "pareto", "recommended", "reason", "problems"}
    ids = {facts["run_id"] for facts in found["runs"]}
    assert set(found["pareto"]) <= ids
    assert found["recommended"] in ids
    assert len(ids) == 2 * 3 + 2


def test_a_run_that_is_not_there_is_told_with_the_nearest(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-CLI-03: for every command that takes runs by name."""
    assert main(["replay", "own.jsonl", "--config", "tuned.toml", "--set", "name=a long name"]) == 0
    assert main(["replay", "own.jsonl", "--config", "tuned.toml"]) == 0
    capsys.readouterr()
    for wanted in (("report", "--run", "nosuch"), ("export", "tuned.toml", "--run", "nosuch")):
        code, _, err = run(capsys, *wanted)
        assert code != 0
        assert "no run 'nosuch' in runs; the nearest of 2: " in err
        assert "'tuned' (tuned-" in err
        assert "'a long name' (a-long-name-" in err
    _, _, err = run(capsys, "report", "--run", "tund")
    assert "no run 'tund' in runs; did you mean tuned?" in err


def test_sweep_does_not_begin_unasked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-TUNE-02: --yes is for CI; without it somebody has to be there. B35: too many runs stop it."""
    wanted = ("sweep", "own.jsonl", "--config", "tuned.toml", "--over")
    code, out, err = run(capsys, *wanted, "trigger.token=200,400")
    assert (code, "give --yes" in err, "4 runs" in out) == (2, True, True)
    assert not (here / "runs").exists()
    code, _, err = run(capsys, *wanted, "trigger.token=1..90000/90000", "--yes")
    assert (code, "sweep: 90,000 runs; limit 10,000" in err) == (2, True)
    code, _, err = run(capsys, *wanted, "trigger.token=", "--yes")
    assert (code, "trigger.token has no values" in err) == (2, True)
    (here / "grid.toml").write_text('[grid]\n"trigger.tokn" = [1, 2]\n', encoding="utf-8")
    code, _, err = run(capsys, "sweep", "own.jsonl", "--grid", "grid.toml", "--yes")
    assert (code, "did you mean trigger.token?" in err) == (2, True)


@pytest.mark.slow
def test_compare_asks_what_another_model_or_window_would_change(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WB-RPL-15: the same sessions with a smaller window, and on another model by name."""
    (here / "share.toml").write_text(
        TUNED.replace("token = 300", "context = { ratio = 0.5, min_tokens = 0 }"), encoding="utf-8"
    )
    window, model = "model.context_window=400", "model.name=gpt-4"
    wanted = ("compare", "own.jsonl", "--config", "share.toml", "--what-if", window, "--what-if", model)
    found = as_json(capsys, *wanted)
    assert [verdict["run"] for verdict in found["verdicts"]] == [f"share, {window}", f"share, {model}"]
    today, small, other = found["runs"]
    assert today["firings"] == other["firings"] == 0, "half of neither window is ever reached"
    assert small["firings"] > 0
    assert small["peak_prompt_tokens"] < today["peak_prompt_tokens"]
    code, _, err = run(capsys, "compare", "--run", "a", "--what-if", window)
    assert (code, "--run takes runs as they are" in err) == (2, True)
