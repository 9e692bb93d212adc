"""Session Summary Workbench: replay recorded conversations through a session-summary engine, and ship it.

The way of the data, which the alphabetical listing hides:
recordings -> session -> store -> summary -> context -> service -> agent -> replay -> evaluate -> report -> production.

Names below are loaded when they are first used, so `import workbench` is light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from workbench.version import __version__

if TYPE_CHECKING:
    from workbench import report
    from workbench.agent.agent import LLMAgent
    from workbench.agent.runner import Runner, RunOptions
    from workbench.agent.tools import FunctionTool
    from workbench.call import CallContext
    from workbench.config import RunConfig
    from workbench.errors import WorkbenchError
    from workbench.evaluate.calibrate import calibrate
    from workbench.evaluate.compare import compare
    from workbench.evaluate.sweep import sweep
    from workbench.model.openai import OpenAIModel
    from workbench.model.scripted import ScriptedAnswer, ScriptedModel
    from workbench.model.types import Message, Request, Response, ToolCall
    from workbench.production.export import export
    from workbench.production.load import load_service
    from workbench.recordings import Conversation, load_recordings, write_recording
    from workbench.recordings.generate import generate_conversation
    from workbench.recordings.recorder import record
    from workbench.regression.check import check
    from workbench.replay.replay import replay
    from workbench.replay.runs import Run, load_runs
    from workbench.service.duckdb import DuckDBSessionService
    from workbench.service.in_memory import InMemorySessionService
    from workbench.service.run_sync import run_sync
    from workbench.session.types import Event, Session, SessionKey, Summary
    from workbench.summary.summarizer import Summarizer
    from workbench.tokens import SimpleTokenCounter, TiktokenCounter

_HOMES = {
    "CallContext": "workbench.call",
    "Conversation": "workbench.recordings",
    "DuckDBSessionService": "workbench.service.duckdb",
    "Event": "workbench.session.types",
    "FunctionTool": "workbench.agent.tools",
    "InMemorySessionService": "workbench.service.in_memory",
    "LLMAgent": "workbench.agent.agent",
    "Message": "workbench.model.types",
    "OpenAIModel": "workbench.model.openai",
    "Request": "workbench.model.types",
    "Response": "workbench.model.types",
    "Run": "workbench.replay.runs",
    "RunConfig": "workbench.config",
    "RunOptions": "workbench.agent.runner",
    "Runner": "workbench.agent.runner",
    "ScriptedAnswer": "workbench.model.scripted",
    "ScriptedModel": "workbench.model.scripted",
    "Session": "workbench.session.types",
    "SessionKey": "workbench.session.types",
    "SimpleTokenCounter": "workbench.tokens",
    "Summarizer": "workbench.summary.summarizer",
    "Summary": "workbench.session.types",
    "TiktokenCounter": "workbench.tokens",
    "ToolCall": "workbench.model.types",
    "WorkbenchError": "workbench.errors",
    "calibrate": "workbench.evaluate.calibrate",
    "check": "workbench.regression.check",
    "compare": "workbench.evaluate.compare",
    "export": "workbench.production.export",
    "generate_conversation": "workbench.recordings.generate",
    "load_recordings": "workbench.recordings",
    "load_runs": "workbench.replay.runs",
    "load_service": "workbench.production.load",
    "record": "workbench.recordings.recorder",
    "replay": "workbench.replay.replay",
    "report": "workbench",
    "run_sync": "workbench.service.run_sync",
    "sweep": "workbench.evaluate.sweep",
    "write_recording": "workbench.recordings",
}

__all__ = [
    "CallContext",
    "Conversation",
    "DuckDBSessionService",
    "Event",
    "FunctionTool",
    "InMemorySessionService",
    "LLMAgent",
    "Message",
    "OpenAIModel",
    "Request",
    "Response",
    "Run",
    "RunConfig",
    "RunOptions",
    "Runner",
    "ScriptedAnswer",
    "ScriptedModel",
    "Session",
    "SessionKey",
    "SimpleTokenCounter",
    "Summarizer",
    "Summary",
    "TiktokenCounter",
    "ToolCall",
    "WorkbenchError",
    "__version__",
    "calibrate",
    "check",
    "compare",
    "export",
    "generate_conversation",
    "load_recordings",
    "load_runs",
    "load_service",
    "record",
    "replay",
    "report",
    "run_sync",
    "sweep",
    "write_recording",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    value = import_module("workbench.report") if name == "report" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
