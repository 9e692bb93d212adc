"""How much a model can take: a process-wide registry of context windows and output caps, by model name.

In: a model's name. Out: tokens, or None when nobody knows. Implements SUM-CHK-15, ASM-WIN-03 and -04. The
tables at the end are this project's own data; their source and date stand beside them. For private models
set the window on the model instance or on the run instead: two tenants can't share one name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from workbench.errors import ConfigError
from workbench.model.client import Model

UNKNOWN_WINDOW = 8_192
"""Window assumed for thresholds and summary requests when nobody knows it (SUM-CHK-14); token tailoring has
another fallback."""
_SUFFIX_MARKS = "-@:"
_lock = Lock()


def register_model_context_window(name: str, tokens: int) -> None:
    """Set the window of one model name; a later registration overwrites.

    Raises:
        ConfigError: blank name, or a window below 0.
    """
    register_model_context_windows({name: tokens})


def register_model_context_windows(windows: Mapping[str, int]) -> None:
    """Set several windows at once: all of them, or none if one is wrong.

    Raises:
        ConfigError: blank name, or a window below 0.
    """
    _register(_windows, windows, "context window")


def register_model_output_caps(caps: Mapping[str, int]) -> None:
    """Set how many tokens models can answer with at most.

    Raises:
        ConfigError: blank name, or a cap below 0.
    """
    _register(_output_caps, caps, "output cap")


def lookup_model_context_window(name: str) -> int | None:
    """The registered window of a model name, None if unknown.

    Case doesn't matter. Without an exact match the longest registered name counts that is followed by `-`,
    `@` or `:`, so `gpt-4o-2024` finds `gpt-4o` and `gpt-4omni` doesn't. A registered 0 is found as 0.
    """
    return _lookup(_windows, name)


def lookup_model_output_cap(name: str) -> int | None:
    """The registered output cap of a model name, by the same rule; None means no known cap."""
    return _lookup(_output_caps, name)


def known_context_window(model: Model | None) -> int:
    """The window of a model instance, else of its name; 0 when neither is known (ASM-WIN-01)."""
    if model is None:
        return 0
    if model.context_window > 0:
        return model.context_window
    return max(lookup_model_context_window(model.name) or 0, 0)


def resolve_context_window(*, override: int = 0, model: Model | None = None, fallback: int = UNKNOWN_WINDOW) -> int:
    """The run's override, else the model's known window, else `fallback`; values of 0 or less don't count."""
    return override if override > 0 else known_context_window(model) or fallback


@contextmanager
def model_windows_restored() -> Iterator[None]:
    """Whatever is registered inside the `with` block is forgotten behind it."""
    with _lock:
        windows, caps = dict(_windows), dict(_output_caps)
    try:
        yield
    finally:
        with _lock:
            for table, before in ((_windows, windows), (_output_caps, caps)):
                table.clear()
                table.update(before)


def _register(table: dict[str, int], entries: Mapping[str, int], what: str) -> None:
    for name, tokens in entries.items():
        if not name.strip():
            raise ConfigError.for_field("model name", name, "a name that isn't blank")
        if type(tokens) is not int or tokens < 0:
            raise ConfigError.for_field(f"{what} of {name}", tokens, "a whole number of tokens, at least 0")
    with _lock:
        table.update({name.lower(): tokens for name, tokens in entries.items()})


def _lookup(table: dict[str, int], name: str) -> int | None:
    wanted = name.lower()
    with _lock:
        if wanted in table:
            return table[wanted]
        for end in range(len(wanted) - 1, 0, -1):
            if wanted[end] in _SUFFIX_MARKS and wanted[:end] in table:
                return table[wanted[:end]]
    return None


# --- well-known models ----------------------------------------------------------------------------------
# Input and output limits as the providers' model pages gave them when this table was made (1 December 2026).
# A provider can change a limit without changing the name: what you measure or pay for wins.

WELL_KNOWN_DATE = "2026-12-01"

_WELL_KNOWN: dict[str, tuple[int, int]] = {
    # name: (context window, output cap; 0 = no known cap)
    # OpenAI
    "gpt-3.5-turbo": (16_385, 4_096),
    "gpt-4": (8_192, 8_192),
    "gpt-4-32k": (32_768, 8_192),
    "gpt-4-turbo": (128_000, 4_096),
    "gpt-4-1106-preview": (128_000, 4_096),
    "gpt-4-0125-preview": (128_000, 4_096),
    "gpt-4o": (128_000, 16_384),
    "gpt-4o-mini": (128_000, 16_384),
    "gpt-4.1": (1_047_576, 32_768),
    "gpt-4.1-mini": (1_047_576, 32_768),
    "gpt-4.1-nano": (1_047_576, 32_768),
    "gpt-5": (400_000, 128_000),
    "gpt-5-mini": (400_000, 128_000),
    "gpt-5-nano": (400_000, 128_000),
    "gpt-5-chat-latest": (128_000, 16_384),
    "gpt-5.1": (400_000, 128_000),
    "gpt-5.1-chat-latest": (128_000, 16_384),
    "gpt-5.2": (400_000, 128_000),
    "gpt-5.2-chat-latest": (128_000, 16_384),
    "gpt-5.4": (1_050_000, 128_000),
    "o1": (200_000, 100_000),
    "o3": (200_000, 100_000),
    "o3-mini": (200_000, 100_000),
    "o4-mini": (200_000, 100_000),
    # Anthropic
    "claude-3-haiku": (200_000, 4_096),
    "claude-3-opus": (200_000, 4_096),
    "claude-3-5-haiku": (200_000, 8_192),
    "claude-3-5-sonnet": (200_000, 8_192),
    "claude-3-7-sonnet": (200_000, 64_000),
    "claude-opus-4": (200_000, 32_000),
    "claude-opus-4-1": (200_000, 32_000),
    "claude-opus-4-5": (200_000, 64_000),
    "claude-sonnet-4": (200_000, 64_000),
    "claude-sonnet-4-5": (200_000, 64_000),
    "claude-haiku-4-5": (200_000, 64_000),
    # Google
    "gemini-1.5-flash": (1_048_576, 8_192),
    "gemini-1.5-pro": (2_097_152, 8_192),
    "gemini-2.0-flash": (1_048_576, 8_192),
    "gemini-2.5-flash": (1_048_576, 65_536),
    "gemini-2.5-pro": (1_048_576, 65_536),
    # DeepSeek
    "deepseek-chat": (131_072, 8_192),
    "deepseek-reasoner": (131_072, 65_536),
    "deepseek-v4-flash": (1_048_576, 0),
    # Zhipu
    "glm-4": (128_000, 0),
    "glm-4.5": (131_072, 0),
    "glm-4.6": (200_000, 0),
    "glm-5": (200_000, 0),
    # Alibaba; `qwen-max` names its older snapshots too, `-latest` is a longer model
    "qwen-max": (32_768, 8_192),
    "qwen-max-latest": (131_072, 8_192),
    "qwen-plus": (131_072, 8_192),
    "qwen-turbo": (131_072, 8_192),
}

_windows: dict[str, int] = {name: window for name, (window, _) in _WELL_KNOWN.items()}
_output_caps: dict[str, int] = {name: cap for name, (_, cap) in _WELL_KNOWN.items() if cap}
