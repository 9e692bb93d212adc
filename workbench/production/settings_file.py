"""A configuration as TOML or JSON, with its evidence in the table `[export]` (WB-EXP-01).

In: a configuration and its stamp. Out: the text of a file that `RunConfig.load` reads back equal, and the stamp that
a file holds. The table is no part of the configuration, nor of its hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.config import EXPORT_TABLE, RunConfig, checked_export, table_of_file, toml_key, toml_value
from workbench.production.stamp import Stamp


def toml_text(config: RunConfig, stamp: Stamp) -> str:
    """The configuration as TOML, the stamp behind it."""
    # A file without a name would get its own, and not be equal.
    own = config.to_toml() if config.name else f'name = ""\n{config.to_toml()}'
    return f"{own.rstrip()}\n\n{_table(stamp.table(), EXPORT_TABLE)}"


def json_text(config: RunConfig, stamp: Stamp) -> str:
    """The configuration as JSON, the stamp behind it."""
    values = {"name": config.name, **config.to_values(), EXPORT_TABLE: stamp.table()}
    return json.dumps(values, ensure_ascii=False, indent=2) + "\n"


def _table(values: Mapping[str, Any], path: str) -> str:
    """A table: its plain values first, then the tables in it."""
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    rows = {
        name: value
        for name, value in values.items()
        if isinstance(value, list) and value and isinstance(value[0], Mapping)
    }
    plain = [f"{toml_key(n)} = {toml_value(v)}\n" for n, v in values.items() if n not in tables and n not in rows]
    parts = [f"[{path}]\n" + "".join(plain)]
    parts += [_table(value, f"{path}.{toml_key(name)}") for name, value in tables.items()]
    for name, items in rows.items():
        # One row a line: figures are read as a table.
        lines = "".join(f"    {toml_value(item)},\n" for item in items)
        parts[0] += f"{toml_key(name)} = [\n{lines}]\n"
    return "\n".join(parts)


def stamp_of(path: str | Path) -> Stamp | None:
    """The stamp of an exported file; None for one that somebody wrote.

    Raises:
        ConfigError: it is another version's, or not whole.
        RecordingError: the file can't be read.
    """
    values = table_of_file(path)
    table = checked_export(values.get(EXPORT_TABLE), where=str(path))
    if table is None:
        return None
    name = values.get("name")
    return Stamp.from_table(table, name=name if isinstance(name, str) else "", where=str(path))
