"""Which share of the bags is held out, whole."""

from __future__ import annotations

from numbers import Real
from typing import Any

from apportion.errors import count, must_be
from apportion.plan.choices import Choice

__all__ = ["check_share", "held_out_share", "share_reported"]

SHARE = 0.1  # of the bags, to select the epoch by
FEWEST_HELD_OUT = 5  # bags: fewer select worse than taking the last epoch


def held_out_share(n_bags: int, asked: float | None = None, *, needed_by: str = "") -> Choice:
    """Decide which share of the bags is held out, whole, to select the epoch by.

    Parameters
    ----------
    asked : float, optional
        What is asked for, which is always done.
    needed_by : str
        The option that needs bags to be held out, however few there are; "" if there is none.

    Examples
    --------
    >>> print(held_out_share(200))
    0.1 (a tenth of 200 bags selects the epoch)
    >>> print(held_out_share(20, 0.2))
    0.2 (given)
    >>> print(held_out_share(20, needed_by="patience"))
    0.1 (a tenth of 20 bags, which patience goes by)
    """
    if asked is not None:
        check_share(asked)
        return Choice(float(asked), "given")
    tenth = f"a tenth of {count(n_bags, 'bag')}"
    if needed_by and n_bags > 1:
        return Choice(SHARE, f"{tenth}, which {needed_by} goes by")
    if round(SHARE * n_bags) < FEWEST_HELD_OUT:
        fewer = f"is fewer than {FEWEST_HELD_OUT}, which select worse than the last epoch"
        return Choice(0.0, f"{tenth} {fewer}")
    return Choice(SHARE, f"{tenth} selects the epoch")


def share_reported(asked: float | None) -> Choice:
    """Decide which share of the bags is held out, whole, from a training that selects nothing."""
    if asked is None:
        return Choice(0.0, "nothing is selected, so all bags are learned from")
    reported = "; it selects nothing, and is only reported" if asked else ""
    return Choice(float(asked), f"given{reported}")


def check_share(asked: Any, name: str = "validation") -> None:
    """Check a share of bags that is asked for, by the name that the caller has for it."""
    number = isinstance(asked, Real) and not isinstance(asked, bool)
    if asked is not None and not (number and 0 <= float(asked) < 1):
        raise must_be(name, "a number from 0 to below 1", asked)
