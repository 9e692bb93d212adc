"""The command line: each command parses, calls one function of the library, prints.

In: arguments. Out: a table on stdout (or one JSON object with `--json`), progress on stderr, and an exit
code: 0 fine, 2 configuration, 3 input, 4 store, 5 model, 1 anything else, 130 interrupted. Implements WB-CLI.
The module is long but one thing: two short functions per command, its options and its call.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from workbench.errors import ConfigError, RecordingError, StoreError, WorkbenchError, nearest_name
from workbench.version import __version__

if TYPE_CHECKING:
    from workbench.config import RunConfig
    from workbench.evaluate.dry_run import DryRun
    from workbench.recordings import Recordings
    from workbench.replay.runs import RunSet
    from workbench.store.duckdb.maintenance import StoreReport

EXIT_INPUT = 3
_UNRULY = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Argparse whose errors name the nearest valid option."""

    def error(self, message: str) -> NoReturn:
        hint = ""
        if "invalid choice: " in message:
            wrong = message.split("invalid choice: ")[1].split("'")[1]
            if wrong not in _COMMANDS and "COMMAND" in message:
                message = f"unknown command {wrong!r}"
                hint = nearest_name(wrong, _COMMANDS) or "see `workbench --help`"
        raise ConfigError(message, hint=hint or f"see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Errors are one line; `--debug` shows the traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        options = _parsed([argument for argument in arguments if argument != "--debug"])
        run: Callable[[argparse.Namespace], int] = options.run
        return run(options)
    except WorkbenchError as error:
        if debug:
            raise
        print(f"workbench: {error.one_line()}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("workbench: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # `workbench ... | head`
        sys.stderr.close()
        return 0
    except Exception as error:
        if debug:
            raise
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"workbench: {text}; run again with --debug for the traceback", file=sys.stderr)
        return 1


def _parsed(arguments: list[str]) -> argparse.Namespace:
    """The options of a command; an unknown one is told with the nearest that the command has."""
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        name = unknown[0].split("=")[0]
        known = [text for action in options.parser._actions for text in action.option_strings]  # noqa: SLF001
        kind = "option" if name.startswith("-") else "argument"
        raise ConfigError(
            f"unknown {kind} {name}",
            hint=nearest_name(name, known) or f"see `workbench {options.command} --help`",
        )
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="workbench",
        description="Replay recorded conversations through the session-summary engine and see what each "
        "configuration does to tokens, triggers and the prompt cache.",
        epilog="Each command has its own help with an example: workbench replay --help",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for name, add in _COMMANDS.items():
        doc = (add.__doc__ or "").strip().split("\n\n")
        command = commands.add_parser(
            name,
            help=doc[0],
            description=doc[0],
            epilog="example:\n  " + doc[-1].strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        add(command)
        command.set_defaults(parser=command)
    return parser


# --- commands ----------------------------------------------------------------------------------------


def _add_demo(command: argparse.ArgumentParser) -> None:
    """Replay the bundled recordings under several configurations and write a report.

    workbench demo --report reports/demo.html
    """
    command.add_argument("--report", default="reports/demo.html", metavar="FILE", help="where the report goes")
    _add_run_options(command)
    command.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> int:
    from workbench.demo import demo_configs, demo_recordings
    from workbench.replay.replay import replay

    runs = replay(demo_recordings(), demo_configs(), runs=options.runs, jobs=options.jobs, fresh=options.fresh)
    if options.json:
        return _print_json({"runs": runs.facts(), "problems": [], "report": str(_report(runs, options.report))})
    _print_runs(runs)
    print(f"\nreport: {_report(runs, options.report)}")
    print(f"runs:   {options.runs}  (what is in them: workbench sql --tables)")
    return 0


def _add_import(command: argparse.ArgumentParser) -> None:
    """Read recordings, say what was found, and optionally convert them to the native format.

    workbench import chats.jsonl --to native.jsonl
    """
    _add_recording_options(command)
    command.add_argument("--to", metavar="FILE", help="write what was read as native JSONL")
    command.add_argument(
        "--redact",
        action="store_true",
        help="with --to: placeholders for e-mail addresses, phone numbers, keys, card and id numbers; "
        "names and postal addresses stay",
    )
    command.add_argument("--strict", action="store_true", help="exit with 3 when there is any problem")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_import)


def _import(options: argparse.Namespace) -> int:
    from workbench.recordings import Redactor, redact, write_recording

    if options.redact and not options.to:
        raise ConfigError("--redact changes what is written", field="redact", hint="say where to: --to FILE")
    recordings = _load(options)
    redactor = Redactor()
    if options.redact:
        write_recording(options.to, (redact(conversation, redactor=redactor) for conversation in recordings))
    elif options.to:
        write_recording(options.to, recordings)
    if options.json:
        replaced = {"replaced": dict(redactor.counts)} if options.redact else {}
        _print_json(recordings.totals() | replaced)
    else:
        _print_import(recordings)
        for finding in redactor.findings:
            print(f"note: {finding}")
        _print_problems(recordings)
        if options.to:
            print(f"written: {options.to}")
    has_problems = any(problem.severity == "problem" for problem in recordings.problems)
    return EXIT_INPUT if options.strict and has_problems else 0


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


def _add_replay(command: argparse.ArgumentParser) -> None:
    """Replay recordings under one or more configurations.

    workbench replay chats.jsonl --config today.toml --config tuned.toml --report reports/first.html
    """
    _add_recording_options(command)
    _add_config_options(command)
    command.add_argument("--report", metavar="FILE", help="also write an HTML report")
    command.add_argument(
        "--show",
        metavar="CONVERSATION:CALL",
        help="print the exact request of one call instead of the table, and why it is so; with several --config "
        "what the others send instead of the first; calls are numbered from 0, as in reports",
    )
    command.add_argument("--full", action="store_true", help="with --show: texts from beginning to end")
    _add_run_options(command)
    command.set_defaults(run=_replay)


def _replay(options: argparse.Namespace) -> int:
    from workbench.replay.replay import replay

    configs = _configs(options)
    wanted = _call_named(options.show) if options.show else None
    if options.full and wanted is None:
        raise ConfigError("--full shows a call whole", field="full", hint="say which: --show CONVERSATION:CALL")
    recordings = _load(options)
    runs = replay(recordings, configs, runs=options.runs, jobs=options.jobs, fresh=options.fresh)
    report = _report(runs, options.report) if options.report else None
    if wanted is not None:
        return _show(runs, *wanted, options, report)
    if options.json:
        result = {"runs": runs.facts(), "problems": [problem.as_dict() for problem in recordings.problems]}
        return _print_json(result | ({"report": str(report)} if report else {}))
    _print_runs(runs)
    _print_problems(recordings)
    if report:
        print(f"\nreport: {report}")
    return 0


def _call_named(text: str) -> tuple[str, int]:
    conversation, _, call = text.rpartition(":")
    if not conversation or not (call.isascii() and call.isdigit()):
        raise ConfigError.for_field("--show", text, "CONVERSATION:CALL, for example zh-service-01:17")
    return conversation, int(call)


def _show(runs: RunSet, conversation: str, call: int, options: argparse.Namespace, report: Path | None) -> int:
    from workbench.report.prompt import calls_text

    calls = [run.call(conversation, call) for run in runs.values()]
    if options.json:
        diffs = [calls[0].diff(other).as_dict() for other in calls[1:]]
        problems = [problem.as_dict() for problem in runs.problems]
        shown = {"calls": [found.as_dict() for found in calls], "diffs": diffs, "problems": problems}
        return _print_json(shown | ({"report": str(report)} if report else {}))
    print(calls_text(calls, full=options.full))
    if report:
        print(f"\nreport: {report}")
    return 0


def _add_compare(command: argparse.ArgumentParser) -> None:
    """Compare configurations conversation by conversation: differences with intervals, and where they are largest.

    workbench compare chats.jsonl --config today.toml --config tuned.toml --report reports/comparison.html
    """
    _add_recording_options(command, needed=False)
    _add_config_options(command)
    command.add_argument(
        "--run",
        dest="names",
        action="append",
        default=[],
        metavar="NAME",
        help="a finished run, by id or name, instead of --config; the recordings are needed for --show only",
    )
    command.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="also each configuration with this change, e.g. model.context_window=8000 or model.name=gpt-4.1-mini",
    )
    command.add_argument("--against", metavar="NAME", help="the run that the others are compared with; default: first")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the intervals")
    command.add_argument(
        "--show",
        nargs="?",
        const="",
        metavar="CONVERSATION:CALL",
        help="also print the prompts side by side at a call; without one, where they differ most",
    )
    command.add_argument("--full", action="store_true", help="with --show: texts from beginning to end")
    command.add_argument("--report", metavar="FILE", help="also write an HTML report")
    _add_run_options(command)
    command.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> int:
    from workbench.evaluate.compare import compare
    from workbench.report.comparison import comparison_text
    from workbench.report.page import page

    runs = _runs_to_compare(options)
    comparison = compare(runs, reference=options.against, seed=options.seed)
    report = page(runs, options.report, comparison=comparison) if options.report else None
    place = _call_named(options.show) if options.show else (None, None)
    others = [verdict.run for verdict in comparison.verdicts]
    diffs = [] if options.show is None else [comparison.diff(name, *place) for name in others]
    if options.json:
        found = comparison.as_dict() | {"runs": runs.facts(), "problems": [p.as_dict() for p in runs.problems]}
        found |= {"diffs": [diff.as_dict() for diff in diffs]} if diffs else {}
        return _print_json(found | ({"report": str(report)} if report else {}))
    print(comparison_text(comparison))
    _print_problems(runs)
    if diffs:
        from workbench.report.prompt import calls_text

        for diff in diffs:
            print(f"\n{calls_text([diff.before, diff.after], full=options.full)}")
    if report:
        print(f"\nreport: {report}")
    return 0


