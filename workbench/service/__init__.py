"""The session service over any store: append, state, hooks, summaries, background workers."""
