"""How far images go: pre-training, first labels from features, and the preset `strong`.

    python benchmarks/beyond.py cifar10 --data FOLDER [--cells strong:64 strong:1024:1 …]
                                [--runs build/beyond] [--together 2]
    python benchmarks/beyond.py --render

The paper's bags of CIFAR-10 and SVHN (`--data` has the official files). One pre-training per
dataset, on the images of the training bags of all sizes together, which no cell's seed changes; it
is kept in a run folder, and continued there. A cell is a variant, a size of bags and a seed, such
as ``strong:1024:0``; the variants are those of `VARIANTS` (of which "slow" ones have the paper's
learning rate, and "warm" ones begin with the layer of "frozen" as well), and "frozen", a linear
layer on the features of the pre-trained net alone. In "strong-apart" and "frozen-apart" each row
stands in one bag, and not in two or three as in the paper's. Epochs are selected by the
proportions of validation bags, and no label takes part in training or selection, but for
"true-labels", which learns every training image's own: the limit. Each cell adds a line to
benchmarks/beyond.jsonl, and is not repeated. `--render` makes the tables and the figure of
docs/images.md from the lines alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # a script only looks beside itself

from apportion import Bags, Job, TrainConfig, build_net, fit_many
from apportion.files import append_line
from apportion.methods.registry import METHODS
from apportion.nets.normalized import Normalized
from apportion.study.datasets.benchmarks import cifar10, svhn
from apportion.study.paper_bags import paper as paper_bags
from apportion.study.protocols import rand
from apportion.study.results import add_result, provenance, read_results
from apportion.training.frozen import fit_frozen
from apportion.training.pretrain import load_pretrained, pretrain, pretraining_config
from benchmarks._beyond_page import draw, render

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("beyond.jsonl")
PAGE = ROOT / "docs" / "images.md"
FIGURE = ROOT / "docs" / "figures" / "strong.svg"
KEY = ("dataset", "variant", "bag_size", "seed", "epochs")
SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
READERS = {"cifar10": cifar10, "svhn": svhn}
STRONG: Any = METHODS["strong"]
VARIANTS = {
    "strong": STRONG,
    "true-labels": STRONG,
    "proportion-loss": METHODS["proportion-loss"],
    "count-likelihood": METHODS["count-likelihood"],
    "proportion-loss-slow": METHODS["proportion-loss"],
    "count-likelihood-slow": METHODS["count-likelihood"],
    "proportion-loss-warm": METHODS["proportion-loss"],
    "count-likelihood-warm": METHODS["count-likelihood"],
    "strong-apart": STRONG,
    "no-pretraining": STRONG,
    "random-first-labels": replace(STRONG, first="random", first_weight=None),
    "no-mixup": replace(STRONG, mixup=False),
    "bag-by-bag": replace(STRONG, joint=False),
    "fpl": replace(STRONG, unlikelihood="relative", memory=1.0, eta=None, joint=False),
}
# The views of digits: no mirror images, and nothing that leaves only a part of one.
VIEWS = {
    "cifar10": (("flip", "views"), ("flip", "strong")),
    "svhn": (("zoom:0.4:0.2", "colour:0.4:0.2"), ("zoom:0.5:0.2", "colour:0.3:0.05", "cutout")),
}
PRETRAINING = {"cifar10": 450, "svhn": 200}  # epochs
SLOW = 3e-4  # the learning rate of the paper, at which its proportion loss learns
EPOCHS = {"cifar10": 80, "svhn": 40}
SHOWN = ("valid_error", "valid_accuracy", "test_accuracy", "label_accuracy")
CURVES = Path(__file__).with_name("beyond-curves.jsonl")


class Problem:
    """The images of a dataset and the paper's bags of them."""

    def __init__(self, dataset: str, folder: str, n: int | None) -> None:
        self.dataset, self.data = dataset, READERS[dataset](folder)
        self.file = ROOT / "papers" / "matsuo2023" / "bags" / f"{dataset}.npz"
        x_test, truth = self.data.x_test[:n], self.data.truth_test[:n]
        one_bag = np.zeros(len(x_test), np.int64)
        self.test = Bags.from_rows(x_test, one_bag, truth=truth, classes=range(10))
        self.few = n

    def bags(self, size: int) -> tuple[Bags, Bags]:
        """Return the training and the validation bags of a size."""
        several = (
            rows if self.few is None else rows[:4, : self.few // 4]
            for rows in paper_bags(self.file, size)
        )
        data = self.data
        train, valid = (
            Bags.from_members(data.x, rows, truth=data.truth, classes=range(10)) for rows in several
        )
        return train, valid

    def apart(self, size: int, seed: int) -> Bags:
        """Draw as many training bags as nine tenths of the rows fill, each row in one of them."""
        left = np.unique(self.bags(size)[0].index)
        truth, members = self.data.truth, list[np.ndarray]()
        size = size if self.few is None else self.few // 4
        for number in range(9 * len(left) // (10 * size)):
            (own,) = rand(truth, size, 1, rows=left, seed=1000 * seed + number).members
            members.append(own)
            left = np.setdiff1d(left, own)
        return Bags.from_members(self.data.x, members, truth=truth, classes=range(10))

    def net(self, seed: int) -> Normalized:
        """Build a net, with random weights."""
        bags, _ = self.bags(SIZES[0])
        mirror = "flip" in VIEWS[self.dataset][0]
        return build_net("resnet18", bags, seed=seed, stem="cifar", mirror=mirror)


def pretrained(problem: Problem, folder: Path, epochs: int, **changes) -> float:
    """Pre-train once, in a run folder, and return the seconds that all of it took."""
    pools = [problem.bags(size)[0] for size in SIZES]
    n = len(np.unique(np.concatenate([bags.index for bags in pools])))
    config = pretraining_config(n, epochs=epochs, augment=VIEWS[problem.dataset][0], **changes)
    net, began = problem.net(0), time.perf_counter()
    history = pretrain(net, pools[0], others=pools[1:], config=config, run=folder, progress=False)
    took = sum(sum(record["seconds"].values()) for record in history.records)
    here = time.perf_counter() - began
    print(f"pre-trained on {n:,} images: loss {history['loss'][-1]:.3f}, {took:.0f} s", flush=True)
    print(
        f"   ({took / len(history.records):.3f} s an epoch; {here:.0f} s in this call)", flush=True
    )
    return took


def frozen(problem: Problem, folder: Path, size: int, seed: int, *, apart: bool) -> dict:
    """Learn a linear layer on the features of the pre-trained net alone."""
    train, valid = problem.bags(size)
    train = problem.apart(size, seed) if apart else train
    net = problem.net(0)
    load_pretrained(net, folder)
    network: Any = net.network
    network.fc = nn.Identity()
    began = time.perf_counter()
    found = fit_frozen(net, train, valid)
    seconds = time.perf_counter() - began
    record, right = found.history.records[-1], 0
    device = next(found.net.parameters()).device
    x, truth = problem.test.parts[0], problem.test.truth
    assert truth is not None
    with torch.no_grad():
        for first in range(0, len(x), 1000):
            logits = found.net(torch.from_numpy(x[first : first + 1000]).to(device))
            guess = logits.argmax(dim=1).cpu().numpy()
            right += int((guess == truth[first : first + 1000]).sum())
    accuracy = 100 * right / len(x)
    shown = {name: round(100 * record[name], 2) for name in ("label_accuracy", "valid_accuracy")}
    return {"selected": round(accuracy, 2), "last": round(accuracy, 2), "best_epoch": 1, **shown,
            "seconds": round(seconds, 1)}  # fmt: skip


def begin_warm(net: Any, train: Bags, device: str) -> None:
    """Begin with the linear layer that is learned on the frozen features, as first labels do."""
    net.network.fc, own = nn.Identity(), net.network.fc
    learned: Any = fit_frozen(net, train, device=device).net[-1]
    own.load_state_dict(learned.state_dict())
    net.network.fc = own
    net.cpu()


def job(problem, folder, variant, size, seed, config, done, clock):
    """Return the training of a cell, which records itself."""
    train, valid = problem.bags(size)
    if variant.endswith("-apart"):
        train = problem.apart(size, seed)
    net = problem.net(seed)
    if variant != "no-pretraining":
        load_pretrained(net, folder)
    if variant.endswith("-warm"):
        begin_warm(net, train, config.device)
    if variant == "true-labels":  # bags of one image each: their labels are what is known of them
        rows = np.unique(train.index)
        truth = problem.data.truth[rows]
        train = Bags.from_members(
            problem.data.x, rows[:, None], truth=problem.data.truth, classes=range(10)
        )
        method = replace(STRONG, first=truth)
    else:
        method = VARIANTS[variant]
    took = clock()

    def on_end(history):
        best, last = history.selected, history.records[-1]
        line = {
            "selected": round(100 * best["test_accuracy"], 2),
            "last": round(100 * last["test_accuracy"], 2),
            "best_epoch": best["epoch"],
            "label_accuracy": round(100 * last.get("label_accuracy", 0), 2) or None,
            "valid_accuracy": round(100 * best["valid_accuracy"], 2),
            "seconds": round(took(), 1),
        }
        steady = [sum(r["seconds"].values()) for r in history.records[1:]]
        line["per_epoch"] = round(float(np.median(steady)), 3) if steady else None
        parts = ("train", "confidence", "labels", "evaluation")
        spent = [np.median([r["seconds"][part] for r in history.records]) for part in parts]
        told = ", ".join(f"{part} {s:.3f}" for part, s in zip(parts, spent, strict=True))
        print(f"   seconds per epoch: {told}", flush=True)
        shown = [name for name in SHOWN if name in last]
        curves = {name: [round(r[name], 4) for r in history.records] for name in shown}
        done(line, curves)

    return Job(net, train, valid, problem.test, method=method, config=config, on_end=on_end)


class Turns:
    """Clocks of jobs that are begun in turn: as soon as one ends, the next one begins."""

    def __init__(self, together: int) -> None:
        self.together, self.number, self.ends = together, 0, list[float]()
        self.began = time.perf_counter()

    def __call__(self):
        number = self.number
        self.number += 1

        def took() -> float:
            ended = time.perf_counter()
            self.ends.append(ended)
            return ended - (
                self.began if number < self.together else self.ends[number - self.together]
            )

        return took


def cells_of(texts):
    for text in texts:
        variant, size, *seed = text.split(":")
        yield variant, int(size), int(seed[0]) if seed else 0


def recorded(path: Path = RESULTS) -> list[dict]:
    return read_results(path, KEY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", choices=[*READERS], nargs="?")
    parser.add_argument("--data", help="where the official files are")
    parser.add_argument("--cells", nargs="*", default=[], help="variant:size[:seed]")
    parser.add_argument("--runs", type=Path, default=Path("build/beyond"))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--pretraining", type=int, help="epochs")
    parser.add_argument("--pretrained", type=Path, help="weights of the last recorded pre-training")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--together", type=int, default=1, help="cells at a time on a GPU")
    parser.add_argument("--few", type=int, help="only so many instances: a trial of this script")
    parser.add_argument("--mode", default="compiled", help="how steps are taken")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--commit")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    if options.render:
        page = PAGE.read_text("utf-8")
        head, _, rest = page.partition("<!-- beyond -->\n")
        _, end, tail = rest.partition("\n<!-- end of beyond -->")
        assert end, f"{PAGE} has lost its marks"
        lines = recorded()
        PAGE.write_text(f"{head}<!-- beyond -->\n{render(lines)}{end}{tail}", "utf-8")
        FIGURE.write_text(draw(lines), "utf-8")
        return
    torch.backends.cudnn.benchmark = True  # shapes are always the same
    logging.getLogger("apportion").setLevel(logging.WARNING)
    dataset, problem = options.dataset, Problem(options.dataset, options.data, options.few)
    about = provenance(options.device, options.commit)
    epochs = options.epochs or EPOCHS[dataset]
    folder = options.runs / f"{dataset}-pretraining"
    how = {"device": options.device, "step_mode": options.mode}
    pretraining = options.pretraining or PRETRAINING[dataset]
    small = {} if options.few is None else {"batch_size": 64}
    every = max(1, pretraining // 10)
    if options.pretrained is None:
        took = pretrained(problem, folder, pretraining, checkpoint_every=every, **how, **small)
    else:
        *_, last = (line for line in recorded() if line["dataset"] == dataset)
        folder, took = options.pretrained, last["pretraining_seconds"]

    known = {tuple(line[name] for name in KEY) for line in read_results(options.out, KEY)}
    jobs: list[Job] = []
    clock = Turns(options.together)
    for variant, size, seed in cells_of(options.cells):
        is_frozen = variant in ("frozen", "frozen-apart")
        key = (dataset, variant, size, seed, 0 if is_frozen else epochs)
        if key in known:
            continue
        base = {**dict(zip(KEY, key, strict=True)), "pretraining": pretraining,
                "pretraining_seconds": round(took, 1)}  # fmt: skip

        def record(line, curves, base=base):
            print(base["variant"], base["bag_size"], base["seed"], line, flush=True)
            add_result(options.out, {**base, **line, "together": options.together, **about})
            if curves:
                own = {name: base[name] for name in KEY}
                append_line(options.curves, {**own, "curves": curves})

        if is_frozen:
            apart = variant != "frozen"
            record(frozen(problem, folder, size, seed, apart=apart), {})
            continue
        whole_bags = VARIANTS[variant].unit == "bags"
        slow = {"learning_rate": SLOW} if variant.endswith(("-slow", "-warm")) else {}
        config = TrainConfig.preset(
            "strong",
            epochs=epochs,
            seed=seed,
            augment=VIEWS[dataset][1],
            instances_per_pass=8192 if whole_bags else 4096,
            **{**how, **small, **slow},
        )
        jobs.append(job(problem, folder, variant, size, seed, config, record, clock))
    if jobs:
        clock.began = time.perf_counter()
        fit_many(jobs, at_once=options.together, progress=False)


if __name__ == "__main__":
    main()
