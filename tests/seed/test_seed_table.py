"""The report that maps the seed document to tests is whole, true and up to date."""

from __future__ import annotations

import ast
import re

import pytest

from tools import seed_table

REPORT = seed_table.REPORT.read_text(encoding="utf-8")


def test_every_example_has_a_row_a_test_and_a_reason_where_python_is_longer():
    assert seed_table.faults_of(REPORT) == []
    assert len(seed_table.rows_in(REPORT, "Examples")) == 46
    assert len(seed_table.rows_in(REPORT, "Tables")) == 12


def test_the_report_is_what_the_tests_give():
    """Also where the seed document isn't: then its own counts are taken over."""
    assert seed_table.report_of(seed_table.counts_in(REPORT)) == REPORT, "run `python tools/seed_table.py`"


def test_the_report_is_what_the_document_gives(seed_text):
    assert seed_table.report_of(seed_table.counts_of(seed_text)) == REPORT, "run `python tools/seed_table.py`"


def test_every_line_of_code_of_the_document_is_in_a_block(seed_text):
    """The blocks are found by the line numbers in front of them; this looks for Go that has none."""
    lines = seed_text.split("\n")
    inside = {
        n for block in seed_table.blocks_of(seed_text) for n in range(block.line, block.line + 2 * len(block.lines))
    }
    go = re.compile(r"^\s*(func |import \(|package |type \w+ (struct|interface|func)|.*:= )|^[})]$|[┌│└]")
    assert [n for n, line in enumerate(lines, start=1) if go.search(line) and n not in inside] == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda text: re.sub(r"\n\| 17 \|.*", "", text), "aren't those of the tool"),
        (lambda text: text.replace("::test_example_17_", "::test_example_17_no_"), "example 17"),
        (lambda text: re.sub(r"(\n\| 17 \|[^|]*\| \d+ \|) \d+ ", r"\1 1 ", text), "example 17"),
        (lambda text: re.sub(r"(\n\| 17 \|[^|]*\|) \d+ ", r"\1 1 ", text), "against 1, reason ''"),
        (lambda text: re.sub(r"(\n\| 8 \|[^|]*\|) \d+ ", r"\1 99 ", text), "against 99"),
    ],
    ids=["no-row", "no-test", "stale", "no-reason", "needless-reason"],
)
def test_a_fault_of_the_report_is_found(change, fault):
    changed = change(REPORT)
    assert changed != REPORT
    assert any(fault in one for one in seed_table.faults_of(changed))


def test_a_document_with_another_example_is_refused():
    with pytest.raises(SystemExit, match=r"1 examples, .* has 46"):
        seed_table.counts_of("text\n\n1\n2\na := 1\nb := 2\n")


def test_lines_of_go_are_counted_without_imports_comments_and_blank_lines():
    block = """package main

import (
    "time"
)

// a comment
a := f(
    1, // counts

    2,
)

b := 2
"""
    assert seed_table.go_parts(block.split("\n")) == [4, 1]


def test_lines_of_python_are_counted_alike():
    source = '''def example_01(x):
    """Not counted."""
    import os

    # not counted
    a = f(
        x,

        2,  # counts
    )
    b = 2
    return a, b
'''
    assert seed_table.python_lines(ast.parse(source).body[0], source) == 5
    source = "def example_01(x):\n    return f(x)\n"
    assert seed_table.python_lines(ast.parse(source).body[0], source) == 1
