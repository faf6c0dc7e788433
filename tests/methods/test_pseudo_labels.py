"""Online pseudo labels: the first ones, the perturbation, the decisions and the state."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apportion.bags.bags import Bags
from apportion.errors import BagError, ConfigError
from apportion.methods import pseudo_labels as module
from apportion.methods.pseudo_labels import (
    OnlinePseudoLabels,
    add_noise,
    shuffled_counts,
    unlikelihood,
)
from apportion.methods.registry import METHODS
from tests.conformance import counts_of

CPU = torch.device("cpu")


def bags_of(counts: Any) -> Bags:
    """Bags of some counts, whose rows are stored by class: their order is the truth."""
    counts = np.array(counts)
    sizes = counts.sum(axis=1)
    truth = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    bag = np.repeat(np.arange(len(counts)), sizes)
    classes = range(counts.shape[1])
    return Bags.from_rows(
        np.zeros((len(bag), 1)), bag, counts, counts=True, classes=classes, truth=truth
    )


def start(bags: Bags, epochs: int = 10, seed: int = 0, **options: Any) -> Any:
    method = OnlinePseudoLabels(**options)
    return method.start(bags.without_truth(), epochs=epochs, device=CPU, seed=seed, threads=1)


def confidence_of(bags: Bags, seed: int = 0) -> Any:
    logits = np.random.default_rng(seed).normal(size=(bags.n_instances, bags.n_classes))
    return torch.from_numpy(logits).float().softmax(dim=1)


SMALL = bags_of([[3, 2, 0], [0, 0, 1], [2, 2, 4], [1, 5, 1]])

# --------------------------------------------------------------------------------------------- eta


@pytest.mark.parametrize(("epochs", "eta"), [(400, 5), (100, 1.25), (1, 0.0125), (800, 10)])
def test_eta_grows_with_the_epochs_by_default(epochs, eta):
    assert start(SMALL, epochs=epochs).eta == pytest.approx(eta)


@pytest.mark.parametrize("eta", [0, 0.0, 3, 7.5])
def test_eta_is_what_is_given_whatever_the_epochs(eta):
    assert start(SMALL, epochs=400, eta=eta).eta == eta


# ------------------------------------------------------------------------------------ first labels

COUNTS = st.lists(
    st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any), min_size=1, max_size=6
)


@given(COUNTS, st.integers(0, 2**63 - 1))
@settings(max_examples=60, deadline=None)
def test_first_labels_meet_the_counts(counts, seed):
    bags = bags_of(counts)
    assert counts_of(shuffled_counts(bags, seed), bags) == counts


def test_first_labels_are_equally_likely():
    """Of the 12 labelings of a bag of 2, 1 and 1, each turns up as often as any other."""
    bags = bags_of([[2, 1, 1]] * 3000)
    drawn = [tuple(row) for row in shuffled_counts(bags, 0).reshape(-1, 4).tolist()]
    labelings = sorted(set(itertools.permutations((0, 0, 1, 2))))
    found = [drawn.count(labeling) for labeling in labelings]
    assert sum(found) == 3000
    assert stats.chisquare(found).pvalue > 1e-3


@pytest.mark.parametrize("name", ["fpl", "fpl-plain", "greedy", "naive"])
def test_first_labels_tell_nothing_of_the_truth_where_rows_are_stored_by_class(name):
    bags = bags_of([[500, 500], [250, 750]])
    assert bags.truth is not None
    first = METHODS[name].start(bags.without_truth(), epochs=9, device=CPU, seed=0).labels
    assert first is not None
    right = (first.numpy() == bags.truth).mean()
    chance = np.mean([0.5, 0.25**2 + 0.75**2])
    assert abs(right - chance) < 5 * 0.5 / math.sqrt(2000)


def test_first_labels_follow_from_the_seed():
    one, again, other = (shuffled_counts(SMALL, seed) for seed in (5, 5, 6))
    assert one.tolist() == again.tolist()
    assert one.tolist() != other.tolist()


def test_bags_that_are_alike_do_not_get_the_same_first_labels():
    first = shuffled_counts(bags_of([[8, 8], [8, 8]]), 0)
    assert first[:16].tolist() != first[16:].tolist()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64])
def test_first_labels_of_the_caller_are_taken(dtype):
    wanted = SMALL.truth
    assert wanted is not None
    state = start(SMALL, first=wanted.astype(dtype))
    assert state.labels.tolist() == wanted.tolist()
    assert state.labels.dtype == torch.int64


def test_first_labels_may_be_a_list():
    assert SMALL.truth is not None
    assert start(SMALL, first=SMALL.truth.tolist()).labels.tolist() == SMALL.truth.tolist()


def test_first_labels_of_the_caller_stay_as_they_are():
    assert SMALL.truth is not None
    first = SMALL.truth.copy()
    state = start(SMALL, first=first, eta=3)
    state.epoch_end(1, confidence_of(SMALL))
    assert state.labels.tolist() != first.tolist()
    assert first.tolist() == SMALL.truth.tolist()


def test_first_labels_that_break_the_counts_are_refused_by_bag_and_number():
    counts = {"north": [2, 1], "south": [1, 3]}
    table = {name: dict(zip(["no", "yes"], k, strict=True)) for name, k in counts.items()}
    bag = ["north"] * 3 + ["south"] * 4
    bags = Bags.from_rows(np.zeros((7, 1)), bag, table, counts=True)
    start(bags, first=[0, 1, 0, 1, 1, 0, 1])
    with pytest.raises(BagError) as caught:
        start(bags, first=[0, 1, 0, 1, 0, 0, 1])
    message = str(caught.value)
    assert "bag 'south' 2 of class 'no', but its count is 1" in message
    assert "assign" in message
    with pytest.raises(BagError, match="bag 'north' 1 of class 'no', but its count is 2"):
        start(bags, first=[0, 1, 1, 1, 0, 0, 1])  # the totals over all bags are right


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
def test_first_labels_of_another_shape_or_type_are_refused(first, says):
    assert SMALL.n_instances == 21
    with pytest.raises(BagError, match=f"(?s){says}.*each of the 21 instances"):
        start(SMALL, first=first)


@pytest.mark.parametrize(("value", "says"), [(3, "from 0 to 3"), (-1, "from -1 to 2")])
def test_first_labels_that_are_no_class_are_refused(value, says):
    assert SMALL.truth is not None
    first = SMALL.truth.copy()
    first[0] = value
    with pytest.raises(BagError, match=f"(?s){says}.*between 0 and 2"):
        start(SMALL, first=first)


# ------------------------------------------------------------------------------------ perturbation


def noise_of(
    shape: tuple[int, int], eta: float = 1.0, seed: int = 0, epoch: int = 1, **options: Any
) -> Any:
    costs = np.zeros(shape, np.float32)
    add_noise(costs, eta, seed, epoch, **options)
    return costs


def test_the_perturbation_is_normal_with_standard_deviation_eta():
    noise = noise_of((40_000, 5), eta=3.0)
    assert abs(noise.mean()) < 4 * 3 / math.sqrt(noise.size)
    assert noise.std() == pytest.approx(3, rel=0.01)
    assert stats.kstest(noise.ravel() / 3, "norm").pvalue > 1e-3
    correlation = np.corrcoef(noise.T) - np.eye(5)
    assert np.abs(correlation).max() < 5 / math.sqrt(40_000)
    assert abs(np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]) < 5 / math.sqrt(40_000)


def test_the_perturbation_is_drawn_anew_in_every_epoch_and_for_every_seed():
    drawn = [noise_of((200, 3), seed=s, epoch=e) for s in (0, 1) for e in (0, 1, 2, 300)]
    for one, other in itertools.combinations(drawn, 2):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.25


def test_the_perturbation_adds_to_the_costs():
    costs = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    noisy = costs.copy()
    add_noise(noisy, 2.0, 0, 1)
    np.testing.assert_allclose(noisy - costs, noise_of((50, 3), 2.0), atol=1e-6)


def test_without_eta_the_costs_stay_to_the_bit():
    costs = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    same = costs.copy()
    add_noise(same, 0.0, 0, 1)
    assert np.array_equal(costs, same)


def test_the_perturbation_does_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)
    one = noise_of((1000, 3), threads=1)
    for threads in (2, 7, None):
        assert np.array_equal(noise_of((1000, 3), threads=threads), one)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 300])
def test_the_perturbation_of_a_position_does_not_depend_on_how_many_there_are(n, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)
    assert np.array_equal(noise_of((n, 3)), noise_of((1000, 3))[:n])


def test_blocks_are_perturbed_by_numbers_of_their_own(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)
    blocks = noise_of((640, 3)).reshape(10, -1)
    for one, other in itertools.combinations(blocks, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.35
    assert len(np.unique(blocks)) > 0.99 * blocks.size


# --------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize("name", ["fpl", "fpl-plain", "greedy", "naive"])
def test_decisions_do_not_depend_on_threads(name):
    bags = bags_of(np.random.default_rng(0).integers(1, 60, (120, 3)))
    assert bags.n_instances * 3 > 20_000  # or assign would use one thread anyway
    found = []
    for threads in (1, 4):
        state: Any = METHODS[name].start(bags, epochs=50, device=CPU, seed=0, threads=threads)
        records = [state.epoch_end(t, confidence_of(bags, t)) for t in (1, 2)]
        found.append((records, state.labels.tolist()))
    assert found[0] == found[1]


def test_a_network_that_is_sure_of_labels_that_meet_the_counts_is_followed():
    assert SMALL.truth is not None
    sure = torch.nn.functional.one_hot(torch.from_numpy(SMALL.truth), 3).float()
    for options in ({}, {"accumulate": False}, {"unlikelihood": "plain"}):
        state = start(SMALL, eta=0, **options)
        state.epoch_end(1, sure)
        # By Eq. 2 the label that was played costs no more than one the network is as unsure of.
        state.epoch_end(2, sure)
        assert state.labels.tolist() == SMALL.truth.tolist()


def test_what_is_logged_is_the_share_of_labels_that_changed():
    state = start(SMALL, eta=4)
    for epoch in (1, 2, 3):
        before = state.labels.clone()
        record = state.epoch_end(epoch, confidence_of(SMALL, epoch))
        assert record["changed"] == pytest.approx(float((before != state.labels).double().mean()))
    assert start(bags_of([[0, 3]]), eta=4).epoch_end(1, torch.full((3, 2), 0.5))["changed"] == 0


def test_naive_forgets_and_greedy_does_not():
    first, second = confidence_of(SMALL, 1), confidence_of(SMALL, 2)
    other = confidence_of(SMALL, 3)
    assert SMALL.truth is not None
    ends: dict[str, list[Any]] = {"naive": [], "greedy": []}
    for name, found in ends.items():
        for past in (first, other):
            state: Any = METHODS[name].start(SMALL, epochs=9, device=CPU, seed=0)
            state.epoch_end(1, past)
            state.labels.copy_(torch.from_numpy(SMALL.truth))  # so that only the past differs
            state.epoch_end(2, second)
            found.append(state.labels.tolist())
    assert ends["naive"][0] == ends["naive"][1]
    assert ends["greedy"][0] != ends["greedy"][1]


def test_regret_is_that_of_all_epochs_also_where_decisions_forget():
    state: Any = METHODS["naive"].start(SMALL, epochs=9, device=CPU, seed=0)
    total = torch.zeros(SMALL.n_instances, 3)
    for epoch in (1, 2, 3):
        confidence = confidence_of(SMALL, epoch)
        total += unlikelihood(confidence, state.labels)
        state.epoch_end(epoch, confidence)
    torch.testing.assert_close(state.total, total)


def test_a_perturbed_leader_that_plays_the_best_labels_has_no_regret():
    """One labeling alone is possible, so it is also the best one."""
    state = start(bags_of([[0, 4], [3, 0]]), eta=2)
    for epoch in (1, 2, 3):
        record = state.epoch_end(epoch, torch.full((7, 2), 0.5))
        assert record["regret"] == pytest.approx(0, abs=1e-9)


def test_costs_that_alternate_fool_greedy_but_not_the_perturbed_leader():
    bags = bags_of([[1, 1]] * 300)
    regrets = {}
    for name, eta in (("greedy", 0.0), ("fpl", 5.0)):
        state = start(bags, eta=eta, unlikelihood="plain", epochs=60)
        for epoch in range(1, 61):
            share = 0.25 if epoch == 1 else float(epoch % 2 == 0)  # against who led until then
            pair = torch.tensor([[share, 1 - share], [1 - share, share]])
            record = state.epoch_end(epoch, pair.repeat(300, 1))
        regrets[name] = record["regret"]
    assert regrets["greedy"] > 0.4
    assert regrets["fpl"] < 0.2


# ------------------------------------------------------------------------------------------- state


def test_the_state_keeps_the_eta_that_the_run_began_with():
    state = start(SMALL, epochs=400)
    fresh = start(SMALL, epochs=800)
    fresh.load_state_dict(state.state_dict())
    assert fresh.eta == 5


def test_the_state_of_a_run_that_has_decided_nothing_can_be_taken():
    state, fresh = start(SMALL, seed=1), start(SMALL, seed=2)
    assert state.labels.tolist() != fresh.labels.tolist()
    fresh.load_state_dict(state.state_dict())
    assert state.labels.tolist() == fresh.labels.tolist()


def test_a_state_that_was_taken_is_not_shared():
    state, fresh = start(SMALL, eta=4), start(SMALL, eta=4)
    state.epoch_end(1, confidence_of(SMALL))
    fresh.load_state_dict(state.state_dict())
    kept = {name: value.clone() for name, value in state.state_dict().items()}
    fresh.epoch_end(2, confidence_of(SMALL, 2))
    for name, value in state.state_dict().items():
        assert torch.equal(value, kept[name])


# ---------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("eta", [-1, -1e-9, math.nan, math.inf])
def test_an_eta_that_makes_no_sense_is_refused(eta):
    with pytest.raises(ConfigError, match=f"(?s)eta is {eta}.*0 or more, or None"):
        OnlinePseudoLabels(eta=eta)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"unlikelihood": "simple"}, r"unlikelihood is 'simple'.*'relative' or 'plain'"),
        ({"first": "zeros"}, r"first is 'zeros'.*'random', 'decide' or an array"),
    ],
)
def test_settings_that_there_are_not_are_answered_with_those_there_are(option, says):
    with pytest.raises(ConfigError, match=f"(?s){says}"):
        OnlinePseudoLabels(**option)


def test_only_labels_that_are_to_be_decided_first_ask_for_it():
    assert start(SMALL, first="decide").decides_first
    assert not start(SMALL).decides_first
    assert not start(SMALL, first=SMALL.truth).decides_first


def test_prices_are_part_of_the_state():
    """They choose among equally good labels, so a run that goes on needs those it had."""
    first = start(SMALL)
    first.epoch_end(1, confidence_of(SMALL))
    second = start(SMALL, seed=1)
    second.load_state_dict(first.state_dict())
    assert (second.prices == first.prices).all()
    assert (second.best_prices == first.best_prices).all()
    assert np.ptp(first.prices) > 0
