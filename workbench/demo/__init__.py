"""The bundled demonstration: which recordings, under which configurations.

In: nothing. Out: `demo_recordings()` and `demo_configs()`. The configurations are the TOML files beside this
module: read them as examples of the format.
"""

from __future__ import annotations

from pathlib import Path

from workbench.config import RunConfig
from workbench.errors import RecordingError
from workbench.recordings import Recordings, load_recordings

# Reading order of tables and figures: the baseline, what people start with, then what suits the data.
_ORDER = (
    "no-summary",
    "events-20",
    "tokens-4.0",
    "tokens-1.3",
    "tokens-1.3-user",
    "tokens-1.3-fork",
    "tokens-1.3-late",
    "compaction",
    "tailoring",
)
_FOLDERS = ("zh-service", "zh-en-coding", "en-research", "ja-support", "ko-support", "multi-agent")


def demo_configs() -> list[RunConfig]:
    """The demonstration's configurations, the baseline first."""
    folder = Path(__file__).parent
    return [RunConfig.load(folder / f"{name}.toml") for name in _ORDER]


def datasets_folder() -> Path:
    """The bundled recordings, beside the package in a checkout.

    Raises:
        RecordingError: the package was installed without its checkout.
    """
    for base in (Path(__file__).resolve().parents[2], Path.cwd()):
        if (base / "datasets" / "zh-service").is_dir():
            return base / "datasets"
    raise RecordingError("the bundled recordings aren't here", path="datasets", hint="run the demo from a checkout")


def demo_recordings() -> Recordings:
    """The recordings of the demonstration."""
    folder = datasets_folder()
    return load_recordings([folder / name / "*.jsonl" for name in _FOLDERS])
