"""Recorded answers of a model: kept once, played back without a network (WB-RPL-07, REL-15).

In: a model, and the requests that go to it. Out: a file of answers, found again by what was asked. A request
is reduced to an allow-list of fields, so headers, extra fields and keys can't get into the file (SEC-08).

The file is JSON lines: a head with format and version, then one entry per request. The order of entries means
nothing; each is known by the sha256 of its request and carries a checksum, so that an entry that was edited,
or two that disagree, are noticed instead of played.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, get_args

from workbench.call import CallContext
from workbench.clock import NS_PER_S, Clock, SystemClock
from workbench.errors import (
    CassetteFormatError,
    CassetteMissError,
    ConfigError,
    ContentFilterError,
    ContextLengthError,
    ModelError,
)
from workbench.model.cassette_entry import (
    Entry,
    canonical_json,
    common_start,
    copy_of,
    first_difference,
    is_kept,
    request_fields,
    request_key,
    response_fields,
    response_of_fields,
)
from workbench.model.client import BudgetedModel, Model
from workbench.model.types import Request, Response

FORMAT_NAME = "workbench-cassette"
FORMAT_VERSION = 1
Mode = Literal["play", "record", "auto"]
_RECORD_AGAIN = "record what is missing with the same configuration and `--summaries live`"


# --- the file -------------------------------------------------------------------------------------------


class Closest(NamedTuple):
    """The recorded request that is most like one that wasn't found."""

    entry: Entry
    field: str
    """The first field that differs."""
    position: int | None
    """Where in that field's text; None for a field that isn't text or is missing."""


