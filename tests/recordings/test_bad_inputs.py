"""B01 to B30: one finding each, in fixed words, and never a lost neighbour."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.cases import CASES, FILES, HERE, HI, RECORDS, Case, chat, index_text, message
from workbench.errors import RecordingError
from workbench.recordings import Recordings, load_recordings

N_GOOD = 100


def good_lines(n: int = N_GOOD) -> list[bytes]:
    return [chat(message("user", f"question {i}"), HI, id=f"good-{i:03d}") for i in range(n)]


def ids(cases: list[Case]) -> list[str]:
    return [f"{case.id} {case.feature}" for case in cases]


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def found(recordings: Recordings) -> list[tuple[str, int | None, str, str]]:
    return [(problem.path, problem.line, problem.text, problem.severity) for problem in recordings.problems]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return list(load_recordings(write(tmp_path_factory.mktemp("good") / "good.jsonl", *good_lines())))


@pytest.mark.parametrize("place", [0, N_GOOD // 2, N_GOOD], ids=["start", "middle", "end"])
@pytest.mark.parametrize("case", RECORDS, ids=ids(RECORDS))
def test_one_bad_record_gives_one_finding_and_leaves_the_others_alone(case, place, good, tmp_path):
    """REL-11, WB-REC-05."""
    lines = good_lines()
    lines.insert(place, case.bytes())
    path = write(tmp_path / "mixed.jsonl", *lines)
    recordings = load_recordings(path, **case.options)
    expected = case.expected.replace("{line}", str(place + 1))
    assert found(recordings) == [(str(path), place + 1, expected, "note" if case.loads else "problem")]
    assert recordings.problems[0].column == case.column
    others = [conversation for conversation in recordings if conversation.id.startswith("good-")]
    assert others == good
    assert len(recordings) == N_GOOD + case.loads


def element_cases() -> list[Any]:
    """Cases as elements of an array; in one line, a broken bracket or quote leaves nothing to go by."""
    return [
        pytest.param(case, indent, id=f"{case.id}-{'printed' if indent else 'compact'}")
        for case in RECORDS
        for indent in (None, 2)
        if case.id not in {"B03", "B08-number"} and (indent or case.id not in {"B06", "B07"})
    ]


@pytest.mark.parametrize("place", [0, 5, 10], ids=["start", "middle", "end"])
@pytest.mark.parametrize(("case", "indent"), element_cases())
def test_one_bad_element_of_an_array_leaves_the_others_alone(case, indent, place, tmp_path):
    """REL-11: in a document, too."""
    elements = [json.dumps(json.loads(line), indent=indent).encode() for line in good_lines(10)]
    elements.insert(place, case.bytes())
    path = tmp_path / "document.json"
    path.write_bytes(b"[\n" + b",\n".join(elements) + b"\n]" if indent else b"[" + b", ".join(elements) + b"]")
    recordings = load_recordings(path, **case.options)
    assert len(recordings.problems) == 1
    assert recordings.problems[0].severity == ("note" if case.loads else "problem")
    assert recordings.problems[0].line is not None
    texts = [conversation.events[0].message.content for conversation in recordings if conversation.id[:4] == "good"]
    assert texts == [f"question {i}" for i in range(10)]


@pytest.mark.parametrize("case", FILES, ids=ids(FILES))
def test_a_bad_file_beside_good_ones_gives_one_finding(case, good, tmp_path):
    """REL-11."""
    write(tmp_path / "good.jsonl", *good_lines())
    path = tmp_path / "other.jsonl"
    path.write_bytes(case.bytes())
    if case.stops:
        with pytest.raises(RecordingError) as stopped:
            list(load_recordings(tmp_path))
        assert stopped.value.path == str(path)
        assert f"{stopped.value.reason}; {stopped.value.hint}" == case.expected
        return
    recordings = load_recordings(tmp_path)
    assert [(text, severity) for _, _, text, severity in found(recordings)] == [
        (case.expected, "note" if case.loads else "problem")
    ]
    assert recordings.problems[0].path == str(path)
    assert list(recordings)[:N_GOOD] == good
    assert len(recordings) == N_GOOD + case.loads


@pytest.mark.parametrize("case", [case for case in CASES if not case.loads], ids=lambda case: case.id)
def test_a_bad_file_alone_is_an_error_with_the_same_words(case, tmp_path):
    """WB-REC-07: nothing loaded is an error, exit code 3."""
    path = tmp_path / "alone.jsonl"
    path.write_bytes(case.bytes())
    with pytest.raises(RecordingError) as refused:
        load_recordings(path, **({"format": case.format} | case.options))
    assert f"{refused.value.reason}; {refused.value.hint}".removesuffix("; ") == case.expected.replace("{line}", "1")
    assert refused.value.exit_code == 3


def test_the_corpus_on_disk_is_what_its_script_writes():
    """Fuzz corpus: one file per case and an index."""
    assert (HERE / "index.jsonl").read_text(encoding="utf-8") == index_text()
    for case in CASES:
        if case.file is not None:
            assert (HERE / case.file).read_bytes().rstrip(b"\n") == case.bytes().rstrip(b"\n"), case.id


def test_every_bad_input_of_the_table_has_a_case():
    assert {case.id.partition("-")[0] for case in CASES} == {f"B{number:02d}" for number in range(1, 31)}
