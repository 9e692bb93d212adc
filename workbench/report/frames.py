"""Trace rows as pandas frames: the only place that makes one.

In: a run, or a run set, and the name of a table. Out: a data frame with the configuration in its first column,
`run`, and with the meaning of each column in `frame.attrs`. Implements the frame part of WB-RPL-11 and WB-API-03.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from workbench.errors import ConfigError, nearest_name
from workbench.evaluate.net import RunLike, Runs
from workbench.replay.trace import TABLES, Table

__all__ = ["RunLike", "Runs", "each_run", "frame"]

# Types that know "unknown" beside every value, so that a missing number never becomes 0 or False.
_DTYPES = {"VARCHAR": "string", "INTEGER": "Int64", "BIGINT": "Int64", "DOUBLE": "Float64", "BOOLEAN": "boolean"}


def frame(runs: Runs | RunLike, table: str, conversation: str | None = None) -> pd.DataFrame:
    """One trace table of one or several runs as a data frame.

    `frame.attrs["doc"]` says what a row is, `frame.attrs["columns"]` what each column holds.

    Raises:
        ConfigError: there is no such table.
    """
    schema = _schema(table)
    parts = [(run.name, run.rows(table, conversation)) for run in each_run(runs)]
    columns: dict[str, Any] = {"run": pd.array([name for name, rows in parts for _ in rows], dtype=_DTYPES["VARCHAR"])}
    for column in schema.columns:
        values = [row.get(column.name) for _, rows in parts for row in rows]
        columns[column.name] = pd.array(values, dtype=_DTYPES[column.type])
    result = pd.DataFrame(columns)
    result.attrs = {
        "table": schema.name,
        "doc": schema.doc,
        "columns": {"run": "name of the configuration", **{column.name: column.doc for column in schema.columns}},
    }
    return result


def each_run(runs: Runs | RunLike) -> Iterable[RunLike]:
    """The runs of a set in its order, or the one run."""
    return [runs] if isinstance(runs, RunLike) else list(runs.values())


def _schema(table: str) -> Table:
    if table not in TABLES:
        raise ConfigError.for_field("table", table, ", ".join(TABLES), hint=nearest_name(table, TABLES))
    return TABLES[table]
