"""Model selection without labels: whole bags are held out, and judged by their proportions.

>>> import numpy as np
>>> import sklearn
>>> from sklearn.model_selection import cross_val_score
>>> from apportion import LLPClassifier
>>> rng = np.random.default_rng(0)
>>> bags = np.arange(300) // 10
>>> truth = (rng.random(300) < bags / 30).astype(int)
>>> X = rng.normal(size=(300, 2)) + 2 * truth[:, None]
>>> known = {"bags": bags, "proportions": {b: np.bincount(truth[bags == b], minlength=2)
...                                        for b in range(30)}}
>>> with sklearn.config_context(enable_metadata_routing=True):
...     scores = cross_val_score(
...         LLPClassifier("linear", random_state=0), X, cv=BagKFold(3), params=known,
...         scoring=proportion_scorer)
>>> bool((scores > -0.15).all())
True
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import MetadataRequest

from apportion.bags.bags import Bags
from apportion.bags.names import canonical_order
from apportion.bags.read import factorize
from apportion.errors import BagError, count, must_be
from apportion.estimator.targets import has_rows_of_proportions, known_bags
from apportion.metrics import bag_means, proportion_error

__all__ = ["BagKFold", "ProportionScorer", "proportion_scorer"]

Ints = NDArray[np.int64]


class BagKFold:
    """Folds of whole bags, as `cv` of scikit-learn's searches.

    Every fold has as many bags as the others, or one more. Which bags it has depends on their names
    and on the seed, and not on the order of the rows. With metadata routing it takes ``bags=``
    from the search, as the classifier does; else pass the ids as ``groups=``.

    Parameters
    ----------
    n_splits : int
        How many folds.
    random_state : int, RandomState or None
        Decides which bags are in which fold.

    Examples
    --------
    >>> ids = ["b", "a", "a", "c", "b", "d"]
    >>> for train, test in BagKFold(2).split(np.zeros(6), groups=ids):
    ...     print([ids[i] for i in test])
    ['b', 'c', 'b']
    ['a', 'a', 'd']
    """

    def __init__(self, n_splits: int = 5, *, random_state: Any = 0) -> None:
        given: Any = n_splits
        number = isinstance(given, int | np.integer) and not isinstance(given, bool)
        if not number or given < 2:
            raise must_be("n_splits", "an integer ≥ 2", n_splits)
        self.n_splits = int(n_splits)
        self.random_state = random_state

    def split(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        groups: Any = None,
        *,
        bags: Any = None,
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield the rows to learn from and those that are held out, fold after fold."""
        ids = groups if bags is None else bags
        if ids is None:
            raise BagError(
                "BagKFold is given no bags.",
                "Pass bags= to the search, after sklearn.set_config(enable_metadata_routing=True);"
                " or else groups=, the bag id of every row.",
            )
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        names, codes = factorize(ids, "bag id", n_rows)
        if len(names) < self.n_splits:
            raise BagError(
                f"{count(len(names), 'bag')} cannot be in {self.n_splits} folds.",
                f"Pass BagKFold(n_splits={len(names)}) or fewer."
                if len(names) > 1
                else "Pass at least two bags.",
            )
        drawn = check_random_state(self.random_state).permutation(len(names))
        fold_of = np.empty(len(names), np.int64)
        fold_of[canonical_order(names)[drawn]] = np.arange(len(names)) % self.n_splits
        held_out = fold_of[codes]
        for fold in range(self.n_splits):
            yield np.flatnonzero(held_out != fold), np.flatnonzero(held_out == fold)

    def get_n_splits(self, *_: Any, **__: Any) -> int:
        """Return the number of folds."""
        return self.n_splits

    def get_metadata_routing(self) -> MetadataRequest:
        """Return that bags are asked for, and groups if these are passed."""
        request = MetadataRequest(owner="BagKFold")
        for name in ("bags", "groups"):
            request.split.add_request(param=name, alias=True)
        return request

    def __repr__(self) -> str:
        return f"BagKFold(n_splits={self.n_splits}, random_state={self.random_state!r})"


class ProportionScorer:
    """Minus the proportion error of any classifier with `predict_proba`, as ``scoring=``.

    With metadata routing it asks for bags and proportions itself. Labels y are not used.
    """

    def __call__(
        self, estimator: Any, X: Any, y: Any = None, *, bags: Any = None, proportions: Any = None
    ) -> float:
        """Return minus the share of a bag that is wrong, on average."""
        in_rows = has_rows_of_proportions(y)
        if bags is None and proportions is None and not in_rows and not isinstance(X, Bags):
            raise BagError(
                "proportion_scorer is given no bags, and labels y are not used.",
                "Call sklearn.set_config(enable_metadata_routing=True), and pass bags= and "
                "proportions= to the search (in params= of cross_val_score).",
            )
        confidence = estimator.predict_proba(X)
        final = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
        known = known_bags(
            X,
            len(confidence),
            y if in_rows else None,
            bags,
            proportions,
            estimator.classes_.tolist(),
            normalize=getattr(final, "normalize", False),
        )
        found = bag_means(confidence[known.index], known.offsets)
        return -proportion_error(known.proportions, found)

    def get_metadata_routing(self) -> MetadataRequest:
        """Return that bags and proportions are asked for."""
        request = MetadataRequest(owner="proportion_scorer")
        for name in ("bags", "proportions"):
            request.score.add_request(param=name, alias=True)
        return request

    def __repr__(self) -> str:
        return "proportion_scorer"


proportion_scorer = ProportionScorer()
