"""Real trainings through three doors, in processes that are killed; and what they should leave.

This file is also their script. `serve` loads everything once, and forks a process for each training
that it is asked for on a line of stdin. `soak` trains, stops, goes on and loads for as long as its
stdin is open, and says how much memory it takes.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CALLS = ("fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "truncate")
EPOCHS = 12


# -------------------------------------------------------------------------------- the processes


def train_in_python(folder, every="1", on_epoch=None):
    from apportion import Bags, TrainConfig, fit
    from apportion.nets.build import build_net
    from tests.cli.wards_on_disk import voters

    frame = voters()
    x = frame[["age"]].fillna(40).to_numpy("float32")
    bags = Bags.from_rows(x, frame["ward"], truth=frame["vote"])
    config = TrainConfig(
        epochs=EPOCHS, batch_size=32, device="cpu", threads=1, checkpoint_every=int(every)
    )
    net = build_net("mlp", bags)
    return fit(net, bags, bags, config=config, run=folder, on_epoch=on_epoch)


def die_at(n, number, note, *, after):
    """Send this process a signal at its n-th call that changes files; note which one it was.

    If n is 0, it is never sent, and what is returned tells how many calls there were.
    """
    calls = 0

    def watched(name, original):
        def called(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls != n:
                return original(*arguments, **options)
            what = arguments[0]
            path = f"/proc/self/fd/{what}" if isinstance(what, int) else os.fspath(what)
            place = Path(os.path.realpath(path)).name
            moment = f"{'after' if after else 'before'} {name} of {place}"
            moment = re.sub(r"\.\d+\.", ".", moment)
            Path(note).write_text(re.sub(r"run-\d+", "the folder", moment))
            if after:
                original(*arguments, **options)
                os.kill(os.getpid(), number)
                return None
            os.kill(os.getpid(), number)
            return original(*arguments, **options)

        return called

    for name in CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    return lambda: calls


def enter(door, arguments):
    """Do as a script or a shell would; return the exit code."""
    if door == "fit":
        train_in_python(*arguments)
        return 0
    from apportion.__main__ import main

    sys.argv = ["apportion", *arguments]
    try:
        main()
    except SystemExit as ended:
        return ended.code or 0
    return 0


def serve():
    """Fork a process for each job; it says when it is ready, and we say how it ended."""
    from tempfile import TemporaryDirectory

    import apportion.auto.train
    import apportion.cli.train
    import apportion.data.tables
    import apportion.model.model  # noqa: F401
    from tests.auto.tables import few_steps

    few_steps(3)
    with TemporaryDirectory() as folder:
        train_in_python(folder)
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    threads = [name for name in threads if name != "jemalloc_bg_thd"]  # which takes care of forks
    say("ready" if len(threads) <= 1 else "a fork would not be safe: there are threads")
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                output = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
                os.dup2(output, 2)
                say(os.getpid())
                os.dup2(output, 1)
                if job["at"] is None:
                    code = enter(job["door"], job["arguments"])
                else:
                    n = die_at(job["at"], job["signal"], job["note"], after=job["after"])
                    code = enter(job["door"], job["arguments"])
                    if job["at"] == 0:
                        Path(job["note"]).write_text(str(n()))
            except KeyboardInterrupt:
                code = 130
            except BaseException:  # noqa: BLE001 - it is the output
                traceback.print_exc()
            finally:
                leave(code)
        sys.stdin.readline()  # only then is it waited for: until then its number is its own
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def leave(code):
    """End this process as a script would, even if Ctrl-C comes in its last moment."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def soak():
    """Train, stop, go on, load and predict until stdin is closed."""
    import select
    from tempfile import TemporaryDirectory

    from apportion import Model

    def stop(record, net):
        if record["epoch"] == 5:
            raise KeyboardInterrupt

    while not select.select([sys.stdin], [], [], 0)[0]:
        with TemporaryDirectory() as folder:
            try:
                train_in_python(folder, on_epoch=stop)
            except KeyboardInterrupt:
                train_in_python(folder)
            Model.load(folder, device="cpu").predict_proba([[40.0], [60.0]])
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        say(pages * os.sysconf("SC_PAGE_SIZE"))


