"""Words and equal spellings, in every script the package serves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.facts.scripts import (
    FUNCTION_CHARACTERS,
    HAN_KANA_RUN,
    HANGUL_RUN,
    TERM_RUN,
    cut_to_words,
    folded,
    normalised,
    words,
)

MIXED = st.text(alphabet=st.sampled_from("ab1 ,.\n我们去北京カフェのは서울입니다。！　é😀"), max_size=60)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("   \n\t ", 0),
        ("two words", 2),
        ("well-known, isn't it?", 3),
        ("我想订房间", 5),
        ("ホテルを予約", 6),
        ("회의는 오후에 있습니다", 3),
        ("我住在 Seoul 2 年", 6),
        ("room 12号房", 4),
        ("コーヒー", 4),
        ("𠮷野家", 3),
        ("全角　空白", 4),
    ],
    ids=[
        "empty",
        "blank",
        "english",
        "hyphen",
        "han",
        "kana",
        "hangul",
        "mixed",
        "glued",
        "long-vowel",
        "rare",
        "wide",
    ],
)
def test_a_han_or_kana_character_is_a_word_and_so_is_any_other_run_without_spaces(text, count):
    """WB-RPL-07b."""
    assert words(text) == count


@given(st.text(max_size=80) | MIXED, st.text(max_size=80) | MIXED)
def test_words_add_up_over_a_space(first, second):
    """WB-RPL-07b."""
    assert words(f"{first} {second}") == words(first) + words(second)


@given(MIXED | st.text(max_size=80), st.integers(0, 30))
def test_a_cut_text_has_as_many_words_as_it_may(text, max_words):
    """WB-RPL-07b."""
    cut = cut_to_words(text, max_words)
    assert text.startswith(cut)
    assert words(cut) == min(max_words, words(text))


def test_equal_spellings_fold_to_one():
    """WB-RET-01a."""
    assert folded("  ＡＢＣ\u3000Straße ") == folded("abc strasse")
    assert folded("ｶﾞｲﾄﾞ") == "ガイド"


@given(st.text(alphabet=st.sampled_from("aé\u0301ｶﾞ２中…각ㄱ"), max_size=40))
def test_places_of_the_normalised_text_point_into_the_given_one(text):
    normal, places = normalised(text)
    if places is None:
        assert len(normal) == len(text)
    else:
        assert len(places) == len(normal) + 1
        assert places == sorted(places)
        assert places[-1] == len(text)


def test_terms_hold_no_function_character():
    """WB-RET-01a: a listed set of about 90."""
    assert 80 <= len(FUNCTION_CHARACTERS) <= 120
    assert TERM_RUN.findall("我们的研究报告在资料室") == ["研究报告"]
    assert TERM_RUN.findall("東京タワーの展望台フロア") == ["東京タワー", "展望台フロア"]
    assert not any(FUNCTION_CHARACTERS & set(run) for run in TERM_RUN.findall("没有什么可以说的研究报告"))


def test_runs_keep_the_scripts_apart():
    assert HAN_KANA_RUN.findall("abc漢字カナかな가나12") == ["漢字カナかな"]
    assert HANGUL_RUN.findall("서울 Seoul 부산12") == ["서울", "부산"]