def _runs_to_compare(options: argparse.Namespace) -> RunSet:
    """Finished runs by name, or the configurations replayed."""
    from workbench.replay.replay import replay
    from workbench.replay.runs import load_runs

    if options.names:
        if options.config or options.what_if:
            raise ConfigError(
                "--run takes runs as they are", field="run", hint="leave --config and --what-if out, or --run"
            )
        return load_runs(options.runs, options.names, conversations=_load(options) if options.paths else None)
    if not options.paths:
        raise ConfigError("compare needs recordings", field="PATH", hint="give a PATH, or finished runs with --run")
    configs = _configs(options)
    changes = [_assignment(text) for text in options.what_if]
    if changes:
        configs += [
            config.replace(**{option: value, "name": f"{config.label()}, {option}={_text_of(value)}"})
            for config in configs
            for option, value in changes
        ]
    if len(configs) == 1:  # savings are stated against a baseline that was replayed too (WB-TUNE-06)
        configs.insert(0, _baseline_of(configs[0]))
    return replay(_load(options), configs, runs=options.runs, jobs=options.jobs, fresh=options.fresh)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _baseline_of(config: RunConfig) -> RunConfig:
    from workbench.evaluate.net import without_shortening

    return without_shortening(config)


def _add_lint(command: argparse.ArgumentParser) -> None:
    """Say what a configuration's trigger can and can't do on these recordings, before it is deployed.

    workbench lint chats.jsonl --config tuned.toml
    """
    _add_recording_options(command)
    _add_config_options(command)
    command.add_argument("--strict", action="store_true", help="exit with 1 when there is a warning")
    command.add_argument(
        "--next",
        action="store_true",
        help="also say what a summary made at the end of each conversation would cover, save and cost; calls no model",
    )
    _add_run_options(command)
    command.set_defaults(run=_lint)


