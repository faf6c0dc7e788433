"""Features of nets, and the first labels that `fit` takes from them."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.data.signals import pad
from apportion.engine.batches import place
from apportion.errors import ConfigError, DataError
from apportion.labels.start import fit_features
from apportion.methods.pseudo_labels import FPL
from apportion.nets.build import build_net
from apportion.training import features as module
from apportion.training.features import bags_of, features_of, penultimate
from apportion.training.fit import fit
from tests.training.interrupted_runs import Interrupted, outcome, same_outcome, stop_after

CPU = torch.device("cpu")
CONFIG = TrainConfig(epochs=3, batch_size=32, device="cpu", threads=1)


def image_bags(n_bags=12, size=20, shape=(1, 6, 6), seed=0):
    """Images that are brighter in one corner, one for each of three classes."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), n_bags)
    truth = np.concatenate([rng.choice(3, size, p=own) for own in p])
    x = rng.normal(size=(len(truth), *shape)).astype(np.float32)
    for c, corner in enumerate([np.s_[..., :3], np.s_[..., 3:], np.s_[..., 2:4]]):
        x[truth == c] += np.where(np.isin(np.arange(6), np.arange(6)[corner]), 2, 0)
    return Bags.from_rows(x, np.repeat(np.arange(n_bags), size), truth=truth, classes=range(3))


BAGS = image_bags()


