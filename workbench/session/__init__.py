"""Sessions, events and summaries as values, and pure questions about them: scopes, deltas, rounds."""
