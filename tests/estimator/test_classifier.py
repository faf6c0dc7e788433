"""`LLPClassifier`: what scikit-learn asks of a classifier, and what bags ask of it."""

import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from apportion import FPL, BagError, Bags, ConfigError, DataError, LLPClassifier
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


def test_modules_of_the_caller():
    X, bags, table, names = problem()
    seen = []

    def make(train):
        seen.append((train.n_bags, train.truth))
        return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, train.n_classes))

    by_callable = LLPClassifier(model=make, epochs=30, learning_rate=0.01, random_state=0)
    by_callable.fit(X, names, bags=bags, proportions=table)
    assert seen == [(54, None)]  # neither the truth, nor bags that are held out
    assert np.mean(by_callable.predict(X) == names) > 0.9
    again = clone(by_callable).fit(X, bags=bags, proportions=table)
    assert np.array_equal(again.predict_proba(X), by_callable.predict_proba(X))

    network = nn.Linear(3, 2)
    before = network.weight.detach().clone()
    LLPClassifier(model=network, epochs=2).fit(X, bags=bags, proportions=table)
    assert torch.equal(network.weight, before)


def test_the_callers_random_numbers_stay_as_they_are():
    X, bags, table, _ = problem()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    LLPClassifier(model=lambda train: nn.Linear(3, 2), epochs=1).fit(
        X, bags=bags, proportions=table
    )
    assert torch.equal(torch.rand(2), expected)


def test_the_seed_decides_everything():
    X, bags, table, _ = problem()

    def by(seed):
        classifier = LLPClassifier(epochs=3, random_state=seed)
        return classifier.fit(X, bags=bags, proportions=table).predict_proba(X)

    assert np.array_equal(by(1), by(1))
    assert not np.array_equal(by(1), by(2))
    assert np.array_equal(by(np.random.RandomState(5)), by(np.random.RandomState(5)))


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


def test_pseudo_labels_meet_the_counts_of_all_bags():
    X, bags, table, names = problem()
    classifier = fitted(X, method="fpl", bags=bags, proportions=table)
    decided = pd.crosstab(bags, classifier.pseudo_labels_)
    assert np.array_equal(decided.to_numpy(), pd.crosstab(bags, names).to_numpy())
    assert np.mean(classifier.pseudo_labels_ == names) > 0.9
    other = LLPClassifier("proportion-loss", epochs=2).fit(X, bags=bags, proportions=table)
    assert other.pseudo_labels_ is None


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


def test_a_fit_that_fails_leaves_what_was_there():
    X, bags, table, _ = problem()
    classifier = fitted(X, bags=bags, proportions=table)
    before = classifier.predict_proba(X)
    other = table.rename(columns={"no": "left", "yes": "right"})
    classifier.set_params(eta=-1)
    with pytest.raises(ConfigError, match="eta must be a number ≥ 0; got -1"):
        classifier.fit(X[:, :2], bags=bags, proportions=other)
    classifier.set_params(eta=None, learning_rate=-1.0)
    with pytest.raises(ConfigError, match="learning_rate must be above 0"):
        classifier.fit(X[:, :2], bags=bags, proportions=other)
    assert classifier.learning_rate == -1.0
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(classifier.predict_proba(X), before)
    classifier.set_params(learning_rate=0.001).fit(X[:, :2], bags=bags, proportions=other)
    assert classifier.classes_.tolist() == ["left", "right"]


def test_times_in_seconds_can_be_learned_from():
    X, bags, table, names = problem()
    classifier = fitted(1.7e9 + 10 * X, bags=bags, proportions=table)
    assert np.mean(classifier.predict(1.7e9 + 10 * X) == names) > 0.9


def test_whole_bags_are_held_out_for_selection():
    X, bags, table, _ = problem()
    classifier = fitted(X, bags=bags, proportions=table)
    assert classifier.history_.best_epoch is not None
    assert "valid_error" in classifier.history_.records[0]
    without = LLPClassifier(epochs=2, validation_fraction=0).fit(X, bags=bags, proportions=table)
    assert without.history_.best_epoch is None
    few = np.isin(bags, table.index[:20])
    for fraction, n_held_out in ((None, 0), (0.2, 4), (0.25, 5)):  # what is asked for is done
        seen: list[Bags] = []
        small = LLPClassifier(
            epochs=1, validation_fraction=fraction, model=Makes(seen, lambda: nn.Linear(3, 2))
        )
        small.fit(X[few], bags=bags[few], proportions=table)
        assert seen[0].n_bags == 20 - n_held_out
        assert (small.history_.best_epoch is not None) == (n_held_out > 0)
        assert small.plan_.validation.value == (fraction or 0)


