"""`workbench report`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse

from workbench.cli.options import assignment
from workbench.cli.output import print_runs, write_report


def add(command: argparse.ArgumentParser) -> None:
    """Write the HTML report of finished runs.

    workbench report --run today --run tuned --report reports/comparison.html
    """
    command.add_argument(
        "--run", dest="names", action="append", default=[], metavar="NAME", help="run id or name; default: all"
    )
    command.add_argument("--runs", default="runs", metavar="FOLDER", help="folder of the runs")
    command.add_argument("--report", default="reports/report.html", metavar="FILE", help="where it goes")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="price the runs anew, e.g. --set cache.provider=anthropic --set prices.model=claude-sonnet-4-5",
    )


def run(options: argparse.Namespace) -> int:
    from workbench.replay.runs import RunSet, load_runs

    runs = load_runs(options.runs, options.names)
    if changes := dict(assignment(text) for text in options.set):
        runs = RunSet([run.priced(**changes) for run in runs.values()], problems=runs.problems)
    print_runs(runs)
    print(f"\nreport: {write_report(runs, options.report)}")
    return 0
