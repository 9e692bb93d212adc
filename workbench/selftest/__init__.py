"""The promises of reliability.md sections 5 and 7, kept or not, on this machine: `workbench selftest`.

*Tally (one goal's count) -> the drivers -> suite (the list of goals and their numbers) -> table*. The tests run
the same drivers with small numbers.
"""
