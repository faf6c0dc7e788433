"""Views: where a zoomed crop lies, which colours change, what is cut out, and nothing else."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from apportion.errors import ConfigError
from apportion.nets import views
from apportion.nets.views import colour, cutout, zoom
from tests.nets.test_augment import DEVICES, DTYPES, batch, generator

VIEWS: dict[str, Callable[..., Tensor]] = {"zoom": zoom, "colour": colour, "cutout": cutout}
LUMINANCE = np.array([0.299, 0.587, 0.114])


def ramp(*sizes, count=1) -> Tensor:
    """Images of as many channels as axes: how far along each axis a pixel is, in pixels."""
    places = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in sizes), indexing="ij")
    return torch.stack(places).expand(count, -1, *sizes)


def per_image(*numbers) -> list[Tensor]:
    return [torch.full((1,), n, dtype=torch.float64) for n in numbers]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("shape", [(3, 8, 6), (1, 5, 5), (2, 3, 6), (2, 7)])
@pytest.mark.parametrize("name", VIEWS)
def test_shape_type_and_the_batch_itself_stay(name, shape, dtype, device):
    if name == "colour" and len(shape) == 2:
        pytest.skip("signals have no colours")
    x = batch(20, *shape, dtype=dtype, device=device)
    stored = x.clone()
    given = VIEWS[name](x, generator(device))
    assert (given.dtype, given.device, given.shape) == (x.dtype, x.device, x.shape)
    assert torch.equal(x, stored)
    if name != "colour" or dtype != torch.uint8:  # whose range is 0 to 255
        assert x.min() <= given.min() + 1e-4
        assert given.max() <= x.max() + 1e-4
    assert len(torch.unique(given.double() - x.double(), dim=0)) > 5


# ------------------------------------------------------------------------------------------- zoom


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 7, 12), (13, 93)])
def test_the_whole_image_without_a_turn_is_the_image(shape, dtype, device):
    x = batch(10, *shape, dtype=dtype, device=device)
    given = zoom(x, generator(device), least=1)
    torch.testing.assert_close(given, x, rtol=0, atol=1e-2 if dtype.is_floating_point else 0)


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_a_turn_by_a_right_angle_moves_pixels_as_rot90_does(quarters):
    x = batch(1, 3, 8, 8, dtype=torch.float64)
    one, none, angle = per_image(1, 0, quarters * math.pi / 2)
    given = views._resampled(x, one, one, none, none, angle)
    torch.testing.assert_close(given, x.rot90(quarters, (2, 3)))


def test_a_turn_of_an_image_that_is_wider_than_high_keeps_its_distances():
    x = ramp(40, 90)
    half, none, angle = per_image(0.4, 0, 0.7)
    (down, right) = views._resampled(x, half, half, none, none, angle)[0]
    # Seen from the middle of the image, in pixels, and linear as long as nothing is mirrored.
    rows, columns = np.mgrid[:40, :90]
    v, u = 0.4 * (rows - 19.5), 0.4 * (columns - 44.5)
    cosine, sine = math.cos(0.7), math.sin(0.7)
    np.testing.assert_allclose(right, 44.5 + cosine * u - sine * v, atol=1e-9)
    inside = np.abs(sine * u + cosine * v) < 19
    assert inside.mean() > 0.9
    np.testing.assert_allclose(down[inside], (19.5 + sine * u + cosine * v)[inside], atol=1e-9)


def test_crops_are_linear_lie_within_the_image_and_are_of_every_size_and_place():
    x = ramp(40, 60, count=4000)
    given = zoom(x, generator(), least=0.25)
    spans, middles = [], []
    for channel, axis, size in ((0, 2, 40), (1, 3, 60)):
        line = given[:, channel].movedim(axis - 1, 1)[
            :, 1:-1, 0
        ]  # off the border, which is mirrored
        slopes = line.diff(dim=1)
        torch.testing.assert_close(slopes, slopes[:, :1].expand_as(slopes))  # linear
        assert (slopes <= 1 + 1e-9).all()
        assert (slopes >= 0.25 - 1e-9).all()
        span, middle = slopes[:, 0] * size, line.mean(dim=1)
        assert (middle - span / 2 >= -0.5 - 1e-6).all()
        assert (middle + span / 2 <= size - 0.5 + 1e-6).all()
        spans.append(slopes[:, 0])
        middles.append((middle + 0.5 - span / 2) / (size - span))
    height, width = spans
    area, ratio = width * height, width / height
    assert_uniform((area - 0.25) / 0.75)
    for place in middles:
        assert_uniform(place)
    for one, other in ((middles[0], middles[1]), (area, middles[0]), (area, ratio.log())):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.07
    assert (ratio.log().abs() <= torch.minimum(-area.log(), torch.tensor(4 / 3).log()) + 1e-6).all()
    narrow = ratio[area < 0.75].log() / math.log(4 / 3)
    assert_uniform((narrow + 1) / 2)


def assert_uniform(values):
    """Kolmogorov and Smirnov's test, which chance fails once in a thousand."""
    n = len(values)
    away = np.sort(values.numpy()) - (np.arange(n) + 0.5) / n
    assert np.abs(away).max() < 1.95 / n**0.5