class OwnNet(nn.Module):
    """Its last layer was declared first, and what it returns is no longer that layer's tensor."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 3)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.head(self.drop(self.body(x))) / 2


def own_net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return OwnNet()


def placed(bags):
    return place((bags, None, None), CPU)[0]


def found_by(net, bags, most=7):
    with penultimate(net, placed(bags)) as features:
        return features_of(features, net, placed(bags), most)


@pytest.mark.parametrize(
    ("name", "shape", "width"),
    [("mlp", (1, 6, 6), 256), ("resnet18", (1, 6, 6), 512), ("conv1d", (2, 6), 512)],
)
def test_the_last_layer_makes_the_logits_of_the_nets_of_this_library(name, shape, width):
    bags = image_bags(n_bags=3, size=5, shape=shape)
    net: Any = build_net(name, bags, seed=0)
    found = found_by(net, bags)
    assert found.shape == (15, width)
    layer = [m for m in net.modules() if isinstance(m, nn.Linear)][-1]
    with torch.no_grad():
        logits = net.eval()(torch.from_numpy(bags.x))
        torch.testing.assert_close(layer(torch.from_numpy(found)), logits, atol=1e-5, rtol=1e-4)


def test_features_of_padded_signals_and_of_rows_with_categories():
    rng = np.random.default_rng(0)
    frames, lengths = rng.normal(size=(12, 2, 9)).astype(np.float32), np.arange(1, 13) % 9 + 1
    ids = np.arange(12) // 4
    signals = Bags.from_rows((frames, lengths), ids, truth=ids)
    assert found_by(build_net("conv1d", signals), signals).shape == (12, 512)
    rows = Bags.from_rows((frames[:, 0], rng.integers(4, size=(12, 2))), ids, truth=ids)
    assert found_by(build_net("mlp", rows, skip=True, hidden=[5]), rows).shape == (12, 5)


def test_a_net_of_ones_own_is_asked_in_evaluation_mode_and_left_as_it_was():
    net = own_net().train()
    net.drop.eval()
    modes = [m.training for m in net.modules()]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = found_by(net, BAGS)
    assert [m.training for m in net.modules()] == modes
    assert all(value.equal(before[name]) for name, value in net.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    with torch.no_grad():
        wanted = net.eval().body(torch.from_numpy(BAGS.x)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_each_distinct_row_is_computed_once():
    seen: list[int] = []

    def features(x):
        seen.append(len(x))
        return x.flatten(1)

    members = [[0, 1, 5], [5, 1, 7], [9, 0, 2]]
    bags = Bags.from_members(BAGS.x, members, truth=BAGS.truth, classes=range(3))
    instances = placed(bags)
    found = features_of(features, features, instances, 4)
    assert seen == [4, 2]
    of_bags = bags_of(found, instances)
    wanted = BAGS.x[[0, 1, 5, 5, 1, 7, 9, 0, 2]].reshape(9, -1)
    assert (of_bags.x[of_bags.index] == wanted).all()


class ConvHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 3, 6)

    def forward(self, x):
        return self.convolution(x).flatten(1)


def test_a_net_without_such_a_layer_is_refused_with_the_remedy_and_the_remedy_works():
    with pytest.raises(ConfigError, match=r"(?s)ConvHead has no nn.Linear.*3 logits.*first="):
        fit(ConvHead(), BAGS, method=FPL(first="mean-map"), config=CONFIG)
    history = fit(ConvHead(), BAGS, method=FPL(first=nn.Flatten()), config=CONFIG)
    assert history["label_accuracy"][0] > 0.8


def test_first_labels_are_those_that_the_features_of_the_untrained_net_lead_to(monkeypatch):
    started = []

    def start(self, bags, **about):
        started.append(self)
        return original(self, bags, **about)

    original = FPL.start
    monkeypatch.setattr(FPL, "start", start)
    net = own_net()
    wanted = fit_features(bags_of(found_by(net, BAGS), placed(BAGS)), seed=CONFIG.seed)
    history = fit(net, BAGS, method=FPL(first="mean-map"), config=CONFIG)
    assert started[0].first.tolist() == wanted.labels.tolist()
    assert started[0].first_weight == module.FIRST_WEIGHT
    assert (wanted.labels == BAGS.truth).mean() > 0.6
    random = fit(own_net(), BAGS, method=FPL(), config=CONFIG)
    assert history["label_accuracy"][0] > random["label_accuracy"][0] + 0.2


def test_of_the_log_unlikelihood_the_first_labels_are_confidences():
    """Those of the linear model of the features; their likeliest labels are nearly the others."""
    about: Any = {"seed": 0, "most": 64, "resumed": False}
    net, instances = own_net(), placed(BAGS)
    own = bags_of(found_by(net, BAGS), instances)
    wanted = fit_features(own, seed=0)
    method = FPL(first="mean-map", unlikelihood="log", memory=0.5)
    found: Any = module.with_first_labels(method, net, instances, **about)
    assert found.first.dtype == np.float32
    np.testing.assert_allclose(found.first, wanted.linear.confidence(own.x, own.index), atol=1e-5)
    assert (found.first_weight, found.memory) == (module.FIRST_WEIGHT, 0.5)
    state = found.start(BAGS, epochs=3, device=CPU, seed=0, threads=1)
    assert (state.leader.labels == wanted.labels).mean() > 0.9
    log = -np.log(np.clip(found.first, np.exp(-12), 1))
    np.testing.assert_allclose(state.leader.total, module.FIRST_WEIGHT * log, rtol=1e-4, atol=1e-5)
    resumed: Any = module.with_first_labels(method, net, instances, **{**about, "resumed": True})
    assert (resumed.first, resumed.first_weight) == ("random", module.FIRST_WEIGHT)


def test_the_weight_of_first_labels_is_the_callers_if_given():
    about: Any = {"seed": 0, "most": 64, "resumed": False}
    for given in (0, 7.5):
        method = FPL(first="mean-map", first_weight=given)
        found: Any = module.with_first_labels(method, own_net(), placed(BAGS), **about)
        assert found.first_weight == given


def test_on_sparse_rows_linear_models_are_of_the_rows():
    truth = np.arange(60) % 2
    x = csr_array(np.random.default_rng(0).random((60, 4)) * truth[:, None])
    bags = Bags.from_rows(x, np.arange(60) * (1 + truth) // 20, truth=truth)
    about: Any = {"seed": 0, "most": 64, "resumed": False}
    for method in (FPL(first="linear"), FPL(first="mean-map")):
        assert module.with_first_labels(method, nn.Linear(4, 2), placed(bags), **about) is method


def test_on_rows_of_a_table_mean_map_is_of_the_rows():
    table = BAGS.with_rows(BAGS.x.reshape(len(BAGS.x), -1))
    method = FPL(first="mean-map")
    about: Any = {"seed": 0, "most": 64, "resumed": False}
    assert module.with_first_labels(method, own_net(), placed(table), **about) is method


@pytest.mark.parametrize("first", ["linear", "ridge"])
def test_other_linear_models_of_images_are_refused(first):
    with pytest.raises(ConfigError, match=rf"(?s)first is '{first}'.*images.*first='mean-map'"):
        fit(own_net(), BAGS, method=FPL(first=first), config=CONFIG)


@pytest.mark.parametrize(
    ("features", "kind", "words"),
    [
        (lambda x: x[:1], DataError, r"features of 64 rows are of shape \(1, 1, 6, 6\)"),
        (lambda x: [x], DataError, "features of 64 rows are of .*list"),
        (lambda x: x.sum((1, 2, 3)), DataError, r"features of 64 rows are of shape \(64,\)"),
        (nn.Linear(5, 2), ConfigError, r"(?s)a batch of \(64, 1, 6, 6\) float32.*Normalized"),
        (lambda x: x * np.nan, DataError, "the features of row 0 .* are not finite"),
    ],
)
def test_what_is_no_features_is_refused(features, kind, words):
    config = TrainConfig(epochs=1, batch_size=32, device="cpu", threads=1, instances_per_pass=64)
    with pytest.raises(kind, match=words):
        fit(own_net(), BAGS, method=FPL(first=features), config=config)


def test_features_that_are_not_finite_are_told_by_the_row_that_they_are_of():
    x = BAGS.x.copy()
    x[117, 0, 3, 3] = 1e38
    some = BAGS.with_rows(x)[2:]  # without the first 40 rows
    method = FPL(first=lambda x: 100 * x.flatten(1))
    with pytest.raises(DataError, match=r"the features of row 117 .* are not finite"):
        fit(own_net(), some, method=method, config=CONFIG)


@pytest.mark.parametrize("first", ["mean-map", nn.Sequential(nn.Flatten(), nn.Identity())])
def test_a_run_goes_on_bit_by_bit_without_features_of_the_net(tmp_path, monkeypatch, first):
    about: Any = {"method": FPL(first=first), "config": CONFIG}
    whole = fit(own_net(), BAGS, **about, run=tmp_path / "whole")
    parts = tmp_path / "parts"
    with pytest.raises(Interrupted):
        fit(own_net(), BAGS, **about, run=parts, on_epoch=stop_after(2))
    monkeypatch.setattr(module, "features_of", None)  # which would fail if it were called
    resumed = fit(own_net(), BAGS, **about, run=parts)
    assert same_outcome(outcome(tmp_path / "whole", whole), outcome(parts, resumed))


def test_only_training_rows_are_looked_at():
    """Other rows, of NaN here, would be refused."""
    x = BAGS.x.copy()
    rows = BAGS.index[: BAGS.offsets[6]]
    x[np.setdiff1d(np.arange(len(x)), rows)] = np.nan
    history = fit(own_net(), BAGS.with_rows(x)[:6], method=FPL(first="mean-map"), config=CONFIG)
    assert len(history.records) == 3


# -------------------------------------------------------------------------------------- signals


def signal_bags(n_bags=12, size=20, seed=0):
    """Signals of unequal length that rise, fall, or stay; an untrained net hardly tells them."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate(
        [rng.choice(3, size, p=rng.dirichlet(np.ones(3))) for _ in range(n_bags)]
    )
    lengths = rng.integers(10, 40, len(truth))
    signals = [
        np.outer(np.linspace(-1, 1, n), [c - 1, 0]) + 0.5 * rng.normal(size=(n, 2))
        for c, n in zip(truth, lengths, strict=True)
    ]
    bag = np.repeat(np.arange(n_bags), size)
    return Bags.from_rows(pad(signals), bag, truth=truth, classes=range(3))


