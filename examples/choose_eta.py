"""Choose η and the number of epochs from proportions alone.

    python examples/choose_eta.py

Handwritten digits in 20 bags of 64, of which only the counts of the ten digits are known. A grid
search trains on two thirds of the bags, and scores every setting by how well it predicts the
proportions of the others. No label of any digit is used. Because we have them here, the last column
tells what each setting reaches on test digits: what the search could not see.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn
from sklearn.model_selection import GridSearchCV

from apportion import BagKFold, LLPClassifier, proportion_scorer
from apportion.study.datasets.benchmarks import Benchmark, digits

GRID = {"eta": [0.1, 1.0, 10.0], "epochs": [10, 30]}


def search(seed: int = 0) -> tuple[GridSearchCV, list[float]]:
    """Search the grid; also give the test accuracy of every setting, fitted to all bags."""
    data = digits(seed=seed)
    x, bags, counts = bags_of_digits(data, seed)
    classifier = LLPClassifier(random_state=seed)
    found = GridSearchCV(classifier, GRID, cv=BagKFold(3), scoring=proportion_scorer)
    found.fit(x, bags=bags, proportions=counts)
    accuracies = []
    for setting in found.cv_results_["params"]:
        fitted = LLPClassifier(**setting, random_state=seed).fit(x, bags=bags, proportions=counts)
        accuracies.append(fitted.score(data.x_test, data.truth_test))
    return found, accuracies


def bags_of_digits(data: Benchmark, seed: int) -> tuple[Any, Any, dict[int, Any]]:
    """Sort digits into bags of different proportions: rows, bag ids, and a table of counts."""
    rng = np.random.default_rng(seed)
    order = np.argsort(data.truth + 4 * rng.random(len(data.truth)))
    x, labels = data.x[order], data.truth[order]
    bags = np.arange(len(x)) // 64
    counts = {bag: np.bincount(labels[bags == bag], minlength=10) for bag in np.unique(bags)}
    return x, bags, counts


def main() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        found, accuracies = search()
    print("   eta  epochs  proportion error  test accuracy")
    for setting, score, accuracy in zip(
        found.cv_results_["params"], found.cv_results_["mean_test_score"], accuracies, strict=True
    ):
        mark = "  <- chosen" if setting == found.best_params_ else ""
        print(f"{setting['eta']:6g}  {setting['epochs']:6}  {-score:16.3f}  {accuracy:13.1%}{mark}")


if __name__ == "__main__":
    main()
