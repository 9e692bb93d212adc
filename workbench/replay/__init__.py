"""Replays: recordings through the production engine, under a virtual clock, into traces."""
