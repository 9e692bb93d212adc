"""Spellings of dates, times, amounts and numbers, and the value that each of them has."""

from __future__ import annotations

import pytest

from workbench.facts import AMOUNT, DATE, NUMBER, PHONE, TIME, candidates, key_of


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("2026-03-09", "2026-03-09"),
        ("2026/3/9", "2026-03-09"),
        ("2026.03.09", "2026-03-09"),
        ("2026年3月9日", "2026-03-09"),
        ("2026年 3月 9号", "2026-03-09"),
        ("2026년 3월 9일", "2026-03-09"),
        ("March 9, 2026", "2026-03-09"),
        ("Mar 9 2026", "2026-03-09"),
        ("9th of March, 2026", "2026-03-09"),
        ("9 March 2026", "2026-03-09"),
        ("3月9日", "--03-09"),
        ("3월 9일", "--03-09"),
        ("March 9th", "--03-09"),
        ("2026年3月", "2026-03"),
        ("March 2026", "2026-03"),
        ("25/12/2026", "2026-12-25"),
        ("12/25/2026", "2026-12-25"),
        ("05/06/2026", "5/6/2026"),
        ("２０２６年３月９日", "2026-03-09"),
        ("2026-13-09", ""),
        ("2026-03-32", ""),
        ("Marble 9", ""),
        ("Jug 9", ""),
    ],
)
def test_a_date_has_one_key_however_it_is_spelled(value, key):
    """WB-RET-01a; day first or month first stays open when both can be."""
    assert key_of(DATE, value) == key


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("15:30", "15:30"),
        ("3:30 pm", "15:30"),
        ("3:30 P.M.", "15:30"),
        ("3:30pm", "15:30"),
        ("15:30:00", "15:30"),
        ("15:30:20", "15:30:20"),
        ("3 pm", "15:00"),
        ("12 am", "00:00"),
        ("12 pm", "12:00"),
        ("下午3点半", "15:30"),
        ("下午3:30", "15:30"),
        ("下午三点", ""),
        ("晚上12点", "00:00"),
        ("中午12点", "12:00"),
        ("上午9点10分", "09:10"),
        ("3点20分", "03:20"),
        ("午後3時30分", "15:30"),
        ("15時", "15:00"),
        ("오후 3시 30분", "15:30"),
        ("오전 9시", "09:00"),
        ("15시", "15:00"),
        ("25:30", ""),
        ("15:61", ""),
    ],
)
def test_a_clock_time_has_one_key_however_it_is_spelled(value, key):
    """WB-RET-01a."""
    assert key_of(TIME, value) == key


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("$1,200.50", "1200.5"),
        ("1,200 dollars", "1200"),
        ("US$1200", ""),
        ("$1.2 million", "1200000"),
        ("3万元", "30000"),
        ("1.5亿元", "150000000"),
        ("50,000원", "50000"),
        ("3만원", "30000"),
        ("2,500円", "2500"),
        ("50元", "50¥"),
        ("$50", "50$"),
        ("50 dollars", "50$"),
        ("50%", "50%"),
        ("16 GB", "16gb"),
        ("3小时", "3h"),
        ("3 hours", "3h"),
        ("120", ""),
    ],
)
def test_an_amount_is_its_number_and_below_three_digits_its_unit_too(value, key):
    """WB-RET-01a: thousands separators dropped."""
    assert key_of(AMOUNT, value) == key


def test_numbers_and_phone_numbers_drop_their_separators():
    """WB-RET-01a."""
    assert key_of(NUMBER, "1,234,567") == "1234567"
    assert key_of(PHONE, "(021) 555-0132") == key_of(PHONE, "021 5550132")


@pytest.mark.parametrize(
    "text",
    [
        "the meeting lasts 3 時間",
        "约3小时间隔",
        "3시간 동안",
        "the ratio is 4:3",
        "version 12:345",
        "may 5 people come",
        "sub2026-03-09x",
        "1月",
    ],
)
def test_what_only_looks_like_a_date_or_time_is_none(text):
    assert [one for one in candidates(text) if one.kind in {DATE, TIME}] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("订单在2026年3月9日下午3点半送到", ["2026年3月9日", "下午3点半"]),
        ("会议在15:30开始", ["15:30"]),
        ("logged at 2026-03-09T15:30:20Z", ["2026-03-09", "15:30:20"]),
        ("see you on March 9th, 2026 at 3 pm.", ["March 9th, 2026", "3 pm"]),
        ("3월 9일 오후 3시에 만나요", ["3월 9일", "오후 3시"]),
        ("3月9日15時30分に集合", ["3月9日", "15時30分"]),
    ],
)
def test_dates_and_times_are_found_beside_any_script(text, found):
    """WB-RET-01a."""
    assert [one.value for one in candidates(text) if one.kind in {DATE, TIME}] == found
