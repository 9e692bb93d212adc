"""Many candidates at once: the finder says what asking for each of them says."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.facts import Candidate, CandidateFinder, Mentions, candidates
from workbench.recordings import load_recordings
from workbench.replay.needed import said

DATASETS = Path(__file__).resolve().parents[2] / "datasets"


def found(values: str, text: str) -> list[str]:
    finder = CandidateFinder(candidates(values))
    return [finder.candidates[index].value for index in sorted(finder.found_in(Mentions(text)))]


@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        ("订单 HB-20417", "查 hb-20417 的物流", ["HB-20417"]),
        ("amount 100.50 and 1,580", "1580 元", ["1,580"]),
        ("in 2024-05-20", "5月20日见；2024年5月20日", ["2024-05-20"]),
        ("번호는 경사판입니다 경사판을", "경사판이 왔어요", ["경사판"]),
        ("ホームルーター", "新しいホームルーターです", ["ホームルーター"]),
        ("see mia_li_3668", r"line\nmia_li_3668\tend", ["mia_li_3668"]),
        ("number 100", "1000 and 5100", []),
        ("HB-20417", "", []),
    ],
)
def test_what_a_text_mentions_is_found(values: str, text: str, expected: list[str]):
    """WB-RET-01a: equality, boundaries, escapes; in four languages."""
    assert found(values, text) == expected


def test_a_candidate_without_letters_is_looked_for_too():
    """WB-RET-01a."""
    finder = CandidateFinder([Candidate("★☆", "quoted", 0, 2, "★☆"), Candidate("あ、い", "quoted", 0, 3, "あ、い")])
    assert finder.found_in(Mentions("评级 ★☆，あ、い")) == {0, 1}
    assert CandidateFinder([]).found_in(Mentions("text")) == frozenset()


@pytest.mark.parametrize("name", ["ja-support", "ko-support", "multi-agent"])
def test_all_at_once_is_one_by_one(name: str):
    """WB-RET-01a: every candidate of a recording, in each of its messages."""
    messages = [message for one in load_recordings(DATASETS / name) for message in one.messages]
    texts = [Mentions(said(message)) for message in messages]
    unique = {(one.kind, one.key): one for text in texts for one in text.candidates}
    finder = CandidateFinder(unique.values())
    for text in texts:
        slow = {index for index, one in enumerate(finder.candidates) if one in text}
        assert finder.found_in(text) == slow
