"""Random numbers are a pure function of what they are for."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.engine.streams import Purpose, generator, reseed, stream

CPU = torch.device("cpu")
SEEDS, EPOCHS = st.integers(0, 2**63 - 1), st.integers(0, 2**31)


@given(SEEDS, st.sampled_from(Purpose), EPOCHS, st.integers(0, 2**20))
@settings(max_examples=100, deadline=None)
def test_the_same_arguments_give_the_same_numbers(seed, purpose, epoch, block):
    one, again = (stream(seed, purpose, epoch, block) for _ in range(2))
    other = stream(seed, Purpose.SHUFFLE, 0)
    other.random(10)  # other streams, and numbers already drawn, make no difference
    assert one.random(5).tolist() == again.random(5).tolist()


def test_every_seed_purpose_epoch_and_block_has_numbers_of_its_own():
    keys = list(
        itertools.product([0, 1, 2**32, 2**63 - 1], Purpose, [0, 1, 2, 255, 2**31], [0, 1, 2**16])
    )
    firsts = [stream(*key).integers(2**63) for key in keys]
    assert len(set(firsts)) == len(keys)


def test_streams_are_not_correlated():
    keys = itertools.product([0, 1], Purpose, [0, 1, 2], [0, 1])
    numbers = np.array([stream(*key).normal(size=2000) for key in keys])
    correlation = np.corrcoef(numbers) - np.eye(len(numbers))
    assert np.abs(correlation).max() < 6 / np.sqrt(2000)


def test_a_block_does_not_run_into_the_next():
    ours = stream(0, Purpose.PERTURBATION, 1, 0).integers(2**63, size=100_000)
    theirs = stream(0, Purpose.PERTURBATION, 1, 1).integers(2**63, size=100_000)
    assert len(np.intersect1d(ours, theirs)) == 0


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
    generator(CPU).manual_seed(0)
    one = torch.rand(3)
    generator(CPU).manual_seed(0)
    assert torch.equal(torch.rand(3, generator=generator(CPU)), one)


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