def _lint(options: argparse.Namespace) -> int:
    from workbench.evaluate.lint import lint
    from workbench.replay.replay import replay
    from workbench.report.comparison import lint_text

    recordings, configs = _load(options), _configs(options)
    following: dict[str, list[DryRun]] = {}
    if options.next:
        from workbench.evaluate.dry_run import dry_run
        from workbench.replay.runs import with_unique_ids

        makes = [config for config in configs if config.summarizer is not None]
        following = {
            config.label(): [dry_run(conversation, config) for conversation in with_unique_ids(recordings)]
            for config in makes
        }
        # A live model would be called for the lint itself: what a dry run asks needs none.
        configs = [
            c.replace(summaries={"source": "sized", "latency_s": 0.0}) if c.summaries.source == "live" else c
            for c in configs
        ]
    runs = replay(recordings, configs, runs=options.runs, jobs=options.jobs, fresh=options.fresh)
    found = [lint(run) for run in runs.values()]
    if options.json:
        problems = [problem.as_dict() for problem in runs.problems]
        after = {name: [one.as_dict() for one in ones] for name, ones in following.items()}
        configs_found = [one.as_dict() | ({"next": after.get(one.config, [])} if options.next else {}) for one in found]
        _print_json({"configs": configs_found, "problems": problems})
    else:
        print("\n\n".join(lint_text(one, following.get(one.config, ())) for one in found))
        _print_problems(runs)
    return 1 if options.strict and any(one.warnings for one in found) else 0


