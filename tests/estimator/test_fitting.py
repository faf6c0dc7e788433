"""How an estimator learns: settings, held-out bags, nets of the caller, columns left out."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from apportion import (
    FPL,
    Bags,
    ConfigError,
    DataError,
    LLPClassifier,
    Model,
    Run,
    RunError,
    build_net,
    fit,
    write_report,
)
from apportion.engine.device import own_threads
from tests.estimator.test_classifier import fitted, problem, refused


@pytest.fixture(autouse=True)
def one_thread():
    with own_threads(1):
        yield


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


def test_pseudo_labels_meet_the_counts_of_all_bags():
    X, bags, table, names = problem()
    classifier = fitted(X, method="fpl", bags=bags, proportions=table)
    decided = pd.crosstab(bags, classifier.pseudo_labels_)
    assert np.array_equal(decided.to_numpy(), pd.crosstab(bags, names).to_numpy())
    assert np.mean(classifier.pseudo_labels_ == names) > 0.9
    other = LLPClassifier("proportion-loss", epochs=2).fit(X, bags=bags, proportions=table)
    assert other.pseudo_labels_ is None


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


def test_wrong_settings_are_named():
    X, bags, table, _ = problem()
    told = {"bags": bags, "proportions": table}
    message = refused(ConfigError, X, settings={"method": "fpll"}, **told)
    assert "Did you mean 'fpl'?" in message
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


def test_eta_reaches_settings_of_ones_own(monkeypatch):
    X, bags, table, _ = problem()
    given = []

    def spy(*parts, method, **options):
        given.append(method)
        return fit(*parts, method=method, **options)

    monkeypatch.setattr("apportion.estimator.fitting.fit", spy)
    for eta in (3, None):
        method = FPL(first="decide")
        LLPClassifier(method, eta=eta, epochs=1).fit(X, bags=bags, proportions=table)
        assert (given[-1].eta, given[-1].first) == (eta, "decide")
        assert (given[-1] is method) == (eta is None)


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


# ------------------------------------------------------------------------------------ run folders


def of_a_net(**options):
    return LLPClassifier(**{"epochs": 4, "method": "fpl", "device": "cpu", **options})


@pytest.mark.parametrize("seed", [0, None], ids=["seed", "no seed"])
@pytest.mark.parametrize("options", [{}, {"method": None, "epochs": None}], ids=["net", "auto"])
def test_the_same_call_goes_on_with_a_run(tmp_path, steps, options, seed):
    steps(3)
    X, bags, table, _ = problem(n_bags=20)
    known = {"bags": bags, "proportions": table}
    whole = of_a_net(**options, run=tmp_path / "whole", random_state=0).fit(X, **known)

    def stop(record, net):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    run = tmp_path / "run"
    begun = of_a_net(**options, run=run, random_state=0, callbacks=stop)
    with pytest.raises(KeyboardInterrupt):
        begun.fit(X, **known)
    assert len(Run(run).records()) == 2
    again = of_a_net(**options, run=run, random_state=seed).fit(X, **known)
    np.testing.assert_array_equal(again.predict_proba(X), whole.predict_proba(X))
    np.testing.assert_array_equal(Model.load(run).predict_proba(X), whole.predict_proba(X))
    if whole.pseudo_labels_ is not None:
        np.testing.assert_array_equal(again.pseudo_labels_, whole.pseudo_labels_)
    assert [r["epoch"] for r in again.history_.records] == [
        r["epoch"] for r in whole.history_.records
    ]


def test_a_run_of_the_classifier_is_reported_and_takes_more_epochs(tmp_path):
    X, bags, table, _ = problem()
    known, run = {"bags": bags, "proportions": table}, tmp_path / "run"
    options: dict[str, Any] = {"eta": 0.1, "random_state": 0, "net_options": {"hidden": (8,)}}
    first = of_a_net(**options, run=run).fit(X, **known)
    settings = Run(run).settings()
    assert settings["model"] == {"net": "mlp", "hidden": [8], "validation": 0.1}
    assert settings["plan"] == first.plan_.reasons()
    page = write_report([run], tmp_path / "report.html")
    assert "fpl" in Path(page).read_text(encoding="utf-8")
    more = of_a_net(**options, run=run, epochs=6).fit(X, **known)
    assert len(more.history_.records) == 6
    straight = of_a_net(**options, epochs=6).fit(X, **known)
    np.testing.assert_array_equal(more.predict_proba(X), straight.predict_proba(X))


def test_a_run_of_something_else_is_named(tmp_path):
    X, bags, table, _ = problem()
    known, run = {"bags": bags, "proportions": table}, tmp_path / "run"
    of_a_net(run=run, random_state=0).fit(X, **known)
    for options, words in (
        ({"net_options": {"hidden": (8,)}}, r"another net: hidden \[256\], not \[8\]"),
        ({"schedule": "cosine"}, "another configuration: schedule 'constant', not 'cosine'"),
        ({"method": "greedy"}, "another method"),
        ({"random_state": 1}, "another"),
    ):
        with pytest.raises(RunError, match=words):
            of_a_net(**{"run": run, "random_state": 0, **options}).fit(X, **known)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="cannot be a run folder"):
        of_a_net(run=tmp_path / "file").fit(X, **known)


# ------------------------------------------------------------------------- nets, chosen and owned


@pytest.mark.parametrize(
    ("shape", "net"), [((4,), "mlp"), ((2, 9), "conv1d"), ((3, 8, 8), "resnet18")]
)
def test_the_data_choose_the_net(shape, net):
    rng = np.random.default_rng(0)
    X, ids = rng.normal(size=(40, *shape)).astype(np.float32), np.arange(40) // 8
    classifier = LLPClassifier(epochs=1, random_state=0).fit(X, rng.integers(2, size=40), bags=ids)
    assert classifier.plan_.net.value == net
    assert classifier.model_.net.recipe["net"] == net


class Words(nn.Module):
    """Averages what it learns of each id."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 2)

    def forward(self, ids):
        return self.table(ids).mean(dim=1)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
