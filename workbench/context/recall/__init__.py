"""Session history on demand: the tools session_search and session_load.

In: the run that calls, and what the model sent. Out: old messages of the same application and user, which a
summary, a history limit or compaction took out of the prompt. Implements assembly.md, section 12 (ASM-OND).
"""

from workbench.context.recall.load import session_load
from workbench.context.recall.run import RecallRun, hidden_boundary
from workbench.context.recall.search import session_search
from workbench.context.recall.tools import (
    OVERVIEWS,
    SESSION_LOAD,
    SESSION_SEARCH,
    STATIC_LISTING,
    TOOL_NAMES,
    call_on_demand_tool,
    on_demand_overview,
    on_demand_tools,
    with_overview,
)
from workbench.context.recall.types import (
    LoadedSessionMessage,
    LoadSessionRequest,
    LoadSessionResponse,
    SearchSessionHit,
    SearchSessionRequest,
    SearchSessionResponse,
)

__all__ = [
    "OVERVIEWS",
    "SESSION_LOAD",
    "SESSION_SEARCH",
    "STATIC_LISTING",
    "TOOL_NAMES",
    "LoadSessionRequest",
    "LoadSessionResponse",
    "LoadedSessionMessage",
    "RecallRun",
    "SearchSessionHit",
    "SearchSessionRequest",
    "SearchSessionResponse",
    "call_on_demand_tool",
    "hidden_boundary",
    "on_demand_overview",
    "on_demand_tools",
    "session_load",
    "session_search",
    "with_overview",
]
