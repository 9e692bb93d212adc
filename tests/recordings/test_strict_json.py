"""JSON from strangers: strict, bounded, and with the right column."""

from __future__ import annotations

import json
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.recordings.problems import FaultyRecordError
from workbench.recordings.strict_json import broken_escape, depth_of, loads

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**39), 10**39) | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=3), children, max_size=4),
    max_leaves=15,
)  # fmt: skip


def fault_of(text: str) -> FaultyRecordError:
    with pytest.raises(FaultyRecordError) as refused:
        loads(text)
    return refused.value


@given(value=JSON)
def test_good_json_is_read_like_the_standard_reader_does(value):
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False), f" \n{json.dumps(value)}\r\n"):
        assert loads(text) == json.loads(text)


@given(text=st.text(alphabet="{}[]\",:\\ud8 0123456789eE+-.truefalsn\n'", max_size=30))
def test_any_text_is_read_or_refused_with_a_place(text):
    """Fuzz oracle 1."""
    fault = None
    try:
        loads(text)
    except FaultyRecordError as refused:
        fault = refused
    assert fault is None or (fault.reason and (fault.column is None or fault.column >= 0))


@pytest.mark.parametrize(
    ("text", "reason", "column"),
    [
        ('{"a": 1', "JSON ends early at column 7", 7),
        ('{"a": "xy', "JSON ends early at column 9", 9),
        ('{"a": tru', "JSON ends early at column 9", 9),
        ('{"a": "\\u12', "JSON ends early at column 11", 11),
        ("", "JSON ends early at column 0", 0),
        ("{'a': 1}", "not JSON at column 2: expected double quotes", 2),
        ("{\"a\": 'b'}", "not JSON at column 7: expected double quotes", 7),
        ('{"a": 1,}', "not JSON at column 9: expected double quotes", 9),
        ("[1,]", "not JSON at column 4: expected a value", 4),
        ("[1 2]", "not JSON at column 4: expected a comma", 4),
        ('{"a" 1}', "not JSON at column 6: expected a colon", 6),
        ('{"a": 1} {', "not JSON at column 10: expected the end", 10),
        ('["a\tb"]', "not JSON at column 4: expected an escape instead of a control character", 4),
        ('["\\q", 1, 2, 3, 4]', "not JSON at column 3: expected a known escape", 3),
        ("None", "not JSON at column 1: expected a value", 1),
    ],
)
def test_syntax_faults_name_the_column(text, reason, column):
    """B06, B07."""
    fault = fault_of(text)
    assert (fault.reason, fault.column) == (reason, column)


def test_the_line_of_a_fault_in_printed_json_is_counted():
    fault = fault_of('{\n  "a": 1,\n  "b": x\n}')
    assert (fault.line, fault.column, fault.reason) == (3, 8, "not JSON at column 8: expected a value")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', 'key "c" occurs twice'),
        ('{"\\u0061": 1, "a": 2}', 'key "a" occurs twice'),
        ('{"a": [1, {"b": -Infinity}]}', "a[1].b is not a finite number"),
        ("-1e400", "value is not a finite number"),
        ('{"a": 0.1e310, "b": "1e999"}', "a is not a finite number"),
        ("-" + "1" * 41, "number with 41 digits"),
        ("[NaN, " + "[" * 100_000, "nested deeper than 64 levels"),
    ],
)
def test_json_that_is_not_taken_says_why(text, reason):
    """B09 to B12."""
    assert fault_of(text).reason == reason


def test_forty_digits_and_64_levels_are_taken():
    """B11, B12, SEC-12."""
    assert loads("9" * 40) == 10**40 - 1
    assert loads("-" + "9" * 40) == 1 - 10**40
    assert depth_of(loads("[" * 64 + "]" * 64)) == 64
    assert loads('{"a": "1e999"}') == {"a": "1e999"}


@pytest.mark.parametrize("opener", ["[", '{"a":'])
def test_nesting_never_ends_in_a_recursion_error(opener):
    """B12, M17."""
    limit = sys.getrecursionlimit()
    for depth in (65, limit - 100, limit, 200_000):
        assert fault_of(opener * depth).reason in {
            "nested deeper than 64 levels",
            f"JSON ends early at column {depth * len(opener)}",
        }
        closer = "]" if opener == "[" else "1" + "}"
        whole = opener * depth + ("]" * depth if opener == "[" else closer + "}" * (depth - 1))
        assert fault_of(whole).reason == "nested deeper than 64 levels"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"content": "ab\\ud83d"}', "content has a broken Unicode escape at character 3"),
        ('{"content": "ab\\uDE00c"}', "content has a broken Unicode escape at character 3"),
        ('{"a": [{"text": "\\ud83d\\ude00\\ud83d"}]}', "text has a broken Unicode escape at character 2"),
        ('["\\ud83d"]', "text has a broken Unicode escape at character 1"),
        ('{"k\\ud83d": 1}', 'key "k\\ud83d" has a broken Unicode escape at character 2'),
        ('{"content": "\\ud83d\\ude00 \\\\ud83d"}', None),
        ('{"content": "plain"}', None),
    ],
)
def test_half_surrogate_pairs_are_found(text, expected):
    """B13."""
    fault = broken_escape(loads(text), text)
    assert (fault.reason if fault else None) == expected


@pytest.mark.parametrize(
    "text",
    [
        '["' + "\\" * 100_000,
        '["' + '\\"' * 50_000 + '"]',
        "[" + " " * 100_000,
        '{"a":' * 20_000,
        "[" + "1," * 50_000,
        '"' + "a" * 100_000,
        "-" * 100_000,
        "[" + "1" * 40 + "." + "1" * 100_000,
    ],
    ids=["backslashes", "quotes", "spaces", "objects", "numbers", "open", "minus", "digits"],
)
def test_worst_case_texts_take_no_time(text):
    """SEC-12: 100 kB of the worst text for each expression."""
    started = time.process_time()
    try:
        value = loads(text)
        broken_escape(value, text)
    except FaultyRecordError:
        pass
    assert time.process_time() - started < 1.0
