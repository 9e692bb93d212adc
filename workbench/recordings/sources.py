"""Files to read: found in folders and archives, opened with limits, never unpacked to disk.

In: paths, folders, globs. Out: `SourceFile`s in a fixed order, what was skipped, and problems. Implements the
walking part of WB-REC-01, and SEC-04, SEC-05 and SEC-12: files that can hold code are refused by name, links
and member names that lead outside are refused, and unpacking stops at a limit of bytes.
"""

from __future__ import annotations

import glob
import gzip
import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.errors import RecordingError, nearest_name
from workbench.recordings.problems import Problem, quoted

MB = 1_000_000
_BUFFER_BYTES = 1 << 18
# These can hold code or objects, or (YAML) guess what a value means; nothing in them is ever loaded.
REFUSED_SUFFIXES = frozenset(
    (".pkl", ".pickle", ".joblib", ".npy", ".npz", ".pt", ".pth", ".shelve", ".marshal", ".pyc", ".yaml", ".yml")
)
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_DATABASE_MAGIC = b"DUCK"
_COMPANIONS = (".journal", ".wal", ".lock")
_DRIVE = re.compile(r"[A-Za-z]:")


class UnreadableError(Exception):
    """A file can't be read further; becomes a problem of that file."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file in a folder or archive that isn't a recording."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file or archive member, ready to be opened as often as wanted."""

    label: str
    """Path for messages; members as `archive.zip!/member`."""
    stem: str
    """Name without folders and endings: the start of the ids of conversations that have none."""
    named: bool
    """Given by name, not found in a folder: then it must be a recording."""
    open: Callable[[], AbstractContextManager[io.BufferedReader[Any]]]
    store: Path | None = None
    """The file itself, when it is a database: it can't be read as a stream."""


Found = SourceFile | Skipped | Problem


def find_sources(paths: Sequence[str | Path], *, max_unpacked_bytes: int) -> Iterator[Found]:
    """What there is to read, in sorted order within each given path; a file that several of them lead to comes once.

    Raises:
        RecordingError: a path doesn't exist, can't be read, or is refused by its name.
    """
    seen: dict[str, Path] = {}
    for path in paths:
        repeated: list[Path] = []
        for file, root in _files_of(path):
            named = root is None
            if isinstance(file, Skipped | Problem):
                yield file
            elif (first := seen.setdefault(os.path.realpath(file), file)) is not file:
                repeated.append(first)
            elif refused := refused_suffix(file.name):
                if named:
                    raise RecordingError(f"{refused} files are not read", path=file, hint="export it as JSON")
                yield Skipped(str(file), f"{refused} files are not read")
            else:
                yield from _sources_in(file, named=named, max_unpacked_bytes=max_unpacked_bytes)
        if repeated:
            what = f"leads to {repeated[0]} again" if len(repeated) == 1 else f"{len(repeated)} of its files come again"
            yield Problem(os.fspath(path), None, None, what, "each file is read once", severity="note")


def check_paths(paths: Sequence[str | Path]) -> None:
    """Fail early for a path that leads to nothing.

    Raises:
        RecordingError: see `find_sources`.
    """
    for path in paths:
        next(iter(_files_of(path)), None)


def refused_suffix(name: str) -> str:
    """The ending for which a file isn't opened at all, or the empty text."""
    path = PurePosixPath(name.replace("\\", "/").lower())
    suffix = PurePosixPath(path.stem).suffix if path.suffix in (".gz", ".zst") else path.suffix
    return suffix if suffix in REFUSED_SUFFIXES else ""


def _files_of(path: str | Path) -> Iterator[tuple[Path | Skipped | Problem, Path | None]]:
    """Files a path stands for, with the folder they were found in (None: named directly)."""
    text = os.fspath(path)
    if "\0" in text:
        raise RecordingError("a path can't hold a NUL character", path=text.replace("\0", "\\0"))
    target = Path(text)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if glob.has_magic(text):
            yield from _globbed(text)
            return
        raise _missing(target) from None
    except OSError as error:
        raise RecordingError(f"can't be read: {error.strerror}", path=text) from error
    if stat.S_ISDIR(mode):
        yield from ((file, target) for file in _walk(target))
    elif stat.S_ISREG(mode):
        yield target, None
    else:
        raise RecordingError("is neither a file nor a folder", path=text)


