"""torch's generators: seeded for an epoch, and one run's own while it draws."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from apportion.engine.generators import OwnGenerators, global_generator, reseed
from apportion.methods.registry import METHODS
from apportion.testing import Training, same, toy_bags, toy_net

CPU = torch.device("cpu")
PATIENCE = 20  # seconds until a test that waits for another thread is given up


@pytest.fixture
def torch_state():
    with torch.random.fork_rng(devices=[]):
        yield


def drawn(seed, epoch):
    reseed(seed, epoch, CPU)
    return torch.rand(4).tolist()


def test_an_epoch_starts_from_the_same_numbers_whatever_came_before(torch_state):
    one = drawn(3, 7)
    torch.rand(100)
    drawn(3, 6)
    assert drawn(3, 7) == one


def test_epochs_and_seeds_differ(torch_state):
    found = [drawn(seed, epoch) for seed in (0, 1, 2**63 - 1) for epoch in (0, 1, 2)]
    assert len({tuple(numbers) for numbers in found}) == 9


def test_the_generator_of_the_cpu_is_the_one_that_torch_draws_from(torch_state):
    global_generator(CPU).manual_seed(0)
    one = torch.rand(3)
    global_generator(CPU).manual_seed(0)
    assert torch.equal(torch.rand(3, generator=global_generator(CPU)), one)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
def test_a_gpu_is_seeded_as_well():
    cuda = torch.device("cuda")
    with torch.random.fork_rng():
        found = []
        for _ in range(2):
            reseed(0, 1, cuda)
            found.append((torch.rand(3).tolist(), torch.rand(3, device=cuda).tolist()))
        assert found[0] == found[1]
        assert torch.rand(3, device=cuda).tolist() != found[0][1]


# -------------------------------------------------------------------------- generators of one's own


def own(seed: int, epoch: int = 1) -> OwnGenerators:
    generators = OwnGenerators(CPU)
    generators.reseed(seed, epoch)
    return generators


def numbers_with(generators: OwnGenerators, n: int = 3) -> list[float]:
    with generators:
        numbers: list[float] = torch.rand(n).tolist()
    return numbers


def drawn_alone(seed: int, n: int, epoch: int = 1) -> list[float]:
    """So many numbers in a row, from torch's own generator."""
    with torch.random.fork_rng(devices=[]):
        reseed(seed, epoch, CPU)
        return [torch.rand(()).item() for _ in range(n)]


def one_by_one(generators: OwnGenerators, n: int) -> list[float]:
    """So many numbers, each in a turn of its own."""
    return list(itertools.chain(*(numbers_with(generators, 1) for _ in range(n))))


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (3, 7), (2**63 - 1, 2**31)])
def test_generators_of_ones_own_give_the_numbers_of_the_seed(seed, epoch, torch_state):
    found = numbers_with(own(seed, epoch), 4)
    assert found == drawn(seed, epoch)


def test_each_goes_on_where_it_was_left():
    one, other = own(1), own(2)
    found: tuple[list[float], list[float]] = [], []
    for n in range(6):  # in turns, and not in step
        found[0].extend(one_by_one(one, n))
        found[1].extend(one_by_one(other, 5 - n))
    assert found[0] == drawn_alone(1, 15)
    assert found[1] == drawn_alone(2, 15)


def test_the_callers_numbers_go_on_as_if_nothing_had_been_drawn(torch_state):
    torch.manual_seed(5)
    wanted = torch.rand(4).tolist()
    torch.manual_seed(5)
    found = [torch.rand(()).item()]
    generators = OwnGenerators(CPU)
    found.append(torch.rand(()).item())
    generators.reseed(0, 1)
    found.append(torch.rand(()).item())
    numbers_with(generators)
    found.append(torch.rand(()).item())
    assert found == wanted


