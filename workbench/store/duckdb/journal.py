"""The journal `x.duckdb.journal`: every acknowledged change as one line, in order, before it is anywhere else.

In: kinds and JSON payloads. Out: numbered lines, each with a hash over the line before and its own text, and
on the way back either exactly what was written or a description of the damage. Implements reliability.md
section 3, consequence 1: DuckDB alone doesn't notice a lost tail of its log (M2 to M4).

    workbench-journal 1 <tab> {"store": ..., "sequence": 0, "hash": ...} <tab> hash
    1 <tab> create <tab> {...} <tab> hash
    2 <tab> event <tab> {...} <tab> hash
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from workbench.errors import StoreCorruptError, StoreFullError, StoreVersionError

FORMAT_VERSION = 1
_TITLE = b"workbench-journal "
_HASH_BYTES = 16
_COPY_BYTES = 1 << 20


def journal_path(path: Path) -> Path:
    """The journal that belongs to a database file."""
    return path.with_name(path.name + ".journal")


def _hash(previous: bytes, body: bytes) -> bytes:
    return blake2b(previous + body, digest_size=_HASH_BYTES).hexdigest().encode()


class Mark(NamedTuple):
    """A place in the journal: behind the line `sequence`."""

    sequence: int
    hash: str
    offset: int = 0
    """Bytes written up to here since the journal was opened; stays valid when the file is cut."""


@dataclass(frozen=True, slots=True)
class Head:
    """What the first line says: whose journal it is, and after which change it begins."""

    store_id: str
    mark: Mark


class Line(NamedTuple):
    """One change."""

    sequence: int
    kind: str
    payload: dict[str, Any]
    hash: str


class RawLine(NamedTuple):
    """A line as it stands in the file; `sequence` None when it doesn't even look like one."""

    sequence: int | None
    body: bytes
    hash: bytes


@dataclass(frozen=True, slots=True)
class Contents:
    """A journal read from the disk; `lines` aren't verified yet."""

    head: Head
    lines: Sequence[RawLine]
    n_bytes: int
    """Length without the torn end."""
    n_torn_bytes: int
    """A last line without its line end: a write that was cut short and never acknowledged."""

    @property
    def last_sequence(self) -> int:
        """The change behind which the journal ends."""
        return self.head.mark.sequence + len(self.lines)


@dataclass(frozen=True, slots=True)
class Damage:
    """Lines that can't be trusted, from the first bad one to the end."""

    first: int
    last: int
    raw: Sequence[RawLine]


# --- reading -----------------------------------------------------------------------------------------


