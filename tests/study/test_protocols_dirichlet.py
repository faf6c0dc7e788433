"""Protocols: proportions from a Dirichlet distribution."""

import numpy as np
import pytest
from scipy import stats

from apportion.errors import BagError
from apportion.study import protocols
from apportion.study.protocols import Drawn, dirichlet, pools, rand

LABELS = np.random.default_rng(3).permutation(np.repeat(np.arange(4), 100))


def shares(members):
    return (LABELS[members][:, :, None] == np.arange(4)).mean(axis=1)


@pytest.mark.parametrize("alpha", [0.2, 1, 5])
def test_dirichlet_proportions_have_their_distribution(alpha):
    """The share of one of four classes follows Beta(α, 3α), rounded to hundredths."""
    members = dirichlet(LABELS, 100, 1500, alpha=alpha, seed=0).members
    p = shares(members)
    assert p.mean(axis=0) == pytest.approx(0.25, abs=0.03)
    assert p.var(axis=0) == pytest.approx(3 / 16 / (4 * alpha + 1), rel=0.12)
    steps = np.arange(100) / 100
    reached = (p[:, :1] <= steps + 1e-9).mean(axis=0)
    assert reached == pytest.approx(stats.beta(alpha, 3 * alpha).cdf(steps + 0.005), abs=0.05)


def test_dirichlet_gives_what_rand_gives():
    drawn = dirichlet(LABELS, 30, alpha=1, seed=0)
    assert isinstance(drawn, Drawn)
    assert drawn.members.shape == rand(LABELS, 30, seed=0).members.shape == (14, 30)
    assert (np.diff(np.sort(drawn.members, axis=1), axis=1) > 0).all()
    few, many = (dirichlet(LABELS, 30, n, alpha=1, seed=0).members for n in (5, 9))
    assert np.array_equal(few, many[:5])
    assert not np.array_equal(few, dirichlet(LABELS, 30, 5, alpha=1, seed=1).members)
    part = pools(400, (0.5, 0.5), seed=0)[0]
    assert np.isin(dirichlet(LABELS, 30, rows=part, alpha=1, seed=0).members, part).all()


def test_dirichlet_does_not_sort_rows_inside_a_bag():
    members = dirichlet(LABELS, 20, 2000, alpha=1, seed=0).members
    assert LABELS[members].mean(axis=0) == pytest.approx(1.5, abs=0.12)
    assert (np.diff(members, axis=1) > 0).mean() == pytest.approx(0.5, abs=0.02)


def test_dirichlet_counts_what_it_draws_again():
    """Near 0 a bag is of one class; that of the scarce one cannot be drawn: one redraw a bag."""
    labels = np.repeat([0, 1], [3, 30])
    drawn = dirichlet(labels, 10, 1000, alpha=1e-6, seed=0)
    assert (labels[drawn.members] == 1).all()
    assert drawn.redrawn / 1000 == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf"), 1e10])
def test_dirichlet_refuses_an_alpha(alpha):
    with pytest.raises(BagError, match=r"alpha must be more than 0 and at most 1e\+09; got"):
        dirichlet(LABELS, 10, alpha=alpha, seed=0)


def test_dirichlet_says_that_a_larger_alpha_helps(monkeypatch):
    monkeypatch.setattr(protocols, "MOST_TRIES", 50)
    with pytest.raises(BagError, match=r"class 0 has 5 rows(.|\n)*larger alpha"):
        dirichlet(np.repeat([0, 1], 5), 9, alpha=1e-6, seed=0)
    with pytest.raises(BagError, match="a bag of 11 rows") as caught:
        dirichlet(np.repeat([0, 1], 5), 11, alpha=1, seed=0)
    assert "10 at most" in str(caught.value)
