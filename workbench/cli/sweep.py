"""`workbench sweep`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

from workbench.cli.options import (
    add_change_options,
    add_recall_option,
    add_recording_options,
    add_run_options,
    changed,
    load,
    recall_of,
    seed,
    value_of,
)
from workbench.cli.output import print_json, print_problems
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.evaluate.sweep import Sweep


def add(command: argparse.ArgumentParser) -> None:
    """Try a grid of options, or one made from the recordings, and write the recommended configuration.

    workbench sweep chats.jsonl --over trigger.token=1000,2000,4000 --out tuned.toml --yes
    """
    add_recording_options(command)
    command.add_argument("--config", metavar="FILE", help="what every run starts from; default: an empty file")
    add_change_options(command)
    command.add_argument(
        "--over",
        action="append",
        default=[],
        metavar="OPTION=VALUES",
        help="an option and its values: 1000,2000 or [1000, 2000] or a range 1000..8000/4 (four values)",
    )
    command.add_argument("--grid", metavar="FILE", help="TOML or JSON file with a table of options and their values")
    command.add_argument("--max-runs", type=int, metavar="N", help="refuse more runs than this; default 10,000")
    command.add_argument("--seed", type=seed, default=0, metavar="N", help="of the part to choose on, and intervals")
    add_recall_option(command)
    command.add_argument("--out", default="reports/recommended.toml", metavar="FILE", help="the recommendation")
    command.add_argument("--report", metavar="FILE", help="also write an HTML report of the best runs")
    command.add_argument("--yes", action="store_true", help="begin without asking")
    add_run_options(command)


def run(options: argparse.Namespace) -> int:
    from workbench.config import RunConfig
    from workbench.evaluate.grid import DEFAULT_MAX_RUNS
    from workbench.evaluate.sweep import plan_sweep, sweep
    from workbench.report.comparison import plan_text, sweep_text
    from workbench.report.whole_file import write_whole

    base = changed([RunConfig.load(options.config) if options.config else RunConfig()], options)[0]
    recordings = load(options)
    max_runs = DEFAULT_MAX_RUNS if options.max_runs is None else options.max_runs
    plan = plan_sweep(recordings, base, _grid(options), max_runs=max_runs)
    print(plan_text(plan), file=sys.stderr if options.json else sys.stdout, flush=True)
    if not options.yes:
        _ask("begin?")
    found = sweep(
        recordings,
        base,
        plan=plan,
        seed=options.seed,
        min_recall=recall_of(options),
        runs=options.runs,
        jobs=options.jobs,
        fresh=options.fresh,
    )
    written = None if found.config is None else write_whole(options.out, found.config.to_toml())
    report = None
    if options.report:
        from workbench.replay.runs import RunSet
        from workbench.report.page import page

        best = RunSet(list(found.comparison.runs.values()), problems=recordings.problems)  # type: ignore[arg-type]
        report = page(best, options.report, comparison=found.comparison)
    if options.json:
        said: dict[str, Any] = {"problems": [problem.as_dict() for problem in recordings.problems]}
        said |= {"config": str(written)} if written else {}
        return print_json(found.as_dict() | said | ({"report": str(report)} if report else {}))
    print(f"\n{sweep_text(found)}")
    print_problems(recordings)
    if written:
        print(f"\nrecommended configuration: {written}")
        print(f"with its evidence to production: {_export_command(found, options)}")
    if report:
        print(f"report: {report}")
    return 0


def _export_command(found: Sweep, options: argparse.Namespace) -> str:
    """The command that exports the recommendation; the baseline is what it is compared with."""
    from workbench.replay.runs import RUNS_FOLDER

    names = dict.fromkeys([found.recommended or "", found.baseline])
    command = ["workbench", "export", options.out]
    for name in names:
        command += ["--run", found.runs[name].run_id]
    if options.runs != RUNS_FOLDER:
        command += ["--runs", options.runs]
    return shlex.join(command)


def _grid(options: argparse.Namespace) -> dict[str, Any] | None:
    """The grid of a file and of `--over`; None when neither is given."""
    from workbench.config import table_of_file

    grid: dict[str, Any] = {}
    if options.grid:
        values = table_of_file(options.grid)
        said = values.get("grid", values)
        if not isinstance(said, dict):
            raise ConfigError(f"{options.grid}: grid: expected a table of options and their values", field="grid")
        grid |= said
    for text in options.over:
        option, sign, listed = text.partition("=")
        if not sign:
            raise ConfigError.for_field("--over", text, "OPTION=VALUES, for example trigger.token=1000,2000")
        if option in grid:
            raise ConfigError.for_field("--over", option, "each option once", hint="join its values by commas")
        grid[option] = _axis(listed)
    return grid or None


def _axis(text: str) -> Any:
    """`1000,2000`, `[1000, 2000]` or `1000..8000/4`."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)\.\.(\d+(?:\.\d+)?)/(\d+)", text, re.ASCII):
        low, high = (float(end) if "." in end else int(end) for end in found.groups()[:2])
        steps = int(found[3])
        return {"from": low, "to": high, "steps": steps}
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError.for_field("--over", text, "values as JSON, or joined by commas") from error
    return [value_of(part) for part in text.split(",") if part]


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("nobody is here to be asked", field="yes", hint="give --yes to begin at once")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise KeyboardInterrupt
