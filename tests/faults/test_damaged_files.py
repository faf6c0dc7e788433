"""Run files that are damaged or hostile: each is refused by its name, or is named here as harmless.

Headers and tensors are changed one by one under a checksum that is right, as someone who means harm
would do it; bytes are changed and cut without one, as a disk would.
"""

import json
import re
import shutil
from itertools import islice

import numpy as np
import pytest
import torch

from apportion.errors import ApportionError
from tests.faults.damaged_runs import (
    JSON,
    READERS,
    TENSORS,
    VALUES,
    changed,
    copied,
    make_runs,
    paths_into,
    read_parts,
    write_parts,
)

SOME = 5  # cases of each form and kind in the short form
SAFETENSORS = ["checkpoint", "model", "evaluation", "classifier", "classifier of learners"]
OF_TABLES = ["checkpoint of auto", "model of auto", "evaluation of auto", "classifier of auto",
             "checkpoint of linear", "model of linear"]  # fmt: skip
LOGS = [kind for kind in READERS if kind.startswith("log")]

# What is accepted, by patterns of the kind and the case, and why that does no harm.
SHOWN = "it is for readers of the log and decides nothing; a gap is shown as a gap"
PLAUSIBLE = "a value that could have been saved: only a checksum tells it from the one that was"
HARMLESS = {
    (".*", r"text more"): "further entries of a header are never read",
    (".*", r"header columns (missing|null)"): "no columns: rows are then given as arrays",
    ("(model|evaluation|classifier).*", r"header classes\.0 (text|negative|huge|null)"): PLAUSIBLE,
    ("(model|classifier).*", r"header epoch null"): "the epoch of the weights need not be known",
    ("(model|classifier).*", r"header prevalence null"): "that of training need not be known",
    ("classifier.*", r"header columns\.means\.\d negative"): PLAUSIBLE,
    ("classifier.*", r"header estimator (missing|null)"): "the file of a model alone is one, too",
    ("classifier.*", r"header estimator\.parameters\.\w+ (missing|null)"): "the default is taken",
    ("classifier.*", r"header estimator\.parameters\.(normalize|pretrain|verbose) true"): PLAUSIBLE,
    ("classifier.*", r"header estimator\.(n_features_in|best_epoch) null"): "it need not be known",
    ("classifier.*", r"header estimator\.records\.0\.seconds(\.\w+)? (missing|null)"): SHOWN,
    ("classifier.*", r"header estimator\.records\.0\.\w+ (missing|null|nan|negative)"): SHOWN,
    (
        "classifier of learners",
        r"header estimator\.parameters\.net_options object",
    ): "options of a net mean nothing to a learner",
    (".* of learners", r"header recipe\.most_categories null"): "no limit, as of other learners",
    (".* of learners", r"tensor learners longer"): "a zip may end in bytes that are never read",
    ("(evaluation|model) of (auto|linear)", r"header classes\.0 true"): PLAUSIBLE,
    (
        ".* of (auto|linear)",
        r"header columns\.(categories\.job\.0 text|means\.age negative)",
    ): PLAUSIBLE,
    ("classifier of auto", r"header estimator\.records\.0\.member text"): SHOWN,
    ("log of (a report of )?linear", r"lines turned"): "there is one line",
    ("log.*", r"line \d+ seconds(\.\w+)? (missing|null)"): SHOWN,
    ("log.*", r"line \d+ at (missing|null)"): SHOWN,
    ("log.*", r"line \d+ (loss|changed|regret|l2) (missing|null|nan|negative)"): SHOWN,
    ("log.*", r"line \d+ (skill|standard_errors) (missing|null|negative)"): SHOWN,
    ("log of (a report of )?(auto|linear)", r"line \d+ proportion_error (missing|null)"): SHOWN,
    ("log of a report of .*", r"line \d+ member (missing|text)"): SHOWN,
    ("log of a report of auto", r"line 12 lost"): "as a run that was left before its last net",
    ("log of auto", r"line 4 twice"): "lines that the checkpoint does not know of are cut away",
    ("log of linear", r"line 1 twice"): "lines that the checkpoint does not know of are cut away",
    ("log.*", r"line \d+ \w+_accuracy (missing|null)"): SHOWN,
    ("log of a report", r"line \d+ valid_error (missing|null)"): SHOWN,
    ("log of a report", r"line 3 lost"): "as a run that was left before its last epoch",
    ("log", r"line 2 twice"): "lines after those that the checkpoint knows of are cut away",
    (
        "evaluation.*",
        r"tensor \w+\.(sizes|confusion|known|right|unsure\.\w+|effects\.measured) int8",
    ): "equal, but shorter",
    (
        "evaluation.*",
        r"tensor \w+\.(sizes|confusion|unsure\.rows|effects\.measured) infinite",
    ): PLAUSIBLE,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    make_runs(folder)
    return folder


def headers(path):
    """Every entry of the header with every wrong value, and without it."""
    header, tensors = read_parts(path)
    values = {**VALUES, "missing": ...}
    for entry in paths_into(header):
        for name, value in values.items():
            if value is ... and isinstance(entry[-1], int):
                continue
            damaged = changed(header, entry, value)
            if json.dumps(damaged) != json.dumps(header):
                yield (
                    f"header {'.'.join(map(str, entry))} {name}",
                    lambda d=damaged: write_parts(path, d, tensors),
                )


def texts(path):
    """Hostile JSON in the place of the header."""
    header, tensors = read_parts(path)
    twice = json.dumps(header)[:-1] + ', "epoch": 99, "classes": []}'
    extra = json.dumps({**header, "x": [0] * 10**6})
    for name, text in {**JSON, "keys twice": twice, "more": extra}.items():
        yield f"text {name}", lambda t=text: write_parts(path, t, tensors)


def numbers(path):
    """Every tensor in every wrong form, and one more."""
    header, tensors = read_parts(path)
    for tensor, value in tensors.items():
        for name, damage in TENSORS.items():
            damaged = {**tensors, tensor: damage(value)}
            left = {n: t for n, t in damaged.items() if t is not None}
            yield f"tensor {tensor} {name}", lambda d=left: write_parts(path, header, d)
    for name in ("more", "model.more", "optimizer.more", "method.more", "best.more", "train.more"):
        more = {**tensors, name: torch.zeros(2)}
        yield f"tensor {name} added", lambda d=more: write_parts(path, header, d)


def changed_bytes(path):
    """A bit, or a run of bytes, at many places; files that end too early or too late."""
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in [*range(0, 24, 3), *rng.integers(len(whole), size=60).tolist()]:
        flipped = whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
        yield f"bit at {place}", lambda d=flipped: path.write_bytes(d)
    for place in rng.integers(len(whole) - 16, size=20).tolist():
        zeros = whole[:place] + b"\0" * 16 + whole[place + 16 :]
        if zeros != whole:
            yield f"zeros at {place}", lambda d=zeros: path.write_bytes(d)
    for end in [0, 1, 7, 8, 9, *rng.integers(len(whole), size=20).tolist(), len(whole) - 1]:
        yield f"cut at {end}", lambda e=end: path.write_bytes(whole[:e])
    for more in (b"\0", b"x" * 4096, whole):
        yield f"{len(more)} bytes more", lambda m=more: path.write_bytes(whole + m)


def lines(path):
    """Every entry of every record with every wrong value, hostile lines, lines moved and lost."""
    whole = path.read_text().splitlines()
    write = lambda kept: path.write_text("".join(line + "\n" for line in kept))  # noqa: E731
    for n, line in enumerate(whole):
        record = json.loads(line)
        for entry in paths_into(record):
            for name, value in {**VALUES, "missing": ...}.items():
                text = json.dumps(changed(record, entry, value))
                kept = [*whole[:n], text, *whole[n + 1 :]]
                yield (f"line {n + 1} {'.'.join(map(str, entry))} {name}", lambda k=kept: write(k))
        for name, text in JSON.items():
            kept = [*whole[:n], text, *whole[n + 1 :]]
            yield f"line {n + 1} is {name}", lambda k=kept: write(k)
        yield f"line {n + 1} lost", lambda k=[*whole[:n], *whole[n + 1 :]]: write(k)
        yield f"line {n + 1} twice", lambda k=[*whole[: n + 1], *whole[n:]]: write(k)
        damaged = "\n".join(whole).encode().replace(b'"epoch"', b'"ep\xff\xfe"')
        yield f"line {n + 1} no UTF-8", lambda d=damaged: path.write_bytes(d + b"\n")
    yield "lines turned", lambda: write(whole[::-1])
    yield "zeros", lambda: path.write_bytes(b"\0" * 999)


FORMS = [
    *[(kind, form) for kind in SAFETENSORS for form in (headers, texts, numbers, changed_bytes)],
    *[(kind, form) for kind in OF_TABLES for form in (headers, numbers)],
    *[(kind, lines) for kind in LOGS],
]


def outcome(made, to, kind, damage_of, n):
    """Damage the n-th way and read; return what came of it, if it was not a refusal by name."""
    folder, path = copied(made, to, kind)
    name, damage = next(islice(damage_of(path), n, None))
    damage()
    try:
        READERS[kind][2](folder)
    except ApportionError as error:
        problem, *remedy = str(error).split("\n  ")
        if str(folder) in problem and remedy and len(str(error)) < 5000:
            return name, None
        return name, f"refused without the name of the file or a remedy: {error!s:.300}"
    except Exception as error:  # noqa: BLE001 - anything else is the finding
        return name, f"{type(error).__name__}: {error!s:.300}"
    return name, "accepted"


def is_harmless(kind, name):
    return any(re.fullmatch(of, kind) and re.fullmatch(case, name) for of, case in HARMLESS)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)],
                         ids=["some", "all"])  # fmt: skip
@pytest.mark.parametrize(
    ("kind", "form"), FORMS, ids=lambda value: getattr(value, "__name__", value)
)
def test_damage_is_refused_with_the_name_of_the_file(made, tmp_path, kind, form, whole):
    _, path = copied(made, tmp_path / "count", kind)
    n_cases = len(list(form(path)))
    chosen = range(n_cases)
    if not whole:
        chosen = np.random.default_rng(1).permutation(n_cases)[:SOME].tolist()
    wrong = []
    for n in chosen:
        to = tmp_path / str(n)
        name, found = outcome(made, to, kind, form, n)
        refused = found is not None and found.startswith(("accepted", "refused"))
        if found is not None and not (refused and is_harmless(kind, name)):
            wrong.append(f"{name}: {found}")
        shutil.rmtree(to)
    assert not wrong, "\n".join(wrong)
