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
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
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
from apportion.bags.names import class_array
from apportion.data.giveaways import check_for_truth
from apportion.errors import ConfigError, Words
from apportion.estimator.file import load_estimator, save_estimator
from apportion.estimator.inputs import encode_rows, n_rows_of, read_rows
from apportion.estimator.learning import (
    OPTIONS,
    check_settings,
    method_for,
    plan_for,
    trains_otherwise,
)
from apportion.estimator.learning import train as train_otherwise
from apportion.estimator.targets import has_rows_of_proportions, in_order, read_targets
from apportion.labels.assign import likeliest_labels
from apportion.methods.base import Method
from apportion.methods.registry import method_named
from apportion.metrics import bag_means, proportion_error
from apportion.model.model import Model, describe_parts
from apportion.nets.build import build_net
from apportion.plan import (
    Choice,
    check_share,
    held_out_share,
    kind_of_rows,
    make_plan,
    share_reported,
)
from apportion.training.fit import fit
from apportion.training.progress import announce

__all__ = ["LLPClassifier"]

log = logging.getLogger("apportion")

Untrained = str | nn.Module | Callable[[Bags], nn.Module] | Any


class LLPClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of instances that learns from the class proportions of bags.

    Parameters
    ----------
    method : str or Method, optional
        By default `plan_` decides: "auto" for a table, which averages several small nets and says
        what to expect of them (see `apportion.auto.members`); "count-likelihood" for a table if an
        option of a single net is set; "fpl" if eta is, or for images and signals. Else a name from
        `apportion.METHODS`, or settings such as ``FPL(first="decide")``. "linear", "mean-map" and
        "ridge" fit a linear model of a table in seconds (see `apportion.labels.linear`). Linear
        models and "auto" ignore eta, epochs and what else is for a single net. With a learner None
        stands for soft labels, and "fpl" is the only name.
    eta : float, optional
        The perturbation of the methods that decide pseudo labels; by default 5 · epochs / 400.
    epochs : int, optional
        How often every instance is used. By default `plan_` decides: 100, fewer for large data.
        With a learner, the number of rounds in which it is fitted and gets new labels: by default
        6 with soft labels and 15 with "fpl".
    model : "mlp", "conv1d", "resnet18", nn.Module, callable, or learner, optional
        What is trained. A name builds a net for the data, with its preprocessing, and by default
        the data decide which; an nn.Module is copied and trained as it is; a callable is called
        with the training `Bags` and returns one. An nn.Module of yours gets the columns of a table
        as float32, and other instances as they are stored, and returns one logit per class. A
        learner is any classifier of scikit-learn's kind with `predict_proba`, untrained, such as
        ``HistGradientBoostingClassifier()``: `apportion.learners.alternate` fits clones of it to
        the rows of a table.
    batch_size : int, optional
        Instances per step. By default `plan_` decides: a hundredth of them, from 32 to 1024.
    learning_rate, weight_decay : float, optional
        Those of AdamW; by default 0.001 and 0.1.
    validation_fraction : float, optional
        The share of the bags that is held out, whole, to select the best epoch. By default a
        tenth, or none if that is fewer than five bags; the last epoch is then taken. "auto",
        learners and linear models select nothing: by default they learn from all bags, and with a
        fraction the last record of `history_` has the errors of the bags that are held out.
    keep : list of column names, optional
        Columns of X to learn from even if they give the truth away or are the bag's own
        proportions; those of an array are "0", "1" and so on. Others are refused if the numbers of
        their values meet the class counts exactly, in 5 bags of 5 rows or more with differing
        proportions, and warned of if they nearly do. They are left out if they are the shares or
        counts of a class in every bag: rows to predict need not have them. If they are constant
        within every bag in another way, they are warned of.
    random_state : int, RandomState or None
        Determines held-out bags, weights, and everything else that is random.
    device : str
        "auto" takes a CUDA device if there is one. Learners compute on the CPU.
    verbose : bool, optional
        Whether to show a progress bar; by default on a terminal.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        In the order of the columns of `predict_proba`.
    model_ : Model
        The trained net or learner with its columns and classes: what can be saved and deployed.
    plan_ : Plan, TablePlan or LearnerPlan
        What was decided from the data, with reasons.
    history_ : History
        The record of every epoch, ``history_["loss"]``, of every net of "auto", or of every round
        of a learner, ``history_["proportion_error"]``. Of "auto" the last one has the ``skill``:
        by which share bags are predicted better, by nets that did not see them, than by the
        proportions of all others.
    pseudo_labels_ : ndarray of shape (n_rows,), or None
        The last labels of the rows trained on, which meet the counts of every bag. Rows of held-out
        bags have those that the final model gives them under their counts. For `Bags` there is one
        per instance, in the order of their `index`. None if the method decides no labels. With a
        learner, all are those that the final model gives them under their counts.
    n_features_in_, feature_names_in_
        As in all of scikit-learn.
    """

    def __init__(
        self,
        method: str | Method | None = None,
        *,
        eta: float | None = None,
        epochs: int | None = None,
        model: Untrained | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        validation_fraction: float | None = None,
        keep: Sequence[str] | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool | None = None,
    ) -> None:
        self.method = method
        self.eta = eta
        self.epochs = epochs
        self.model = model
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.keep = keep
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, bags: Any = None, proportions: Any = None) -> Any:
        """Learn from bags with known proportions, or from labels.

        Parameters
        ----------
        X : array of shape (n_rows, …), DataFrame, tuple of arrays, or Bags
            Missing numbers are replaced by the mean of their column, and a column that has any gets
            a second column that says where. Text and categoricals are categories; one that
            the training rows do not have counts as missing later on. Arrays of three or more
            dimensions go to the net as they are: signals are (channels, length), images (channels,
            height, width). `Bags` have their proportions: pass nothing else with them.
        y : array, optional
            Without `bags` the label of every row. With them labels, of which only the counts in
            every bag are used, or rows of proportions of shape (n_rows, n_classes). With
            `proportions`, labels for the accuracies in `history_`, which decide nothing.
        bags : sequence of n_rows bag ids, optional
        proportions : DataFrame, dict or array, optional
            By bag id: a frame indexed by it with one column per class, or a dict of sequences or of
            ``{class: value}``. An array only where bags are the numbers of its rows. It may have
            more bags than the rows do. Counts are accepted too, if those of every bag sum to
            the number of its rows.
        """
        before = dict(vars(self))
        try:
            self._fit(X, y, bags, proportions)
        except BaseException:  # leave what was fitted before, whole
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, y: Any, bags: Any, proportions: Any) -> None:
        seed = _seed(self.random_state)
        self._check_settings()
        rows = read_rows(self, X, reset=True)
        method = method_for(self, kind_of_rows(rows))
        by_fit = not trains_otherwise(self, method.value)
        whole = _known(X, rows, y, bags, proportions)
        self.classes_ = class_array(whole.classes)
        check_share(self.validation_fraction, "validation_fraction")
        asked = self.validation_fraction
        share = held_out_share(whole.n_bags, asked) if by_fit else share_reported(asked)
        train, valid = whole, None
        if share.value:
            train, valid, overlap = whole.split(share.value, seed=seed)
            if overlap.shared_rows:
                log.warning("%s", overlap)
        if not isinstance(X, Bags):  # columns are those of the training rows
            x, columns = encode_rows(rows, train, self.keep or ())
            whole, train = whole.with_rows(x, columns), train.with_rows(x, columns)
            valid = None if valid is None else valid.with_rows(x, columns)
            check_for_truth(train, self.keep or (), _leave_out)
        told = (
            f"Learning {whole.n_classes} classes from {whole.n_bags:,} bags of "
            f"{whole.n_instances:,} instances in all."
        )
        if by_fit:
            self._train_net(method, train, valid, share, seed, told)
        else:
            self.plan_: Any = plan_for(self, method, train)
            announce(f"{told}\n{self.plan_}", self.verbose)
            self.model_, self.history_ = train_otherwise(self, method, train, valid, seed)
        self.pseudo_labels_ = self._pseudo_labels(whole, valid, isinstance(X, Bags))

    def _train_net(
        self,
        chosen: Choice,
        train: Bags,
        valid: Bags | None,
        share: Choice,
        seed: int,
        told: str,
    ) -> None:
        method = self._method(chosen.value)
        options = {name: getattr(self, name) for name in (*OPTIONS, "device")} | {"seed": seed}
        given = {name: value for name, value in options.items() if value is not None}
        if not isinstance(chosen.value, str):
            chosen = Choice(type(method).__name__, chosen.reason)
        net, name = self._net(train, seed)
        plan = make_plan(train, validation=share, net=name, method=chosen, options=given)
        self.plan_ = plan
        net = net if net is not None else build_net(plan.net.value, train, seed=seed)
        config = plan.config(given)
        announce(f"{told}\n{plan}", self.verbose)
        self.history_ = fit(net, train, valid, method=method, config=config, progress=self.verbose)
        self.model_ = Model(
            net,
            classes=train.classes,
            parts=describe_parts(train),
            columns=train.columns,
            epoch=self.history_.selected["epoch"],
            device=self.device,
        )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every class for every row, in the order of `classes_`."""
        check_is_fitted(self)
        return self._confidence(X)

    def predict(self, X: Any, *, bags: Any = None, proportions: Any = None) -> NDArray[Any]:
        """Return the most likely class of every row; if counts are known, labels that meet them.

        Parameters
        ----------
        bags, proportions
            As in `fit`. The labels are then the most likely ones that meet the counts of every
            bag. Proportions within `Bags` are not used.
        """
        check_is_fitted(self)
        confidence = self._confidence(X)
        if bags is None and proportions is None:
            found: NDArray[Any] = self.classes_[confidence.argmax(axis=1)]
            return found
        classes = self.classes_.tolist()
        known = read_targets(len(confidence), None, bags, proportions, classes=classes)
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
        `Bags` have their proportions: pass nothing else with them.
        """
        check_is_fitted(self)
        if y is not None and not has_rows_of_proportions(y):
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        confidence = self._confidence(X)
        known = _known(X, confidence, y, bags, proportions, self.classes_.tolist())
        found = bag_means(confidence[known.index], known.offsets)
        return -proportion_error(known.proportions, found)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier into one file, which `Model.load` reads as well."""
        check_is_fitted(self)
        save_estimator(self, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        net: nn.Module | Callable[[], nn.Module] | None = None,
        last: bool = False,
        device: str = "auto",
    ) -> LLPClassifier:
        """Read a classifier that `save` wrote, or the model of a run.

        Nothing in the files is ever imported or run.

        Parameters
        ----------
        path : path
            The file, or the folder of the run.
        net : nn.Module or callable, optional
            A net like the one that was trained, or a function that makes one, if that was no net of
            this library: its weights are in the file, but how to build it is not.
        last : bool
            Whether to take the weights of the last checkpoint of a run, which may be unfinished,
            instead of those of the selected epoch.
        device : str
            Where predictions are made.
        """
        loaded: LLPClassifier = load_estimator(cls(device=device), path, net, last=last)
        return loaded

    # ------------------------------------------------------------------------------- settings

    def _check_settings(self) -> None:
        """Check what needs no data; without a method, that of images will do."""
        method = method_for(self, "images").value
        check_settings(self, method) if trains_otherwise(self, method) else self._method(method)

    def _method(self, given: str | Method) -> Method:
        method = method_named(given)
        if self.eta is None:
            return method
        settings: Any = method
        if not (is_dataclass(method) and hasattr(method, "eta")):
            raise ConfigError(
                f"eta is {self.eta!r}, but the method {self.method!r} has none.",
                "Leave eta out, or choose a method of pseudo labels, for example fpl.",
            )
        found: Method = replace(settings, eta=self.eta)
        return found

    def _net(self, train: Bags, seed: int) -> tuple[nn.Module | None, str | None]:
        """Return the user's own net, or the name of one to build, or neither."""
        if self.model is None or isinstance(self.model, str):
            return None, self.model
        if isinstance(self.model, nn.Module):
            return copy.deepcopy(self.model), type(self.model).__name__
        if isinstance(self.model, type) or not callable(self.model):
            raise ConfigError(
                f"model is {self.model!r}.",
                "Pass 'mlp', 'conv1d' or 'resnet18', an nn.Module, a function that makes one for "
                "the training bags, or a classifier of scikit-learn, untrained.",
            )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            made = self.model(train.without_truth())
        if not isinstance(made, nn.Module):
            raise ConfigError(
                f"model returned a {type(made).__name__}.", "The callable must return an nn.Module."
            )
        return made, type(made).__name__

    # ---------------------------------------------------------------------------- predictions

    def _confidence(self, X: Any) -> NDArray[np.float64]:
        rows = read_rows(self, X, reset=False)
        return self.model_.predict_proba(X if isinstance(X, Bags) else rows)

    def _pseudo_labels(
        self, whole: Bags, valid: Bags | None, by_instance: bool
    ) -> NDArray[Any] | None:
        decided = self.history_.labels
        if decided is None:
            return None
        labels = np.empty(whole.n_instances, np.int64)
        if valid is None:
            labels[:] = decided
        else:
            held_out = set(valid.ids)
            out = np.repeat([bag in held_out for bag in whole.ids], whole.sizes)
            labels[~out] = decided
            labels[out] = likeliest_labels(self.model_.confidence(valid), valid)
        if by_instance:
            return self.classes_[labels]
        found = np.empty_like(labels)
        found[whole.index] = labels
        return self.classes_[found]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _known(
    X: Any, rows: Any, y: Any, bags: Any, proportions: Any, classes: list[Any] | None = None
) -> Bags:
    """Return the bags of X, with their classes in the order that is known from before, if any."""
    if not isinstance(X, Bags):
        return read_targets(n_rows_of(rows), y, bags, proportions, classes=classes)
    if y is not None or bags is not None or proportions is not None:
        raise ConfigError(
            "X is Bags, which have their proportions.",
            "Pass neither y nor bags nor proportions with them.",
        )
    return X if classes is None else in_order(X, classes)


def _leave_out(name: str) -> Words:
    return f"Leave it out of X; or pass LLPClassifier(keep=[{name!r}]) to learn from it."


def _seed(random_state: Any) -> int:
    """Return a seed: the given integer itself, or one that is drawn."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        check_random_state(random_state)
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
