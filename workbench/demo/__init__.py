"""The bundled demonstration: which recordings, under which configurations.

In: nothing. Out: `demo_recordings()` and `demo_configs()`. The configurations are the TOML files beside this
module: read them as examples of the format.
"""

from __future__ import annotations

import hashlib
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


def dataset_path(name: str, *, folder: Path | None = None) -> Path:
    """The folder of one bundled dataset, its files unchanged.

    Args:
        name: As `datasets/README.md` lists it.
        folder: Another folder of datasets with a list `SHA256SUMS`.
    Raises:
        RecordingError: a name that leads elsewhere, no such dataset, or a file that isn't as listed.
    """
    root = (folder or datasets_folder()).resolve()
    path = (root / name).resolve()
    if path == root or not path.is_relative_to(root):
        raise RecordingError(f'dataset "{name}" leads outside datasets/', hint="give the name of a folder in it")
    if not path.is_dir():
        raise RecordingError(f'no dataset "{name}"', path="datasets", hint="see datasets/README.md")
    for line in (root / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, _, listed = line.partition("  ")
        file = root / listed
        if not listed.startswith(f"{path.relative_to(root).as_posix()}/"):
            continue
        if not file.resolve().is_relative_to(root):
            raise RecordingError(
                f'dataset file "{listed}" leads outside datasets/', hint="replace the link by the file"
            )
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise RecordingError(
                "checksum differs from the list", path=f"datasets/{listed}", hint="restore it with `git checkout`"
            )
    return path


def demo_recordings() -> Recordings:
    """The recordings of the demonstration."""
    return load_recordings([dataset_path(name) / "*.jsonl" for name in _FOLDERS])
