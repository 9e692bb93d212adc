"""The program: the table of commands, errors as one line, and exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NoReturn

from workbench.cli import (
    calibrate,
    check,
    compare,
    config,
    conformance,
    demo,
    doctor,
    export,
    importing,
    lab,
    lint,
    replay,
    report,
    selftest,
    sql,
    store,
    sweep,
)
from workbench.cli.targets import check_targets
from workbench.errors import ConfigError, WorkbenchError, nearest_name
from workbench.version import __version__

EXIT_INTERRUPTED = 130

# In the order of the help: from the first look to the upkeep.
_COMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "import": importing,
    "replay": replay,
    "compare": compare,
    "lint": lint,
    "sweep": sweep,
    "sql": sql,
    "report": report,
    "calibrate": calibrate,
    "check": check,
    "config": config,
    "export": export,
    "lab": lab,
    "store": store,
    "conformance": conformance,
    "doctor": doctor,
    "selftest": selftest,
}


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
        check_targets(options)
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
    options, unknown = parser().parse_known_args(arguments)
    if unknown:
        name = unknown[0].split("=")[0]
        known = [text for action in options.parser._actions for text in action.option_strings]  # noqa: SLF001
        kind = "option" if name.startswith("-") else "argument"
        raise ConfigError(
            f"unknown {kind} {name}",
            hint=nearest_name(name, known) or f"see `workbench {options.command} --help`",
        )
    return options


def parser() -> argparse.ArgumentParser:
    program = _Parser(
        prog="workbench",
        description="Replay recorded conversations through the session-summary engine and see what each "
        "configuration does to tokens, triggers and the prompt cache.",
        epilog="Each command has its own help with an example: workbench replay --help",
        allow_abbrev=False,
    )
    program.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = program.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for name, module in _COMMANDS.items():
        doc = (module.add.__doc__ or "").strip().split("\n\n")
        command = commands.add_parser(
            name,
            help=doc[0],
            description=doc[0],
            epilog="example:\n  " + doc[-1].strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add(command)
        command.set_defaults(run=module.run, parser=command)
    return program
