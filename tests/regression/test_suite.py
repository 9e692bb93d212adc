"""A suite file: what it may say, and the one sentence for each thing that it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from tests.regression.conftest import CONFIG, EXPECTATIONS, HEAD, WITH_CASSETTE, SuiteFolder
from workbench.cli import main
from workbench.config import RunConfig
from workbench.errors import ConfigError, RecordingError, UnsafePathError
from workbench.regression.suite import load_suite


def fault(mine: SuiteFolder, expectations: str = EXPECTATIONS, **parts: str) -> ConfigError:
    mine.write(expectations, **parts)
    with pytest.raises(ConfigError) as caught:
        load_suite(mine.path)
    assert str(caught.value).startswith(str(mine.path))
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_suite_names_everything(mine: SuiteFolder) -> None:
    """WB-REG-01."""
    suite = load_suite(mine.path)
    assert suite.name == "mine"
    assert [path.name for path in suite.recordings] == ["chats.jsonl"]
    assert suite.config.trigger is not None
    assert suite.config.name == "mine"
    assert suite.cassette == mine.folder / "answers.jsonl"
    assert suite.baseline == mine.folder / "mine.baseline.toml"
    assert next(iter(suite.rules.limits.given()))[0] == "firings"
    assert suite.to_play.summaries.source == "cassette"
    assert suite.config.summaries.source == "extractive"


def test_a_configuration_may_be_a_file(mine: SuiteFolder) -> None:
    """WB-REG-01."""
    (mine.folder / "tuned.toml").write_text("[summarizer]\n[trigger]\ntoken = 300\n", encoding="utf-8")
    mine.write(head=HEAD + 'config = "tuned.toml"\n', config="")
    assert load_suite(mine.path).config.label() == "tuned"


def test_an_exported_configuration_is_one_of_a_suite_as_well(mine: SuiteFolder) -> None:
    """WB-EXP-01: what goes to production is what the check is about."""
    tuned = RunConfig(name="tuned", summarizer={}, trigger={"token": 300}, agent={"add_session_summary": True})
    wb.export(tuned, mine.folder, to=["toml"])
    mine.write(head=HEAD + 'config = "tuned.toml"\n', config="")
    assert load_suite(mine.path).config.config_hash == tuned.config_hash


@pytest.mark.parametrize(
    ("change", "field", "hint"),
    [
        (("firings = {", "fireings = {"), "limits.fireings", "did you mean firings?"),
        (("[each]", "[eech]"), "eech", "did you mean each?"),
        (('holds = ["A1000"]', 'hold = ["A1000"]'), "conversations.0.hold", "did you mean holds?"),
        (("firings = 0", "firing = 0"), "drift.firing", "did you mean firings?"),
        (("is_summary = true", "is_summary = 1"), "summaries.is_summary", ""),
        (("max = 12", 'max = "12"'), "limits.firings.max", ""),
        (("max = 12", "max = nan"), "limits.firings.max", ""),
        (("min = 2, max = 12", "min = 20, max = 12"), "limits.firings.min", ""),
        (("{ min = 2, max = 12 }", "{}"), "limits.firings.limit", ""),
        (("invented_numbers = 0", "invented_numbers = -1"), "summaries.invented_numbers", ""),
        (('id = "c1"', 'id = "c1"\n[[conversations]]\nid = "c1"'), "conversations", ""),
    ],
    ids=lambda value: value[1].split("\n")[0] if isinstance(value, tuple) else "",
)
def test_a_fault_is_told_with_its_field(mine: SuiteFolder, change: tuple[str, str], field: str, hint: str) -> None:
    """WB-REG-01, WB-CFG-02."""
    error = fault(mine, EXPECTATIONS.replace(*change))
    assert error.field == field
    assert hint in error.hint


def test_a_fault_of_the_configuration_names_its_option(mine: SuiteFolder) -> None:
    error = fault(mine, config=CONFIG.replace("token = 300", "tokens = 300"))
    assert error.field == "trigger.tokens"
    assert error.hint == "did you mean token?"


def test_a_suite_of_another_version_is_one_clear_sentence(mine: SuiteFolder) -> None:
    """WB-REG-01: never half read."""
    error = fault(mine, head=HEAD.replace("suite = 1", "suite = 2"))
    assert "suite version 2; this program reads 1" in str(error)
    error = fault(mine, head=HEAD.replace("suite = 1\n", ""))
    assert "not a suite" in str(error)
    assert error.hint == "begin it with suite = 1"


def test_a_suite_that_expects_nothing_is_a_fault(mine: SuiteFolder) -> None:
    """A check that can't fail isn't one."""
    assert "at least one expectation" in str(fault(mine, ""))
    assert fault(mine, "", head=HEAD.replace('["chats.jsonl"]', "[]")).field == "recordings"


@pytest.mark.parametrize(
    "name", ["../chats.jsonl", "/etc/passwd", "a/../../x", "~/x", "C:/x", "..\\x", "\uff0e\uff0e/x"]
)
@pytest.mark.parametrize(
    "line",
    ['recordings = ["{}"]', 'cassette = "{}"', 'baseline = "{}"', 'probes = ["{}"]', 'config = "{}"'],
    ids=lambda line: line.split(" ")[0],
)
def test_a_suite_cannot_name_a_path_outside_its_folder(mine: SuiteFolder, name: str, line: str) -> None:
    """SEC-05."""
    field = line.split(" ", maxsplit=1)[0]
    head = "suite = 1\n" if field == "recordings" else HEAD
    config = "" if field == "config" else CONFIG
    error = fault(mine, head=head + line.replace("{}", name.replace("\\", "\\\\")) + "\n", config=config)
    assert isinstance(error, UnsafePathError)
    assert error.field == field
    assert "inside" in error.hint


def test_a_configuration_file_cannot_name_a_cassette_outside(mine: SuiteFolder) -> None:
    """SEC-05."""
    config = CONFIG + '[config.summaries]\nsource = "cassette"\ncassette = "../answers.jsonl"\n'
    assert isinstance(fault(mine, head=HEAD, config=config), UnsafePathError)


def test_a_judge_cannot_write_outside(mine: SuiteFolder) -> None:
    """SEC-05."""
    judge = '[[judges]]\nname = "a"\nquestion = "b"\nmin_share = 0.5\nmodel = "m"\ncassette = "../j.jsonl"\n'
    assert isinstance(fault(mine, judge), UnsafePathError)


def test_a_link_that_leads_out_is_refused(mine: SuiteFolder, tmp_path_factory: pytest.TempPathFactory) -> None:
    """SEC-05."""
    outside = tmp_path_factory.mktemp("outside") / "chats.jsonl"
    (mine.folder / "chats.jsonl").rename(outside)
    (mine.folder / "chats.jsonl").symlink_to(outside)
    assert isinstance(fault(mine), UnsafePathError)


def test_a_file_that_is_not_there_is_told_with_the_field_that_names_it(mine: SuiteFolder) -> None:
    mine.write(head=HEAD.replace("chats", "chat") + WITH_CASSETTE)
    with pytest.raises(RecordingError, match=r"recordings: no file 'chat.jsonl'"):
        load_suite(mine.path)
    with pytest.raises(RecordingError, match=r"the suite can't be read"):
        load_suite(mine.folder / "nothing.toml")


def test_the_command_line_says_it_in_one_line(
    mine: SuiteFolder, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """WB-REG-02."""
    mine.write(EXPECTATIONS.replace("[each]", "[eech]"))
    assert main(["check", str(mine.path)]) == 2
    assert capsys.readouterr().err == f"workbench: {mine.path}: eech: unknown; did you mean each?\n"
    mine.write(head='suite = 1\nrecordings = ["../x"]\n')
    assert main(["check", str(mine.path)]) == 2
    said = capsys.readouterr().err
    assert f"recordings: '../x' leads outside {tmp_path.name}/" in said
    assert said.count("\n") == 1
