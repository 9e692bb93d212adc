"""The local server that all tests of a model over HTTP share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.selftest.fake_server import FakeServer


@pytest.fixture(scope="session")
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running
