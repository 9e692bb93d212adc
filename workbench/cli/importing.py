"""`workbench import`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from workbench.cli.options import add_recording_options, load
from workbench.cli.output import print_json, print_problems
from workbench.errors import ConfigError, RecordingError

if TYPE_CHECKING:
    from workbench.recordings import Recordings


def add(command: argparse.ArgumentParser) -> None:
    """Read recordings, say what was found, and optionally convert them to the native format.

    workbench import chats.jsonl --to native.jsonl
    """
    add_recording_options(command)
    command.add_argument("--to", metavar="FILE", help="write what was read as native JSONL")
    command.add_argument(
        "--redact",
        action="store_true",
        help="with --to: placeholders for e-mail addresses, phone numbers, keys, card and id numbers; "
        "names and postal addresses stay",
    )
    command.add_argument("--strict", action="store_true", help="exit with 3 when there is any problem")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from workbench.recordings import Redactor, redact, write_recording

    if options.redact and not options.to:
        raise ConfigError("--redact changes what is written", field="redact", hint="say where to: --to FILE")
    recordings = load(options)
    redactor = Redactor()
    if options.redact:
        write_recording(options.to, (redact(conversation, redactor=redactor) for conversation in recordings))
    elif options.to:
        write_recording(options.to, recordings)
    if options.json:
        replaced = {"replaced": dict(redactor.counts)} if options.redact else {}
        print_json(recordings.totals() | replaced)
    else:
        _print_import(recordings)
        for finding in redactor.findings:
            print(f"note: {finding}")
        print_problems(recordings)
        if options.to:
            print(f"written: {options.to}")
    has_problems = any(problem.severity == "problem" for problem in recordings.problems)
    return RecordingError.exit_code if options.strict and has_problems else 0


def _print_import(recordings: Recordings) -> None:
    """The loss report: what was read of each format, what was kept, dropped and assumed (WB-REC-07)."""
    from workbench.report.terminal import figures_table

    names = ("conversations", "events", "messages", "calls")
    tallies = recordings.tallies
    rows = [
        (name, *(f"{getattr(tally, column):,}" for column in names), _problems_in_words(tally.problems))
        for name, tally in tallies.items()
    ]
    if len(tallies) > 1:
        sums = [sum(getattr(tally, column) for tally in tallies.values()) for column in (*names, "problems")]
        rows.append(("together", *(f"{n:,}" for n in sums[:-1]), _problems_in_words(sums[-1])))
    print(figures_table(("format", *names, "problems"), rows))
    known = ", ".join(f"{name} in {n:,}" for name, n in recordings.kept.items() if n)
    print(
        f"kept: every message; {known or 'no times, usage, instruction, tools or model known'} of {len(recordings):,}"
    )
    for loss in recordings.losses:
        print(f"note: {loss}")
    for skipped in recordings.skipped:
        print(f"skipped: {skipped.path}: {skipped.reason}")


def _problems_in_words(count: int) -> str:
    return "none" if not count else "1 problem, see below" if count == 1 else f"{count:,} problems, see below"
