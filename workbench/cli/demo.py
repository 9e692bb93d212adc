"""`workbench demo`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse

from workbench.cli.options import add_run_options
from workbench.cli.output import print_json, print_runs, write_report


def add(command: argparse.ArgumentParser) -> None:
    """Replay the bundled recordings under several configurations and write a report.

    workbench demo --report reports/demo.html
    """
    command.add_argument("--report", default="reports/demo.html", metavar="FILE", help="where the report goes")
    add_run_options(command)


def run(options: argparse.Namespace) -> int:
    from workbench.demo import demo_configs, demo_recordings
    from workbench.replay.replay import replay

    runs = replay(demo_recordings(), demo_configs(), runs=options.runs, jobs=options.jobs, fresh=options.fresh)
    if options.json:
        return print_json({"runs": runs.facts(), "problems": [], "report": str(write_report(runs, options.report))})
    print_runs(runs)
    print(f"\nreport: {write_report(runs, options.report)}")
    print(f"runs:   {options.runs}  (what is in them: workbench sql --tables)")
    return 0