def test_an_error_takes_nothing_from_the_caller_and_nothing_from_the_run():
    generators, state = own(4), torch.get_rng_state()
    first = numbers_with(generators, 2)
    with pytest.raises(ZeroDivisionError), generators:
        torch.rand(1 // int(torch.rand(())))
    assert torch.equal(torch.get_rng_state(), state)
    wanted = drawn_alone(4, 5)
    assert first + numbers_with(generators, 2) == wanted[:2] + wanted[3:]
    assert torch.equal(torch.get_rng_state(), state)
    with ThreadPoolExecutor(1) as pool:  # the turn is free again
        assert pool.submit(numbers_with, own(4)).result(PATIENCE) == drawn_alone(4, 3)


def test_they_may_be_entered_again():
    generators, state = own(4), torch.get_rng_state()
    found = []
    with generators:
        found.append(torch.rand(()).item())
        with generators, generators:
            found.append(torch.rand(()).item())
        found.append(torch.rand(()).item())
        generators.reseed(4, 2)  # which enters them too
        found.append(torch.rand(()).item())
    assert found == drawn_alone(4, 3) + drawn_alone(4, 1, epoch=2)
    assert torch.equal(torch.get_rng_state(), state)


def test_one_may_be_entered_within_another():
    one, other, found = own(1), own(2), []
    with one:
        found.append(torch.rand(()).item())
        inner = numbers_with(other)
        found.append(torch.rand(()).item())
    assert found == drawn_alone(1, 2)
    assert inner == drawn_alone(2, 3)


def test_another_thread_waits_for_its_turn():
    one, other, entered = own(1), own(2), threading.Event()

    def draw() -> list[float]:
        with other:
            entered.set()
            return [torch.rand(()).item() for _ in range(3)]

    with ThreadPoolExecutor(1) as pool:
        with one:
            waiting = pool.submit(draw)
            assert not entered.wait(0.1)
            mine = [torch.rand(()).item() for _ in range(3)]
        assert waiting.result(PATIENCE) == drawn_alone(2, 3)
    assert mine == drawn_alone(1, 3)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_that_draw_at_the_same_time_have_their_own_numbers(hasty):
    state, n, together = torch.get_rng_state(), 60, threading.Barrier(4)

    def draw(seed: int) -> list[float]:
        generators = own(seed)
        together.wait(PATIENCE)
        return one_by_one(generators, n)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(draw, range(4)))
    assert found == [drawn_alone(seed, n) for seed in range(4)]
    assert torch.equal(torch.get_rng_state(), state)


BAGS = toy_bags()


def network() -> nn.Module:
    """One that draws. It is made while no other thread has torch's generator."""
    return toy_net(BAGS, dropout=0.5)


def noisy_training(
    model: nn.Module, name: str, seed: int, also: Callable[[], None] = lambda: None
) -> Training:
    return Training(model, BAGS, METHODS[name], BAGS, seed=seed, after_epoch=also)


def test_a_training_does_not_notice_a_thread_that_draws_beside_it():
    alone, model = noisy_training(network(), "llp-vat", 3), network()
    ended, drew, found = threading.Event(), threading.Event(), list[float]()

    def draw() -> None:
        generators = own(8)
        while not ended.is_set():
            found.extend(numbers_with(generators, 1))
            drew.set()

    def wait_for_a_draw() -> None:
        drew.clear()
        assert drew.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        drawing = pool.submit(draw)
        try:
            beside = noisy_training(model, "llp-vat", 3, wait_for_a_draw)
        finally:
            ended.set()
        drawing.result(PATIENCE)
    assert same(alone, beside)
    assert found == drawn_alone(8, len(found))


def test_trainings_in_two_threads_do_not_notice_each_other():
    names, seeds = ["pi-model", "fpl"], [3, 4]
    alone = list(map(noisy_training, [network(), network()], names, seeds))
    state, both = torch.get_rng_state(), threading.Barrier(2)

    def meet() -> None:
        both.wait(PATIENCE)

    models = [network(), network()]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(noisy_training, models, names, seeds, [meet, meet]))
    assert all(map(same, alone, found))
    assert torch.equal(torch.get_rng_state(), state)
