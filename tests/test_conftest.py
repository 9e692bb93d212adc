"""The guard that every test runs under holds."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from workbench.errors import ModelCallForbiddenError

# Set aside for documentation: nobody answers there, should the guard ever fail.
FOREIGN = "192.0.2.1"


@pytest.mark.parametrize("host", [FOREIGN, "model.example", "2001:db8::1"])
def test_a_connection_to_another_machine_is_refused(host):
    """SEC-15."""
    with pytest.raises(ModelCallForbiddenError, match="a test reached for"):
        socket.create_connection((host, 443), timeout=1)


@pytest.mark.parametrize("method", ["connect", "connect_ex"])
def test_an_address_without_a_lookup_is_refused(method):
    """SEC-15."""
    with socket.socket() as plain, pytest.raises(ModelCallForbiddenError):
        getattr(plain, method)((FOREIGN, 443))


def test_a_datagram_to_another_machine_is_refused():
    """SEC-15."""
    with socket.socket(type=socket.SOCK_DGRAM) as plain, pytest.raises(ModelCallForbiddenError):
        plain.sendto(b"x", (FOREIGN, 53))


def test_asyncio_is_guarded_too():
    """SEC-15."""
    with pytest.raises(ModelCallForbiddenError):
        asyncio.run(asyncio.open_connection(FOREIGN, 443))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_on_this_machine_can_be_reached(host):
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection((host, server.getsockname()[1]), timeout=5).close()


def test_no_key_of_a_provider_reaches_a_test():
    assert [name for name in os.environ if name.endswith("_API_KEY")] == []
