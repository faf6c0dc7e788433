"""Training in one process and in two of torchrun, on as many cores: seconds and bytes per epoch.

    python benchmarks/distributed.py [--worlds 1 2] [--epochs 3] [--out build/distributed.jsonl]
                                     [--cases "auto, bags alike" …]
    PYTHONPATH=src python benchmarks/distributed.py      # from a plain source tree

Each process has one thread, on the CPU (gloo), so that two of them are at best twice as fast. Three
perceptrons are trained on a table of 20 columns, and a ResNet-18 on images of 8 × 8. Prints one row
per setting, and writes one JSON line each: the seconds of an epoch by phase, without the first one,
and how many numbers the first process hands to others, in bytes per epoch. The nets that `auto`
trains have no epochs in common: its seconds and bytes are those of all of the training.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

CASES: dict[str, dict[str, Any]] = {
    "perceptron 64, fpl": {"rows": 100_000, "net": "mlp", "hidden": [64], "batch_size": 1024},
    "perceptron 512, fpl": {"rows": 50_000, "net": "mlp", "hidden": [512] * 3, "batch_size": 1024},
    "perceptron 512, bags": {"rows": 50_000, "net": "mlp", "hidden": [512] * 3, "batch_size": 1024,
                             "method": "count-likelihood"},
    "resnet18, fpl": {"rows": 512, "net": "resnet18", "stem": "cifar", "batch_size": 128},
    "auto, bags alike": {"rows": 10_000, "differing": False},
    "auto, bags differing": {"rows": 10_000, "differing": True},
}  # fmt: skip


def bags_of(rows: int, net: str = "mlp", *, differing: bool = False) -> Any:
    from apportion import Bags

    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=rows)
    shape = (rows, 20) if net == "mlp" else (rows, 1, 8, 8)
    x = rng.normal(size=shape).astype(np.float32) + truth.reshape(-1, *[1] * (len(shape) - 1))
    bag = rng.integers(rows // 100, size=rows)
    if differing:  # bags of 100 rows each, in an order that tells the classes apart in part
        bag[np.argsort(truth + rng.normal(size=rows))] = np.arange(rows) // 100
    return Bags.from_rows(x, bag, truth=truth)


def work(case: str, epochs: int, out: str) -> None:
    """Train in this process, one of several or alone, and write what the first one measures."""
    import torch
    import torch.distributed as dist

    sent = {"bytes": 0}

    def counted(call: Any) -> Any:
        def counting(tensor: torch.Tensor, **options: Any) -> Any:
            sent["bytes"] += tensor.numel() * tensor.element_size()
            return call(tensor, **options)

        return counting

    dist.all_reduce, dist.broadcast = counted(dist.all_reduce), counted(dist.broadcast)
    own = dict(CASES[case])
    measured = of_auto(sent, **own) if "differing" in own else of_net(sent, epochs, **own)
    if os.environ.get("RANK", "0") != "0":
        return
    found = {
        "case": case,
        "world": int(os.environ.get("WORLD_SIZE", "1")),
        **measured,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "torch": torch.__version__,
    }
    with Path(out).open("a") as file:
        file.write(json.dumps(found) + "\n")


def of_net(
    sent: dict[str, int],
    epochs: int,
    *,
    rows: int,
    net: str,
    batch_size: int,
    method: str = "fpl",
    **options: Any,
) -> dict[str, Any]:
    from apportion import TrainConfig, build_net, fit

    bags = bags_of(rows, net)
    config = TrainConfig(epochs=epochs + 1, batch_size=batch_size, threads=1, device="cpu")
    before: list[int] = []
    model = build_net(net, bags, **options)
    history = fit(
        model, bags, bags[:50], method=method, config=config, progress=False,
        on_epoch=lambda *_: before.append(sent["bytes"]),
    )  # fmt: skip
    seconds = [sum(own["seconds"].values()) for own in history.records[1:]]
    return {
        "seconds": float(np.median(seconds)),
        "phases": history.records[-1]["seconds"],
        "bytes": (before[-1] - before[0]) // max(len(before) - 1, 1) if before else 0,
        "parameters": sum(p.numel() for p in model.parameters()),
        "steps": -(-rows // batch_size),
    }


def of_auto(sent: dict[str, int], *, rows: int, differing: bool) -> dict[str, Any]:
    from apportion.auto.train import train_table

    bags = bags_of(rows, differing=differing)
    began = time.perf_counter()
    learned = train_table(bags, device="cpu", threads=1, progress=False)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "bytes": sent["bytes"], "nets": learned.history.n_epochs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default="build/distributed.jsonl")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        work(options.case, options.epochs, options.out)
        return
    out = Path(options.out).resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    for case in options.cases:
        for world in options.worlds:
            own = [__file__, "--case", case, "--epochs", str(options.epochs), "--out", str(out)]
            run = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}"]
            command = [sys.executable, *(run if world > 1 else []), *own]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    alone: dict[str, float] = {}
    print(f"{'':22} {'processes':>9} {'s/epoch':>8} {'speed':>6} {'MB/epoch':>9}")
    for line in out.read_text().splitlines():
        found = json.loads(line)
        first = alone.setdefault(found["case"], found["seconds"])
        print(
            f"{found['case']:22} {found['world']:9} {found['seconds']:8.2f} "
            f"{first / found['seconds']:6.2f} {found['bytes'] / 1e6:9.1f}"
        )


if __name__ == "__main__":
    main()
