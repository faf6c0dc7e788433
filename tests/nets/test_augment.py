"""Augmentation: what may happen to an instance, how often, and that nothing else does."""

import inspect

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from apportion.errors import ConfigError
from apportion.nets.augment import (
    AUGMENTATIONS,
    NUMBERS,
    augmented,
    check_augmentations,
    crop,
    flip,
    noise,
)

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    ),
]
DTYPES = [torch.uint8, torch.int16, torch.float32, torch.bfloat16]


def generator(device="cpu", seed=0) -> Generator:
    return Generator(device).manual_seed(seed)


def batch(*shape, dtype=torch.uint8, device="cpu") -> Tensor:
    values = torch.randint(0, 256, shape, generator=generator(seed=1))
    return values.to(dtype).to(device)


def shifts(instance, padding):
    """Every crop of the padded instance by the offsets that lead to it, as numpy pads it."""
    sizes = instance.shape[1:]
    padded = np.pad(instance, [(0, 0)] + [(padding, padding)] * len(sizes), mode="reflect")
    for starts in np.ndindex(*[2 * padding + 1] * len(sizes)):
        where = tuple(slice(a, a + size) for a, size in zip(starts, sizes, strict=True))
        yield starts, padded[:, *where]


def offsets(x, moved, padding):
    """The offsets by which each instance was moved, which there must be."""
    found = []
    for before, after in zip(x.double().cpu().numpy(), moved.double().cpu().numpy(), strict=True):
        fits = [starts for starts, shift in shifts(before, padding) if np.array_equal(shift, after)]
        assert fits
        found += fits[:1]
    return np.array(found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "padding"), [((3, 8, 6), 2), ((1, 5, 5), 4), ((4, 12), 3), ((2, 7), 6)]
)
def test_a_crop_is_a_shift_of_the_mirrored_instance(shape, padding, dtype, device):
    x = batch(20, *shape, dtype=dtype, device=device)
    stored = x.clone()
    moved = crop(x, generator(device), padding=padding)
    assert (moved.dtype, moved.device, moved.shape) == (x.dtype, x.device, x.shape)
    assert torch.equal(x, stored)
    assert len(np.unique(offsets(x, moved, padding), axis=0)) > 4  # each instance its own


def test_all_offsets_are_equally_likely_and_independent():
    x = batch(1, 1, 9, 9).expand(4000, 1, 9, 9)
    moved = crop(x, generator(), padding=2)
    shift = {shifted.tobytes(): starts for starts, shifted in shifts(x[0].numpy(), 2)}
    found = np.array([shift[instance.tobytes()] for instance in moved.numpy()])
    counts = np.bincount(found[:, 0] * 5 + found[:, 1], minlength=25)
    assert ((counts - 160) ** 2 / 160).sum() < 52  # χ² with 24 degrees of freedom: one in 1000


def test_a_crop_may_reach_beyond_the_instance():
    x = torch.arange(3).expand(200, 1, 3)
    line = [0, 1, 2, 1] * 10  # mirrored again and again; 0 is at 20
    possible = [line[20 + move : 23 + move] for move in range(-9, 10)]
    found = crop(x, generator(), padding=9)[:, 0].tolist()
    assert all(instance in possible for instance in found)
    assert all(instance in found for instance in possible)
    assert crop(torch.ones(2, 3, 1), generator()).tolist() == torch.ones(2, 3, 1).tolist()
    assert torch.equal(crop(x, generator(), padding=0), x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4, 6), (2, 7)])
def test_a_flip_mirrors_half_of_the_instances(shape, dtype, device):
    x = batch(1000, *shape, dtype=dtype, device=device)
    flipped = flip(x, generator(device))
    assert (flipped.dtype, flipped.device) == (x.dtype, x.device)
    mirror = torch.from_numpy(x.double().cpu().numpy()[..., ::-1].copy())
    same = (flipped == x).flatten(1).all(dim=1).cpu()
    mirrored = (flipped.double().cpu() == mirror).flatten(1).all(dim=1)
    assert (same ^ mirrored).all()
    assert 430 < mirrored.sum() < 570  # four and a half standard deviations


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_noise_is_a_share_of_what_each_channel_varies(dtype, device):
    x = torch.randn(400, 3, 8, 8, generator=generator(seed=1), dtype=torch.float64)
    x = x * torch.tensor([5.0, 10.0, 20.0]).view(3, 1, 1) + 128
    x = x.round().clamp(0, 255).to(dtype).to(device)
    noisy = noise(x, generator(device), std=0.5)
    assert (noisy.dtype, noisy.device) == (x.dtype, x.device)
    change = (noisy.double() - x.double()).cpu().numpy()
    rounding = 1 / 12 if dtype == torch.uint8 else 0
    expected = np.sqrt((0.5 * np.array([5, 10, 20])) ** 2 + rounding)
    np.testing.assert_allclose(change.std(axis=(0, 2, 3)), expected, rtol=0.03)
    np.testing.assert_allclose(change.mean(axis=(0, 2, 3)), 0, atol=0.3)
    pairs = np.corrcoef(change.reshape(400, -1)[:, :20].T) - np.eye(20)
    assert np.abs(pairs).max() < 0.25  # values are drawn one by one


