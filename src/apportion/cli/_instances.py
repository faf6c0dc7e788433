"""The instances of a run, read again from the data that its configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from apportion.cli.job import TrainJob
from apportion.errors import ApportionError, RunError
from apportion.runs.header import columns_of, read_header
from apportion.runs.run import Run

if TYPE_CHECKING:
    from apportion.cli.source import Source
    from apportion.report.instances import Instances

__all__ = ["instances_of"]

LEAVE_OUT = "or leave out --with-instances."


def instances_of(run: Run) -> Instances:
    """Read the bags of a run again, with the names of files or signals.

    Raises
    ------
    RunError
        If the run was started in Python, or its data are not there any more.
    """
    from apportion.report.instances import Instances

    if "data" not in run.settings():
        raise RunError(
            f"{run.folder} was started in Python, from arrays: {run.config.name} does not say "
            "where they are.",
            'Write the report in Python: write_report(runs, instances={"train": bags, …}); '
            + LEAVE_OUT,
        )
    try:
        job = TrainJob.from_toml(run.config, {})
        header = read_header(run.model, "model") if run.model.exists() else {}
        sets = job.read(columns_of(header))
        return Instances(sets, _names(job.source, sets))
    except ApportionError as error:
        problem, *remedies = str(error).split("\n  ")
        raise RunError(
            f"the instances of {run.folder} cannot be read again: {problem}",
            *remedies[:-1],
            f"Put the data back as they were when it was trained, {LEAVE_OUT}",
        ) from error


def _names(source: Source, sets: Any) -> list[str] | None:
    """Return the names of the files or signals in the order of the rows of x."""
    key = {"table": None, "images": source.file, "signals": source.signal}[source.kind]
    if key is None:
        return None
    cells = (frame[key].tolist() for _, frame in source.open().read([key], {key}))
    names = list(dict.fromkeys(str(cell) for own in cells for cell in own))
    n_rows = next(iter(sets.values())).n_rows
    return names if len(names) == n_rows else None  # two spellings of one file, for example
