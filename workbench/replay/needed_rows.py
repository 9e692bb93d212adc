"""Rows of needed facts while a conversation is replayed: what the requests say of them, and what a search finds.

In: needed facts, requests as they are sent, the session service of the replay. Out: rows of `needed_facts` and
`fact_chance`. Joins the states (`needed_states.py`) and the engine's own `session_search` (WB-RET-01).
"""

from __future__ import annotations

from typing import Any

from workbench.agent.flow import SentRequest
from workbench.config import RunConfig
from workbench.context.recall import RecallRun, session_search
from workbench.replay.coverage import CoverageTracker
from workbench.replay.needed import NeededFacts
from workbench.replay.needed_states import FactState, FactTracker

Row = tuple[object, ...]


class FactRecorder:
    """Writes the rows of one conversation; without needed facts it does nothing."""

    def __init__(
        self,
        conversation: str,
        config: RunConfig,
        needed: NeededFacts | None,
        coverage: CoverageTracker,
        rows: dict[str, list[Row]],
    ) -> None:
        self._conversation = conversation
        self._config = config
        self._coverage = coverage
        self._rows = rows["needed_facts"]
        self._service: Any = None
        self._waiting: tuple[list[FactState], SentRequest] | None = None
        self._tracker: FactTracker | None = None
        if needed is None:
            return
        may_search = config.agent.enable_on_demand_session
        self._tracker = FactTracker(needed, self._hits if may_search else None)
        if needed.compared_with:
            rows["fact_chance"] += [(conversation, needed.compared_with, *count) for count in needed.chance]

    def begin(self, service: Any) -> None:
        """The service whose sessions are searched."""
        self._service = service

    def on_call(self, call: int, sent: SentRequest, n_shared: int) -> None:
        """A request was sent, and coverage has taken it in."""
        if self._tracker is None:
            return
        states = self._tracker.observe(call, sent, n_shared, self._coverage)
        if self._tracker.search is None:
            self._write(states)
        else:
            self._waiting = (states, sent)

    async def search(self) -> None:
        """Look for what the request just sent doesn't say, and write its rows."""
        if self._tracker is not None and self._waiting is not None:
            states, sent = self._waiting
            self._waiting = None
            self._write(await self._tracker.searched(states, sent, self._coverage))

    async def _hits(self, sent: SentRequest, query: str) -> tuple[str, ...]:
        run = RecallRun(
            session=sent.session,
            service=self._service,
            event_filter_key=sent.invocation.filter_key,
            profile=self._config.engine_profile,
        )
        return tuple(hit.event_id for hit in (await session_search(run, {"query": query})).results)

    def _write(self, states: list[FactState]) -> None:
        self._rows += [
            (
                self._conversation,
                one.needed.call,
                one.candidate.kind,
                one.candidate.value,
                one.needed.source,
                one.source_id,
                one.needed.source_role,
                one.state,
                one.step,
                one.n_summaries,
            )
            for one in states
        ]
