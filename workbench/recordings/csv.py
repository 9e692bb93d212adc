"""The format `csv`: tables with a row per message, or a row per question and answer.

In: rows of a table, and which column is what: from `--map`, else from the usual names. Out: conversations, their
rows grouped by the id column wherever they stand. A broken row costs the conversation that it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.recordings.dialogue import mapped_conversation
from workbench.recordings.problems import ROW_LEFT_OUT, FaultyRecordError, quoted
from workbench.recordings.reading import Format, Reading, own_id
from workbench.recordings.rows import Row
from workbench.recordings.table import columns_of, known_columns
from workbench.recordings.types import Conversation

FORMAT_NAME = "csv"
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?")


def _recognises(value: Any) -> bool:
    """No JSON value is a row of a table: tables are found from their first line."""
    return False


@dataclass(slots=True)
class _Group:
    """The rows of one conversation."""

    first: Row
    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    fault: FaultyRecordError | None = None


def _read(rows: Iterator[Row], reading: Reading) -> Iterator[Conversation]:
    groups: dict[str, _Group] = {}
    columns: Mapping[str, str] | None = None
    current = ""
    for row in rows:
        reading.note_oddities(row)
        if not row.n_bytes:
            continue
        try:
            if row.refusal is not None:
                raise row.refusal
            if columns is None:
                columns = _columns(row.value, reading)
            group_id = own_id(row.value, columns["id"]) if "id" in columns else ""
        except FaultyRecordError as fault:
            fault.line = fault.line or row.line
            if columns is None and row.fault is None:
                reading.refuse(fault, row, outcome="the file is left out")
                return
            group = groups.get(current)
            if group is None:
                reading.refuse(fault, row, outcome=ROW_LEFT_OUT)
            else:
                group.fault = group.fault or fault
            continue
        current = group_id
        groups.setdefault(group_id, _Group(row)).rows.append((row.line, _with_numbers(row.value, columns)))
    for group_id, group in groups.items():
        try:
            if group.fault is not None:
                raise group.fault
            yield mapped_conversation(
                [value for _, value in group.rows], group.first, group_id, reading, columns or {},
                format_name=FORMAT_NAME, lines=[line for line, _ in group.rows],
            )  # fmt: skip
        except FaultyRecordError as fault:
            reading.refuse(fault, group.first)


def _columns(value: Mapping[str, str], reading: Reading) -> Mapping[str, str]:
    """Which column is what.

    Raises:
        FaultyRecordError: a mapped column isn't there, or nothing says which is which.
    """
    mapping = reading.options.mapping
    if mapping is None:
        mapping = known_columns(list(value))
        if not mapping:
            raise FaultyRecordError("no columns known by their names", "name them with --map text=...,speaker=...")
        reading.lose("columns taken by their names: " + ", ".join(f"{key}={name}" for key, name in mapping.items()))
    for name in columns_of(mapping).values():
        if name not in value:
            names = ", ".join(quoted(known) for known in list(value)[:8])
            raise FaultyRecordError(f"no column {quoted(name)} among {names}", "change --map")
    dropped = [name for name in value if name and name not in columns_of(mapping).values()]
    if dropped:
        reading.lose("columns without a meaning here: " + ", ".join(map(quoted, dropped[:8])))
    return mapping


def _with_numbers(value: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, Any]:
    """The row with a numeric time as the number it is."""
    name = columns.get("time")
    if name is not None and _NUMBER.fullmatch(value[name].strip()):
        text = value[name].strip()
        return {**value, name: float(text) if "." in text else int(text)}
    return dict(value)


CSV = Format(FORMAT_NAME, _recognises, _read)