class Cassette:
    """Recorded answers in one file, which several processes may add to.

    Nothing is read before it is needed. An end that was cut off is left out, with a note.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._notes: list[str] = []
        self._cut_line: int | None = None
        self._entries: dict[str, Entry] = {}
        self._texts: dict[str, str] = {}
        self._identity: tuple[int, int] | None = None
        self._n_bytes = 0
        """Up to where the file has been read."""
        self._n_lines = 0
        self._lacks_newline = False

    def __len__(self) -> int:
        return len(self.entries())

    def entries(self) -> list[Entry]:
        """All entries, in the order of the file.

        Raises:
            CassetteFormatError: the file isn't there, or isn't a cassette of this version.
        """
        self._refresh()
        return list(self._entries.values())

    def find(self, key: str) -> Entry | None:
        """The entry of a request, also one that another process has just added; None without one or a file."""
        if not self.path.exists():
            self._forget()
            return None
        self._refresh()
        return self._entries.get(key)

    @property
    def notes(self) -> list[str]:
        """What was odd about the file, but did no harm."""
        cut = [] if self._cut_line is None else [f"line {self._cut_line} is cut; left out"]
        return [*self._notes, *cut]

    @property
    def content_hash(self) -> str:
        """sha256 over all entries, whatever their order."""
        checks = sorted(str(entry.fields()["check"]) for entry in self.entries())
        return hashlib.sha256("".join(checks).encode()).hexdigest()

    def closest(self, request: dict[str, Any]) -> Closest | None:
        """The entry most like a request: by the length of text that is equal from the start and from the end."""
        text = canonical_json(request)
        best: Entry | None = None
        best_score = -1
        for entry in self._entries.values():
            other = self._text_of(entry)
            start = common_start(text, other)
            score = min(start + common_start(text[::-1], other[::-1]), len(text), len(other))
            if score > best_score:
                best, best_score = entry, score
        if best is None:
            return None
        field, position = first_difference(request, best.request) or ("", None)
        return Closest(best, field, position)

    def _text_of(self, entry: Entry) -> str:
        key = entry.key
        if key not in self._texts:
            self._texts[key] = canonical_json(entry.request)
        return self._texts[key]

    # --- reading -----------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read what is new; everything, if it is another file by now."""
        try:
            status = self.path.stat()
            if (status.st_dev, status.st_ino) == self._identity and status.st_size == self._n_bytes > 0:
                return
            with self.path.open("rb") as file:
                self._read(file)
        except OSError as error:
            raise CassetteFormatError(
                f"{self.path}: the cassette can't be read: {error.strerror}", path=self.path, hint=_RECORD_AGAIN
            ) from error

    def _forget(self) -> None:
        self._entries, self._texts, self._notes, self._cut_line = {}, {}, [], None
        self._identity, self._n_bytes, self._n_lines, self._lacks_newline = None, 0, 0, False

    def _read(self, file: IO[bytes]) -> None:
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        if identity != self._identity or status.st_size < self._n_bytes:
            self._forget()
            self._identity = identity
        if status.st_size == self._n_bytes:
            if not self._n_lines:
                raise self._fault("the file is empty")
            return
        file.seek(self._n_bytes)
        self._cut_line = None
        for data in file:  # binary, so that lines end at LF only (M18)
            self._take(data, is_whole=data.endswith(b"\n"))

    def _take(self, data: bytes, *, is_whole: bool) -> None:
        """One line. A last one without its end is either complete all the same or was cut."""
        if self._lacks_newline and data == b"\n":
            self._lacks_newline = False
            self._n_bytes += 1
            return
        line = self._n_lines + 1
        if line > 1 and data == b"\n":
            self._n_lines = line
            self._n_bytes += 1
            return
        try:
            raw = json.loads(data)
        except (ValueError, RecursionError):
            if is_whole or line == 1:
                what = "not a cassette" if line == 1 else "not JSON"
                raise self._fault(what, line=line) from None
            self._cut_line = line
            return
        if line == 1:
            self._check_head(raw)
        else:
            self._keep(raw, line)
        self._n_lines = line
        self._n_bytes += len(data)
        self._lacks_newline = not is_whole

    def _check_head(self, raw: Any) -> None:
        if not isinstance(raw, dict) or raw.get("format") != FORMAT_NAME:
            raise self._fault("not a cassette", line=1)
        if raw.get("version") != FORMAT_VERSION:
            raise self._fault(f"format version {raw.get('version')}; this release reads {FORMAT_VERSION}", line=1)

    def _keep(self, raw: Any, line: int) -> None:
        try:
            entry = Entry.of(raw, line)
        except (KeyError, TypeError, AttributeError):
            raise self._fault("not an entry of a cassette", line=line) from None
        except ValueError as error:
            raise self._fault(str(error), line=line, hint="undo the change, or record it again") from None
        earlier = self._entries.get(entry.key)
        if earlier is None:
            self._entries[entry.key] = entry
        elif earlier.agrees_with(entry):
            self._notes.append(f"line {line} repeats line {earlier.line}")
        else:
            raise self._fault(
                f"another answer to the request of line {earlier.line}", line=line, hint="keep one of the two lines"
            )

    def _fault(self, what: str, *, line: int | None = None, hint: str = "") -> CassetteFormatError:
        where = f"{self.path}:{line}" if line is not None else str(self.path)
        return CassetteFormatError(f"{where}: {what}", path=self.path, line=line, hint=hint or "name another file")

    # --- writing -----------------------------------------------------------------------------------------

    def add(self, entry: Entry, *, replaces: bool = False) -> Entry:
        """Keep an entry; it is in the file when this returns.

        Args:
            replaces: Take the place of an entry of the same request. Without it the first one stays, so that
                processes that ask the same at the same time go on with the same answer.
        Returns:
            The entry in force.
        """
        with self._locked() as file:
            self._catch_up(file)
            earlier = self._entries.get(entry.key)
            if earlier is not None and not replaces:
                return earlier
            if earlier is not None:
                self._entries[entry.key] = entry
                self._rewrite(list(self._entries.values()))
                return entry
            self._append(file, entry)
        return entry

    def _catch_up(self, file: IO[bytes]) -> None:
        """Read what the locked file has; a new one has nothing, whatever was read from the one before it."""
        if file.tell():
            self._read(file)
        else:
            self._forget()

    def _append(self, file: IO[bytes], entry: Entry) -> None:
        file.truncate(self._n_bytes)  # a line that was cut is gone for good
        self._cut_line = None
        data = b"\n" if self._lacks_newline else b""
        if not self._n_lines:
            data += _line({"format": FORMAT_NAME, "version": FORMAT_VERSION})
        n_lines = max(self._n_lines, 1) + 1
        data += _line(entry.fields())
        file.write(data)
        file.flush()
        self._entries[entry.key] = replace(entry, line=n_lines)
        self._n_lines, self._lacks_newline = n_lines, False
        self._n_bytes += len(data)

    def tidy(self) -> None:
        """Sort the entries by their keys, so that the file is the same however many processes wrote it."""
        if not self.path.exists():
            return
        with self._locked() as file:
            self._catch_up(file)
            keys = sorted(self._entries)
            if keys != list(self._entries) or self.notes:
                self._rewrite([self._entries[key] for key in keys])

    def _rewrite(self, entries: Sequence[Entry]) -> None:
        """Put a new file in the place of the old one in one step."""
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_line({"format": FORMAT_NAME, "version": FORMAT_VERSION}))
                file.writelines(_line(entry.fields()) for entry in entries)
            Path(temporary).chmod(stat.S_IMODE(self.path.stat().st_mode))
            Path(temporary).replace(self.path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._identity = None  # read again when it is needed

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """The file, made if need be, at its end, while nobody else writes to it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                with self.path.open("a+b") as file:
                    _lock(file)
                    # Meanwhile another process may have put a new file in its place.
                    if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                        file.seek(0, os.SEEK_END)
                        yield file
                        return
        except OSError as error:
            raise CassetteFormatError(
                f"{self.path}: the cassette can't be written: {error.strerror}",
                path=self.path,
                hint="name another file",
            ) from error


def _lock(file: IO[bytes]) -> None:
    """Wait until no other process holds the file; closing it lets go."""
    try:
        import fcntl
    except ImportError:  # a system without it: one process at a time, please
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def _line(fields: dict[str, Any]) -> bytes:
    """One line of the file, letters of all languages as they are where UTF-8 has them."""
    try:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


# --- the model ------------------------------------------------------------------------------------------


class CassetteModel:
    """Answers from a cassette, or from another model whose answers it keeps.

    Args:
        cassette: Where answers are kept.
        inner: Whom to ask; never asked in mode `play`.
        mode: `play` answers from the cassette only, `auto` asks for what is missing, `record` asks anew, once
            per request.
        name, context_window: Of the recorded model; empty and 0 mean those of `inner`, else the recorded ones.
        clock: Measures how long answers take.
        takes_recorded_time: Wait as long as the recorded answer took; on a virtual loop that costs nothing.
    Raises:
        ConfigError: there is nobody to ask, or the cassette has answers of several models and none is named.
    """

    def __init__(
        self,
        cassette: Cassette,
        inner: Model | None = None,
        mode: Mode = "play",
        *,
        name: str = "",
        context_window: int = 0,
        clock: Clock | None = None,
        takes_recorded_time: bool = False,
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigError.for_field("mode", mode, "play, record or auto")
        if inner is None and mode != "play":
            raise ConfigError(f"mode {mode!r} needs a model to ask", field="inner", hint="give one, or play only")
        if mode == "play":
            cassette.entries()  # a file that can't be read is said at once
        self.cassette = cassette
        self.name = name or (inner.name if inner is not None else recorded_model(cassette))
        self.context_window = context_window or (
            inner.context_window if inner is not None else _recorded_window(cassette, self.name)
        )
        self.n_asked = 0
        """Calls of the other model."""
        self.n_played = 0
        """Answers from the cassette."""
        self._inner = inner
        self._mode = mode
        self._clock = clock or SystemClock()
        self._takes_recorded_time = takes_recorded_time
        self._fresh: set[str] = set()

    def input_token_budget(self, request: Request) -> int:
        """The other model's own budget; 0 without one."""
        inner = self._inner
        if isinstance(inner, BudgetedModel):
            return inner.input_token_budget(request)
        return 0

    async def generate(self, ctx: CallContext, request: Request) -> AsyncIterator[Response]:
        """The recorded responses, or those of the other model.

        Raises:
            CassetteMissError: the cassette has no answer, and nobody may be asked.
            ModelError: the recorded model refused the request, or the other model failed.
        """
        fields = request_fields(self.name, request)
        key = request_key(fields)
        entry = self.cassette.find(key)
        if self._mode == "record" and key not in self._fresh:
            entry = None
        if entry is not None:
            self.n_played += 1
        elif self._inner is None or self._mode == "play":
            raise self._miss(fields)
        else:
            entry = await self._ask(ctx, self._inner, request, fields)
        if self._takes_recorded_time:
            await asyncio.sleep(entry.duration_s)
        for response in entry.play():
            yield response

    async def _ask(self, ctx: CallContext, inner: Model, request: Request, fields: dict[str, Any]) -> Entry:
        """The other model's answer, kept; so what is played later is exactly what was handed on now."""
        self.n_asked += 1
        start_ns = self._clock.now_ns()
        responses: list[Response] = []
        failure: ModelError | None = None
        try:
            responses = [response async for response in inner.generate(ctx, request)]
        except (ContextLengthError, ContentFilterError) as error:
            failure = copy_of(error)
        entry = Entry(
            request=fields,
            # As they would come back from the file, so that playing gives the same.
            responses=tuple(
                response_of_fields(response_fields(response)) for response in responses if is_kept(response)
            ),
            failure=failure,
            duration_s=round(max(self._clock.now_ns() - start_ns, 0) / NS_PER_S, 3),
            context_window=self.context_window,
        )
        self._fresh.add(entry.key)
        return self.cassette.add(entry, replaces=self._mode == "record")

    def _miss(self, fields: dict[str, Any]) -> CassetteMissError:
        what = f"{self.cassette.path}: no recorded answer for this request"
        closest = self.cassette.closest(fields)
        if closest is None:
            return CassetteMissError(f"{what}; the cassette has no entry", hint=_RECORD_AGAIN)
        place = closest.field if closest.position is None else f"{closest.field} at character {closest.position}"
        where = f"line {closest.entry.line}"
        return CassetteMissError(
            f"{what}; the closest entry ({where}) first differs in {place}",
            closest=where,
            field=closest.field,
            position=closest.position,
            hint=_RECORD_AGAIN,
        )


def recorded_model(cassette: Cassette) -> str:
    """The model whose answers a cassette holds.

    Raises:
        ConfigError: it holds answers of several models, or of none.
    """
    names = sorted({entry.model for entry in cassette.entries()})
    if len(names) != 1:
        raise ConfigError(
            f"{cassette.path}: has answers of {', '.join(names) or 'no model'}", field="model", hint="name the model"
        )
    return names[0]


def _recorded_window(cassette: Cassette, model: str) -> int:
    return max((entry.context_window for entry in cassette.entries() if entry.model == model), default=0)