def _missing(path: Path) -> RecordingError:
    try:
        siblings = [sibling.name for sibling in path.parent.iterdir()]
    except OSError:
        siblings = []
    return RecordingError("does not exist", path=path, hint=nearest_name(path.name, siblings))


def _globbed(pattern: str) -> Iterator[tuple[Path | Skipped | Problem, Path | None]]:
    matches = sorted(Path(match) for match in glob.glob(pattern, recursive=True))  # noqa: PTH207 - any path, not one below a folder
    if not matches:
        raise RecordingError("no file matches", path=pattern, hint="check the pattern")
    for match in matches:
        if match.is_file():
            yield match, match.parent
        elif "**" not in pattern:
            yield from ((file, match) for file in _walk(match))


def _walk(folder: Path) -> Iterator[Path | Skipped | Problem]:
    """Regular files below a folder, sorted by path; hidden folders are left alone, links are not followed out."""
    root = folder.resolve()
    unreadable: list[OSError] = []
    found: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=unreadable.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        found.extend(Path(parent, name) for name in (*files, *linked))
    for error in unreadable:
        yield Problem(str(error.filename), None, None, f"can't be read: {error.strerror}")
    for path in sorted(found, key=lambda item: item.parts):
        if path.name.startswith("."):
            yield Skipped(str(path), "hidden")
        elif path.is_symlink():
            inside = path.resolve().is_relative_to(root)
            outside = Problem(str(path), None, None, f"link leads outside {folder}", "name its target directly")
            yield Skipped(str(path), "link into the same folder") if inside else outside
        elif not path.is_file():
            yield Skipped(str(path), "not a regular file")
        elif (whose := _companion_of(path)) is not None:
            yield Skipped(str(path), f"belongs to {whose}")
        else:
            yield path


def _companion_of(path: Path) -> str | None:
    """The database that a journal, log or lock stands beside; None for any other file."""
    for suffix in _COMPANIONS:
        if path.name.endswith(suffix) and path.with_name(path.name.removesuffix(suffix)).suffix == ".duckdb":
            return path.name.removesuffix(suffix)
    return None


def _sources_in(file: Path, *, named: bool, max_unpacked_bytes: int) -> Iterator[Found]:
    """The file itself, or the members of the archive it is."""
    try:
        with file.open("rb") as handle:
            head = handle.read(12)
    except OSError as error:
        if named:
            raise RecordingError(f"can't be read: {error.strerror}", path=file) from error
        yield Problem(str(file), None, None, f"can't be read: {error.strerror}")
        return
    if head[8:] == _DATABASE_MAGIC:
        yield SourceFile(str(file), stem_of(file.name), named, _not_a_stream, file)
        return
    if head[:4] in _ZIP_MAGICS:
        yield from _members(file, named=named, max_unpacked_bytes=max_unpacked_bytes)
        return

    @contextmanager
    def opened() -> Iterator[io.BufferedReader[Any]]:
        with (
            io.BufferedReader(io.FileIO(file), _BUFFER_BYTES) as handle,
            _unpacked(handle, _Budget(max_unpacked_bytes)) as reader,
        ):
            yield reader

    yield SourceFile(str(file), stem_of(file.name), named, opened)


@contextmanager
def _not_a_stream() -> Iterator[io.BufferedReader[Any]]:
    raise UnreadableError("is a database", "name it directly")
    yield


def stem_of(name: str) -> str:
    """`service` of `service.jsonl.gz`; dots inside a name stay."""
    stem = PurePosixPath(name).name
    for suffix in (".gz", ".zst", ".jsonl", ".ndjson", ".json", ".traj", ".duckdb"):
        stem = stem.removesuffix(suffix)
    return stem or "recording"


# --- archives ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Budget:
    """Bytes that may still be unpacked from one file."""

    left: int

    def spend(self, n_bytes: int) -> None:
        self.left -= n_bytes
        if self.left < 0:
            raise UnreadableError("unpacks to more than the limit", "raise --max-unpacked-mb")


