"""First labels: random ones, those of features, and those of the caller."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression

from apportion.bags.bags import Bags
from apportion.errors import BagError, ConfigError, DataError
from apportion.labels import start
from apportion.labels.linear import class_means
from apportion.labels.raking import Raking
from apportion.labels.start import (
    FIRM,
    LOOSE,
    checked_labels,
    first_labels,
    fit_features,
    most_telling,
    random_labels,
)
from tests.labels.tables import table_bags
from tests.labels.test_leader import bags_of, counts_of

SMALL = bags_of([[3, 2, 0], [0, 0, 1], [2, 2, 4], [1, 5, 1]])
TRUTH: Any = SMALL.truth
COUNTS = st.lists(
    st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any), min_size=1, max_size=6
)


@given(COUNTS, st.integers(0, 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_random_labels_meet_the_counts(counts, seed):
    bags = bags_of(counts)
    assert counts_of(random_labels(bags, seed), bags) == counts


def test_random_labels_are_the_same_in_pieces_of_any_size(monkeypatch):
    bags = bags_of(np.random.default_rng(0).integers(1, 9, (40, 3)).tolist())
    known = random_labels(bags, 7, 11)
    for size in (1, 5, 100):
        monkeypatch.setattr(start, "AT_ONCE", size)
        np.testing.assert_array_equal(random_labels(bags, 7, 11), known)


def test_random_labels_are_equally_likely():
    """Of the 12 labelings of a bag of 2, 1 and 1, each turns up as often as any other."""
    bags = bags_of([[2, 1, 1]] * 3000)
    drawn = [tuple(row) for row in random_labels(bags, 0).reshape(-1, 4).tolist()]
    labelings = sorted(set(itertools.permutations((0, 0, 1, 2))))
    found = [drawn.count(labeling) for labeling in labelings]
    assert sum(found) == 3000
    assert stats.chisquare(found).pvalue > 1e-3


def test_bags_that_are_alike_do_not_get_the_same_random_labels():
    first = random_labels(bags_of([[8, 8], [8, 8]]), 0)
    assert first[:16].tolist() != first[16:].tolist()


def test_labels_that_break_the_counts_are_refused_by_bag_and_number():
    counts = {"north": [2, 1], "south": [1, 3]}
    table = {name: dict(zip(["no", "yes"], k, strict=True)) for name, k in counts.items()}
    bag = ["north"] * 3 + ["south"] * 4
    bags = Bags.from_rows(None, bag, table, counts=True)
    good = [0, 1, 0, 1, 1, 0, 1]
    assert checked_labels(good, bags, "mine").tolist() == good
    with pytest.raises(BagError) as caught:
        checked_labels([0, 1, 0, 1, 0, 0, 1], bags, "the labels")
    message = str(caught.value)
    assert "bag 'south' 2 of class 'no', but its count is 1" in message
    assert "assign" in message
    with pytest.raises(BagError, match="bag 'north' 1 of class 'no', but its count is 2"):
        checked_labels(
            [0, 1, 1, 1, 0, 0, 1], bags, "the labels"
        )  # the totals over all bags are right


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (np.zeros(5, np.int64), r"shape \(5,\)"),
        (np.zeros((21, 1), np.int64), r"shape \(21, 1\)"),
        (np.zeros(21), "float64"),
        (np.zeros(21, bool), "bool"),
        (np.array(["a"] * 21), "U1"),
    ],
)
def test_labels_of_another_shape_or_type_are_refused(first, says):
    assert SMALL.n_instances == 21
    with pytest.raises(BagError, match=f"(?s){says}.*each of the 21 instances"):
        checked_labels(first, SMALL, "the labels")


@pytest.mark.parametrize(("value", "says"), [(3, "from 0 to 3"), (-1, "from -1 to 2")])
def test_labels_that_are_no_class_are_refused(value, says):
    first = TRUTH.copy()
    first[0] = value
    with pytest.raises(BagError, match=f"(?s){says}.*between 0 and 2"):
        checked_labels(first, SMALL, "the labels")


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
def test_labels_are_returned_as_new_integers_of_64_bits(dtype):
    labels = TRUTH.astype(dtype)
    found = checked_labels(labels, SMALL, "the labels")
    assert found.dtype == np.int64
    assert found.tolist() == TRUTH.tolist()
    assert not np.shares_memory(found, labels)


@pytest.mark.parametrize("position", [1, 4, 30])
def test_random_labels_of_a_shard_are_those_of_all(position):
    bags = bags_of(np.random.default_rng(0).integers(1, 5, (40, 3)))
    begin = int(bags.offsets[position])
    shard = random_labels(bags[position:], seed=7, first_position=begin)
    assert shard.tolist() == random_labels(bags, seed=7)[begin:].tolist()


@pytest.mark.parametrize("first", ["linear", "mean-map"])
def test_linear_first_labels_meet_the_counts_and_are_mostly_right(first):
    bags = table_bags(600)
    labels = first_labels(first, bags.without_truth(), seed=0)
    assert counts_of(labels, bags) == bags.counts.tolist()
    assert (labels == bags.truth).mean() > 0.88
    random = first_labels("random", bags, seed=0)
    assert (random == bags.truth).mean() < 0.8


def test_linear_first_labels_need_rows():
    with pytest.raises(BagError, match=r"(?s)x is None.*with_rows"):
        first_labels("linear", SMALL, seed=0)
    images = SMALL.with_rows(np.zeros((21, 3, 4, 4)))
    with pytest.raises(
        ConfigError, match=r"need rows of features, but x is of shape \(21, 3, 4, 4\)"
    ):
        first_labels("mean-map", images, seed=0)


# ------------------------------------------------------------------------------- from features


def drawn(seed, n_bags=30, size=60, n_classes=4, width=12, apart=3.0, alike=False):
    """Bags of Gaussian features around class means; a row stands in one bag."""
    rng = np.random.default_rng(seed)
    shares = np.full(n_classes, 1 / n_classes) if alike else None
    p = [rng.dirichlet(np.ones(n_classes)) if shares is None else shares for _ in range(n_bags)]
    truth = np.concatenate([rng.choice(n_classes, size, p=own) for own in p])
    centres = apart * rng.normal(size=(n_classes, width)) / np.sqrt(width)
    mixing = rng.normal(size=(width, width))
    x = (centres[truth] + 0.5 * rng.normal(size=(len(truth), width))) @ mixing + 7
    bag = np.repeat(np.arange(n_bags), size)
    return Bags.from_rows(x.astype(np.float32), bag, truth=truth, classes=range(n_classes)), truth


def test_class_means_are_those_of_least_squares():
    """The literal sum of squares, minimised by lstsq of stacked equations."""
    rng = np.random.default_rng(0)
    sizes, shares = rng.integers(2, 9, size=7), rng.dirichlet(np.ones(3), size=7)
    sums = rng.normal(size=(7, 4)) * sizes[:, None]
    mean = sums.sum(axis=0) / sizes.sum()
    root = np.sqrt(sizes)[:, None]
    equations = np.concatenate([root * shares, np.eye(3)])
    values = np.concatenate([root * (sums / sizes[:, None] - mean), np.zeros((3, 4))])
    wanted = mean + np.linalg.lstsq(equations, values)[0]
    found = class_means(sums.T @ shares, mean[:, None], shares, sizes)
    np.testing.assert_allclose(found.T, wanted, atol=1e-10)


def test_features_lead_close_to_what_true_labels_lead_to():
    whole, truth = drawn(0, n_bags=40)
    bags, fresh = whole[:30], whole.x[1800:]
    found = fit_features(bags.without_truth())
    assert counts_of(found.labels, bags) == bags.counts.tolist()
    learned = LogisticRegression(max_iter=5000).fit(whole.x[:1800], truth[:1800])
    bound = learned.score(fresh, truth[1800:])
    assert bound > 0.9
    predicted = found.linear.logits(fresh).argmax(axis=1)
    assert (predicted == truth[1800:]).mean() > bound - 0.03


@pytest.mark.parametrize("size", [16, 512])
def test_features_suffice_in_small_and_in_large_bags(size):
    bags, _ = drawn(1, n_bags=2400 // size * 2 if size < 100 else 12, size=size)
    found = fit_features(bags.without_truth())
    assert (found.labels == bags.truth).mean() > 0.93


def test_a_row_in_several_bags_is_learned_once():
    bags, truth = drawn(2, n_bags=8)
    members = [np.random.default_rng(i).permutation(len(truth))[: 30 + 9 * i] for i in range(25)]
    several = Bags.from_members(bags.x, members, truth=truth, classes=range(4))
    found = fit_features(several.without_truth())
    assert counts_of(found.labels, several) == several.counts.tolist()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("size", [20, 100])
def test_the_counts_of_all_bags_of_a_row_tell_of_its_class(seed, size, monkeypatch):
    """Rows in some three bags each, whose features say little."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(4, size=1500)
    x = (np.eye(4)[truth] + 0.7 * rng.normal(size=(1500, 4))).astype(np.float32)
    members = []
    for _ in range(4500 // size):
        chances = rng.dirichlet(np.full(4, 0.7))[truth] + 1e-3
        members.append(rng.choice(1500, size, replace=False, p=chances / chances.sum()))
    bags = Bags.from_members(x, members, truth=truth, classes=range(4))
    together = fit_features(bags.without_truth())
    assert counts_of(together.labels, bags) == bags.counts.tolist()
    monkeypatch.setattr(Raking, "logits", lambda _, logits: logits)
    apart = fit_features(bags.without_truth())
    right = [(found.labels == bags.truth).mean() for found in (together, apart)]
    assert right[0] > right[1] + 0.05
    fresh = (np.eye(4)[truth] + 0.7 * rng.normal(size=(1500, 4))).astype(np.float32)
    known = [(found.linear.logits(fresh).argmax(axis=1) == truth).mean()
             for found in (together, apart)]  # fmt: skip
    assert known[0] > known[1] - 0.01


def test_where_bags_do_not_overlap_nothing_is_raked(monkeypatch):
    bags, _ = drawn(8)
    found = fit_features(bags)
    monkeypatch.setattr(Raking, "logits", lambda *_: None)
    assert (fit_features(bags).labels == found.labels).all()


def test_labels_from_features_depend_on_nothing_but_the_bags_and_the_seed():
    bags, _ = drawn(3)
    first, again = (fit_features(bags.without_truth(), seed=5) for _ in range(2))
    assert (first.labels == again.labels).all()
    assert (first.linear.weights == again.linear.weights).all()


def test_rows_that_stand_in_no_bag_change_nothing():
    bags, _ = drawn(4)
    x = np.concatenate([bags.x, np.full((5, 12), np.nan, np.float32)])
    with_others = bags.with_rows(x)
    assert (fit_features(with_others).labels == fit_features(bags).labels).all()


@pytest.mark.parametrize("case", ["one bag", "two bags", "alike", "wide", "collinear", "constants"])
def test_labels_meet_the_counts_of_whatever_bags(case):
    bags, truth = drawn(5, n_bags={"one bag": 1, "two bags": 2}.get(case, 6), alike=case == "alike")
    if case == "wide":
        rng = np.random.default_rng(0)
        bags = bags.with_rows(bags.x @ rng.normal(size=(12, 3000)).astype(np.float32))
    if case == "collinear":
        bags = bags.with_rows(np.concatenate([bags.x] * 3, axis=1))
    if case == "constants":
        constant = np.full((len(truth), 3), [0.0, 1e6, 0.1], np.float32)
        bags = bags.with_rows(np.concatenate([constant, bags.x], axis=1))
    found = fit_features(bags.without_truth())
    assert counts_of(found.labels, bags) == bags.counts.tolist()
    assert np.isfinite(found.linear.weights).all()
    assert np.isfinite(found.linear.confidence(bags.x)).all()


def test_many_features_lead_to_the_labels_of_few_that_say_the_same():
    """3,000 features of rank 12: subspace iteration finds the components that eigh finds."""
    bags, truth = drawn(6, n_bags=10)
    wide = bags.x @ np.linalg.qr(np.random.default_rng(0).normal(size=(3000, 12)))[0].T
    found = fit_features(bags.with_rows(wide.astype(np.float32)))
    assert (found.labels == truth).mean() > 0.93


def test_labels_that_are_equally_likely_do_not_follow_the_order_of_the_rows():
    """Rows that are alike, stored by class: what is assigned first must not be the truth."""
    truth = np.tile(np.repeat([0, 1], 50), 2)
    x = np.repeat([[0.0], [1.0]], 100, axis=0)
    bags = Bags.from_rows(x, np.repeat([0, 1], 100), truth=truth)
    labels = fit_features(bags.without_truth()).labels
    assert 0.3 < (labels == bags.truth).mean() < 0.7


def test_features_that_say_nothing_or_are_missing_are_refused():
    bags, _ = drawn(7, n_bags=3)
    with pytest.raises(
        DataError, match=r"(?s)all 2 features are the same in all 180 rows.*trained"
    ):
        fit_features(bags.with_rows(np.ones((180, 2))))
    x = bags.x.copy()
    x[3, 5] = np.nan
    with pytest.raises(DataError, match="x is nan in row 3, column 5"):
        fit_features(bags.with_rows(x))
    with pytest.raises(ConfigError, match="rounds must be"):
        fit_features(bags, rounds=0)


def test_functions_are_for_fit_alone():
    with pytest.raises(ConfigError, match=r"(?s)only fit calls.*fit_features"):
        first_labels(len, SMALL, seed=0)


# ---------------------------------------------------------------------- features of several kinds


def with_features(shift: float, *, n_bags: int = 12, size: int = 30, seed: int = 0) -> Bags:
    """Bags of two classes whose features are so many standard deviations apart."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([rng.random(size) < rng.random() for _ in range(n_bags)]).astype(int)
    x = rng.normal(size=(len(truth), 4)) + shift * truth[:, None]
    return Bags.from_rows(x, np.repeat(np.arange(n_bags), size), truth=truth).without_truth()


@pytest.mark.parametrize("best", [0, 1, 2])
def test_features_are_chosen_by_what_they_tell_of_other_bags(best):
    several = [with_features(3.0 if i == best else 0.0) for i in range(3)]
    chosen, errors = most_telling([(bags, FIRM) for bags in several])
    assert chosen == best == int(np.argmin(errors))
    assert errors[best] < 0.5 * min(e for i, e in enumerate(errors) if i != best)


def test_features_that_fit_the_bags_they_are_learned_from_alone_are_not_chosen():
    """As many columns as bags: any proportions follow from them, but only of these bags."""
    known = with_features(2.0)
    n_bags, size = known.n_bags, len(known.x) // known.n_bags
    own = np.repeat(np.eye(n_bags), size, axis=0)
    assert most_telling([(known.with_rows(own), FIRM), (known, FIRM)])[0] == 1


def test_features_that_are_all_the_same_are_never_chosen_and_one_bag_says_nothing():
    known = with_features(3.0)
    nothing = known.with_rows(np.ones((len(known.x), 4)))
    chosen, errors = most_telling([(nothing, FIRM), (known, FIRM)])
    assert (chosen, errors[0]) == (1, np.inf)
    assert most_telling([(known, FIRM), (nothing, FIRM)])[0] == 0
    assert most_telling([(known[:1], FIRM)] * 2) == (0, [0.0, 0.0])


def test_the_first_fit_is_taken_unless_another_is_clearly_better():
    """Features of which one half is as good as the other."""
    one, other = with_features(0.7, seed=3), with_features(0.7, seed=3)
    other = other.with_rows(other.x + 0.05 * np.random.default_rng(0).normal(size=other.x.shape))
    errors = most_telling([(one, FIRM), (other, FIRM)])[1]
    worse, better = (one, other) if errors[0] > errors[1] else (other, one)
    assert errors[0] != errors[1]
    assert most_telling([(worse, FIRM), (better, FIRM)])[0] == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_a_loose_fit_finds_classes_in_few_features_and_bags_choose_it(seed):
    """Of 20 features one tells the classes, and varies no more than the others."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([rng.choice(3, 20, p=rng.dirichlet(np.ones(3))) for _ in range(30)])
    x = rng.normal(size=(len(truth), 20))
    x[:, 0] += 6 * (truth - 1)
    bags = Bags.from_rows(x / x.std(axis=0), np.arange(600) // 20, truth=truth, classes=range(3))
    right = [(fit_features(bags, penalty=p).labels == truth).mean() for p in (FIRM, LOOSE)]
    assert right[1] > max(right[0] + 0.1, 0.9)
    assert most_telling([(bags, FIRM), (bags, LOOSE)])[0] == 1


def test_of_many_bags_some_choose(monkeypatch):
    sizes = []

    def fit(bags, **options):
        sizes.append(bags.n_instances)
        return fit_features(bags, **options)

    monkeypatch.setattr(start, "MOST_TO_CHOOSE", 200)
    monkeypatch.setattr(start, "fit_features", fit)
    known = with_features(3.0, n_bags=100, size=10)
    assert most_telling([(known, FIRM), (known, LOOSE)])[1][0] < 0.1
    assert sizes == [100] * 4
    sizes.clear()
    most_telling([(known[:12], FIRM)])  # few are all needed
    assert sizes == [60] * 2


@pytest.mark.parametrize("n_bags", [6, 12])
def test_few_bags_are_not_learned_by_heart(n_bags, monkeypatch):
    """Features of which two tell the classes, and a hundred others hardly vary less."""
    rng = np.random.default_rng(n_bags)
    right: dict[int, list[float]] = {16: [], 128: []}
    for _ in range(5):
        truth = np.concatenate(
            [rng.choice(5, 64, p=rng.dirichlet(np.ones(5))) for _ in range(n_bags)]
        )
        angle = 2 * np.pi * truth / 5
        x = 0.7 * rng.normal(size=(len(truth), 102))
        x[:, :2] += 3 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        x = x @ np.linalg.qr(rng.normal(size=(102, 102)))[0]
        bags = Bags.from_rows(x, np.arange(len(truth)) // 64, truth=truth, classes=range(5))
        for least, found in right.items():
            monkeypatch.setattr(start, "LEAST_COMPONENTS", least)
            found.append((fit_features(bags.without_truth()).labels == truth).mean())
    assert np.mean(right[16]) > np.mean(right[128]) + 0.05
