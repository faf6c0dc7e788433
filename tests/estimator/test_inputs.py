"""What an estimator is given: instances as arrays, and targets as bags."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from apportion import Bags, LLPClassifier
from apportion.data.encoding import learn_columns
from apportion.data.tables import read_table
from apportion.errors import BagError, ConfigError, DataError
from apportion.estimator.inputs import encode_rows, n_rows_of, read_rows
from apportion.model.model import Model, describe_parts

X = np.arange(12.0).reshape(6, 2)
BAG = np.array(["b", "a", "b", "a", "b", "a"])


def given(data) -> tuple[Any, Any, Any]:
    """What `fit` makes of instances, and an estimator that was fitted on them."""
    estimator = LLPClassifier()
    rows = read_rows(estimator, data, reset=True)
    x, columns = rows, data.columns if isinstance(data, Bags) else None
    if not isinstance(data, Bags):
        one_bag = Bags.from_rows(None, np.zeros(n_rows_of(rows), int), {0: [1.0]})
        x, columns = encode_rows(rows, one_bag, ())
    n = n_rows_of(x)
    parts = describe_parts(Bags.from_rows(x, np.zeros(n, int), {0: [1.0]}))
    estimator.model_ = Model(nn.Identity(), [0], parts, columns=columns)
    return x, columns, estimator


def again(estimator, data) -> Any:
    """What `predict` makes of instances."""
    rows = read_rows(estimator, data, reset=False)
    parts = estimator.model_._instances(data if isinstance(data, Bags) else rows)
    return parts if len(parts) > 1 else parts[0]


# ------------------------------------------------------------------------------------- instances


def test_arrays_and_frames_of_numbers_are_the_same():
    x, columns, _ = given(X)
    assert x.dtype == np.float32
    assert np.array_equal(x, X)
    y, named, _ = given(pd.DataFrame(X, columns=["u", "v"]))
    assert np.array_equal(x, y)
    assert (columns.names, named.names) == (("0", "1"), ("u", "v"))


def test_arrays_are_read_by_position_where_frames_were_learned_from():
    _, _, estimator = given(pd.DataFrame(X, columns=["u", "v"]))
    with pytest.warns(UserWarning, match="valid feature names"):
        x = again(estimator, X[:2])
    assert np.array_equal(x, X[:2])


def test_missing_numbers_are_filled_with_what_was_learned():
    holes = X.copy()
    holes[0, 0] = np.nan
    x, _, estimator = given(holes)
    assert x.tolist()[0] == [X[1:, 0].mean(), 1.0, 1.0]
    assert x[1:, 2].tolist() == [0.0] * 5
    found = again(estimator, np.array([[np.nan, np.nan]]))
    assert found.tolist() == [[X[1:, 0].mean(), X[:, 1].mean(), 1.0]]


def test_frames_of_other_libraries_are_asked_for_pandas():
    frame = pd.DataFrame(X, columns=["u", "v"])
    x, columns, _ = given(SimpleNamespace(to_pandas=lambda: frame))
    assert np.array_equal(x, X)
    assert columns.names == ("u", "v")


def test_lazy_frames_are_collected():
    frame = pd.DataFrame({"x": np.repeat([0.0, 1.0], 20), "y": np.arange(40.0)})
    bags, wards = np.tile(["a", "b"], 20), pd.DataFrame({"bag": ["a", "b"], "no": [0.5, 0.5]})
    lazy = pl.from_pandas(frame).lazy()
    shares = pl.from_pandas(wards.assign(yes=0.5)).lazy()
    classifier = LLPClassifier(method="ridge").fit(lazy, bags=bags, proportions=shares)
    assert classifier.feature_names_in_.tolist() == ["x", "y"]
    likely = classifier.predict_proba(lazy, bags=bags, proportions=shares)
    np.testing.assert_allclose(
        likely, classifier.predict_proba(frame, bags=bags, proportions=wards.assign(yes=0.5))
    )


def test_a_constant_column_stays_if_it_is_to_be_kept():
    frame = pd.DataFrame({"k": 1.0, "u": X[:, 0]})
    bags = Bags.from_rows(None, np.zeros(6, int), {0: [1.0]})
    for keep, names in (((), ("u",)), (("k",), ("k", "u"))):
        columns = encode_rows(frame, bags, keep)[1]
        assert columns is not None
        assert columns.names == names


def test_more_dimensions_and_tuples_stay_as_they_are():
    images = np.zeros((4, 3, 8, 8), np.uint8)
    x, columns, _ = given(images)
    assert x.dtype == np.uint8
    assert columns is None
    x, columns, _ = given(([[1.0], [2.0]], [3, 4]))
    assert [part.tolist() for part in x] == [[[1.0], [2.0]], [3, 4]]
    assert columns is None


def test_bags_and_tables_bring_their_own():
    bags = Bags.from_rows(X, BAG, {"a": [0.5, 0.5], "b": [0.3, 0.7]})
    x, columns, _ = given(bags)
    assert x is bags.x
    assert columns is None
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(bag=BAG)
    table = read_table(frame, bag="bag", proportions={"a": [0.5, 0.5], "b": [0.3, 0.7]})
    x, columns, _ = given(table)
    assert x is table.x
    assert columns == learn_columns(frame[["u", "v"]])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (np.array([[np.inf, 1.0]]), ValueError, "infinity"),
        (pd.DataFrame({"a": [1.0, np.inf]}), ValueError, "'a'"),
        (np.array([["a", "b"]]), ValueError, "numeric values"),
        (np.empty((0, 3)), ValueError, "0 sample"),
        (pd.DataFrame({"a": []}), ValueError, "0 sample"),
        (pd.DataFrame(index=range(3)), ValueError, "0 feature"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), TypeError, "[Ss]parse"),
        (pd.DataFrame({"when": pd.period_range("2024", periods=1)}), ValueError, "'when'"),
        ([1.0, 2.0], ValueError, "2D"),
    ],
)
def test_what_cannot_be_read_is_named(data, error, message):
    with pytest.raises(error, match=message):
        given(data)


@pytest.mark.parametrize("kind", ["list", "lists", "objects"])
def test_signals_of_unequal_length_are_padded_first(kind):
    signals: Any = [np.ones((n, 2)) for n in (5, 3, 4)]
    if kind == "lists":
        signals = [signal.tolist() for signal in signals]
    elif kind == "objects":
        signals = np.array([*signals, None], dtype=object)[:3]
    with pytest.raises(DataError, match=r"(?s)shapes \(5, 2\) and \(3, 2\).*signals.pad\(X\)"):
        given(signals)
    with pytest.raises(DataError, match=r"signals.pad\(X\)"):
        given((signals, [5, 3, 4]))
    with pytest.raises(ValueError, match="inhomogeneous"):  # which is no signal at all
        given([[[1, 2], [1]], [[3, 4], [5]]])


def later(estimator, data) -> str:
    """How what `predict` cannot read is refused."""
    with pytest.raises(DataError) as caught:
        again(estimator, data)
    return str(caught.value)


def test_a_table_encoded_by_other_columns_is_refused():
    """Codes of categories are numbers: those of another table would be read, and mean others."""
    rows = pd.DataFrame({"town": ["x", "x", "y"], "bag": 0})
    others = pd.DataFrame({"town": ["y", "y", "x"], "bag": 0})
    first, second = (read_table(f, bag="bag", proportions={0: [0.5, 0.5]}) for f in (rows, others))
    _, columns, estimator = given(first)
    assert "columns=model.columns" in later(estimator, second)
    same = read_table(others, bag="bag", proportions={0: [0.5, 0.5]}, columns=columns)
    assert again(estimator, same)[1].ravel().tolist() == [2, 2, 1]
    assert again(estimator, others[["town"]])[1].ravel().tolist() == [2, 2, 1]


def test_nothing_is_learned_from_what_is_to_be_predicted():
    _, _, estimator = given((X, np.ones((6, 1), int)))
    assert "was trained on arrays" in later(estimator, pd.DataFrame(X, columns=["u", "v"]))
    assert "(axes, features)" in later(estimator, X)
    bags = Bags.from_rows(X, BAG, {"a": [0.5, 0.5], "b": [0.3, 0.7]})
    _, _, estimator = given(bags)
    assert again(estimator, np.array([[np.nan, 1.0]])).shape == (1, 2)


def test_text_needs_a_frame():
    _, _, estimator = given(pd.DataFrame({"u": [1.0], "town": ["x"]}))
    message = later(estimator, np.array([[1.0, "x"]], object))
    assert "'town'" in message
    assert "Pass a DataFrame with the columns u, town." in message


def test_names_of_an_earlier_fit_do_not_stay():
    estimator = LLPClassifier()
    read_rows(estimator, pd.DataFrame(X, columns=["u", "v"]), reset=True)
    assert estimator.n_features_in_ == 2
    read_rows(estimator, (X, X), reset=True)
    assert not hasattr(estimator, "n_features_in_")
    assert not hasattr(estimator, "feature_names_in_")
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(bag=0)
    read_rows(estimator, read_table(frame, bag="bag", proportions={0: [1, 0]}), reset=True)
    assert estimator.feature_names_in_.tolist() == ["u", "v"]


def test_a_column_that_is_there_twice_is_named():
    with pytest.raises(DataError, match="'u' occurs more than once"):
        given(pd.DataFrame(X, columns=["u", "u"]))


def test_masked_arrays_are_refused():
    X = np.ma.masked_array(np.eye(4), mask=np.eye(4) == 1)
    for given in (X, (np.eye(4), X)):
        with pytest.raises(BagError, match=r"X is a masked array; 4 values of 16"):
            read_rows(object(), given, reset=False)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("kind", ["uint8", "float32", "tensor", "list"])
def test_images_may_have_their_channels_last(caplog, channels, kind):
    rng = np.random.default_rng(0)
    last: Any = rng.integers(256, size=(20, 8, 9, channels)).astype("uint8")
    last = last if kind == "uint8" else last.astype("float32")
    first = np.moveaxis(last, -1, 1)
    last = torch.from_numpy(last) if kind == "tensor" else last
    given = last.tolist() if kind == "list" else last
    truth, ids = rng.integers(2, size=20), np.arange(20) // 5
    options: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu"}
    expected = LLPClassifier(**options).fit(first, truth, bags=ids)
    assert "last" not in caplog.text
    found = LLPClassifier(**options).fit(given, truth, bags=ids)
    said = [message for message in caplog.messages if "last" in message]
    (line,) = said
    assert f"of shape (20, 8, 9, {channels})," in line
    assert f"to (20, {channels}, 8, 9)" in line
    assert found.model_.parts[0]["shape"] == [channels, 8, 9]
    caplog.clear()
    for X in (first, last):
        np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(first))
    np.testing.assert_array_equal(found.predict_proba(given), expected.predict_proba(first))
    for X in (first, last):
        np.testing.assert_array_equal(found.model_.predict_proba(X), expected.predict_proba(first))
    assert not caplog.messages


def test_images_stay_as_they_are_for_a_net_of_ones_own():
    x = np.zeros((20, 8, 8, 3), np.float32)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    classifier = LLPClassifier(model=net, epochs=1).fit(x, np.arange(20) % 2, bags=np.arange(20))
    assert classifier.model_.parts[0]["shape"] == [8, 8, 3]
    assert classifier.predict_proba(x).shape == (20, 2)


def test_images_whose_channels_are_first_stay():
    for shape in ((3, 8, 3), (1, 4, 4), (4, 9, 1)):
        rows = read_rows(LLPClassifier(), np.zeros((5, *shape), np.uint8), reset=True)
        assert rows.shape == (5, *shape)


# -------------------------------------------------------------------------------------- Datasets


class Noisy(Dataset):
    """Items (x, y) with random noise, which notes what was read; y is no part of an instance."""

    def __init__(self, x, noise=0.5):
        self.x, self.noise, self.read = torch.as_tensor(x), noise, []

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        seen = self.x[row] + self.noise * torch.randn(self.x.shape[1:])
        self.read.append((row, seen))
        return seen, 7


def in_bags(n=60):
    truth = np.random.default_rng(0).random(n) < np.repeat(np.arange(6) / 5, n // 6)
    x = np.random.default_rng(1).normal(size=(n, 3)) + 2 * truth[:, None]
    table = {b: [1 - truth[b * 10 : b * 10 + 10].mean(), truth[b * 10 : b * 10 + 10].mean()]
             for b in range(6)}  # fmt: skip
    return (
        x.astype(np.float32),
        truth.astype(int),
        {"bags": np.repeat(np.arange(6), n // 6), "proportions": table},
    )


def one_net():
    def made(bags):  # with the same weights every time
        return nn.Linear(3, bags.n_classes)

    return LLPClassifier("fpl", epochs=3, model=made, random_state=0)


def test_items_of_a_dataset_are_read_anew_in_every_epoch_as_bags_of_them_are():
    x, _, known = in_bags()
    items = Noisy(x)
    found = one_net().fit(items, **known)
    seen = torch.stack([value for row, value in items.read if row == 5])
    assert len(torch.unique(seen, dim=0)) > 3
    bags = Bags.from_dataset(Noisy(x), known["bags"], known["proportions"])
    same = one_net().fit(bags)
    assert np.array_equal(found.predict_proba(x), same.predict_proba(x))
    assert found.model_.parts == ({"shape": [3], "dtype": "float32"},)
    assert found.plan_.net.value == "Linear"


def test_a_dataset_is_predicted_and_scored_as_its_rows_are():
    x, truth, known = in_bags()
    items = TensorDataset(torch.as_tensor(x), torch.as_tensor(truth))
    found = one_net().fit(TensorDataset(torch.as_tensor(x)), **known)
    assert np.array_equal(found.predict_proba(items), found.predict_proba(x))
    assert np.array_equal(found.predict(items), found.predict(x))
    assert np.array_equal(found.predict(items, **known), found.predict(x, **known))
    assert found.score(items, truth) == found.score(x, truth)
    assert found.score(items, **known) == found.score(x, **known)


def test_what_stands_in_the_place_of_a_dataset_is_named():
    x, _, known = in_bags()
    items = TensorDataset(torch.as_tensor(x))
    fitted = one_net().fit(items, **known)
    for ask in (lambda X: one_net().fit(X, **known), fitted.predict):
        with pytest.raises(BagError, match=r"DataLoader.*\n.*loader\.dataset"):
            ask(DataLoader(items))
        with pytest.raises(BagError, match="cannot be read by number"):
            ask(type("Stream", (IterableDataset,), {"__iter__": iter})())


def test_a_learner_has_no_use_for_items_that_are_read_lazily():
    x, _, known = in_bags()
    items = TensorDataset(torch.as_tensor(x))
    for given in (items, Bags.from_dataset(items, known["bags"], known["proportions"])):
        own = {} if isinstance(given, Bags) else known
        with pytest.raises(ConfigError, match=r"a LogisticRegression fits rows .*\n.*an array"):
            LLPClassifier(model=LogisticRegression()).fit(given, **own)
