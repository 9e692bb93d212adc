"""Options of prompt assembly, compaction and tailoring, as a configuration file holds them.

In: plain values. Out: frozen `Settings`; an unknown mode name or a number out of range is a `ConfigError`
(ASM-CHAIN-07). Defaults are those of assembly.md, sections 2 to 6 and 10. Callables (formatter, counter,
skip function) aren't settings; they're passed to the functions that use them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from workbench.profiles import Profile
from workbench.settings import Settings

DEFAULT_CONTEXT_COMPACTION_OVERSIZED_TOOL_RESULT_MAX_TOKENS = 8192
"""The suggested limit of pass 2; it isn't set by itself."""


class SessionSummaryInjectionMode(StrEnum):
    """Where the summary goes: into the system message, or in front of the first user message."""

    SYSTEM = "system"
    USER = "user"


class PreloadMemoryInjectionMode(StrEnum):
    """Where preloaded memories go."""

    SYSTEM = "system"
    USER = "user"


class PreloadSessionRecallInjectionMode(StrEnum):
    """Where recalled events of other sessions go."""

    SYSTEM = "system"
    USER = "user"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


Placement = Annotated[Literal["system", "user"], BeforeValidator(_plain)]
TimelineMode = Literal["all", "request", "invocation"]
BranchMode = Literal["prefix", "subtree", "exact", "all"]
MessageFilterMode = Literal["full_context", "request_context", "isolated_request", "isolated_invocation"]

_PRESETS: dict[str, tuple[TimelineMode, BranchMode]] = {
    "full_context": ("all", "prefix"),
    "request_context": ("request", "prefix"),
    "isolated_request": ("request", "exact"),
    "isolated_invocation": ("invocation", "exact"),
}


class AgentSettings(Settings):
    """What an agent puts into its requests."""

    add_session_summary: bool = False
    """Inject the stored summary and send only the events after it; default false (ASM-INJ-01)."""
    summary_injection_mode: Placement = "system"
    """Place of the summary: system (never trimmed) or user (trimmed like a round); default system (ASM-INJ-05, -08)."""
    max_history_runs: int = Field(default=0, ge=0)
    """Rounds (or messages, see `history_limit_unit`) of history without a summary; 0 = all, the default
    (ASM-HIST-16)."""
    history_limit_unit: Literal["run", "message"] | None = None
    """What `max_history_runs` counts; default: as the profile says (DA1)."""
    sync_summary_intra_run: bool = False
    """Check for a summary between the model calls of one run; default false (ASM-INTRA-01)."""
    message_filter_mode: MessageFilterMode | None = None
    """Preset for the two filters below; overrides them when given; default none (ASM-EVT-08)."""
    timeline_filter_mode: TimelineMode = "all"
    """History of all requests, of this request, or of this invocation; default all (ASM-EVT-05)."""
    branch_filter_mode: BranchMode = "prefix"
    """Which filter keys are visible; default prefix: ancestors and descendants (ASM-EVT-06)."""
    tool_transcript_mode: Literal["keep_all", "omit_previous_completed"] = "keep_all"
    """Keep the tool rounds of earlier requests, or leave out the answered ones; default keep_all (ASM-HIST-08)."""
    reasoning_content_mode: Literal["discard_previous_turns", "keep_all", "discard_all"] = "discard_previous_turns"
    """What happens to reasoning text of the past; default discard_previous_turns (ASM-HIST-13)."""
    add_context_prefix: bool = False
    """Mark messages of other agents with `For context:`; default false (ASM-HIST-11)."""
    preserve_same_branch: bool = False
    """Keep the roles of other agents' messages on the same branch line; default false (ASM-HIST-09)."""
    preserve_foreign_messages: bool = False
    """Keep the roles of all other agents' messages; default false (ASM-HIST-09)."""
    enable_on_demand_session: bool = False
    """Offer `session_search` and `session_load`; default false (ASM-OND-01)."""
    preload_memory: int = Field(default=0, ge=-1)
    """Memories to preload from the runner's `memory_service`: 0 = off (default), -1 = all, N = up to N (ASM-PRE-02)."""
    preload_memory_injection_mode: Placement = "system"
    """Place of preloaded memories; default system (ASM-PRE-01)."""
    preload_memory_playbook: str = ""
    """Text in front of preloaded memories; blank = the built-in one, the default (ASM-PRE-04)."""
    preload_session_recall: int = Field(default=0, ge=0)
    """Events of other sessions to preload; 0 = off, the default (ASM-PRE-05)."""
    preload_session_recall_injection_mode: Placement = "system"
    """Place of recalled events; default system (ASM-PRE-01)."""
    preload_session_recall_min_score: float = 0.0
    """Least score of a recalled event; default 0 (ASM-PRE-05)."""
    preload_session_recall_search_mode: Literal["hybrid", "dense"] = "hybrid"
    """How recalled events are searched; default hybrid (ASM-PRE-05)."""
    user_anchors: bool | None = None
    """Bring back the user message of a turn that the summary splits; default: as the profile says (DA11)."""
    summary_fallback_to_full: bool = False
    """Inject the full-session summary when the branch has none; default false (DA7)."""
    tailor_with_run_window: bool = False
    """Tailoring obeys the run's window override; default false: it's for thresholds only (DA5)."""

    @property
    def timeline(self) -> TimelineMode:
        """The timeline filter in force."""
        return _PRESETS[self.message_filter_mode][0] if self.message_filter_mode else self.timeline_filter_mode

    @property
    def branches(self) -> BranchMode:
        """The branch filter in force."""
        return _PRESETS[self.message_filter_mode][1] if self.message_filter_mode else self.branch_filter_mode

    def limit_unit(self, profile: Profile) -> Literal["run", "message"]:
        """What `max_history_runs` counts under a profile."""
        return self.history_limit_unit or profile.history_limit_unit

    def has_user_anchors(self, profile: Profile) -> bool:
        """Whether split turns get their user message back under a profile."""
        return profile.user_anchors if self.user_anchors is None else self.user_anchors


