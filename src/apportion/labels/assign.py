r"""Labels that meet every bag's counts at the least cost: the paper's Eq. 6, solved exactly.

Given costs :math:`L` of n instances and C classes, and whole counts :math:`k` that sum to n,

.. math:: \min_y \sum_j L_{j y_j} \quad\text{with exactly } k_c \text{ labels of each class } c.

The binary programme of the paper is a transportation problem, whose linear relaxation is exact
and whose dual has one price :math:`u_c` for each class. Labels that meet the counts are optimal if
every one is a best class at these prices, :math:`y_j \in \arg\min_c (L_{jc} - u_c)`. What they cost
above that, summed over the bag, is the *gap* between the primal and the dual value. An answer is
returned only if its gap is within the rounding error of the arithmetic: 0 where costs are whole
numbers, and otherwise at most

.. math:: 8 \cdot 2^{-52} \cdot n \cdot \max_{jc} (L_{jc} - \min_b L_{jb})

(finite costs only; the arithmetic is that of float64 whatever the costs are stored in). How the
prices are found, in a few passes over the costs, is in :mod:`apportion.labels.kernel`.

Reference: S. Matsuo, R. Bise, S. Uchida, D. Suehiro, "Learning From Label Proportion with Online
Pseudo-Label Decision by Regret Minimization", ICASSP 2023.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apportion.bags.bags import Bags
from apportion.config import MOST_THREADS
from apportion.errors import AssignmentError
from apportion.labels import kernel
from apportion.labels.compiling import Solvers
from apportion.threads import available_cores

__all__ = ["Assignment", "assign", "compile_ahead", "likeliest_labels"]

TOO_LARGE = 2**53  # for an integer: float64 does not have all of them from here on
SOLVERS = Solvers(kernel)
WORTH_A_THREAD = 100_000  # costs; with fewer, starting threads takes longer than solving


@dataclass(frozen=True, eq=False)
class Assignment:
    """Labels of least cost, with the prices that prove it.

    One bag has plain numbers and a row of prices; several have an entry and a row for each.
    """

    labels: Any  # (N,) int64
    prices: Any  # (C,) or (n_bags, C) float64: a warm start for costs that are similar
    objective: Any  # the labels' total cost
    gap: Any  # primal minus dual value: how far from optimal the labels can be at most
    tolerance: Any  # what the gap may be; 0 where the costs are whole numbers

    def __repr__(self) -> str:
        several = self.prices.ndim == 2
        where = f" in {len(self.prices):,} bags" if several else ""
        total = float(self.objective.sum()) if several else self.objective
        gap = float(max(self.gap, default=0)) if several else self.gap
        return (
            f"Assignment({len(self.labels):,} labels{where}, objective {total:.6g}, gap {gap:.1g})"
        )


def assign(
    cost: Any,
    counts: Any,
    offsets: Any = None,
    *,
    prices: Any = None,
    threads: int | None = None,
) -> Assignment:
    """Assign a label to every instance, at the least total cost that meets the counts of all bags.

    Parameters
    ----------
    cost : array or tensor of shape (N, C)
        What each label costs each instance; +inf forbids it. C-contiguous float64 is read in
        place, float32 is widened a few bags at a time; all else is converted to float64, and
        refused if that is not exact.
    counts : array of int of shape (C,), or (n_bags, C) with `offsets`
        How many labels of each class a bag gets. Each row sums to the size of its bag.
    offsets : array of int of shape (n_bags + 1,), optional
        Bag i holds the rows offsets[i] to offsets[i + 1] of `cost`. Without it all are one bag.
    prices : array of the shape of `counts`, optional
        Where to start, for example the prices of an earlier assignment of similar costs. They
        change how long it takes, and which of several equally good answers is found, nothing else.
        Of two classes they change nothing: ties go to the first rows.
    threads : int, optional
        How many bags to solve at a time: by default one for each available core. The result does
        not depend on it.

    Returns
    -------
    Assignment
        Tensors on the device of `cost` if that is a tensor, numpy arrays otherwise.

    Raises
    ------
    AssignmentError
        If the input contradicts itself, or if no answer can be certified.

    Examples
    --------
    >>> cost = [[0.1, 0.9], [0.2, 0.7], [0.4, 0.5]]
    >>> assign(cost, [1, 2])
    Assignment(3 labels, objective 1.3, gap 0)
    >>> assign(cost, [1, 2]).labels
    array([0, 1, 1])

    Two bags at once, of two instances and one:

    >>> assign(cost, [[1, 1], [0, 1]], [0, 2, 3]).labels
    array([0, 1, 1])
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(cost, torch.Tensor):
        return _assign_tensor(torch, cost, counts, offsets, prices, threads)

    if threads is not None and not 1 <= threads <= MOST_THREADS:
        remedy = f"Pass 1 to {MOST_THREADS:,}, or none for every core."
        raise AssignmentError(f"threads is {threads}.", remedy)
    cost, counts = _readable(cost), _whole(counts, "counts")
    one_bag = offsets is None
    if one_bag:
        counts, offsets = counts[None], np.array((0, len(cost)))
        prices = None if prices is None else _unmasked(prices, "prices")[None]
    else:
        offsets = _whole(offsets, "offsets")
        prices = None if prices is None else _unmasked(prices, "prices")
    _check_shapes(cost, counts, offsets, prices, one_bag)

    n_bags = len(counts)
    labels = np.empty(len(cost), np.int64)
    found = np.zeros(counts.shape) if prices is None else prices.astype(np.float64, order="C")
    where, values = np.empty((n_bags, 3), np.int64), np.empty((n_bags, 3))

    solve_bags = SOLVERS.of(cost.shape[1], cost.size)

    def solve(first: int, last: int) -> None:
        rows = cost if n_bags == 1 else cost[offsets[first] : offsets[last]]
        if rows.dtype != np.float64:  # widened a few bags at a time, rather than compiled for
            rows = rows.astype(np.float64)
        warm = prices is not None
        solve_bags(rows, counts, offsets, found, warm, labels, first, last, where, values)

    if n_bags == 1 or cost.size < WORTH_A_THREAD:
        solve(0, n_bags)
    else:
        workers = threads or available_cores()
        shares = np.linspace(0, len(cost), 8 * workers + 1)  # all end at about the same time
        cuts = np.searchsorted(offsets, shares).tolist()
        cuts[-1] = n_bags
        left = iter(list(pairwise(cuts)))  # a task per thread: one per chunk costs more

        def work() -> None:
            for first, last in left:
                solve(first, last)

        if workers == 1:
            work()
        else:
            with ThreadPoolExecutor(workers) as pool:
                for worker in [pool.submit(work) for _ in range(workers)]:
                    worker.result()

    status = where[0, 0] if n_bags == 1 else where[:, 0].max(initial=kernel.SOLVED)
    if status != kernel.SOLVED:
        raise _failure(cost, counts, offsets, where, values, one_bag)
    if one_bag:
        return Assignment(labels, found[0], *values[0].tolist())
    return Assignment(labels, found, *values.T)


