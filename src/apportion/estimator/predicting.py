"""What a fitted classifier predicts: probabilities, labels and scores, also under known counts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from apportion.bags.bags import Bags
from apportion.bags.names import class_array
from apportion.errors import ApportionError, BagError, ConfigError, DataError, count
from apportion.estimator.inputs import read_rows
from apportion.estimator.selection import proportion_scorer
from apportion.estimator.targets import has_rows_of_proportions, read_targets, read_truth

if TYPE_CHECKING:
    from apportion.model.model import Model

__all__ = ["BY_BAG", "Predictions"]

log = logging.getLogger("apportion")

BY_BAG = {"bags": True, "proportions": True}  # what methods ask for, with metadata routing


class Predictions:
    """The methods of a classifier that need it to be fitted."""

    classes_: NDArray[Any]
    model_: Model
    normalize: bool

    __metadata_request__predict = BY_BAG
    __metadata_request__predict_proba = BY_BAG
    __metadata_request__predict_log_proba = BY_BAG
    __metadata_request__score = BY_BAG

    def predict_proba(
        self, X: Any, *, bags: Any = None, proportions: Any = None, prevalence: Any = None
    ) -> NDArray[np.float64]:
        """Return the probability of every class for every row, in the order of `classes_`.

        Parameters
        ----------
        bags, proportions
            As in `fit`, if the counts are known: the probabilities are then those given the counts,
            and the ones of a bag sum to these (see `apportion.labels.posterior`).
        prevalence : mapping or sequence, optional
            The share of every class in the population that the rows are from, by class or in the
            order of `classes_`, if it is another than in training (see
            `apportion.model.prevalence`): ``{"yes": 0.2, "no": 0.8}``. One class may be left out.
        """
        check_is_fitted(self)
        if bags is None and proportions is None:
            return self._confidence(X, prevalence)
        from apportion.labels.posterior import posterior

        confidence = self._confidence(X)
        known = self._known(len(confidence), bags, proportions, prevalence)
        found = np.empty_like(confidence)
        found[known.index] = posterior(confidence[known.index], known)
        return found

    def predict_log_proba(
        self, X: Any, *, bags: Any = None, proportions: Any = None, prevalence: Any = None
    ) -> NDArray[np.float64]:
        """Return the logarithm of `predict_proba`, which is -inf for probabilities of 0."""
        options = {"bags": bags, "proportions": proportions, "prevalence": prevalence}
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, **options))

    def predict(
        self, X: Any, *, bags: Any = None, proportions: Any = None, prevalence: Any = None
    ) -> NDArray[Any]:
        """Return the most likely class of every row; if counts are known, labels that meet them.

        Parameters
        ----------
        bags, proportions
            As in `fit`. The labels are then the most likely ones that meet the counts of every
            bag. Proportions within `Bags` are not used.
        prevalence
            As in `predict_proba`.
        """
        check_is_fitted(self)
        if bags is None and proportions is None:
            likely = self._confidence(X, prevalence)
            likeliest: NDArray[Any] = self.classes_[likely.argmax(axis=1)]
            return likeliest
        from apportion.labels.assign import likeliest_labels

        confidence = self._confidence(X)
        known = self._known(len(confidence), bags, proportions, prevalence)
        labels = np.empty(len(confidence), np.int64)
        labels[known.index] = likeliest_labels(confidence[known.index], known)
        return self.classes_[labels]

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        bags: Any = None,
        proportions: Any = None,
    ) -> float:
        """Return the accuracy if labels y are given, and minus the proportion error if not.

        The proportion error is the mean over bags of the share that is wrong: the total variation
        between the given proportions and the mean confidence. It needs no label of any instance.
        `Bags` have their proportions: pass nothing else with them. The accuracy is over the rows
        whose label is known: it is not where y has None, NaN, or −1, unless that is a class.
        """
        check_is_fitted(self)
        if y is None and bags is None and proportions is None and not isinstance(X, Bags):
            raise BagError(
                "score is given neither labels y nor bags.",
                "Pass bags= and proportions=, for minus the proportion error, or labels y, for the "
                "accuracy.",
            )
        if y is not None and not has_rows_of_proportions(y):
            return self._accuracy(X, y, sample_weight)
        return proportion_scorer(self, X, y, bags=bags, proportions=proportions)

    def _accuracy(self, X: Any, y: Any, sample_weight: Any) -> float:
        """Return the accuracy over the rows whose label is known."""
        from sklearn.metrics import accuracy_score

        found = self.predict(X)
        truth = read_truth(y, self.classes_.tolist())
        check_consistent_length(found, truth, sample_weight)
        known = np.array([label is not None for label in truth])
        if not known.any():
            raise BagError(
                f"none of {count(len(truth), 'label')} y is known.",
                "Pass labels, of which some may be missing; or bags= and proportions=, for minus "
                "the proportion error.",
            )
        if not known.all():
            log.info("The accuracy is over the %s of %s whose label is known.",
                     f"{int(known.sum()):,}", count(len(truth), "row"))  # fmt: skip
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        right = class_array(truth[known].tolist())
        return float(accuracy_score(right, found[known], sample_weight=weight))

    def _confidence(self, X: Any, prevalence: Any = None) -> NDArray[np.float64]:
        rows = read_rows(self, X, reset=False)
        rows = X if isinstance(X, Bags) else rows
        try:
            return self.model_.predict_proba(rows, prevalence=prevalence)
        except (RuntimeError, IndexError) as error:
            if not isinstance(error, ApportionError) and (said := self._unlike(rows, error)):
                raise said from error
            raise

    def _unlike(self, rows: Any, error: Exception) -> DataError | None:
        """Return the error of rows of another type than those learned from, or with other ids."""
        several = rows.parts if isinstance(rows, Bags) else rows
        parts = several if isinstance(several, tuple) else (several,)
        if not all(hasattr(part, "dtype") for part in parts):
            return None  # a Dataset, or a list
        learned = [own["dtype"] for own in self.model_.parts]
        given = [str(part.dtype).removeprefix("torch.") for part in parts]
        net = type(self.model_.net).__name__
        if isinstance(error, IndexError):
            ids = [part for part, kind in zip(parts, given, strict=True) if "int" in kind]
            ranges = " and ".join(f"{int(p[:].min()):,} to {int(p[:].max()):,}" for p in ids)
            return DataError(
                f"{net} cannot take X, of integers from {ranges}: {error}.",
                "Pass ids like those that it was trained on, which its Embedding has.",
            )
        if given == learned:
            return None
        return DataError(
            f"{net} cannot take X, of type {' and '.join(given)}: {error}",
            f"It was trained on {' and '.join(learned)}: pass X.astype(numpy.{learned[0]}).",
        )

    def _known(self, n_rows: int, bags: Any, proportions: Any, prevalence: Any) -> Bags:
        """Return rows in bags whose counts are known, with the classes of this classifier."""
        if prevalence is not None:
            raise ConfigError(
                "prevalence is given as well as bags, whose counts say more.",
                "Pass bags and proportions, or else prevalence.",
            )
        about: dict[str, Any] = {"classes": self.classes_.tolist(), "normalize": self.normalize}
        return read_targets(n_rows, None, bags, proportions, **about)
