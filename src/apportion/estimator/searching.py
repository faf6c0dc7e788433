"""What an estimator can know of the search that fits it, so that lost bags are an error.

A search of scikit-learn passes bags to `score` only where metadata routing is enabled. Without
them `score` can but raise an error, which the search turns into nan; it then returns parameters
that nothing has chosen. An error of `fit` is not lost in this way: if all fits fail, the search
does. So `fit` looks whether one of scikit-learn's searches is calling, and what it will pass on.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import sklearn

from apportion.errors import BagError, ConfigError
from apportion.estimator.inputs import has_items
from apportion.estimator.selection import ProportionScorer
from apportion.estimator.targets import has_rows_of_proportions

__all__ = ["check_search"]

REQUESTS = (
    "set_fit_request(bags=True, proportions=True) and set_score_request(bags=True, "
    "proportions=True)"
)


def check_search(run: Any, bags: Any) -> None:
    """Check that the search that calls `fit`, if any, passes on what it must."""
    search = _caller()
    if search is None:
        return
    if run is not None:
        raise ConfigError(
            f"run is {str(run)!r}, but a search trains many models, and each needs a folder of its "
            "own.",
            "Leave run out, and set it for the best: "
            "clone(search.best_estimator_).set_params(run=…).fit(…).",
        )
    if has_items(X := search.get("X")):
        raise BagError(
            f"the search cuts X, a {type(X).__name__}, into lists of items, each read only once.",
            "Pass arrays to a search, or fit the settings one after the other.",
        )
    y = search.get("y")
    if bags is None and y is None:
        raise BagError(
            "the search passes neither bags nor y to fit: This LLPClassifier requires y to be "
            "passed, but the target y is None.",
            _remedy(),
        )
    passed = search.get("score_params") or {}
    if "bags" not in passed and _needs_bags(search.get("scorer"), y):
        lost = "neither to fit nor to score" if bags is None else "to fit, but not to score"
        raise BagError(
            f"the search passes bags {lost}, which has nothing else to go by.", _remedy()
        )


def _caller() -> Mapping[str, Any] | None:
    """Return the variables of the function that fits and scores in searches, if it is calling."""
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_name == "_fit_and_score" and module.startswith("sklearn."):
            return dict(frame.f_locals)
        frame = frame.f_back
    return None


def _needs_bags(scorer: Any, y: Any) -> bool:
    """Tell whether a scorer, or one of several, goes by proportions."""
    several = getattr(scorer, "_scorers", scorer)
    scorers = several.values() if isinstance(several, Mapping) else (scorer,)
    own_score = y is None or has_rows_of_proportions(y)
    return any(
        isinstance(one, ProportionScorer)
        or (own_score and type(one).__name__ == "_PassthroughScorer")
        for one in scorers
    )


def _remedy() -> str:
    if not sklearn.get_config()["enable_metadata_routing"]:
        return (
            "Call sklearn.set_config(enable_metadata_routing=True), and pass bags= and "
            "proportions= to the search. LLPClassifier then asks for them, as after "
            f"{REQUESTS}."
        )
    return (
        f"Call {REQUESTS}, and pass bags= and proportions= to the search (in params= of "
        "cross_val_score)."
    )
