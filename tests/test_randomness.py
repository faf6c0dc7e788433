"""Random numbers are a pure function of what they are for."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.randomness import Purpose, generator

SEEDS, EPOCHS = st.integers(0, 2**63 - 1), st.integers(0, 2**31)


@given(SEEDS, st.sampled_from(Purpose), EPOCHS, st.integers(0, 2**20))
@settings(max_examples=100, deadline=None)
def test_the_same_arguments_give_the_same_numbers(seed, purpose, epoch, block):
    one, again = (generator(seed, purpose, epoch, block=block) for _ in range(2))
    other = generator(seed, Purpose.SHUFFLE, 0)
    other.random(10)  # other generators, and numbers already drawn, make no difference
    assert one.random(5).tolist() == again.random(5).tolist()


def numbers_of(seed, purpose, epoch, block):
    return generator(seed, purpose, epoch, block=block)


def test_every_seed_purpose_epoch_and_block_has_numbers_of_its_own():
    keys = list(
        itertools.product([0, 1, 2**32, 2**63 - 1], Purpose, [0, 1, 2, 255, 2**31], [0, 1, 2**16])
    )
    firsts = [numbers_of(*key).integers(2**63) for key in keys]
    assert len(set(firsts)) == len(keys)


def test_generators_are_not_correlated():
    keys = itertools.product([0, 1], Purpose, [0, 1, 2], [0, 1])
    numbers = np.array([numbers_of(*key).normal(size=2000) for key in keys])
    correlation = np.corrcoef(numbers) - np.eye(len(numbers))
    assert np.abs(correlation).max() < 6 / np.sqrt(2000)


def test_a_block_does_not_run_into_the_next():
    ours = generator(0, Purpose.PERTURBATION, 1, block=0).integers(2**63, size=100_000)
    theirs = generator(0, Purpose.PERTURBATION, 1, block=1).integers(2**63, size=100_000)
    assert len(np.intersect1d(ours, theirs)) == 0


@given(st.integers(0, 2**20), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_a_position_is_reached_without_drawing_what_is_before_it(position, block):
    whole = generator(7, Purpose.FIRST_LABELS, 2, block=block).random(position + 9)
    later = generator(7, Purpose.FIRST_LABELS, 2, block=block, position=position)
    assert later.random(9).tolist() == whole[position:].tolist()
