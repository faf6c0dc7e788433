r"""Online pseudo labels by Follow the Perturbed Leader: the paper's method, and its ablations.

After every epoch t the network says how unlikely each label of each instance is (Eq. 2),

.. math::
    L_{jc}[t] = \begin{cases}
        1 - \mathrm{conf}(x_j, c) & \text{if } c \text{ was } x_j\text{'s label in epoch } t \\
        \max_b \mathrm{conf}(x_j, b) - \mathrm{conf}(x_j, c) & \text{otherwise,}
    \end{cases}

and each bag's next labels are those of least *perturbed* total that meet its counts (Eqs. 5–6),

.. math:: Y[t + 1] = \arg\min_{Y} \sum_j \Big( \sum_{\tau \le t} L_j[\tau] + \eta Z_j \Big)_{Y_j},
          \qquad Z_{jc} \sim N(0, 1) \text{ anew in every epoch.}

The ablations are settings: `unlikelihood="plain"` is Eq. 8, :math:`1 - \mathrm{conf}(x_j, c)` for
all c; ``eta=0`` is the paper's Greedy; ``eta=0, accumulate=False`` is its Naive, which decides by
:math:`L[t]` alone. The state is one matrix (N, C), the labels and C prices a bag; a decision costs
a few passes over that matrix.

Reference: S. Matsuo, R. Bise, S. Uchida, D. Suehiro, "Learning From Label Proportion with Online
Pseudo-Label Decision by Regret Minimization", ICASSP 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from apportion.bags.bags import Bags
from apportion.engine.batches import Batch, Unit
from apportion.errors import BagError, ConfigError
from apportion.labels.assign import assign
from apportion.methods.base import Supervision
from apportion.metrics import regret, share_equal
from apportion.randomness import Purpose, generator

__all__ = ["OnlinePseudoLabels", "PseudoLabels", "plain_unlikelihood", "unlikelihood"]

BLOCK = 16_384  # instances whose perturbation is drawn at a time; it defines the numbers


def unlikelihood(confidence: Tensor, labels: Tensor) -> Tensor:
    """Eq. 2: how unlikely each class is as the label of each instance, in [0, 1].

    Examples
    --------
    >>> unlikelihood(torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([1]))
    tensor([[0.0000, 0.8000, 0.6000]])
    """
    cost = confidence.max(dim=1, keepdim=True).values - confidence
    own = labels[:, None]
    return cost.scatter_(1, own, 1 - confidence.gather(1, own))


def plain_unlikelihood(confidence: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG001
    """Eq. 8: the plain form, whatever the labels are."""
    return 1 - confidence


UNLIKELIHOODS = {"relative": unlikelihood, "plain": plain_unlikelihood}


@dataclass(frozen=True, eq=False)
class OnlinePseudoLabels:
    """Pseudo labels that are decided anew after every epoch.

    Parameters
    ----------
    eta : float, optional
        The rate η of the perturbation. Unlikelihoods add up over the epochs while the perturbation
        does not, so the default grows with them: 5 · epochs / 400, the paper's 5 at 400.
    unlikelihood : "relative" or "plain"
        Eq. 2 or Eq. 8.
    accumulate : bool
        Whether to decide by the sum over all epochs, or by the last one alone.
    first : "random", "decide", or labels (N,)
        The labels of the first epoch: a random permutation of each bag's counts; what the untrained
        network's confidences decide; or labels of the caller, as positions in `Bags.classes` in the
        order of `Bags.index`, that meet the counts.
    """

    eta: float | None = None
    unlikelihood: Literal["relative", "plain"] = "relative"
    accumulate: bool = True
    first: Literal["random", "decide"] | ArrayLike = "random"

    unit: ClassVar[Unit] = "instances"

    def __post_init__(self) -> None:
        """Check the settings."""
        number = isinstance(self.eta, Real) and 0 <= float(self.eta) < np.inf
        if self.eta is not None and not number:
            raise ConfigError(
                f"eta is {self.eta!r}.", "Let it be 0 or more, or None for the default."
            )
        if self.unlikelihood not in UNLIKELIHOODS:
            known = " or ".join(map(repr, UNLIKELIHOODS))
            raise ConfigError(f"unlikelihood is {self.unlikelihood!r}.", f"Let it be {known}.")
        if isinstance(self.first, str) and self.first not in ("random", "decide"):
            raise ConfigError(
                f"first is {self.first!r}.", "Let it be 'random', 'decide' or an array of labels."
            )

    def start(
        self,
        bags: Bags,
        *,
        epochs: int,
        device: torch.device,
        seed: int,
        threads: int | None = None,
    ) -> PseudoLabels:
        """Resolve η and decide the first labels."""
        eta = 5 * epochs / 400 if self.eta is None else float(self.eta)
        return PseudoLabels(self, bags, eta, device, seed, threads)


class PseudoLabels(Supervision):
    """Algorithm 1's labels: the state of `OnlinePseudoLabels` in one run."""

    needs_confidence = True

    def __init__(
        self,
        method: OnlinePseudoLabels,
        bags: Bags,
        eta: float,
        device: torch.device,
        seed: int,
        threads: int | None,
    ) -> None:
        self.bags, self.eta, self.seed, self.threads = bags, eta, seed, threads
        self.accumulate, self.unlikelihood = method.accumulate, UNLIKELIHOODS[method.unlikelihood]
        self.resolved = {"eta": eta}
        self.decides_first = isinstance(method.first, str) and method.first == "decide"
        brought = None if isinstance(method.first, str) else np.asarray(method.first)
        first = shuffled_counts(bags, seed) if brought is None else _checked(brought, bags)
        self.labels: Tensor = torch.from_numpy(first).to(device)  # Y[1]
        self.total = torch.zeros(bags.n_instances, bags.n_classes, device=device)  # Σ L[1..t]
        self.played = 0.0  # Σ of the unlikelihood of the labels played
        self.prices: NDArray[np.float64] | None = None  # where the next decision starts
        self.best_prices: NDArray[np.float64] | None = None  # and the best labels in hindsight

    def instance_loss(self, model: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """Give the cross-entropy with the pseudo labels."""
        return cross_entropy(logits, self.labels.index_select(0, batch.position))

    def epoch_end(self, epoch: int, confidence: Tensor | None) -> dict[str, float]:
        """Decide the next labels: Algorithm 1, lines 6–10, over all bags at once."""
        assert confidence is not None
        latest = self.unlikelihood(confidence, self.labels)  # line 7: L[t]
        self.total += latest
        self.played += float(latest.gather(1, self.labels[:, None]).double().sum())
        decisive = self.total if self.accumulate else latest
        del latest  # at most four matrices (N, C) at a time
        perturbed = _copy(decisive)
        add_noise(perturbed, self.eta, self.seed, epoch, self.threads)  # line 8
        decided = assign(  # line 9: Eq. 5, solved exactly by Eq. 6
            perturbed, self.bags.counts, self.bags.offsets, prices=self.prices, threads=self.threads
        )
        del perturbed
        self.prices = decided.prices
        before = self.labels.clone()
        self.labels.copy_(torch.from_numpy(decided.labels))
        return {"changed": 1 - share_equal(self.labels, before), "regret": self._regret(epoch)}

    def _regret(self, epoch: int) -> float:
        played = epoch + self.decides_first  # the untrained network's labels were played, too
        measured = regret(
            self.played,
            self.total.cpu().numpy(),
            self.bags.counts,
            self.bags.offsets,
            epochs=played,
            prices=self.best_prices,
            threads=self.threads,
        )
        self.best_prices = measured.prices
        return measured.value

    def state_dict(self) -> dict[str, Tensor]:
        """Give the labels, the totals, the prices, and the η that the run began with."""
        state = {
            "labels": self.labels,
            "total": self.total,
            "played": torch.tensor(self.played, dtype=torch.float64),
            "eta": torch.tensor(self.eta, dtype=torch.float64),
        }
        if self.prices is not None and self.best_prices is not None:
            state["prices"] = torch.from_numpy(self.prices)
            state["best_prices"] = torch.from_numpy(self.best_prices)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take them back."""
        self.labels.copy_(state["labels"])
        self.total.copy_(state["total"])
        self.played, self.eta = float(state["played"]), float(state["eta"])
        if "prices" in state:
            self.prices = state["prices"].cpu().numpy().copy()
            self.best_prices = state["best_prices"].cpu().numpy().copy()


def shuffled_counts(bags: Bags, seed: int) -> NDArray[np.int64]:
    """Give every bag a random permutation of its counts as labels.

    Random whatever η is: assigning at costs of 0 would hand out classes in the order of the rows,
    and so leak the truth where these are stored by class.
    """
    classes = np.tile(np.arange(bags.n_classes), bags.n_bags)
    ordered = np.repeat(classes, bags.counts.ravel())
    keys = generator(seed, Purpose.FIRST_LABELS, epoch=0).random(bags.n_instances)
    bag = np.repeat(np.arange(bags.n_bags), bags.sizes)
    return ordered[np.lexsort((keys, bag))]


def add_noise(
    costs: NDArray[Any], eta: float, seed: int, epoch: int, threads: int | None = None
) -> None:
    """Add η Z to costs (N, C), with Z a pure function of seed, epoch and position."""
    if eta == 0:
        return

    def perturb(block: int) -> None:
        part = costs[block * BLOCK : (block + 1) * BLOCK]
        rng = generator(seed, Purpose.PERTURBATION, epoch, block=block)
        noise = rng.standard_normal(part.shape, dtype=np.float32)
        noise *= np.float32(eta)
        part += noise

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(perturb, range(-(-len(costs) // BLOCK))))


def _copy(values: Tensor) -> NDArray[Any]:
    return values.detach().to("cpu", copy=True).numpy()


def _checked(first: NDArray[Any], bags: Bags) -> NDArray[np.int64]:
    """The caller's first labels, if they meet every bag's counts."""
    n, c = bags.n_instances, bags.n_classes
    if first.shape != (n,) or first.dtype.kind not in "iu":
        raise BagError(
            f"the first labels are of shape {first.shape} and {first.dtype}.",
            f"Pass one whole number for each of the {n:,} instances.",
        )
    if n and (first.min() < 0 or first.max() >= c):
        raise BagError(
            f"the first labels run from {first.min()} to {first.max()}.",
            f"They are positions in the {c} classes: let them lie between 0 and {c - 1}.",
        )
    first = first.astype(np.int64)
    bag = np.repeat(np.arange(bags.n_bags), bags.sizes)
    found = np.bincount(bag * c + first, minlength=bags.n_bags * c).reshape(-1, c)
    wrong = (found != bags.counts).any(axis=1)
    if wrong.any():
        i = int(wrong.argmax())
        k = int((found[i] != bags.counts[i]).argmax())
        raise BagError(
            f"the first labels give bag {bags.ids[i]!r} {found[i, k]} of class "
            f"{bags.classes[k]!r}, but its count is {bags.counts[i, k]}.",
            "Let them meet the counts of every bag: `assign` gives such labels.",
        )
    return first
