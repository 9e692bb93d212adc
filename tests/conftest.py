"""What every test gets: no network, no real model, the same random numbers, and the shared data if it is there."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from workbench.errors import ModelCallForbiddenError

ROOT = Path(__file__).resolve().parent.parent

os.environ.setdefault("MPLBACKEND", "Agg")

# Shared machines pause at any time, so no example has a deadline.
settings.register_profile("quick", max_examples=50, derandomize=True, deadline=None)
settings.register_profile(
    "nightly", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quick")


@pytest.fixture(scope="session")
def shared_path() -> Path:
    """The folder of recorded vectors and public conversations that lies beside a checkout, not in it."""
    path = Path(os.environ.get("WORKBENCH_SHARED") or ROOT.parent / "shared")
    if not path.is_dir():
        pytest.skip("the shared data is not here: put it beside the checkout as shared/, or set WORKBENCH_SHARED")
    return path


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Connections leave this machine in no test (SEC-15), so no test can reach a real model either."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _guarded_lookup(socket.getaddrinfo))
        # Child processes don't inherit the guard, but they inherit this.
        for name in list(os.environ):
            if name.endswith("_API_KEY") or name.lower().endswith("_proxy"):
                patch.delenv(name)
        patch.setenv("WORKBENCH_FORBID_MODEL_CALLS", "1")
        yield


def is_loopback(host: object) -> bool:
    """True for this machine's own addresses and names; None and the empty name mean this machine too."""
    if host in {None, "", b"", "localhost", b"localhost"}:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        return ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _refuse(host: object) -> None:
    raise ModelCallForbiddenError(
        f"a test reached for {host!r}", hint="use a scripted model, a cassette or a server on 127.0.0.1"
    )


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: socket.socket, *args: Any) -> Any:
        address = args[-1]  # the last argument of connect, connect_ex and sendto
        if self.family in {socket.AF_INET, socket.AF_INET6} and not is_loopback(address[0]):
            _refuse(address[0])
        return original(self, *args)

    return call


def _guarded_lookup(original: Callable[..., Any]) -> Callable[..., Any]:
    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        if not is_loopback(host):
            _refuse(host)
        return original(host, *args, **options)

    return getaddrinfo


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Just above the closing line: where the results are (WB-FRESH-01)."""
    if path := config.getoption("xmlpath", None):
        terminalreporter.write_line(f"Results: {path}")
