"""A shared log behaves as a list, whoever else has a window on the same tape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.session.shared_log import SharedLog

STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "append same", "copy", "drop"]), st.integers(0, 9), st.integers(0, 9)),
    max_size=60,
)


@given(STEPS)
def test_every_window_shows_what_a_list_of_its_own_would(steps: list[tuple[str, int, int]]) -> None:
    windows: list[tuple[SharedLog[str], list[str]]] = [(SharedLog(["a", "b"]), ["a", "b"])]
    last = "first"
    for kind, which, number in steps:
        log, plain = windows[which % len(windows)]
        if kind == "copy":
            windows.append((log.copy(), list(plain)))
        elif kind == "drop":
            log.drop_oldest(number)
            del plain[:number]
        else:
            last = f"item {len(plain)} {which}" if kind == "append" else last
            log.append(last)
            plain.append(last)
        for shown, expected in windows:
            assert shown == expected
            assert len(shown) == len(expected)
            assert list(shown) == expected
            assert list(reversed(shown)) == expected[::-1]
            for part in (slice(1, None), slice(-2, None), slice(None, None, -1), slice(3, 1), slice(0, 99, 2)):
                assert shown[part] == expected[part]
            assert [shown[i] for i in range(-len(expected), len(expected))] == [*expected, *expected]


def test_a_place_outside_is_an_index_error() -> None:
    log = SharedLog("abcdef")
    log.drop_oldest(2)
    for place in (4, -5):
        with pytest.raises(IndexError):
            log[place]


def test_a_copy_takes_no_items_and_continues_what_it_was_made_of() -> None:
    log = SharedLog(range(1000))
    twin = log.copy()
    twin.append(1000)
    assert twin.continues(log)
    assert not log.continues(twin)
    log.append(-1)
    assert not log.continues(twin)
    assert (twin[-1], log[-1]) == (1000, -1)


def test_logs_equal_lists_and_each_other_by_value() -> None:
    assert SharedLog("ab") == SharedLog("ab")
    assert SharedLog("ab") != ["a"]
    assert SharedLog("ab") != "ab"
    with pytest.raises(TypeError):
        hash(SharedLog())