@pytest.mark.parametrize("made", [Words(), lambda bags: Words()], ids=["module", "function"])
def test_integer_ids_reach_a_net_of_ones_own_as_integers(tmp_path, dtype, made):
    rng = np.random.default_rng(0)
    share = np.linspace(0, 1, 40).repeat(10)
    truth = (rng.random(400) < share).astype(int)
    X = (rng.integers(25, size=(400, 12)) + 25 * truth[:, None]).astype(dtype)
    bags = np.arange(400) // 10
    classifier = LLPClassifier(model=made, epochs=30, learning_rate=0.1, random_state=0)
    classifier.fit(X, truth, bags=bags)
    assert classifier.model_.parts == ({"shape": [12], "dtype": np.dtype(dtype).name},)
    assert np.mean(classifier.predict(X) == truth) > 0.95
    classifier.save(tmp_path / "model")
    again = LLPClassifier.load(tmp_path / "model", net=Words)
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_numbers_where_a_net_wants_ids_and_ids_where_it_wants_numbers_are_explained():
    X, bags, table, _ = problem()
    ids = (X * 3).round().astype(int) % 50
    message = refused(ConfigError, X, settings={"model": Words()}, bags=bags, proportions=table)
    assert "pass an array of integers, which stay integers" in message
    linear: dict[str, Any] = {"model": nn.Linear(3, 2)}
    message = refused(ConfigError, ids, settings=linear, bags=bags, proportions=table)
    assert "pass x.astype(numpy.float32)" in message
    LLPClassifier(epochs=1, **linear).fit(pd.DataFrame(ids), bags=bags, proportions=table)
    for dtype in (np.uint8, np.int16):
        settings = {"model": Words()}
        known = {"bags": bags, "proportions": table}
        message = refused(ConfigError, ids.astype(dtype), settings=settings, **known)
        assert "pass x.astype(numpy.int64)" in message
        assert "float32" not in message


@pytest.mark.parametrize("lazy", [False, True], ids=["Bags", "Dataset"])
def test_channels_that_come_last_have_a_remedy_of_this_door(lazy):
    rng = np.random.default_rng(0)
    x = rng.random((12, 8, 8, 3), dtype=np.float32)
    ids, table = np.arange(12) // 6, {0: [0.5, 0.5], 1: [0.5, 0.5]}
    bags = Bags.from_dataset(list(x), ids, table) if lazy else Bags.from_rows(x, ids, table)
    with pytest.raises(DataError, match="its channels seem to be last") as caught:
        LLPClassifier(epochs=1).fit(bags)
    told = str(caught.value)
    assert ("np.moveaxis(x, -1, 0)" in told) == lazy
    assert ("np.moveaxis(x, -1, 1)" in told) != lazy
    assert 'model=lambda bags: apportion.build_net("resnet18", bags, channels=8).' in told
    own: Any = LLPClassifier(epochs=1, model=lambda b: build_net("resnet18", b, channels=8))
    assert own.fit(bags).model_.net.recipe["channels"] == 8