def test_images_are_turned_in_both_directions_up_to_the_angle():
    given = zoom(ramp(40, 40, count=4000), generator(), least=0.1, turn=0.5)
    near = given[:, :, 19:21, 19:21]
    across = near[:, :, 0, 1] - near[:, :, 0, 0]
    angle = torch.atan2(across[:, 0], across[:, 1])
    inside = ((given[:, :, 19:21, 19:21] > 1) & (given[:, :, 19:21, 19:21] < 38)).flatten(1).all(1)
    assert inside.double().mean() > 0.8
    # The sides of a crop differ, but a row of it is turned as a whole.
    assert angle[inside].abs().max() <= 0.5 + 1e-6
    assert_uniform(angle[inside] + 0.5)


def test_a_stretch_of_a_signal_is_linear_and_within_it():
    given = zoom(ramp(50, count=4000), generator(), least=0.4, turn=3.0)[:, 0, 1:-1]
    slopes = given.diff(dim=1)
    torch.testing.assert_close(slopes, slopes[:, :1].expand_as(slopes))
    length = slopes[:, 0]
    assert_uniform((length - 0.4) / 0.6)
    start = given.mean(dim=1) + 0.5 - length * 25
    assert_uniform(start / (50 - 50 * length))


# ----------------------------------------------------------------------------------------- colour


def test_one_image_in_five_keeps_its_colours():
    x = batch(5000, 3, 2, 2)
    same = (colour(x, generator(), grey=0) == x).flatten(1).all(dim=1)
    assert 0.17 < same.double().mean() < 0.23
    assert torch.equal(colour(x, generator(), strength=0, grey=0), x)


