"""Where records start and end: documents that are objects of records, and documents with holes."""

from __future__ import annotations

import io
import json

import pytest

from tests.recordings.files import texts
from workbench.recordings import load_recordings
from workbench.recordings.rows import RowReader

DIALOGUE = {"messages": [{"role": "usr", "content": "你好"}, {"role": "sys", "content": "您好"}]}


def rows_of(data: bytes, *, limit: int = 1_000_000):
    reader = RowReader(io.BufferedReader(io.BytesIO(data)), lambda value: "messages" in value, max_record_bytes=limit)
    return reader, list(reader)


def members(*members: tuple[str, str], indent: str = "") -> str:
    """An object of records, as text, so that its parts may be broken."""
    line = f"\n{indent}" if indent else ""
    return "{" + ",".join(f"{line}{key}: {value}" for key, value in members) + "}"


def dialogue(indent: int | None = None) -> str:
    text = json.dumps(DIALOGUE, ensure_ascii=False, indent=indent)
    return text.replace("\n", "\n  ") if indent else text


@pytest.mark.parametrize("place", [0, 1, 2], ids=["start", "middle", "end"])
@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "printed"])
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ('"b"', '{"messages": [{"role": "usr", "role": "sys"}]}', 'key "role" occurs twice'),
        ('"b"', '{"messages": [{"content": NaN}]}', "messages[0].content is not a finite number"),
        ('"b"', '{"messages": ' + "[" * 70 + "]" * 70 + "}", "nested deeper than 64 levels"),
        ('"b"', '{"messages": 7}', "no utterances found; say where with --map turns=...,text=..."),
        ('"b"', '"text"', "expected an object, got a text"),
        ('"a0"', dialogue(), 'key "a0" occurs twice'),
    ],
    ids=["key", "number", "depth", "shape", "text", "id"],
)
def test_a_broken_record_in_an_object_of_records_leaves_the_others_alone(key, value, expected, indent, place, tmp_path):
    """REL-11."""
    parts = [(f'"a{n}"', dialogue(indent)) for n in range(3)]
    # Of two equal ids the second is refused, and a first member that is no object makes it one record.
    parts.insert(max(place, key == '"a0"' or value == '"text"'), (key, value))
    path = tmp_path / "map.json"
    path.write_text(members(*parts, indent="  " if indent else ""), encoding="utf-8")
    recordings = load_recordings(path)
    assert texts(recordings) == [expected]
    assert [c.id for c in recordings] == ["a0", "a1", "a2"]


def test_a_broken_key_in_a_printed_object_leaves_the_others_alone(tmp_path):
    parts = [('"a0"', dialogue(2)), ('"a\tb"', dialogue(2)), ('"a2"', dialogue(2)), ('"a3"', dialogue(2))]
    path = tmp_path / "map.json"
    path.write_text(members(*parts, indent="  "), encoding="utf-8")
    recordings = load_recordings(path)
    assert len(recordings.problems) == 1
    assert [c.id for c in recordings] == ["a0", "a2", "a3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": D @"b": D}', "not JSON at column {}: expected a comma"),
        ('{"a": D, "b": D@', "JSON ends early at column {}; the file may be cut"),
        ('{"a": D, "b": D, @7}', "not JSON at column {}: expected double quotes"),
        ('{"a": D, "b" @D}', "not JSON at column {}: expected a colon"),
        ('{"a": D, "b@', "JSON ends early at column {}; the file may be cut"),
        ('{"a": D, "b": {"messages": [@', "JSON ends early at column {}; the file may be cut"),
        ("[D, D@", "JSON ends early at column {}; the file may be cut"),
        ("[D @D]", "not JSON at column {}: expected a comma"),
        ("[D, @", "JSON ends early at column {}; the file may be cut"),
        ("[D] @rest", "not JSON at column {}: expected the end"),
    ],
)
def test_holes_between_records_are_said_once(text, expected, tmp_path):
    """B06, B07: `@` marks the place, which is the last one there is when the text ends early."""
    whole = text.replace("D", dialogue())
    column = whole.index("@") + (not whole.endswith("@"))
    path = tmp_path / "map.json"
    path.write_text(whole.replace("@", ""), encoding="utf-8")
    recordings = load_recordings(path)
    assert len(recordings) == text.count("D") - ('"b" @D' in text)
    assert texts(recordings) == [expected.format(column)]
    assert (recordings.problems[0].line, recordings.problems[0].column) == (1, column)


def test_lines_are_counted_across_windows():
    """REL-12: the line of a late element of a long document."""
    record = '{"messages": "' + "x" * 10_000 + '",\n"n": 1}'
    _, rows = rows_of(("[\n" + ",\n".join([record] * 500) + "\n]").encode())
    assert [row.line for row in rows] == [2 + 2 * n for n in range(500)]


def test_columns_are_counted_across_windows():
    record = '{"messages": "' + "x" * 10_000 + '"}'
    text = "[" + ", ".join([record] * 300) + ", {'a'}]"
    _, rows = rows_of(text.encode())
    assert rows[-1].fault.column == text.index("'a'") + 1


def test_a_byte_that_is_no_utf8_late_in_a_document_costs_one_element():
    """B05."""
    data = b'[\n{"messages": "ok"},\n{"messages": "' + "汉".encode() + b'\xff"},\n{"messages": "ok"}]'
    _, rows = rows_of(data)
    assert [row.fault.reason if row.fault else None for row in rows] == [
        None,
        "byte 0xff at column 18 is not UTF-8",
        None,
    ]
    assert rows[1].fault.line == 3


def test_a_record_over_the_limit_in_a_document_costs_one_element():
    """B14."""
    data = b'[{"messages": "a"}, {"messages": "' + b"x" * 3_000_000 + b'"}, {"messages": "b"}]'
    _, rows = rows_of(data)
    assert [row.fault.reason if row.fault else row.value["messages"] for row in rows] == [
        "a",
        "record has 4 MB, limit is 1 MB",
        "b",
    ]


def test_a_number_of_lines_is_known_at_the_end():
    for data, n_lines in (
        (b"", 0),
        (b"\n\n", 2),
        (b'{"messages": 1}\n{"messages": 2}', 2),
        (b'[\n{"messages": 1}\n]\n', 4),
    ):
        reader, _ = rows_of(data)
        assert reader.n_lines == n_lines


@pytest.mark.parametrize("n_first", [1, 2, 3, 40])
def test_a_cut_first_line_does_not_swallow_the_next(n_first):
    """REL-11, B06 at the start, cut at every kind of place."""
    whole = b'{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null}]}\n'
    for end in range(2, len(whole) - 1):
        _, rows = rows_of(whole[:end] + b"\n" + whole * n_first)
        assert [row.fault is None for row in rows] == [False] + [True] * n_first, whole[:end]