def read_journal(path: Path) -> Contents:
    """Take a journal apart without judging its lines.

    Raises:
        StoreCorruptError: no journal, or its head line is damaged.
        StoreVersionError: written by a newer release.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise StoreCorruptError(f"{path}: the journal is missing", path=path, part="journal") from error
    head_line, *rest = data.split(b"\n")
    head = _head_from(head_line, path, is_whole=bool(rest))
    torn = rest.pop()
    if torn and _is_whole(torn[:-1], rest[-1] if rest else b"", head):
        # Only its line end is damaged: it was acknowledged, so it must not pass for a write that was cut short.
        rest.append(torn)
        torn = b""
    return Contents(head, [_raw_line(line) for line in rest], len(data) - len(torn), len(torn))


def _head_from(line: bytes, path: Path, *, is_whole: bool) -> Head:
    parts = line.split(b"\t")
    if not is_whole or len(parts) != 3 or _hash(b"", parts[0] + parts[1]) != parts[2]:
        raise StoreCorruptError(f"{path}: the journal's first line is damaged", path=path, part="journal")
    version = int(parts[0].removeprefix(_TITLE))
    if version > FORMAT_VERSION:
        raise StoreVersionError(
            f"{path}: journal version {version}; this release reads up to {FORMAT_VERSION}",
            found=version,
            supported=FORMAT_VERSION,
            hint="open it with a newer release",
        )
    facts = json.loads(parts[1])
    return Head(facts["store"], Mark(facts["sequence"], facts["hash"]))


def _raw_line(line: bytes) -> RawLine:
    body, tab, digest = line.rpartition(b"\t")
    number = body.partition(b"\t")[0]
    return RawLine(int(number) if tab and number.isdigit() and len(number) < 20 else None, body, digest)


def _is_whole(line: bytes, previous: bytes, head: Head) -> bool:
    body, _, digest = line.rpartition(b"\t")
    before = previous.rpartition(b"\t")[2] if previous else head.mark.hash.encode()
    return _hash(before, body) == digest


def lines_above(contents: Contents, mark: Mark) -> tuple[list[Line], Damage | None]:
    """The changes after `mark`, verified one by one; the first that fails ends the list.

    Only what is needed is verified: damage before the mark costs nothing.
    """
    raw = contents.lines
    start = mark.sequence - contents.head.mark.sequence
    if start < len(raw) and raw[start].sequence != mark.sequence + 1:
        # A line end before the mark may have been lost or won.
        start = next((i for i, line in enumerate(raw) if line.sequence == mark.sequence + 1), start)
    found: list[Line] = []
    previous = mark.hash.encode()
    for i in range(start, len(raw)):
        line = raw[i]
        sequence = mark.sequence + 1 + len(found)
        if line.sequence != sequence or _hash(previous, line.body) != line.hash:
            return found, Damage(sequence, sequence + len(raw) - 1 - i, raw[i:])
        found.append(parsed(line))
        previous = line.hash
    return found, None


def parsed(line: RawLine) -> Line:
    """The parts of a line.

    Raises:
        ValueError: it isn't one.
    """
    number, kind, payload = line.body.split(b"\t")
    return Line(int(number), kind.decode(), json.loads(payload), line.hash.decode())


def damaged_before(contents: Contents, mark: Mark) -> int:
    """How many lines up to the mark don't fit their hashes; they are in the database already."""
    n_bad = 0
    previous = contents.head.mark.hash.encode()
    for line in contents.lines[: max(mark.sequence - contents.head.mark.sequence, 0)]:
        n_bad += _hash(previous, line.body) != line.hash
        previous = line.hash
    return n_bad


# --- writing -----------------------------------------------------------------------------------------


