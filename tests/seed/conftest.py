"""A local endpoint for the examples that name a real model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.model.fake_server import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running
