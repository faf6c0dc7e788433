"""The estimator's defaults on real tables: adult, bank marketing and MAGIC gamma telescope.

    python benchmarks/tabular.py --data FOLDER [--jobs 2]
    python benchmarks/tabular.py --render

FOLDER holds UCI's files: adult.data and adult.test, bank-full.csv (with commas) and magic04.data
(with a header row). Where there is no official test set, 30 % of the rows are kept for it, drawn by
the seed. From the others come bags of 32 and of 512 rows, by the protocols `rand` and `shuffle`.
Every method trains `LLPClassifier` with its defaults on them. Two bounds are given the true labels
of the same rows: the same network with the same defaults, and logistic regression.

Each training adds a line to benchmarks/tabular.jsonl, and is not repeated. `--render` makes the
tables of docs/tables.md from these lines alone. Every training runs in one thread.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from apportion import METHODS, Bags, LLPClassifier
from apportion.data.encoding import encode, learn_columns
from apportion.study import protocols
from apportion.study.results import add_result, provenance, read_results

HERE = Path(__file__).parent
KEY = ("dataset", "protocol", "bag_size", "seed", "method")
RESULTS, PAGE = HERE / "tabular.jsonl", HERE.parent / "docs" / "tables.md"

NETWORK, LOGISTIC = "network, true labels", "logistic regression, true labels"
DATASETS, PROTOCOLS, SIZES, SEEDS = ("adult", "bank", "magic"), ("rand", "shuffle"), (32, 512), 3

ADULT = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
]  # fmt: skip


def adult(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame | None, str]:
    options: dict[str, Any] = {"names": ADULT, "skipinitialspace": True, "na_values": "?"}
    train = pd.read_csv(folder / "adult.data", **options)
    test = pd.read_csv(folder / "adult.test", skiprows=1, **options)
    test["income"] = test["income"].str.rstrip(".")
    return train, test, "income"


def bank(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame | None, str]:
    return pd.read_csv(folder / "bank-full.csv"), None, "y"


def magic(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame | None, str]:
    return pd.read_csv(folder / "magic04.data"), None, "class"


@cache
def rows(folder: Path, name: str, seed: int):
    """Columns and labels to train on, and columns and labels to test on."""
    train, test, label = {"adult": adult, "bank": bank, "magic": magic}[name](folder)
    if test is None:
        kept, out = protocols.pools(len(train), (0.7, 0.3), seed=seed)
        train, test = train.iloc[kept], train.iloc[out]
    parts = ((part.drop(columns=label), part[label].to_numpy(str)) for part in (train, test))
    return *next(parts), *next(parts)


def run(job):
    folder, name, protocol, size, seed, method = job
    torch.set_num_threads(1)
    logging.getLogger("apportion").setLevel(logging.ERROR)
    frame, labels, test, truth = rows(folder, name, seed)
    members: Any
    if protocol == "rand":
        members = dict(enumerate(protocols.rand(labels, size, seed=seed).members))
    else:
        members = protocols.shuffle(len(labels), size, seed=seed)
    instances = np.concatenate(list(members.values()))
    began = time.perf_counter()
    if method == LOGISTIC:
        given = _logistic(frame).fit(frame.iloc[instances], labels[instances])
        found, classes = given.predict_proba(test), given.classes_
    else:
        columns = learn_columns(frame)
        x = encode(columns, frame)
        if method == NETWORK:
            members = instances[:, None]
        bags = Bags.from_members(x, members, truth=labels).without_truth()
        classifier = LLPClassifier("fpl" if method == NETWORK else method, random_state=seed)
        classifier.device = "cpu"
        found, classes = classifier.fit(bags).predict_proba(encode(columns, test)), bags.classes
    positive = found[:, 1]
    return {
        "dataset": name,
        "protocol": protocol,
        "bag_size": size,
        "seed": seed,
        "method": method,
        "auc": round(float(roc_auc_score(truth == classes[1], positive)), 5),
        "accuracy": round(float(accuracy_score(truth == classes[1], positive > 0.5)), 5),
        "seconds": round(time.perf_counter() - began, 1),
        **provenance("cpu"),
    }


def _logistic(frame: pd.DataFrame):
    numeric = frame.select_dtypes("number").columns
    encode = make_column_transformer(
        (StandardScaler(), numeric),
        (OneHotEncoder(handle_unknown="ignore"), [c for c in frame if c not in numeric]),
    )
    return make_pipeline(encode, LogisticRegression(max_iter=1000))


def recorded() -> list[dict]:
    return read_results(RESULTS, KEY)


def key(line: dict) -> tuple:
    return tuple(line[name] for name in KEY)


def render(lines: list[dict]) -> str:
    """Make a table for each protocol: the mean AUC over the seeds, and its part of the bound's."""
    frame = pd.DataFrame(lines)
    texts = []
    for protocol in PROTOCOLS:
        part = frame[frame.protocol == protocol]
        head = [f"{name}, {size}" for name in DATASETS for size in SIZES]
        table = [f"| `{protocol}` bags: test AUC | " + " | ".join(head) + " |"]
        table.append("|---" * (len(head) + 1) + "|")
        for method in (*METHODS, NETWORK, LOGISTIC):
            cells = []
            for name in DATASETS:
                for size in SIZES:
                    own = part[(part.dataset == name) & (part.bag_size == size)]
                    auc = own[own.method == method].set_index("seed").auc
                    bound = own[own.method == NETWORK].set_index("seed").auc
                    if len(auc) < SEEDS:
                        cells.append("")
                        continue
                    share = "" if method in (NETWORK, LOGISTIC) else f" ({(auc / bound).min():.3f})"
                    cells.append(f"{auc.mean():.3f}{share}")
            label = f"`{method}`" if method in METHODS else method
            table.append(f"| {label} | " + " | ".join(cells) + " |")
        texts.append("\n".join(table))
    return "\n\n".join(texts)


def write(text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, mark, rest = page.partition("<!-- tabular -->\n")
    _, end, after = rest.partition("<!-- end of tabular -->")
    if not (mark and end):
        sys.exit(f"{PAGE} lacks its marks, <!-- tabular --> and <!-- end of tabular -->.")
    PAGE.write_text(f"{before}{mark}{text}\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of UCI's files")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--render", action="store_true", help="write the tables of docs/tables.md")
    options = parser.parse_args()
    if options.render:
        return write(render(recorded()))
    if options.data is None:
        parser.error("pass --data FOLDER, or --render")
    done = {key(line) for line in recorded()}
    jobs = [
        (options.data, name, protocol, size, seed, method)
        for seed in range(SEEDS)
        for protocol in PROTOCOLS
        for method in ("fpl", NETWORK, LOGISTIC, *list(METHODS)[1:])
        for name in DATASETS
        for size in SIZES
    ]
    jobs = [job for job in jobs if job[1:] not in done]
    with ProcessPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run, job) for job in jobs]
        for n, future in enumerate(as_completed(running), 1):
            line = future.result()
            add_result(RESULTS, line)
            print(f"{n}/{len(jobs)}", *key(line), line["auc"], line["seconds"], flush=True)
    return None


if __name__ == "__main__":
    main()