def test_noise_follows_the_columns_of_a_table():
    x = torch.randn(5000, 3, generator=generator(seed=1)) * torch.tensor([1e-3, 1.0, 1e3]) + 7
    x[:, 1] = 4
    change = noise(x, generator()) - x
    assert change[:, 0].std() == pytest.approx(1e-4, rel=0.05)
    assert change[:, 2].std() == pytest.approx(1e2, rel=0.05)
    assert (change[:, 1] == 0).all()
    assert torch.equal(noise(x[:1], generator()), x[:1])


def test_noise_ends_where_the_type_does():
    x = torch.tensor([[0], [255]], dtype=torch.uint8).repeat(2000, 1)
    noisy = noise(x, generator(), std=0.2).short()
    low, high = noisy[::2], noisy[1::2]
    for away in (low, 255 - high):  # half stay at the end; had it wrapped they would be far away
        assert 0.4 < (away == 0).float().mean() < 0.6
        assert away.max() < 127
    large = torch.tensor([[[2**40]], [[2**40 + 10]]])  # of signals: rows may be ids
    assert ((noise(large, generator()) - large).abs() < 10).all()  # float32 knows no such numbers


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_generator_decides_and_nothing_else(name, device):
    change, x = AUGMENTATIONS[name], batch(50, 2, 6, 6, dtype=torch.float32, device=device)
    state, source = torch.get_rng_state(), generator(device, seed=4)
    first, second = change(x, source), change(x, source)
    assert torch.equal(first, change(x, generator(device, seed=4)))
    assert not torch.equal(first, second)
    assert not torch.equal(first, change(x, generator(device, seed=5)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_an_empty_batch_stays_empty(name, dtype):
    x = batch(0, 3, 8, 8, dtype=dtype)
    assert AUGMENTATIONS[name](x, generator()).shape == (0, 3, 8, 8)


def test_the_named_ones_are_applied_in_order_to_the_first_part():
    frames, lengths = batch(30, 2, 9), torch.arange(30)
    once, twice = generator(seed=6), generator(seed=6)
    first, rest = augmented((frames, lengths), ["flip", "noise", "crop"], once)
    assert rest is lengths
    assert torch.equal(first, crop(noise(flip(frames, twice), twice), twice))
    assert augmented((frames, lengths), [], once) == (frames, lengths)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: augmented((batch(2, 3),), ["flop"], generator()), "Did you mean 'flip'"),
        (
            lambda: augmented((batch(2, 3),), ["x"], generator()),
            "'x'.\n  Known: crop, flip, noise, zoom, colour, cutout",
        ),
        (lambda: crop(batch(2, 3), generator()), r"crop takes .* shape \(2, 3\)"),
        (lambda: flip(batch(2, 3), generator()), r"flip takes .* shape \(2, 3\)"),
        (
            lambda: crop(batch(2, 3, 8), generator(), padding=-1),
            "padding must be an integer ≥ 0; got -1",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.parametrize(
    ("entry", "numbers"),
    [
        ("crop:2", {"padding": 2}),
        ("noise:0.5", {"std": 0.5}),
        ("noise:5e-1", {"std": 0.5}),
        ("zoom:0.6", {"least": 0.6}),
        ("zoom:1:3.14", {"least": 1, "turn": 3.14}),
        ("colour:0.4:0", {"strength": 0.4, "grey": 0}),
        ("cutout:1", {"share": 1}),
    ],
)
def test_numbers_behind_a_name_are_its_parameters(entry, numbers):
    x, change = batch(20, 3, 8, 8), AUGMENTATIONS[entry.split(":")[0]]
    (given,) = augmented((x,), [entry], generator())
    assert torch.equal(given, change(x, generator(), **numbers))
    assert not torch.equal(given, change(x, generator()))


def test_every_number_of_an_augmentation_has_a_rule_that_its_default_meets():
    assert NUMBERS.keys() == AUGMENTATIONS.keys()
    for name, change in AUGMENTATIONS.items():
        _, _, *parameters = inspect.signature(change).parameters.values()
        assert [number.name for number in parameters] == list(NUMBERS[name])
        check_augmentations([":".join([name, *(str(number.default) for number in parameters)])])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("zom:0.5", "there is no augmentation 'zom'.\n  Did you mean 'zoom'"),
        ("", "there is no augmentation ''"),
        ("flip:1", "'flip:1' has 1 number, but flip takes none.\n  Write flip alone."),
        ("crop:1:2", "'crop:1:2' has 2 numbers, but crop takes 1.\n  Write crop:PADDING."),
        ("zoom:1:2:3", "takes 2.\n  Write zoom:LEAST:TURN."),
        ("crop:x", "padding of the augmentation 'crop:x' must be an integer ≥ 0; got 'x'"),
        ("crop:1.5", "padding .* integer ≥ 0; got '1.5'"),
        ("crop:-1", "padding .* integer ≥ 0; got '-1'"),
        ("crop:", "padding .* got ''"),
        ("noise:0", "std .* must be a number above 0; got '0'"),
        ("noise:inf", "std .* must be a number above 0; got 'inf'"),
        ("zoom:0", "least .* must be a number above 0 and at most 1; got '0'"),
        ("zoom:1.01", "least .* at most 1; got '1.01'"),
        ("zoom:nan", "least .* got 'nan'"),
        ("zoom:0.5:-0.1", "turn .* must be an angle in radians from 0 to π; got '-0.1'"),
        ("zoom:0.5:3.2", "turn .* got '3.2'"),
        ("colour:1.5", "strength .* must be a number from 0 to 1; got '1.5'"),
        ("colour:0.3:-1", "grey .* must be a number from 0 to 1; got '-1'"),
        ("cutout:2", "share .* must be a number from 0 to 1; got '2'"),
    ],
)
def test_numbers_are_checked_before_training(entry, message):
    with pytest.raises(ConfigError, match=message):
        check_augmentations(["crop", entry])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_augmentation_can_be_captured(dtype):
    x, source = batch(8, 3, 32, 32, dtype=dtype, device="cuda"), generator("cuda")
    names, graph = [*AUGMENTATIONS, "zoom:0.5:0.2"], torch.cuda.CUDAGraph()
    graph.register_generator_state(source)
    augmented((x,), names, source)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):  # which nothing that waits for the host survives
        (out,) = augmented((x,), names, source)
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out)