def compile_ahead(n_classes: int | None = None, *, wait: bool = False) -> None:
    """Start to compile the solver in a process beside this one, if it never was on this machine.

    Call it as soon as it is clear that labels will be decided; it returns at once. A `Leader` does.
    Nothing depends on it but how long the first decisions take.

    Parameters
    ----------
    n_classes : int, optional
        Of the labels to decide. By default the solvers of two classes and of more are compiled.
    wait : bool
        Whether to compile in this process and return when it is done, before times are measured.
    """
    (SOLVERS.compile_now if wait else SOLVERS.compile_ahead)(n_classes)


def likeliest_labels(confidence: NDArray[Any], bags: Bags) -> NDArray[np.int64]:
    """Return the most likely labels of instances (N,) that meet the counts of their bags.

    Examples
    --------
    >>> bags = Bags.from_rows(None, ["a"] * 3, {"a": [2, 1]}, counts=True)
    >>> likeliest_labels(np.array([[0.2, 0.8], [0.4, 0.6], [0.3, 0.7]]), bags)
    array([1, 0, 0])
    """
    cost = -np.log(np.maximum(confidence, np.finfo(np.float64).tiny))
    labels: NDArray[np.int64] = assign(cost, bags.counts, bags.offsets).labels
    return labels


def _assign_tensor(
    torch: Any, cost: Any, counts: Any, offsets: Any, prices: Any, threads: int | None
) -> Assignment:
    def to_numpy(value: Any) -> Any:
        return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value

    numbers = cost.to(torch.float64) if cost.dtype is torch.bfloat16 else cost  # which numpy lacks
    result = assign(
        *map(to_numpy, (numbers, counts, offsets)), prices=to_numpy(prices), threads=threads
    )
    fields = (result.labels, result.prices, result.objective, result.gap, result.tolerance)
    return Assignment(
        *(torch.as_tensor(f).to(cost.device) if isinstance(f, np.ndarray) else f for f in fields)
    )


def _readable(cost: Any) -> NDArray[Any]:
    """Return the costs as the kernel reads them: C-contiguous float32 or float64."""
    array = _unmasked(cost, "costs")
    if array.dtype.kind not in "fiub":
        raise AssignmentError(
            f"costs are of type {array.dtype}.", "Pass real numbers: float32 or float64."
        )
    if array.dtype in (np.float32, np.float64):
        return _plain(array)
    numbers = array.astype(np.float64)
    exact = np.abs(numbers) < TOO_LARGE if array.dtype.kind in "iu" else numbers == array
    exact |= np.isnan(numbers)  # which is named later
    if not exact.all():
        place = np.unravel_index(exact.argmin(), array.shape)
        raise AssignmentError(
            f"cost[{', '.join(map(str, place))}] is {array[place]}, which float64 may round.",
            "Subtract the least cost of each row from that row: the same labels stay the best.",
        )
    return _plain(numbers)


