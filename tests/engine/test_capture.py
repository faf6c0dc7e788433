"""Steps as CUDA graphs: what they compute is what steps taken kernel by kernel compute."""

import copy
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from apportion import METHODS, Bags, ConfigError, Job, TrainConfig, fit, fit_many
from apportion.engine import step as step_module
from apportion.engine.batches import Batch, Instances, Step, Unit, place
from apportion.engine.capture import CapturedStep, as_recorded
from apportion.engine.device import own_stream
from apportion.engine.generators import OwnGenerators
from apportion.engine.step import Mode, Stepper
from apportion.methods.proportion_loss import ProportionLoss, Proportions
from apportion.nets.augment import augmented
from apportion.nets.build import build_net, move_to
from apportion.nets.normalized import Normalized
from apportion.testing import toy_bags, toy_config, toy_net

CUDA = torch.device("cuda")
MODES: list[Mode] = ["eager", "captured", "compiled"]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")


@pytest.fixture(autouse=True)
def full_precision(request: Any) -> Iterator[None]:
    """float32 as it is written: TF32 would hide differences of 1e-3."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


def images(sizes: tuple[int, ...] = (16,) * 12) -> Bags:
    rng = np.random.default_rng(0)
    bag = np.repeat(np.arange(len(sizes)), sizes)
    truth = rng.integers(3, size=len(bag))
    x = rng.integers(256, size=(len(bag), 3, 32, 32), dtype=np.uint8)
    return Bags.from_rows(x, bag, truth=truth, classes=[0, 1, 2])


def steps_taken(
    model: nn.Module, bags: Bags, name: str, mode: Mode, *, rate: float, augment: Any = ()
) -> tuple[list[float], list[Tensor], nn.Module]:
    """The losses of an epoch, the gradients of its last step, and the model."""
    model = copy.deepcopy(model)
    with own_stream(CUDA):
        move_to(CUDA, model)
        instances: Instances = place((bags, None, None), CUDA)[0]
        supervision = METHODS[name].start(bags, epochs=1, device=CUDA, seed=0, threads=1)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=torch.tensor(rate, device=CUDA), fused=True, capturable=True
        )
        generators = OwnGenerators(CUDA)
        generators.reseed(3, 1)
        take = Stepper(
            model.train(),
            optimizer,
            supervision,
            instances,
            precision=torch.float32,
            instances_per_pass=10_000,
            augment=lambda x, generator: augmented(x, augment, generator),
            mode=mode,
            generators=generators,
        )
        config = TrainConfig(batch_size=32, bags_per_step=2, seed=5)
        losses = [take(s) for s in instances.steps(METHODS[name].unit, config, 1)]
        assert len(take.graphs) == (mode != "eager")
        assert len(losses) == 6
        torch.cuda.synchronize()
    slopes = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [loss.item() for loss in losses], slopes, model


def assert_close(found: list[Tensor], wanted: list[Tensor], tolerance: float) -> None:
    """Relative to the largest of all: some slopes are exactly 0 but for rounding."""
    assert len(found) == len(wanted) > 0
    scale = max(float(theirs.abs().max()) for theirs in wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert float((ours - theirs).abs().max()) <= tolerance * scale


@needs_gpu
@pytest.mark.parametrize("mode", ["captured", "compiled"])
@pytest.mark.parametrize("name", METHODS)
def test_every_mode_gives_the_gradients_of_eager_steps(name, mode):
    """At a rate of nothing all six steps are first ones; the last of them are replays."""
    bags = toy_bags((16,) * 12)
    model = toy_net(bags, norm=True)
    eager, slopes, _ = steps_taken(model, bags, name, "eager", rate=0.0)
    found, ours, _ = steps_taken(model, bags, name, mode, rate=0.0)
    assert found == pytest.approx(eager, rel=1e-5)
    assert_close(ours, slopes, 1e-5)


@needs_gpu
@pytest.mark.parametrize("mode", ["captured", "compiled"])
@pytest.mark.parametrize("name", ["fpl", "proportion-loss", "count-likelihood"])
def test_so_does_a_resnet_on_images(name, mode):
    bags = images()
    model = build_net("resnet18", bags)
    eager, slopes, _ = steps_taken(model, bags, name, "eager", rate=0.0)
    found, ours, _ = steps_taken(model, bags, name, mode, rate=0.0)
    assert found == pytest.approx(eager, rel=1e-4)
    whole, theirs = (torch.cat([s.flatten() for s in some]) for some in (ours, slopes))
    assert float((whole - theirs).norm() / theirs.norm()) < 1e-4


@needs_gpu
@pytest.mark.parametrize("mode", ["captured", "compiled"])
@pytest.mark.parametrize("name", ["fpl", "pi-model", "llp-vat"])
def test_replays_train_draw_and_remember_as_eager_steps_do(name, mode):
    """With dropout, BatchNorm and augmentation: numbers, statistics and weights are the same."""
    bags = toy_bags((16,) * 12)
    model = toy_net(bags, dropout=0.3, norm=True)
    found = [
        steps_taken(model, bags, name, m, rate=1e-3, augment=["noise"]) for m in ("eager", mode)
    ]
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-3)
    one, other = (result[2].state_dict() for result in found)
    shifts = {"network.0.bias", "network.1.running_mean"}  # which cancel
    for weight in set(one) - shifts:
        torch.testing.assert_close(other[weight], one[weight], rtol=1e-3, atol=1e-4)


@needs_gpu
def test_replays_draw_numbers_of_their_own():
    bags = toy_bags((16,) * 12)
    model = Normalized(nn.Sequential(nn.Linear(2, 3)), [3.0, 3.0], [1.0, 1.0])
    losses, _, _ = steps_taken(model, bags, "pi-model", "captured", rate=0.0)
    again, _, _ = steps_taken(model, bags, "pi-model", "captured", rate=0.0)
    assert losses == pytest.approx(again, rel=1e-6)
    assert len(set(losses)) == 6


@needs_gpu
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("steps", ["captured", "compiled"])
def test_a_training_with_graphs_is_that_without(name, steps, caplog):
    bags = toy_bags((16,) * 13)
    options: dict[str, Any] = {
        "epochs": 4,
        "bags_per_step": 2,
        "batch_size": 32,
        "precision": "float32",
    }
    with caplog.at_level(logging.INFO, logger="apportion"):
        histories = [
            fit(
                toy_net(bags),
                bags,
                bags,
                method=name,
                config=TrainConfig(**options, step_mode=mode, device="cuda", learning_rate=1e-4),
            )
            for mode in ("eager", steps)
        ]
    assert sum("CUDA graph" in message for message in caplog.messages) == 1
    assert histories[1]["loss"] == pytest.approx(histories[0]["loss"], rel=1e-3)
    assert histories[1]["valid_error"] == pytest.approx(histories[0]["valid_error"], rel=1e-2)


@dataclass(frozen=True)
class Looks(ProportionLoss):
    """A method that reads a number off the device in every step."""

    unit: ClassVar[Unit] = "bags"

    def start(self, bags: Bags, **run: object) -> "LooksAt":
        return LooksAt()


class LooksAt(Proportions):
    def instance_loss(self, model: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        return logits.sum() * (0 if logits.sum().item() > 0 else 1e-9)


@needs_gpu
@pytest.mark.parametrize("steps", ["captured", "compiled"])
def test_a_method_that_cannot_be_recorded_says_why_and_goes_on(steps, caplog):
    bags = toy_bags((16,) * 12)
    config = toy_config(device="cuda", step_mode=steps, bags_per_step=2, epochs=3)
    with caplog.at_level(logging.WARNING, logger="apportion"):
        history = fit(toy_net(bags, dropout=0.5), bags, bags, method=Looks(), config=config)
    warning = [message for message in caplog.messages if "cannot be recorded" in message]
    assert len(warning) == 1
    assert "captur" in warning[0].split(":", 1)[1]
    plain = fit(toy_net(bags), bags, bags, method="proportion-loss", config=config)
    assert history["valid_error"][-1] < history["valid_error"][0] + 0.1
    assert len(plain.records) == 3


@needs_gpu
def test_a_network_that_cannot_be_compiled_says_why_and_goes_on(caplog, monkeypatch):
    bags = toy_bags((16,) * 12)

    def broken(self: Any, **options: Any) -> None:
        def fails(*x: Tensor) -> Tensor:
            raise RuntimeError("no compiler here")

        self._compiled_call_impl = fails

    monkeypatch.setattr(nn.Module, "compile", broken)
    config = toy_config(device="cuda", step_mode="compiled", batch_size=32)
    with caplog.at_level(logging.INFO, logger="apportion"):
        fit(toy_net(bags), bags, bags, config=config)
    assert any("cannot be compiled" in m and "no compiler here" in m for m in caplog.messages)
    assert any("one CUDA graph." in message for message in caplog.messages)


@needs_gpu
def test_a_method_without_a_loss_is_an_error_and_no_reason_to_do_without_graphs():
    class Nothing(Proportions):
        def bag_loss(self, means: Tensor, proportions: Tensor, sizes: Tensor) -> Any:
            return None

    class Method(ProportionLoss):
        def start(self, bags: Bags, **run: object) -> Nothing:
            return Nothing()

    bags = toy_bags((16,) * 12)
    with pytest.raises(ConfigError, match="returns no loss"):
        fit(toy_net(bags), bags, method=Method(), config=toy_config(device="cuda"))


@needs_gpu
def test_steps_of_unequal_shapes_are_eager_but_for_the_typical(monkeypatch):
    taken: list[tuple[int, int]] = []
    recorded = CapturedStep

    def watched(take: Any, step: Step) -> Any:
        taken.append(step.shape)
        return recorded(take, step)

    monkeypatch.setattr(step_module, "CapturedStep", watched)
    bags = toy_bags((16,) * 10 + (5,))
    fit(toy_net(bags), bags, config=toy_config(device="cuda", batch_size=25, epochs=8))
    assert taken == [(25, 0)]


@needs_gpu
@pytest.mark.parametrize("steps", ["eager", "captured"])
def test_streamed_instances_give_the_training_of_resident_ones(steps, tmp_path):
    bags = toy_bags((16,) * 12)
    np.save(tmp_path / "x.npy", bags.x)
    mapped = replace(bags, x=np.load(tmp_path / "x.npy", mmap_mode="r"))
    found = []
    for memory in (None, 0.0):
        model = toy_net(bags)
        config = TrainConfig(
            epochs=5, batch_size=32, device="cuda", step_mode=steps, device_memory_gib=memory
        )
        fit(model, mapped, mapped, config=config)
        found.append(model.cpu().state_dict())
    for weight in found[0]:
        torch.testing.assert_close(found[1][weight], found[0][weight], rtol=1e-3, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize(
    "name", ["fpl", "proportion-loss", "pi-model", "llp-vat", "count-likelihood"]
)
@pytest.mark.parametrize("steps", ["eager", "captured", "compiled"])
def test_many_runs_at_once_are_what_they_are_alone(name, steps):
    bags = toy_bags((16,) * 12)

    def job(seed: int) -> Job:
        config = TrainConfig(
            epochs=4,
            batch_size=32,
            bags_per_step=2,
            seed=seed,
            device="cuda",
            precision="float32",
            step_mode=steps,
            learning_rate=1e-4,
            augment=("noise",),
        )
        net = toy_net(bags, seed=seed, dropout=0.3)
        return Job(net, bags, method=name, config=config)  # the last weights are kept

    jobs, alone = [job(seed) for seed in range(6)], [job(seed) for seed in range(6)]
    histories = fit_many(jobs, at_once=3)
    for history, mine in zip(histories, alone, strict=True):
        wanted = fit(mine.net, mine.train, method=mine.method, config=mine.config)
        assert history["loss"] == pytest.approx(wanted["loss"], rel=1e-3)
    for one, other in zip(jobs, alone, strict=True):
        for weight, value in other.net.state_dict().items():
            torch.testing.assert_close(one.net.state_dict()[weight], value, rtol=1e-3, atol=1e-4)


@needs_gpu
def test_the_callers_generators_and_stream_are_left_alone():
    bags = toy_bags((16,) * 12)
    torch.cuda.manual_seed(7)
    wanted = torch.rand(4, device=CUDA).tolist()
    torch.cuda.manual_seed(7)
    stream = torch.cuda.current_stream()
    fit(
        toy_net(bags, dropout=0.5),
        bags,
        method="pi-model",
        config=toy_config(device="cuda", bags_per_step=2),
    )
    assert torch.rand(4, device=CUDA).tolist() == wanted
    assert torch.cuda.current_stream() == stream


@needs_gpu
def test_a_run_goes_on_in_another_mode(tmp_path):
    bags = toy_bags((16,) * 12)

    class StopError(Exception):
        pass

    def stop(record: dict[str, Any], model: nn.Module) -> None:
        if record["epoch"] == 3:
            raise StopError

    def options(steps: str) -> dict[str, Any]:
        config = TrainConfig(
            epochs=6,
            batch_size=32,
            device="cuda",
            step_mode=steps,  # type: ignore[arg-type]
            schedule="cosine",
            warmup=0.5,
            learning_rate=1e-3,
            precision="float32",
        )
        return {"train": bags, "valid": bags, "config": config}

    with pytest.raises(StopError):
        fit(toy_net(bags), run=tmp_path / "a", on_epoch=stop, **options("captured"))
    gone_on = fit(toy_net(bags), run=tmp_path / "a", **options("eager"))
    whole = fit(toy_net(bags), **options("compiled"))
    assert gone_on["loss"] == pytest.approx(whole["loss"], rel=1e-3)


def test_the_network_is_compiled_within_the_block_only(monkeypatch):
    network = nn.Linear(2, 3)
    called: list[dict[str, Any]] = []

    def compile_it(self: Any, **options: Any) -> None:
        called.append(options)
        self._compiled_call_impl = lambda x: x * 0

    monkeypatch.setattr(nn.Module, "compile", compile_it)
    model: Any = Normalized(network, [0.0], [1.0])
    x = torch.ones(1, 2)
    with as_recorded(model, compiled=True):
        assert model(x).tolist() == [[0.0, 0.0]]
    with as_recorded(model, compiled=False):
        assert model(x).shape == (1, 3)
    with pytest.raises(ZeroDivisionError), as_recorded(model, compiled=True):
        _ = 1 // 0
    assert model(x).shape == (1, 3)
    assert len(called) == 4  # model and network, twice


def test_a_network_that_the_caller_has_compiled_stays_so(monkeypatch):
    model: Any = nn.Linear(2, 3)
    model._compiled_call_impl = lambda x: x
    with as_recorded(model, compiled=True):
        pass
    assert model(torch.ones(1, 2)).shape == (1, 2)
