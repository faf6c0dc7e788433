"""The benchmark of first labels: what it trains, and its table."""

from benchmarks.first_labels import BAGS, FIRST, KEY, recorded, render, run


def lines_of(accuracy):
    return [
        {"net": net, "size": size, "n_bags": n, "first": first, "test_accuracy": accuracy(first, s)}
        for net in ("mlp", "convolutions")
        for size, n in BAGS
        for first in FIRST
        for s in range(2)
    ]


def test_a_training_is_a_line_with_its_key_and_its_accuracies():
    for net in ("mlp", "convolutions"):
        line = run(net, 16, 4, "mean-map", seed=0, epochs=1)
        assert [line[name] for name in KEY] == [net, 16, 4, "mean-map", None, 1, 0]
        assert 0 < line["test_accuracy"] < 1


def test_the_table_has_mean_and_deviation_of_every_cell():
    table = render(lines_of(lambda first, s: (0.5 if first == "random" else 0.9) + 0.02 * s))
    rows = table.splitlines()
    assert len(rows) == 2 + 2 * len(BAGS)
    assert rows[2] == "| mlp | 20 of 64 | 51.0 ± 1.4 | 91.0 ± 1.4 | 91.0 ± 1.4 |"


def test_every_cell_is_recorded_with_five_seeds():
    lines = recorded()
    for first in FIRST:
        assert {line["seed"] for line in lines if line["first"] == first} == set(range(5))
    assert len({tuple(line[name] for name in KEY) for line in lines}) == len(lines) == 60
