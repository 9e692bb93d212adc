"""Bad inputs that aren't recordings (reliability.md, section 8): one clear error each, and nothing is done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.replay.conftest import chat
from workbench.cli import main
from workbench.config import RunConfig
from workbench.demo import dataset_path, datasets_folder, demo_recordings
from workbench.errors import ConfigError, RecordingError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.jsonl").write_text(json.dumps(chat(3), ensure_ascii=False) + "\n", encoding="utf-8")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(list(arguments))
    seen = capsys.readouterr()
    assert seen.out == ""
    assert "Traceback" not in seen.err
    return code, seen.err


# --- summary prompts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('prompt = "Summarise it."', "run.toml: summarizer.prompt has no {conversation_text}"),
        (
            'prompt = "{conversation_text}"\nsystem_prompt = "About {conversation_text}"',
            "run.toml: summarizer.system_prompt holds {conversation_text}, which belongs into prompt only",
        ),
        (
            'cache_safe_fork_prompt = "About {previous_summary}"',
            "run.toml: summarizer.cache_safe_fork_prompt holds {previous_summary}, which belongs into prompt only",
        ),
        (
            'prompt = "{conversation_text}"\nmax_summary_words = 50',
            "run.toml: summarizer.prompt or system_prompt has no {max_summary_words}",
        ),
    ],
)
def test_b33_a_prompt_without_its_placeholder_stops_before_anything_is_replayed(
    here: Path, capsys: pytest.CaptureFixture[str], table: str, message: str
) -> None:
    """B33, SUM-OPT-01."""
    (here / "run.toml").write_text(f"[summarizer]\n{table}\n", encoding="utf-8")
    code, said = refused(capsys, "replay", "own.jsonl", "--config", "run.toml")
    assert code == 2
    assert message in said
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            'prompt = "Summarise {conversation_txt}"',
            "summarizer.prompt: unknown placeholder {conversation_txt}; did you mean conversation_text?",
        ),
        ('prompt = "{conversation_text} {{ topic }}"', "summarizer.prompt: unknown placeholder {{ topic }}"),
        ('system_prompt = "In {language}."', "summarizer.system_prompt: unknown placeholder {language}"),
    ],
)
def test_b34_a_placeholder_that_nothing_fills_stops_before_anything_is_replayed(
    here: Path, capsys: pytest.CaptureFixture[str], table: str, message: str
) -> None:
    """B34, SUM-PRM-03: and the nearest name is offered."""
    (here / "run.toml").write_text(f"[summarizer]\n{table}\n", encoding="utf-8")
    code, said = refused(capsys, "replay", "own.jsonl", "--config", "run.toml")
    assert code == 2
    assert message in said


@pytest.mark.parametrize(
    "prompt", ["{conversation_text} {topic?}", '{"a": 1} {conversation_text} { x }', "{{conversation_text}}"]
)
def test_optional_names_and_braces_that_are_text_are_no_fault(prompt: str) -> None:
    """B34, SUM-PRM-01."""
    config = RunConfig.from_values({"summarizer": {"prompt": prompt}})
    assert config.summarizer is not None
    assert config.summarizer.prompt == prompt


def test_a_profile_that_only_warns_of_prompts_still_does() -> None:
    """B33, SUM-OPT-03: the reference accepts them."""
    values: dict[str, Any] = {"summarizer": {"prompt": "Summarise it.", "prompt_errors": "warn"}}
    assert RunConfig.from_values(values).summarizer is not None
    with pytest.raises(ConfigError, match="has no"):
        RunConfig.from_values({"summarizer": {"prompt": "Summarise it."}})


# --- bundled datasets ----------------------------------------------------------------------------------


@pytest.fixture
def datasets(tmp_path: Path) -> Path:
    """A copy of two bundled datasets, to do harm to."""
    folder = tmp_path / "datasets"
    for name in ("zh-service", "ko-support"):
        shutil.copytree(datasets_folder() / name, folder / name)
    shutil.copy(datasets_folder() / "SHA256SUMS", folder)
    return folder


@pytest.mark.parametrize("name", ["../../x", "..", ".", "", "/etc", "zh-service/../..", "zh-service/../../x"])
def test_b36_a_dataset_name_that_leads_out_is_refused(datasets: Path, name: str) -> None:
    """B36, SEC-05."""
    with pytest.raises(RecordingError) as caught:
        dataset_path(name, folder=datasets)
    assert str(caught.value) == f'dataset "{name}" leads outside datasets/'


def test_b36_a_link_that_leads_out_is_refused(datasets: Path, tmp_path: Path) -> None:
    """B36, SEC-05: of a folder, and of a file with the right content."""
    outside = tmp_path / "elsewhere"
    shutil.move(datasets / "ko-support", outside)
    (datasets / "ko-support").symlink_to(outside)
    with pytest.raises(RecordingError, match=r'dataset "ko-support" leads outside datasets/'):
        dataset_path("ko-support", folder=datasets)
    shutil.move(datasets / "zh-service" / "probes.jsonl", tmp_path / "probes.jsonl")
    (datasets / "zh-service" / "probes.jsonl").symlink_to(tmp_path / "probes.jsonl")
    with pytest.raises(RecordingError, match=r'"zh-service/probes.jsonl" leads outside datasets/'):
        dataset_path("zh-service", folder=datasets)


def test_b37_a_changed_dataset_file_is_noticed(datasets: Path) -> None:
    """B37: one byte is enough; the other dataset still loads."""
    assert dataset_path("zh-service", folder=datasets) == (datasets / "zh-service").resolve()
    file = datasets / "zh-service" / "conversations.jsonl"
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(RecordingError) as caught:
        dataset_path("zh-service", folder=datasets)
    assert str(caught.value) == "datasets/zh-service/conversations.jsonl: checksum differs from the list"
    assert dataset_path("ko-support", folder=datasets).name == "ko-support"
    file.unlink()
    with pytest.raises(RecordingError, match="checksum differs"):
        dataset_path("zh-service", folder=datasets)


def test_b37_the_demonstration_takes_no_changed_file(datasets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B37: its table would be another one."""
    for folder in datasets_folder().iterdir():
        if folder.is_dir() and not (datasets / folder.name).exists():
            shutil.copytree(folder, datasets / folder.name)
    monkeypatch.setattr("workbench.demo.datasets_folder", lambda: datasets)
    assert len(demo_recordings())
    with (datasets / "en-research" / "probes.jsonl").open("ab") as file:
        file.write(b" ")
    with pytest.raises(RecordingError, match=r"datasets/en-research/probes.jsonl: checksum differs from the list"):
        demo_recordings()