@pytest.mark.parametrize("bags_known", ["a table", "labels"])
def test_held_out_bags_teach_nothing(bags_known):
    """Their rows may hold any numbers, gaps and categories: the model is the same to the bit."""
    X, bags, table, names = problem()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(t=np.where(X[:, 0] > 0, "u", "v"))
    told = {"proportions": table} if bags_known == "a table" else {"y": names}
    seen: list[Bags] = []
    LLPClassifier(epochs=1, random_state=0, model=Makes(seen, FirstPart), device="cpu").fit(
        frame, bags=bags, **told
    )
    out = ~np.isin(np.arange(len(frame)), seen[0].index)
    assert 0 < out.sum() < len(frame)
    odd = frame.assign(
        a=frame["a"].where(~out, 1000 * frame["a"]),
        b=frame["b"].where(~out),
        t=frame["t"].where(~out, "new"),
    )
    one, other = (
        LLPClassifier(epochs=3, random_state=0, device="cpu").fit(rows, bags=bags, **told)
        for rows in (frame, odd)
    )
    assert one.model_.columns == other.model_.columns
    assert one.history_["loss"] == other.history_["loss"]
    assert one.history_["valid_error"] != other.history_["valid_error"]


class Makes:
    """Makes a net for the training bags, and keeps these."""

    def __init__(self, seen, make):
        self.seen, self.make = seen, make

    def __call__(self, train):
        self.seen.append(train)
        return self.make()


class FirstPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, numbers, codes):
        return self.linear(numbers)


def test_it_says_what_it_does(caplog, capsys):
    X, bags, table, _ = problem()
    with caplog.at_level(logging.INFO, "apportion"):
        LLPClassifier(epochs=2, batch_size=50).fit(X, bags=bags, proportions=table)
    assert "2 classes from 60 bags of 600 instances in all" in caplog.text
    said = " ".join(caplog.text.split())
    for choice in ("net mlp (", "batch_size 50 (given)", "validation 0.1 (a tenth of 60"):
        assert choice in said
    assert not capsys.readouterr().err
    LLPClassifier(epochs=2, verbose=True).fit(X, bags=bags, proportions=table)
    assert "Learning 2 classes from 60 bags" in capsys.readouterr().err


# --------------------------------------------------------------------------------- what is wrong


def refused(error, X, y=None, *, settings=None, **options):
    with pytest.raises(error) as caught:
        LLPClassifier(**{"epochs": 1, **(settings or {})}).fit(X, y, **options)
    return str(caught.value)


def test_wrong_settings_are_named():
    X, bags, table, _ = problem()
    told = {"bags": bags, "proportions": table}
    message = refused(ConfigError, X, settings={"method": "fpll"}, **told)
    assert "Did you mean 'fpl'?" in message
    assert "eta is 1" in refused(
        ConfigError, X, settings={"method": "proportion-loss", "eta": 1}, **told
    )
    assert "validation_fraction must be a number from 0 to below 1; got 2" in refused(
        ConfigError, X, settings={"validation_fraction": 2}, **told
    )
    assert "got 'many'" in refused(ConfigError, X, settings={"epochs": "many"}, **told)
    assert "returned a int" in refused(ConfigError, X, settings={"model": lambda train: 3}, **told)
    assert "got 0" in refused(ConfigError, X, settings={"epochs": 0}, **told)
    assert "resnet" in refused(ValueError, X, settings={"model": "resnet"}, **told)
    for module in (nn.Linear, 3):
        assert "model is" in refused(ConfigError, X, settings={"model": module}, **told)
    for fraction in ("a", np.nan):
        settings = {"validation_fraction": fraction}
        assert "validation_fraction must be" in refused(ConfigError, X, settings=settings, **told)


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
        LLPClassifier().fit(X, bags=bags, proportions=table * 100)
    assert "sum to 100" in str(caught.value)
    assert "P.div(P.sum(axis=1), axis=0)" in str(caught.value)
    assert "normalize=True" not in str(caught.value)


def test_eta_reaches_settings_of_ones_own():
    method = FPL(first="decide")
    changed: Any = LLPClassifier(eta=3)._method(method)
    assert (changed.eta, changed.first) == (3, "decide")
    assert LLPClassifier()._method(method) is method


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


def test_the_plan_tells_what_was_given_from_what_was_decided():
    X, ids, table = np.eye(4), list("aabb"), {"a": [1, 1], "b": [0, 2]}
    decided = LLPClassifier(epochs=1, device="cpu").fit(X, bags=ids, proportions=table)
    assert str(decided.plan_.method) == (
        "count-likelihood (the default of a single net on a table, which epochs asks for)"
    )
    assert decided.plan_.weight_decay.value == 0.1
    given = LLPClassifier("greedy", epochs=1, weight_decay=0.0, device="cpu")
    given.fit(X, bags=ids, proportions=table)
    assert str(given.plan_.method) == "greedy (given)"
    assert str(given.plan_.weight_decay) == "0.0 (given)"