def _add_sweep(command: argparse.ArgumentParser) -> None:
    """Try a grid of options, or one made from the recordings, and write the recommended configuration.

    workbench sweep chats.jsonl --over trigger.token=1000,2000,4000 --out tuned.toml --yes
    """
    _add_recording_options(command)
    command.add_argument("--config", metavar="FILE", help="what every run starts from; default: an empty file")
    _add_change_options(command)
    command.add_argument(
        "--over",
        action="append",
        default=[],
        metavar="OPTION=VALUES",
        help="an option and its values: 1000,2000 or [1000, 2000] or a range 1000..8000/4 (four values)",
    )
    command.add_argument("--grid", metavar="FILE", help="TOML or JSON file with a table of options and their values")
    command.add_argument("--max-runs", type=int, metavar="N", help="refuse more runs than this; default 10,000")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="of the part to choose on, and intervals")
    command.add_argument("--out", default="reports/recommended.toml", metavar="FILE", help="the recommendation")
    command.add_argument("--report", metavar="FILE", help="also write an HTML report of the best runs")
    command.add_argument("--yes", action="store_true", help="begin without asking")
    _add_run_options(command)
    command.set_defaults(run=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from workbench.config import RunConfig
    from workbench.evaluate.grid import DEFAULT_MAX_RUNS
    from workbench.evaluate.sweep import plan_sweep, sweep
    from workbench.report.comparison import plan_text, sweep_text
    from workbench.report.whole_file import write_whole

    base = _changed([RunConfig.load(options.config) if options.config else RunConfig()], options)[0]
    recordings = _load(options)
    max_runs = DEFAULT_MAX_RUNS if options.max_runs is None else options.max_runs
    plan = plan_sweep(recordings, base, _grid(options), max_runs=max_runs)
    print(plan_text(plan), file=sys.stderr if options.json else sys.stdout, flush=True)
    if not options.yes:
        _ask("begin?")
    found = sweep(
        recordings, base, plan=plan, seed=options.seed, runs=options.runs, jobs=options.jobs, fresh=options.fresh
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
        return _print_json(found.as_dict() | said | ({"report": str(report)} if report else {}))
    print(f"\n{sweep_text(found)}")
    _print_problems(recordings)
    if written:
        print(f"\nrecommended configuration: {written}")
    if report:
        print(f"report: {report}")
    return 0


def _grid(options: argparse.Namespace) -> dict[str, Any] | None:
    """The grid of a file and of `--over`; None when neither is given."""
    from workbench.config import table_of_file

    grid: dict[str, Any] = {}
    if options.grid:
        values = table_of_file(options.grid)
        grid |= values.get("grid", values)
    for text in options.over:
        option, sign, said = text.partition("=")
        if not sign:
            raise ConfigError.for_field("--over", text, "OPTION=VALUES, for example trigger.token=1000,2000")
        grid[option] = _axis(said)
    return grid or None


def _axis(text: str) -> Any:
    """`1000,2000`, `[1000, 2000]` or `1000..8000/4`."""
    if found := re.fullmatch(r"([\d.]+?)\.\.([\d.]+)/(\d+)", text):
        low, high, steps = map(json.loads, found.groups())
        return {"from": low, "to": high, "steps": steps}
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError.for_field("--over", text, "values as JSON, or joined by commas") from error
    return [_value(part) for part in text.split(",") if part]


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("nobody is here to be asked", field="yes", hint="give --yes to begin at once")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise KeyboardInterrupt


def _add_sql(command: argparse.ArgumentParser) -> None:
    """Ask the finished runs in SQL; every trace table has a run_file column in front.

    workbench sql "SELECT run_file, count(*) FROM checks WHERE fired GROUP BY ALL"
    """
    command.add_argument("query", nargs="?", help="one SQL query")
    command.add_argument("--tables", action="store_true", help="list tables and columns instead")
    command.add_argument("--runs", default="runs", metavar="FOLDER", help="folder of the runs")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_sql)


def _sql(options: argparse.Namespace) -> int:
    if options.tables or not options.query:
        from workbench.replay.trace import TABLES

        if options.json:
            return _print_json({"tables": [table.as_dict() for table in TABLES.values()]})
        for table in TABLES.values():
            print(f"\n{table.name}: {table.doc}")
            for column in table.columns:
                print(f"  {column.name:24}{column.type:10}{column.doc}")
        return 0
    from workbench.replay.runs import query_runs

    columns, rows = query_runs(options.query, options.runs)
    if options.json:
        return _print_json({"columns": columns, "rows": [list(row) for row in rows]})
    from workbench.report.terminal import text_table

    print(text_table(columns, rows))
    return 0


def _add_report(command: argparse.ArgumentParser) -> None:
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
    command.set_defaults(run=_report_command)


def _report_command(options: argparse.Namespace) -> int:
    from workbench.replay.runs import RunSet, load_runs

    runs = load_runs(options.runs, options.names)
    if changes := dict(_assignment(text) for text in options.set):
        runs = RunSet([run.priced(**changes) for run in runs.values()], problems=runs.problems)
    _print_runs(runs)
    print(f"\nreport: {_report(runs, options.report)}")
    return 0


def _add_config(command: argparse.ArgumentParser) -> None:
    """Check a configuration file, explain options, or print the JSON schema.

    workbench config explain trigger
    """
    command.add_argument("action", choices=["check", "explain", "schema", "show"], help="what to do")
    command.add_argument("names", nargs="*", metavar="FILE|OPTION", help="files to check, or options to explain")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_config)


def _config(options: argparse.Namespace) -> int:
    from workbench.config import RunConfig, option_named, schema
    from workbench.config import options as all_options

    if options.action == "schema":
        return _print_json(schema())
    if options.action == "explain":
        table = list(all_options())
        if options.names:
            wanted = [name if any(o.path == name for o in table) else option_named(name).path for name in options.names]
            table = [o for o in table if any(o.path == name or o.path.startswith(name + ".") for name in wanted)]
        if options.json:
            return _print_json({"options": [option._asdict() for option in table]})
        for option in table:
            print(f"{option.path}  ({option.type}, default {option.default})\n    {option.doc}")
        return 0
    if not options.names:
        raise ConfigError(f"config {options.action} needs a file", hint="give one or more TOML or JSON files")
    loaded = [RunConfig.load(name) for name in options.names]
    if options.json or options.action == "show":
        return _print_json({config.label(): config.resolved() for config in loaded})
    for name, config in zip(options.names, loaded, strict=True):
        print(f"{name}: fine; {config.label()}, hash {config.config_hash[:12]}")
    return 0


