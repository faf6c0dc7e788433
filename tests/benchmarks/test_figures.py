import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks import _figures
from benchmarks._trees import ROOT, Tree


@dataclass(frozen=True)
class Recorded(Tree):
    """A tree whose processes print and write what a test says."""

    prints: Any = None
    writes: list[dict] = field(default_factory=list)

    def run(self, *command, cold=False):
        out = [Path(part) for part in command if part.endswith(".jsonl")]
        for path in out:
            path.write_text("".join(json.dumps(line) + "\n" for line in self.writes))
        return 1.5, self.prints(command) if self.prints else ""


def recorded(folder, **what):
    return Recorded("now", ROOT / "src", folder, "abc", **what)


@pytest.mark.slow  # it compiles, into the cache of its tree
def test_the_command_line_runs_on_a_small_table(tmp_path):
    tree = Tree("now", ROOT / "src", tmp_path, "abc")
    values = _figures.command_line(tree, True)
    assert [what.split()[-1] for what in values] == ["--help`", "check`", "predict`", "report`"]
    assert all(value > 0 and unit == "s" for value, unit in values.values())
    assert (tmp_path / "predictions.csv").exists()
    assert (tmp_path / "run" / "report.html").exists()


def test_default_threads_are_told_by_size_and_load(tmp_path):
    lines = [
        {"size": "a", "load": "alone", "threads": "default", "to_best": 1.25},
        {"size": "a", "load": "alone", "threads": 2, "to_best": 1.0},
        {"size": "b", "load": "alone", "threads": "default", "to_best": None},
    ]
    found = _figures.threads(recorded(tmp_path, writes=lines), False)
    assert found == {"default threads ÷ the best number, a, alone": [1.25, "×"]}


def test_streaming_is_a_share_of_the_speed_in_place(tmp_path):
    def prints(command):
        streamed = json.loads(command[-1])["streamed"]
        return json.dumps({"seconds": {"train": 3.0 if streamed else 2.0, "labels": 1.0}})

    found = _figures.streaming(recorded(tmp_path, prints=prints), True)
    assert found["epoch of 20,000 × 20, in place"] == [3.0, "s"]
    assert found["speed when streamed, 20,000 × 20"] == [75.0, "%"]


def test_peers_are_named_as_sizes_are_written(tmp_path):
    line = {"case": "4096 x 10", "ours_ms": 0.2, "peer": "POT emd", "peer_ms": 2.0, "ratio": 10.0}
    found = _figures.peers(recorded(tmp_path, writes=[line]), False)
    more = {"peer": "POT emd", "peer_ms": 2.0, "ratio": 10.0}
    assert found == {"4,096 × 10": [0.2, "ms", more]}


@pytest.mark.parametrize("quick", [True, False])
def test_every_case_of_the_solver_is_asked_for(tmp_path, quick, monkeypatch):
    monkeypatch.setattr(Recorded, "probe", lambda self, name, **settings: settings)
    cases = _figures.solver(recorded(tmp_path), quick)["cases"]
    assert ((1_000_000, 10) in cases) != quick
    assert (4096, 2) in cases
