# ruff: noqa: INP001 - a script beside its data, not a package
"""Makes the tool results of this folder's recordings again, by running their calls on real files.

In: `conversations.jsonl` (whose tool calls are the commands) and `project.json` (the files that each
conversation starts from). Out: without options the calls whose stored result differs from a fresh one
(exit code 1 if there are any); with `--write` the same file with fresh results. A conversation's calls run
in order in one temporary folder, which a recording only ever sees as `/workspace/<project>`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORDING = HERE / "conversations.jsonl"
PROJECTS = HERE / "project.json"
AUTHOR = {"NAME": "Dev", "EMAIL": "dev@example.com"}
# What differs from run to run though nothing changed: durations of test runs, addresses of objects.
UNSTABLE = re.compile(r"\bin \d+\.\d+s|\b0x[0-9a-f]{6,}")


class Workspace:
    """A project folder in which recorded tool calls can be run."""

    def __init__(self, project: dict[str, Any], parent: Path) -> None:
        self.name: str = project["name"]
        self.root = parent / self.name
        self.root.mkdir()
        commits = project["commits"]
        self.run_command("git init -q -b main", when=commits[0]["time"])
        for commit in commits:
            for path, lines in commit["files"].items():
                self._write(path, "".join(line + "\n" for line in lines))
            self.run_command(f"git add -A && git commit -q -m '{commit['message']}'", when=commit["time"])

    def execute(self, name: str, arguments: dict[str, Any], *, when: str) -> str:
        """The result text of one tool call made at time `when`."""
        if name == "run_command":
            return self.run_command(arguments["command"], when=when)
        actions = {"read_file": self._read, "edit_file": self._edit, "write_file": self._write}
        return actions[name](**arguments)

    def run_command(self, command: str, *, when: str) -> str:
        """Output and exit code of a shell command; commits made by it carry the time `when`."""
        stamps = {"DATE": when, **AUTHOR}
        env = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "HOME": str(self.root.parent),
            "LC_ALL": "C.UTF-8",
            "TZ": "Asia/Shanghai",
            "COLUMNS": "100",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # another machine's plugins would change order and output
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_PAGER": "cat",
            **{f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in stamps.items()},
        }
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        text = self._scrub(done.stdout.decode("utf-8", "replace").rstrip("\n"))
        return f"{text}\n[exit code {done.returncode}]".lstrip("\n")

    def _scrub(self, text: str) -> str:
        """Machine paths out, the recording's own paths in."""
        for root in (self.root.resolve(), self.root):
            text = text.replace(str(root), f"/workspace/{self.name}")
        text = re.sub(re.escape(tempfile.gettempdir()) + r"/pytest-of-[^/\s]+/pytest-\d+", "/workspace/tmp", text)
        for prefix in {sys.prefix, sys.base_prefix}:
            if len(prefix) > 5:
                text = text.replace(prefix, "/usr")
        return text

    def _read(self, path: str, start: int = 1, end: int | None = None) -> str:
        lines = (self.root / path).read_text(encoding="utf-8").splitlines()
        last = len(lines) if end is None else min(end, len(lines))
        shown = [f"{number:>4}  {lines[number - 1]}".rstrip() for number in range(start, last + 1)]
        return f"{path}, lines {start}-{last} of {len(lines)}\n" + "\n".join(shown)

    def _edit(self, path: str, old: str, new: str) -> str:
        target = self.root / path
        text = target.read_text(encoding="utf-8")
        if (found := text.count(old)) != 1:
            return f"error: the text to replace occurs {found} times in {path}"
        target.write_text(text.replace(old, new), encoding="utf-8", newline="")
        return f"edited {path} at line {text[: text.index(old)].count(chr(10)) + 1}"

    def _write(self, path: str, content: str) -> str:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8", newline="")
        return f"wrote {path}, {len(content.splitlines())} lines"


def refresh(conversation: dict[str, Any], project: dict[str, Any]) -> list[tuple[int, str]]:
    """`(message index, fresh result)` for every tool message, in order."""
    results: list[tuple[int, str]] = []
    calls: dict[str, tuple[dict[str, Any], str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(project, Path(folder))
        for index, message in enumerate(conversation["messages"]):
            for call in message.get("tool_calls") or ():
                calls[call["id"]] = call["function"], message["timestamp"]
            if message["role"] == "tool":
                function, when = calls[message["tool_call_id"]]
                arguments = json.loads(function["arguments"])
                results.append((index, workspace.execute(function["name"], arguments, when=when)))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="store the fresh results")
    write = parser.parse_args().write
    projects = json.loads(PROJECTS.read_text(encoding="utf-8"))
    conversations = [json.loads(line) for line in RECORDING.read_text(encoding="utf-8").splitlines()]
    n_different = 0
    for conversation in conversations:
        for index, fresh in refresh(conversation, projects[conversation["id"]]):
            message = conversation["messages"][index]
            if UNSTABLE.sub("", message["content"]) != UNSTABLE.sub("", fresh):
                n_different += 1
                sys.stdout.write(f"{conversation['id']}, message {index}: result differs\n")
                message["content"] = fresh
    if write and n_different:
        text = "".join(json.dumps(conversation, ensure_ascii=False) + "\n" for conversation in conversations)
        RECORDING.write_text(text, encoding="utf-8", newline="")
    sys.stdout.write(f"{n_different} results differ{', stored' if write and n_different else ''}\n")
    return 1 if n_different and not write else 0


if __name__ == "__main__":
    raise SystemExit(main())
