"""Small recorded conversations, as for replays."""

from __future__ import annotations

from tests.replay.conftest import recorded

__all__ = ["recorded"]
