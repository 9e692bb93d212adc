"""The exported Python module: with nothing but this package it sends what the exported TOML sends."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import workbench as wb
from tests.production.strategies import configs
from tests.replay.conftest import summarising
from workbench.build import engine_counter, trigger_checks
from workbench.config import RunConfig
from workbench.errors import ConfigError
from workbench.production.python_source import python_text
from workbench.production.stamp import Stamp

ROOT = Path(__file__).resolve().parent.parent.parent

# What both sides do, in a process of its own: an application that writes, calls a tool and remembers.
APPLICATION = '''
import asyncio, importlib.util, json, sys
import workbench as wb
from workbench.clock import FixedClock
from workbench.model.extractive import ExtractiveModel

class Numbered:
    def __init__(self): self.n = 0
    def __call__(self, event):
        self.n += 1
        return event.replace(id=event.id or f"e{self.n}", invocation_id="run")

def look_up(order: str) -> str:
    """Where an order is."""
    return f"order {order}: " + "shipped. " * 80

def main_model():
    call = wb.ToolCall(id="c1", name="look_up", arguments='{"order": "7731"}')
    return wb.ScriptedModel([wb.ScriptedAnswer(tool_calls=(call,)), "It was shipped on day 4.", "Yes.", "Good bye."])

async def conversation(service, runner, requests):
    async with service:
        for i, text in enumerate(("Where is order 7731?", "退款多少？订单 A1002", "Thanks, that is all about 7731.", "Bye")):
            clock.advance(__import__("datetime").timedelta(minutes=i))
            async for _ in runner.run("u", "s", text, wb.RunOptions(request_id=f"r{i}", invocation_id=f"i{i}")):
                pass
            await service.wait_for_summaries()

clock, requests = FixedClock(1_770_000_000_000_000_000), []
hooks = {"make_event": Numbered(), "on_request": lambda sent: requests.append(repr(sent.request))}
path, tool = sys.argv[1], [wb.FunctionTool(look_up)]
if path.endswith(".py"):
    spec = importlib.util.spec_from_file_location("exported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    service = module.build_service(ExtractiveModel(), clock=clock)
    agent = module.build_agent(main_model(), name="support", instruction="Be brief.", tools=tool)
    runner = module.build_runner("shop", agent, service, clock=clock, **hooks)
else:
    production = wb.load_service(path, summary_model=ExtractiveModel(), clock=clock)
    service = production.service
    runner = production.runner(
        "shop", name="support", instruction="Be brief.", tools=tool, model=main_model(), **hooks
    )
asyncio.run(conversation(service, runner, requests))
print(json.dumps({"requests": requests, "modules": [name for name in sys.modules if name.split(".")[0] == "tests"]}))
'''

BEHAVIOURS = {
    "user": summarising("user", token=120, mode="user", summarizer={"max_summary_words": 20, "skip_recent": 1}),
    "fork": summarising(
        "fork",
        summarizer={
            "cache_safe_forking": True,
            "prompt": "Sum up.\n\n{conversation_text}\n\nIn short: \"'`",
            "max_summary_words": 0,
        },
        trigger={"any": [{"event": 3}, {"all": [{"token": 4}, {"time": "2m"}, {"context": {"min_tokens": 9}}]}]},
        counter={"kind": "scripts", "scripts": {"han": 1.2}, "runes_per_token": 2.0},
        compaction={"enabled": True, "tool_result_max_tokens": 20, "keep_recent_requests": 0, "skip_recent": 1},
        tailoring={"enabled": True, "max_input_tokens": 900},
        agent={"sync_summary_intra_run": True, "enable_on_demand_session": True},
        service={"summary_job_timeout_s": 2.5, "event_limit": 500, "summary_filter_allowlist": ["shop"]},
        profile="TRPC_AGENT_GO_2026_08",
    ),
}


@pytest.fixture(scope="module")
def empty_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of a process that can import this package and what it needs, and nothing else of here."""
    packages = tmp_path_factory.mktemp("packages")
    (packages / "workbench").symlink_to(ROOT / "workbench")
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "PYTHONPATH": str(packages), "WORKBENCH_FORBID_MODEL_CALLS": "1"}


