"""What is exported computes what torch does, on any batch, and says what it is."""

import copy
import json
import logging
import sys
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import apportion
from apportion import Bags
from apportion.bags.columns import Columns
from apportion.data.encoding import encode, learn_columns
from apportion.errors import ApportionError, RunError
from apportion.model import onnx as export
from apportion.model._onnx_graph import on_cpu
from apportion.model.model import Model
from apportion.nets.average import Average
from apportion.nets.build import build_net
from apportion.nets.mlp import mlp
from apportion.nets.normalized import Normalized
from apportion.nets.resnet import conv1d, resnet18
from apportion.nets.summary import Summary

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

slow = pytest.mark.slow
NEAR = 1e-5
CATEGORIES = [3, 7, 2]


# ------------------------------------------------------------------------------- models and data


class Own(nn.Module):
    """A user's module, of tokens and of a signal, with layers that ours do not have."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 6)
        self.recurrent = nn.GRU(6, 8, batch_first=True)
        self.signal = nn.Sequential(
            nn.Conv1d(2, 8, 5), nn.BatchNorm1d(8), nn.GELU(), nn.MaxPool1d(2), nn.Dropout(0.5)
        )
        self.norm = nn.LayerNorm(8 + 8 * 18)
        self.head = nn.Linear(8 + 8 * 18, 4)

    def forward(self, tokens, signal):
        words = self.recurrent(self.embedding(tokens.long()))[0][:, -1]
        return self.head(self.norm(torch.cat([words, self.signal(signal).flatten(1)], dim=1)))


def write_onnx(net, path, *, parts, classes, columns=None, force=False):
    return Model(net, classes, parts, columns=columns).to_onnx(path, force=force)


def part(dtype, *shape):
    return {"shape": list(shape), "dtype": dtype}


def around(mean, std, *shape):
    """A mean and a standard deviation for every channel or column, all of them different."""
    steps = np.linspace(0.5, 1.5, shape[0]).reshape(shape)
    return {"mean": mean * steps, "std": std * steps}


def averaged(**categories):
    """An average of two groups of perceptrons, with and without a shortcut, and calibrated."""
    x = np.random.default_rng(0).normal(5.0, 30.0, (6, 4))
    codes = np.array([CATEGORIES]) - 1
    bags = Bags.from_members(
        (x, np.repeat(codes, 6, 0)) if categories else x, [range(6)], [[0.2] * 5]
    )
    nets = [
        build_net("mlp", bags, seed=seed, hidden=[8], skip=seed > 1, **categories)
        for seed in range(3)
    ]
    net = Average([nets[:2], nets[2:]])
    net.slope.fill_(1.5)
    net.bias.copy_(torch.linspace(-1, 1, 5))
    return net


MODELS = {
    "mlp": (
        lambda: Normalized(mlp(14, 5, hidden=[32, 16]), **around(50.0, 20.0, 14)),
        [part("float32", 14)],
        ["numbers"],
    ),
    "mixed": (
        lambda: Normalized(mlp(4, 5, categories=CATEGORIES), **around(50.0, 20.0, 4)),
        [part("float32", 4), part("int16", 3)],
        ["numbers", "codes"],
    ),
    "codes alone": (
        lambda: Normalized(mlp(0, 5, categories=CATEGORIES), mean=[], std=[]),
        [part("float32", 0), part("int16", 3)],
        ["numbers", "codes"],
    ),
    "mixed skip": (
        lambda: Normalized(mlp(4, 5, categories=CATEGORIES, skip=True), **around(50.0, 20.0, 4)),
        [part("float32", 4), part("int16", 3)],
        ["numbers", "codes"],
    ),
    "average": (averaged, [part("float32", 4)], ["numbers"]),
    "average mixed": (
        lambda: averaged(categories=CATEGORIES),
        [part("float32", 4), part("int16", 3)],
        ["numbers", "codes"],
    ),
    "resnet18": (
        lambda: Normalized(resnet18(10), **around(120.0, 60.0, 3, 1, 1)),
        [part("uint8", 3, 32, 32)],
        ["images"],
    ),
    "resnet18 cifar": (
        lambda: Normalized(resnet18(10, stem="cifar"), **around(120.0, 60.0, 3, 1, 1)),
        [part("uint8", 3, 16, 16)],
        ["images"],
    ),
    "resnet18 mirror": (
        lambda: Normalized(resnet18(10, stem="cifar", mirror=True), **around(120.0, 60.0, 3, 1, 1)),
        [part("uint8", 3, 16, 16)],
        ["images"],
    ),
    "conv1d": (
        lambda: Normalized(conv1d(13, 10), **around(2.0, 3.0, 13, 1)),
        [part("float32", 13, 93)],
        ["frames"],
    ),
    "conv1d short": (
        lambda: Normalized(conv1d(2, 3), **around(2.0, 3.0, 2, 1)),
        [part("float64", 2, 7)],
        ["frames"],
    ),
    "conv1d masked": (
        lambda: Normalized(conv1d(13, 10, masked=True), **around(2.0, 3.0, 13, 1)),
        [part("float32", 13, 93), part("int64")],
        ["frames", "lengths"],
    ),
    "summary": (
        lambda: Normalized(Summary(3, 4), **around(2.0, 3.0, 3, 1)),
        [part("float32", 3, 20)],
        ["frames"],
    ),
    "summary masked": (
        lambda: Normalized(Summary(3, 4, masked=True), **around(2.0, 3.0, 3, 1)),
        [part("float32", 3, 20), part("int64")],
        ["frames", "lengths"],
    ),
    "own": (Own, [part("int32", 9), part("float32", 2, 40)], ["x0", "x1"]),
}
CLASSES = {"mlp": 5, "mixed": 5, "codes alone": 5, "conv1d short": 3, "own": 4}
CLASSES |= {"summary": 4, "summary masked": 4}
CLASSES |= {"mixed skip": 5, "average": 5, "average mixed": 5}
CLASSES |= {
    "resnet18 mirror": 10,
    "resnet18": 10,
    "resnet18 cifar": 10,
    "conv1d": 10,
    "conv1d masked": 10,
}
FAST = ("mixed", "average mixed", "conv1d", "summary masked")
OF_SIGNALS = ["conv1d", "conv1d short", "conv1d masked", "summary", "summary masked"]


def drawn(name, size, rng, *, length=None, extreme=False):
    """Instances as they are stored: usual ones, or of the values at the ends of what there is."""
    _, parts, names = MODELS[name]
    found: list[np.ndarray] = []
    for called, one in zip(names, parts, strict=True):
        dtype, shape = np.dtype(one["dtype"]), (size, *one["shape"])
        if called == "frames" and length is not None:
            shape = (*shape[:2], length)
        if called == "lengths":
            most = found[0].shape[2]
            values = rng.choice([1, most], shape) if extreme else rng.integers(1, most + 1, shape)
        elif called == "codes":
            values = rng.integers(0, np.array(CATEGORIES) + 3, shape)  # some are unknown
            values = rng.choice([0, -1, 2**15 - 1, 1], shape) if extreme else values
        elif dtype == np.uint8:
            values = rng.choice([0, 255], shape) if extreme else rng.integers(0, 256, shape)
        elif dtype.kind == "i":
            values = rng.integers(0, 20, shape)
        else:
            values = rng.normal(5.0, 30.0, shape)
            values = values * rng.choice([0.0, 10.0], shape) if extreme else values
        found.append(values.astype(dtype))
    return found


@cache
def made(name):
    """A model none of whose weights and statistics are at their first values."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = MODELS[name][0]()
        rng = np.random.default_rng(1)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.uniform_(-0.5, 0.5)
            for _ in range(5):
                model.train()(*map(torch.from_numpy, drawn(name, 32, rng)))
    return model.eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The file of a model, which is written once."""

    @cache
    def of(name):
        model = copy.deepcopy(made(name))
        path = tmp_path_factory.mktemp("onnx") / "model.onnx"
        return write_onnx(model, path, parts=MODELS[name][1], classes=range(CLASSES[name]))

    return of


def session_of(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def probabilities_of(model, batch):
    with torch.no_grad():
        return model.eval()(*map(torch.from_numpy, batch)).softmax(dim=1).numpy()


def some(names):
    return [n if n in FAST else pytest.param(n, marks=slow) for n in names]


# ------------------------------------------------------------------------------ the same numbers


@pytest.mark.parametrize("name", some(MODELS))
def test_it_computes_what_torch_does(name, exported):
    model, path, rng = made(name), exported(name), np.random.default_rng(7)
    session = session_of(path)
    names = [value.name for value in session.get_inputs()]
    assert names == MODELS[name][2]
    assert [value.name for value in session.get_outputs()] == ["probabilities", "label"]
    different = []
    for size in (1, 3, 64):
        for extreme in (False, True, False):
            batch = drawn(name, size, rng, extreme=extreme)
            given, label = session.run(None, dict(zip(names, batch, strict=True)))
            wanted = probabilities_of(model, batch)
            assert given.dtype == np.float32
            assert given.shape == wanted.shape
            assert np.abs(given - wanted).max() <= NEAR
            assert label.dtype == np.int64
            np.testing.assert_array_equal(label, given.argmax(axis=1))
            different.append(np.ptp(wanted, axis=0).max())
    assert max(different) > 0.05  # else it would be no wonder


@pytest.mark.parametrize("name", some(OF_SIGNALS))
def test_signals_may_be_of_any_length(name, exported):
    model, session, rng = made(name), session_of(exported(name)), np.random.default_rng(8)
    channels = MODELS[name][1][0]["shape"][0]
    assert session.get_inputs()[0].shape == ["batch", channels, "length"]
    for length in (1, 2, 5, 32, 33, 64, 93, 94, 300):
        batch = drawn(name, 3, rng, length=length)
        given = session.run(None, dict(zip(MODELS[name][2], batch, strict=True)))[0]
        assert np.abs(given - probabilities_of(model, batch)).max() <= NEAR


@pytest.mark.parametrize("name", some(OF_SIGNALS))
def test_torch_itself_takes_it_to_be_for_any_length(name, tmp_path, monkeypatch):
    """Else a graph that is right for any length would be so by luck."""
    programs: list[Any] = []
    monkeypatch.setattr(torch.onnx, "export", lambda program, **_: programs.append(program))
    with pytest.raises(RunError):
        write_onnx(made(name), tmp_path / "m", parts=MODELS[name][1], classes=range(CLASSES[name]))
    batch = drawn(name, 3, np.random.default_rng(0), length=120)
    given = programs[0].module()(*map(torch.from_numpy, batch))[0].detach().numpy()
    assert np.abs(given - probabilities_of(made(name), batch)).max() <= NEAR


@slow
def test_frames_behind_the_length_count_for_nothing(exported):
    session, rng = session_of(exported("conv1d masked")), np.random.default_rng(9)
    frames, lengths = drawn("conv1d masked", 8, rng)
    behind = np.arange(frames.shape[2]) >= lengths[:, None, None]
    given, other = (
        session.run(None, {"frames": np.where(behind, value, frames), "lengths": lengths})[0]
        for value in (np.float32(0), np.float32(1e6))
    )
    np.testing.assert_allclose(given, other, atol=1e-6)


def test_codes_that_are_missing_or_unknown_count_as_none(exported):
    session = session_of(exported("mixed"))
    numbers = np.full((4, 4), 30, np.float32)
    codes = np.array([[0, 2, 1], [3, 2, 1], [-5, 2, 1], [2**15 - 1, 2, 1]], np.int16)
    given = session.run(None, {"numbers": numbers, "codes": codes})[0]
    np.testing.assert_array_equal(given, np.repeat(given[:1], 4, axis=0))
    codes[:, 0] = 1
    known = session.run(None, {"numbers": numbers, "codes": codes})[0]
    assert np.abs(known - given).max() > 0.01


@slow
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64", "float64", "float16"])
def test_numbers_may_be_of_any_type(dtype, tmp_path):
    model = made("mlp")
    path = write_onnx(model, tmp_path / "m.onnx", parts=[part(dtype, 14)], classes=range(5))
    x = np.random.default_rng(0).integers(0, 100, (3, 14)).astype(dtype)
    given = session_of(path).run(["probabilities"], {"numbers": x})[0]
    assert np.abs(given - probabilities_of(model, [x])).max() <= NEAR


# ------------------------------------------------------------------------------- what it says

FRAME = pd.DataFrame(
    {"age": [30, None, 50, 41], "job": ["cook", "nurse", "cook", "Bäcker"], "pay": [1.5, 2, 3, 9]}
)


def of_a_table():
    columns = learn_columns(FRAME)
    x = encode(columns, FRAME)
    model = build_net("mlp", Bags.from_rows(x, list("aabb"), truth=[0, 1, 0, 1]), hidden=[8])
    parts = [part("float32", 3), part("int16", 1)]
    return model, {"parts": parts, "classes": ["no", "später"], "columns": columns}


def test_rows_of_a_table_can_be_served_from_the_file_alone(tmp_path):
    model, about = of_a_table()
    session = session_of(write_onnx(model, tmp_path / "m.onnx", **about))
    said = session.get_modelmeta()
    assert json.loads(said.custom_metadata_map["classes"]) == ["no", "später"]
    assert said.custom_metadata_map["apportion"] == apportion.__version__
    assert "numbers, codes" in said.description
    columns = Columns.from_dict(json.loads(said.custom_metadata_map["columns"]))
    assert columns == about["columns"]
    numbers, codes = encode(columns, FRAME)
    assert numbers.shape == (4, 3)  # with the gaps of the ages
    given = session.run(None, {"numbers": numbers, "codes": codes})[0]
    assert np.abs(given - probabilities_of(model, [numbers, codes])).max() <= NEAR


def test_class_names_stay_texts_or_numbers(tmp_path):
    path = tmp_path / "m.onnx"
    kinds: list[Any] = [[0, 7.5], np.array(["x", "y"])]
    for classes in kinds:
        write_onnx(nn.Linear(2, 2), path, parts=[part("float32", 2)], classes=classes, force=True)
        (said,) = [p.value for p in onnx.load(path).metadata_props if p.key == "classes"]
        assert json.loads(said) == list(classes)


def test_it_is_one_valid_file_without_a_trace_of_the_source(exported):
    path = exported("conv1d")
    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]
    onnx.checker.check_model(str(path), full_check=True)
    data = path.read_bytes()
    for trace in (b"site-packages", b".py", b"apportion/", b"pkg.torch"):
        assert trace not in data
    graph = onnx.load(path).graph
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert shapes == {
        "frames": ["batch", 13, "length"],
        "probabilities": ["batch", 10],
        "label": ["batch"],
    }


def test_nothing_is_printed_and_nothing_is_left_changed(tmp_path, capfd, caplog):
    model = copy.deepcopy(made("mixed"))
    model.train()
    model.network[1].eval()  # a mixture of modes is the caller's as well
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    random, threads = torch.get_rng_state(), torch.get_num_threads()
    write_onnx(model, tmp_path / "m.onnx", parts=MODELS["mixed"][1], classes=range(5))
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(w.requires_grad and w.grad is None for w in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_weights_of_a_gpus_layout_are_brought_into_that_of_the_cpu():
    network: Any = nn.Conv2d(8, 8, 3)
    network.to(memory_format=torch.channels_last)
    copied: Any = on_cpu(network)
    assert copied.weight.is_contiguous()
    assert not network.weight.is_contiguous()
    assert torch.equal(copied.weight, network.weight)


def test_a_model_in_training_mode_is_exported_for_evaluation(tmp_path):
    model = nn.Sequential(nn.Dropout(0.9), nn.Linear(3, 2), nn.BatchNorm1d(2)).train()
    path = write_onnx(model, tmp_path / "m.onnx", parts=[part("float32", 3)], classes="ab")
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    given = session_of(path).run(["probabilities"], {"numbers": x})[0]
    assert np.abs(given - probabilities_of(copy.deepcopy(model), [x])).max() <= NEAR


# -------------------------------------------------------------------------------------- the file

LINEAR: dict[str, Any] = {"parts": [part("float32", 2)], "classes": "ab"}


def test_a_file_is_replaced_only_by_force(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_text("mine")
    with pytest.raises(RunError, match=r"m\.onnx already exists.\n.*force=True"):
        write_onnx(nn.Linear(2, 2), path, **LINEAR)
    assert path.read_text() == "mine"
    assert write_onnx(nn.Linear(2, 2), str(path), force=True, **LINEAR) == path
    onnx.checker.check_model(str(path))
    assert list(tmp_path.iterdir()) == [path]


def test_weights_that_are_too_many_go_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "ONE_FILE", 10_000)
    model = nn.Sequential(nn.Linear(2, 5000), nn.ReLU(), nn.Linear(5000, 2))
    path = write_onnx(model, tmp_path / "m.onnx", **LINEAR)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert path.stat().st_size < 10_000
    x = np.ones((3, 2), np.float32)
    given = session_of(path).run(["probabilities"], {"numbers": x})[0]
    assert np.abs(given - probabilities_of(model, [x])).max() <= NEAR
    path.unlink()
    with pytest.raises(RunError, match=r"m\.onnx\.data already exists"):
        write_onnx(model, path, **LINEAR)
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx.data"]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(RunError, match=r"gone, the folder of m\.onnx, does not exist"):
        write_onnx(nn.Linear(2, 2), tmp_path / "gone" / "m.onnx", **LINEAR)
    with pytest.raises(RunError, match="is a folder"):
        write_onnx(nn.Linear(2, 2), tmp_path, **LINEAR)


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    path = tmp_path / "m.onnx"
    path.write_text("old")
    monkeypatch.setattr(onnx, "save_model", full)
    with pytest.raises(RunError, match=r"m\.onnx cannot be written: No space left on device"):
        write_onnx(nn.Linear(2, 2), path, force=True, **LINEAR)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"


# -------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("name", ["onnx", "onnxscript"])
def test_what_is_not_installed_is_named_with_its_remedy(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RunError, match=rf"with {name},.*\n.*pip install 'apportion\[onnx\]'"):
        write_onnx(nn.Linear(2, 2), tmp_path / "m.onnx", **LINEAR)
    assert issubclass(RunError, ApportionError)


class Wrong(nn.Module):
    """A model that does not do what its graph says."""

    def __init__(self, what):
        super().__init__()
        self.what = what
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        x = self.linear(x)
        if self.what == "other for one row" and x.shape[0] == 1:
            return 2 * x + 1
        if self.what == "random":
            return x + torch.rand(2)
        if self.what == "len":
            return x + torch.zeros(len(x), 2)
        if self.what == "branch" and x.sum() > 0:
            return -x
        return x


@pytest.mark.parametrize("what", ["other for one row", "random"])
def test_a_graph_that_computes_something_else_is_refused(what, tmp_path):
    torch.manual_seed(0)
    with pytest.raises(RunError, match=r"differ by 0\.\d+ from torch's, on a batch of"):
        write_onnx(Wrong(what), tmp_path / "m.onnx", **LINEAR)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["len", "branch"])
def test_a_model_that_torch_cannot_export_is_refused(what, tmp_path, capfd):
    with pytest.raises(RunError, match=r"(?s)torch cannot export the model.*x\.shape\[0\]"):
        write_onnx(Wrong(what), tmp_path / "m.onnx", **LINEAR)
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


def test_the_net_of_an_average_that_torch_cannot_export_is_named(tmp_path):
    bags = Bags.from_members(np.eye(2), [range(2)], [[0.5, 0.5]])
    good, bad = (build_net("mlp", bags) for _ in range(2))
    bad.network = Wrong("branch")
    with pytest.raises(RunError, match=r"torch cannot export groups\.1\.0 of the average"):
        write_onnx(Average([[good], [bad, good]]), tmp_path / "m.onnx", **LINEAR)
    assert not list(tmp_path.iterdir())


def test_without_onnxruntime_the_file_is_checked_for_soundness(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    checked = []
    monkeypatch.setattr(onnx.checker, "check_model", lambda *a, **k: checked.append((a, k)))
    assert write_onnx(nn.Linear(2, 2), tmp_path / "m.onnx", **LINEAR).exists()
    assert len(checked) == 1


def test_a_file_that_does_not_run_is_refused(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise ValueError("no kernel")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fails)
    with pytest.raises(RunError, match="does not run the exported model: ValueError: no kernel"):
        write_onnx(nn.Linear(2, 2), tmp_path / "m.onnx", **LINEAR)
    assert not list(tmp_path.iterdir())


def test_large_logits_have_fewer_digits_to_agree_in(tmp_path, monkeypatch):
    session: Any = onnxruntime.InferenceSession
    run = session.run
    monkeypatch.setattr(session, "run", lambda *asked: [5e-5 + given for given in run(*asked)])
    model = nn.Linear(2, 2)
    with pytest.raises(RunError, match=r"differ by 5e-05 from torch's, on a batch of 1"):
        write_onnx(model, tmp_path / "m.onnx", **LINEAR)
    model.state_dict()["bias"].add_(100)  # to both: nothing changes but the digits
    assert write_onnx(model, tmp_path / "m.onnx", **LINEAR).exists()


def test_a_model_of_other_instances_or_classes_is_refused(tmp_path):
    path, one = tmp_path / "m.onnx", [part("float32", 2)]
    with pytest.raises(RunError, match=r"take a batch of shape \(1, 3\) float32: RuntimeError"):
        write_onnx(nn.Linear(2, 2), path, parts=[part("float32", 3)], classes="ab")
    with pytest.raises(RunError, match=r"shape \(1, 2\) for a batch of 1, but there are 3 cl"):
        write_onnx(nn.Linear(2, 2), path, parts=one, classes="abc")
    with pytest.raises(RunError, match=r"class \('b',\) is a tuple"):
        write_onnx(nn.Linear(2, 2), path, parts=one, classes=["a", ("b",)])
    wrong: list[Any] = [{"shape": [2]}, part("text", 2), part("U3", 2), "x", part("int8", "x")]
    for one_of_them in wrong:
        with pytest.raises(RunError, match=r"(?s)parts is .*Pass one mapping per part"):
            write_onnx(nn.Linear(2, 2), path, parts=[one_of_them], classes="ab")
    with pytest.raises(RunError, match="parts is empty"):
        write_onnx(nn.Linear(2, 2), path, parts=[], classes="ab")
    model, about = of_a_table()
    with pytest.raises(RunError, match=r"rows of shape \[\(3,\), \(1,\)\], but .* \[\(3,\)\]"):
        write_onnx(model, path, **{**about, "parts": about["parts"][:1]})
    assert not list(tmp_path.iterdir())
