"""The leader: equations, perturbation, decisions, shards, regret and state."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from apportion.bags.bags import Bags
from apportion.errors import BagError, ConfigError, DataError, RunError
from apportion.labels import assign as solving
from apportion.labels import leader as module
from apportion.labels.assign import assign, likeliest_labels
from apportion.labels.leader import Leader, perturbation
from apportion.labels.raking import Raking
from apportion.labels.start import first_labels, linear_confidence
from apportion.labels.unlikelihood import UNLIKELIHOODS, unlikelihood
from tests.labels.problems import best_in_hindsight
from tests.labels.tables import table_bags

SETTINGS: dict[str, dict[str, Any]] = {
    "fpl": {"eta": 0.6},
    "fpl-plain": {"eta": 0.6, "unlikelihood": "plain"},
    "greedy": {"eta": 0},
    "naive": {"eta": 0, "memory": 0},
    "forgetting": {"eta": 0.6, "memory": 0.5},
    "log": {"eta": 0.3, "memory": 0.5, "unlikelihood": "log"},
}


def bags_of(counts: Any) -> Bags:
    """Bags of some counts, whose rows are stored by class: their order is the truth."""
    counts = np.array(counts)
    truth = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    bag = np.repeat(np.arange(len(counts)), counts.sum(axis=1))
    classes = range(counts.shape[1])
    return Bags.from_rows(None, bag, counts, counts=True, classes=classes, truth=truth)


def counts_of(labels: Any, bags: Bags) -> list[list[int]]:
    return [
        [labels[first:last].tolist().count(c) for c in range(bags.n_classes)]
        for first, last in itertools.pairwise(bags.offsets.tolist())
    ]


def confidence_of(bags: Bags, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(bags.n_classes), bags.n_instances).astype(np.float32)


SMALL = bags_of([[3, 2, 0], [0, 0, 1], [2, 2, 4], [1, 5, 1]])
TRUTH: Any = SMALL.truth


def test_costs_of_the_log_unlikelihood_stay_in_reach_of_a_state():
    """A learner that is wrong and sure, epoch after epoch: the greatest totals there can be."""
    leader, again = (Leader(SMALL, eta=0, unlikelihood="log", memory=m) for m in (0.5, 0.5))
    for _ in range(5):
        leader.decide(np.eye(3, dtype=np.float32)[(TRUTH + 1) % 3])
    assert leader.total.max() == pytest.approx(60)
    again.load(leader.state())
    assert again.total.max() == leader.total.max()


# ------------------------------------------------------------------------------------ first labels


@pytest.mark.parametrize("name", SETTINGS)
def test_first_labels_tell_nothing_of_the_truth_where_rows_are_stored_by_class(name):
    bags = bags_of([[500, 500], [250, 750]])
    right = (Leader(bags.without_truth(), **SETTINGS[name]).labels == bags.truth).mean()
    chance = np.mean([0.5, 0.25**2 + 0.75**2])
    assert abs(right - chance) < 5 * 0.5 / math.sqrt(2000)


def test_first_labels_follow_from_the_seed():
    one, again, other = (Leader(SMALL, eta=1, seed=seed).labels.tolist() for seed in (5, 5, 6))
    assert one == again
    assert one != other


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.uint64, list])
def test_first_labels_of_the_caller_are_taken_and_stay_as_they_are(kind):
    first = TRUTH.tolist() if kind is list else TRUTH.astype(kind)
    leader = Leader(SMALL, eta=3, first=first)
    assert leader.labels.dtype == np.int64
    assert leader.labels.tolist() == TRUTH.tolist()
    leader.decide(confidence_of(SMALL))
    assert leader.labels.tolist() != TRUTH.tolist()
    assert np.asarray(first).tolist() == TRUTH.tolist()


def test_first_labels_that_break_the_counts_are_refused():
    with pytest.raises(BagError, match="the first labels give bag 0 0 of class 0"):
        Leader(SMALL, eta=1, first=TRUTH[::-1])


def best_labels(cost: Any, bags: Bags) -> list[int]:
    """Labels of least cost under the counts, by trying every labeling of every bag."""
    found: list[int] = []
    for i, (first, last) in enumerate(itertools.pairwise(bags.offsets.tolist())):
        pool = np.repeat(np.arange(bags.n_classes), bags.counts[i]).tolist()
        tried = sorted(set(itertools.permutations(pool)))
        rows = np.arange(first, last)
        found += min(tried, key=lambda labels: float(cost[rows, list(labels)].sum()))
    return found


TINY = bags_of([[2, 1, 1], [0, 3, 1], [1, 0, 3], [1, 1, 0]])


@pytest.mark.parametrize("kind", ["float32", "float64", "list"])
@pytest.mark.parametrize("seed", range(4))
def test_of_first_confidences_the_likeliest_labels_under_the_counts_are_taken(kind, seed):
    sure = confidence_of(TINY, seed)
    given_: Any = sure.tolist() if kind == "list" else sure.astype(kind)
    leader = Leader(TINY, eta=1, first=given_)
    assert leader.labels.tolist() == best_labels(-np.log(sure.astype(np.float64)), TINY)
    assert not leader.decides_first
    assert leader.epoch == 1
    assert not leader.total.any()  # without a weight they are no epoch


def test_confidences_of_zero_forbid_no_first_label():
    """A class that no instance may have by them, and yet has a count."""
    sure = np.zeros((21, 3), np.float32)
    sure[:, 0] = 1
    leader = Leader(SMALL, eta=0, first=sure, first_weight=10, unlikelihood="log")
    assert counts_of(leader.labels, SMALL) == SMALL.counts.tolist()
    assert leader.total.max() == pytest.approx(120)


@pytest.mark.parametrize("name", ["relative", "plain", "log"])
@pytest.mark.parametrize("memory", [1, 0.5, 0])
def test_the_totals_begin_with_the_weight_times_the_unlikelihood_of_first_confidences(name, memory):
    form, sure, confidence = UNLIKELIHOODS[name], confidence_of(TINY), confidence_of(TINY, 1)
    leader = Leader(TINY, eta=0, unlikelihood=name, memory=memory, first=sure, first_weight=2.5)
    began = 2.5 * form(sure.astype(np.float64), leader.labels)
    np.testing.assert_allclose(leader.total, began, rtol=1e-6, atol=1e-6)
    latest = form(confidence.astype(np.float64), leader.labels)
    leader.decide(confidence)
    np.testing.assert_allclose(leader.total, began + latest, rtol=1e-6, atol=1e-6)
    left = {1: 1, 0.5: 0.6, 0: 0}[memory]  # (0.5 · 3.5 − 1) / (0.5 · 2.5) at epoch 1 + 2.5
    began = began * (0.5 if memory == 0.5 else 1)  # counts as 1.25 epochs, half of 2.5
    assert leader.labels.tolist() == best_labels(left * began + latest, TINY)


@pytest.mark.parametrize("shape", [(21,), (21, 2), (20, 3), (21, 3, 1)])
def test_first_confidences_of_another_shape_are_refused(shape):
    with pytest.raises(
        ConfigError, match=r"first must be integers \(N,\), or confidences of shape"
    ):
        Leader(SMALL, eta=1, first=np.zeros(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1, 1.01])
def test_first_confidences_that_are_no_probabilities_are_refused(value):
    sure = confidence_of(SMALL)
    sure[4, 1] = value
    with pytest.raises(DataError, match=r"first confidences of instance 4 are \[.*\n.*not logits"):
        Leader(SMALL, eta=1, first=sure)


# ------------------------------------------------------------------------------------- forgetting


@pytest.mark.parametrize("name", ["relative", "plain", "log"])
@pytest.mark.parametrize("first", ["random", "decide", "confidences"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_memory_in_between_decides_by_a_mean_over_a_share_of_the_epochs(name, first, seed):
    """Literally: n times a mean that L[t] enters with weight 1 / n, and η Z, by trying all labels.

    n is half of the epochs so far, but at least one.
    """
    form, sure = UNLIKELIHOODS[name], confidence_of(TINY, 99)
    given_: Any = sure if first == "confidences" else first
    options: dict[str, Any] = {"first_weight": 4} if first == "confidences" else {}
    leader = Leader(
        TINY, eta=0.3, unlikelihood=name, memory=0.5, first=given_, seed=seed, **options
    )
    mean = form(sure.astype(np.float64), leader.labels) if options else np.zeros((14, 3))
    epochs = 4 if options else 0
    for t in range(first != "decide", 6):
        confidence = confidence_of(TINY, 10 * seed + t)
        latest = form(confidence.astype(np.float64), leader.labels)
        epochs += 1
        n = max(1, 0.5 * epochs)
        mean = (1 - 1 / n) * mean + latest / n
        total = n * mean
        leader.decide(confidence)
        wanted = best_labels(total + 0.3 * noise_of(14, seed=seed, epoch=t), TINY)
        assert leader.labels.tolist() == wanted
        np.testing.assert_allclose(leader.state()["remembered"], total, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("memory", [1, 0])
def test_a_memory_at_an_end_is_the_sum_or_the_last_epoch_and_keeps_no_second_matrix(memory):
    leader, losses = Leader(TINY, eta=0.3, memory=memory), []
    for t in (1, 2, 3, 4):
        confidence = confidence_of(TINY, t)
        losses.append(unlikelihood(confidence.astype(np.float64), leader.labels))
        leader.decide(confidence)
        total = sum(losses) if memory else losses[-1]
        assert leader.labels.tolist() == best_labels(total + 0.3 * noise_of(14, epoch=t), TINY)
    assert leader.remembered is None
    assert "remembered" not in leader.state()


@pytest.mark.parametrize("memory", [0, 0.25, 0.999])
def test_regret_is_of_all_epochs_whatever_is_remembered(memory):
    """Bags with one possible labeling each, but for one: all leaders play the same labels."""
    bags = bags_of([[4, 0, 0], [0, 5, 0]])
    wanted, found = (
        [leader.decide(confidence_of(bags, t)).regret for t in range(4)]
        for leader in (Leader(bags, eta=0), Leader(bags, eta=0, memory=memory))
    )
    assert found == wanted
    leader, total, played = Leader(TINY, eta=1, memory=memory), np.zeros((14, 3)), 0.0
    for t in range(4):
        latest = unlikelihood(confidence_of(TINY, t), leader.labels)
        total, played = total + latest, played + latest[np.arange(14), leader.labels].sum()
        regret_ = leader.decide(confidence_of(TINY, t)).regret
        best = total[np.arange(14), best_labels(total, TINY)].sum()
        assert regret_ == pytest.approx((played - best) / (14 * (t + 1)), abs=1e-6)
    np.testing.assert_allclose(leader.total, total, rtol=1e-5)


@pytest.mark.parametrize("memory", [-0.1, 1.1, np.nan, "1", None, True])
def test_a_memory_that_makes_no_sense_is_refused(memory):
    with pytest.raises(ConfigError, match="memory must be a number from 0 to 1; got"):
        Leader(SMALL, eta=1, memory=memory)


# ------------------------------------------------------------------------------------ perturbation


def noise_of(n: int, n_classes: int = 3, *, seed: int = 0, epoch: int = 1, first: int = 0) -> Any:
    """Z of n positions from some position on, block by block."""
    block = module.BLOCK
    cuts = [first, *range((first // block + 1) * block, first + n, block), first + n]
    pieces = [perturbation(seed, epoch, a, b, n_classes) for a, b in itertools.pairwise(cuts)]
    return np.concatenate(pieces)


def test_the_perturbation_is_normal():
    noise = noise_of(40_000, 5)
    assert noise.dtype == np.float32
    assert abs(noise.mean()) < 4 / math.sqrt(noise.size)
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
    correlation = np.corrcoef(noise.T) - np.eye(5)
    assert np.abs(correlation).max() < 5 / math.sqrt(40_000)
    assert abs(np.corrcoef(noise[1:, 0], noise[:-1, 0])[0, 1]) < 5 / math.sqrt(40_000)


def test_the_perturbation_is_drawn_anew_in_every_epoch_and_for_every_seed():
    drawn = [noise_of(200, seed=s, epoch=e) for s in (0, 1) for e in (0, 1, 2, 300)]
    for one, other in itertools.combinations(drawn, 2):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.25


@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 300])
@pytest.mark.parametrize("first", [0, 1, 63, 64, 130])
def test_the_perturbation_is_that_of_the_position_whatever_else_is_drawn(n, first, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)
    assert np.array_equal(noise_of(n, first=first), noise_of(1000)[first : first + n])


def test_blocks_are_perturbed_by_numbers_of_their_own(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)
    blocks = noise_of(640).reshape(10, -1)
    for one, other in itertools.combinations(blocks, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.35
    assert len(np.unique(blocks)) > 0.99 * blocks.size


@pytest.mark.parametrize("eta", [0.0, 1.0, 4.0])
def test_eta_times_the_perturbation_decides_where_all_classes_are_as_likely(eta):
    """In bags of one of each class, by trying all labelings of each."""
    bags = bags_of([[1, 1, 1]] * 40)
    leader = Leader(bags, eta=eta, unlikelihood="plain", seed=3)
    confidence = confidence_of(bags)
    decided = leader.decide(confidence)
    cost = 1 - confidence.astype(np.float64) + eta * noise_of(120, seed=3)
    labelings = list(itertools.permutations(range(3)))
    for first in range(0, 120, 3):
        mine = cost[first : first + 3]
        costs = [sum(mine[j, c] for j, c in enumerate(labels)) for labels in labelings]
        best = labelings[int(np.argmin(costs))]
        assert decided.labels[first : first + 3].tolist() == list(best)


# ------------------------------------------------------------------------- threads, shards, epochs


def decisions(leader: Leader, confidences: list[Any]) -> list[list[int]]:
    return [leader.decide(confidence).labels.tolist() for confidence in confidences]


@pytest.mark.parametrize("name", SETTINGS)
def test_decisions_do_not_depend_on_threads(name, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 1000)
    monkeypatch.setattr(module, "PIECE", 2000)
    monkeypatch.setattr(module, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(solving, "WORTH_A_THREAD", 0)
    bags = bags_of(np.random.default_rng(0).integers(1, 60, (120, 3)))
    found = []
    for threads in (1, 4, None):
        leader = Leader(bags, **SETTINGS[name], threads=threads)
        decided = [leader.decide(confidence_of(bags, t)) for t in (1, 2)]
        found.append(([(d.changed, d.regret) for d in decided], leader.labels.tolist()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("first", ["random", "decide"])
def test_leaders_of_shards_decide_what_one_leader_of_all_decides(name, first, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 64)
    bags = bags_of(np.random.default_rng(1).integers(1, 9, (60, 3)))
    confidences = [confidence_of(bags, t) for t in range(4)]
    options: dict[str, Any] = {**SETTINGS[name], "first": first, "seed": 5}
    leader = Leader(bags, **options)
    first_labels, whole = leader.labels.tolist(), decisions(leader, confidences)
    cuts = [0, 7, 8, 31, 60]
    positions = bags.offsets[cuts].tolist()
    assert not any(position % 64 == 0 for position in positions[1:-1])
    for (a, b), (start, stop) in zip(
        itertools.pairwise(cuts), itertools.pairwise(positions), strict=True
    ):
        shard = Leader(bags[a:b], **options, first_position=start)
        assert shard.labels.tolist() == first_labels[start:stop]
        mine = [confidence[start:stop] for confidence in confidences]
        assert decisions(shard, mine) == [labels[start:stop] for labels in whole]


def test_epochs_are_counted_from_one_or_from_the_untrained_learners():
    """Z of epoch t decides the labels of epoch t + 1, whether or not there was an epoch 0."""
    confidences = [confidence_of(SMALL, t) for t in range(3)]
    for first, epochs in (("random", [1, 2, 3]), ("decide", [0, 1, 2])):
        leader = Leader(SMALL, eta=100, memory=0, first=first)  # Z decides alone
        assert leader.epoch == epochs[0]
        for epoch, confidence in zip(epochs, confidences, strict=True):
            cost = 100 * noise_of(21, epoch=epoch)
            leader.decide(confidence)
            best = assign(cost, SMALL.counts, SMALL.offsets)
            assert leader.labels.tolist() == best.labels.tolist()


# --------------------------------------------------------------------------------------- decisions


def test_a_learner_that_is_sure_of_labels_that_meet_the_counts_is_followed():
    sure = np.eye(3)[TRUTH]
    for options in ({}, {"memory": 0}, {"unlikelihood": "plain"}):
        leader = Leader(SMALL, eta=0, **options)
        leader.decide(sure)
        # By Eq. 2 the label that was played costs no more than one the learner is as unsure of.
        leader.decide(sure)
        assert leader.labels.tolist() == TRUTH.tolist()


def test_labels_are_changed_in_place():
    leader = Leader(SMALL, eta=4)
    labels, before = leader.labels, leader.labels.copy()
    decided = leader.decide(confidence_of(SMALL))
    assert decided.labels is leader.labels is labels
    assert decided.changed == pytest.approx((before != labels).mean())
    assert decided.changed > 0
    alone = Leader(bags_of([[0, 3]]), eta=4)
    assert alone.decide(np.full((3, 2), 0.5)).changed == 0


def test_naive_forgets_and_greedy_does_not():
    ends: dict[str, list[Any]] = {"naive": [], "greedy": []}
    for name, found in ends.items():
        for past in (1, 3):
            leader = Leader(SMALL, **SETTINGS[name])
            leader.decide(confidence_of(SMALL, past))
            leader.labels[:] = TRUTH  # so that only the past differs
            found.append(leader.decide(confidence_of(SMALL, 2)).labels.tolist())
    assert ends["naive"][0] == ends["naive"][1]
    assert ends["greedy"][0] != ends["greedy"][1]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_confidences_of_any_float_in_any_order_of_memory_are_taken(dtype):
    plain = confidence_of(SMALL).astype(dtype)
    wanted = Leader(SMALL, eta=1).decide(plain.astype(np.float32)).labels.tolist()
    read_only = plain.copy()
    read_only.flags.writeable = False
    for given_ in (plain, np.asfortranarray(plain), plain[::-1][::-1], read_only):
        before = given_.copy()
        assert Leader(SMALL, eta=1).decide(given_).labels.tolist() == wanted
        assert np.array_equal(given_, before)


def test_costs_that_alternate_fool_greedy_but_not_the_perturbed_leader():
    bags = bags_of([[1, 1]] * 300)
    regrets = {}
    for eta in (0.0, 5.0):
        leader = Leader(bags, eta=eta, unlikelihood="plain")
        for epoch in range(1, 61):
            share = 0.25 if epoch == 1 else float(epoch % 2 == 0)  # against who led until then
            pair = [[share, 1 - share], [1 - share, share]]
            decided = leader.decide(np.tile(pair, (300, 1)))
        regrets[eta] = decided.regret
    assert regrets[0.0] > 0.4
    assert regrets[5.0] < 0.2


# ------------------------------------------------------------------------------------------ regret


@pytest.mark.parametrize("first", ["random", "decide"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_regret_of_a_leader_is_that_of_all_epochs_also_where_decisions_forget(name, first):
    bags = bags_of([[2, 1, 1], [0, 3, 1], [1, 0, 4]])
    leader = Leader(bags, **SETTINGS[name], first=first)
    form = UNLIKELIHOODS[SETTINGS[name].get("unlikelihood", "relative")]
    total, played = np.zeros((13, 3)), 0.0
    for epochs in (1, 2, 3):
        latest = form(confidence_of(bags, epochs), leader.labels)
        total += latest
        played += latest[np.arange(13), leader.labels].sum()
        found = leader.decide(confidence_of(bags, epochs)).regret
        best = best_in_hindsight(total, bags.counts, bags.offsets)
        assert found == pytest.approx((played - best) / (13 * epochs), abs=1e-7)


def test_the_only_labels_that_are_possible_have_no_regret():
    leader = Leader(bags_of([[0, 4], [3, 0]]), eta=2)
    for _ in range(3):
        assert leader.decide(np.full((7, 2), 0.5)).regret == pytest.approx(0, abs=1e-9)


# ------------------------------------------------------------------------------------------- state


@pytest.mark.parametrize("first", ["random", "decide"])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_leader_goes_on_from_its_state_as_if_nothing_had_happened(name, first, after):
    options: dict[str, Any] = {**SETTINGS[name], "first": first}
    leader, fresh = Leader(SMALL, **options), Leader(SMALL, **options)
    for t in range(after):
        leader.decide(confidence_of(SMALL, t))
    fresh.load({name: value.copy() for name, value in leader.state().items()})
    assert fresh.labels.tolist() == leader.labels.tolist()
    for t in range(after, after + 3):
        ours, theirs = (one.decide(confidence_of(SMALL, t)) for one in (leader, fresh))
        assert ours.labels.tolist() == theirs.labels.tolist()
        assert (ours.changed, ours.regret) == (theirs.changed, theirs.regret)
    ends = leader.state(), fresh.state()
    assert ends[0].keys() == ends[1].keys()
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_the_state_keeps_the_eta_that_it_began_with():
    fresh = Leader(SMALL, eta=10)
    fresh.load(Leader(SMALL, eta=5).state())
    assert fresh.eta == 5


def test_a_state_that_was_loaded_is_not_shared():
    leader, fresh = Leader(SMALL, eta=4), Leader(SMALL, eta=4)
    leader.decide(confidence_of(SMALL))
    fresh.load(leader.state())
    kept = {name: value.copy() for name, value in leader.state().items()}
    fresh.decide(confidence_of(SMALL, 2))
    assert all(np.array_equal(kept[name], value) for name, value in leader.state().items())


def test_prices_are_part_of_the_state():
    """They choose among equally good labels, so a run that goes on needs those it had."""
    leader = Leader(SMALL, eta=1)
    assert "prices" not in leader.state()
    leader.decide(confidence_of(SMALL))
    assert np.ptp(leader.state()["prices"]) > 0
    assert np.ptp(leader.state()["best_prices"]) > 0


DAMAGE: dict[str, Any] = {
    "labels": [np.zeros(20, np.int64), np.zeros(21), np.zeros(21, np.int64), np.full(21, 7)],
    "total": [
        np.zeros((21, 4), np.float32),
        np.zeros((21, 3)),
        np.full((21, 3), np.nan, "f4"),
        np.full((21, 3), 9, "f4"),
    ],
    "played": [np.array(np.inf), np.zeros(1), np.array(99.0)],
    "eta": [np.array(-1.0), np.array(np.nan), np.array(1)],
    "decisions": [np.array(-1), np.array(1.0)],
    "prices": [np.zeros((3, 3)), np.full((4, 3), np.inf)],
    "best_prices": [np.zeros((4, 2))],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_state_that_is_damaged_or_of_other_bags_is_refused_before_it_is_used(name):
    leader = Leader(SMALL, eta=1)
    leader.decide(confidence_of(SMALL))
    state, fresh = leader.state(), Leader(SMALL, eta=1, seed=9)
    untouched = {name: value.copy() for name, value in fresh.state().items()}
    without = {key: value for key, value in state.items() if key != name}
    for damaged in (without, *({**state, name: value} for value in DAMAGE[name])):
        with pytest.raises((RunError, BagError), match=name.replace("_", ".")):
            fresh.load(damaged)
        assert all(np.array_equal(untouched[key], value) for key, value in fresh.state().items())


FORGOTTEN: list[Any] = [
    None,
    np.zeros((21, 3)),
    np.zeros((20, 3), "f4"),
    np.full((21, 3), np.nan, "f4"),
    np.full((21, 3), 40, "f4"),
]


@pytest.mark.parametrize("damage", FORGOTTEN)
def test_what_is_remembered_is_a_part_of_the_state_and_refused_if_it_is_damaged(damage):
    def leader():
        return Leader(SMALL, eta=1, memory=0.5, first=confidence_of(SMALL, 9), first_weight=2)

    left = leader()
    left.decide(confidence_of(SMALL))
    assert not np.array_equal(left.state()["remembered"], left.state()["total"])
    damaged = left.state()
    del damaged["remembered"]
    if damage is not None:
        damaged["remembered"] = damage
    with pytest.raises(RunError, match="remembered in the state of the labels must be"):
        leader().load(damaged)


def test_leaders_that_remember_otherwise_do_not_go_on_from_each_others_states():
    forgetting, other = Leader(SMALL, eta=1, memory=0.5), Leader(SMALL, eta=1)
    with pytest.raises(RunError, match="remembered in the state"):
        forgetting.load(other.state())
    with pytest.raises(RunError, match="has remembered, as no state has"):
        other.load(forgetting.state())


def test_a_state_of_something_more_is_refused():
    leader = Leader(SMALL, eta=1)
    with pytest.raises(RunError, match="has more, as no state has"):
        leader.load({**leader.state(), "more": np.zeros(3)})


# ---------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("eta", [-1, -1e-9, math.nan, math.inf, "5", None])
def test_an_eta_that_makes_no_sense_is_refused(eta):
    with pytest.raises(ConfigError, match="eta must be a number ≥ 0; got"):
        Leader(SMALL, eta=eta)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (
            {"unlikelihood": "simple"},
            "unlikelihood must be 'relative', 'plain' or 'log'; got 'simple'",
        ),
        (
            {"first": "zeros"},
            "first must be 'random', 'decide', 'linear', 'mean-map', 'ridge' or an array",
        ),
        ({"threads": 0}, "threads must be an integer from 1 to 1,024"),
        ({"first_position": -1}, "first_position must be an integer ≥ 0; got -1"),
    ],
)
def test_settings_that_there_are_not_are_answered_with_those_there_are(option, says):
    with pytest.raises(ConfigError, match=says):
        Leader(SMALL, eta=1, **option)


@pytest.mark.parametrize(
    "confidence", [np.zeros((20, 3)), np.zeros((21, 2)), np.zeros(21), np.zeros((21, 3), int)]
)
def test_confidences_of_another_shape_or_type_are_refused(confidence):
    with pytest.raises(ConfigError, match=r"floats of shape \(21, 3\); got '(float|int)64 of"):
        Leader(SMALL, eta=1).decide(confidence)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.01, 1.01, 5])
@pytest.mark.parametrize("memory", [1, 0.5, 0])
def test_what_is_no_probability_is_refused_and_leaves_the_leader_as_it_was(value, memory):
    leaders = [Leader(SMALL, eta=1, memory=memory) for _ in range(2)]
    good = confidence_of(SMALL)
    bad = good.copy()
    bad[3, 1] = value
    with pytest.raises(DataError, match=r"of instance 3 are \[.*\n.*not logits"):
        leaders[0].decide(bad)
    first, second = (leader.decide(good) for leader in leaders)
    np.testing.assert_array_equal(first.labels, second.labels)
    assert first.regret == second.regret


def test_linear_first_labels_are_where_a_leader_starts_and_no_epoch():
    bags = table_bags(200)
    leader = Leader(bags.without_truth(), eta=0.1, first="linear", seed=4)
    assert leader.labels.tolist() == first_labels("linear", bags, seed=4).tolist()
    assert (leader.decides_first, leader.epoch) == (False, 1)


# --------------------------------------------------------------------------- weight of first labels


def test_first_labels_count_as_epochs_in_which_a_learner_was_sure_of_them():
    """The decisions, and the regret, are those after as many epochs of such confidences."""
    sure, confidence = np.eye(3)[TRUTH], confidence_of(SMALL)
    weighted = Leader(SMALL, eta=0, first=TRUTH, first_weight=2)
    trained = Leader(SMALL, eta=0, first=TRUTH)
    for _ in range(2):
        trained.decide(sure)
    for _ in range(3):
        ours, theirs = weighted.decide(confidence), trained.decide(confidence)
        assert ours.labels.tolist() == theirs.labels.tolist()
        assert ours.regret == pytest.approx(theirs.regret)
    assert weighted.total.tolist() == trained.total.tolist()


def test_a_learner_that_is_unsure_gives_good_first_labels_up_unless_they_have_weight():
    unsure = 0.3 * np.eye(3)[TRUTH] + 0.7 / 3
    assert Leader(SMALL, eta=0, first=TRUTH).decide(unsure).changed > 0.5
    assert Leader(SMALL, eta=0, first=TRUTH, first_weight=1).decide(unsure).changed == 0


def test_the_state_of_a_leader_with_weighted_first_labels_goes_on():
    def leader():
        return Leader(SMALL, eta=0.5, first=TRUTH, first_weight=3)

    left, whole = leader(), leader()
    left.decide(confidence_of(SMALL, 1))
    whole.decide(confidence_of(SMALL, 1))
    again = leader()
    again.load(left.state())
    ours, theirs = again.decide(confidence_of(SMALL, 2)), whole.decide(confidence_of(SMALL, 2))
    assert (ours.labels == theirs.labels).all()
    assert ours.regret == theirs.regret
    with pytest.raises(RunError, match="total in the state"):
        Leader(SMALL, eta=0.5, first=TRUTH).load(left.state())


@pytest.mark.parametrize("weight", [-1, np.inf, np.nan, "5"])
def test_a_weight_of_first_labels_that_is_none_is_refused(weight):
    with pytest.raises(ConfigError, match="first_weight must be a number ≥ 0"):
        Leader(SMALL, eta=0, first_weight=weight)


# ------------------------------------------------------------------------------- all bags of a row

JOINT: dict[str, dict[str, Any]] = {
    "last epoch": {"eta": 0, "memory": 0},
    "all epochs": {"eta": 0, "memory": 1},
    "forgetting": {"eta": 0, "memory": 0.3},
    "perturbed": {"eta": 0.5, "memory": 0.5},
    "decide": {"eta": 0, "memory": 0.3, "first": "decide"},
    "weighted": {"eta": 0, "memory": 0.1, "first_weight": 30},
}


def shared_bags(seed: int = 0, size: int = 40) -> Bags:
    """60 rows per class of four; a row stands in some three bags of proportions that differ."""
    rng = np.random.default_rng(seed)
    truth, members = rng.integers(4, size=240), []
    for _ in range(720 // size):
        chances = rng.dirichlet(np.full(4, 0.7))[truth] + 1e-3
        members.append(rng.choice(240, size, replace=False, p=chances / chances.sum()))
    x = (np.eye(4)[truth] + 0.8 * rng.normal(size=(240, 4))).astype(np.float32)
    return Bags.from_members(x, members, truth=truth, classes=range(4))


SHARED = shared_bags()


def learnt(bags: Bags, seed: int = 0) -> Any:
    """Confidences of a learner that is right more often than not, alike in all bags of a row."""
    rng = np.random.default_rng([seed, 9])
    rows, first, place = np.unique(bags.index, return_index=True, return_inverse=True)
    truth: Any = bags.truth
    logits = rng.normal(size=(len(rows), bags.n_classes))
    logits[np.arange(len(rows)), truth[first]] += 1
    p = np.exp(logits)
    return (p / p.sum(axis=1, keepdims=True))[place].astype(np.float32)


def joint_leader(bags: Bags = SHARED, **options: Any) -> Leader:
    return Leader(bags, **{"eta": 0, "unlikelihood": "log", "joint": True, **options})


@pytest.mark.parametrize("unlikelihood", ["relative", "plain"])
def test_joint_decisions_are_of_logarithms(unlikelihood):
    with pytest.raises(ConfigError, match="unlikelihood must be 'log' with joint decisions; got"):
        joint_leader(unlikelihood=unlikelihood)
    with pytest.raises(ConfigError, match="unlikelihood must be 'log' with joint decisions; got"):
        Leader(SMALL, eta=1, joint=True)  # whatever the bags are


@pytest.mark.parametrize("joint", [1, 0, None, "yes", np.True_])
def test_whether_decisions_are_joint_is_true_or_false(joint):
    with pytest.raises(ConfigError, match="joint must be true or false; got"):
        joint_leader(joint=joint)


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("sure", [False, True])
def test_joint_labels_meet_all_counts(name, sure):
    options = JOINT[name] | ({"first": learnt(SHARED, 50)} if sure else {})
    leader = joint_leader(**options)
    assert counts_of(leader.labels, SHARED) == SHARED.counts.tolist()
    for t in range(4):
        decided = leader.decide(learnt(SHARED, t) if t < 3 else confidence_of(SHARED))
        assert counts_of(decided.labels, SHARED) == SHARED.counts.tolist()
        assert np.isfinite(decided.regret)


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("sure", [False, True])
def test_where_each_row_stands_in_one_bag_nothing_is_joint(name, sure):
    bags = bags_of(np.random.default_rng(1).integers([1, 0, 0], 9, (30, 3)))
    options = JOINT[name] | ({"first": confidence_of(bags, 50)} if sure else {})
    joint, apart = (joint_leader(bags, **options, joint=value) for value in (True, False))
    assert joint.raking is None
    for t in range(4):
        assert joint.labels.tolist() == apart.labels.tolist()
        ours, theirs = (one.decide(confidence_of(bags, t)) for one in (joint, apart))
        assert (ours.changed, ours.regret) == (theirs.changed, theirs.regret)
    ends = joint.state(), apart.state()
    assert ends[0].keys() == ends[1].keys()
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.parametrize("size", [10, 40])
def test_joint_labels_are_right_more_often(size):
    """Of 0.88 of instances in bags of 40, and 0.99 in those of 10; else of 0.69 and 0.71."""
    bags = shared_bags(1, size)
    right = [
        (joint_leader(bags, joint=joint).decide(learnt(bags)).labels == bags.truth).mean()
        for joint in (True, False)
    ]
    assert right[0] > right[1] + 0.1


@pytest.mark.parametrize("memory", [0, 0.1, 0.5, 0.6, 2 / 3, 1])
@pytest.mark.parametrize("weight", [0, 0.5, 3, 30])
def test_what_is_raked_is_the_mean_of_the_logarithms_over_epochs(memory, weight, monkeypatch):
    """Of a learner that says the same in every epoch it is what it says, neither more nor less."""
    raked, as_it_is = [], Raking.logits

    def noted(self: Raking, logits: Any) -> Any:
        raked.append(logits)
        return as_it_is(self, logits)

    monkeypatch.setattr(Raking, "logits", noted)
    confidence = learnt(SHARED)
    wanted = np.log(confidence.astype(np.float64))
    leader = joint_leader(memory=memory, first=confidence, first_weight=weight)
    for _ in range(5):
        leader.decide(confidence)
    assert len(raked) == 6
    assert leader.raking is not None
    for logits in raked:
        np.testing.assert_allclose(logits[leader.raking.place], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", JOINT)
def test_a_joint_decision_is_an_assignment_of_raked_means_of_instances(name):
    """By hand: of what is remembered, the mean over the bags of a row, raked, in each bag."""
    leader, losses = joint_leader(**JOINT[name], seed=3), []
    rng = np.random.default_rng(0)
    raking, options = Raking(SHARED), JOINT[name]
    for t in (1, 2, 3):
        p = rng.dirichlet(np.ones(4), SHARED.n_instances).astype(np.float32)
        losses.append(-np.log(np.maximum(p.astype(np.float64), math.exp(-12))))
        epoch = leader.epoch
        leader.decide(p)
        if options.get("first_weight"):
            continue
        n = [1.0, 1.0, 1.0]  # how many epochs count, of the first, the second and the third
        if options["memory"] == 1:
            total, n = sum(losses), [1, 2, 3]
        elif options["memory"] == 0.5:
            total = {1: lambda: losses[0], 2: lambda: losses[1],
                     3: lambda: 0.5 * losses[1] + losses[2]}[t]()  # fmt: skip
            n = [1, 1, 1.5]
        else:
            total = losses[-1]  # 0.3 of three epochs is less than one
        noise = options["eta"] * noise_of(SHARED.n_instances, 4, seed=3, epoch=epoch)
        cost = (total + noise) / n[t - 1]
        means = np.stack([cost[SHARED.index == row].mean(axis=0) for row in raking.rows])
        wanted = assign(-raking.logits(-means)[raking.place], SHARED.counts, SHARED.offsets).labels
        assert (leader.labels == wanted).mean() > 0.999  # sums in float32


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_first_confidences_are_raked(kind):
    sure = learnt(SHARED).astype(kind)
    joint, apart = (joint_leader(first=sure, joint=value) for value in (True, False))
    raking = Raking(SHARED)
    logits = raking.logits(raking.means(np.log(sure.astype(np.float64))))
    wanted = assign(-logits[raking.place], SHARED.counts, SHARED.offsets).labels
    assert (joint.labels == wanted).mean() > 0.999
    assert apart.labels.tolist() == likeliest_labels(sure, SHARED).tolist()
    assert (joint.labels == SHARED.truth).mean() > (apart.labels == SHARED.truth).mean() + 0.1
    assert joint.prices is None  # it is no decision
    assert joint.epoch == 1


@pytest.mark.parametrize("first", ["linear", "mean-map", "ridge"])
def test_first_labels_of_a_linear_model_are_raked_as_its_confidences_would_be(first):
    bags = SHARED.without_truth()
    sure = linear_confidence(first, bags, 0)
    named, given_ = (joint_leader(bags, first=value, seed=0) for value in (first, sure))
    assert (named.labels == given_.labels).mean() > 0.999


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_joint_leader_goes_on_from_its_state_as_if_nothing_had_happened(name, sure, after):
    options = JOINT[name] | ({"first": learnt(SHARED, 50)} if sure else {})
    leader = joint_leader(**options)
    fresh = joint_leader(**{**options, "first": options.get("first", "random")})
    for t in range(after):
        leader.decide(learnt(SHARED, t))
    fresh.load({name: value.copy() for name, value in leader.state().items()})
    for t in range(after, after + 3):
        assert fresh.labels.tolist() == leader.labels.tolist()
        ours, theirs = (one.decide(learnt(SHARED, t)) for one in (leader, fresh))
        assert (ours.changed, ours.regret) == (theirs.changed, theirs.regret)
    ends = leader.state(), fresh.state()
    assert ends[0].keys() == ends[1].keys()
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_joint_decisions_begin_at_the_prices_of_the_one_before(monkeypatch):
    began: list[Any] = []

    def noted(*args: Any, prices: Any = None, **options: Any) -> Any:
        began.append(prices)
        return assign(*args, prices=prices, **options)

    leader = joint_leader(first=learnt(SHARED, 9), memory=0.5)
    monkeypatch.setattr(module, "assign", noted)
    for t in range(3):
        before = leader.prices
        leader.decide(learnt(SHARED, t))
        assert began[t] is before
    assert began[0] is None
    assert np.ptp(began[1]) > 0


def test_how_exact_counts_are_is_a_part_of_the_state_of_joint_leaders():
    leader, again, apart = joint_leader(), joint_leader(), joint_leader(joint=False)
    assert leader.state()["count_error"] == 0  # as long as it is unknown
    again.load(leader.state())
    assert again.raking is not None
    assert again.raking.error is None
    leader.decide(learnt(SHARED, 1))
    state = leader.state()
    assert state["count_error"] > 0
    leader.decide(learnt(SHARED, 2))
    state = leader.state()
    again.load(state | {"count_error": np.array(7.0)})
    again.decide(learnt(SHARED, 3))  # the third decision, which does not learn it anew
    assert again.state()["count_error"] == 7
    with pytest.raises(RunError, match="count_error"):
        again.load(state | {"count_error": np.array(-1.0)})
    with pytest.raises(RunError, match="count_error"):
        apart.load(state)


@pytest.mark.parametrize("first", [None, learnt(SHARED)])
def test_how_exact_counts_are_is_learned_at_decisions_1_2_4_8_and_of_first_confidences(
    first, monkeypatch
):
    decisions: list[int] = []

    def learned(self: Raking, logits: Any) -> float:
        decisions.append(leader.decisions + 1 if leader else 0)
        return 1.0

    leader: Any = None
    monkeypatch.setattr(Raking, "learn_error", learned)
    leader = joint_leader(**({} if first is None else {"first": first}))
    for t in range(9):
        leader.decide(learnt(SHARED, t))
    assert decisions == ([] if first is None else [0]) + [1, 2, 4, 8]


@pytest.mark.parametrize("memory", [0, 0.3, 1])
def test_the_regret_of_joint_labels_is_of_what_was_paid_by_each_instance(memory):
    """Literally, against the best labels in hindsight, which are found bag by bag."""
    leader, total, played = joint_leader(memory=memory), 0.0, 0.0
    rows = np.arange(SHARED.n_instances)
    for t in range(4):
        confidence = learnt(SHARED, t)
        latest = -np.log(np.maximum(confidence.astype(np.float64), math.exp(-12)))
        total, played = total + latest, played + latest[rows, leader.labels].sum()
        best = assign(total, SHARED.counts, SHARED.offsets).objective.sum()
        found = leader.decide(confidence).regret
        assert found == pytest.approx((played - best) / (len(rows) * (t + 1)), abs=1e-5)
        assert found >= -1e-6


def test_joint_decisions_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(module, "WORTH_A_THREAD", 0)
    monkeypatch.setattr(solving, "WORTH_A_THREAD", 0)
    found = []
    for threads in (1, 4, None):
        leader = joint_leader(eta=0.3, memory=0.3, threads=threads)
        found.append(decisions(leader, [learnt(SHARED, t) for t in range(3)]))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_joint_leaders_take_confidences_of_any_float_and_leave_them_as_they_are(dtype):
    given_ = np.asfortranarray(learnt(SHARED).astype(dtype))
    before = given_.copy()
    given_.flags.writeable = False
    labels = joint_leader().decide(given_).labels
    assert labels.tolist() == joint_leader().decide(before.astype(np.float32)).labels.tolist()
    assert np.array_equal(given_, before)


@pytest.mark.parametrize("name", JOINT)
def test_confidences_of_0_and_1_are_decided_jointly_too(name):
    """A learner that is sure, right or wrong, in every bag of a row."""
    truth: Any = SHARED.truth
    for sure in (truth, (truth + 1) % 4, np.zeros_like(truth)):
        leader = joint_leader(**JOINT[name])
        for _ in range(3):
            leader.decide(np.eye(4, dtype=np.float32)[sure])
        assert counts_of(leader.labels, SHARED) == SHARED.counts.tolist()
        if sure is truth and JOINT[name]["eta"] == 0 and "first_weight" not in JOINT[name]:
            assert leader.labels.tolist() == truth.tolist()
