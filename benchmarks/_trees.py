"""Two source trees that are measured in turns, each by processes of its own.

A process finds only its tree's code, byte code that is already written, and a cache of compiled
code that belongs to the tree: filled before anything is measured, or empty if that is asked for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
LIMIT = 600.0  # seconds of one process


class FailedError(Exception):
    """A process that measures has failed."""


@dataclass(frozen=True)
class Tree:
    """A source tree, and a folder for what its processes keep."""

    name: str
    source: Path
    folder: Path
    commit: str

    def run(self, *command: str, cold: bool = False) -> tuple[float, str]:
        """Run Python in a process of its own; return how long it took and what it printed."""
        with tempfile.TemporaryDirectory(dir=self.folder) as empty:
            cache = empty if cold else str(self.folder / "numba")
            environment = {
                name: value
                for name, value in os.environ.items()
                if not name.endswith("_NUM_THREADS") and not name.startswith("PYTHON")
            }
            environment |= {"PYTHONPATH": str(self.source), "NUMBA_CACHE_DIR": cache}
            began = time.time()
            with subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env={**environment, "BEGAN": repr(began)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as process:
                try:
                    printed, told = process.communicate(timeout=LIMIT)
                    took = time.time() - began
                except subprocess.TimeoutExpired:
                    raise FailedError(f"took more than {LIMIT:.0f} s") from None
                finally:
                    end_group(process)
        if process.returncode:
            last = next((line for line in reversed(told.splitlines()) if line.strip()), "")
            last = last.strip(" │").replace(f"{self.folder}/", "").replace(f"{ROOT}/", "")
            raise FailedError(f"exit code {process.returncode}: {last[:200]}")
        return took, printed

    def probe(self, name: str, *, cold: bool = False, **settings: Any) -> dict[str, list[Any]]:
        """Run a probe of `benchmarks/_probes.py` on this tree."""
        _, printed = self.run(str(HERE / "_probes.py"), name, json.dumps(settings), cold=cold)
        found = json.loads(printed.splitlines()[-1])
        if not Path(found["from"]).is_relative_to(self.source):
            raise FailedError(f"measured other code than that of {self.name!r}")
        values: dict[str, list[Any]] = found["values"]
        return values


def end_group(process: subprocess.Popen[str]) -> None:
    """End a process, and those that it has left behind, so that they disturb no later one."""
    with suppress(ProcessLookupError):  # none is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def git(*command: str) -> str:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def working_tree(folder: Path) -> Tree:
    """Return the tree that this file is in."""
    commit = git("rev-parse", "--short", "HEAD")
    changed = git("status", "--porcelain", "--", "src")
    return _tree("now", ROOT / "src", folder, f"{commit} with changes" if changed else commit)


def earlier_tree(name: str, folder: Path) -> Tree:
    """Return another tree, by the path of its root or by a name that git knows."""
    if Path(name).is_dir():
        return _tree("before", Path(name).resolve() / "src", folder, Path(name).resolve().name)
    commit = git("rev-parse", "--short", f"{name}^{{commit}}")
    packed = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder / "before-tree", filter="data")
    return _tree("before", folder / "before-tree" / "src", folder, commit)


def _tree(name: str, source: Path, folder: Path, commit: str) -> Tree:
    (folder / name).mkdir()
    return Tree(name, source, folder / name, commit)
