"""`LLPClassifier`: what scikit-learn asks of a classifier, and what bags ask of it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from apportion import BagError, Bags, ConfigError, DataError, LLPClassifier
from apportion.data.tables import read_table
from apportion.engine.device import own_threads
from apportion.study.protocols import rand


def problem(n_bags: int = 60, size: int = 10, seed: int = 0):
    """Rows of two classes that a line parts, in bags whose proportions differ."""
    rng = np.random.default_rng(seed)
    share = rng.random(n_bags)
    truth = (rng.random((n_bags, size)) < share[:, None]).astype(int).ravel()
    X = rng.normal(size=(n_bags * size, 3)) + 2.5 * truth[:, None] * [1, -1, 0]
    bags = np.repeat([f"bag {i}" for i in range(n_bags)], size)
    order = rng.permutation(len(X))
    X, bags, truth = X[order], bags[order], truth[order]
    names = np.array(["no", "yes"])[truth]
    table = pd.crosstab(bags, names, normalize="index")
    return X, bags, table, names


@pytest.fixture(autouse=True)
def one_thread():
    """Steps this small are taken faster by one thread, above all where other tests run as well."""
    with own_threads(1):
        yield


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# -------------------------------------------------------------------------------- scikit-learn


@pytest.mark.parametrize(
    "classifier",
    [pytest.param(LLPClassifier(), marks=pytest.mark.slow), LLPClassifier("fpl", epochs=20)],
    ids=["default", "fpl"],
)
def test_scikit_learn_finds_nothing_to_object_to(classifier):
    found = check_estimator(classifier, on_fail=None, on_skip=None)
    assert [check for check in found if check["status"] == "failed"] == []
    assert sum(check["status"] == "passed" for check in found) > 40
    assert not [check for check in found if check["expected_to_fail"]]


def test_clones_are_equal_and_not_fitted():
    network = nn.Linear(3, 2)
    one = LLPClassifier("greedy", eta=2.0, model=network, epochs=3)
    two = clone(one)
    assert two.get_params().keys() == one.get_params().keys()
    assert two.model is not network
    assert two.eta == 2.0
    X, bags, table, _ = problem()
    two.fit(X, bags=bags, proportions=table)
    assert not hasattr(one, "module_")
    assert two.model_.net is not two.model


def test_a_pipeline_passes_bags_on(routing):
    X, bags, table, names = problem()
    classifier = LLPClassifier(random_state=0).set_fit_request(bags=True, proportions=True)
    pipeline = make_pipeline(StandardScaler(), classifier)
    pipeline.fit(X, bags=bags, proportions=table)
    assert pipeline.score(X, names) > 0.9


def test_a_grid_search_over_whole_bags_picks_by_proportion_error(routing):
    X, bags, table, names = problem(n_bags=40)
    classifier = (
        LLPClassifier(epochs=15, random_state=0)
        .set_fit_request(bags=True, proportions=True)
        .set_score_request(bags=True, proportions=True)
    )
    search = GridSearchCV(classifier, {"eta": [0.2, 1000.0]}, cv=GroupKFold(3))
    search.fit(X, groups=bags, bags=bags, proportions=table)
    scores = search.cv_results_["mean_test_score"]
    assert np.all(scores < 0)
    assert scores[0] > scores[1]  # a perturbation that drowns everything learns nothing
    assert search.best_params_ == {"eta": 0.2}
    assert np.mean(search.predict(X) == names) > 0.9


def test_cross_validation_with_rows_of_proportions_as_y(routing):
    X, bags, table, _ = problem()
    y = table.loc[bags].to_numpy()
    classifier = LLPClassifier(epochs=20, random_state=0)
    classifier.set_fit_request(bags=True).set_score_request(bags=True)
    scores = cross_val_score(
        classifier, X, y, cv=GroupKFold(3), params={"groups": bags, "bags": bags}
    )
    assert scores.shape == (3,)
    assert np.all((scores > -0.2) & (scores < 0))


# ----------------------------------------------------------------------------- what it is given


def fitted(X, y=None, *, method=None, **targets):
    return LLPClassifier(method, epochs=30, random_state=0).fit(X, y, **targets)


def test_all_kinds_of_targets_teach_the_same():
    X, bags, table, names = problem()
    by_frame = fitted(X, bags=bags, proportions=table)
    sizes = pd.Series(bags).value_counts()
    as_dict = {bag: dict(row) for bag, row in table[::-1].iterrows()}
    numbers = pd.Series(range(len(table)), index=table.index)
    others = {
        "labels": fitted(X, names, bags=bags),
        "rows": fitted(X, table.loc[bags], bags=bags),
        "dict": fitted(X, bags=bags, proportions=as_dict),
        "counts": fitted(X, bags=bags, proportions=table.mul(sizes, axis=0).round()),
        "array": fitted(X, bags=numbers[bags].to_numpy(), proportions=table.to_numpy()),
    }
    accuracy = {name: np.mean(clf.predict(X) == names) for name, clf in others.items()}
    classes = others["array"].classes_[others["array"].predict(X)]
    assert np.mean(by_frame.predict(X) == names) > 0.9
    for name in ("labels", "rows", "dict", "counts"):
        assert accuracy[name] > 0.9, name
        assert others[name].classes_.tolist() == ["no", "yes"]
    assert others["array"].classes_.tolist() == [0, 1]
    assert np.mean(np.array(["no", "yes"])[classes] == names) > 0.9


def test_labels_beside_proportions_decide_nothing():
    X, bags, table, names = problem()
    told = fitted(X, names, method="fpl", bags=bags, proportions=table)
    wrong = np.where(names == "no", "yes", "no")
    lied_to = fitted(X, wrong, method="fpl", bags=bags, proportions=table)
    assert np.array_equal(told.predict_proba(X), lied_to.predict_proba(X))
    assert told.history_["label_accuracy"][-1] == pytest.approx(
        1 - lied_to.history_["label_accuracy"][-1]
    )


def test_a_table_may_hold_more_bags_than_the_rows_do():
    X, bags, table, _ = problem()
    few = np.isin(bags, table.index[:12])
    more = fitted(X[few], bags=bags[few], proportions=table)
    just = fitted(X[few], bags=bags[few], proportions=table[:12])
    assert np.array_equal(more.predict_proba(X), just.predict_proba(X))


def test_bags_may_share_rows():
    X, _, _, names = problem()
    members = rand(names, 20, 40, seed=0).members
    bags = Bags.from_members(X, members, truth=names)
    classifier = fitted(bags, method="fpl")
    assert np.mean(classifier.predict(X) == names) > 0.9
    assert classifier.pseudo_labels_.shape == (800,)
    held = classifier.pseudo_labels_.reshape(40, 20) == "yes"
    assert np.array_equal(held.sum(axis=1), bags.counts[:, 1])


def test_frames_with_text_and_gaps():
    X, bags, table, names = problem()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["place"] = np.where(rng.random(len(X)) < 0.9, np.where(names == "yes", "up", "down"), "?")
    frame.loc[rng.random(len(X)) < 0.2, "a"] = np.nan
    classifier = fitted(frame, bags=bags, proportions=table)
    assert classifier.feature_names_in_.tolist() == ["a", "b", "c", "place"]
    accuracy = np.mean(classifier.predict(frame) == names)
    blind = frame.assign(place="elsewhere")
    with pytest.warns(UserWarning, match="place"):
        guessed = np.mean(classifier.predict(blind) == names)
    assert accuracy > 0.95
    assert accuracy > guessed > 0.7


def test_signals_and_images_go_to_their_nets():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=120)
    bags = np.repeat(np.arange(12), 10)
    signals = rng.normal(size=(120, 2, 24)).astype(np.float32) + truth[:, None, None]
    images = (signals[:, :, :, None] * 20 + 100).clip(0, 255).astype(np.uint8).repeat(24, axis=3)
    for X, module in ((signals, "conv1d"), (images, "resnet18")):
        if module == "resnet18":
            X = X.repeat(2, axis=1)[:, :3]
        classifier = LLPClassifier(model=module, epochs=2, random_state=0).fit(X, truth, bags=bags)
        assert classifier.predict_proba(X).shape == (120, 2)
        assert type(classifier.model_.net.network).__name__ == "ResNet"


def test_ragged_signals_are_padded_and_masked():
    from apportion.data.signals import pad

    rng = np.random.default_rng(0)
    frames = [rng.normal(size=(n, 2)) for n in rng.integers(5, 40, size=60)]
    X = pad(frames)
    classifier = LLPClassifier(model="conv1d", epochs=2, random_state=0).fit(
        X, rng.integers(2, size=60), bags=np.repeat(np.arange(12), 5)
    )
    short = pad(frames[:7])
    assert np.allclose(classifier.predict_proba(short), classifier.predict_proba(X)[:7], atol=1e-5)


# --------------------------------------------------------------------------------- what it gives


def test_labels_meet_known_counts_and_are_the_most_likely_such():
    X, bags, table, _ = problem()
    classifier = fitted(X, bags=bags, proportions=table)
    new, their, known, truth = problem(seed=1)
    labels = classifier.predict(new, bags=their, proportions=known)
    found, wanted = pd.crosstab(their, labels), pd.crosstab(their, truth)
    assert np.array_equal(found.to_numpy(), wanted.to_numpy())
    assert np.mean(labels == truth) >= np.mean(classifier.predict(new) == truth)
    likely = classifier.predict_proba(new)[:, 1]
    for bag in np.unique(their):  # in a bag of two classes the most likely ones are the first k
        own = their == bag
        assert likely[own][labels[own] == "yes"].min(initial=1) >= likely[own][
            labels[own] == "no"
        ].max(initial=0)


def test_scores():
    X, bags, table, names = problem()
    classifier = fitted(X, bags=bags, proportions=table)
    assert classifier.score(X, names) == np.mean(classifier.predict(X) == names)
    mean = pd.DataFrame(classifier.predict_proba(X)).groupby(bags).mean()
    wrong = np.abs(mean.to_numpy() - table.loc[mean.index].to_numpy()).sum(axis=1) / 2
    for told in (
        {"bags": bags, "proportions": table},
        {"y": table.loc[bags].to_numpy(), "bags": bags},
    ):
        assert classifier.score(X, **told) == pytest.approx(-wrong.mean(), abs=1e-9)


def test_bags_and_tables_score_by_what_they_know():
    X, bags, table, names = problem()
    classifier = fitted(X, bags=bags, proportions=table)
    expected = classifier.score(X, bags=bags, proportions=table)
    known = Bags.from_rows(X.astype(np.float32), bags, table[["yes", "no"]])
    assert known.classes == ("yes", "no")
    assert classifier.score(known) == pytest.approx(expected)
    frame = pd.DataFrame(X, columns=["0", "1", "2"]).assign(ward=bags, truth=names)
    read = read_table(
        frame, bag="ward", label="truth", proportions=table, columns=classifier.model_.columns
    )
    assert classifier.score(read) == pytest.approx(expected)
    with pytest.raises(BagError, match="'maybe'"):
        classifier.score(Bags.from_rows(X, bags, table.assign(maybe=0.0)))


def test_a_table_from_files_is_fitted_and_scored(tmp_path):
    X, bags, table, names = problem()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(ward=bags)
    frame.to_parquet(tmp_path / "rows.parquet")
    table.rename_axis("ward").to_csv(tmp_path / "wards.csv")
    read = read_table(tmp_path / "rows.parquet", bag="ward", proportions=tmp_path / "wards.csv")
    classifier = fitted(read, method="fpl")
    assert np.mean(classifier.predict(frame[["a", "b", "c"]]) == names) > 0.9
    assert classifier.pseudo_labels_.shape == (600,)
    assert np.mean(classifier.pseudo_labels_ == np.array(names)[read.index]) > 0.9


def test_what_is_not_finite_is_not_predicted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2, 8)).astype(np.float32)
    classifier = LLPClassifier(epochs=1).fit(X, rng.integers(2, size=40))
    X[7, 0, 0] = np.nan
    with pytest.raises(ValueError, match="row 7 is the first"):
        classifier.predict(X)


# --------------------------------------------------------------------------------- what is wrong


def refused(error, X, y=None, *, settings=None, **options):
    with pytest.raises(error) as caught:
        LLPClassifier(**{"epochs": 1, **(settings or {})}).fit(X, y, **options)
    return str(caught.value)


def test_wrong_targets_are_named():
    X, bags, table, names = problem()
    assert "requires y to be passed" in refused(ValueError, X)
    assert "no bags" in refused(BagError, X, proportions=table)
    assert "neither proportions nor y" in refused(BagError, X, bags=bags)
    message = refused(BagError, X, bags=bags[1:], proportions=table)
    assert "600 rows, but bags are of shape (599,)" in message
    message = refused(BagError, X, bags=bags, proportions=table.drop("bag 7"))
    assert "'bag 7'" in message
    assert "of shape (60, 2)" in refused(BagError, X, bags=bags, proportions=table.to_numpy())
    numbers = pd.factorize(bags)[0] + 5
    message = refused(BagError, X, bags=numbers, proportions=table.to_numpy())
    assert "an array of 60 rows" in message
    rows = table.loc[bags].to_numpy().copy()
    rows[100] = [0.5, 0.5]
    message = refused(BagError, X, rows, bags=bags)
    assert "of the same bag" in message
    bags_too = Bags.from_rows(X, bags, table)
    assert "have their proportions" in refused(ConfigError, bags_too, names)


def test_a_table_that_sums_to_neither_is_told_what_to_do():
    X, bags, table, _ = problem()
    with pytest.raises(BagError) as caught:
        LLPClassifier().fit(X, bags=bags, proportions=table * 0.9)
    assert "sum to 0.9" in str(caught.value)
    assert "missing class" in str(caught.value)
    with pytest.raises(BagError) as caught:
        LLPClassifier().fit(X, bags=bags, proportions=table * 12)
    assert "sum to 12" in str(caught.value)
    assert "pass LLPClassifier(normalize=True) to rescale" in str(caught.value)
    rescaled = LLPClassifier("linear", normalize=True, random_state=0)
    rescaled.fit(X, bags=bags, proportions=table * 12)
    plain = LLPClassifier("linear", random_state=0).fit(X, bags=bags, proportions=table)
    np.testing.assert_allclose(rescaled.predict_proba(X), plain.predict_proba(X), atol=1e-5)
    told = {"bags": bags, "proportions": table * 12}
    np.testing.assert_array_equal(
        rescaled.predict(X, **told), plain.predict(X, bags=bags, proportions=table)
    )
    assert rescaled.score(X, **told) == pytest.approx(
        plain.score(X, bags=bags, proportions=table), abs=1e-5
    )


def test_classes_are_found_however_a_table_writes_their_numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    ids, y = np.arange(60) // 6, (X[:, 0] > 0).astype(int)
    table = pd.crosstab(ids, y)
    classifier = LLPClassifier(epochs=2, random_state=0, device="cpu")
    classifier.fit(X, bags=ids, proportions=table)
    expected = classifier.predict(X, bags=ids, proportions=table)
    table.columns = pd.Index(["0", "1"])
    found = classifier.predict(X, bags=ids, proportions=table[["1", "0"]])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.bincount(found[ids == 3], minlength=2), table.iloc[3])
    bags = Bags.from_rows(X, ids, table, counts=True)
    assert bags.classes == ("0", "1")
    assert classifier.score(bags) == pytest.approx(classifier.score(X, bags=ids, proportions=table))


@pytest.mark.parametrize("settings", [{"epochs": 2}, {"method": "linear"}], ids=["net", "linear"])
def test_threads_share_a_fitted_classifier(settings):
    X, bags, table, _ = problem(n_bags=20)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    classifier = LLPClassifier(**settings, random_state=0, device="cpu")
    classifier.fit(frame, bags=bags, proportions=table)
    assert not any(module.training for module in classifier.model_.net.modules())
    rows = [frame.iloc[k : k + 1] for k in range(50)]
    expected = [classifier.predict_proba(row).tobytes() for row in rows]

    def predict(_):
        return [classifier.predict_proba(row).tobytes() for row in rows]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(predict, range(8))) == [expected] * 8


@pytest.mark.parametrize("change", ["renamed", "reordered", "narrower", "text"])
def test_one_row_is_checked_as_many_are(change):
    X, bags, table, _ = problem(n_bags=20)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    classifier = LLPClassifier("linear", random_state=0).fit(frame, bags=bags, proportions=table)
    wrong: Any = {
        "renamed": frame.rename(columns={"a": "A"}),
        "reordered": frame[["b", "a", "c"]],
        "narrower": frame[["a", "b"]],
        "text": frame.assign(a="many"),
    }[change]
    messages = set()
    for rows in (wrong, wrong.iloc[:1]):
        with pytest.raises((ValueError, DataError)) as caught:
            classifier.predict(rows)
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_weights_of_rows_are_not_an_argument():
    X, bags, table, _ = problem()
    told: dict[str, Any] = {"bags": bags, "proportions": table, "sample_weight": np.ones(len(X))}
    with pytest.raises(TypeError, match="sample_weight"):
        LLPClassifier().fit(X, **told)
