"""What the next summary of a session would do, and what it would cost, without calling a model (WB-RPL-16).

In: a recorded conversation as it stands at its end, and a configuration. Out: a `DryRun`: how far the trigger is, what
a summary made now would cover, what the request for it holds, and what the next prompt would be shorter by. The
production engine makes it; a recorded, extractive or sized summary stands in for a live model's.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from workbench.config import RunConfig
from workbench.errors import ConfigError, SummaryError
from workbench.evaluate.net import CACHED_PRICE, net_of_summary
from workbench.recordings.types import Conversation
from workbench.replay.conversation import replay_conversation
from workbench.replay.trace import TABLES
from workbench.service.service import SessionService
from workbench.session.types import Session
from workbench.summary.report import FORCE


@dataclass(frozen=True, slots=True)
class DryRun:
    """The next summary of one conversation, as if it were made at the end of the recording."""

    conversation: str
    stand_in: str
    """Where the text came from: extractive, sized, cassette."""
    last_check: str
    """What the trigger said last, in words; empty when it was never checked."""
    events_covered: int
    """0: nothing is new; made all the same, a summary would only cost."""
    covered_tokens: int
    request_tokens: int
    """What the summary model would read."""
    completion_tokens: int
    saved_tokens: int
    """Covered events and the summary before, minus the new summary."""
    prompt_tokens_before: int
    """The next prompt as it would be now, without its new message."""
    net_cost: float
    """Net tokens of the summary call."""

    @property
    def prompt_tokens_after(self) -> int:
        """The same prompt with the new summary."""
        return self.prompt_tokens_before - self.saved_tokens

    @property
    def calls_to_pay_back(self) -> float | None:
        """Further calls after which the summary call is paid for: what is saved was mostly cached, and cheap.

        None when nothing is saved.
        """
        return self.net_cost / (CACHED_PRICE * self.saved_tokens) if self.saved_tokens > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        values = {name: getattr(self, name) for name in DryRun.__slots__}
        return values | {"prompt_tokens_after": self.prompt_tokens_after, "calls_to_pay_back": self.calls_to_pay_back}


def dry_run(conversation: Conversation, config: RunConfig) -> DryRun:
    """What the next summary of a conversation would do.

    Args:
        config: Must make summaries. With `summaries.source = "live"` a text of the word limit's size stands in.
    Raises:
        ConfigError: the configuration makes no summaries.
    """
    if config.summarizer is None:
        raise ConfigError(
            "this configuration makes no summaries", field="summarizer", hint="add a [summarizer] table to it"
        )
    if config.summaries.source == "live":
        config = config.replace(summaries={"source": "sized", "latency_s": 0.0})

    async def summarise_now(service: SessionService, session: Session) -> None:
        with suppress(SummaryError):  # nothing to summarise: the rows say so
            await service.create_session_summary(session, conversation.app_name, force=True)

    trace = replay_conversation(conversation, config, at_end=summarise_now)
    rows: dict[str, list[dict[str, Any]]] = {
        name: [dict(zip(TABLES[name].column_names, row, strict=True)) for row in trace.rows[name]]
        for name in ("calls", "checks", "summaries")
    }
    last_call = rows["calls"][-1] if rows["calls"] else None
    written = [row for row in rows["summaries"] if row["status"] == "written"]
    now = written[-1] if written and _is_forced(written[-1], len(rows["calls"])) else None
    before = [row for row in written if row is not now and row["filter_key"] == conversation.app_name]
    checks = [row for row in rows["checks"] if row["name"] != FORCE]
    size = 0 if last_call is None else last_call["prompt_tokens"] + last_call["answer_tokens"]
    saved = 0
    if now is not None and config.agent.add_session_summary:
        old = before[-1]["completion_tokens"] if before else 0
        saved = now["covered_tokens"] + old - now["completion_tokens"]
    return DryRun(
        conversation=conversation.id,
        stand_in=config.summaries.source,
        last_check=checks[-1]["reason"] if checks else "",
        events_covered=0 if now is None else now["events_covered"],
        covered_tokens=0 if now is None else now["covered_tokens"],
        request_tokens=0 if now is None else now["request_tokens"],
        completion_tokens=0 if now is None else now["completion_tokens"],
        saved_tokens=saved,
        prompt_tokens_before=size,
        net_cost=0.0 if now is None else net_of_summary(now),
    )


def _is_forced(row: dict[str, Any], n_calls: int) -> bool:
    return bool(row["trigger"] == FORCE and row["call"] == n_calls)
