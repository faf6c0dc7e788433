"""Real processes killed at random through three doors, then continued as their messages say.

The end must be what it would have been, to the bit. A short form is in `make test`; the long one,
and the soak, are in `make test-faults`.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import pytest

from tests.cli.wards_on_disk import voters, write
from tests.faults import killing
from tests.faults.killing import EPOCHS, Killer, Server, left_behind

SOAK_SECONDS = float(os.environ.get("APPORTION_SOAK_SECONDS", "900"))
KILLS = int(os.environ.get("APPORTION_KILLS", "100"))
OPTIONS = ["--epochs", EPOCHS, "--threads", 1, "--device", "cpu"]


class Doors:
    """All doors, with the runs that they lead to if nobody disturbs them."""

    def __init__(self, server, folder):
        self.server, self.folder, self.n = server, folder, 0
        self.files = write(folder)
        (folder / "small").mkdir()
        self.small = write(folder / "small", voters(120))
        self.known = {}

    def begin(self, door, target, every, seed=0, force=False):
        """Return the arguments that begin a run with a checkpoint every so many epochs."""
        if door == "fit":
            return [target, every]
        more = ["--force"] if force else []
        if door == "auto":  # a checkpoint per net; as many nets as there are epochs elsewhere
            own = [*self.small, "--exclude", "id", *OPTIONS[2:], "--seed", seed]
            return ["train", *own, "--out", target, *more]
        rows, _, bag, _, proportions = self.files
        config = self.folder / f"every-{every}.toml"
        config.write_text(
            f'[data]\nrows = "{rows}"\nbag = "{bag}"\nproportions = "{proportions}"\n'
            f'exclude = ["id"]\n[train]\ncheckpoint_every = {every}\n'
        )
        return ["train", config, *OPTIONS, "--seed", seed, "--out", target, *more]

    def reference(self, door, every, seed=0):
        """Return what an undisturbed run leaves, its time, and its calls that change files."""
        if (door, every, seed) not in self.known:
            target = self.folder / f"reference-{door}-{every}-{seed}"
            began = time.perf_counter()
            code, said, calls = self.server(door, self.begin(door, target, every, seed), at=0)
            assert code == 0, said
            seconds = time.perf_counter() - began
            self.known[door, every, seed] = left_behind(target), seconds, int(calls)
        return self.known[door, every, seed]

    def kill(self, killer, door, kills, *, force=False, fresh=0.0):
        """Kill one run some times, and see it finished."""
        self.n += 1
        every = 1 if door == "auto" else killer.random.choice([1, 5])
        target = self.folder / f"run-{self.n}"
        wanted, seconds, calls = self.reference(door, every)
        before = None
        if force:
            before = self.reference(door, every, seed=1)[0]
            code, said, _ = self.server(door, self.begin(door, target, every, seed=1))
            assert code == 0, said
            calls += 12  # those of setting aside and of removing
        begin = self.begin(door, target, every, force=force)
        killer.finish(
            door, begin, target, wanted, seconds, calls, kills, before=before, fresh=fresh
        )
        assert left_behind(target) == wanted


@pytest.fixture(scope="module")
def doors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kills")
    server = Server(folder)
    yield Doors(server, folder)
    server.close()


def show(killer, what):
    moments = "\n".join(f"  {n:4d}  {moment}" for moment, n in killer.moments.most_common())
    signals = ", ".join(f"{n} {name}" for name, n in killer.signals.items())
    print(  # noqa: T201 - pytest -s shows it
        f"\n{what}: {killer.kills} kills ({signals}), {killer.commands} commands, "
        f"{killer.runs} runs finished equal to the bit, 0 stuck\n{moments}"
    )


def test_a_few_kills_of_fit(doors):
    killer = Killer(doors.server, doors.folder, seed=1)
    while killer.kills < 3:
        doors.kill(killer, "fit", 3)
    show(killer, "fit")


def test_a_few_kills_of_the_command_line(doors):
    killer = Killer(doors.server, doors.folder, seed=2)
    while killer.kills < 3:
        doors.kill(killer, "train", 2, force=killer.kills > 0)
    show(killer, "apportion train")


def test_a_few_kills_of_an_average(doors):
    killer = Killer(doors.server, doors.folder, seed=6)
    while killer.kills < 3:
        doors.kill(killer, "auto", 3)
    show(killer, "apportion train with auto")
    assert len(doors.reference("auto", 1)[0][0]) == EPOCHS


@pytest.mark.slow
def test_many_kills_of_fit(doors):
    killer = Killer(doors.server, doors.folder, seed=3)
    while killer.kills < KILLS:
        doors.kill(killer, "fit", killer.random.randint(1, 4))
    show(killer, "fit")


@pytest.mark.slow
def test_many_kills_of_the_command_line(doors):
    killer = Killer(doors.server, doors.folder, seed=4)
    while killer.kills < KILLS:
        force = killer.random.random() < 0.4
        doors.kill(killer, "train", killer.random.randint(1, 4), force=force, fresh=0.1)
    show(killer, "apportion train")


@pytest.mark.slow
def test_many_kills_of_an_average(doors):
    killer = Killer(doors.server, doors.folder, seed=7)
    while killer.kills < KILLS:
        force = killer.random.random() < 0.4
        doors.kill(killer, "auto", killer.random.randint(1, 4), force=force)
    show(killer, "apportion train with auto")


@pytest.mark.slow
def test_a_soak_leaks_nothing(doors):
    """Kills for 15 minutes, beside a process that trains, stops, goes on and predicts in a loop."""
    killer, end = Killer(doors.server, doors.folder, seed=5), time.monotonic() + SOAK_SECONDS
    command, pipe = [sys.executable, killing.__file__, "soak"], subprocess.PIPE
    readings = doors.folder / "memory"
    with (
        readings.open("w") as memory,
        subprocess.Popen(command, env=killing.ENVIRONMENT, stdin=pipe, stdout=memory) as soaked,
    ):
        while time.monotonic() < end:
            door = killer.random.choice(["fit", "train", "auto"])
            force = door != "fit" and killer.random.random() < 0.4
            doors.kill(killer, door, killer.random.randint(1, 3), force=force)
        soaked.communicate(timeout=120)  # which closes its stdin
    assert soaked.returncode == 0
    megabytes = [json.loads(line) / 2**20 for line in readings.read_text().splitlines()]
    tenth = max(len(megabytes) // 10, 1)
    early, late = (
        statistics.median(part) for part in (megabytes[tenth : 2 * tenth], megabytes[-tenth:])
    )
    show(killer, f"soak of {SOAK_SECONDS:.0f} s")
    print(f"{len(megabytes)} loops, memory {early:.0f} to {late:.0f} MB: {late / early - 1:+.2%}")  # noqa: T201
    assert late < 1.05 * early
    assert killer.kills >= min(30, SOAK_SECONDS / 30)
