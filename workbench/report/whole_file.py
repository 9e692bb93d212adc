"""A file that is there whole or not at all (REL-07).

In: a path and a text. Out: the file. A reader finds the old text or the new one, never a part, whatever happens
in between; what a killed process left is cleared away by the next write.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import tempfile
from pathlib import Path

_PARTIAL_NAME = re.compile(r"\.(\d+)-[^.]*\.part$")


def write_whole(path: str | Path, text: str) -> Path:
    """Write `text` in one step and return the full path.

    A target that isn't a regular file (a pipe, a device) gets the text as it is.

    Raises:
        OSError: the file can't be written; the old one is as it was.
    """
    target = Path(path).resolve()
    content = text.encode("utf-8")
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(target)
    handle, partial = tempfile.mkstemp(prefix=f"{_stem(target)}{os.getpid()}-", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(partial).chmod(0o666 & ~_umask())
        Path(partial).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(partial).unlink()
        raise
    return target


def _stem(target: Path) -> str:
    return f".{target.name[:80]}."


def _umask() -> int:
    """A temporary file is for its owner only; a report is as readable as any other new file."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _clear_abandoned(target: Path) -> None:
    """Remove what writers of this file left that no longer live."""
    for leftover in target.parent.glob(f"{glob.escape(_stem(target))}*.part"):
        found = _PARTIAL_NAME.search(leftover.name)
        if found and not _is_running(int(found[1])):
            with contextlib.suppress(OSError):
                leftover.unlink()


def _is_running(pid: int) -> bool:
    if os.name != "posix":
        # Elsewhere asking with signal 0 may end the process.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
