"""Runs notebooks from top to bottom and stores their outputs, so that nbval can compare and readers can look.

In: notebook files, or folders of them. Out: the same files, executed, without anything that differs from run
to run: no times, no interpreter version, no widget state. Stops at the first cell that raises; its file stays
as it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

MAX_CELL_S = 60
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"  # names a widget by a random id that dies with the kernel
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebooks_in(paths: list[Path]) -> list[Path]:
    """The files themselves, and for a folder the notebooks in it, in reading order."""
    return [found for path in paths for found in (sorted(path.glob("*.ipynb")) if path.is_dir() else [path])]


def execute(path: Path) -> None:
    """Run one notebook in its own folder and write it back."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=MAX_CELL_S,
        kernel_name=KERNEL["name"],
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    )
    client.execute()
    make_stable(notebook)
    unfinished = path.with_suffix(".tmp")
    nbformat.write(notebook, unfinished)
    unfinished.replace(path)


def make_stable(notebook: nbformat.NotebookNode) -> None:
    """Drop whatever another machine or another day would write differently. Cell tags stay."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number:02}"
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in ("tags",) if key in cell.metadata})
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
            output.get("data", {}).pop(WIDGET_VIEW, None)


def main() -> int:
    """Run all notebooks named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("paths", nargs="+", type=Path, help="notebooks, or folders of them")
    for path in notebooks_in(parser.parse_args().paths):
        started_s = time.monotonic()
        try:
            execute(path)
        except CellExecutionError as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 1
        print(f"{path}: {time.monotonic() - started_s:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
