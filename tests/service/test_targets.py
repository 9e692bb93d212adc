"""Which summaries a trigger refreshes (SUM-CAS)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.service.helpers import say
from workbench.service.targets import cleaned_allowlist, covers_whole_session, is_allowed, summary_targets
from workbench.session.types import Session


def test_a_branch_refreshes_itself_and_the_full_session_the_full_session_only_itself() -> None:
    """SUM-CAS-01."""
    assert summary_targets("app/a", allowlist=None, cascade=True) == ["app/a", ""]
    assert summary_targets("app/a", allowlist=None, cascade=False) == ["app/a"]
    assert summary_targets("", allowlist=(), cascade=True) == [""]


def test_an_allowlist_is_stripped_and_an_empty_one_allows_no_branch() -> None:
    """SUM-CAS-02, -04."""
    assert cleaned_allowlist(None) is None
    assert cleaned_allowlist([" app/a ", "", "  "]) == ("app/a",)
    assert summary_targets("app/a", allowlist=cleaned_allowlist([""]), cascade=True) == [""]
    assert summary_targets("app/a", allowlist=cleaned_allowlist([]), cascade=False) == []


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("my-app/tool", True),
        ("my-app/tool/search", True),
        ("my-app", True),
        ("my-app/toolbox", False),
        ("other-app/tool", False),
    ],
)
def test_an_entry_allows_its_ancestors_and_descendants(key: str, allowed: bool) -> None:
    """SUM-CAS-03."""
    assert is_allowed(key, ("my-app/tool",)) is allowed


def test_one_branch_is_the_whole_session_when_no_event_lies_outside() -> None:
    """SUM-CAS-05: by scope under the seed, by matching (ancestors too) under the reference profiles."""
    events = [say(1, key="app/a"), say(2, key="app/a/b"), say(3, key="")]
    session = Session(app_name="app", user_id="u", id="s", events=events)
    assert covers_whole_session(session, "app/a", by_matching=False)
    session.append(say(4, key="app"))
    assert not covers_whole_session(session, "app/a", by_matching=False)
    assert covers_whole_session(session, "app/a", by_matching=True)
    session.append(say(5, key="app/c"))
    assert not covers_whole_session(session, "app/a", by_matching=True)


KEYS = st.sampled_from(["", "app", "app/a", "app/a/b", "app/c", "x"])
STEPS = st.lists(st.one_of(KEYS.map(lambda key: ("append", key)), st.just(("drop", ""))), max_size=25)


@given(STEPS, st.booleans())
def test_the_census_agrees_with_looking_at_every_event(steps: list[tuple[str, str]], by_matching: bool) -> None:
    """SUM-CAS-05: the running count equals a scan, also after old events were dropped."""
    session = Session(app_name="app", user_id="u", id="s")
    for i, (step, key) in enumerate(steps):
        if step == "append":
            session.append(say(i, key=key))
        else:
            session.drop_oldest(min(1, len(session.events)))
        fresh = Session(app_name="app", user_id="u", id="s", events=session.events)
        for branch in ("app", "app/a"):
            assert covers_whole_session(session, branch, by_matching=by_matching) == covers_whole_session(
                fresh, branch, by_matching=by_matching
            )
