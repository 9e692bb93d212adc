"""Whether a text mentions a candidate, what runs it shares with earlier text, and how rare a term is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.facts import EarlierText, Mentions, TermCounts, argument_values, candidates, contains, term_runs


def the(text):
    """The only candidate of a text."""
    (one,) = candidates(text)
    return one


@pytest.mark.parametrize(
    ("value", "text", "is_there"),
    [
        ("100", "all 100 of them", True),
        ("100", "all 1000 of them", False),
        ("100", "all 1,100 of them", False),
        ("100", "about 100.5", False),
        ("100", "exactly 100.", True),
        ("1200", "about 1,200 people", True),
        ("1,200", "about 1200 people", True),
        ("$1,200", '{"price": 1200.0}', True),
        ("$50", "50 dollars", True),
        ("$50", "50 people", False),
        ("March 9, 2026", "on 2026-03-09", True),
        ("March 9", "on 2026年3月9日", True),
        ("March 9, 2026", "on March 9", False),
        ("3:30 pm", "下午3点半", True),
        ("3:30 pm", "at 3:30", False),
        ("HAT136", "flight hat136.", True),
        ("HAT136", "HAT1367", False),
        ("HAT136", "HAT136_old", False),
        ("7504069", "certificate_7504069", True),
        ("HAT136", "航班HAT136的状态", True),
        ("/srv/app", "in /srv/app/main.py", True),
        ("Ana Bell", "ana  bell wrote", True),
        ("Ana Bell", "Ana Bellamy", False),
        ("国家图书馆", "在国家图书馆门口", True),
        ("중앙도서관", "중앙도서관에서", True),
        ("중앙도서관", "신중앙도서관에서", False),
        ("(021) 5550132", "call (021) 555-0132", True),
        ("１２３４５", "no. 12345", True),
    ],
)
def test_a_mention_has_boundaries_and_any_equal_spelling(value, text, is_there):
    """WB-RET-01a."""
    assert contains(text, the(value)) is is_there


def test_one_text_answers_many_questions():
    mentions = Mentions("Ana Bell ordered A20417 on 2026-03-09.")
    assert the("A20417") in mentions
    assert the("A20418") not in mentions
    assert {"a20417", "2026-03-09", "--03-09", "ana bell"} <= mentions.keys


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ('{"order_id": "A20417", "items": [{"n": 2, "gift": true}], "note": null}', "A20417\n2"),
        ('{"cmd": "cat \\"a b.txt\\"\\n"}', 'cat "a b.txt"\n'),
        ('"text"', "text"),
        ("0.00", "0.00"),
        ("{}", ""),
        ("not json {", "not json {"),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=["nested", "escapes", "text", "number", "empty", "broken", "deep"],
)
def test_only_the_values_of_arguments_count(arguments, values):
    """WB-RET-01a: tool names and JSON keys are schema."""
    assert argument_values(arguments) == values


def test_deep_arguments_are_read_without_recursion():
    deep = json.loads("[" * 500 + '"A20417"' + "]" * 500)
    assert argument_values(json.dumps(deep)) == "A20417"


def test_the_longest_run_shared_with_earlier_text_is_found():
    """WB-RET-01a: else the longest common run of 4 or more with earlier text."""
    earlier = EarlierText()
    earlier.add("昨天参观国家图书馆古籍展厅")
    earlier.add("明天去中央音乐学院")
    assert earlier.longest_common_run("重游国家图书馆古籍") == "国家图书馆古籍"
    assert earlier.longest_common_run("北京中央音乐学院西门") == "中央音乐学院"
    assert earlier.longest_common_run("完全两样内容") == ""
    assert earlier.longest_common_run("图书馆") == ""


def test_a_piece_of_two_different_names_is_no_fact():
    """WB-RET-01a: four characters that go on differently in both places."""
    earlier = EarlierText()
    earlier.add("北京通州北苑地铁站店")
    assert earlier.longest_common_run("北京通州果园店") == ""
    assert earlier.longest_common_run("通州北苑店") == ""
    assert earlier.longest_common_run("北京通州") == "北京通州"
    assert earlier.longest_common_run("北京通州北苑") == "北京通州北苑"
    earlier.add("清水河畔")
    assert earlier.longest_common_run("清水河畔餐厅") == "清水河畔"


ALPHABET = st.text(alphabet="甲乙丙丁", max_size=30)


@given(st.lists(ALPHABET, max_size=3), ALPHABET)
def test_the_longest_common_run_is_the_longest(texts, run):
    """WB-RET-01a: of exactly four characters only those at an end of one of the two, on either side."""
    earlier = EarlierText()
    for text in texts:
        earlier.add(text)

    def counts(i: int, j: int) -> bool:
        part = run[i:j]
        places = [(text, at) for text in texts for at in range(len(text)) if text.startswith(part, at)]
        if j - i > 4:
            return bool(places)
        return any((i == 0 or at == 0) and (j == len(run) or at + 4 == len(text)) for text, at in places)

    longest = max(
        (j - i for i in range(len(run)) for j in range(i + 4, len(run) + 1) if counts(i, j)),
        default=0,
    )
    shared = earlier.longest_common_run(run)
    assert len(shared) == longest
    assert not shared or any(shared in text for text in texts)


def test_a_term_is_rare_when_its_rarest_part_is():
    """WB-RET-01a: in at most max(2, 2 %) of conversations."""
    counts = TermCounts(["今天天气不错"] * 150 + ["百草园博物馆开门"] * 3 + ["中央图书馆에서 중앙도서관에서"] * 2)
    assert counts.n_conversations == 155
    assert not counts.is_rare("今天天气")
    assert counts.n_with("百草园博物馆") == 3
    assert counts.is_rare("百草园博物馆")
    assert counts.is_rare("中央图书馆今天天气")
    assert counts.n_with("중앙도서관") == 2
    assert counts.is_rare("중앙도서관")
    assert not TermCounts(["百草园博物馆"] * 3).is_rare("百草园博物馆")
    assert TermCounts([]).is_rare("百草园博物馆")


def test_runs_are_those_that_terms_are_made_of():
    assert term_runs("我在国家图书馆看书，and 東京タワー") == ["国家图书馆", "東京タワー"]
    assert term_runs("plain text") == []