def say(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


class Served:
    """A process that serves: it reads lines from us, and answers in JSON."""

    def __init__(self, script):
        pipe = subprocess.PIPE
        self.process: Any = subprocess.Popen(
            [sys.executable, script, "serve"], env=ENVIRONMENT, stdin=pipe, stdout=pipe, text=True
        )
        assert self._read() == "ready"

    def _write(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _read(self):
        line = self.process.stdout.readline()
        assert line, "the server is gone"
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Server(Served):
    """Trains in forked processes, and kills them at some call or after some time."""

    def __init__(self, folder):
        # A shell lets its background jobs ignore Ctrl-C, and so would all processes begun here.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.output, self.note = folder / "output", folder / "note"
        super().__init__(__file__)

    def __call__(self, door, arguments, *, number=None, at=None, after=False, delay=None):
        """Return the exit code, what was printed, and the call at which it was killed."""
        self.note.unlink(missing_ok=True)
        job = {
            "door": door,
            "arguments": [*map(str, arguments)],
            "output": str(self.output),
            "note": str(self.note),
            "signal": number,
            "at": at,
            "after": after,
        }
        self._write(json.dumps(job))
        process = self._read()
        if delay is not None:
            time.sleep(delay)
            os.kill(process, number)
        self._write("")
        code = self._read()
        return code, self.output.read_text(), self.note.read_text() if self.note.exists() else None


def killed_at_start(arguments, number, delay):
    """Start the command line in a process of its own, and kill it while it still loads."""
    command = [sys.executable, "-m", "apportion", *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=pipe, stderr=subprocess.STDOUT, text=True
    ) as process:
        time.sleep(delay)
        process.send_signal(number)
        said, _ = process.communicate(timeout=120)
    loaded = "reading" in said or "Learning" in said
    return process.returncode, said, None if loaded else "start-up"


# ------------------------------------------------------------------------------------- comparison


def left_behind(folder):
    """All that a run holds, but the times of its log."""
    log = folder / "log.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    records = [
        {k: v for k, v in json.loads(ln).items() if k not in ("at", "seconds")} for ln in lines
    ]
    free = ("lock", "log.jsonl")
    return records, {p.name: p.read_bytes() for p in folder.iterdir() if p.name not in free}


def moment_of(folder):
    """Return how far a run was when it was killed by the clock."""
    if not (folder / "config.toml").exists():
        return "before config.toml"
    if not (folder / "checkpoint.safetensors").exists():
        return "before the first checkpoint"
    if (folder / "evaluation.safetensors").exists():
        return "at the end"
    return "between checkpoints"


class Killer:
    """Kills trainings at random, and follows their messages until they are finished."""

    def __init__(self, server, folder, seed=0):
        self.server, self.folder, self.random = server, folder, random.Random(seed)
        self.moments: Counter[str] = Counter()
        self.signals: Counter[str] = Counter()
        self.runs = self.commands = 0

    @property
    def kills(self):
        return self.signals.total()

    def kill(self, door, command, target, seconds, calls, fresh=0.0):
        """Kill one process at a random moment; return None if it had finished by then."""
        number = self.random.choice(SIGNALS)
        log = target / "log.jsonl"
        done = len(log.read_bytes().splitlines()) if log.exists() else 0
        ahead = 1 - 0.9 * min(done, EPOCHS) / EPOCHS  # unless it is begun again
        if door == "train" and self.random.random() < fresh:
            found = killed_at_start(command, number, self.random.uniform(0, 3))
        elif self.random.random() < 0.6:
            at, after = self.random.randint(1, int(calls * ahead)), self.random.random() < 0.5
            found = self.server(door, command, number=number, at=at, after=after)
        else:
            found = self.server(
                door, command, number=number, delay=self.random.uniform(0, seconds * ahead)
            )
        self.commands += 1
        code, said, moment = found
        assert code in (0, 1, 130, -number), said  # 1: a refusal, whose message is followed
        of_python = moment == "start-up" and "main()" not in said  # nothing of ours was running
        # Inside torch and safetensors Ctrl-C may become another error, which a script shows.
        other_error = door == "fit" and number == signal.SIGINT and code == 1
        assert "Traceback" not in said or of_python or other_error, said
        if code not in (0, 1) or other_error:
            self.moments[moment or moment_of(target)] += 1
            self.signals[signal.Signals(number).name] += 1
        return code, said

    def finish(self, door, begin, target, wanted, seconds, calls, kills, *, before=None, fresh=0.0):
        """Begin a run, kill it some times, and follow the messages to its end.

        `before` is the run that is to be replaced, which must be somewhere whole until the end.
        """
        command, left = begin, kills
        for _ in range(4 * kills + 8):
            if left > 0:
                killed = self.kills
                code, said = self.kill(door, command, target, seconds, calls, fresh)
                left -= self.kills - killed
            else:
                self.commands += 1
                code, said, _ = self.server(door, command)
                assert "Traceback" not in said, said
            if target.exists() and left_behind(target) == wanted:
                if code == 0:
                    assert not list(target.parent.glob(f"{target.name}.*")), said
                    self.runs += 1
                    return
            elif before is not None:
                aside = target.with_name(f"{target.name}.replaced")
                whole = [p for p in (target, aside) if p.exists() and left_behind(p) == before]
                assert whole, f"the run before is lost: {said}"
            if door != "fit":
                command = self.next(command, begin, target, said, code)
        message = f"stuck after {kills} kills, at {command}: {said}"
        raise AssertionError(message)

    def next(self, command, begin, target, said, code):
        """Return the command that a message names; after none, go on or begin again."""
        resume = ["train", "--resume", target]
        if "Put back" in said and "is finished" in said:
            return begin
        if "apportion train --resume" in said:
            return resume
        if "Begin as you did" in said or "Start it again" in said or "does not exist" in said:
            return begin
        if code == 0:
            return begin
        assert code != 1, f"a message that names no command: {said}"
        return self.random.choice([command, resume])


if __name__ == "__main__":
    {"serve": serve, "soak": soak}[sys.argv[1]]()