def _add_store(command: argparse.ArgumentParser) -> None:
    """Check, copy, migrate or compact the file of a durable session service.

    workbench store check sessions.duckdb
    """
    command.add_argument("action", choices=["check", "copy", "migrate", "vacuum"], help="what to do")
    command.add_argument("path", metavar="FILE", help="the store; check and copy work while a service has it open")
    command.add_argument("target", nargs="?", metavar="TARGET", help="with copy: the new file")
    command.add_argument(
        "--accept-loss", action="store_true", help="go on with what is left of a damaged store, and say what is missing"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_store)


def _store(options: argparse.Namespace) -> int:
    from workbench.store.duckdb import maintenance

    path, accept_loss = Path(options.path), options.accept_loss
    if (options.action == "copy") != (options.target is not None):
        hint = "workbench store copy FILE TARGET"
        raise ConfigError(f"store {options.action}: only copy takes a target, and needs one", field="target", hint=hint)
    if options.action == "check":
        return _store_report(maintenance.check(path, accept_loss=accept_loss), options)
    facts: dict[str, Any] = {"path": str(path)}
    with _told_once("workbench.store"):
        if options.action == "copy":
            losses = maintenance.copy(path, options.target, accept_loss=accept_loss)
            facts["target"] = options.target
            done = f"{path} -> {options.target}"
        elif options.action == "migrate":
            facts["version_before"], facts["version"], losses = maintenance.migrate(path, accept_loss=accept_loss)
            done = f"{path}: schema version {facts['version_before']} -> {facts['version']}"
        else:
            facts["bytes_before"], facts["bytes"], losses = maintenance.vacuum(path, accept_loss=accept_loss)
            done = f"{path}: {facts['bytes_before']:,} -> {facts['bytes']:,} bytes"
    if options.json:
        return _print_json({**facts, "losses": list(losses)})
    print(_plain(done))
    for loss in losses:
        print(f"missing: {_plain(loss)}", file=sys.stderr)
    return 0


@contextmanager
def _told_once(name: str) -> Iterator[None]:
    """What a part logs as a warning, the command prints itself."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _store_report(report: StoreReport, options: argparse.Namespace) -> int:
    figures: dict[str, int | None] = {
        "version": report.version,
        "sessions": report.n_sessions,
        "deleted_sessions": report.n_deleted_sessions,
        "events": report.n_events,
        "summaries": report.n_summaries,
        "changes": report.sequence,
        "waiting_changes": report.n_waiting_changes,
    }
    if not report.version:  # it couldn't be opened
        figures = dict.fromkeys(figures)
    if options.json:
        facts = {"path": str(report.path), "is_sound": report.is_sound, **figures, "settings": dict(report.settings)}
        _print_json({**facts, "problems": list(report.problems), "losses": list(report.losses)})
    else:
        for name, figure in figures.items():
            if figure is not None:
                print(f"{name.replace('_', ' '):18}{figure:>12,}")
        for name, value in report.settings:
            print(f"setting {name} = {_plain(value)}")
        for problem in report.problems:
            kind = "missing" if problem in report.losses else "problem"
            print(f"{kind}: {_plain(problem)}", file=sys.stderr)
        n_problems = len(report.problems)
        print("sound" if report.is_sound else f"{n_problems} problem{'s' if n_problems > 1 else ''}")
    return 0 if report.is_sound else StoreError.exit_code


def _plain(text: str) -> str:
    """A text on one line, without what a terminal would obey."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _add_calibrate(command: argparse.ArgumentParser) -> None:
    """Find out how many characters make a token in recordings, and what another counter would change.

    workbench calibrate chats.jsonl --tokenizer o200k_base --config today.toml -o calibration.toml
    """
    _add_recording_options(command)
    command.add_argument(
        "--tokenizer",
        default="o200k_base",
        metavar="NAME",
        help="an encoding, a model, or the path of a tokenizer.json; `workbench doctor` lists what is here",
    )
    command.add_argument(
        "--usage", action="store_true", help="fit to the prompt tokens that the recordings report, without a tokenizer"
    )
    command.add_argument(
        "--quantile",
        type=float,
        default=0.05,
        metavar="Q",
        help="share of messages that the safe ratio may underestimate",
    )
    command.add_argument("--window", type=int, default=1, metavar="N", help="judge N messages in a row, as triggers do")
    command.add_argument(
        "--threshold", type=int, action="append", default=[], metavar="TOKENS", help="compare firings at this threshold"
    )
    command.add_argument("--config", metavar="FILE", help="replay this configuration and say which of its firings move")
    command.add_argument(
        "--counter", choices=["ratio", "safe", "scripts"], default="ratio", help="the counter that --config is given"
    )
    command.add_argument("--seed", type=int, default=0, metavar="N", help="of the resampling")
    command.add_argument("-o", "--output", metavar="FILE", help="write the calibration, as .toml or .json")
    command.add_argument("--figure", metavar="FILE", help="draw real against estimated, as .png or .svg")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_calibrate)


