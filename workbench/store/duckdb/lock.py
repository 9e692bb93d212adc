"""One writer per file: a lock beside it that names its holder (REL-04).

DuckDB locks its own file, but not against a second store in the same process, and not the journal.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from workbench.errors import StoreError, StoreLockedError

if sys.platform != "win32":
    import fcntl


class FileLock:
    """Held from construction to `release`.

    Raises:
        StoreLockedError: somebody else holds it; `pid` says who.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        while True:
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise StoreError(f"{path}: can't be opened: {error.strerror}", hint="check the folder") from error
            try:
                _lock(self._fd)
            except OSError as error:
                holder = os.pread(self._fd, 20, 0)
                os.close(self._fd)
                pid = int(holder) if holder.isdigit() else None
                who = f"process {pid}" if pid else "another process"
                raise StoreLockedError(
                    f"{path}: {who} holds the file", path=path, pid=pid, hint="wait, end it, or work on a copy"
                ) from error
            if self._is_current():
                break
            os.close(self._fd)  # its holder removed it between our two steps
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def _is_current(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._fd))

    def release(self) -> None:
        """Let others in."""
        self._path.unlink(missing_ok=True)
        # Said aloud, because a forked child would keep the lock alive with its copy of the descriptor.
        _unlock(self._fd)
        os.close(self._fd)


if sys.platform != "win32":

    def _lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

else:  # DuckDB's own lock keeps other processes out

    def _lock(fd: int) -> None:
        pass

    def _unlock(fd: int) -> None:
        pass
