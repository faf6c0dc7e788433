"""The state of optimisers and schedulers: it comes back to the bit, and nothing else is taken."""

import copy
import json
from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as rates

from apportion.errors import ConfigError, RunError
from apportion.runs.run import Run
from apportion.training import checkpoint
from apportion.training.optimizer_state import (
    load_optimizer,
    load_settings,
    optimizer_tensors,
    optimizer_values,
    plain,
    restored,
    settings_of,
    stepped,
)
from tests.training.interrupted_runs import identical, network


def steps(model, optimizer, n, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.randn(8, 5, generator=generator)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", [{}, {"fused": True, "weight_decay": 0.1, "lr": 1 / 3}])
def test_optimizer_goes_on_where_it_was(tmp_path, options, dtype):
    """Not only is its state equal: the next steps are, too."""
    run = Run(tmp_path)
    first, second = (nn.Linear(5, 3) for _ in range(2))
    pair = []
    for model in (first, second):
        model.to(dtype)
        model.register_forward_pre_hook(lambda _, x, dtype=dtype: (x[0].to(dtype),))
        pair.append(torch.optim.AdamW(model.parameters(), **options))
    ours, theirs = pair
    steps(first, ours, 3, seed=0)

    checkpoint.save(
        run,
        {"model": first.state_dict(), "optimizer": optimizer_tensors(first, ours)},
        {"trained": stepped(first, ours)},
    )
    tensors, header = checkpoint.load(run)
    second.load_state_dict(tensors["model"])
    load_optimizer(run, second, theirs, tensors["optimizer"], header["trained"])
    state = optimizer_tensors(first, ours), optimizer_tensors(second, theirs)
    assert identical(*state)

    for model, optimizer in ((first, ours), (second, theirs)):
        steps(model, optimizer, 3, seed=1)
    assert identical(dict(first.state_dict()), dict(second.state_dict()))


def rated(capturable, lr, **options):
    """An optimiser with the rate as a number, or as a tensor that a recording would read."""
    model = network()
    rate = torch.tensor(lr, dtype=torch.float64) if capturable else lr
    return model, torch.optim.AdamW(
        model.parameters(), lr=rate, fused=True, capturable=capturable, **options
    )


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("here", [False, True])
def test_how_an_optimizer_computes_stays_as_it_is_here(tmp_path, here, there):
    """It may have been saved on a GPU, and go on without one, or the other way round."""
    run = Run(tmp_path)
    first, saved = rated(there, 0.02, weight_decay=0.1)
    steps(first.eval(), saved, 3, seed=0)
    checkpoint.save(run, {"optimizer": optimizer_tensors(first, saved)}, {})

    second, own = rated(here, 0.02, weight_decay=0.1)
    second.load_state_dict(first.state_dict())
    rate = own.param_groups[0]["lr"]
    read, _ = checkpoint.load(run)
    load_optimizer(run, second, own, read["optimizer"], stepped(first, saved))
    (group,) = own.param_groups
    assert group["capturable"] is here
    assert group["lr"] is rate  # on a GPU the tensor that a recording reads

    for model, optimizer in ((first, saved), (second.eval(), own)):
        steps(model, optimizer, 3, seed=1)
    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value, rtol=1e-5, atol=1e-7)


def test_state_lies_in_memory_as_its_parameter_does(tmp_path):
    """Fused steps read both from end to end, whatever their strides say."""
    nets = [nn.Conv2d(3, 8, 3) for _ in range(2)]
    for net in nets:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    nets[1].load_state_dict(nets[0].state_dict())
    first, second = (torch.optim.AdamW(net.parameters(), fused=True) for net in nets)

    def step(net, optimizer, seed):
        optimizer.zero_grad()
        x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(seed))
        net(x).square().sum().backward()
        optimizer.step()

    step(nets[0], first, 0)
    run = Run(tmp_path)
    groups = {"optimizer": optimizer_tensors(nets[0], first)}
    checkpoint.save(run, groups, {})
    nets[1].load_state_dict(nets[0].state_dict())
    read = checkpoint.load(run)[0]["optimizer"]
    load_optimizer(run, nets[1], second, read, stepped(nets[0], first))
    state = second.state[nets[1].weight]
    assert state["exp_avg"].stride() == nets[1].weight.stride()
    for net, optimizer in zip(nets, (first, second), strict=True):
        step(net, optimizer, 1)
    assert identical(dict(nets[0].state_dict()), dict(nets[1].state_dict()))


# ------------------------------------------------------------------------------ any optimiser

