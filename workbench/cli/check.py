"""`workbench check`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.output import print_json, print_problems
from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.regression.check import CheckResult


def add(command: argparse.ArgumentParser) -> None:
    """Check the summaries of a suite against its expectations; exits with 1 when one fails.

    workbench check datasets/service.suite.toml --junit reports/summaries.xml
    """
    command.add_argument("suite", metavar="SUITE", help="a suite file; what it names lies in its folder")
    command.add_argument(
        "--accept", action="store_true", help="show what differs from the accepted baseline, then write the new one"
    )
    command.add_argument(
        "--record",
        action="store_true",
        help="ask the configuration's summary source, and judges, for what the cassettes lack; needs their key",
    )
    command.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 when something is undecided or a recording has a problem, too",
    )
    command.add_argument(
        "--init",
        nargs="+",
        metavar="RECORDING",
        help="write the suite file first, for these recordings and the configuration of --config, all in its folder",
    )
    command.add_argument("--config", metavar="FILE", help="the configuration that --init is about")
    command.add_argument("--junit", metavar="FILE", help="also write JUnit XML, for CI")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes; one is best below 50,000 events")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from workbench.regression.check import check
    from workbench.regression.words import changes_text, check_text

    if options.init or options.config:
        return _begin(options)

    def show(found: CheckResult) -> None:
        if not options.json:
            print(changes_text(found), end="\n\n", flush=True)

    result = check(
        options.suite, accept=options.accept, record=options.record, jobs=options.jobs, before_accepting=show
    )
    if options.junit:
        _write(options.junit, result.junit())
    if options.json:
        print_json(result.as_dict() | ({"accepted": str(result.accepted)} if result.accepted else {}))
    else:
        print(check_text(result))
        print_problems(result)
        if result.accepted:
            print(f"\naccepted: {result.accepted}")
    return 0 if _is_fine(result, strict=options.strict) else 1


def _begin(options: argparse.Namespace) -> int:
    from workbench.regression.template import new_suite

    if not options.init or not options.config:
        given, missing = ("--init", "--config") if options.init else ("--config", "--init")
        raise ConfigError(f"{given} without {missing}", field=missing, hint="a new suite is written with both")
    if options.accept or options.record or options.junit:
        raise ConfigError("--init only writes the suite", field="--init", hint="then check it with --accept")
    suite = new_suite(options.suite, options.init, options.config)
    if options.json:
        return print_json({"suite": str(suite.path), "recordings": [str(path) for path in suite.recordings]})
    print(f"written: {suite.path}")
    print(f"next:    workbench check {shlex.quote(str(suite.path))} --accept")
    return 0


def _is_fine(result: CheckResult, *, strict: bool) -> bool:
    unsure = result.counts["undecided"] or any(one.severity == "problem" for one in result.problems)
    return result.passed and not (strict and unsure)


def _write(path: str, text: str) -> None:
    from workbench.report.whole_file import write_whole

    try:
        write_whole(Path(path), text)
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}", field="--junit", value=path) from error