def _calibrate(options: argparse.Namespace) -> int:
    from workbench.config import RunConfig
    from workbench.evaluate.calibrate import DEFAULT_THRESHOLDS, calibrate
    from workbench.evaluate.calibration_file import counter_tables, save_calibration
    from workbench.evaluate.firings import moved_firings
    from workbench.evaluate.usage import calibrate_usage
    from workbench.report import calibration as words

    config = RunConfig.load(options.config) if options.config else None
    if options.usage and options.figure:
        raise ConfigError("--figure needs a tokenizer", field="figure", hint="leave out --usage")
    recordings = _load(options)
    found: Any
    if options.usage:
        found = calibrate_usage(recordings, quantile=options.quantile, seed=options.seed)
    else:
        found = calibrate(
            recordings,
            options.tokenizer,
            quantile=options.quantile,
            window=options.window,
            thresholds=options.threshold or DEFAULT_THRESHOLDS,
            seed=options.seed,
        )
    counters = counter_tables(found)
    moved = None
    if config is not None:
        if options.counter not in counters:
            raise ConfigError.for_field("--counter", options.counter, ", ".join(counters))
        moved = moved_firings(recordings, config, counters[options.counter])
    if options.output:
        save_calibration(found, options.output)
    if options.figure:
        _draw_calibration(found, options.figure)
    if options.json:
        return _print_json(_calibration_facts(found, counters, moved, recordings))
    print(words.usage_text(found) if options.usage else words.calibration_text(found))
    if moved is not None:
        print("\n" + words.firings_text(moved))
    print("\nfor a configuration file:")
    for name, table in counters.items():
        print(f"  [counter]  # {name}")
        for key, value in table.items():
            inline = ", ".join(f"{inner} = {ratio:g}" for inner, ratio in value.items()) if key == "scripts" else ""
            print(f"  {key} = {{ {inline} }}" if inline else f"  {key} = {json.dumps(value)}")
    _print_problems(recordings)
    for path in filter(None, (options.output, options.figure)):
        print(f"written: {path}")
    return 0


def _calibration_facts(found: Any, counters: Any, moved: Any, recordings: Recordings) -> dict[str, Any]:
    """The documented keys first (WB-CLI-03), then everything else that the file holds."""
    from dataclasses import asdict

    from workbench.evaluate.calibration_file import calibration_values

    return {
        **calibration_values(found),
        "counters": counters,
        "moved_firings": None if moved is None else asdict(moved),
        "problems": [problem.as_dict() for problem in recordings.problems],
    }


def _draw_calibration(found: Any, path: str) -> None:
    from workbench.report.plots import calibration_error

    if Path(path).suffix.lower() not in {".png", ".svg"}:
        raise ConfigError.for_field("--figure", path, "a file name that ends in .png or .svg")
    try:
        calibration_error(found).savefig(path)
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}", field="--figure", value=path) from error


def _add_conformance(command: argparse.ArgumentParser) -> None:
    """Run recorded cases of the reference through the engine.

    workbench conformance vectors/checkers.json --profile SEED
    """
    command.add_argument("files", nargs="+", metavar="FILE", help="vector files")
    command.add_argument("--profile", action="append", default=[], metavar="NAME", help="default: all three")
    command.add_argument(
        "--store", choices=["memory", "duckdb"], default="memory", help="what keeps the sessions of service cases"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_conformance)