class CompactionSettings(Settings):
    """When tool results are rewritten inside a request (ASM-CMP, 6.1)."""

    enabled: bool = False
    """Master switch of all passes and of the pre-call retry; default false (ASM-CMP-01)."""
    threshold_ratio: float = Field(default=0.7, gt=0, le=1)
    """Share of the window at which the pre-call retry starts; default 0.7 (ASM-CMP-02)."""
    tool_result_max_tokens: int = Field(default=1024, ge=0)
    """Pass 1: tokens a historical tool result may have; 0 = off; default 1024."""
    oversized_tool_result_max_tokens: int = Field(default=0, ge=0)
    """Pass 2: tokens any tool result may have; 0 = off, the default; 8192 is a good value."""
    keep_recent_requests: int = Field(default=1, ge=0)
    """Completed requests before the current one that passes 0 and 1 spare; default 1 (ASM-CMP-10)."""
    keep_tool_names: tuple[str, ...] = Field(default=(), strict=False)
    """Tools whose results are never rewritten; default none."""
    force_clean_tool_names: tuple[str, ...] = Field(default=(), strict=False)
    """Pass 0: tools whose historical results are always replaced; default none."""
    skip_recent: int | None = Field(default=None, ge=0)
    """Newest events whose requests passes 0 and 1 spare as well; default none (ASM-CMP-12)."""


class TailoringSettings(Settings):
    """How the message list is made to fit before it is sent (ASM-TLR)."""

    enabled: bool = False
    """Drop rounds that don't fit; default false (ASM-TLR-01)."""
    max_input_tokens: int = Field(default=0, ge=0)
    """Budget in tokens; 0 = computed from the window, the default (ASM-TLR-02)."""
    strategy: Literal["middle_out", "head_out", "tail_out"] = "middle_out"
    """Which rounds go first; default middle_out (ASM-TLR-08)."""
    protocol_overhead_tokens: int = Field(default=512, ge=0)
    """Tokens kept for the protocol; default 512 (ASM-TLR-02)."""
    reserve_output_tokens: int = Field(default=2048, ge=0)
    """Tokens kept for the answer; default 2048 (ASM-TLR-02)."""
    safety_margin_ratio: float = Field(default=0.10, ge=0, le=1)
    """Share of the window kept for counting errors; default 0.1 (ASM-TLR-02)."""
    input_tokens_floor: int = Field(default=1024, ge=0)
    """Least computed budget, if the window allows it; default 1024 (ASM-TLR-02)."""
    max_input_tokens_ratio: float = Field(default=1.0, gt=0, le=1)
    """Most of the window that input may take; default 1.0 (ASM-TLR-02)."""
