"""The tables and the figure of docs/images.md on the preset `strong`, from recorded lines alone."""

from __future__ import annotations

import io
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from apportion.files import read_toml

ROOT = Path(__file__).parents[1]
PAPER_TABLES = {"cifar10": "table1-cifar10", "svhn": "table2-svhn"}
TITLES = {"cifar10": "CIFAR-10", "svhn": "SVHN"}
PAPER = {"fpl": "the paper's method, as published", "proportion-loss": "its proportion loss"}
SAID = {
    "frozen": "linear layer on frozen features",
    "frozen-apart": "the same, each row in one bag",
    "strong": "`strong`, selected epoch",
    "strong-apart": "the same, each row in one bag",
    "true-labels": "true labels, same pre-training and preset (the limit)",
    "proportion-loss": "`proportion-loss`, same pre-training and preset",
    "count-likelihood": "`count-likelihood`, same pre-training and preset",
    "proportion-loss-slow": "`proportion-loss`, same pre-training, at a seventh of the rate",
    "proportion-loss-warm": "the same from the linear layer on frozen features",
    "count-likelihood-slow": "`count-likelihood`, same pre-training, at a seventh of the rate",
    "count-likelihood-warm": "the same from the linear layer on frozen features",
    "bag-by-bag": "`strong`, each bag's labels by its own counts alone",
    "fpl": "`strong` with the paper's decisions (Eq. 2, sum, η)",
    "random-first-labels": "`strong` from random first labels",
    "no-mixup": "`strong` without mixup",
    "no-pretraining": "`strong` without pre-training",
}
DRAWN = {"frozen": "linear layer on frozen features", "strong": "strong"}


def render(lines: list[dict]) -> str:
    """Make one table per dataset: accuracy in per cent by variant and size of bags."""
    tables = [_table(dataset, lines) for dataset in TITLES if _of(lines, dataset)]
    versions = {f"{line['hardware']}, torch {line['versions']['torch']}" for line in lines}
    commits = ", ".join(sorted({f"`{line['commit'][:7]}`" for line in lines}))
    told, epochs = [], []
    for dataset in TITLES:
        own = _of(lines, dataset)
        numbers = " and ".join(_distinct(own, "pretraining"))
        seconds = " and ".join(_distinct(own, "pretraining_seconds"))
        told += [f"{TITLES[dataset]} {numbers} epochs in {seconds} s"] if own else []
        trained = [line for line in own if line["epochs"]]
        epochs += [f"{TITLES[dataset]} {' and '.join(_distinct(trained, 'epochs'))}"] if own else []
    about = f"Pre-training: {'; '.join(told)}. Epochs of training: {'; '.join(epochs)}."
    return "\n\n".join([*tables, f"{'; '.join(sorted(versions))}, commits {commits}. {about}"])


def _table(dataset: str, lines: list[dict]) -> str:
    own = _of(lines, dataset)
    sizes, published = sorted({line["bag_size"] for line in own}), _published(dataset)
    rows = [
        [f"{TITLES[dataset]}, bags of", *map(str, sizes), "seconds (cells at a time)"],
        ["---"] * (len(sizes) + 2),
        *(
            [said, *(f"{published[method][size]:.1f}" for size in sizes), ""]
            for method, said in PAPER.items()
        ),
    ]
    usual = _distinct([line for line in own if line["variant"] == "strong"], "epochs")
    for variant, said in SAID.items():
        if ours := [line for line in own if line["variant"] == variant]:
            values = [_of_size(ours, size) for size in sizes]
            beside = max(1 if variant == "frozen" else line["together"] for line in ours)
            seconds = f"{median(line['seconds'] for line in ours):.0f} ({beside})"
            (epochs,) = _distinct(ours, "epochs")
            less = "" if epochs in ("0", *usual) else f", {epochs} epochs"
            rows.append([said + less, *map(_mean, values), seconds])
            if variant == "strong":
                ends = (_of_size(ours, size, "last") for size in sizes)
                rows.append(["`strong`, last epoch", *map(_mean, ends), ""])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def draw(lines: list[dict]) -> str:
    """Draw accuracy against the size of bags as SVG: ours as lines, the paper's dashed."""
    from matplotlib import style
    from matplotlib.figure import Figure

    datasets = [dataset for dataset in TITLES if _of(lines, dataset)]
    # The user's own style must not matter, and ids in an SVG are random unless they are salted.
    with style.context(["default", {"svg.hashsalt": "apportion", "svg.fonttype": "none"}]):
        canvas = Figure(figsize=(4.2 * len(datasets), 3.4), layout="constrained")
        for number, dataset in enumerate(datasets, start=1):
            axes, own = canvas.add_subplot(1, len(datasets), number), _of(lines, dataset)
            for color, (method, said) in zip(("C7", "C1"), PAPER.items(), strict=True):
                theirs = _published(dataset)[method]
                axes.plot([*theirs], [*theirs.values()], "--", color=color, label=said)
            for color, (variant, said) in zip(("C9", "C0"), DRAWN.items(), strict=True):
                ours = [line for line in own if line["variant"] == variant]
                sizes = sorted({line["bag_size"] for line in ours})
                points = [mean(_of_size(ours, size)) for size in sizes]
                axes.plot(sizes, points, "o-", color=color, label=said)
            if limit := [line["selected"] for line in own if line["variant"] == "true-labels"]:
                axes.axhline(mean(limit), color="C2", linestyle=":", label="true labels")
            axes.set_xscale("log")
            axes.set_xticks([*theirs], [str(size) for size in theirs])
            axes.minorticks_off()
            axes.set(title=TITLES[dataset], xlabel="instances per bag", ylabel="test accuracy (%)")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        drawn = io.StringIO()
        canvas.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return drawn.getvalue()


def _of(lines: list[dict], dataset: str) -> list[dict]:
    return [line for line in lines if line["dataset"] == dataset]


def _distinct(lines: list[dict], name: str) -> list[str]:
    return [f"{value:.0f}" for value in sorted({line[name] for line in lines})]


def _of_size(lines: list[dict], size: int, epoch: str = "selected") -> list[float]:
    return [line[epoch] for line in lines if line["bag_size"] == size]


def _published(dataset: str) -> dict[str, dict[int, float]]:
    """Return what the paper has, by method and size of bags."""
    toml: Any = read_toml(ROOT / "papers" / "matsuo2023" / f"{PAPER_TABLES[dataset]}.toml")
    return {
        method: dict(zip(toml["sizes"], toml["paper"][method], strict=True)) for method in PAPER
    }


def _mean(accuracies: list[float]) -> str:
    if not accuracies:
        return "–"
    spread = f" ± {stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
    return f"{mean(accuracies):.1f}{spread}"