# --- a window that nobody knows ------------------------------------------------------------------------


def test_b40_a_model_whose_window_nobody_knows_is_no_what_if(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B40, WB-RPL-15: elsewhere an unknown window has a fallback (SUM-CHK-13, ASM-WIN-02)."""
    (here / "run.toml").write_text("", encoding="utf-8")
    wanted = ("compare", "own.jsonl", "--config", "run.toml", "--what-if", "model.name=my-ft")
    code, said = refused(capsys, *wanted)
    assert code == 2
    assert 'model "my-ft": context window unknown; set model.context_window' in said
    assert not (here / "runs").exists()
    (here / "run.toml").write_text(
        '[model]\ncontext_window = 9000\n[billing]\nencoding = "runes:1"\n', encoding="utf-8"
    )
    assert main([*wanted]) == 0


# --- outputs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "own.jsonl", "--config", "today.toml", "--report", "own.jsonl"),
        ("replay", "*.jsonl", "--config", "today.toml", "--report", "./own.jsonl"),
        ("replay", ".", "--config", "today.toml", "--report", "own.jsonl"),
        ("sweep", "own.jsonl", "--config", "today.toml", "--yes", "--out", "own.jsonl"),
        ("sweep", "own.jsonl", "--config", "today.toml", "--yes", "--out", "today.toml"),
        ("import", "own.jsonl", "--user", "nobody", "--to", "own.jsonl"),
        ("calibrate", "own.jsonl", "--config", "today.toml", "-o", "today.toml"),
        ("check", "own.suite.toml", "--junit", "own.jsonl"),
        ("check", "own.suite.toml", "--junit", "today.toml"),
    ],
)
def test_no_command_writes_over_what_it_reads(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    (here / "today.toml").write_text("[summarizer]\n[trigger]\ntoken = 100\n", encoding="utf-8")
    suite = 'suite = 1\nrecordings = ["own.jsonl"]\nconfig = "today.toml"\nlimits = { firings = { max = 9 } }\n'
    (here / "own.suite.toml").write_text(suite, encoding="utf-8")
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    code, said = refused(capsys, *arguments)
    assert code == 2
    assert "is read by this command, and would be lost; name another file with -" in said
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.parametrize(("target", "reason"), [("folder", "is a folder"), ("own.jsonl/x", "own.jsonl is no folder")])
@pytest.mark.parametrize(
    ("command", "option"), [("sweep", "--out"), ("sweep", "--report"), ("replay", "--report"), ("import", "--to")]
)
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, option: str, target: str, reason: str
) -> None:
    (here / "folder").mkdir()
    code, said = refused(capsys, command, "own.jsonl", option, target, *(["--yes"] if command == "sweep" else []))
    assert (code, reason in said) == (2, True)
    assert not (here / "runs").exists()


def test_a_report_in_the_folder_of_the_recordings_is_written_anew(here: Path) -> None:
    (here / "report.html").write_text("old", encoding="utf-8")
    assert main(["replay", ".", "--report", "report.html", "--runs", "../runs"]) == 0
    assert (here / "report.html").read_text(encoding="utf-8") != "old"


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (("--over", "trigger.token=1.2.3..4/2"), "trigger.token = '1.2.3..4/2'"),
        (("--over", "trigger.token=1", "--over", "trigger.token=2"), "allowed: each option once"),
        (("--grid", "grid.toml"), "grid.toml: grid: expected a table of options and their values"),
    ],
)
def test_a_grid_that_is_none_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], grid: tuple[str, ...], message: str
) -> None:
    (here / "grid.toml").write_text("grid = 5\n", encoding="utf-8")
    code, said = refused(capsys, "sweep", "own.jsonl", "--yes", *grid)
    assert code == 2
    assert message in said


@pytest.mark.parametrize(("name", "text"), [("deep.json", "[" * 100_000), ("deep.toml", "a = " + "[" * 100_000)])
def test_a_configuration_without_a_bottom_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (here / name).write_text(text, encoding="utf-8")
    code, said = refused(capsys, "lint", "own.jsonl", "--config", name)
    assert code == 2
    assert said == f"workbench: {name}: tables or lists stand too deep in each other\n"


def test_a_configuration_may_begin_with_the_mark_of_an_editor(here: Path) -> None:
    (here / "own.toml").write_text("[summarizer]\n[trigger]\ntoken = 100\n", encoding="utf-8-sig")
    assert RunConfig.load(here / "own.toml").trigger.token == 100


@pytest.mark.parametrize("command", ["calibrate", "compare", "sweep", "export"])
def test_a_seed_below_zero_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, said = refused(capsys, command, "own.jsonl", "--seed=-1")
    assert (code, "--seed: '-1' is not a whole number, 0 or more" in said) == (2, True)
