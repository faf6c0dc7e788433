"""Run folders made up for reports: of any number of bags and classes, without any training."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from apportion.bags.bags import Bags
from apportion.bags.counts import counts_from_proportions
from apportion.files import as_toml
from apportion.runs.evaluation import BINS, Effects, Evaluation, Unsure, save_evaluations
from apportion.runs.header import metadata, seal
from apportion.runs.run import FORMAT_VERSION, Run

METHODS: dict[str, dict[str, Any]] = {
    "fpl": {"name": "fpl", "unlikelihood": "relative", "memory": 1.0},
    "proportion-loss": {"name": "proportion-loss", "form": "cross-entropy"},
}


def made_evaluation(
    n_bags: int,
    n_classes: int,
    *,
    seed: int = 0,
    truth: bool = True,
    k: int = 24,
    ids: list[Any] | None = None,
    noise: float = 0.1,
    columns: list[str] | None = None,
) -> Evaluation:
    """Proportions with predictions near them, and confusion and calibration that agree."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(16, 129, size=n_bags)
    given = rng.dirichlet(np.ones(n_classes), size=n_bags)
    predicted = (1 - noise) * given + noise * rng.dirichlet(np.ones(n_classes), size=n_bags)
    confusion = calibration = known = right = None
    if truth:
        shares = 0.8 * np.eye(n_classes) + 0.2 / n_classes
        confusion = np.stack([rng.multinomial(90, p) for p in shares])
        counts = rng.integers(1, 60, size=BINS) * (np.arange(BINS) >= BINS // n_classes)
        confidence = counts * (np.arange(BINS) + 0.5) / BINS
        calibration = np.stack([counts, confidence, np.floor(confidence)], axis=1)
        known, right = sizes, rng.binomial(sizes, 0.8)
    near = np.sort(rng.dirichlet(np.ones(n_classes), size=k), axis=1)[:, ::-1]
    unsure = Unsure(
        rows=np.arange(100, 100 + k),
        bags=rng.integers(n_bags, size=k),
        confidence=rng.permuted(near, axis=1),
        truth=rng.integers(n_classes, size=k) if truth else None,
    )
    names = [f"ward-{n}" for n in range(n_bags)] if ids is None else ids
    effects = None if columns is None else made_effects(columns)
    told = (confusion, calibration, known, right)
    return Evaluation(names, sizes, given, predicted, *told, unsure, effects)


def made_effects(columns: list[str]) -> Effects:
    """Effects that fall from column to column; every other one is within its uncertainty."""
    mean = np.linspace(0.05, 0.001, len(columns))
    half = np.where(np.arange(len(columns)) % 2, 2.0, 0.5) * mean
    increase = np.stack([mean, mean - half, mean + half], axis=1)
    return Effects(columns, increase, np.array([40, 1234]))


def made_bags(evaluation: Evaluation, x: tuple[Any, ...]) -> Bags:
    """Bags as they were evaluated, with x in the rows that the model is least sure of."""
    unsure, sizes, others = evaluation.unsure, evaluation.sizes, 200
    members: list[list[int]] = []
    for bag, size in enumerate(sizes.tolist()):
        own = unsure.rows[unsure.bags == bag].tolist()
        members.append([*own, *range(others, others + size - len(own))])
        others += size
    parts = tuple(np.zeros((others, *part.shape[1:]), part.dtype) for part in x)
    for whole, part in zip(parts, x, strict=True):
        whole[unsure.rows] = part
    return Bags(
        x=parts,
        index=np.concatenate(members).astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        proportions=evaluation.given,
        counts=counts_from_proportions(evaluation.given, sizes),
        classes=tuple(range(evaluation.given.shape[1])),
        ids=tuple(evaluation.ids),
    )


def made_run(
    folder: Path,
    evaluations: dict[str, Evaluation] | None = None,
    *,
    classes: list[Any] | None = None,
    epochs: int = 12,
    epochs_wanted: int | None = None,
    method: str = "fpl",
    validated: bool = True,
    about: dict[str, dict[str, Any]] | None = None,
    model: dict[str, Any] | None = None,
    seed: int = 0,
    **train: Any,
) -> Path:
    """Write a run folder. Without evaluations its training has not ended; `model` is a header."""
    run = Run(folder)
    folder.mkdir(parents=True)
    sections: dict[str, dict[str, Any]] = {
        "train": {"epochs": epochs_wanted or epochs, "batch_size": 128, "seed": seed, **train},
        "method": METHODS[method],
        "resolved": {"eta": 1.25, "device": "cpu", "torch": "2.13.0"},
        **(about or {}),
    }
    text = f"format = {FORMAT_VERSION}\n" + "".join(
        f"\n[{section}]\n{as_toml(values)}" for section, values in sections.items()
    )
    run.config.write_text(text, encoding="utf-8")
    run.log.write_text(
        "".join(json.dumps(r) + "\n" for r in made_records(epochs, method, validated, seed)),
        encoding="utf-8",
    )
    if evaluations is not None:
        n_classes = next(iter(evaluations.values())).given.shape[1]
        names = [f"class {c}" for c in range(n_classes)] if classes is None else classes
        save_evaluations(run, names, evaluations)
    if model is not None:
        save_file({"weight": np.zeros(2)}, run.model, metadata("model", model))
        seal(run.model)
    return folder


def made_records(epochs: int, method: str, validated: bool, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    found: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        left = float(np.exp(-4 * epoch / epochs) + 0.01 * rng.random())
        record: dict[str, Any] = {"epoch": epoch, "loss": 0.2 + 2 * left}
        if method == "fpl":
            record |= {
                "changed": 0.9 * left,
                "regret": 0.5 / epoch**0.5,
                "label_accuracy": 1 - left,
            }
        if validated:
            record |= {"valid_error": 0.02 + 0.3 * left, "valid_accuracy": 1 - 0.9 * left}
        record["seconds"] = {
            "train": 0.5 + 0.1 * rng.random(),
            "confidence": 0.05,
            "labels": 0.1,
            "evaluation": 0.02,
        }
        found.append(record)
    return found


def logged(run: Path, **numbers: Any) -> Path:
    """Put numbers into the last record of a run's log."""
    log = Run(run).log
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    records[-1] |= numbers
    log.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return run


def wrong_bag(by: float = 0.45) -> dict[str, Evaluation]:
    """Bags of 100 that are nearly met, but for validation bag 3: its known shares are wrong.

    Those of training differ from the overall shares by 20 points, those of validation by 6, and
    half of these are not met better than so.
    """
    found = {}
    for of, n, spread in (("train", 40, 0.2), ("valid", 12, 0.06)):
        side = np.where(np.arange(n) % 2, spread, -spread)
        given = np.stack([0.3 + side, 0.7 - side], axis=1)
        far = np.full(n, 0.05) if of == "train" else np.resize([0.1, 0.1, 0, 0], n)
        predicted = given + far[:, None] * [1, -1]
        found[of] = replace(
            made_evaluation(n, 2, truth=False),
            given=given,
            predicted=predicted,
            sizes=np.full(n, 100),
        )
    found["valid"].given[3] += [by, -by]
    return found
