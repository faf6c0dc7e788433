"""`LLPClassifier`: learning from label proportions as a scikit-learn classifier.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> ward, truth = np.repeat(np.arange(40), 25), rng.integers(2, size=1000)
>>> X = rng.normal(size=(1000, 2)) + 2 * truth[:, None]
>>> votes = {w: {"no": np.mean(truth[ward == w] == 0), "yes": np.mean(truth[ward == w])}
...          for w in range(40)}
>>> clf = LLPClassifier(random_state=0).fit(X, bags=ward, proportions=votes)
>>> clf.classes_
array(['no', 'yes'], dtype='<U3')
>>> float(np.mean(clf.predict(X) == clf.classes_[truth])) > 0.9
True
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from apportion.bags.bags import Bags
from apportion.config import TrainConfig
from apportion.data.tables import Table
from apportion.engine.device import device_for
from apportion.errors import ConfigError
from apportion.estimator.file import load_estimator, save_estimator
from apportion.estimator.inputs import layout_of, read_instances, rows_of
from apportion.estimator.predictions import confidences, under_counts
from apportion.estimator.targets import class_array, has_rows_of_proportions, in_order, read_bags
from apportion.methods.base import Method
from apportion.methods.registry import method_named
from apportion.metrics import bag_means, proportion_error
from apportion.nets.build import build
from apportion.training.fit import fit
from apportion.training.progress import announce

__all__ = [
    "LLPClassifier",
]

log = logging.getLogger("apportion")

Module = str | nn.Module | Callable[[Bags], nn.Module]

FEWEST_HELD_OUT = 5  # bags: fewer select worse than taking the last epoch


class LLPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of instances that learns from the class proportions of bags.

    Parameters
    ----------
    method : str or Method
        A name from `apportion.METHODS`, or settings such as ``FPL(first="decide")``.
    eta : float, optional
        The perturbation of the methods that decide pseudo labels; by default 5 · epochs / 400.
    epochs : int, optional
        By default 100; from 300,000 instances on fewer, 60 at 500,000, down to 20.
    module : "mlp", "conv1d", "resnet18", nn.Module, or callable
        The network. A name builds one for the data, with its preprocessing; an nn.Module is copied
        and trained as it is; a callable is called with the training `Bags` and gives one. A module
        of yours gets the columns of a table as float32, and other instances as they are stored,
        and gives a logit a class.
    batch_size : int, optional
        Instances in a step; by default a hundredth of them, from 32 to 1024.
    learning_rate, weight_decay : float
        Of AdamW.
    validation_fraction : float
        The share of the bags that is held out, whole, to select the best epoch. Where that is
        fewer than five bags none are, and the last epoch is taken.
    random_state : int, RandomState or None
        Decides bags, weights, and everything else that is random.
    device : str
        "auto" takes a CUDA device if there is one.
    verbose : bool, optional
        Whether to show a progress bar; by default on a terminal.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        In the order of the columns of `predict_proba`.
    history_ : History
        What happened in every epoch: ``history_["loss"]``.
    pseudo_labels_ : ndarray of shape (n_rows,), or None
        The last labels of the rows trained on, which meet the counts of every bag. Rows of held-out
        bags have those that the final model gives them under their counts. For `Bags` there is one
        an instance, in the order of their `index`. None where the method decides no labels.
    module_ : nn.Module
        The trained network.
    columns_ : Columns or None
        How the columns of a table became numbers.
    n_features_in_, feature_names_in_
        As in all of scikit-learn.
    """

    def __init__(
        self,
        method: str | Method = "fpl",
        *,
        eta: float | None = None,
        epochs: int | None = None,
        module: Module = "mlp",
        batch_size: int | None = None,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.1,
        validation_fraction: float = 0.1,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool | None = None,
    ) -> None:
        self.method = method
        self.eta = eta
        self.epochs = epochs
        self.module = module
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, bags: Any = None, proportions: Any = None) -> Any:
        """Learn from bags with known proportions, or from labels.

        Parameters
        ----------
        X : array of shape (n_rows, …), DataFrame, tuple of arrays, Bags, or Table
            Missing numbers are replaced by the mean of their column, and a column that has any gets
            another one beside it that says where. Text and categoricals are categories; one that
            `fit` has not seen counts as missing later on. Arrays of three or more dimensions go to
            the network as they are: signals are (channels, length), images (channels, height,
            width). `Bags` and `apportion.data.tables.Table` know their proportions: pass nothing
            else with them.
        y : array, optional
            Without `bags` the label of every row. With them labels, of which only the counts in
            every bag are used, or rows of proportions of shape (n_rows, n_classes). With
            `proportions`, labels for the accuracies in `history_`, which decide nothing.
        bags : sequence of n_rows bag ids, optional
        proportions : DataFrame, dict or array, optional
            By bag id: a frame indexed by it with a column a class, or a dict of sequences or of
            ``{class: value}``. An array only where bags are the numbers of its rows. It may have
            more bags than the rows do. Counts will do as well, if those of every bag sum to its
            rows.
        """
        before = dict(vars(self))
        try:
            self._fit(X, y, bags, proportions)
        except BaseException:  # leave what was fitted before, whole
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, y: Any, bags: Any, proportions: Any) -> None:
        seed, method = _seed(self.random_state), self._method()
        x, self.columns_ = read_instances(self, X, reset=True)
        self.layout_ = layout_of(x)
        whole = _known(X, x, y, bags, proportions)
        self.classes_ = class_array(whole.classes)
        train, valid = self._held_out(whole, seed)
        config = self._config(train, seed)
        self.module_ = self._build(whole, train, seed)
        announce(
            f"Learning {whole.n_classes} classes from {whole.n_bags:,} bags of "
            f"{whole.n_instances:,} instances in all, {whole.n_bags - train.n_bags:,} of the bags "
            "held out: "
            f"{self.module if isinstance(self.module, str) else type(self.module_).__name__}, "
            f"{config.batch_size:,} instances a step, epochs: {config.epochs}.",
            self.verbose,
        )
        self.history_ = fit(
            self.module_, train, valid, method=method, config=config, progress=self.verbose
        )
        self.pseudo_labels_ = self._pseudo_labels(whole, valid, isinstance(X, Bags))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Give the probability of every class for every row, in the order of `classes_`."""
        check_is_fitted(self)
        x, _ = read_instances(self, X, reset=False)
        return self._confidence(x)

    def predict(self, X: Any, *, bags: Any = None, proportions: Any = None) -> NDArray[Any]:
        """Give the most likely class of every row; where counts are known, labels that meet them.

        Parameters
        ----------
        bags, proportions
            As in `fit`. The labels are then the most likely ones among those whose counts are the
            ones known of every bag. What `Bags` or a `Table` know is not used.
        """
        check_is_fitted(self)
        if bags is None and proportions is None:
            found: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
            return found
        x, _ = read_instances(self, X, reset=False)
        known = read_bags(x, None, bags, proportions, classes=self.classes_.tolist())
        labels = np.empty(rows_of(x), np.int64)
        labels[known.index] = under_counts(known, self._confidence)
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
        """Give the accuracy where labels y are given, and minus the proportion error where not.

        The proportion error is the mean over bags of the share that is wrong: the total variation
        between the given proportions and the mean confidence. It needs no label of any instance.
        `Bags` and `Table` know their proportions: pass nothing else with them.
        """
        check_is_fitted(self)
        if y is not None and not has_rows_of_proportions(y):
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        x, _ = read_instances(self, X, reset=False)
        known = _known(X, x, y, bags, proportions, self.classes_.tolist())
        found = bag_means(self._confidence(x)[known.index], known.offsets)
        return -proportion_error(known.proportions, found)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier into one safetensors file, in which there is no pickle."""
        check_is_fitted(self)
        save_estimator(self, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        module: nn.Module | Callable[[], nn.Module] | None = None,
        device: str = "auto",
    ) -> LLPClassifier:
        """Read a classifier that `save` wrote, or the model of a run that `apportion train` made.

        Nothing in the files is ever imported or run.

        Parameters
        ----------
        path : path
            The file, or the folder of the run.
        module : nn.Module or callable, optional
            A network like the one that was trained, or a function that makes one, where that was
            no net of this library: its weights are in the file, but how to build it is not.
        device : str
            Where predictions are made.
        """
        loaded: LLPClassifier = load_estimator(cls(device=device), path, module)
        return loaded

    # ------------------------------------------------------------------------------- settings

    def _method(self) -> Method:
        method = method_named(self.method)
        if self.eta is None:
            return method
        settings: Any = method
        names = [field.name for field in fields(settings)] if is_dataclass(settings) else []
        if "eta" not in names:
            raise ConfigError(
                f"eta is {self.eta!r}, but the method {self.method!r} has none.",
                "Leave eta out, or choose a method of pseudo labels: fpl, say.",
            )
        found: Method = replace(settings, eta=self.eta)
        return found

    def _config(self, train: Bags, seed: int) -> TrainConfig:
        n = train.n_instances
        return TrainConfig(
            epochs=default_epochs(n) if self.epochs is None else self.epochs,
            batch_size=default_batch_size(n) if self.batch_size is None else self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            seed=seed,
            device=self.device,
        )

    def _held_out(self, whole: Bags, seed: int) -> tuple[Bags, Bags | None]:
        fraction = self.validation_fraction
        if not isinstance(fraction, Real) or not 0 <= float(fraction) < 1:
            raise ConfigError(
                f"validation_fraction is {fraction!r}.",
                "Let it be a share from 0 to below 1: 0 holds out no bags.",
            )
        if round(float(fraction) * whole.n_bags) < FEWEST_HELD_OUT:
            return whole, None
        train, valid, overlap = whole.split(float(fraction), seed=seed)
        if overlap.shared_rows:
            log.info("%s", overlap)
        return train, valid

    def _build(self, whole: Bags, train: Bags, seed: int) -> nn.Module:
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        if isinstance(self.module, type) or not isinstance(self.module, str | Callable):
            raise ConfigError(
                f"module is {self.module!r}.",
                "Pass 'mlp', 'conv1d' or 'resnet18', an nn.Module, or a function that makes one "
                "for the training bags.",
            )
        if isinstance(self.module, str):
            options = {}
            if self.columns_ is not None and self.columns_.codes:
                options["categories"] = self.columns_.codes
            return build(self.module, whole, seed=seed, **options)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            made = self.module(train.without_truth())
        if not isinstance(made, nn.Module):
            raise ConfigError(
                f"module gave a {type(made).__name__}.", "Let the callable give an nn.Module."
            )
        return made

    # ---------------------------------------------------------------------------- predictions

    def _confidence(self, x: Any) -> NDArray[np.float64]:
        return confidences(self.module_, x, device_for(self.device), len(self.classes_))

    def _pseudo_labels(
        self, whole: Bags, valid: Bags | None, by_instance: bool
    ) -> NDArray[Any] | None:
        decided = self.history_.labels
        if decided is None:
            return None
        labels = np.empty(whole.n_instances, np.int64)
        if valid is None:
            labels[:] = decided.numpy()
        else:
            held_out = set(valid.ids)
            out = np.repeat([bag in held_out for bag in whole.ids], whole.sizes)
            labels[~out] = decided.numpy()
            labels[out] = under_counts(valid, self._confidence)
        if by_instance:
            return self.classes_[labels]
        found = np.empty_like(labels)
        found[whole.index] = labels
        return self.classes_[found]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def default_batch_size(n_instances: int) -> int:
    """Give about a hundredth of the instances: a power of two from 32 to 1024.

    Examples
    --------
    >>> [default_batch_size(n) for n in (500, 30_000, 500_000)]
    [32, 256, 1024]
    """
    return int(2 ** np.clip(np.round(np.log2(n_instances / 100)), 5, 10))


def default_epochs(n_instances: int) -> int:
    """Give 100 epochs, and fewer where these would show the network more than 30 million instances.

    Examples
    --------
    >>> [default_epochs(n) for n in (500, 300_000, 500_000, 5_000_000)]
    [100, 100, 60, 20]
    """
    return int(np.clip(round(3e7 / n_instances), 20, 100))


def _known(
    X: Any, x: Any, y: Any, bags: Any, proportions: Any, classes: list[Any] | None = None
) -> Bags:
    """The bags of X, with their classes in the order that is known from before, if any is."""
    if not isinstance(X, Bags | Table):
        return read_bags(x, y, bags, proportions, classes=classes)
    if y is not None or bags is not None or proportions is not None:
        raise ConfigError(
            f"X is a {type(X).__name__}, which knows its proportions.",
            "Pass neither y nor bags nor proportions with it.",
        )
    whole = X.bags if isinstance(X, Table) else X
    return whole if classes is None else in_order(whole, classes)


def _seed(random_state: Any) -> int:
    """Give a seed: the given whole number itself, or one that is drawn."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        check_random_state(random_state)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
