"""`workbench replay`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.options import (
    add_config_options,
    add_fact_options,
    add_recording_options,
    add_run_options,
    call_named,
    configs_of,
    facts_wanted,
    kept_of,
    load,
)
from workbench.cli.output import print_json, print_kept, print_problems, print_runs, write_report
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.replay.runs import RunSet


def add(command: argparse.ArgumentParser) -> None:
    """Replay recordings under one or more configurations.

    workbench replay chats.jsonl --config today.toml --config tuned.toml --report reports/first.html
    """
    add_recording_options(command)
    add_config_options(command)
    command.add_argument("--report", metavar="FILE", help="also write an HTML report")
    command.add_argument(
        "--show",
        metavar="CONVERSATION:CALL",
        help="print the exact request of one call instead of the table, and why it is so; with several --config "
        "what the others send instead of the first; calls are numbered from 0, as in reports",
    )
    command.add_argument("--full", action="store_true", help="with --show: texts from beginning to end")
    add_fact_options(command)
    add_run_options(command)


def run(options: argparse.Namespace) -> int:
    from workbench.replay.replay import replay

    configs = configs_of(options)
    wanted = call_named(options.show) if options.show else None
    if options.full and wanted is None:
        raise ConfigError("--full shows a call whole", field="full", hint="say which: --show CONVERSATION:CALL")
    wants_facts = facts_wanted(options)
    recordings = load(options)
    runs = replay(recordings, configs, runs=options.runs, jobs=options.jobs, fresh=options.fresh)
    report = write_report(runs, options.report) if options.report else None
    if wanted is not None:
        return _show(runs, *wanted, options, report)
    kept = kept_of(runs, options) if wants_facts else []
    if options.json:
        result: dict[str, Any] = {
            "runs": runs.facts(),
            "problems": [problem.as_dict() for problem in recordings.problems],
        }
        result |= {"facts": {one.run: one.as_dict() for one in kept}} if kept else {}
        return print_json(result | ({"report": str(report)} if report else {}))
    print_runs(runs)
    print_kept(kept)
    print_problems(recordings)
    print(f"\nruns:   {options.runs}  (what is in them: workbench sql --tables)")
    if report:
        print(f"report: {report}")
    return 0


def _show(runs: RunSet, conversation: str, call: int, options: argparse.Namespace, report: Path | None) -> int:
    from workbench.report.prompt import calls_text

    calls = [run.call(conversation, call) for run in runs.values()]
    if options.json:
        diffs = [calls[0].diff(other).as_dict() for other in calls[1:]]
        problems = [problem.as_dict() for problem in runs.problems]
        shown = {"calls": [found.as_dict() for found in calls], "diffs": diffs, "problems": problems}
        return print_json(shown | ({"report": str(report)} if report else {}))
    print(calls_text(calls, full=options.full))
    if report:
        print(f"\nreport: {report}")
    return 0
