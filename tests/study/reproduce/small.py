"""A paper small enough to be reproduced in a test: images in CIFAR-10's format, two bag sizes."""

from pathlib import Path
from typing import Any

import numpy as np

from apportion.study.reproduce.paper import Paper

TABLE = """
kind = "table"
title = "Small"
dataset = "cifar10"
sizes = [4, 8]
epochs = 2

[paper]
fpl = [50.0, 40.0]
proportion-loss = [30.0, 20.0]
"""
FIGURES = {
    "figure-accuracy": 'kind = "accuracy"\ntitle = "Accuracy"\ntables = ["table"]\n',
    "figure-labels": (
        'kind = "curves"\ntitle = "Labels"\ndataset = "cifar10"\nbag_size = 8\nepochs = 2\n'
        'methods = ["fpl"]\ncurves = ["changed", "label_accuracy"]\n'
    ),
}
ORDER = """
[[cells]]
methods = ["proportion-loss"]
sizes = [8]

[[cells]]

[[cells]]
methods = ["fpl"]
seeds = [1]
"""
README = "# Small\n\n<!-- table -->\n<!-- end of table -->\n\nThe end.\n"


def small_data(folder: Path, records: int = 8) -> Path:
    """Files in the format of CIFAR-10's binary version, with few images of random pixels."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        content = rng.integers(256, size=(records, 3073), dtype=np.uint8)
        content[:, 0] = rng.integers(10, size=records)
        content.tofile(folder / name)
    return folder


def small_paper(folder: Path) -> Paper:
    """Four cells, and two of another seed."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    rows = {
        f"{split}_{size}": np.stack([rng.choice(40, size, replace=False) for _ in range(2)])
        for split in ("train", "val")
        for size in (4, 8)
    }
    (folder / "bags").mkdir()
    arrays: Any = rows
    np.savez(folder / "bags" / "cifar10.npz", **arrays)
    (folder / "table.toml").write_text(TABLE)
    (folder / "order.toml").write_text(ORDER)
    (folder / "README.md").write_text(README)
    for name, content in FIGURES.items():
        (folder / f"{name}.toml").write_text(content)
    return Paper(folder)


def line_of(method: str, size: int, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A recorded line."""
    return {
        "dataset": "cifar10",
        "method": method,
        "bag_size": size,
        "seed": seed,
        "epochs": 2,
        "selected": 41.5,
        "last": 40.25,
        "best_epoch": 1,
        "seconds": 20.0,
        "share": 10.0,
        "together": 4,
        "hardware": "a computer",
        "versions": {},
        "commit": "abc",
        **changes,
    }
