"""What recordings and runs say about a configuration: counters fitted to them, and how sure that is."""
