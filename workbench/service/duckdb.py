"""`DuckDBSessionService`: the session service over a DuckDB file, with the reference's option names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from workbench.clock import Clock
from workbench.profiles import SEED, Profile
from workbench.service.service import AppendEventHook, GetSessionHook, SessionService
from workbench.service.settings import settings_given
from workbench.service.summaries import SummaryObserver
from workbench.session.types import Event, Session
from workbench.store.duckdb.queued import PERSISTERS, QueuedDuckDBStore, check_persisters
from workbench.store.duckdb.store import DuckDBStore, Durability
from workbench.store.search import Embedder
from workbench.summary.summarizer import SessionSummarizer


class DuckDBSessionService(SessionService):
    """Sessions in a DuckDB file that survive the process; durations are `timedelta`s (SUM-STO-14).

    Close it, or leave its `async with` block: that brings the journal into the file.

    Args:
        path: The file, created when it isn't there; `:memory:` = a temporary one.
        durability: `process`: an appended event survives a killed process; `disk`: a power cut too.
        soft_delete: Deleted sessions stay in the file as rows that nobody sees (SUM-STO-09).
        accept_loss: Open a damaged file with what is left of it; `service.store.losses` says what is missing.
        enable_async_persist: `append_event` returns once the event is in the live session and queued; it is stored
            in the background, before anything else that concerns its session. Closing stores what is queued, a
            killed process loses it, and a write that fails is only logged (SUM-STO-10).
        async_persister_num: Writers of queued events; each may have 100 waiting, then `append_event` waits for room.
    Raises:
        StoreLockedError: another process, or another service of this one, has the file.
        StoreCorruptError: not a store, or something acknowledged is missing; says what.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability = "process",
        soft_delete: bool = True,
        accept_loss: bool = False,
        enable_async_persist: bool = False,
        async_persister_num: int = PERSISTERS,
        summarizer: SessionSummarizer | None = None,
        async_summary_num: int | None = None,
        summary_queue_size: int | None = None,
        summary_job_timeout: timedelta | None = None,
        summary_filter_allowlist: Sequence[str] | None = None,
        cascade_full_session_summary: bool | None = None,
        session_event_limit: int | None = None,
        session_ttl: timedelta | None = None,
        app_state_ttl: timedelta | None = None,
        user_state_ttl: timedelta | None = None,
        cleanup_interval: timedelta | None = None,
        append_event_hooks: Sequence[AppendEventHook] = (),
        get_session_hooks: Sequence[GetSessionHook] = (),
        clock: Clock | None = None,
        profile: Profile = SEED,
        observer: SummaryObserver | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        settings = settings_given(
            async_summary_num=async_summary_num,
            summary_queue_size=summary_queue_size,
            summary_job_timeout_s=summary_job_timeout,
            summary_filter_allowlist=summary_filter_allowlist,
            cascade_full_session_summary=cascade_full_session_summary,
            event_limit=session_event_limit,
            session_ttl_s=session_ttl,
            app_state_ttl_s=app_state_ttl,
            user_state_ttl_s=user_state_ttl,
            cleanup_interval_s=cleanup_interval,
        )
        check_persisters(async_persister_num)
        kind = partial(QueuedDuckDBStore, n_persisters=async_persister_num) if enable_async_persist else DuckDBStore
        super().__init__(
            kind(
                path,
                event_limit=settings.event_limit,
                durability=durability,
                soft_delete=soft_delete,
                accept_loss=accept_loss,
                clock=clock,
            ),
            settings=settings,
            summarizer=summarizer,
            append_event_hooks=append_event_hooks,
            get_session_hooks=get_session_hooks,
            clock=clock,
            profile=profile,
            observer=observer,
            embedder=embedder,
        )
        self._waits_for_disk = durability == "disk" and not enable_async_persist

    async def _append(self, session: Session, event: Event) -> None:
        if self._waits_for_disk:
            # Written is written: who is cancelled while the disk confirms it must not part the live session from that.
            await asyncio.shield(super()._append(session, event))
        else:
            await super()._append(session, event)
