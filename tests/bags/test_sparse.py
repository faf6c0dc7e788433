"""Sparse rows, through every door, without becoming dense."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from apportion.bags import sparse
from apportion.bags.bags import Bags
from apportion.bags.sparse import is_sparse, rows_at_once, scale_of
from apportion.config import TrainConfig
from apportion.engine.batches import place
from apportion.errors import ApportionError, DataError
from apportion.estimator.classifier import LLPClassifier
from apportion.labels.linear import fit_linear
from apportion.model.model import Model
from apportion.nets.build import build_net
from apportion.plan.held_out import share_reported
from apportion.plan.plan import make_plan
from apportion.training.fit import fit
from tests.faults.killing import ENVIRONMENT
from tests.training.interrupted_runs import Interrupted, stop_after

N, WORDS, MOST = 400, 300, 64
WORDS_OF_WIDE = 40_000


def texts(n=N, words=WORDS, seed=0):
    """Counts of words, ten of which are of one class and ten of the other; bags; truth."""
    rng = np.random.default_rng(seed)
    bag = np.arange(n) // 20
    truth = (rng.random(n) < rng.random(n // 20)[bag]).astype(int)
    column = np.where(
        rng.random((n, 12)) < 0.4,
        rng.integers(10, size=(n, 12)) + 10 * truth[:, None],
        rng.integers(20, words, size=(n, 12)),
    )
    row = np.repeat(np.arange(n), 12)
    x = sp.csr_array((np.ones(12 * n), (row, column.ravel())), shape=(n, words))
    return x, bag, truth


X, BAG, TRUTH = texts()
DENSE = X.toarray()
BAGS = Bags.from_rows(X, BAG, truth=TRUTH)


@pytest.fixture
def never_dense(monkeypatch):
    """Refuse to make more than a batch dense."""
    to_array = sp.csr_array.toarray
    monkeypatch.setattr(sparse, "DENSE", 4 * WORDS * MOST)

    def checked(own, *arguments, **options):
        assert own.shape[0] <= MOST
        return to_array(own, *arguments, **options)

    for kind in (sp.csr_array, sp.csr_matrix):
        monkeypatch.setattr(kind, "toarray", checked)
        monkeypatch.setattr(kind, "todense", checked)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok"])
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_any_format_is_kept_as_rows(form, kind):
    bags = Bags.from_rows(kind(X).asformat(form), BAG, truth=TRUTH)
    assert is_sparse(bags.x)
    assert bags.x.format == "csr"
    assert (bags.n_rows, bags.parts[0].shape) == (N, (N, WORDS))
    np.testing.assert_array_equal(bags.x.toarray(), DENSE)
    assert bags.describe().n_rows == N
    assert bags[[1]].with_rows(X).x is X


def test_all_columns_are_scaled_alike():
    norms = np.square(DENSE).sum(axis=1)
    assert scale_of(X, np.arange(N)) == pytest.approx(np.sqrt(norms.mean() / 1000))
    assert scale_of(X, np.arange(9)) == pytest.approx(np.sqrt(norms[:9].mean() / 1000))
    assert scale_of(sp.csr_array((3, 4)), np.arange(3)) == 1


def test_numbers_that_are_missing_are_refused():
    x = X.copy()
    x.data[7] = np.nan
    for learn in (fit_linear, lambda bags: build_net("mlp", bags)):
        with pytest.raises(DataError, match="missing or infinite"):
            learn(Bags.from_rows(x, BAG, truth=TRUTH))


def test_few_rows_are_dense_at_once():
    wide = sp.csr_array((4096, WORDS_OF_WIDE))
    assert rows_at_once(wide, 4096) == 2**24 // WORDS_OF_WIDE
    assert rows_at_once(wide, 5) == 5
    assert rows_at_once(sp.csr_array((9, 2**30)), 4096) == 1
    plan = make_plan(texts_in_bags(wide), validation=share_reported(None))
    assert plan.net.value == "mlp"
    assert plan.batch_size.value <= 2**24 // WORDS_OF_WIDE


def texts_in_bags(x):
    return Bags.from_rows(x, np.arange(x.shape[0]) // 8, np.full((x.shape[0] // 8, 2), 0.5))


def test_batches_are_those_of_dense_rows():
    dense = Bags.from_rows(DENSE, BAG, truth=TRUTH)
    rows, spans = np.array([5, 0, 399, 5]), [(0, 3), (3, 4)]
    feeds = [place((b, None, None), torch.device("cpu"))[0].feed for b in (BAGS, dense)]
    for ours, theirs in zip(*(feed.batches(rows, spans) for feed in feeds), strict=True):
        assert ours[0].dtype == torch.float32
        assert torch.equal(ours[0], theirs[0])


def test_a_linear_model_is_that_of_the_same_dense_numbers():
    """Beside its scale, which is here applied to both by hand."""
    linear = fit_linear(BAGS, l2=1.0)
    design = linear.encoding.design(X, BAGS.index)
    scaled = DENSE / scale_of(X, np.arange(N))
    logits = scaled @ linear.weights + linear.bias
    np.testing.assert_allclose(linear.logits(X), logits, atol=1e-4)
    np.testing.assert_allclose(design.hot.toarray(), scaled[BAGS.index], rtol=1e-6)
    assert np.mean(linear.confidence(X).argmax(axis=1) == TRUTH) > 0.9


def test_fit_trains_on_sparse_rows_and_goes_on_with_them(tmp_path, never_dense):
    train, valid, _ = BAGS.split(0.2, seed=0)
    config = TrainConfig(epochs=6, device="cpu", threads=1, batch_size=32)

    def trained(folder, **options):
        net = build_net("mlp", train, hidden=[8])
        method = "count-likelihood"
        return fit(net, train, valid, method=method, config=config, run=folder, **options)

    history = trained(tmp_path / "whole")
    with pytest.raises(Interrupted):
        trained(tmp_path / "run", on_epoch=stop_after(2))
    assert trained(tmp_path / "run")["loss"] == history["loss"]
    model = Model.load(tmp_path / "run")
    found = model.predict_proba(X)
    np.testing.assert_allclose(found, model.predict_proba(DENSE), atol=1e-6)
    np.testing.assert_allclose(found[BAGS.index], model.confidence(BAGS), atol=1e-6)
    np.testing.assert_array_equal(found, Model.load(tmp_path / "whole").predict_proba(X))
    assert np.mean(found.argmax(axis=1) == TRUTH) > 0.8


@pytest.mark.parametrize(
    ("options", "method"),
    [
        ({}, "linear"),
        ({"method": "auto"}, "linear"),
        ({"method": "mean-map"}, "mean-map"),
        ({"method": "ridge"}, "ridge"),
        ({"epochs": 12}, "count-likelihood"),
        ({"model": LogisticRegression(), "epochs": 3}, "soft labels"),
    ],
)
@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_the_estimator_learns_texts(options, method, kind, tmp_path, never_dense):
    x = kind(X)
    clf = LLPClassifier(random_state=0, **options).fit(x, bags=BAG, proportions=table())
    assert clf.plan_.method.value == method
    assert (clf.n_features_in_, clf.predict_proba(x).shape) == (WORDS, (N, 2))
    assert clf.score(x, TRUTH) > 0.85
    np.testing.assert_allclose(clf.predict_proba(DENSE), clf.predict_proba(x), atol=1e-6)
    with pytest.raises((ValueError, ApportionError), match="features"):
        clf.predict(x[:, 1:])


def table():
    return {bag: np.bincount(TRUTH[bag == BAG], minlength=2) / 20 for bag in range(N // 20)}


def test_the_plan_says_why_texts_are_learned_by_a_linear_model():
    clf = LLPClassifier(random_state=0).fit(X, bags=BAG, proportions=table())
    assert "default for sparse rows" in str(clf.plan_)


def test_a_learner_that_takes_no_sparse_rows_refuses_them():
    clf = LLPClassifier(model=HistGradientBoostingClassifier(max_iter=2))
    with pytest.raises(TypeError, match="Sparse data was passed"):
        clf.fit(X, bags=BAG, proportions=table())


def test_a_model_of_a_dense_table_predicts_sparse_rows():
    clf = LLPClassifier(method="linear", random_state=0).fit(DENSE, bags=BAG, proportions=table())
    np.testing.assert_allclose(clf.predict_proba(X), clf.predict_proba(DENSE), atol=1e-6)


def test_entries_of_one_cell_are_summed_and_the_callers_matrix_stays():
    entries = np.array([1.0, 2.0, 5.0]), np.array([1, 1, 0]), np.array([0, 2, 3])
    given = sp.csr_matrix(entries, shape=(2, 3))
    bags = Bags.from_rows(given, ["a", "b"], {"a": [1, 0], "b": [0, 1]})
    assert bags.x.data.tolist() == [3.0, 5.0]
    assert given.nnz == 3
    summed = Bags.from_rows(sp.csr_matrix(given.toarray()), ["a", "b"], truth=[0, 1])
    assert scale_of(bags.x, np.arange(2)) == scale_of(summed.x, np.arange(2))


PEAK = """
import resource, sys
import numpy as np, scipy.sparse as sp
from apportion import Bags, LLPClassifier, TrainConfig, build_net, fit

rng = np.random.default_rng(0)
n, words, length = 20_000, 50_000, 60
truth, bag = rng.integers(2, size=n), np.arange(n) // 50
column = rng.zipf(1.3, size=(n, length)) % words
column[:, :8] = rng.integers(50, size=(n, 8)) + 50 * truth[:, None] + words // 2
x = sp.csr_matrix((np.full(n * length, 0.1), (np.repeat(np.arange(n), length), column.ravel())),
                  shape=(n, words))
bags = Bags.from_rows(x, bag, truth=truth)
if sys.argv[1] == "net":
    config = TrainConfig(epochs=1, batch_size=256, threads=1)
    history = fit(build_net("mlp", bags), bags, method="proportion-loss", config=config)
else:
    clf = LLPClassifier(method="ridge", random_state=0).fit(bags)
    assert (clf.model_.predict(x) == truth).mean() > 0.9
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["net", "linear"])
def test_20_000_texts_of_50_000_words_train_below_2_gib(what):
    command = [sys.executable, "-c", PEAK, what]
    done = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert float(done.stdout) < 2
