import lzma

import numpy as np
import pandas as pd
import pytest

from benchmarks._cells import CELLS, NOISY, TWO_CLASSES, Cell, bagged, noisy


@pytest.fixture
def folder(tmp_path):
    """UCI's bank file with 200 rows, whose ages are all different."""
    rng = np.random.default_rng(0)
    jobs, answers = rng.choice(["cook", "nurse", "smith"], 200), rng.choice(["yes", "no"], 200)
    frame = pd.DataFrame({"age": np.arange(200), "job": jobs, "y": answers})
    frame.to_csv(tmp_path / "bank-full.csv", index=False)
    return tmp_path


def test_no_cell_is_there_twice_and_all_noise_has_an_exact_twin():
    assert len(set(CELLS)) == len(CELLS) == 50
    assert {cell._replace(noise="exact") for cell in NOISY} <= set(TWO_CLASSES)


def test_a_column_makes_bags_and_is_taken_from_the_rows(folder):
    cell = bagged(Cell("bank", "column-job"), 0, folder)
    source = pd.read_csv(folder / "bank-full.csv").set_index("age")
    assert list(cell.frame) == list(cell.test) == ["age"]
    own = source.loc[cell.frame["age"]]
    shares = (own["y"] == "yes").groupby(own["job"]).mean()
    for bag, proportions in enumerate(cell.proportions):
        (job,) = own["job"][cell.bags == bag].unique()
        np.testing.assert_allclose(proportions, [1 - shares[job], shares[job]])
    assert list(cell.test_bags) == list(source.loc[cell.test["age"], "job"])
    assert len(cell.frame) == 140
    assert sorted([*cell.frame["age"], *cell.test["age"]]) == list(range(200))


def test_files_may_be_compressed(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("xz")
    with lzma.open(other / "bank-full.csv.xz", "wb") as file:
        file.write((folder / "bank-full.csv").read_bytes())
    cell = Cell("bank", "shuffle-32")
    pd.testing.assert_frame_equal(bagged(cell, 0, folder).frame, bagged(cell, 0, other).frame)


def test_test_rows_belong_to_the_clusters_of_the_training_rows():
    cell = bagged(Cell("wine", "kmeans-8"), 0)
    assert len(cell.proportions) == 8
    x, test = cell.frame.to_numpy(), cell.test.to_numpy()
    spread = x.std(axis=0)
    means = np.array([x[cell.bags == bag].mean(axis=0) for bag in range(8)])
    nearest = np.square((test[:, None] - means) / spread).sum(axis=2).argmin(axis=1)
    assert np.mean(nearest == cell.test_bags) > 0.8  # the centres of mini-batches are not means


@pytest.mark.parametrize("regime", ["rand-32", "shuffle-32"])
def test_drawn_bags_hold_what_their_proportions_say(regime):
    cell = bagged(Cell("digits2", regime), 1)
    assert cell.test_bags is None
    for bag in range(len(cell.proportions)):
        assert cell.proportions[bag, 1] == pytest.approx(cell.truth[cell.bags == bag].mean())


def test_noise():
    counts = np.array([[8.0, 24.0], [16.0, 16.0], [0.0, 32.0]])
    np.testing.assert_allclose(noisy(counts, "exact", 0), counts / 32)
    np.testing.assert_allclose(
        noisy(counts, "round-0.1", 0), [[0.2, 0.8], [0.5, 0.5], [0.0, 1.0]], atol=1e-9
    )
    many = np.full((4000, 2), 1000.0)
    found = noisy(many, "laplace-0.2", 0)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    # The difference of two Laplace variables of scale 5 has variance 2 · 2 · 5².
    assert (found[:, 0] - found[:, 1]).std() * 2000 == pytest.approx(10, rel=0.05)
    assert not np.array_equal(found, noisy(many, "laplace-0.2", 1))
    np.testing.assert_allclose(noisy(np.array([[1.0, 29.0]]), "round-0.9", 0), [[0.0, 1.0]])
    np.testing.assert_allclose(noisy(np.array([[1.0, 1.0, 1.0]]), "round-0.9", 0), [[1 / 3] * 3])
