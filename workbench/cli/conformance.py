"""`workbench conformance`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse

from workbench.cli.output import print_json


def add(command: argparse.ArgumentParser) -> None:
    """Run recorded cases of the reference through the engine.

    workbench conformance vectors/checkers.json --profile SEED
    """
    command.add_argument("files", nargs="+", metavar="FILE", help="vector files")
    command.add_argument("--profile", action="append", default=[], metavar="NAME", help="default: all three")
    command.add_argument(
        "--store", choices=["memory", "duckdb"], default="memory", help="what keeps the sessions of service cases"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from workbench.conformance import run_file
    from workbench.profiles import PROFILES, profile_named

    profiles = [profile_named(name) for name in options.profile] or list(PROFILES.values())
    results = [result for path in options.files for result in run_file(path, profiles, store=options.store)]
    failed = [result for result in results if result.verdict == "failed"]
    passed = len(results) - len(failed)
    if options.json:
        print_json({"passed": passed, "failed": len(failed), "cases": [asdict(result) for result in results]})
    else:
        for result in failed:
            print(f"{result.file} {result.id} {result.profile}: {result.difference}")
        print(f"{passed} passed, {len(failed)} failed")
    return 0 if passed and not failed else 1