SIGNALS = signal_bags()


def resolved(net, bags, **options):
    (instances, *_) = place((bags, None, None), CPU)
    about: Any = {"seed": 0, "most": 64, "resumed": False, **options}
    return module.with_first_labels(FPL(first="mean-map"), net, instances, **about)


class Frames(nn.Module):
    """A net of signals that has learned to tell them: it ends in layers of the caller's."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def forward(self, x, lengths, *_):
        steps = torch.linspace(-1, 1, x.shape[2])
        rise = (x[:, 0] * steps).sum(dim=1, keepdim=True) / lengths[:, None]
        return self.last(rise.repeat(1, 3))


def test_first_labels_of_signals_follow_from_summaries_where_a_net_knows_less(caplog):
    caplog.set_level("INFO", logger="apportion")
    untrained = build_net("conv1d", SIGNALS)
    (instances, *_) = place((SIGNALS, None, None), CPU)
    with penultimate(untrained, instances) as own:
        features = bags_of(features_of(own, untrained, instances, 64), instances)
    of_net = (fit_features(features).labels == SIGNALS.truth).mean()
    found = resolved(untrained, SIGNALS)
    assert (found.first == SIGNALS.truth).mean() > max(0.95, of_net + 0.05)
    assert found.first_weight == module.FIRST_WEIGHT
    assert "Taken: summaries in a loose fit." in caplog.text


def test_first_labels_of_signals_follow_from_a_net_that_knows_more(caplog):
    """What tells the classes is everywhere in a signal, and small beside its noise."""
    caplog.set_level("INFO", logger="apportion")
    rng = np.random.default_rng(3)
    truth = np.concatenate([rng.choice(3, 20, p=rng.dirichlet(np.ones(3))) for _ in range(12)])
    pattern = torch.from_numpy(rng.choice([-1.0, 1.0], 64)).float()
    x = (truth[:, None] - 1) * pattern.numpy() + 2 * rng.normal(size=(len(truth), 64))
    bags = Bags.from_rows(x[:, None].astype(np.float32), np.arange(240) // 20, truth=truth)

    class Knows(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)

        def forward(self, x):
            return self.fc((x[:, 0] @ pattern / 64)[:, None].repeat(1, 2))

    assert (resolved(Knows(), bags).first == truth).mean() > 0.9
    assert "Taken: the net in a loose fit." in caplog.text


def test_signals_need_no_last_layer_that_is_known():
    assert (resolved(Frames(nn.Identity()), SIGNALS).first == SIGNALS.truth).mean() > 0.95
    three = SIGNALS.with_rows((*SIGNALS.parts, np.zeros(SIGNALS.n_rows, np.float32)))
    with pytest.raises(ConfigError, match=r"has no nn.Linear that returns its 3 logits"):
        resolved(Frames(nn.Identity()), three)


@pytest.mark.parametrize("factor", [1e-30, 1e25])
def test_summaries_are_those_of_normalised_signals(factor):
    frames, lengths = SIGNALS.parts
    scaled = SIGNALS.with_rows((frames * np.float32(factor) + np.float32(3 * factor), lengths))
    found = resolved(build_net("conv1d", scaled), scaled)
    assert (found.first == resolved(build_net("conv1d", SIGNALS), SIGNALS).first).mean() > 0.99


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_a_second_part_that_is_no_length_makes_no_summaries(dtype, caplog):
    caplog.set_level("INFO", logger="apportion")
    frames, _ = SIGNALS.parts
    ages = (20 + 5 * np.arange(len(frames)) % 70).astype(dtype)

    class OfBoth(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(41, 3)

        def forward(self, x, ages):
            return self.fc(torch.cat([x[:, 0, :40], ages[:, None].float()], dim=1))

    resolved(OfBoth(), SIGNALS.with_rows((np.pad(frames, ((0, 0), (0, 0), (0, 4))), ages)))
    assert "41 features of each of 240 rows." in caplog.text
    assert "summaries" not in caplog.text


def test_frames_before_channels_make_no_summaries():
    """A net of the caller's may take them; summaries would be those of the channels."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.fc = Frames(nn.Identity()), nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(self.inner(x.swapaxes(1, 2), torch.full((len(x),), x.shape[1])))

    frames = np.swapaxes(SIGNALS.parts[0], 1, 2)
    assert frames.shape[1] > frames.shape[2]
    (instances, *_) = place((SIGNALS.with_rows(frames), None, None), CPU)
    assert [*module._features_known(Last(), instances, 64)] == ["the net"]


def test_signals_are_learned_from_summaries_to_the_end_and_resumed(tmp_path):
    net = build_net("summary", SIGNALS)
    history = fit(net, SIGNALS, method="fpl-mean-map", config=CONFIG)
    assert history["label_accuracy"][-1] > 0.95

    def run(epochs, on_epoch=None):
        made = build_net("summary", SIGNALS)
        config = TrainConfig(epochs=epochs, batch_size=32, device="cpu", threads=1)
        return made, fit(made, SIGNALS, method="fpl-mean-map", config=config, run=tmp_path / "run",
                         on_epoch=on_epoch)  # fmt: skip

    with pytest.raises(Interrupted):
        run(3, stop_after(1))
    again, resumed = run(3)
    assert resumed["label_accuracy"] == history["label_accuracy"]
    ours, theirs = again.state_dict(), net.state_dict()
    assert all(value.equal(theirs[name]) for name, value in ours.items())
