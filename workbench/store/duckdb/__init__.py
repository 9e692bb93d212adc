"""The durable session store: one DuckDB file with a journal beside it.

`store.DuckDBStore` is what a service uses, `queued.QueuedDuckDBStore` where it stores events in the background;
`maintenance` checks, copies, compacts and migrates files. What is acknowledged stands in `journal`; `database` gets
it in batches. See the module docstrings for the promises.
"""
