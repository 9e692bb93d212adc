"""The window registry: names, prefixes, tables, and the order of what counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from workbench.errors import ConfigError
from workbench.model.scripted import ScriptedModel
from workbench.model.windows import (
    UNKNOWN_WINDOW,
    known_context_window,
    lookup_model_context_window,
    lookup_model_output_cap,
    model_windows_restored,
    register_model_context_window,
    register_model_context_windows,
    register_model_output_caps,
    resolve_context_window,
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with model_windows_restored():
        yield


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("GPT-4O", 128_000),
        ("gpt-4o-mini-preview", 128_000),
        ("gpt-4", 8_192),
        ("gpt-5.2", 400_000),
        ("gpt-5.2-chat-latest", 128_000),
        ("deepseek-chat", 131_072),
        ("deepseek-v4-flash", 1_048_576),
        ("glm-5@latest", 200_000),
        ("glm-5x", None),
        ("qwen-max-2025-01-25", 32_768),
        ("qwen-max-latest", 131_072),
        ("claude-opus-4-5@20251101", 200_000),
        ("gpt-5.4x", None),
    ],
)
def test_well_known_models_have_their_windows(name, window):
    """ASM-WIN-04."""
    assert lookup_model_context_window(name) == window


def test_exact_name_wins_over_a_prefix():
    """SUM-CHK-15, ASM-WIN-03."""
    register_model_context_windows({"acme": 10, "acme-large": 20})
    assert lookup_model_context_window("acme-large") == 20


@pytest.mark.parametrize("suffix", ["-2024", "@prod", ":latest"])
def test_longest_registered_prefix_counts_when_a_mark_follows(suffix):
    """SUM-CHK-15, ASM-WIN-03."""
    register_model_context_windows({"acme": 10, "acme-large": 20})
    assert lookup_model_context_window(f"Acme-LARGE{suffix}") == 20
    assert lookup_model_context_window(f"acme-small{suffix}") == 10


def test_a_longer_word_is_another_model():
    """SUM-CHK-15: `gpt-4omni` is no `gpt-4o`."""
    assert lookup_model_context_window("gpt-4omni") is None
    assert lookup_model_context_window("") is None


def test_later_registration_overwrites_and_zero_is_found():
    """SUM-CHK-15."""
    register_model_context_window("acme", 10)
    register_model_context_window("ACME", 0)
    assert lookup_model_context_window("acme") == 0


@pytest.mark.parametrize("entries", [{" ": 5}, {"acme": -1}, {"acme": True}, {"fine": 1, "acme": 1.5}])
def test_a_bad_batch_registers_nothing(entries):
    """ASM-WIN-03, SUM-ERR-02."""
    with pytest.raises(ConfigError):
        register_model_context_windows(entries)
    assert lookup_model_context_window("fine") is None


def test_registrations_inside_the_block_are_forgotten():
    """SUM-CHK-15."""
    with model_windows_restored():
        register_model_context_window("gpt-4o", 5)
        register_model_output_caps({"acme": 7})
        assert lookup_model_output_cap("acme-2") == 7
    assert lookup_model_context_window("gpt-4o") == 128_000
    assert lookup_model_output_cap("acme-2") is None


def test_output_caps_are_a_table_of_their_own():
    """ASM-WIN-04: unknown means no cap."""
    assert lookup_model_output_cap("gpt-4o-2024-11-20") == 16_384
    assert lookup_model_output_cap("glm-5") is None


def test_instance_window_beats_the_registry():
    """ASM-WIN-01."""
    assert known_context_window(ScriptedModel(name="gpt-4o", context_window=100)) == 100
    assert known_context_window(ScriptedModel(name="gpt-4o", context_window=-1)) == 128_000
    assert known_context_window(ScriptedModel(name="nobody")) == 0
    assert known_context_window(None) == 0


def test_override_then_model_then_fallback():
    """ASM-WIN-01, ASM-WIN-02."""
    model = ScriptedModel(name="gpt-4o")
    assert resolve_context_window(override=5, model=model) == 5
    assert resolve_context_window(override=0, model=model) == 128_000
    assert resolve_context_window(model=None) == UNKNOWN_WINDOW == 8192
    assert resolve_context_window(fallback=77) == 77
