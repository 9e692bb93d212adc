"""`workbench sql`: its options, the call it makes, and what it prints."""

from __future__ import annotations

import argparse

from workbench.cli.output import print_json


def add(command: argparse.ArgumentParser) -> None:
    """Ask the finished runs in SQL; every trace table has a run_file column in front.

    workbench sql "SELECT run_file, count(*) FROM checks WHERE fired GROUP BY ALL"
    """
    command.add_argument("query", nargs="?", help="one SQL query")
    command.add_argument("--tables", action="store_true", help="list tables and columns instead")
    command.add_argument("--runs", default="runs", metavar="FOLDER", help="folder of the runs")
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    if options.tables or not options.query:
        from workbench.replay.trace import TABLES

        if options.json:
            return print_json({"tables": [table.as_dict() for table in TABLES.values()]})
        for table in TABLES.values():
            print(f"\n{table.name}: {table.doc}")
            for column in table.columns:
                print(f"  {column.name:24}{column.type:10}{column.doc}")
        return 0
    from workbench.replay.runs import query_runs

    columns, rows = query_runs(options.query, options.runs)
    if options.json:
        return print_json({"columns": columns, "rows": [list(row) for row in rows]})
    from workbench.report.terminal import text_table

    print(text_table(columns, rows))
    return 0