@pytest.mark.parametrize("as_frame", [True, False])
def test_a_column_that_gives_the_truth_away_is_refused(as_frame):
    X, bags, table, names = problem()
    given = pd.DataFrame({"a": X[:, 0], "flag": (names == "yes") * 2.5})
    name = "flag" if as_frame else "1"
    rows = given if as_frame else given.to_numpy()
    with pytest.raises(
        DataError, match=rf"column '{name}'.*\n.*LLPClassifier\(keep=\['{name}'\]\)"
    ):
        LLPClassifier(epochs=1).fit(rows, bags=bags, proportions=table)
    LLPClassifier(epochs=1, keep=[name]).fit(rows, bags=bags, proportions=table)


def test_held_out_bags_do_not_depend_on_the_order_of_the_table():
    X, bags, table, _ = problem(20)
    seen = []

    def make(train):
        seen.append(set(train.ids))
        return nn.Linear(3, 2)

    shuffled = table.sample(frac=1, random_state=1)
    for given in (table, shuffled, shuffled.T.to_dict()):
        clf = LLPClassifier(model=make, epochs=1, validation_fraction=0.3, random_state=0)
        clf.fit(X, bags=bags, proportions=given)
    assert len(seen[0]) == 14
    assert seen[0] == seen[1] == seen[2]


# ------------------------------------------------------------ columns that are constant within bags


def with_shares():
    """A frame with a column of the bag's own proportions, another of one value per bag."""
    X, bags, table, _ = problem()
    frame = pd.DataFrame(X, columns=list("xyz"))
    frame.insert(1, "share", 100 * table.loc[bags, "yes"].to_numpy())
    number = pd.factorize(bags)[0]
    return frame.assign(region=(number % 7).astype(float)), bags, table


@pytest.mark.parametrize("arrays", [False, True])
def test_proportions_among_the_columns_are_left_out_and_need_not_be_there(caplog, tmp_path, arrays):
    frame, bags, table = with_shares()
    X = frame.to_numpy() if arrays else frame
    clf = LLPClassifier(epochs=2, random_state=0).fit(X, bags=bags, proportions=table)
    constant, left_out = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert f"Column {'4' if arrays else 'region'!r} is constant within every bag" in constant
    assert constant.endswith("Leave such columns out of X.")
    assert f"Pass keep=[{'1' if arrays else 'share'!r}] to learn from it." in left_out
    assert clf.model_.columns.names == (tuple("0234") if arrays else ("x", "y", "z", "region"))
    assert clf.n_features_in_ == 5
    expected = clf.predict_proba(X)
    clf.save(tmp_path / "clf")
    for own in (clf, LLPClassifier.load(tmp_path / "clf")):
        spoiled: Any = frame.assign(share=np.nan)
        spoiled = spoiled.to_numpy() if arrays else spoiled
        assert np.array_equal(own.predict_proba(spoiled), expected)
        if not arrays:
            lacking = frame.drop(columns="share")
            assert np.array_equal(own.predict_proba(lacking), expected)
            assert list(lacking.columns) == ["x", "y", "z", "region"]  # as it was
            with pytest.raises(ValueError, match="feature names"):
                own.predict(frame.drop(columns="x"))
            with pytest.warns(UserWarning, match="valid feature names"):
                assert np.array_equal(own.predict_proba(frame.to_numpy()), expected)
    plain = LLPClassifier(epochs=2, random_state=0)
    plain.fit(np.delete(frame.to_numpy(), 1, axis=1), bags=bags, proportions=table)
    assert np.array_equal(plain.predict_proba(np.delete(frame.to_numpy(), 1, axis=1)), expected)


def test_columns_that_are_kept_are_learned_from_without_a_warning(caplog):
    frame, bags, table = with_shares()
    clf: Any = LLPClassifier(epochs=1, keep=["share", "region"])
    clf.fit(frame, bags=bags, proportions=table)
    assert clf.model_.columns.names == tuple(frame.columns)
    assert not [r for r in caplog.records if r.levelname == "WARNING"]


def test_bags_that_are_alike_are_warned_of_once(caplog):
    X, bags, table, _ = problem()
    table[:] = 0.5
    LLPClassifier(epochs=1).fit(X, bags=bags, proportions=table)
    (said,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert said.startswith("The bags' proportions are nearly identical")