def _unmasked(values: Any, name: str) -> NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray):
        raise AssignmentError(
            f"{name} are a masked array, whose mask would be ignored.",
            "Pass a plain array. A cost of +inf forbids a class.",
        )
    return np.asarray(values)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Return a C-contiguous, writable array: the kernel is compiled for no others."""
    array = np.ascontiguousarray(array)
    return array if array.flags.writeable else array.copy()


def _whole(values: Any, name: str) -> NDArray[np.int64]:
    array = _unmasked(values, name)
    if array.dtype.kind in "iu" or array.size == 0:
        return _plain(array.astype(np.int64, copy=False))
    whole = np.zeros(array.shape, bool)
    if array.dtype.kind == "f":
        whole = (array == np.floor(array)) & np.isfinite(array)
    if not whole.all():
        place = np.unravel_index(whole.argmin(), array.shape)
        raise AssignmentError(
            f"{name}[{', '.join(map(str, place))}] is {array[place]}.",
            "Pass whole numbers; counts_from_proportions makes them of proportions.",
        )
    return _plain(array.astype(np.int64))


def _check_shapes(
    cost: NDArray[Any],
    counts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    prices: NDArray[Any] | None,
    one_bag: bool,
) -> None:
    if cost.ndim != 2 or counts.ndim != 2 or cost.shape[1] != counts.shape[1] or not cost.shape[1]:
        shape = counts.shape[1:] if one_bag else counts.shape
        raise AssignmentError(
            f"costs of shape {cost.shape} do not go with counts of shape {shape}.",
            "Pass costs of shape (N, C) and counts of shape (C,), or (n_bags, C) with offsets.",
        )
    if prices is not None and not (
        prices.shape == counts.shape and prices.dtype.kind in "fiu" and np.isfinite(prices).all()
    ):
        given, wanted = (a.shape[1:] if one_bag else a.shape for a in (prices, counts))
        raise AssignmentError(
            f"prices of shape {given} are not finite numbers of shape {wanted}.",
            "Pass the prices of an earlier assignment with these bags and classes, or none.",
        )
    if one_bag:
        return
    if offsets.shape != (len(counts) + 1,) or offsets[0] != 0 or offsets[-1] != len(cost):
        ends = f"from {offsets[0]} to {offsets[-1]}" if offsets.size else "nowhere"
        raise AssignmentError(
            f"offsets of shape {offsets.shape} run {ends}.",
            f"Pass {len(counts) + 1} offsets for {len(counts)} bags, from 0 to {len(cost)}.",
        )
    falls = np.diff(offsets) < 0
    if falls.any():
        bag = int(falls.argmax())
        raise AssignmentError(
            f"bag {bag} ends at {offsets[bag + 1]}, before it starts at {offsets[bag]}.",
            "Offsets never fall: bag i holds the rows offsets[i] to offsets[i + 1].",
        )


def _failure(
    cost: NDArray[Any],
    counts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    where: NDArray[np.int64],
    values: NDArray[np.float64],
    one_bag: bool,
) -> AssignmentError:
    bag = int(np.flatnonzero(where[:, 0] != kernel.SOLVED)[0])
    status, row, c = where[bag].tolist()
    name, size = "the bag" if one_bag else f"bag {bag}", offsets[bag + 1] - offsets[bag]
    row += int(offsets[bag])
    if status == kernel.BAD_COUNTS and counts[bag].min() < 0:
        return AssignmentError(
            f"{name} has a count of {counts[bag].min()} for class {counts[bag].argmin()}.",
            "Counts are numbers of labels: 0 or more.",
        )
    if status == kernel.BAD_COUNTS:
        return AssignmentError(
            f"{name} has {size} instances, but its counts sum to {sum(counts[bag].tolist())}.",
            "Make them equal; counts_from_proportions(proportions, sizes) always does.",
        )
    if status == kernel.BAD_NUMBER:
        return AssignmentError(
            f"{name} has a cost of {cost[row, c]} (row {row}, class {c}).",
            "Costs are finite, or +inf to forbid a class. A network that has diverged returns NaN.",
        )
    if status == kernel.NO_CLASS:
        return AssignmentError(
            f"{name} cannot be labelled: every class that it has a count of is forbidden (+inf) "
            f"to row {row}.",
            "Allow the row one of these classes, or correct the counts.",
        )
    if status == kernel.INFEASIBLE:
        mine = cost[offsets[bag] : offsets[bag + 1]]
        allowed = (mine < np.inf).sum(axis=0)
        short = int((allowed - counts[bag]).argmin())
        reason = "rows that compete for the same classes are too many for their counts"
        if allowed[short] < counts[bag, short]:
            reason = f"class {short} has a count of {counts[bag, short]}"
            reason += f", but only {allowed[short]} rows may take it"
        return AssignmentError(
            f"{name} cannot be labelled within its forbidden classes (+inf): {reason}.",
            "Allow more rows these classes, or correct the counts.",
        )
    if values[bag, 2] == np.inf:
        return AssignmentError(
            f"{name} has costs whose differences are too large for float64.",
            f"Rescale them: they reach {np.abs(cost[np.isfinite(cost)]).max():.3g}.",
        )
    return AssignmentError(
        f"{name} has labels whose gap of {values[bag, 1]:.3g} exceeds {values[bag, 2]:.3g}, what "
        "float64 can certify.",
        "Allow more rows more classes: where few are allowed, errors add up over long exchanges.",
    )
