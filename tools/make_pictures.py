"""Makes the picture and the table of results that the README shows, from the bundled recordings.

In: the demonstration of the package. Out: `reports/first-replay.png`, and the README's section `demo`: the table, and
for each configuration the comment at the head of its file.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from option_table import README, with_section

import workbench.demo
from workbench import RunConfig, replay, report
from workbench.demo import demo_configs, demo_recordings
from workbench.report.terminal import runs_table

PICTURE = README.parent / "reports" / "first-replay.png"
MAX_BYTES = 200_000
_SHOWN = ("no summary", "4.0 chars/token", "1.3 chars/token")


def comments() -> dict[str, str]:
    """What each configuration is, by its name: the first line of its file."""
    files = Path(workbench.demo.__file__).parent.glob("*.toml")
    return {RunConfig.load(path).name: path.read_text(encoding="utf-8").split("\n")[0].strip("# ") for path in files}


def main() -> int:
    """Replay, draw, write."""
    with tempfile.TemporaryDirectory() as folder:
        runs = replay(demo_recordings(), demo_configs(), runs=folder, progress=False)
        figure = report.tokens_per_call({name: runs[name] for name in _SHOWN})
        PICTURE.parent.mkdir(exist_ok=True)
        figure.savefig(PICTURE, format="png", dpi=110, metadata={"Software": None})
        table = runs_table(runs)
        about = comments()
        lines = [f"- **{name}**: {about[name]}" for name in runs]
    if (size := PICTURE.stat().st_size) > MAX_BYTES:
        print(f"{PICTURE.name}: {size:,} bytes, at most {MAX_BYTES:,}", file=sys.stderr)
        return 1
    text = README.read_text(encoding="utf-8")
    README.write_text(with_section(text, "demo", "\n".join((f"```text\n{table}\n```", "", *lines))), encoding="utf-8")
    print(f"{PICTURE.parent.name}/{PICTURE.name}: {figure.finding}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
