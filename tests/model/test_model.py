"""A Model: what it takes, what it refuses, and that its file is checked before it is used."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from apportion import Bags, Model, build_net
from apportion.data.encoding import encode, learn_columns
from apportion.errors import BagError, DataError, RunError
from apportion.model.model import describe_parts
from apportion.nets.average import Average
from apportion.runs.header import seal

FRAME = pd.DataFrame({"age": [30.0, np.nan, 50, 41], "job": ["cook", "nurse", "cook", "clerk"]})


def of_a_table():
    columns = learn_columns(FRAME)
    x = encode(columns, FRAME)
    bags = Bags.from_rows(x, list("aabb"), truth=["no", "yes", "no", "no"])
    bags = bags.with_rows(x, columns)
    net = build_net("mlp", bags, seed=3)
    return Model(net, bags.classes, describe_parts(bags), columns=columns, device="cpu"), bags


def of_an_array(**options):
    x = np.random.default_rng(0).normal(size=(40_000, 3)).astype(np.float32)
    return Model(nn.Linear(3, 2).eval(), ["a", "b"], describe_parts(in_bags(x)), **options), x


def in_bags(x):
    return Bags.from_rows(x, np.zeros(len(x), int), {0: [0.5, 0.5]})


# ------------------------------------------------------------------------------ predictions


def test_probabilities_are_those_of_the_net_however_many_rows_there_are():
    model, x = of_an_array(device="cpu")
    with torch.no_grad():
        logits = x.astype(np.float64) @ model.net.weight.double().numpy().T
        logits += model.net.bias.double().numpy()
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(x), expected, atol=1e-6)
    assert model.predict(x).tolist() == [("a", "b")[k] for k in expected.argmax(axis=1)]


def test_rows_of_a_table_instances_and_bags_mean_the_same():
    model, bags = of_a_table()
    expected = model.predict_proba(FRAME)
    np.testing.assert_array_equal(model.predict_proba(FRAME[["job", "age"]]), expected)
    np.testing.assert_array_equal(model.predict_proba(bags.x), expected)
    np.testing.assert_array_equal(model.predict_proba(bags), expected)
    other = Bags.from_members(bags.x, [[3, 0], [0, 1, 2]], [[0.5, 0.5]] * 2)
    np.testing.assert_allclose(model.confidence(other), expected[[3, 0, 0, 1, 2]], atol=1e-7)


def test_instances_of_another_kind_are_refused():
    model, bags = of_a_table()
    plain, x = of_an_array()
    no_rows = Bags.from_rows(None, ["a"], {"a": [1.0]})
    other = learn_columns(FRAME[["age"]])
    read_otherwise = bags.with_rows(encode(other, FRAME), other)
    for asked, of, message in (
        (plain, FRAME, "x is a DataFrame, but the model was trained on arrays"),
        (model, FRAME.to_numpy(), "column 'job' is one of categories.\n.*age, job"),
        (model, read_otherwise, "other columns than the model's: .*columns=model.columns"),
        (plain, x[:, :2], r"\(axes, features\) \[\(2, 2\)\], but the model takes \[\(2, 3\)\]"),
        (plain, (x, x), r"\(axes, features\)"),
    ):
        with pytest.raises(DataError, match=f"(?s){message}"):
            asked.predict_proba(of)
    with pytest.raises(DataError, match=r"\(axes, features\)"):
        plain.confidence(in_bags(x[:, :2]))
    for asked in (plain.predict_proba, plain.confidence):
        with pytest.raises(BagError, match=r"x is None: only how 1 row.*\n.*with_rows"):
            asked(no_rows)


def test_confidences_that_are_not_finite_are_counted():
    model, x = of_an_array()
    x[[7, 30_000]] = np.nan
    with pytest.raises(DataError, match="of 2 rows are not finite; row 7 is the first"):
        model.predict_proba(x)


# ------------------------------------------------------------------------------------ files


def test_a_file_holds_everything_but_the_device(tmp_path):
    model, _ = of_a_table()
    model.epoch = 12
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m", device="cpu")
    assert (again.classes, again.epoch) == (("no", "yes"), 12)
    assert (again.parts, again.columns) == (model.parts, model.columns)
    np.testing.assert_array_equal(again.predict_proba(FRAME), model.predict_proba(FRAME))
    model.save(tmp_path / "twice")
    assert (tmp_path / "m").read_bytes() == (tmp_path / "twice").read_bytes()


def test_a_file_holds_whether_the_net_looks_at_mirror_images(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (6, 3, 8, 8), dtype=np.uint8)
    net = build_net("resnet18", in_bags(x), stem="cifar", mirror=True)
    model = Model(net, ["a", "b"], describe_parts(in_bags(x)), device="cpu")
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m", device="cpu")
    given = again.predict_proba(x)
    np.testing.assert_array_equal(given, model.predict_proba(x))
    np.testing.assert_allclose(given, again.predict_proba(x[..., ::-1].copy()), atol=1e-5)
    net.network.mirror = False  # type: ignore[assignment]
    assert np.abs(given - model.predict_proba(x)).max() > 1e-3


def test_class_names_of_numpy_are_kept_as_what_they_are(tmp_path):
    bags = in_bags(np.eye(3, dtype=np.float32))
    model = Model(build_net("mlp", bags), np.array([7, 9]), describe_parts(bags))  # type: ignore[arg-type]
    model.save(tmp_path / "m")
    assert Model.load(tmp_path / "m").classes == (7, 9)


def test_what_no_file_can_keep_is_refused_before_anything_is_written(tmp_path):
    model, _ = of_an_array()
    model.classes = ("a", ("b", 1))
    for write in (model.save, model.to_onnx):
        with pytest.raises(RunError, match=r"class \('b', 1\) is a tuple"):
            write(tmp_path / "m")
    with pytest.raises(RunError, match="is a folder"):
        of_an_array()[0].save(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        {"classes": 7},
        {"classes": ["a", ["b"]]},
        {"classes": None},
        {"parts": 5},
        {"parts": []},
        {"parts": [{"shape": "x", "dtype": "float32"}]},
        {"parts": [{"shape": [3]}]},
        {"parts": [{"shape": [3], "dtype": "U3"}]},
        {"epoch": "x"},
        {"columns": {"names": 3}},
    ],
    ids=str,
)
def test_a_header_that_is_damaged_is_refused_with_the_name_of_the_file(tmp_path, change):
    model, _ = of_a_table()
    path = tmp_path / "m"
    model.save(path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["apportion"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, {"apportion": json.dumps({**header, **change})})
    seal(path)
    with pytest.raises(RunError, match=rf"{path} has a damaged header: .*\n  Pass a file that"):
        Model.load(path)
    (entry,) = change
    del header[entry]
    save_file(tensors, path, {"apportion": json.dumps(header)})
    seal(path)
    if entry == "columns":
        assert Model.load(path).columns is None
    else:
        with pytest.raises(RunError, match=f"damaged header: lacks '{entry}'"):
            Model.load(path)


def test_a_net_of_ones_own_must_be_given_and_be_the_one_that_was_trained(tmp_path):
    model, x = of_an_array(device="cpu")
    path = tmp_path / "m"
    model.save(path)
    with pytest.raises(RunError, match=r"none of apportion's.\n.*Model.load\(path, net=…\)"):
        Model.load(path)
    with pytest.raises(RunError, match=r"m has the weights of another net: weight is .*\(2, 3\)"):
        Model.load(path, net=nn.Linear(4, 2))
    with pytest.raises(RunError, match="net cannot be called without arguments"):
        Model.load(path, net=lambda bags: nn.Linear(3, 2))  # type: ignore[arg-type, misc]
    with pytest.raises(RunError, match="net returned a list"):
        Model.load(path, net=list)  # type: ignore[arg-type]
    again = Model.load(path, net=lambda: nn.Linear(3, 2), device="cpu")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))


def test_a_file_that_is_not_there_or_not_a_model_is_named(tmp_path):
    with pytest.raises(RunError, match=r"gone does not exist.\n.*the folder of a run"):
        Model.load(tmp_path / "gone")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(RunError, match="text is damaged or cut short"):
        Model.load(tmp_path / "text")
    with pytest.raises(RunError, match="is not a run folder: it has no config"):
        Model.load(tmp_path)


def test_weights_that_share_memory_are_saved_each_for_itself(tmp_path):
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    Model(net, "abc", [{"shape": [3], "dtype": "float32"}]).save(tmp_path / "m")
    found = load_file(tmp_path / "m")
    assert found.keys() == net.state_dict().keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in net.state_dict().items())


# ------------------------------------------------------------- what is read back is checked first


def resaved(path, header=None, tensors=None):
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["apportion"])
        own = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    recipe = {**about["recipe"], **(header or {}).pop("recipe", {})}
    about = {**about, **(header or {}), "recipe": recipe}
    save_file({**own, **(tensors or {})}, path, {"apportion": json.dumps(about)})
    seal(path)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"recipe": {"hidden": [2**31 - 1]}}, r"network.1.bias is .* there and .*\(2147483647,\)"),
        ({"recipe": {"hidden": [2**31 - 1] * 2}}, "overflow"),
        ({"recipe": {"hidden": [1] * 1000}}, "1,000 layers have 6 weights"),
        ({"recipe": {"mean_shape": [2**31 - 1]}}, "recipe of no net for its instances"),
        ({"recipe": {"net": "resnet18"}}, "recipe of no net .*: the recipe of resnet18 lacks"),
        ({"recipe": {"features": 7}}, "recipe of no net for its instances"),
        ({"recipe": {"classes": 3}}, r"logits of shape \(3,\) for 2 classes"),
        ({"classes": ["a", "b", "c"]}, r"logits of shape \(2,\) for 3 classes"),
        ({"classes": ["a", "a"]}, "a class is named twice"),
        ({"columns": None, "parts": [{"shape": [2**31 - 1], "dtype": "float32"}]}, "no net for"),
        ({"parts": [{"shape": [1], "dtype": "float32"}]}, "columns are not those of the parts"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_sizes_are_compared_before_memory_is_taken(tmp_path, header, words):
    path = tmp_path / "m"
    of_a_table()[0].save(path)
    resaved(path, {**header})
    with pytest.raises(RunError, match=f"{path} .*{words}"):
        Model.load(path)


@pytest.mark.parametrize(
    "change", [lambda t: t * math.nan, lambda t: t.double(), lambda t: t.to(torch.complex64)]
)
def test_weights_are_finite_and_of_the_types_of_the_net(tmp_path, change):
    path = tmp_path / "m"
    of_a_table()[0].save(path)
    weight = load_file(path)["network.1.weight"]
    resaved(path, tensors={"network.1.weight": change(weight)})
    with pytest.raises(RunError, match=f"{path} .*network.1.weight"):
        Model.load(path)


def test_a_mask_of_ones_own_net_may_be_infinite(tmp_path):
    class Masked(nn.Linear):
        def __init__(self):
            super().__init__(3, 2)
            self.register_buffer("mask", torch.tensor([0.0, -math.inf]))

    path = tmp_path / "m"
    Model(Masked(), "ab", [{"shape": [3], "dtype": "float32"}]).save(path)
    mask = Model.load(path, net=Masked).net.state_dict()["mask"]
    assert mask.tolist() == [0, -math.inf]


def test_a_net_of_ones_own_has_one_logit_per_class():
    model = Model(nn.Linear(3, 1), "abc", [{"shape": [3], "dtype": "float32"}], device="cpu")
    with pytest.raises(DataError, match=r"logits of shape \(2, 1\), not \(2, 3\)"):
        model.predict_proba(np.zeros((2, 3), np.float32))


# ------------------------------------------------------------------------------------------ threads


@pytest.mark.parametrize("kind", ["mlp", "average", "own"])
def test_threads_share_a_model_and_find_the_bits_that_one_finds(kind, monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 5)), columns=list("abcde"))
    columns = learn_columns(frame)
    bags = Bags.from_rows(encode(columns, frame), np.arange(40) // 4, truth=np.arange(40) % 2)
    bags = bags.with_rows(bags.x, columns)
    nets = [build_net("mlp", bags, seed=seed) for seed in range(4)]
    own = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
    net: nn.Module = {"mlp": nets[0], "average": Average([nets]), "own": own}[kind]
    model = Model(net.eval(), bags.classes, describe_parts(bags), columns=columns, device="cpu")
    rows = [frame.iloc[k : k + 1] for k in range(40)]
    expected = [model.predict_proba(row) for row in rows]

    def refuse(*_):
        raise AssertionError("a prediction changes what threads share")

    monkeypatch.setattr(nn.Module, "train", refuse)
    monkeypatch.setattr(nn.Module, "_apply", refuse)
    monkeypatch.setattr(torch, "set_num_threads", refuse)
    together = Barrier(8)

    def predict(thread):
        together.wait()
        order = np.random.default_rng(thread).permutation(40)
        return [(k, model.predict_proba(rows[k] if k % 2 else rows[k].to_numpy())) for k in order]

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(predict, range(8)):
            for k, confidence in found:
                assert confidence.tobytes() == expected[k].tobytes()


# ------------------------------------------------------------------------------------- Datasets


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.ahead, self.behind = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, *, first, second):
        return self.ahead(first) - self.behind(second)


def model_by_name():
    items = [{"second": torch.rand(4), "first": torch.rand(4)} for _ in range(6)]
    bags = Bags.from_dataset(items, list("aabbcc"), {bag: [0.5, 0.5] for bag in "abc"})
    return Model(ByName().eval(), bags.classes, describe_parts(bags)), bags, items


def test_parts_with_names_are_kept_in_the_file(tmp_path):
    model, bags, items = model_by_name()
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model", net=ByName)
    assert loaded.names == ("second", "first")
    np.testing.assert_array_equal(loaded.predict_proba(bags), model.predict_proba(bags))
    whole = tuple(torch.stack([item[name] for item in items]) for name in loaded.names)
    np.testing.assert_allclose(loaded.predict_proba(whole), model.predict_proba(bags), atol=1e-6)
    assert not loaded.net._forward_pre_hooks


def test_parts_with_names_are_inputs_of_onnx_in_their_order(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, bags, items = model_by_name()
    session = onnxruntime.InferenceSession(model.to_onnx(tmp_path / "model.onnx"))
    inputs = [own.name for own in session.get_inputs()]
    whole = (torch.stack([item[name] for item in items]).numpy() for name in model.names or ())
    found = session.run(None, dict(zip(inputs, whole, strict=True)))
    probabilities = next(own for own in found if np.shape(own) == (6, 2) and own.min() >= 0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(probabilities, model.predict_proba(bags), atol=1e-5)


def test_a_name_of_a_part_is_a_text():
    with pytest.raises(RunError, match="is no name of a part"):
        Model(ByName(), ["a", "b"], [{"shape": [4], "dtype": "float32", "name": 3}])