def _conformance(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from workbench.conformance import run_file
    from workbench.profiles import PROFILES, profile_named

    profiles = [profile_named(name) for name in options.profile] or list(PROFILES.values())
    results = [result for path in options.files for result in run_file(path, profiles, store=options.store)]
    failed = [result for result in results if result.verdict == "failed"]
    passed = len(results) - len(failed)
    if options.json:
        _print_json({"passed": passed, "failed": len(failed), "cases": [asdict(result) for result in results]})
    else:
        for result in failed:
            print(f"{result.file} {result.id} {result.profile}: {result.difference}")
        print(f"{passed} passed, {len(failed)} failed")
    return 0 if passed and not failed else 1


def _add_doctor(command: argparse.ArgumentParser) -> None:
    """Say what this machine has and what is missing, with the command that brings it.

    workbench doctor --calibration calibration.toml newer.jsonl
    """
    _add_recording_options(command, needed=False)
    command.add_argument(
        "--calibration", metavar="FILE", help="say whether this calibration still holds for the recordings instead"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from workbench.doctor import examine

    if options.calibration or options.paths:
        return _doctor_of_calibration(options)
    findings = examine()
    if options.json:
        return _print_json({"findings": [finding._asdict() for finding in findings]})
    for finding in findings:
        mark = "ok     " if finding.found else "missing"
        print(f"{mark}  {finding.name:28}{finding.detail}")
        if not finding.found and finding.remedy:
            print(f"         {'':28}-> {finding.remedy}")
    return 0


def _doctor_of_calibration(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from workbench.evaluate.calibration_file import load_calibration
    from workbench.evaluate.drift import drift
    from workbench.report.calibration import drift_text

    if not (options.calibration and options.paths):
        raise ConfigError(
            "a calibration is compared with recordings, so both are needed",
            field="calibration",
            hint="workbench doctor --calibration FILE RECORDINGS",
        )
    recordings = _load(options)
    found = drift(load_calibration(options.calibration), recordings)
    if options.json:
        return _print_json({"drift": asdict(found), "holds": found.holds})
    print(drift_text(found))
    _print_problems(recordings)
    return 0


def _add_selftest(command: argparse.ArgumentParser) -> None:
    """Try on this machine whether the promises about crashes, damage and hostile input are kept.

    workbench selftest --nightly -o reports/selftest.md
    """
    command.add_argument("goals", nargs="*", metavar="GOAL", help="run these only, e.g. REL-02")
    command.add_argument("--nightly", action="store_true", help="the large numbers; takes a quarter of an hour or more")
    command.add_argument(
        "--share", type=float, default=1.0, metavar="SHARE", help="of the nightly numbers, e.g. 0.2 where time is short"
    )
    command.add_argument("--seed", type=int, default=1, metavar="N", help="of all random choices")
    command.add_argument("-o", "--output", metavar="FILE", help="also write the table as Markdown, or JSON by its name")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(run=_selftest)


def _selftest(options: argparse.Namespace) -> int:
    from workbench.report.terminal import text_table
    from workbench.report.whole_file import write_whole
    from workbench.selftest import suite

    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    findings = suite.run(options.goals, nightly=options.nightly, share=options.share, seed=options.seed, tell=tell)
    command = "workbench selftest" + "".join(f" {goal}" for goal in options.goals) + " --nightly" * options.nightly
    command += f" --share {options.share:g}" if options.share != 1 else ""
    command += f" --seed {options.seed}"
    if options.output:
        is_json = options.output.endswith(".json")
        text = json.dumps(suite.facts(findings), indent=2) + "\n" if is_json else suite.markdown(findings, command)
        write_whole(options.output, text)
    if options.json:
        _print_json(suite.facts(findings))
    else:
        print(text_table(suite.COLUMNS, [finding.cells() for finding in findings]))
        for finding in findings:
            for example in finding.examples:
                print(f"{finding.goal}: {example}")
    return 0 if all(finding.holds for finding in findings) else 1


_COMMANDS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "demo": _add_demo,
    "import": _add_import,
    "replay": _add_replay,
    "compare": _add_compare,
    "lint": _add_lint,
    "sweep": _add_sweep,
    "sql": _add_sql,
    "report": _add_report,
    "calibrate": _add_calibrate,
    "config": _add_config,
    "store": _add_store,
    "conformance": _add_conformance,
    "doctor": _add_doctor,
    "selftest": _add_selftest,
}


# --- shared pieces -----------------------------------------------------------------------------------


def _add_recording_options(command: argparse.ArgumentParser, *, needed: bool = True) -> None:
    command.add_argument("paths", nargs="+" if needed else "*", metavar="PATH", help="files, folders or patterns")
    command.add_argument("--format", default="auto", metavar="NAME", help="recording format; default: by content")
    command.add_argument(
        "--map",
        metavar="FIELD=NAME,...",
        help="columns of a table or of a corpus of dialogues, e.g. --map text=utterance,speaker=who,id=chat",
    )
    command.add_argument("--observations", choices=["user", "tool"], help="role of observations")
    command.add_argument("--gap", default="30s", help="synthetic clock: silence before each request")
    command.add_argument("--step", default="2s", help="synthetic clock: time between events of a request")
    command.add_argument("--zone", help="zone of times that have none, e.g. +08:00")
    command.add_argument("--time-unit", choices=["s", "ms"], help="unit of numeric times")
    command.add_argument("--assume-order", action="store_true", help="keep events without a time, in file order")
    command.add_argument(
        "--join", type=int, default=1, metavar="N", help="make one conversation of N short dialogues, labelled so"
    )
    command.add_argument("--max-line-mb", type=int, default=64, help="longest line that is read")
    command.add_argument(
        "--max-unpacked-mb", type=int, default=1024, help="most that a packed file, or one store, may unpack to"
    )
    command.add_argument(
        "--app", action="append", metavar="NAME", help="only conversations of this application; may be repeated"
    )
    command.add_argument("--user", action="append", metavar="ID", help="only those of this user; may be repeated")
    command.add_argument(
        "--since", metavar="TIME", help="only those that went on at this time or later, e.g. 2026-03-01"
    )
    command.add_argument("--until", metavar="TIME", help="only those that began before this time")
    command.add_argument(
        "--instruction", metavar="FILE", help="the agent's instruction, for conversations whose source has none"
    )
    command.add_argument(
        "--tools", metavar="FILE", help="its tools, as JSON: a list as the chat-completions interface takes it"
    )


def _add_config_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config", action="append", default=[], metavar="FILE", help="TOML or JSON file; may be given several times"
    )
    command.add_argument("--profile", metavar="NAME", help="profile of the baseline when no --config is given")
    _add_change_options(command)


def _add_change_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="change an option in every configuration, e.g. --set trigger.token=2000",
    )
    command.add_argument(
        "--summaries",
        choices=["extractive", "sized", "cassette", "live"],
        help="where summaries come from; the last two need --set summaries.cassette=FILE, live a summaries.model too",
    )


