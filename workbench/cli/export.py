"""`workbench export`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse

from workbench.cli.options import seed
from workbench.cli.output import plain, print_json


def add(command: argparse.ArgumentParser) -> None:
    """Write a configuration for production, with its evidence: TOML, JSON, Python, Go, or a record of the decision.

    workbench export tuned.toml --to toml,go,markdown --out production --run "no summary" --run tuned
    """
    command.add_argument("config", metavar="CONFIG", help="TOML or JSON file")
    command.add_argument(
        "--to",
        metavar="FORMS",
        help="of toml, json, python, go and markdown, joined by commas; default: what the ending of --out says, or "
        "toml,markdown",
    )
    command.add_argument(
        "--out", default="production", metavar="FOLDER", help="where the files go; for one form a file"
    )
    command.add_argument(
        "--run",
        dest="names",
        action="append",
        default=[],
        metavar="NAME",
        help="a finished run of the configuration, by id or name, as evidence; further ones are what it is compared with",
    )
    command.add_argument("--runs", default="runs", metavar="FOLDER", help="folder of the runs")
    command.add_argument("--backend", default="inmemory", metavar="NAME", help="where the Go source keeps sessions")
    command.add_argument("--date", metavar="DAY", help="stands in the files; default: today")
    command.add_argument(
        "--allow-unreachable", action="store_true", help="export a trigger that never fires on the run's recordings"
    )
    command.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the intervals")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from workbench.config import RunConfig
    from workbench.production.export import export
    from workbench.replay.runs import load_runs

    made = export(
        RunConfig.load(options.config),
        options.out,
        to=None if options.to is None else [form.strip() for form in options.to.split(",") if form.strip()],
        evidence=load_runs(options.runs, options.names) if options.names else None,
        backend=options.backend,
        date=options.date,
        allow_unreachable=options.allow_unreachable,
        seed=options.seed,
    )
    if options.json:
        return print_json(made.as_dict())
    print("\n".join(map(plain, made.stamp.lines())))
    if made.evidence is None:
        print("No evidence is in the files: name the run that it was tuned in with --run.")
    for path in made.paths.values():
        print(f"written: {path}")
    return 0
