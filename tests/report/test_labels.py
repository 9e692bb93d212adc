"""Names and numbers as people read them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.report.labels import (
    counted,
    difference,
    display_width,
    listed,
    number,
    percent,
    printable,
    share,
    shorten,
    unbroken,
    units_to_wrap,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_420, "1,420"),
        (9_999, "9,999"),
        (16_000, "16k"),
        (20_640, "20.6k"),
        (131_000, "131k"),
        (999_499, "999k"),
        (999_500, "1.00 M"),
        (1_424_000, "1.42 M"),
        (14_240_000, "14.2 M"),
        (3_000_000_000, "3 G"),
        (-1_420, "\N{MINUS SIGN}1,420"),
    ],
)
def test_numbers_are_written_with_three_significant_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.62, "0.62"),
        (0.0, "0.00"),
        (1.0, "1.00"),
        (0.9991, "0.999"),
        (0.00001, "under 0.0001"),
        (0.99999, "over 0.9999"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(value, text):
    assert share(value) == text


@pytest.mark.parametrize(
    ("value", "reference", "text"),
    [
        (57, 100, "\N{MINUS SIGN}43 %"),
        (106.2, 100, "+6.2 %"),
        (100, 100, "±0 %"),
        (2_000, 100, "×20"),
        (5, 0, ""),
    ],
)
def test_differences_carry_their_sign(value, reference, text):
    assert difference(value, reference) == text


def test_percentages_under_ten_keep_one_decimal():
    assert (percent(0.43), percent(0.062), percent(0)) == ("43 %", "6.2 %", "0 %")


def test_counted_and_listed_read_as_words():
    assert (counted(1, "call"), counted(2, "summary", "summaries")) == ("1 call", "2 summaries")
    assert (listed([]), listed(["a"]), listed(["a", "b", "c"])) == ("", "a", "a, b and c")


def test_wide_characters_take_two_columns_and_combining_ones_none():
    assert (display_width("客服-01"), display_width("한국"), display_width("e\u0301")) == (7, 4, 1)


@given(st.text(), st.integers(min_value=2, max_value=60))
def test_a_shortened_name_fits_and_stays_on_one_line(text, width):
    short = shorten(text, width)
    assert display_width(short) <= width
    assert not any(unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs") for character in short)


def test_a_shortened_name_keeps_its_end():
    assert shorten("conversation-with-a-long-name-17", 20).endswith("name-17")


def test_no_name_turns_the_reading_direction_or_moves_the_cursor():
    """SEC-07."""
    assert printable("red\x1b[31m\u202egnp.exe\nnext") == "red\ufffd[31m\ufffdgnp.exe next"


@given(st.text())
def test_the_pieces_of_a_line_are_the_whole_line(text):
    assert "".join(units_to_wrap(text)) == text


def test_a_line_may_break_between_cjk_characters_but_not_inside_words():
    assert units_to_wrap("退款 refund") == ["退", "款", " ", "refund"]


def test_a_figure_stays_on_one_line_with_its_unit():
    assert units_to_wrap("tokens −16 %, not 1.42 M; (−2.6 %)") == [
        "tokens", " ", "−16 %,", " ", "not", " ", "1.42 M;", " ", "(−2.6 %)",
    ]  # fmt: skip
    assert unbroken("tokens −16 %, not 1.42 M; (−2.6 %)") == "tokens −16\xa0%, not 1.42\xa0M; (−2.6\xa0%)"
    assert unbroken("退款 refund in 5 calls,\n 9 % or\t7") == "退款 refund in 5 calls,\n 9\xa0% or\t7"