OPTIMIZERS = [
    partial(torch.optim.SGD, lr=0.1),
    partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    partial(torch.optim.AdamW, lr=torch.tensor(0.01)),
    partial(torch.optim.Adamax, lr=0.01),
    partial(torch.optim.NAdam, lr=0.01),
    partial(torch.optim.RAdam, lr=0.01),
    partial(torch.optim.Adadelta, lr=0.5),
    partial(torch.optim.Adagrad, lr=0.05),
    partial(torch.optim.Adafactor, lr=0.05),
    partial(torch.optim.ASGD, lr=0.05),
    partial(torch.optim.Rprop, lr=0.01),
    partial(torch.optim.RMSprop, lr=0.01, momentum=0.5, centered=True),
]


def to_disk_and_back(run, net, optimizer, scheduler=None):
    state = None if scheduler is None else plain(scheduler.state_dict(), "the scheduler")
    header = {
        "trained": stepped(net, optimizer),
        "values": optimizer_values(net, optimizer),
        "settings": settings_of(optimizer),
        "scheduler": state,
    }
    checkpoint.save(run, {"optimizer": optimizer_tensors(net, optimizer)}, header)
    tensors, header = checkpoint.load(run)
    return tensors.get("optimizer", {}), header


def load(run, net, optimizer, tensors, header):
    load_optimizer(run, net, optimizer, tensors, header["trained"], header["values"])
    load_settings(run, optimizer, header["settings"])


@pytest.mark.parametrize("make", OPTIMIZERS, ids=lambda make: make.func.__name__)
def test_every_optimizer_of_torch_goes_on_where_it_was(make, tmp_path):
    run = Run(tmp_path)
    first, second = nn.Linear(5, 3), nn.Linear(5, 3)
    ours, theirs = make(first.parameters()), make(second.parameters())
    ours.param_groups[0]["lr"] *= 0.5  # as a scheduler does
    steps(first, ours, 3, seed=0)
    saved = to_disk_and_back(run, first, ours)
    second.load_state_dict(first.state_dict())
    load(run, second, theirs, *saved)
    assert identical(first.state_dict(), second.state_dict())  # priming left no trace
    assert all(p.grad is None for p in second.parameters())
    for model, optimizer in ((first, ours), (second, theirs)):
        steps(model, optimizer, 3, seed=1)
    assert identical(dict(first.state_dict()), dict(second.state_dict()))


def test_sparse_gradients_have_their_own_optimizer(tmp_path):
    nets = [nn.Embedding(6, 3, sparse=True) for _ in range(2)]
    both = [torch.optim.SparseAdam(net.parameters(), lr=0.1) for net in nets]

    def step(net, optimizer, rows):
        optimizer.zero_grad()
        net(torch.tensor(rows)).square().sum().backward()
        optimizer.step()

    step(nets[0], both[0], [1, 2])
    saved = to_disk_and_back(Run(tmp_path), nets[0], both[0])
    nets[1].load_state_dict(nets[0].state_dict())
    load(Run(tmp_path), nets[1], both[1], *saved)
    for net, optimizer in zip(nets, both, strict=True):
        step(net, optimizer, [2, 3])
    assert identical(nets[0].state_dict(), nets[1].state_dict())


@pytest.fixture
def saved_momentum(tmp_path):
    run, net = Run(tmp_path), nn.Linear(5, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    steps(net, optimizer, 2, seed=0)
    return run, net, optimizer, *to_disk_and_back(run, net, optimizer)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda t: t[:1].clone(), "float32 of shape \\(1,\\) there and float32 of shape \\(3,\\)"),
        (lambda t: t.double(), "float64 of shape"),
        (lambda t: t * float("nan"), "not finite"),
        (None, "is missing there"),
    ],
)
def test_tensors_that_are_not_those_of_the_optimizer_are_refused(saved_momentum, damage, said):
    run, net, optimizer, tensors, header = saved_momentum
    bias = tensors.pop("bias.momentum_buffer")
    if damage is not None:
        tensors["bias.momentum_buffer"] = damage(bias)
    with pytest.raises(RunError, match=said):
        load(run, net, optimizer, tensors, header)


def test_the_state_of_another_class_is_refused(saved_momentum):
    run, net, _, tensors, header = saved_momentum
    adam = torch.optim.Adam(net.parameters())
    with pytest.raises(RunError, match="has the state of another optimiser"):
        load(run, net, adam, tensors, header)


def test_sums_of_squares_are_never_negative(tmp_path):
    run, net = Run(tmp_path), nn.Linear(5, 3)
    optimizer = torch.optim.RMSprop(net.parameters())
    steps(net, optimizer, 2, seed=0)
    tensors, header = to_disk_and_back(run, net, optimizer)
    tensors["weight.square_avg"][0] = -1
    with pytest.raises(RunError, match=r"weight\.square_avg has values below 0"):
        load(run, net, optimizer, tensors, header)


