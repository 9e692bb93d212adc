"""The boundary in a session's state."""

from __future__ import annotations

import logging

import pytest

from tests.summary.events import SECOND, session, user
from workbench.session.types import STATE_LAST_INCLUDED_EVENT_ID, STATE_LAST_INCLUDED_TS
from workbench.summary.boundary import (
    boundary_from_state,
    boundary_guarded,
    boundary_left_alone,
    record_boundary,
)

OLD = {STATE_LAST_INCLUDED_TS: b"2026-03-01T10:00:00Z", STATE_LAST_INCLUDED_EVENT_ID: b"e0"}


def test_time_and_id_are_written_and_read():
    """SUM-DM-15, SUM-SEL-05."""
    of = session()
    record_boundary(of, user("q", id="e1").replace(time_ns=SECOND + 5))
    assert of.state == {
        STATE_LAST_INCLUDED_TS: b"1970-01-01T00:00:01.000000005Z",
        STATE_LAST_INCLUDED_EVENT_ID: b"e1",
    }
    assert boundary_from_state(of.state) == (SECOND + 5, "e1")


def test_without_an_id_the_id_key_goes():
    """SUM-SEL-05."""
    of = session(state=dict(OLD))
    record_boundary(of, user("q", at=1))
    assert of.state == {STATE_LAST_INCLUDED_TS: b"1970-01-01T00:00:01Z"}
    record_boundary(of, None)
    assert boundary_from_state(of.state) == (SECOND, "")


def test_a_time_that_cannot_be_read_is_worth_a_warning(caplog):
    """SUM-CHK-06, E02."""
    with caplog.at_level(logging.WARNING):
        assert boundary_from_state({STATE_LAST_INCLUDED_TS: b"garbage"}) is None
    assert "garbage" in caplog.text
    assert boundary_from_state({STATE_LAST_INCLUDED_TS: b"x", STATE_LAST_INCLUDED_EVENT_ID: b"e1"}) == (0, "e1")
    assert boundary_from_state({}) is None


def test_the_guard_shows_the_new_boundary_and_keeps_it():
    """SUM-HOOK-07."""
    of = session(state=dict(OLD))
    with boundary_guarded(of, user("q", id="e1", at=1)):
        assert boundary_from_state(of.state) == (SECOND, "e1")
        of.state[STATE_LAST_INCLUDED_EVENT_ID] = b"meddled"
        of.state["mine"] = b"kept"
    assert boundary_from_state(of.state) == (SECOND, "e1")
    assert of.state["mine"] == b"kept"


@pytest.mark.parametrize("before", [OLD, {}])
def test_the_guard_takes_it_back_on_any_exception(before):
    """SUM-HOOK-07: also on one that no hook may catch."""
    of = session(state=dict(before))
    with pytest.raises(KeyboardInterrupt), boundary_guarded(of, user("q", id="e1", at=1)):
        raise KeyboardInterrupt
    assert of.state == before


def test_without_the_guard_the_hook_has_its_way():
    """SUM-HOOK-07 (reference of July 2026)."""
    of = session(state=dict(OLD))
    with pytest.raises(ValueError, match="no"), boundary_left_alone(of, user("q", id="e1", at=1)):
        raise ValueError("no")
    assert boundary_from_state(of.state) == (SECOND, "e1")
