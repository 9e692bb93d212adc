"""The command line: each command parses, calls one function of the library, prints.

In: arguments. Out: a table on stdout (or one JSON object with `--json`), progress on stderr, and an exit
code: 0 fine, 2 configuration, 3 input, 4 store, 5 model, 1 anything else, 130 interrupted. Implements WB-CLI.
One module per command: `add` declares its options, `run` makes its call.
"""

from __future__ import annotations

from workbench.cli.program import EXIT_INTERRUPTED, main, parser

__all__ = ["EXIT_INTERRUPTED", "main", "parser"]