@pytest.mark.parametrize("value", [None, "0.1", True, -0.1, float("nan"), float("inf"), [0.1]])
def test_settings_of_other_types_and_ranges_are_refused(saved_momentum, value):
    run, net, optimizer, tensors, header = saved_momentum
    header["settings"][0]["lr"] = value
    with pytest.raises(RunError, match="the settings of the optimiser: lr is"):
        load(run, net, optimizer, tensors, header)


def test_a_state_that_no_file_can_hold_is_refused_by_its_name():
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.state[net.weight]["blocks"] = [torch.zeros(2, 2)]
    with pytest.raises(ConfigError, match=r"weight\.blocks of SGD is of type Tensor.*\n.*run="):
        optimizer_values(net, optimizer)
    optimizer.state.clear()
    optimizer.state["all"] = {"k": 1}  # type: ignore[index]
    with pytest.raises(ConfigError, match="a state that is of no parameter"):
        optimizer_tensors(net, optimizer)


# ------------------------------------------------------------------------------ any scheduler


class Ramp:
    """A callable object, whose state torch keeps."""

    def __init__(self):
        self.calls = 0

    def __call__(self, step):
        self.calls += 1
        return 1 / self.calls


SCHEDULERS = {
    "lambda": lambda o: rates.LambdaLR(o, lambda step: 1 / (1 + step)),
    "object": lambda o: rates.LambdaLR(o, Ramp()),
    "multiplied": lambda o: rates.MultiplicativeLR(o, lambda step: 0.9),
    "steps": lambda o: rates.StepLR(o, 2),
    "milestones": lambda o: rates.MultiStepLR(o, [2, 2, 4]),
    "cosine": lambda o: rates.CosineAnnealingLR(o, 5),
    "restarts": lambda o: rates.CosineAnnealingWarmRestarts(o, 2),
    "one cycle": lambda o: rates.OneCycleLR(o, 0.5, total_steps=20),
    "cyclic": lambda o: rates.CyclicLR(o, 0.1, 0.5, step_size_up=2),
    "plateau": lambda o: rates.ReduceLROnPlateau(o, patience=0),
    "in turn": lambda o: rates.SequentialLR(
        o, [rates.LinearLR(o, 0.1, total_iters=2), rates.ExponentialLR(o, 0.9)], [2]
    ),
    "chained": lambda o: rates.ChainedScheduler([rates.ConstantLR(o), rates.StepLR(o, 2)]),
}


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_of_torch_goes_on_where_it_was(name, tensor, tmp_path):
    run, pair = Run(tmp_path), []
    for _ in range(2):
        rate = torch.tensor(0.2, dtype=torch.float64) if tensor else 0.2
        optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=rate, momentum=0.9)
        pair.append((optimizer, SCHEDULERS[name](optimizer)))

    def on(optimizer, scheduler, n):
        seen = []
        for i in range(n):
            optimizer.step()
            scheduler.step(*([1.0 + i] if name == "plateau" else []))
            (group,) = optimizer.param_groups
            seen.append((float(group["lr"]), float(group["momentum"])))
        return seen

    (ours, old), (theirs, new) = pair
    on(ours, old, 3)
    header = json.loads(json.dumps(
        [settings_of(ours), plain(old.state_dict(), "the scheduler")]))  # fmt: skip
    load_settings(run, theirs, header[0])
    new.load_state_dict(restored(run, new.state_dict(), header[1], "the scheduler"))
    wanted = on(ours, old, 5)
    assert on(theirs, new, 5) == wanted
    assert len(set(wanted)) > 1 or name in ("plateau", "steps", "chained", "milestones")


def test_plain_values_come_back_in_their_types(tmp_path):
    like = {"a": Counter({2: 1}), "b": (0.9, 1), "c": [None, True, "min"], "d": float("inf")}
    saved = json.loads(json.dumps(plain({**like, "d": 0.25}, "here")))
    found = restored(Run(tmp_path), like, saved, "here")
    assert found == {**like, "d": 0.25}
    assert type(found["a"]) is Counter
    assert type(found["b"]) is tuple


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("last_epoch", -2),
        ("last_epoch", "3"),
        ("gamma", None),
        ("gamma", float("nan")),
        ("_last_lr", [0.1, 0.1]),
        ("_is_initial", 0),
        ("more", 1),
    ],
)
def test_a_scheduler_that_is_another_or_damaged_is_refused(path, value, tmp_path):
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    own = rates.StepLR(optimizer, 2).state_dict()
    saved = copy.deepcopy(plain(own, "here"))
    assert path in saved or path == "more"
    saved[path] = value
    with pytest.raises(RunError, match="is damaged: here"):
        restored(Run(tmp_path), own, saved, "here")