def test_a_turn_of_the_hue_keeps_luminance_and_how_colourful_a_pixel_is():
    x = torch.rand(200, 3, 4, 4, generator=generator(seed=1), dtype=torch.float64)
    angle = torch.linspace(-3, 3, 200, dtype=torch.float64).view(-1, 1, 1, 1)
    turned = views._tinted(x, torch.ones_like(angle), angle)
    light = np.einsum("c,bchw->bhw", LUMINANCE, x)
    np.testing.assert_allclose(np.einsum("c,bchw->bhw", LUMINANCE, turned), light, atol=1e-12)
    assert (turned - x).abs().amax(dim=(1, 2, 3)).min() > 0.005

    def chroma(images):
        to_iq = np.array([[0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
        i, q = np.einsum("kc,bchw->kbhw", to_iq, images)
        return i + 1j * q

    expected = chroma(x) * np.exp(1j * angle.numpy()[:, 0])
    np.testing.assert_allclose(chroma(turned), expected, atol=1e-12)


def test_colours_change_as_much_as_they_may():
    colours = torch.tensor([0.5, 0.4, 0.45], dtype=torch.float64)
    x = colours.view(1, 3, 1, 1).repeat(4000, 1, 2, 2)
    x[0, 0, 0, 0], x[0, 1, 0, 0] = 0.0, 1.0  # the range of the batch
    given = colour(x, generator(), strength=0.4, grey=0)[1:]
    light = np.einsum("c,bchw->bhw", LUMINANCE, given)[:, 0, 0]
    moved = (given - x[1:]).abs().amax(dim=(1, 2, 3)).numpy() > 1e-9
    bright = light[moved] / (LUMINANCE @ colours.numpy())
    assert_uniform(torch.from_numpy((bright - 0.6) / 0.8))
    to_iq = np.array([[0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
    i, q = to_iq @ given[moved, :, 0, 0].numpy().T
    i0, q0 = to_iq @ colours.numpy()
    turned = (i + 1j * q) / (i0 + 1j * q0)
    assert_uniform(torch.from_numpy((np.angle(turned) / (0.4 * math.pi / 2) + 1) / 2))
    grown = np.abs(turned) / bright
    # Contrast and saturation both scale how colourful a pixel is; light follows contrast by 1.4 %.
    assert 0.6**2 * 0.98 < grown.min() < 0.5
    assert 1.7 < grown.max() < 1.4**2 * 1.02


def test_contrast_is_about_the_mean_of_the_image():
    x = torch.rand(300, 1, 6, 6, generator=generator(seed=1), dtype=torch.float64) / 5 + 0.4
    x[0, 0, 0, 0], x[0, 0, 0, 1] = 0.0, 1.0
    given = colour(x, generator(), strength=0.3)[1:]
    x = x[1:]
    bright = given.mean((1, 2, 3)) / x.mean((1, 2, 3))
    ratio = given.std((1, 2, 3)) / x.std((1, 2, 3)) / bright
    moved = (bright - 1).abs() > 1e-9
    assert 0.7 < moved.double().mean() < 0.9
    for found in (bright[moved], ratio[moved]):
        assert_uniform((found - 0.7) / 0.6)
    assert abs(np.corrcoef(bright[moved], ratio[moved])[0, 1]) < 0.25


@pytest.mark.parametrize("device", DEVICES)
def test_grey_images_have_equal_channels(device):
    x = batch(3000, 3, 2, 2, device=device)
    after = colour(x, generator(device), strength=0, grey=1).double().cpu().numpy()
    light = np.einsum("c,bchw->bhw", LUMINANCE, x.double().cpu().numpy())[:, None]
    np.testing.assert_allclose(after, np.broadcast_to(light, after.shape), atol=0.51)
    for dtype in (torch.uint8, torch.float32):
        given = colour(x.to(dtype), generator(device), grey=0.3).double()
        spread = (given.amax(dim=1) - given.amin(dim=1)).flatten(1).amax(dim=1)
        assert 0.27 < (spread < 1e-3).double().mean() < 0.33


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_images_without_three_channels_have_no_hue(channels):
    x = batch(50, channels, 3, 3)
    given = colour(x, generator(), strength=0.5, grey=1).double()
    for before, after in zip(x.double(), given, strict=True):
        free = (after > 0) & (after < 255)
        if free.sum() > 3:  # one line for all pixels of all channels
            assert np.corrcoef(before[free], after[free])[0, 1] > 0.999


def test_values_stay_in_the_range_of_the_batch():
    x = torch.randn(100, 3, 5, 5, generator=generator(seed=1)) * 7 + 20
    given = colour(x, generator(), strength=1)
    torch.testing.assert_close(given.min(), x.min())
    torch.testing.assert_close(given.max(), x.max())
    shifted = colour(10 * x + 3, generator(), strength=1)
    torch.testing.assert_close(shifted, 10 * given + 3, rtol=1e-4, atol=1e-2)
    flat = torch.full((4, 3, 2, 2), 5.0)
    assert torch.equal(colour(flat, generator(), strength=1), flat)


# ----------------------------------------------------------------------------------------- cutout


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "share", "side"),
    [((2, 9, 13), 0.375, 3), ((3, 8, 8), 0.5, 4), ((2, 12), 0.25, 3), ((1, 6, 6), 1.0, 6)],
)
def test_a_square_becomes_the_mean_and_the_rest_stays(shape, share, side, dtype, device):
    x = batch(2000, *shape) // 5
    x[..., ::2] += 200  # no pixel is of its image's mean
    x = x.to(dtype).to(device)
    given = cutout(x, generator(device), share=share)
    mean = x.float().mean(tuple(range(2, x.ndim)), keepdim=True)
    mean = mean.to(dtype) if dtype.is_floating_point else mean.round().to(dtype)
    changed = given != x
    assert torch.equal(given[changed], mean.expand_as(x)[changed])
    assert torch.equal(changed, changed[:, :1].expand_as(changed))
    squares = [square(middle, side, shape[1:]) for middle in np.ndindex(*shape[1:])]
    number = {inside.tobytes(): k for k, inside in enumerate(squares)}
    found = [number[one.tobytes()] for one in changed[:, 0].cpu().numpy()]
    counts, n = np.bincount(found, minlength=len(squares)), len(squares)
    # χ² with n − 1 degrees of freedom; chance exceeds this once in a thousand or less often
    assert ((counts - 2000 / n) ** 2 / (2000 / n)).sum() < n + 4.5 * math.sqrt(2 * n)


def square(middle, side, sizes):
    lines = [
        (np.arange(size) >= at - side // 2) & (np.arange(size) < at - side // 2 + side)
        for at, size in zip(middle, sizes, strict=True)
    ]
    return lines[0] if len(lines) == 1 else np.logical_and.outer(*lines)


def test_nothing_is_cut_out_of_a_share_of_0():
    x = batch(20, 3, 8, 8)
    assert torch.equal(cutout(x, generator(), share=0), x)


# ---------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("name", VIEWS)
def test_tables_are_refused(name):
    with pytest.raises(ConfigError, match=rf"^{name} takes images.* is of shape \(2, 3\)"):
        VIEWS[name](batch(2, 3), generator())


def test_signals_have_no_colours():
    with pytest.raises(ConfigError, match=r"colour takes images, but .* \(2, 3, 9\)"):
        colour(batch(2, 3, 9), generator())
    with pytest.raises(ConfigError, match="zoom takes images or signals"):
        zoom(batch(2, 3, 4, 5, 6), generator())
