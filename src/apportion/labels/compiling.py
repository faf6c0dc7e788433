"""The solver before numba has compiled it: who waits, and who does not.

numba keeps what it compiled beside the source, or in a folder of the user, and every later process
loads it from there. Once per installation somebody has to compile. `compile_ahead` starts that in a
process beside this one, as soon as it is clear that labels will be decided. Until it is done, small
problems are solved by the same source, interpreted: the answers are the same to the last bit. Large
ones wait: a lock in numba's folder keeps two processes from compiling the same.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from filelock import FileLock, Timeout
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["Solvers"]

logger = logging.getLogger("apportion")

INTERPRETED = 300_000  # costs that need not be compiled for: most take 3 or 4 µs each, the worst 12
WORTH_COMPILING = 10_000  # costs; a script that solves fewer ends before the compiler does
SECONDS = {"solve_two": 2, "solve_bags": 8}  # that compiling takes on a machine of today
PATIENCE = 8  # times as long is waited for another process
numbers, wholes = numba.float64[:, ::1], numba.int64[:, ::1]
SIGNATURE = (
    *(numbers, wholes, numba.int64[::1], numbers, numba.boolean),
    *(numba.int64[::1], numba.int64, numba.int64, wholes, numbers),
)

Entry = Callable[..., None]


class Solvers:
    """The entries of the kernel, for two classes and for more, compiled or not.

    Only `apportion.labels.assign` makes one: it is the kernel's one door.
    """

    def __init__(self, kernel: ModuleType) -> None:
        self.kernel = kernel
        self.lock = threading.Lock()
        self.solved = 0  # costs, before there was a compiled solver
        self.begun: tuple[str, ...] = ()  # what a process beside this one compiles
        self.beside: list[subprocess.Popen[bytes]] = []
        self.told = False

    def of(self, n_classes: int, n_costs: int) -> Entry:
        """Return what solves bags of so many classes, and so many costs in all.

        It has been compiled, now or earlier. Or it is interpreted: while another process compiles,
        if that takes a second or so, and in one that solves no more than a little in all.
        """
        (name,) = entry_names(n_classes)
        entry: Any = getattr(self.kernel, name)
        if _is_loaded(entry):
            return entry  # type: ignore[no-any-return]
        if not is_cached(entry):
            with self.lock:
                self.solved += n_costs
                solved, small = self.solved, n_costs <= INTERPRETED
            if small and solved > WORTH_COMPILING:
                self.compile_ahead(n_classes)
            if small and (solved <= INTERPRETED or self._is_compiling()):
                return self.interpreted[name]
            self._tell(name)
        self.compile_now(n_classes)
        return entry  # type: ignore[no-any-return]

    def _tell(self, name: str) -> None:
        with self.lock:
            told, self.told = self.told, True
        if not told:
            words = "The solver is being compiled, once per installation: about %d s."
            logger.warning(words, SECONDS[name])

    def compile_now(self, n_classes: int | None = None) -> None:
        """Compile, or wait for who does, or load what was compiled."""
        for name in entry_names(n_classes):
            entry: Any = getattr(self.kernel, name)
            if _is_loaded(entry):
                continue
            try:
                with _alone(entry):
                    entry.compile(SIGNATURE)
            except OSError:  # it could not be kept
                if not _is_loaded(entry):
                    raise

    def compile_ahead(self, n_classes: int | None = None) -> None:
        """Start to compile beside this process, unless that has been done or begun.

        Parameters
        ----------
        n_classes : int, optional
            Of the labels to decide; by default both solvers are compiled, two classes first.
        """
        with self.lock:
            missing = [name for name in entry_names(n_classes) if self._is_missing(name)]
            if not missing or not _may_start_processes():
                return
            self.begun += (*missing,)
        here = Path(__file__).parents[2]  # the apportion that is running, before any other
        path = [str(here), *(os.path.abspath(p) for p in sys.path if p and isinstance(p, str))]  # noqa: PTH100
        script = (
            f"import sys; sys.path[:] = {path!r}; from apportion.labels import assign; "
            f"assign.SOLVERS.compile_here({missing!r})"
        )
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError:  # then whoever needs it compiles it
            return
        self.beside.append(process)
        threading.Thread(target=process.wait, daemon=True).start()  # or it would end as a zombie
        logger.info("The solver is compiled beside, once per installation; until then it is slow.")

    def _is_missing(self, name: str) -> bool:
        entry: Any = getattr(self.kernel, name)
        if name in self.begun or is_cached(entry):
            return False
        return entry.stats.cache_path is not None  # or another process would compile in vain

    def _is_compiling(self) -> bool:
        return any(process.poll() is None for process in self.beside)

    def compile_here(self, names: list[str]) -> None:
        """Compile into numba's cache, in this process, unless another one does already."""
        for name in names:
            entry: Any = getattr(self.kernel, name)
            with suppress(Timeout), _alone(entry, timeout=0):
                entry.compile(SIGNATURE)

    @cached_property
    def interpreted(self) -> dict[str, Entry]:
        """The same functions as they are written, each calling the others."""
        names = dict(vars(self.kernel))
        for name, value in vars(self.kernel).items():
            if hasattr(value, "py_func"):
                names[name] = FunctionType(value.py_func.__code__, names, name)

        def quiet(run: Entry) -> Entry:
            def solve(*arguments: Any) -> None:
                with np.errstate(all="ignore"):  # as compiled code is about 0 / 0 and infinities
                    run(*arguments)

            return solve

        return {name: quiet(names[name]) for name in entry_names(None)}


def entry_names(n_classes: int | None) -> tuple[str, ...]:
    """Return the entries that solve bags of so many classes, or of any number."""
    if n_classes is None:
        return "solve_two", "solve_bags"
    return ("solve_two" if n_classes == 2 else "solve_bags",)


def is_cached(entry: Any) -> bool:
    """Return whether an entry needs no compiling."""
    if _is_loaded(entry):
        return True
    with global_compiler_lock:  # numba's own: other threads may be compiling
        try:
            return entry._cache.load_overload(SIGNATURE, entry.targetctx) is not None
        except Exception:  # noqa: BLE001 (whatever reading a damaged file raises)
            with suppress(OSError):
                entry._cache.flush()
            return False


def _is_loaded(entry: Any) -> bool:
    return bool(getattr(entry, "overloads", True))  # plain functions of NUMBA_DISABLE_JIT are


@contextmanager
def _alone(entry: Any, timeout: float | None = None) -> Iterator[None]:
    """Hold the lock on an entry in numba's folder, if it can be had; two compilers do no harm.

    By default, wait for who holds it several times as long as compiling takes, and go on without.
    """
    folder, name = entry.stats.cache_path, entry.__name__
    if folder is None:
        yield
        return
    lock = FileLock(Path(folder) / f"apportion-{name}.lock")
    try:
        lock.acquire(timeout=PATIENCE * SECONDS[name] if timeout is None else timeout)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, Timeout) and timeout is not None:
            raise
    try:
        yield
    finally:
        lock.release()


def _may_start_processes() -> bool:
    return (
        multiprocessing.parent_process() is None
        and not getattr(sys, "frozen", False)
        and Path(sys.executable or "").stem.lower().startswith("python")
    )
