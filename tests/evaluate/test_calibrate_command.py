"""`workbench calibrate` and `workbench doctor --calibration`: objects, messages, exit codes, files."""

from __future__ import annotations

import json

import pytest

from tests.evaluate.test_usage import recorded
from tests.evaluate.texts import conversations
from tests.replay.conftest import chat
from workbench.cli import main
from workbench.config import RunConfig
from workbench.recordings import write_recording

pytestmark = pytest.mark.slow  # replays whole data sets; `make test-more` runs these

TODAY = "[summarizer]\n[trigger]\ntoken = 100\n[agent]\nadd_session_summary = true\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with recordings in two mixes of scripts and a configuration."""
    monkeypatch.chdir(tmp_path)
    write_recording(tmp_path / "zh.jsonl", conversations(12, kinds=("zh", "code")))
    write_recording(tmp_path / "newer.jsonl", conversations(12, seed=5, kinds=("zh", "code")))
    write_recording(tmp_path / "en.jsonl", conversations(12, seed=1, kinds=("en",)))
    (tmp_path / "today.toml").write_text(TODAY, encoding="utf-8")
    return tmp_path


def run(capsys, *arguments):
    code = main(list(arguments))
    seen = capsys.readouterr()
    return code, seen.out, seen.err


def as_json(capsys, *arguments):
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


def test_calibrate_prints_the_documented_object(here, capsys):
    """WB-CLI-03, WB-CAL-01, -02, -04, -05."""
    found = as_json(capsys, "calibrate", "zh.jsonl", "--tokenizer", "o200k_base", "--config", "today.toml")
    documented = {
        "tokenizer", "messages", "chars", "tokens", "ratio", "median", "safe_ratio", "quantile", "interval", "by_script",
        "warnings",
    }  # fmt: skip
    assert documented <= set(found)
    assert (found["tokenizer"], found["messages"], found["quantile"]) == ("o200k_base", 240, 0.05)
    assert found["interval"][0] < found["ratio"] < found["interval"][1]
    assert found["by_script"]["kana"]["ratio"] is None
    assert found["moved_firings"]["n_after"] > found["moved_firings"]["n_before"]
    assert set(found["counters"]) == {"ratio", "safe", "scripts"}


def test_calibrate_says_it_in_words_and_gives_tables_for_a_configuration(here, capsys):
    """WB-CAL-01, -02, -05, WB-UI-02."""
    arguments = ["--threshold", "40", "--window", "2", "--config", "today.toml", "--counter", "scripts"]
    code, out, _ = run(capsys, "calibrate", "zh.jsonl", *arguments, "-o", "c.toml", "--figure", "c.png")
    assert code == 0
    assert out.startswith("2.")
    for words in (
        "times too late", "Han 汉字", "windows of 2 messages", "fires at × threshold", "one ratio per script",
        "they move", "[counter]  # scripts", "written: c.toml", "written: c.png",
    ):  # fmt: skip
        assert words in out, words
    assert (here / "c.png").read_bytes().startswith(b"\x89PNG")
    assert max(len(line) for line in out.split("\n")) <= 110
    table = out.split("[counter]  # scripts\n")[1].split("written")[0].replace("\n  ", "\n").strip()
    (here / "fitted.toml").write_text(f"[counter]\n{table}\n", encoding="utf-8")
    assert RunConfig.load(here / "fitted.toml").counter.kind == "scripts"


def test_calibrate_from_usage(here, capsys):
    """WB-CAL-03."""
    write_recording(here / "billed.jsonl", recorded())
    found = as_json(capsys, "calibrate", "billed.jsonl", "--usage", "-o", "u.toml")
    assert found["ratio"] == pytest.approx(1.5, rel=0.02)
    assert found["per_message"] == pytest.approx(4, abs=0.5)
    code, out, _ = run(capsys, "calibrate", "billed.jsonl", "--usage")
    assert code == 0
    assert "tokens per message" in out
    assert run(capsys, "doctor", "--calibration", "u.toml", "billed.jsonl")[1].endswith("the calibration holds\n")
    write_recording(here / "dearer.jsonl", recorded(ratio=1.0))
    warned = run(capsys, "doctor", "--calibration", "u.toml", "dearer.jsonl")[1]
    assert "later than meant" in " ".join(warned.split())


def test_doctor_warns_when_newer_recordings_disagree(here, capsys):
    """WB-CAL-05, WB-CLI-02."""
    assert run(capsys, "calibrate", "zh.jsonl", "-o", "c.json")[0] == 0
    code, out, _ = run(capsys, "doctor", "--calibration", "c.json", "newer.jsonl")
    assert (code, out.endswith("the calibration holds\n")) == (0, True)
    assert "these are the recordings" in run(capsys, "doctor", "--calibration", "c.json", "zh.jsonl")[1]
    code, out, _ = run(capsys, "doctor", "--calibration", "c.json", "en.jsonl")
    assert code == 0
    assert "warning: " in out
    assert "earlier than meant" in " ".join(out.split())
    found = as_json(capsys, "doctor", "--calibration", "c.json", "en.jsonl")
    assert found["holds"] is False
    assert found["drift"]["warnings"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["calibrate", "none.jsonl"], 3, "none.jsonl"),
        (["calibrate", "zh.jsonl", "--tokenizer", "o200k"], 2, "did you mean o200k_base?"),
        (["calibrate", "zh.jsonl", "--tokenizer", "gone.json"], 2, "download tokenizer.json"),
        (["calibrate", "zh.jsonl", "--quantile", "0.001"], 1, "at least 1000 needed"),
        (["calibrate", "zh.jsonl", "--quantile", "2"], 2, "quantile = 2.0"),
        (["calibrate", "zh.jsonl", "--usage"], 1, "report prompt tokens"),
        (["calibrate", "zh.jsonl", "--usage", "--figure", "x.png"], 2, "--figure needs a tokenizer"),
        (["calibrate", "zh.jsonl", "-o", "x.yaml"], 2, ".toml or .json"),
        (["calibrate", "zh.jsonl", "--figure", "x.pdf"], 2, ".png or .svg"),
        (["calibrate", "zh.jsonl", "--config", "none.toml"], 3, "none.toml"),
        (["doctor", "--calibration", "none.toml", "zh.jsonl"], 3, "none.toml"),
        (["doctor", "--calibration", "today.toml", "zh.jsonl"], 2, "not a calibration"),
        (["doctor", "--calibration", "today.toml"], 2, "both are needed"),
        (["doctor", "zh.jsonl"], 2, "both are needed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_fault_is_one_line_with_its_exit_code(arguments, code, words, here, capsys):
    """WB-CLI, WB-CAL-01, -04."""
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


def test_the_firings_of_a_real_looking_conversation_are_listed(here, capsys):
    """WB-CAL-05."""
    lines = [json.dumps(chat(30, ident=f"长会话{i}"), ensure_ascii=False) for i in range(2)]
    (here / "long.jsonl").write_text("\n".join(lines), encoding="utf-8")
    code, out, _ = run(capsys, "calibrate", "long.jsonl", "--config", "today.toml")
    assert code == 0
    assert "in 2 of 2 conversations they move" in out
    assert "长会话0" in out
