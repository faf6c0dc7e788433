"""The page of the preset `strong`: its tables and its figure, from lines."""

from benchmarks._beyond_page import draw, render
from benchmarks.beyond import FIGURE, KEY, VARIANTS, Turns, recorded


def line(dataset="svhn", variant="strong", size=64, seed=0, selected=90.0, **others):
    return {
        "dataset": dataset,
        "variant": variant,
        "bag_size": size,
        "seed": seed,
        "selected": selected,
        "last": 92.0,
        "epochs": 40,
        "seconds": 100.0 + seed,
        "together": 2,
        "pretraining": 200,
        "pretraining_seconds": 246.4,
        "hardware": "a GPU",
        "versions": {"torch": "2"},
        "commit": "0123456789",
        **others,
    }


def test_a_cell_is_the_mean_of_its_seeds_and_one_that_is_missing_a_dash():
    lines = [line(seed=seed, selected=90.0 + seed) for seed in range(3)]
    rows = render([*lines, line(variant="frozen", size=1024, selected=80)]).splitlines()
    assert rows[0] == "| SVHN, bags of | 64 | 1024 | seconds (cells at a time) |"
    assert rows[2] == "| the paper's method, as published | 87.4 | 86.0 |  |"
    assert rows[4] == "| linear layer on frozen features | – | 80.0 | 100 (1) |"
    assert rows[5] == "| `strong`, selected epoch | 91.0 ± 1.0 | – | 101 (2) |"
    assert rows[6] == "| `strong`, last epoch | 92.0 ± 0.0 | – |  |"
    assert "SVHN 200 epochs in 246 s" in rows[-1]


def test_the_figure_has_a_panel_per_dataset():
    drawn = draw([line(), line(dataset="cifar10"), line(variant="true-labels")])
    assert "SVHN" in drawn
    assert "CIFAR-10" in drawn
    assert "true labels" in drawn


def test_the_figure_and_the_variants_are_those_of_the_recorded_lines():
    lines = recorded()
    assert {found["variant"] for found in lines} <= {*VARIANTS, "frozen"}
    assert len({tuple(found[name] for name in KEY) for found in lines}) == len(lines)
    assert FIGURE.read_text("utf-8") == draw(lines)


def test_a_job_begins_when_one_before_it_ends(monkeypatch):
    times = iter([0.0, 5.0, 7.0, 20.0, 21.0])
    monkeypatch.setattr("benchmarks.beyond.time.perf_counter", lambda: next(times))
    clock = Turns(together=2)
    took = [clock() for _ in range(4)]
    assert [took[i]() for i in (1, 0, 2, 3)] == [5.0, 7.0, 15.0, 14.0]