def _add_run_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runs", default="runs", metavar="FOLDER", help="folder of the runs")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="processes; one is best below 50,000 events")
    command.add_argument("--fresh", action="store_true", help="replay even what is there already")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _load(options: argparse.Namespace) -> Recordings:
    from workbench.clock import seconds_from_text
    from workbench.recordings import load_recordings

    try:
        gap_s, step_s = seconds_from_text(options.gap), seconds_from_text(options.step)
    except ValueError as error:
        raise ConfigError(str(error), field="gap") from error
    return load_recordings(
        options.paths,
        format=options.format,
        map=_mapping(options.map),
        gap_s=gap_s,
        step_s=step_s,
        observations=options.observations,
        zone=options.zone,
        time_unit=options.time_unit,
        assume_order=options.assume_order,
        join=options.join,
        max_line_mb=options.max_line_mb,
        max_unpacked_mb=options.max_unpacked_mb,
        app=options.app,
        user=options.user,
        since=options.since,
        until=options.until,
        instruction=_text_in(options.instruction) if options.instruction else "",
        tools=_tools_in(options.tools) if options.tools else (),
    )


def _text_in(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else f"can't be read: {error.strerror}"
        raise RecordingError(reason, path=path) from error


def _tools_in(path: str) -> list[Any]:
    try:
        tools = json.loads(_text_in(path))
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"not JSON: {error}", path=path) from error
    if not isinstance(tools, list):
        raise RecordingError("expected a list of tools", path=path)
    return tools


def _mapping(text: str | None) -> dict[str, str] | None:
    if not text:
        return None
    pairs = [pair.split("=", 1) for pair in text.split(",")]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ConfigError.for_field("--map", text, "FIELD=NAME pairs joined by commas")
    return {name.strip(): column.strip() for name, column in pairs}


def _configs(options: argparse.Namespace) -> list[RunConfig]:
    from workbench.config import RunConfig

    configs = [RunConfig.load(path) for path in options.config]
    if not configs:
        configs = [RunConfig(name="no summary", **({"profile": options.profile} if options.profile else {}))]
    elif options.profile:
        configs = [config.replace(profile=options.profile) for config in configs]
    return _changed(configs, options)


def _changed(configs: list[RunConfig], options: argparse.Namespace) -> list[RunConfig]:
    """The configurations with what `--set` and `--summaries` say."""
    changes = dict(_assignment(text) for text in options.set)
    if options.summaries:
        changes["summaries.source"] = options.summaries
    return [config.replace(**changes) for config in configs] if changes else configs


def _assignment(text: str) -> tuple[str, Any]:
    from workbench.config import option_named

    path, sign, value = text.partition("=")
    if not sign:
        raise ConfigError.for_field("--set", text, "OPTION=VALUE, for example trigger.token=2000")
    option_named(path)
    return path, _value(value)


def _value(text: str) -> Any:
    """A number, true, false or JSON; anything else is a text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _print_runs(runs: Any) -> None:
    from workbench.report.terminal import summary

    print(summary(runs))


def _print_problems(source: Recordings | RunSet) -> None:
    for problem in source.problems:
        outcome = f" ({problem.outcome})" if problem.outcome else ""
        print(f"{problem.severity}: {problem}{outcome}", file=sys.stderr)


def _print_json(value: Any) -> int:
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    # What a terminal would obey, or couldn't print, stands inside strings only: as its escape it means the same.
    print(_UNRULY.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
    return 0


def _report(runs: Any, path: str) -> Path:
    from workbench.report.page import page

    return Path(page(runs, path))


if __name__ == "__main__":
    sys.exit(main())
