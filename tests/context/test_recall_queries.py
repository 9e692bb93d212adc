"""Keywords, clauses, keyword windows and the lexical score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.context.recall.queries import (
    LEAD_INS,
    STOP_WORDS,
    is_compound,
    keywords,
    lexical_score,
    needs_broadening,
    scan_pairs,
    scan_terms,
    search_queries,
    without_lead_in,
)


def test_keywords_are_lower_case_unique_and_without_stop_words_or_short_words():
    """ASM-OND-14."""
    assert keywords("Where did the Pear, the PEAR and pear no. 7 of my XL bed go?") == ["pear", "7", "bed"]
    assert keywords("v2 of B12 at 5, in Q3") == ["v2", "b12", "5", "q3"]
    assert keywords("the and or what did they") == []


def test_keywords_keep_letters_and_digits_of_every_script():
    """ASM-OND-14: no blank, no cut; two characters are too short in any script."""
    assert keywords("苗圃会议_改到!周五 Größe été2") == ["苗圃会议", "größe", "été2"]


@given(st.text())
def test_keywords_obey_their_own_rule(text):
    """ASM-OND-14."""
    words = keywords(text)
    assert len(words) == len(set(words))
    assert all(word == word.lower() and word not in STOP_WORDS for word in words)


def test_the_question_itself_is_asked_first_with_single_blanks():
    """ASM-OND-13."""
    assert search_queries("  pear \n tree ") == ["pear tree"]
    assert search_queries(" \t") == []


def test_clauses_come_before_keywords():
    """ASM-OND-13."""
    assert search_queries("What did Ada plant, tell me about the old shed; or the gate?") == [
        "What did Ada plant, tell me about the old shed; or the gate?",
        "Ada plant",
        "ada plant",
        "the old shed",
        "old shed",
        "the gate",
        "gate",
        "ada plant old shed gate",
        "ada plant old shed",
        "plant old shed gate",
    ]


def test_many_keywords_are_cut_to_the_first_and_last_four():
    """ASM-OND-13."""
    words = ["alder", "birch", "cedar", "douglas", "elder", "fir", "ginkgo", "hazel", "iroko", "juniper"]
    kept = words[:4] + words[-4:]
    assert search_queries(" ".join(words).title()) == [
        " ".join(words).title(),
        " ".join(kept),
        " ".join(kept[0:4]),
        " ".join(kept[1:5]),
        " ".join(kept[2:6]),
    ]


@pytest.mark.parametrize(
    ("question", "windows"),
    [
        ("Alder birch", []),
        ("The alder birch cedar", []),
        ("Alder birch cedar douglas", ["alder birch cedar", "birch cedar douglas"]),
        ("Alder birch cedar douglas elder", ["alder birch cedar douglas", "birch cedar douglas elder"]),
    ],
)
def test_windows_hold_three_keywords_or_four_of_five(question, windows):
    """ASM-OND-13."""
    assert search_queries(question)[2:] == windows


def test_a_question_of_keywords_only_is_asked_once():
    assert search_queries("alder birch cedar") == ["alder birch cedar"]


def test_lead_ins_are_trimmed_at_the_start_only():
    """ASM-OND-13."""
    assert without_lead_in(" What did Ada decide") == "Ada decide"
    assert without_lead_in("Ada asked what did Bo decide") == "Ada asked what did Bo decide"
    assert without_lead_in("whatever") == "whatever"
    assert without_lead_in("DO WE KNOW the price") == "the price"
    assert len(set(LEAD_INS)) == len(LEAD_INS)


@pytest.mark.parametrize("query", ["pear, plum", "pear;plum", "pear and plum", "pear OR plum"])
def test_commas_semicolons_and_and_or_make_a_compound(query):
    """ASM-OND-13."""
    assert is_compound(query)
    assert not is_compound("sand border")


@pytest.mark.parametrize(
    ("query", "n_found", "n_wanted", "broaden"),
    [
        ("pear", 0, 5, True),
        ("pear", 1, 5, True),
        ("pear", 2, 5, False),
        ("pear", 1, 1, False),
        ("pear, plum", 2, 5, True),
        ("pear, plum", 5, 5, False),
    ],
)
def test_too_little_found_asks_on(query, n_found, n_wanted, broaden):
    """ASM-OND-13."""
    assert needs_broadening(query, n_found, n_wanted) is broaden


@pytest.mark.parametrize(
    ("phrase", "terms", "text", "score"),
    [
        ("pear", ["pear"], "a pear", 1 + 0.75 + 0.15),
        ("pear tree", ["pear", "tree"], "tree and pear", 1 + 0.15),
        ("pear tree", ["pear", "tree"], "the pear tree", 1 + 0.75 + 0.15),
        ("pear tree", ["pear", "tree"], "the pear", 0.5),
        ("pear tree gate", ["pear", "tree", "gate"], "the pear", 0),  # a third is too little
        ("a b c d e", ["aa", "bb", "cc", "dd", "ee"], "aa bb", 0.4 + 0.15),
        ("x", ["x"], "", 0),
        ("", [], "pear", 0),
    ],
)
def test_the_lexical_score_adds_share_phrase_and_several_words(phrase, terms, text, score):
    """ASM-OND-12."""
    assert lexical_score(phrase, terms, text) == pytest.approx(score)


def test_a_scan_counts_keywords_or_all_words_when_there_are_none():
    """ASM-OND-12."""
    assert scan_terms("What about the Pear") == ["pear"]
    assert scan_terms("is it") == ["is", "it"]
    assert scan_terms("?!") == []


def test_character_pairs_are_for_scripts_without_blanks():
    """ASM-OND-12."""
    assert scan_pairs("the pear and v2") == []
    assert scan_pairs("梨の木 pear") == ["梨の", "の木", "pear"]
