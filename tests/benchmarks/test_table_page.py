import re

import numpy as np

from benchmarks._table_page import NOTHING, render

METHODS = ("fpl", "linear", "true-lr")


def line(table, regime, seed, method, value, noise="exact"):
    names = ("auc", "auc_within", "auc_across", "accuracy", "log_loss", "cpu_seconds")
    where = {"table": table, "regime": regime, "noise": noise, "seed": seed, "method": method}
    return {**where, **dict.fromkeys(names, value)}


def tables(lines):
    """The tables by their titles, each as a dict of dicts of texts: by method, then by column."""
    found = {}
    for title, text in re.findall(
        r"\*\*([^*\n]+)\*\*\n\n(.*?)(?=\n\n\*\*|\Z)", render(lines), re.S
    ):
        rows = [row.strip("| ").split(" | ") for row in text.split("\n") if row.startswith("|")]
        found[title.partition(":")[0]] = {
            row[0].strip("`"): dict(zip(rows[0][1:], row[1:], strict=False)) for row in rows[2:]
        }
    return found


def test_without_lines_the_page_says_so():
    assert render([]) == NOTHING


def test_means_and_regrets_are_over_the_runs_that_all_methods_have():
    rng = np.random.default_rng(0)
    values = rng.random((4, 3))
    runs = [("adult", "rand-32", 0), ("adult", "rand-32", 1), ("bank", "rand-32", 0)]
    runs += [("digits2", "shuffle-128", 0)]
    lines = [
        line(*run, method, value)
        for run, row in zip(runs, values, strict=True)
        for method, value in zip(METHODS, row, strict=True)
    ]
    lines += [line("magic", "rand-32", 0, "fpl", 0.123)]  # which others lack
    found = tables(lines)["Two classes, exact proportions"]
    assert list(found) == list(METHODS)
    regret = values[:, :2].max(axis=1, keepdims=True) - values[:, :2]
    for j, method in enumerate(METHODS):
        row = {name: text.strip("*") for name, text in found[method].items()}
        assert row["rand, small (3)"] == f"{values[:3, j].mean():.3f}"
        assert row["shuffle, large (1)"] == f"{values[3, j]:.3f}"
        assert row["all (4)"] == f"{values[:, j].mean():.3f}"
        if j < 2:
            assert row["mean regret"] == f"{regret[:, j].mean():.3f}"
            assert row["90 %"] == f"{np.quantile(regret[:, j], 0.9):.3f}"
            assert row["worst"] == f"{regret[:, j].max():.3f}"
        else:
            assert not row.get("worst")


def test_the_best_that_learns_from_proportions_is_bold_and_the_missing_are_named():
    lines = [
        line("wine", "rand-8", 0, method, value)
        for method, value in zip(METHODS, (0.8, 0.7, 0.9), strict=True)
    ]
    row = tables(lines)["Several classes (digits, wine)"]
    assert row["fpl"]["all (1)"] == "**0.800**"
    assert row["fpl"]["worst"] == "**0.000**"
    assert row["linear"]["worst"] == "0.100"
    assert row["true-lr"]["all (1)"] == "0.900"
    assert re.search(r"Not measured yet: `auto`, .*`soft-lr`, `true-hgb`\.", render(lines))


def test_noise_is_compared_on_the_same_cells_and_seeds():
    lines = [line("magic", "rand-32", seed, "fpl", 0.9 + seed / 100) for seed in range(3)]
    lines += [
        line("magic", "rand-32", seed, "fpl", 0.8, noise)
        for seed in (1, 2)
        for noise in ("laplace-0.2", "round-0.1")
    ]
    row = tables(lines)["Noisy proportions in bags of 32"]["fpl"]
    assert row["rand, exact (2)"] == "**0.915**"
    assert row["rand, round-0.1 (2)"] == "**0.800**"


def test_costs_are_medians_by_the_size_of_the_table():
    lines = [line("bank", "rand-512", seed, "fpl", value) for seed, value in enumerate((1, 2, 9))]
    lines += [line("digits2", "rand-32", 0, "fpl", 0.5)]
    row = tables(lines)["Two classes, without `rand`"]["fpl"]
    assert row == {"10,000 rows: CPU seconds (3)": "**2.0**", "fewer rows (1)": "**0.5**"}