class Journal:
    """An open journal. `append`, `sync` and `cut` may run in different threads; `append` never waits for the disk."""

    def __init__(self, path: Path, head: Head, end: Mark, n_bytes: int) -> None:
        self.path = path
        self.store_id = head.store_id
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._sequence, self._hash = end.sequence, end.hash.encode()
        self._size = n_bytes
        self._cut_bytes = 0
        """Offsets of marks minus places in the file."""
        self._has_rest = os.fstat(self._fd).st_size > n_bytes
        self._lock = Lock()
        """Held while the file's end moves."""
        self._sync_lock = Lock()
        """Held while the disk is waited for: nothing is confirmed while another file takes this one's place."""
        self.synced = -1
        """Up to this change the disk has everything for certain."""
        self._sync_error: OSError | None = None
        self._has_moved = False
        self._write = os.pwrite  # tests let the n-th write fail, or the disk
        self._fsync = os.fsync

    @staticmethod
    def create(path: Path, store_id: str, mark: Mark) -> Head:
        """A new journal that begins after `mark`; replaces what was there in one step."""
        temporary = path.with_name(path.name + ".new")
        temporary.write_bytes(_head_line(store_id, mark))
        _sync_file(temporary)
        temporary.replace(path)
        _sync_folder(path.parent)
        return Head(store_id, mark)

    @property
    def end(self) -> Mark:
        """The place behind the last line."""
        with self._lock:
            return Mark(self._sequence, self._hash.decode(), self._size + self._cut_bytes)

    @property
    def n_bytes(self) -> int:
        """Length of the file."""
        return self._size

    def append(self, kind: str, payload: str) -> int:
        """Write one change; once this returns it survives the process, after `sync` a power cut too. Its number.

        Raises:
            StoreFullError: it could not be written whole; nothing of it stays.
        """
        if self._sync_error is not None:
            raise self._unconfirmed(self._sync_error)
        body = f"{self._sequence + 1}\t{kind}\t{payload}".encode()
        digest = _hash(self._hash, body)
        line = b"%b\t%b\n" % (body, digest)
        with self._lock:
            try:
                if self._has_rest:
                    os.ftruncate(self._fd, self._size)
                    self._has_rest = False
                n_written = self._write_at_end(line)
            except OSError as error:
                self._take_back()
                raise StoreFullError(
                    f"{self.path}: the change can't be written: {error.strerror}", hint="free some space and try again"
                ) from error
            self._size += n_written
            self._sequence += 1
            self._hash = digest
            return self._sequence

    def _write_at_end(self, line: bytes) -> int:
        self._has_rest = True
        n_written = self._write(self._fd, line, self._size)
        while n_written < len(line):
            n_written += self._write(self._fd, line[n_written:], self._size + n_written)
        self._has_rest = False
        return n_written

    def _take_back(self) -> None:
        """Half a line must not stay in front of the next one; what can't be cut off now is cut off then."""
        self._has_rest = True
        try:
            os.ftruncate(self._fd, self._size)
            self._has_rest = False
        except OSError:
            pass

    def sync(self) -> None:
        """Wait until the disk has every line that was written before this call.

        Raises:
            StoreFullError: it refused. Then nobody knows what it has: it may say yes the next time without having it,
                so no more is written here, and opening the store again tells what there is.
        """
        with self._sync_lock:
            if self._sync_error is None:
                written = self._sequence
                try:
                    self._settle_name()
                    self._fsync(self._fd)
                    self.synced = written
                except OSError as error:
                    self._sync_error = error
            if self._sync_error is not None:
                raise self._unconfirmed(self._sync_error)

    def _settle_name(self) -> None:
        """Make it last that a file has taken the place of another."""
        if self._has_moved:
            _sync_folder(self.path.parent)
            self._has_moved = False

    def _unconfirmed(self, error: OSError) -> StoreFullError:
        return StoreFullError(
            f"{self.path}: the disk didn't confirm the last changes: {error.strerror}",
            hint="close the store and open it again; changes that weren't confirmed may be there or not",
        )

    def cut(self, mark: Mark) -> None:
        """Begin anew after `mark`, keeping what came later; only once a checkpoint holds everything before it.

        Raises:
            OSError: there was no room for the new file; the old one stays as it is.
        """
        temporary = self.path.with_name(self.path.name + ".new")
        head_line = _head_line(self.store_id, Mark(mark.sequence, mark.hash))
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            _write_all(fd, head_line)
            with self._sync_lock:
                start = mark.offset - self._cut_bytes
                copied_to = self._copy(fd, start, self._size)
                os.fsync(fd)
                with self._lock:
                    self._copy(fd, copied_to, self._size)  # nothing of this is confirmed yet
                    temporary.replace(self.path)
                    old, self._fd = self._fd, fd
                    self._size += len(head_line) - start
                    self._cut_bytes += start - len(head_line)
                    self._has_rest = False
                    self._has_moved = True
                os.close(old)
                self._settle_name()
        except OSError:
            if self._fd != fd:
                os.close(fd)
                temporary.unlink(missing_ok=True)
            raise

    def _copy(self, fd: int, start: int, end: int) -> int:
        while start < end:
            block = os.pread(self._fd, min(end - start, _COPY_BYTES), start)
            if not block:
                raise OSError(5, "the journal is shorter than it was")
            _write_all(fd, block)
            start += len(block)
        return start

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)


def _head_line(store_id: str, mark: Mark) -> bytes:
    title = _TITLE + str(FORMAT_VERSION).encode()
    facts = json.dumps({"store": store_id, "sequence": mark.sequence, "hash": mark.hash}).encode()
    return title + b"\t" + facts + b"\t" + _hash(b"", title + facts) + b"\n"


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_folder(folder: Path) -> None:
    """Make a rename last; only POSIX lets folders be synced."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