def behaviour(path: Path, environment: dict[str, str], folder: Path) -> dict[str, list[str]]:
    program = folder / "application.py"
    program.write_text(APPLICATION, "utf-8")
    arguments = [sys.executable, "-W", "error", program, path]
    ran = subprocess.run(arguments, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr
    found: dict[str, list[str]] = json.loads(ran.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if n else ()) for n, name in enumerate(BEHAVIOURS)]
)
def test_the_module_behaves_as_the_file_with_nothing_but_this_package(
    name: str, tmp_path: Path, empty_environment: dict[str, str]
) -> None:
    """WB-EXP-01: same requests, in an environment without tests, folder or configuration file."""
    made = wb.export(BEHAVIOURS[name], tmp_path / "out", to=["toml", "python"])
    work = tmp_path / "elsewhere"
    work.mkdir()
    by_module = behaviour(made.paths["python"], empty_environment, work)
    by_file = behaviour(made.paths["toml"], empty_environment, work)
    assert by_module == by_file
    assert not by_module["modules"]
    assert len(by_module["requests"]) >= 5
    assert any("<summary" in request or "summary" in request for request in by_module["requests"])
    plain = wb.export(RunConfig(name="plain"), tmp_path / "out", to="python").paths["python"]
    assert behaviour(plain, empty_environment, work)["requests"] != by_module["requests"]


def test_the_module_reads_no_file_and_imports_only_this_package(tmp_path: Path) -> None:
    """WB-EXP-01: readable code with public option names, no call that loads the TOML."""
    text = python_text(BEHAVIOURS["fork"], Stamp.of(BEHAVIOURS["fork"], date="2026-03-01"))
    imported = {
        node.module.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert imported == {"__future__", "collections", "datetime", "pathlib", "typing", "workbench"}
    assert "load" not in text
    for line in (
        "        check_event_threshold(3),",
        "        cache_safe_forking=True,",
        'COUNTER = ScriptTokenCounter({"han": 1.2}, default=2.0)',
        '        "summary_job_timeout": timedelta(seconds=2.5),',
        "PROFILE = TRPC_AGENT_GO_2026_08",
    ):
        assert f"\n{line}\n" in text or f"\n    {line}\n" in text


def test_models_that_the_configuration_names_have_functions() -> None:
    """WB-EXP-01: a key is a variable's name, never a value."""
    made = summarising(
        "m",
        model={"name": "gpt-4o", "context_window": 64_000},
        summaries={
            "source": "live",
            "model": "small",
            "cassette": "c.jsonl",
            "api_key_env": "OUR_KEY",
            "timeout_s": 5.0,
        },
    )
    text = python_text(made, Stamp.of(made, date="2026-03-01"))
    names: dict[str, object] = {}
    exec(compile(text, "exported", "exec"), names)
    main, small = names["build_model"](), names["build_summary_model"]()
    assert (main.name, main.context_window, small.name, small._key_variable) == ("gpt-4o", 64_000, "small", "OUR_KEY")
    only_window = summarising("w", model={"context_window": 9})
    exec(compile(python_text(only_window, Stamp.of(only_window, date="2026-03-01")), "exported", "exec"), names)
    assert names["build_model"]("any").context_window == 9


@pytest.mark.slow
@given(configs)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_configuration_becomes_a_module_that_builds_it(made: RunConfig) -> None:
    """WB-EXP-01: hostile texts are literals, and every part has the settings of the configuration."""
    text = python_text(made, Stamp.of(made, date="2026-03-01"))
    names: dict[str, object] = {}
    exec(compile(text, "exported", "exec"), names)
    agent = names["build_agent"](wb.ScriptedModel(["hello"]))
    assert (agent.settings, agent.compaction, agent.tailoring) == (made.agent, made.compaction, made.tailoring)
    assert (agent.skip_recent_func is not None) == bool(made.compaction.skip_recent)
    assert agent.skip_recent_func is None or agent.skip_recent_func([]) == made.compaction.skip_recent
    counter = engine_counter(made).counter_id
    assert agent.compaction_counter.counter_id == agent.tailoring_counter.counter_id == counter
    service = names["build_service"](wb.ScriptedModel(["hello"]))
    assert service.profile == made.engine_profile
    rounded = {name: value for name, value in made.service if not name.endswith("_s")}
    assert {name: getattr(service.settings, name) for name in rounded} == rounded
    for name, value in made.service:
        if name.endswith("_s"):
            assert getattr(service.settings, name) == pytest.approx(value, abs=1e-6)
    if made.summarizer is None:
        assert service.summarizer is None
    else:
        assert service.summarizer.settings == made.summarizer
        assert service.summarizer._counter.counter_id == counter
        assert list(service.summarizer._checks) == trigger_checks(made.trigger)


@pytest.mark.parametrize("seconds", [1e12, 1e-9])
def test_a_duration_that_source_cannot_hold_is_refused(seconds: float) -> None:
    """WB-EXP-01."""
    made = summarising("t", trigger={"all": [{"time": seconds}]})
    with pytest.raises(ConfigError, match=r"trigger\.all\.time"):
        python_text(made, Stamp.of(made, date="2026-03-01"))
