"""Where sessions are kept: the store protocol, the in-memory store, DuckDB files."""
