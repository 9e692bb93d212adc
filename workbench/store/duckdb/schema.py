"""The tables of a session store, as numbered steps that each file remembers.

In: an open connection. Out: the newest schema, or a refusal of what a newer release made. Each step runs in
one transaction with its own record and is followed at once by a checkpoint, because replaying schema changes
from the log is DuckDB's weakest spot (reliability.md section 3, consequence 4). Implements SUM-STO-04.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb

from workbench.errors import StoreCorruptError, StoreVersionError


class Migration(NamedTuple):
    """One step; never changed once released."""

    version: int
    name: str
    statements: tuple[str, ...]


# Moments are nanoseconds since 1970 (TIMESTAMP drops digits, M15). No keys and no indexes: they double the
# cost of an insert; one writer keeps rows unique. `deleted_ns` 0 = live (SUM-STO-09, -11).
MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        1,
        "sessions, events, summaries, states",
        (
            "CREATE TABLE store_info (name VARCHAR, value VARCHAR)",
            "CREATE TABLE progress (sequence BIGINT, hash VARCHAR)",
            """CREATE TABLE session_states (
                session_no BIGINT, app_name VARCHAR, user_id VARCHAR, session_id VARCHAR, state JSON, n_events BIGINT,
                created_ns BIGINT, updated_ns BIGINT, expires_ns BIGINT, deleted_ns BIGINT, sequence BIGINT)""",
            """CREATE TABLE session_events (
                session_no BIGINT, position BIGINT, app_name VARCHAR, user_id VARCHAR, session_id VARCHAR,
                event_id VARCHAR, time_ns BIGINT, author VARCHAR, filter_key VARCHAR, created_ns BIGINT,
                event JSON, exact BLOB)""",
            """CREATE TABLE session_summaries (
                session_no BIGINT, app_name VARCHAR, user_id VARCHAR, session_id VARCHAR, filter_key VARCHAR,
                updated_ns BIGINT, summary JSON, exact BLOB)""",
            "CREATE TABLE app_states (app_name VARCHAR, state_key VARCHAR, value BLOB, expires_ns BIGINT)",
            """CREATE TABLE user_states (
                app_name VARCHAR, user_id VARCHAR, state_key VARCHAR, value BLOB, expires_ns BIGINT)""",
            "INSERT INTO progress VALUES (0, '')",
        ),
    ),
)
NEWEST_VERSION = MIGRATIONS[-1].version

TABLES = (
    "store_info",
    "progress",
    "schema_versions",
    "session_states",
    "session_events",
    "session_summaries",
    "app_states",
    "user_states",
)

_CREATE_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_versions (version INTEGER, name VARCHAR, applied_ns BIGINT)"
_VERSION = "SELECT coalesce(max(version), 0) FROM schema_versions"
_RECORD = "INSERT INTO schema_versions VALUES (?, ?, ?)"


def stored_version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """The schema version of an open file.

    Raises:
        StoreCorruptError: a DuckDB file, but no session store.
        StoreVersionError: made by a newer release.
    """
    try:
        version = int(connection.execute(_VERSION).fetchall()[0][0])
    except duckdb.CatalogException:  # to ask the catalogue first would take a fifth of the time to open a store
        version = 0
    if version == 0:
        raise StoreCorruptError(f"{path}: is a DuckDB file, but not a session store", path=path, part="schema")
    if version > NEWEST_VERSION:
        raise StoreVersionError(
            f"{path}: schema version {version}; this release reads up to {NEWEST_VERSION}",
            found=version,
            supported=NEWEST_VERSION,
            hint="open it with a newer release",
        )
    return version


def migrate_tables(
    connection: duckdb.DuckDBPyConnection,
    *,
    now_ns: int,
    version: int,
    migrations: tuple[Migration, ...] | None = None,
) -> int:
    """Run the steps above `version`; the version reached."""
    for step in MIGRATIONS if migrations is None else migrations:
        if step.version > version:
            connection.execute("BEGIN")
            try:
                connection.execute(_CREATE_VERSIONS)
                for statement in step.statements:
                    connection.execute(statement)
                connection.execute(_RECORD, [step.version, step.name, now_ns])
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            connection.execute("CHECKPOINT")
            version = step.version
    return version
