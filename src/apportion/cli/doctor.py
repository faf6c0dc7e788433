"""The verb `apportion doctor`: what apportion needs, what it found, and what to do about it.

It collects `Finding`s and only then prints them, as a table for people or as JSON for machines.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from types import ModuleType
from typing import Annotated, Literal

import typer

from apportion import __version__

__all__ = ["DEPENDENCIES", "Finding", "doctor"]

# What has to be installed: the name for pip, and the module to import.
DEPENDENCIES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "torch": "torch",
    "scikit-learn": "sklearn",
    "threadpoolctl": "threadpoolctl",
    "numba": "numba",
    "safetensors": "safetensors",
    "filelock": "filelock",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "matplotlib": "matplotlib",
    "jinja2": "jinja2",
    "typer": "typer",
    "rich": "rich",
}


@dataclass(frozen=True)
class Finding:
    """One thing that `doctor` looked at: `note` is worth knowing, `broken` stops apportion."""

    name: str
    state: Literal["ok", "note", "broken"]
    found: str
    remedy: str = ""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
) -> None:
    """Check the installation and the machine; exit with 1 if something needed is broken."""
    findings = {group: list(_carefully(look)) for group, look in EXAMINATIONS.items()}
    broken = [
        f"{group}: {finding.name}"
        for group, members in findings.items()
        for finding in members
        if finding.state == "broken"
    ]
    if as_json:
        plain = {group: [asdict(finding) for finding in found] for group, found in findings.items()}
        typer.echo(json.dumps({"ok": not broken, "findings": plain}, indent=2))
    else:
        _print_table(findings, broken)
    raise typer.Exit(1 if broken else 0)


def _carefully(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Turn whatever goes wrong in an examination into a finding: a doctor does not crash."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001
        if isinstance(error, ModuleNotFoundError) and error.name in DEPENDENCIES.values():
            yield Finding("not examined", "note", f"this needs {error.name}", "Install it first.")
        else:
            found = f"{type(error).__name__}: {error}"
            remedy = "Mend the dependencies, if any is broken; else reinstall apportion, "
            remedy += "and delete the __pycache__ beside its files."
            yield Finding("examination", "broken", found, remedy)


def _system() -> Iterator[Finding]:
    yield Finding("apportion", "ok", __version__)
    yield Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Finding("platform", "ok", platform.platform())


def _dependencies() -> Iterator[Finding]:
    for distribution, module in DEPENDENCIES.items():
        try:
            yield Finding(distribution, "ok", _version(distribution, import_module(module)))
        except ModuleNotFoundError as error:
            absent, found = error.name, f"needs {error.name}, which is not installed"
            if absent == module:
                absent, found = distribution, "not installed"
            yield Finding(distribution, "broken", found, f"pip install {absent}")
        except Exception as error:  # noqa: BLE001  (a shared library that does not load, and so on)
            remedy = f"pip install --force-reinstall {distribution}"
            found = f"does not import: {error}"
            yield Finding(distribution, "broken", found, remedy)


def _version(distribution: str, module: ModuleType) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:  # importable, but not installed by pip
        return str(getattr(module, "__version__", "of unknown version"))


def _threads() -> Iterator[Finding]:
    import torch

    cores = _cores()
    yield Finding("CPU cores", "ok", f"{cores} for this process of {os.cpu_count()}")
    threads = torch.get_num_threads()
    if threads > cores:
        remedy = f"They compete for the cores: set OMP_NUM_THREADS={cores}."
        yield Finding("torch", "note", f"{threads} threads", remedy)
    elif threads < cores and "OMP_NUM_THREADS" in os.environ:
        remedy = "Training on the CPU uses no more: unset OMP_NUM_THREADS for all cores."
        yield Finding("torch", "note", f"{threads} threads", remedy)
    else:
        yield Finding("torch", "ok", f"{threads} threads")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _gpu() -> Iterator[Finding]:
    import torch

    if torch.cuda.is_available():
        for device in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(device)
            found = f"{about.name}, {about.total_memory / 2**30:.0f} GiB"
            yield Finding(f"cuda:{device}", "ok", found)
    elif torch.version.cuda is None:
        remedy = "For an NVIDIA GPU install a CUDA build: https://pytorch.org/get-started/locally"
        yield Finding("CUDA", "note", "none: this torch is built without CUDA", remedy)
    else:
        remedy = "If the machine has a GPU, look at nvidia-smi and CUDA_VISIBLE_DEVICES."
        found = f"none: torch is built for CUDA {torch.version.cuda}, but sees no GPU"
        yield Finding("CUDA", "note", found, remedy)


def _solver() -> Iterator[Finding]:
    """Whether label decisions are right, compiled, and compiled only once."""
    import numba
    import numpy as np

    cost, counts = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0]]), np.array([2, 1])
    began = time.perf_counter()
    try:
        decided = import_module("apportion.labels.assign").assign(cost, counts)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        remedy = "Set NUMBA_CACHE_DIR to a folder that you may write to."
        yield Finding("kernel cache", "broken", "no folder is writable", remedy)
        return
    seconds = time.perf_counter() - began

    labels = np.asarray(decided.labels).tolist()
    if labels == [1, 0, 0]:
        yield Finding("assign", "ok", f"exact; loaded and run in {seconds:.2f} s")
    else:
        remedy = "Reinstall numba; clear the kernel cache, or set NUMBA_DISABLE_JIT=1 to compare."
        yield Finding("assign", "broken", f"gave {labels}, not [1, 0, 0]", remedy)

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        remedy = "Label decisions run in plain Python, far slower: unset NUMBA_DISABLE_JIT."
        yield Finding("compiled", "note", "no: NUMBA_DISABLE_JIT is set", remedy)
    else:
        yield Finding("compiled", "ok", "yes, by numba")
        yield _kernel_cache(import_module("apportion.labels.kernel"))


def _kernel_cache(kernel: ModuleType) -> Finding:
    from numba.core.dispatcher import Dispatcher

    stats = [value.stats for value in vars(kernel).values() if isinstance(value, Dispatcher)]
    folders = sorted({entry.cache_path for entry in stats if entry.cache_path})
    if not folders:
        remedy = "Every process compiles again: set NUMBA_CACHE_DIR to a folder you may write to."
        return Finding("kernel cache", "note", "off", remedy)
    if not all(os.access(folder, os.W_OK) for folder in folders):
        remedy = "Every process compiles again: set NUMBA_CACHE_DIR to a folder you may write to."
        found = f"not writable: {', '.join(folders)}"
        return Finding("kernel cache", "note", found, remedy)
    loaded = sum(sum(entry.cache_hits.values()) for entry in stats)
    compiled = sum(sum(entry.cache_misses.values()) for entry in stats)
    used = "used" if loaded and not compiled else "filled just now; the next start is quick"
    return Finding("kernel cache", "ok", f"{used}: {', '.join(folders)}")


def _blas() -> Iterator[Finding]:
    import numpy as np
    import torch

    numpy_blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    torch_blas = "MKL" if mkl else "without MKL"
    yield Finding("libraries", "ok", f"numpy {numpy_blas}, torch {torch_blas}")


EXAMINATIONS = {
    "system": _system,
    "dependencies": _dependencies,
    "threads": _threads,
    "GPU": _gpu,
    "solver": _solver,
    "BLAS": _blas,
}


def _print_table(findings: dict[str, list[Finding]], broken: list[str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    marks = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "broken": "[bold red]broken[/]"}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for group, members in findings.items():
        table.add_row("", f"[bold]{group}[/]")
        for finding in members:
            table.add_row(marks[finding.state], finding.name, escape(finding.found))
            if finding.remedy:
                table.add_row("", "", f"[cyan]{escape(finding.remedy)}[/]")
        table.add_row()
    verdict = (
        f"Broken: {', '.join(broken)}." if broken else "Everything that apportion needs works."
    )
    console = Console(highlight=False)
    console.print(table)
    console.print(f"[bold]{escape(verdict)}[/]")