# ------------------------------------------------------------------------- a function of one's own


def test_names_come_first_and_then_the_function_gets_all_parts():
    x = torch.zeros(3, 1, 4), torch.tensor([4, 2, 1])
    got = []

    def own(frames, lengths):
        got.append(frames.clone())
        return frames + 1, lengths - 1

    frames, lengths = augmented(x, ["noise"], generator(), own)
    assert torch.equal(got[0], noise(x[0], generator()))
    assert torch.equal(frames, got[0] + 1)
    assert lengths.tolist() == [3, 1, 0]
    assert torch.equal(augmented(x[:1], [], generator(), lambda x: x + 2)[0], x[0] + 2)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (lambda x: x[:2], r"a tensor of shape \(2, 4\) for a batch of 3 rows"),
        (lambda x: x.sum(), r"a tensor of shape \(\)"),
        (lambda x: x.numpy(), "a ndarray"),
        (lambda x: None, "a NoneType"),
        (lambda x: (x, 3), "a tuple"),
    ],
)
def test_what_a_net_cannot_take_is_refused(own, said):
    with pytest.raises(ConfigError, match=f"augment returned {said}"):
        augmented((torch.zeros(3, 4),), [], generator(), own)


def test_noise_leaves_ids_alone():
    for dtype in (torch.int32, torch.int64):
        with pytest.raises(ConfigError, match="which may be ids"):
            noise(torch.arange(12, dtype=dtype).reshape(4, 3), generator())


def test_a_bundle_takes_no_numbers():
    with pytest.raises(ConfigError, match=r"strong stands for several.*\n.*Write strong alone"):
        check_augmentations(["strong:0.5"])
