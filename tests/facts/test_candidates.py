"""Which strings of a text may be needed again, where they are, and which class owns them."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.facts import (
    CJK,
    CODE,
    HANGUL,
    KINDS,
    NAME,
    candidates,
    contains,
    hangul_stem,
    is_repetition,
    key_of,
    keys_mentioned,
)

PIECES = (
    "我们在", "北京西站集合", "订单号", "A-20417", "的", "3月9日", "下午3点", "，", "。", "カフェテラス", "で", "서울시청에서",
    " 만나요 ", "Ana Bell", " met ", "ana@example.com", "/srv/app/main.py", "report.xlsx", "$1,250", "12%", "to_snake",
    "HTTPServer", "https://example.com/a?b=1", "+81 3-5550-0132", '"dark mode"', "“静音模式”", "`x`", "1234", "3.14",
    " ", "\n", ".", ",", ":", "-", "_", "'", "é", "e\u0301", "ｶﾞｲﾄﾞ", "１２３４", "\\n", "\x00", "#", "/", "(", ")",
)  # fmt: skip
MIXED = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def found(text):
    """`(class, value)` of all candidates."""
    return [(one.kind, one.value) for one in candidates(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Read https://example.com/a_(b)?c=1.", [("url", "https://example.com/a_(b)?c=1")]),
        ("(see https://example.com/x)", [("url", "https://example.com/x")]),
        ("链接https://example.com/资料", [("url", "https://example.com/")]),
        ("Write to Ana.Bell+x@mail.example.com!", [("email", "Ana.Bell+x@mail.example.com")]),
        ("邮箱ana@example.com，谢谢", [("email", "ana@example.com")]),
        ("Call +81 3-5550-0132 or (021) 555-0132", [("phone", "+81 3-5550-0132"), ("phone", "(021) 555-0132")]),
        ("电话13800138000", [("phone", "13800138000")]),
        ("see /srv/app/main.py:12", [("path", "/srv/app/main.py")]),
        ("run ./build.sh in src/lib/core", [("path", "./build.sh"), ("path", "src/lib/core")]),
        (r"open C:\Work\plan.txt now", [("path", r"C:\Work\plan.txt")]),
        ("打开了预算表.xlsx", [("file", "预算表.xlsx")]),
        ("unpack data.tar.gz", [("file", "data.tar.gz")]),
        ("Flight HAT136 of mia_li_3668", [("identifier", "HAT136"), ("identifier", "mia_li_3668")]),
        ("订单号A20417的状态", [("identifier", "A20417")]),
        ("release 1.10.2 on 10.0.0.7", [("identifier", "1.10.2"), ("identifier", "10.0.0.7")]),
        ("It cost 1250 or 3.5 in all", [("number", "1250"), ("number", "3.5")]),
        ("Choose \"dark mode\" or 'quiet hours'", [("quoted", "dark mode"), ("quoted", "quiet hours")]),
        ("请打开“静音模式”", [("quoted", "静音模式")]),
        ("設定は「夜間モード」です", [("quoted", "夜間モード")]),
        ("Yesterday Ana Bell wrote", [("name", "Ana Bell")]),
        ("我们去百草园博物馆的路上", [("cjk", "百草园博物馆")]),
        ("明日は東京タワーへ", [("cjk", "東京タワー")]),
        ("중앙도서관에서 공부해요", [("hangul", "중앙도서관")]),
    ],
)
def test_each_class_is_found(text, expected):
    """WB-RET-01a."""
    assert found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "and/or", "24/7", "</div>", "he said so", "the 20th", "a 2-day trip", "in 1 or 2", "well-known", "e.g. this",
        "I'm sure it's fine, isn't it", "JFK", "APIs", "n/a", "哈哈哈哈哈", "ドキドキ", "我们不知道", "좋아요", "있습니다",
        "print(x)", "Hello there", "Thank You", "On Monday", "true", "A. B",
    ],
)  # fmt: skip
def test_ordinary_text_has_no_candidates(text):
    """WB-RET-01a."""
    assert found(text) == []


def test_the_earlier_class_owns_the_span():
    """WB-RET-01a: first match owns the span."""
    assert found("see https://example.com/2026-03-09/report.pdf") == [
        ("url", "https://example.com/2026-03-09/report.pdf")
    ]
    assert found('"call 021-5550-0132"') == [("phone", "021-5550-0132")]
    assert found("logs/2026-03-09/app.log") == [("path", "logs/2026-03-09/app.log")]


def test_a_short_code_identifier_without_a_digit_is_of_class_code():
    """WB-RET-01a."""
    assert found("to_snake, DataFrame, pd.merge") == [(CODE, "to_snake"), (CODE, "DataFrame"), (CODE, "pd.merge")]
    assert found("insert_records, to_snake2, read_csv_chunked") == [
        ("identifier", "insert_records"), ("identifier", "to_snake2"), ("identifier", "read_csv_chunked"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["[A-Za-z0-9]", "[a-z0-9_]+", "^[A-Z0-9]*$"])
def test_the_inside_of_a_character_class_is_syntax(text):
    """WB-RET-01a: no identifier, whatever digits it has."""
    assert found(text) == []
    assert found("a-z0x9") != []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("## Ana Bell", []),
        ("- **Ana Bell**: dark", []),
        ("notes:\nAna Bell\nthe end", []),
        ("Ana Bell", ["Ana Bell"]),
        ("Dear Ana Bell, thanks", ["Ana Bell"]),
        ("The Green Line opens", ["Green Line"]),
        ("Ana Bell's desk", ["Ana Bell"]),
        ("J. R. Bell wrote", ["J. R. Bell"]),
        ("Zoë Müller wrote", ["Zoë Müller"]),
        ("MAIN MENU", []),
        ("Bell", []),
    ],
)
def test_a_name_is_two_capitalised_words_and_no_heading(text, names):
    """WB-RET-01a."""
    assert [one.value for one in candidates(text) if one.kind == NAME] == names


def test_names_of_json_keys_are_schema():
    """WB-RET-01a."""
    text = '{"order_id": "A20417", "ship_to_2": {"zip_code": "80211"}}'
    assert found(text) == [("identifier", "A20417"), ("number", "80211")]


def test_escapes_of_json_text_are_no_part_of_a_name():
    assert found(r'{"text": "one\nline_two_3\u2713four_five_6"}') == [
        ("identifier", "line_two_3"),
        ("identifier", "four_five_6"),
    ]


def test_places_point_into_the_given_text():
    text = "导游はｶﾞｲﾄﾞﾌﾞｯｸ、Cafe\u0301 Mu\u0308ller、１２３４５"
    assert [(text[one.start : one.end], one.value) for one in candidates(text)] == [
        ("ｶﾞｲﾄﾞﾌﾞｯｸ", "ガイドブック"),
        ("Cafe\u0301 Mu\u0308ller", "Café Müller"),
        ("１２３４５", "12345"),
    ]


@given(MIXED | st.text(max_size=60))
def test_candidates_are_in_order_and_never_overlap(text):
    """WB-RET-01a."""
    last = 0
    for one in candidates(text):
        assert last <= one.start < one.end <= len(text)
        assert one.kind in KINDS
        assert one.key
        last = one.end


@given(MIXED)
def test_a_text_mentions_its_own_candidates(text):
    """WB-RET-01a."""
    assert [one for one in candidates(text) if not contains(text, one)] == []


@given(MIXED)
def test_a_value_alone_has_the_key_that_it_has_in_its_text(text):
    assert [one for one in candidates(text) if key_of(one.kind, one.value) != one.key] == []


def test_a_full_date_also_says_its_day_and_its_month():
    """WB-RET-01a."""
    date, amount, small = candidates("2026-03-09 for $1,250 or 50%")
    assert keys_mentioned(date) == ("2026-03-09", "--03-09", "2026-03")
    assert keys_mentioned(amount) == ("1250",)
    assert keys_mentioned(small) == ("50%",)


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("도서관에서", "도서관"),
        ("도서관은", "도서관"),
        ("도서관까지는", "도서관"),
        ("도서관", "도서관"),
        ("갔습니다", ""),
    ],
)
def test_a_hangul_stem_is_a_word_without_its_particle(word, stem):
    """WB-RET-01a."""
    assert hangul_stem(word) == stem


def test_a_korean_term_is_at_least_three_syllables_after_the_particle():
    """WB-RET-01a."""
    assert [one.value for one in candidates("서울에서 한강공원을 봤어요") if one.kind == HANGUL] == ["한강공원"]


def test_a_chinese_term_is_at_least_four_characters():
    """WB-RET-01a."""
    assert [one.value for one in candidates("北京的图书馆和国家图书馆") if one.kind == CJK] == ["国家图书馆"]


def test_repetition_is_no_term():
    """WB-RET-01a: no reduplication."""
    assert is_repetition("哈哈哈哈")
    assert is_repetition("研究研究")
    assert not is_repetition("研究报告")


# Each of these, said again and again, made some draft of a pattern slow.
HOSTILE = (
    "a", "1", "A", "_", "-", ".", "/", "@", '"', "'", "`", "“", " ", "年", "中", "가", "哈", "e\u0301", "Aa-", "Aa. ", "a.",
    "a-", "a@", "a@b.", "/a", "1,", "1.", "1-", "1,111", "(1", "+1 ", "12:", "http://a)", "C:\\a", ".py", '"a', '{"a":',
    "$1,", "1万", "May 1 ", "下午3", "3点", "\\n", "x1", "a_",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_time_grows_with_the_text_and_no_faster(unit):
    text = unit * (60_000 // len(unit))
    before = time.process_time()
    candidates(text)
    # A linear scan takes a small part of this, a quadratic one several times as much.
    assert time.process_time() - before < 3


def test_an_ordinary_text_takes_no_more_than_a_second_per_hundred_thousand_characters():
    pick = random.Random(7)
    text = " ".join(pick.choice(PIECES) for _ in range(20_000))
    before = time.process_time()
    assert len(candidates(text)) > 5_000
    assert time.process_time() - before < 0.00001 * len(text) + 1
