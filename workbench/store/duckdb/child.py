"""A file from somewhere else is read in a process of its own, with bounded memory and time (SEC-03).

In: the name of a function and its arguments. Out: what it returns, both as JSON. A database file is more like a
program than like a document: whatever it does to its reader ends that process, not this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import StoreError, WorkbenchError

_CHILD_BYTES = 4 << 30
DEFAULT_TIMEOUT_S = 600.0


class ChildError(StoreError):
    """The process that read a file didn't come to its end."""


def call_apart(function: Callable[..., Any], arguments: Mapping[str, Any], *, timeout_s: float) -> Any:
    """What `function(**arguments)` returns in a process of its own.

    Raises:
        ChildError: the process took too long, or died.
        StoreError: the function raised an error of this package; the same sentence.
    """
    # Nothing but the arguments goes along; -P keeps the current folder out of the child's imports.
    code = f"from {__name__} import answer; answer()"
    here = str(Path(__file__).resolve().parents[3])
    name = f"{function.__module__}:{function.__name__}"
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, name, json.dumps(arguments)],
            capture_output=True,
            check=False,
            timeout=timeout_s,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))},
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"reading the file took longer than {timeout_s:.0f} s") from None
    if done.returncode:
        raise ChildError(f"reading the file ended its process (exit code {done.returncode})")
    told = json.loads(done.stdout)
    if "error" in told:
        raise StoreError(told["error"], hint=told["hint"])
    return told["result"]


def answer() -> None:
    """What the child does: call the function named on its command line, print what came of it."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_CHILD_BYTES, _CHILD_BYTES))
    from importlib import import_module

    module, _, name = sys.argv[1].partition(":")
    function = getattr(import_module(module), name)
    told: dict[str, Any]
    try:
        told = {"result": function(**json.loads(sys.argv[2]))}
    except WorkbenchError as error:
        told = {"error": str(error), "hint": error.hint}
    sys.stdout.write(json.dumps(told))
