"""The verb `apportion doctor`: what apportion needs, what was found, and what to do about it."""

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from typing import Annotated, Literal

import typer

from apportion import __version__

__all__ = ["Finding", "doctor"]

MODULES = {"pillow": "PIL", "scikit-learn": "sklearn"}  # whose modules have other names
SLOW = "Every process compiles again: set NUMBA_CACHE_DIR to a folder you may write to."


@dataclass(frozen=True)
class Finding:
    """One thing that was examined: `note` is worth knowing, `broken` stops apportion."""

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
        for group, members in findings.items():
            typer.echo(group)
            for finding in members:
                typer.echo(f"  {finding.state:<7} {finding.name:<15} {finding.found}")
                if finding.remedy:
                    typer.echo(f"{'':26}{finding.remedy}")
        verdict = f"Broken: {', '.join(broken)}." if broken else "Everything needed works."
        typer.echo(f"\n{verdict}")
    raise typer.Exit(1 if broken else 0)


def _carefully(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Turn whatever goes wrong in an examination into a finding: a doctor does not crash."""
    try:
        yield from look()
    except ModuleNotFoundError as error:
        yield Finding("not examined", "note", f"this needs {error.name}", "Install it first.")
    except Exception as error:  # noqa: BLE001
        remedy = "Repair the dependencies, if any is broken; otherwise reinstall apportion."
        yield Finding("examination", "broken", f"{type(error).__name__}: {error}", remedy)


def _dependencies() -> Iterator[Finding]:
    yield Finding("apportion", "ok", f"{__version__} on {platform.platform()}")
    yield Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})")
    for name in _required():
        module = MODULES.get(name, name)
        try:
            import_module(module)
            yield Finding(name, "ok", metadata.version(name))
        except ModuleNotFoundError as error:
            missing = error.name != module
            found = f"needs {error.name}, which is not installed" if missing else "not installed"
            remedy = f"pip install {error.name if missing else name}"
            yield Finding(name, "broken", found, remedy)
        except Exception as error:  # noqa: BLE001  (a shared library that does not load, and so on)
            remedy = f"pip install --force-reinstall {name}"
            yield Finding(name, "broken", f"does not import: {error}", remedy)


def _required() -> list[str]:
    """Return the distributions that apportion needs, without its extras."""
    try:
        every = metadata.requires("apportion") or []
    except metadata.PackageNotFoundError:  # a plain source tree
        return ["numpy", "scipy", "torch", "scikit-learn", "numba", "safetensors", "pandas"]
    names = (re.split(r"[^\w.-]", line)[0] for line in every if "extra ==" not in line)
    return sorted(name.lower() for name in names)


def _threads() -> Iterator[Finding]:
    import torch
    from joblib import cpu_count

    cores, threads, remedy = cpu_count(), torch.get_num_threads(), ""
    if threads > cores:
        remedy = f"They compete for the cores: set OMP_NUM_THREADS={cores}."
    elif threads < cores and "OMP_NUM_THREADS" in os.environ:
        remedy = "Training on the CPU uses no more: unset OMP_NUM_THREADS."
    found = f"{threads} threads on {cores} cores of {os.cpu_count()}"
    yield Finding("torch", "note" if remedy else "ok", found, remedy)


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
    """Examine whether label decisions are right, compiled, and compiled only once."""
    import numba
    import numpy as np
    from numba.core.dispatcher import Dispatcher

    from apportion.labels.compiling import entry_names, is_cached

    cost, counts = np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0]]), np.array([2, 1])
    began = time.perf_counter()
    decided = import_module("apportion.labels.assign").assign(cost, counts)
    labels = np.asarray(decided.labels).tolist()
    if labels == [1, 0, 0]:
        found = f"exact; run in {time.perf_counter() - began:.2f} s"
        yield Finding("assign", "ok", found)
    else:
        remedy = "Reinstall numba, and clear the kernel cache."
        yield Finding("assign", "broken", f"returned {labels}, not [1, 0, 0]", remedy)
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        remedy = "Label decisions run in plain Python, far slower: unset NUMBA_DISABLE_JIT."
        yield Finding("compiled", "note", "no: NUMBA_DISABLE_JIT is set", remedy)
        return
    kernel = vars(import_module("apportion.labels.kernel"))
    ready = all(is_cached(kernel[name]) for name in entry_names(None))
    found = "yes" if ready else "not yet: the first decision of labels does it, in about 10 s"
    yield Finding("compiled", "ok", found)
    stats = [value.stats for value in kernel.values() if isinstance(value, Dispatcher)]
    folders = sorted({entry.cache_path for entry in stats if entry.cache_path})
    if folders and all(os.access(folder, os.W_OK) for folder in folders):
        yield Finding("kernel cache", "ok", ", ".join(folders))
    else:
        where = f": {', '.join(folders)}" if folders else ""
        yield Finding("kernel cache", "note", f"off or not writable{where}", SLOW)


EXAMINATIONS = {"dependencies": _dependencies, "threads": _threads, "GPU": _gpu, "solver": _solver}
