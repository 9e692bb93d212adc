"""Recorded conversations: one reader per format, one form for what they hold.

In: files as some other system left them. Out: `Conversation`s, problems and a loss report. To add a format:
one module with a `Format`, one line in `load.FORMATS`, one test.
"""

from workbench.recordings.load import Recordings, format_names, load_recordings
from workbench.recordings.native import write_recording
from workbench.recordings.problems import Problem
from workbench.recordings.redact import Redactor, redact
from workbench.recordings.sources import Skipped
from workbench.recordings.types import Conversation, RecordedCall, RecordedRequest

__all__ = [
    "Conversation",
    "Problem",
    "RecordedCall",
    "RecordedRequest",
    "Recordings",
    "Redactor",
    "Skipped",
    "format_names",
    "load_recordings",
    "redact",
    "write_recording",
]