class _Metered(io.RawIOBase):
    """An unpacking stream that stops when its budget is spent; faults of the packing come out as one kind."""

    def __init__(self, source: Any, budget: _Budget) -> None:
        self._source = source
        self._budget = budget

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._source.read(len(target))
        except EOFError:
            raise UnreadableError("compressed data ends early", "the file may be cut") from None
        except (zlib.error, zipfile.BadZipFile, gzip.BadGzipFile, ValueError) as error:
            raise UnreadableError("compressed data is damaged", "pack it again") from error
        self._budget.spend(len(data))
        target[: len(data)] = data
        return len(data)


@contextmanager
def _unpacked(stream: io.BufferedReader[Any], budget: _Budget) -> Iterator[io.BufferedReader[Any]]:
    """The content of an open stream, unpacked if it is packed."""
    magic = stream.peek(4)[:4]
    if magic.startswith(_GZIP_MAGIC):
        with gzip.GzipFile(fileobj=stream) as packed:
            yield _metered(packed, budget)
    elif magic == _ZSTD_MAGIC:
        with _zstd_reader(stream) as packed:
            yield _metered(packed, budget)
    else:
        yield stream


def _metered(packed: Any, budget: _Budget) -> io.BufferedReader[Any]:
    return io.BufferedReader(_Metered(packed, budget), _BUFFER_BYTES)


def _zstd_reader(stream: io.BufferedReader[Any]) -> AbstractContextManager[Any]:
    """Newer Pythons read this themselves; older ones can't without another package."""
    try:
        zstd = import_module("compression.zstd")
    except ImportError:
        raise UnreadableError("packed with zstd, which needs Python 3.14", "unpack it first") from None
    reader: AbstractContextManager[Any] = zstd.ZstdFile(stream)
    return reader


def _members(file: Path, *, named: bool, max_unpacked_bytes: int) -> Iterator[Found]:
    """Members of a zip archive, sorted by name; together they share one budget of unpacked bytes."""
    try:
        with zipfile.ZipFile(file) as archive:
            infos = sorted(archive.infolist(), key=lambda info: info.filename)
    # NotImplementedError is how zipfile names a version or method that it lacks.
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        if named:
            raise RecordingError("is a damaged zip archive", path=file, hint="pack it again") from error
        yield Problem(str(file), None, None, "is a damaged zip archive", "pack it again")
        return
    budget = _Budget(max_unpacked_bytes)
    for info in infos:
        label = f"{file}!/{info.filename}"
        if info.is_dir():
            continue
        if leads_outside(info.filename) or stat.S_ISLNK(info.external_attr >> 16):
            yield Problem(str(file), None, None, f"member {quoted(info.filename)} leads outside", "not read")
        elif refused := refused_suffix(info.filename):
            yield Skipped(label, f"{refused} files are not read")
        else:
            # A single member stands for the archive: then it must be a recording, too.
            yield SourceFile(label, stem_of(info.filename), named and len(infos) == 1, _member(file, info, budget))


def _member(
    file: Path, info: zipfile.ZipInfo, budget: _Budget
) -> Callable[[], AbstractContextManager[io.BufferedReader[Any]]]:
    @contextmanager
    def opened() -> Iterator[io.BufferedReader[Any]]:
        with zipfile.ZipFile(file) as archive:
            try:
                packed = archive.open(info)
            except (RuntimeError, NotImplementedError) as error:  # how zipfile names a password, and a method it lacks
                raise UnreadableError("encrypted, or packed in an unknown way", "unpack it first") from error
            except (zipfile.BadZipFile, ValueError) as error:
                raise UnreadableError("compressed data is damaged", "pack it again") from error
            with packed, _unpacked(_metered(packed, budget), budget) as reader:
                yield reader

    return opened


def leads_outside(name: str) -> bool:
    """A member name that, taken as a path, would leave its folder or name a device or drive (SEC-05)."""
    unified = name.replace("\\", "/")
    # Compatibility forms of the dot would become real dots on some file systems.
    parts = unified.replace("\uff0e", ".").replace("\u2024", ".").replace("\u2025", "..").split("/")
    return (
        unified.startswith("/")
        or bool(_DRIVE.match(unified))
        or "\0" in name
        or any(part.strip() == ".." for part in parts)
        or len(name) > 255
    )
