"""`workbench lab`: its options, and how it opens JupyterLab."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import ConfigError

_HINT = "run it in a checkout, or name a folder of notebooks: workbench lab FOLDER"


def add(command: argparse.ArgumentParser) -> None:
    """Open JupyterLab on the notebooks: first replay, thresholds, cache, calibration, checks, export, explorer.

    workbench lab
    """
    command.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="folder to open; default: the notebooks of the checkout"
    )
    command.add_argument("--copy", metavar="FOLDER", help="first copy the notebooks there, and open the copies")
    command.add_argument("--no-browser", action="store_true", help="print the address instead of opening a browser")
    command.add_argument(
        "--port", type=int, default=8888, metavar="N", help="port on this machine; the next free one if it is taken"
    )


def run(options: argparse.Namespace) -> int:
    folder = _folder(options.folder, options.copy)
    if find_spec("jupyterlab") is None:
        raise ConfigError("JupyterLab isn't installed", field="lab", hint="pip install jupyterlab")
    print(f"opening {folder}; Ctrl-C ends it", file=sys.stderr)
    command = [sys.executable, "-m", "jupyterlab", f"--port={options.port}", f"--ServerApp.root_dir={folder}"]
    if options.no_browser:
        command.append("--no-browser")
    try:
        return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:  # JupyterLab had it too, and has ended
        return 0


def notebooks_folder() -> Path | None:
    """The notebooks beside the package or below the current folder; None in an installation without a checkout."""
    for base in (Path(__file__).resolve().parents[2], Path.cwd()):
        if (base / "notebooks" / "01_first_replay.ipynb").is_file():
            return base / "notebooks"
    return None


def _folder(given: str | None, copy: str | None) -> Path:
    folder = notebooks_folder() if given is None else Path(given)
    if folder is None:
        raise ConfigError("the notebooks aren't part of an installed package", field="folder", hint=_HINT)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder", field="folder", value=str(folder), hint=_HINT)
    folder = folder.resolve()
    return folder if copy is None else _copied(folder, Path(copy))


def _copied(folder: Path, target: Path) -> Path:
    """The notebooks of a folder, copied; one that is there already, and may have been worked on, stays."""
    target.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(folder.glob("*.ipynb")):
        if not (target / notebook.name).exists():
            shutil.copyfile(notebook, target / notebook.name)
    return target.resolve()
