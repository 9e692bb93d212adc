"""Every error the package raises on purpose, as one tree.

    WorkbenchError                      .hint
      ConfigError (also ValueError)     field, value, allowed        -> fix the configuration
        PromptRenderError
        UnsafePathError               path, root
      RecordingError (also ValueError)  path, line, column, reason   -> fix or skip the record
      StoreError
        StoreLockedError                path, pid
        StoreCorruptError               path, part
        StoreVersionError               found, supported
        StoreFullError, StoreClosedError
        SessionError
          InvalidSessionKeyError        field
          SessionNotFoundError
          EventWindowAnchorNotFoundError
        WriteConflictError
      ModelError                        model, request_id, retryable
        ModelTimeoutError, RateLimitError, ContextLengthError,
        ModelAuthError, ModelStreamError, ContentFilterError, ModelCallForbiddenError
      SummaryError
        NothingToSummarizeError, SummaryInputTooLargeError, EmptySummaryError, SummaryModelError,
        SummaryHookError, SummaryCallbackError, NoSummarizerResolvedError
      AssemblyError
        TokenTailoringOverflowError     messages, tokens, max_tokens
      RecallError
      ReplayError
        CassetteMissError             closest, field, position     -> record the answer
        CassetteFormatError           path, line
      MetricError
        NotEnoughDataError              have, need
      ContractError (also AssertionError)

A leaf says what failed; its parent says what a caller can do about it. The text of an error is one
sentence, holds no conversation content and no key, and `hint` says what to do next; tracebacks show both.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any


class WorkbenchError(Exception):
    """Parent of all errors of this package; `hint` says what to do, empty when the text says it."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        if hint:
            self.add_note(hint)  # a traceback prints notes below the text, and knows no `hint`

    def one_line(self) -> str:
        """The sentence for a terminal: what, where, what now."""
        text = " ".join(str(self).split())
        return f"{text}; {self.hint}" if self.hint else text


def nearest_name(name: str, known: Iterable[str]) -> str:
    """`did you mean X`, or the empty text when nothing known is close."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""


class ConfigError(WorkbenchError, ValueError):
    """A setting has a value that isn't allowed, or doesn't exist."""

    exit_code = 2

    def __init__(self, message: str, *, field: str = "", value: Any = None, allowed: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.field = field
        self.value = value
        self.allowed = allowed

    @classmethod
    def for_field(cls, field: str, value: Any, allowed: str, *, hint: str = "") -> ConfigError:
        """`field = value; allowed: ...`, the form all settings errors take."""
        return cls(f"{field} = {value!r}; allowed: {allowed}", field=field, value=value, allowed=allowed, hint=hint)


class PromptRenderError(ConfigError):
    """A template names a placeholder that nothing fills."""


class UnsafePathError(ConfigError):
    """A name that came out of a file leads outside the folder that it belongs to."""

    def __init__(
        self, path: str, root: str | Path, reason: str = "leads outside", *, where: str = "", field: str = "path"
    ) -> None:
        shown = ascii(path if len(path) <= 80 else f"{path[:80]}…")
        folder = f"{Path(root).name or root}/"
        what = f"{reason} {folder}" if reason == "leads outside" else reason
        hint = f"name a file inside {folder}, relative to it"
        super().__init__(f"{where}{shown} {what}", field=field, value=path, hint=hint)
        self.path = path
        self.root = str(root)
        self.reason = reason


class RecordingError(WorkbenchError, ValueError):
    """A recording, or a part of one, can't be read."""

    exit_code = 3

    def __init__(
        self, reason: str, *, path: str | Path = "", line: int | None = None, column: int | None = None, hint: str = ""
    ) -> None:
        self.path = str(path)
        self.line = line
        self.column = column
        self.reason = reason
        where = self.path
        if line is not None:
            where += f":{line}"
            if column is not None:
                where += f":{column}"
        super().__init__(f"{where}: {reason}" if where else reason, hint=hint)


class StoreError(WorkbenchError):
    """A store of sessions or of runs can't do what was asked."""

    exit_code = 4


