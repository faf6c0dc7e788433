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

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from apportion.bags.bags import Bags
from apportion.estimator.predicting import BY_BAG, Predictions

if TYPE_CHECKING:
    from torch import nn

    from apportion.methods.base import Method
    from apportion.nets.augment import Augment
    from apportion.plan.images import Pretrain
    from apportion.training.optimizer import MakeOptimizer, MakeScheduler

    Callback = Callable[[dict[str, Any], nn.Module], bool | None]
    Untrained = str | nn.Module | Callable[[Bags], nn.Module] | Any

__all__ = ["LLPClassifier"]


class LLPClassifier(Predictions, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of instances that learns from the class proportions of bags.

    Parameters
    ----------
    method : str or Method, optional
        By default `plan_` decides: "auto" for a table, which averages several small nets and says
        what to expect of them (see `apportion.auto.members`); "linear" for sparse rows;
        "count-likelihood" for either if an option of a single net is set, and "fpl" if eta or a
        preset is; "fpl" for images, "fpl-mean-map" for signals (see `apportion.labels.start`);
        "strong" with the preset of that name. Else a name from
        `apportion.METHODS`, or settings such as ``FPL(first="decide")``. "linear", "mean-map" and
        "ridge" fit a linear model of a table in seconds (see `apportion.labels.linear`). "mean-map"
        of signals learns a linear layer on summaries of them, and with an nn.Module as model, which
        maps a batch to features and stays as it is, one on these, of images or signals. With a
        learner None stands for soft labels, and "fpl" is the only name. Options that have no
        meaning for a method are ignored: a warning in the log and `plan_` say which.
    preset : "default", "paper" or "strong", optional
        Options that go together, instead of those that follow from the data; what is passed besides
        it goes over it. "paper" is what Matsuo et al. did. "strong" is the most that images allow
        and for these alone: the net learns features of the images first (see `pretrain`), then the
        labels are decided by them, and it is trained with strong augmentations. Where a mirror
        image is of the same class, add ``augment=("flip", "strong")``.
    pretrain : bool or path, optional
        Whether a net for images is first trained to tell them apart, without labels: on the images
        of the training bags, and never on those of held-out ones. By default the preset "strong"
        does so, unless `model` is a net of yours, which is taken to be trained already. A path is
        the folder of a run of `apportion pretrain`, whose features are loaded instead.
    eta : float, optional
        The perturbation of the methods that decide pseudo labels; by default 5 · epochs / 400.
    epochs : int, optional
        How often every instance is used. By default `plan_` decides: 100, fewer for large data.
        With a learner, the number of rounds in which it is fitted and gets new labels: by default
        6 with soft labels and 15 with "fpl".
    model : "mlp", "conv1d", "resnet18", "summary", nn.Module, callable, or learner, optional
        What is trained. A name builds a net for the data, with its preprocessing, and by default
        the data decide which; an nn.Module is copied and trained as it is; a callable is called
        with the training `Bags` and returns one. An nn.Module of yours returns one logit per class.
        It gets the columns of a table as float32, and other instances as they are stored: so are
        arrays of integers, also of two dimensions (ids, say, for an Embedding). A learner is any
        classifier of scikit-learn's kind with `predict_proba`, untrained, such as
        ``HistGradientBoostingClassifier()``: `apportion.learners.alternate` fits clones of it to
        the rows of a table.
    net_options : dict, optional
        Options of the net that a name builds: ``{"hidden": (128, 64), "skip": True}`` of "mlp",
        ``{"stem": "cifar"}`` of "resnet18".
    batch_size : int, optional
        Instances per step. By default `plan_` decides: a hundredth of them, from 32 to 1024.
    learning_rate, weight_decay : float, optional
        Those of AdamW; by default 0.001 and 0.1.
    schedule : "constant" or "cosine", optional
        How the learning rate changes: "cosine" falls to 0 over the epochs.
    patience : int, optional
        Stop when the error of the held-out bags has not improved for this many epochs.
    optimizer, scheduler : callable, optional
        Functions of the net's parameters and of the optimiser that return an optimiser and a
        scheduler of your own, as `apportion.fit` takes them. No file keeps them.
    augment : str, sequence of str, or callable, optional
        Augmentations of training batches, in this order: "crop", "flip", "noise", "zoom:0.5", …, as
        `apportion.TrainConfig` takes them; or a function of a batch, as `apportion.fit` takes it.
    train_options : dict, optional
        Further options of `apportion.TrainConfig`, for example ``{"warmup": 0.1, "threads": 1}``.
    validation_fraction : float, optional
        The share of the bags that is held out, whole, to select the best epoch. By default a
        tenth, or none if that is fewer than five bags (unless there is patience); the last epoch
        is then taken. "auto",
        learners and linear models select nothing: by default they learn from all bags, and with a
        fraction the last record of `history_` has the errors of the bags that are held out.
    keep : list of column names, optional
        Columns of X to learn from even if they give the truth away or are the bag's own
        proportions; those of an array are "0", "1" and so on. Others are refused if the numbers of
        their values meet the class counts exactly, in 5 bags of 5 rows or more with differing
        proportions, and warned of if they nearly do. They are left out if they are the shares or
        counts of a class in every bag: rows to predict need not have them. If they are constant
        within every bag in another way, they are warned of.
    normalize : bool
        Whether to rescale the proportions of every bag, so that they sum to 1: for tables of
        another total, and for counts of other rows than those in X.
    callbacks : callable or list of callables, optional
        Each is called with the record of every epoch and the net, whose weights it may read; if
        one returns True, training ends. With "auto" and linear models they are called after
        every net, and with a learner after every round, with None for the net: these do not end
        early. Pre-training calls none.
    run : path, optional
        A folder for all that `apportion.fit` keeps: the log, the checkpoints, the model and its
        evaluation, which `apportion report` shows. If training was interrupted, the same call goes
        on with it, and more epochs are added. Pre-training has a folder ``pretraining`` in it.
        Learners keep none.
    random_state : int, RandomState or None
        Determines held-out bags, weights, and everything else that is random. None takes that of
        the `run` if there is one to go on with.
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
    plan_ : Plan, TablePlan, LearnerPlan or FrozenPlan
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

    # With metadata routing they are passed on without set_fit_request.
    __metadata_request__fit = BY_BAG

    def __init__(
        self,
        method: str | Method | None = None,
        *,
        preset: str | None = None,
        pretrain: Pretrain = None,
        eta: float | None = None,
        epochs: int | None = None,
        model: Untrained | None = None,
        net_options: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        schedule: str | None = None,
        patience: int | None = None,
        optimizer: MakeOptimizer | None = None,
        scheduler: MakeScheduler | None = None,
        augment: str | Sequence[str] | Augment | None = None,
        train_options: Mapping[str, Any] | None = None,
        validation_fraction: float | None = None,
        keep: Sequence[str] | None = None,
        normalize: bool = False,
        callbacks: Callback | Sequence[Callback] | None = None,
        run: str | PathLike[str] | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool | None = None,
    ) -> None:
        self.method = method
        self.preset = preset
        self.pretrain = pretrain
        self.eta = eta
        self.epochs = epochs
        self.model = model
        self.net_options = net_options
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.patience = patience
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.augment = augment
        self.train_options = train_options
        self.validation_fraction = validation_fraction
        self.keep = keep
        self.normalize = normalize
        self.callbacks = callbacks
        self.run = run
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, bags: Any = None, proportions: Any = None) -> Any:
        """Learn from bags with known proportions, or from labels.

        Parameters
        ----------
        X : array of shape (n_rows, …), DataFrame, tuple of arrays, Dataset, or Bags
            Missing numbers are replaced by the mean of their column, and a column that has any gets
            a second column that says where. Text and categoricals are categories; one that
            the training rows do not have counts as missing later on. Arrays of three or more
            dimensions go to the net as they are: signals are (channels, length), images (channels,
            height, width), or with their channels last, which a net of this library gets first.
            The items of a map-style Dataset are read anew in every epoch, and a label beside an
            instance is not used: `Bags.from_dataset` says more of them, and has further options.
            `Bags` have their proportions: pass nothing else with them.
        y : array, optional
            Without `bags` the label of every row. With them labels, of which only the counts in
            every bag are used, or rows of proportions of shape (n_rows, n_classes). With
            `proportions`, labels for the accuracies in `history_`, which decide nothing. Some may
            be missing (None, NaN, or −1 unless that is a class): accuracies are over the others.
        bags : sequence of n_rows bag ids, optional
        proportions : DataFrame, dict or array, optional
            By bag id: a frame indexed by it with one column per class, or a dict of sequences or of
            ``{class: value}``. An array only where bags are the numbers of its rows. It may have
            more bags than the rows do. Counts are accepted too, if those of every bag sum to
            the number of its rows.
        """
        from apportion.estimator.fitting import fit_estimator

        before = dict(vars(self))
        try:
            fit_estimator(self, X, y, bags, proportions)
        except BaseException:  # leave what was fitted before, whole
            self.__dict__ = before
            raise
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier into one file, which `Model.load` reads as well."""
        from apportion.estimator.file import save_estimator

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
        from apportion.estimator.file import load_estimator

        loaded: LLPClassifier = load_estimator(cls(device=device), path, net, last=last)
        return loaded

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        learner = hasattr(self.model, "__sklearn_tags__") and not isinstance(self.model, type)
        tags.input_tags.sparse = not learner or get_tags(self.model).input_tags.sparse
        return tags
