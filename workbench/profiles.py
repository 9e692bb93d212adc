"""Profiles: the switches on which the seed document and two revisions of the reference differ.

In: a name. Out: a `Profile`, handed to every engine object that has to choose. Implements summary.md
sections 0.1 and 21 and assembly.md section 16; every difference is one field.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from workbench.errors import ConfigError, nearest_name


@dataclass(frozen=True, slots=True)
class Profile:
    """One consistent choice on every point where seed and reference differ."""

    name: str = "SEED"
    count_previous_summary: bool = False
    """The synthetic previous-summary event counts as one new event and its text as new tokens (D4)."""
    summary_lookup_any: bool = True
    """Reading the text falls back to any other summary when key and full session have none (D3)."""
    history_limit_unit: Literal["run", "message"] = "run"
    """What `max_history_runs` counts (DA1)."""
    reference_quirks: bool = False
    """Reproduce the reference's known defects, to predict what that release does (DA9, SUM-CORE-02, SUM-CAS-05)."""
    overflow_policy: Literal["bounded", "lossless"] = "bounded"
    """What happens to a summary source over the budget (D1)."""
    fork_prompt_in_fallback: bool = False
    """Standalone requests carry the fork prompt too while forking is enabled (D2)."""
    model_visible_view: bool = False
    """Summaries are made of what the model saw in its last request (summary.md, section 15)."""
    user_anchors: bool = False
    """The user message of a turn split by the cutoff is brought back (DA11)."""
    guarded_post_hook: bool = True
    """The boundary is protected from the post hook and rolled back on abort (SUM-HOOK-07)."""
    job_after_error_event: bool = False
    """An error event enqueues a summary job (D6)."""
    prompt_errors: Literal["raise", "warn"] = "raise"
    """What a broken prompt template does at construction (SUM-OPT-03)."""
    search_first_choice_only: bool = False
    """Searches and windows see only the first choice of an event, so one of several parallel tool results (DA12)."""

    def replace(self, **changes: Any) -> Profile:
        """A copy with other switches."""
        return replace(self, **changes)


SEED = Profile()
TRPC_AGENT_GO_2026_07 = Profile(
    name="TRPC_AGENT_GO_2026_07",
    count_previous_summary=True,
    summary_lookup_any=False,
    history_limit_unit="message",
    reference_quirks=True,
    guarded_post_hook=False,
    job_after_error_event=True,
    prompt_errors="warn",
    search_first_choice_only=True,
)
TRPC_AGENT_GO_2026_08 = TRPC_AGENT_GO_2026_07.replace(
    name="TRPC_AGENT_GO_2026_08",
    overflow_policy="lossless",
    fork_prompt_in_fallback=True,
    model_visible_view=True,
    user_anchors=True,
    guarded_post_hook=True,
    job_after_error_event=False,
)
PROFILES = {profile.name: profile for profile in (SEED, TRPC_AGENT_GO_2026_07, TRPC_AGENT_GO_2026_08)}


def profile_named(name: str) -> Profile:
    """The built-in profile of this name.

    Raises:
        ConfigError: there is none; the hint is the nearest name.
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise ConfigError.for_field(
            "profile", name, ", ".join(PROFILES), hint=nearest_name(name.upper(), PROFILES)
        ) from None