class StoreLockedError(StoreError):
    """Another process holds the file."""

    def __init__(self, message: str, *, path: str | Path = "", pid: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = str(path)
        self.pid = pid


class StoreCorruptError(StoreError):
    """A file isn't what it claims to be."""

    def __init__(self, message: str, *, path: str | Path = "", part: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = str(path)
        self.part = part


class StoreVersionError(StoreError):
    """A file was written by a newer release."""

    def __init__(self, message: str, *, found: int, supported: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.found = found
        self.supported = supported


class StoreFullError(StoreError):
    """The disk has no room left."""


class StoreClosedError(StoreError):
    """The store was closed, or belongs to another process."""


class SessionError(StoreError):
    """A session call can't be carried out."""


class InvalidSessionKeyError(SessionError):
    """An application, user or session id is empty."""

    def __init__(self, field: str) -> None:
        super().__init__(f"{field} is empty", hint=f"give a non-empty {field}")
        self.field = field


class SessionNotFoundError(SessionError):
    """No live session has this key."""


class SessionExistsError(SessionError):
    """A live session has this key already."""


class EventWindowAnchorNotFoundError(SessionError):
    """The anchor event of a window isn't in the session, or isn't a message."""


class StateKeyError(SessionError, ValueError):
    """A state key has a prefix that this scope may not write."""


class PagingError(SessionError, ValueError):
    """Offset, limit or window sizes can't be combined or are out of range."""


class WriteConflictError(StoreError):
    """Concurrent writers kept colliding."""


class ModelError(WorkbenchError):
    """A model call failed."""

    exit_code = 5

    def __init__(
        self, message: str, *, model: str = "", request_id: str = "", retryable: bool = False, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.model = model
        self.request_id = request_id
        self.retryable = retryable


class ModelTimeoutError(ModelError):
    """No answer in time."""


class RateLimitError(ModelError):
    """The provider asks to slow down; `retry_after_s` is its wish, None if it gave none."""

    def __init__(self, message: str, *, retry_after_s: float | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.retry_after_s = retry_after_s


class ContextLengthError(ModelError):
    """The request is longer than the model's window."""

    def __init__(
        self, message: str, *, needed_tokens: int | None = None, max_tokens: int | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.needed_tokens = needed_tokens
        self.max_tokens = max_tokens


class ModelAuthError(ModelError):
    """The provider refused the key."""


class ModelStreamError(ModelError):
    """A stream ended before its answer did."""

    def __init__(self, message: str, *, received_chars: int = 0, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.received_chars = received_chars


class ContentFilterError(ModelError):
    """The provider's content filter stopped the answer."""


class ModelCallForbiddenError(ModelError):
    """Real model calls are switched off here."""


class SummaryError(WorkbenchError):
    """A summary couldn't be made; text and boundary are as before."""


class NothingToSummarizeError(SummaryError):
    """No events, or no conversation text in them."""


class SummaryInputTooLargeError(SummaryError):
    """The summary request doesn't fit the summary model's budget."""


class EmptySummaryError(SummaryError):
    """The model answered with an empty summary."""


class SummaryModelError(SummaryError):
    """The summary model failed; type, message and code are in the text."""


class SummaryHookError(SummaryError):
    """A hook raised while `hook_abort_on_error` is on."""


class SummaryCallbackError(SummaryError):
    """A model callback raised."""


class NoSummarizerResolvedError(SummaryError):
    """A dynamic summarizer had none to give."""


class AssemblyError(WorkbenchError):
    """A request can't be assembled."""


class TokenTailoringOverflowError(AssemblyError):
    """Even the smallest context is over the budget; `messages` is that context."""

    def __init__(self, messages: tuple[Any, ...], tokens: int, max_tokens: int) -> None:
        super().__init__(
            f"the smallest context needs {tokens} tokens, the budget is {max_tokens}",
            hint="raise the model's window or lower its output reserve",
        )
        self.messages = messages
        self.tokens = tokens
        self.max_tokens = max_tokens


class RecallError(WorkbenchError):
    """An on-demand history tool can't answer."""


class ReplayError(WorkbenchError):
    """A replay can't go on."""


class CassetteMissError(ReplayError):
    """A cassette holds no answer to a request; `field` is the first one in which the closest entry differs."""

    def __init__(
        self, message: str, *, closest: str = "", field: str = "", position: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.closest = closest
        self.field = field
        self.position = position


class CassetteFormatError(ReplayError):
    """A file isn't a cassette, or no longer what was recorded."""

    def __init__(self, message: str, *, path: str | Path = "", line: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = str(path)
        self.line = line


class MetricError(WorkbenchError):
    """A figure can't be computed."""


class NotEnoughDataError(MetricError):
    """Too little data for an honest figure."""

    def __init__(self, what: str, *, have: int, need: int) -> None:
        super().__init__(f"{what}: {have} found, at least {need} needed", hint="add recordings")
        self.have = have
        self.need = need


class ContractError(WorkbenchError, AssertionError):
    """A session service breaks a rule that all of them keep (`workbench.service.conformance`)."""
