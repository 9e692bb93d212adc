"""Each option table of the seed document: its options exist, have the stated default, and do what they should."""

from __future__ import annotations

import pytest

from tests.seed.options import ROWS
from tools import seed_table
from workbench.config import option_named


def rows_of(table):
    rows = [row for row in ROWS if row.table == table]
    return pytest.mark.parametrize("row", rows, ids=[row.seed_name.replace(" ", "-") for row in rows])


def check(row):
    assert row.stated_default == row.default
    if row.config:
        option_named(row.config)
    row.prove()


@rows_of(1)
def test_table_01_thresholds(row):
    """SUM-CHK-08, SUM-CHK-09, SUM-CHK-12, SUM-CHK-18."""
    check(row)


@rows_of(2)
def test_table_02_share_of_the_window(row):
    """SUM-CHK-12, SUM-CHK-13, SUM-CHK-14."""
    check(row)


@rows_of(3)
def test_table_03_combinations(row):
    """SUM-CHK-19, SUM-CHK-20."""
    check(row)


@rows_of(4)
def test_table_04_how_a_summary_is_made(row):
    """SUM-OPT-01, SUM-OPT-02, SUM-SEL-01."""
    check(row)


@rows_of(5)
def test_table_05_hooks(row):
    """SUM-HOOK-01, SUM-HOOK-04, SUM-HOOK-06."""
    check(row)


@rows_of(6)
def test_table_06_formatters(row):
    """SUM-TXT-04, SUM-TXT-05."""
    check(row)


@rows_of(7)
def test_table_07_callbacks(row):
    """SUM-CB-01, SUM-CB-02."""
    check(row)


@rows_of(8)
def test_table_08_checkers(row):
    """SUM-CHK-01, SUM-CHK-08, SUM-CHK-09, SUM-CHK-18, SUM-CHK-19."""
    check(row)


@rows_of(9)
def test_table_09_which_call_for_which_occasion(row):
    """SUM-SVC-03, SUM-ASY-03, SUM-ASY-07, SUM-RNR-03."""
    check(row)


@rows_of(10)
def test_table_10_three_ways_to_a_smaller_prompt(row):
    """ASM-CHAIN-03."""
    check(row)


@rows_of(11)
def test_table_11_places_of_the_summary(row):
    """ASM-INJ-05, ASM-INJ-08, ASM-INJ-09."""
    check(row)


@rows_of(12)
def test_table_12_advice(row):
    """ASM-INJ-01, ASM-HIST-16, SUM-ASY-01."""
    check(row)


def test_every_option_of_the_document_has_a_row(seed_text):
    for table in seed_table.tables_of(seed_text):
        rows = [row.seed_name for row in ROWS if row.table == table.number]
        assert rows, f"table {table.number} has no rows"
        if table.names:
            assert rows == list(table.names), f"table {table.number}"
    assert {row.table for row in ROWS} == {table.number for table in seed_table.tables_of(seed_text)}
