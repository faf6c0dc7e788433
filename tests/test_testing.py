"""The shipped checks: good methods pass, and each check finds what it is for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from apportion import FPL, METHODS, Bags, ConfigError, ProportionLoss, Supervision
from apportion.methods.proportion_loss import Proportions
from apportion.testing import METHOD_CHECKS, check_method

CHECKS = {check.__name__: check for check in METHOD_CHECKS}


@dataclass(frozen=True)
class Own:
    """A method whose state is of some class, which gets the bags and the method."""

    state: Any
    unit: Any = "instances"
    seen: list[Any] = field(default_factory=list)

    def start(self, bags, *, epochs, device, seed, threads=None):
        return self.state(bags, self)


class Pull(Supervision):
    """Does nothing wrong."""

    def __init__(self, bags, method):
        self.bags, self.method = bags, method
        self.shares = torch.from_numpy(np.repeat(bags.proportions, bags.sizes, axis=0)).float()

    def instance_loss(self, model, batch, logits):
        wanted = self.shares.to(logits.device)[batch.position]
        return -(wanted * logits.log_softmax(dim=1)).sum(dim=1).mean()


class OfNothing(Pull):
    def instance_loss(self, model, batch, logits):
        return 0 * logits.sum() + 1


class OfOneClass(Pull):
    def __init__(self, *given):
        super().__init__(*given)
        self.labels = torch.zeros(self.bags.n_instances, dtype=torch.int64)


class OfSortedLabels(Pull):
    """Labels that meet the counts."""

    def __init__(self, *given):
        super().__init__(*given)
        classes = np.tile(np.arange(self.bags.n_classes), self.bags.n_bags)
        self.kept = torch.from_numpy(np.repeat(classes, self.bags.counts.ravel()))
        self.labels = self.kept


class InAnotherTensor(OfSortedLabels):
    def epoch_end(self, epoch, confidence):
        self.labels = self.kept = torch.clone(self.kept)
        return {}


class CountsItsRuns(Pull):
    """Is another method in every run."""

    def __init__(self, *given):
        super().__init__(*given)
        self.method.seen.append(self)
        self.strength = len(self.method.seen)

    def instance_loss(self, model, batch, logits):
        return self.strength * super().instance_loss(model, batch, logits)


class SharesItsState(Pull):
    """Takes what other runs of the method left behind."""

    def epoch_end(self, epoch, confidence):
        self.method.seen.append(epoch)
        return {"epochs": len(self.method.seen)}


class Forgets(Pull):
    """Has a state, but does not tell."""

    strength = 1.0
    needs_confidence = True

    def epoch_end(self, epoch, confidence):
        self.strength += 1
        return {"strength": self.strength}


def refuses(problem):
    """A state for which some bags are a problem."""

    class Refuses(Pull):
        def __init__(self, *given):
            super().__init__(*given)
            if problem(self.bags):
                raise ValueError("these bags are not for me")

    return Refuses


class WantsWholeBags(Pull):
    def instance_loss(self, model, batch, logits):
        found = np.searchsorted(self.bags.offsets, batch.position.numpy(), side="right") - 1
        bags, sizes = np.unique(found, return_counts=True)
        assert (sizes == self.bags.sizes[bags]).all(), "a part of a bag"
        return super().instance_loss(model, batch, logits)


class PassesTwice(Pull):
    def instance_loss(self, model, batch, logits):
        return super().instance_loss(model, batch, model(*batch.x))


class WantsOnePart(Pull):
    def instance_loss(self, model, batch, logits):
        (_x,) = batch.x
        return super().instance_loss(model, batch, logits)


class WantsFeatures(Pull):
    def instance_loss(self, model, batch, logits):
        assert batch.x[0].ndim > 1
        return super().instance_loss(model, batch, logits)


class AddsNoise(Pull):
    def instance_loss(self, model, batch, logits):
        torch.randn_like(batch.x[0])
        return super().instance_loss(model, batch, logits)


class OnTheHost(Pull):
    def instance_loss(self, model, batch, logits):
        return -(self.shares[batch.position.cpu()] * logits.log_softmax(dim=1)).sum()


@dataclass
class NotFrozen:
    unit: ClassVar = "bags"

    def start(self, bags, **run):
        return Proportions()


BROKEN: dict[str, Any] = {
    "learns": Own(OfNothing),
    "meets_the_counts": Own(OfOneClass),
    "changes_labels_in_place": Own(InAnotherTensor),
    "is_a_function_of_the_seed": Own(CountsItsRuns),
    "goes_on_from_its_state": Own(Forgets),
    "takes_bags_of_any_size": Own(refuses(lambda bags: bags.sizes.min() == 1)),
    "takes_a_single_bag": Own(refuses(lambda bags: bags.n_bags == 1)),
    "takes_rows_in_several_bags": Own(refuses(lambda bags: bags.n_rows < bags.n_instances)),
    "takes_steps_in_pieces": Own(WantsWholeBags, unit="bags"),
    "is_frozen": NotFrozen(),
    "drives_several_runs_at_once": Own(SharesItsState),
    "remembers_only_its_main_passes": Own(PassesTwice),
    "takes_instances_in_parts": Own(WantsOnePart),
    "takes_single_numbers": Own(WantsFeatures),
    "takes_codes_alone": Own(AddsNoise),
    "runs_on_cuda": Own(OnTheHost),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_check_finds_what_it_is_for(name):
    if name == "runs_on_cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    with pytest.raises(AssertionError) as caught:
        CHECKS[name](BROKEN[name])
    said = str(caught.value).splitlines()
    assert said[0] == f"{name}: {CHECKS[name].__doc__}"
    assert len(said[1].strip()) > 10  # and what was found


def test_a_method_that_gets_to_the_truth_is_found(monkeypatch):
    monkeypatch.setattr(Bags, "without_truth", lambda self: self)
    with pytest.raises(AssertionError, match="never_sees_the_truth: "):
        CHECKS["never_sees_the_truth"](FPL())


def test_every_check_is_seen_to_fail_here():
    assert {*BROKEN, "never_sees_the_truth"} == CHECKS.keys()
    assert len(CHECKS) == len(METHOD_CHECKS)


def test_the_suite_as_a_whole_names_the_check_that_fails():
    with pytest.raises(AssertionError, match=r"changes_labels_in_place: .*\n  labels is another"):
        check_method(Own(InAnotherTensor))


@pytest.mark.parametrize("method", [Own(Pull), Own(OfSortedLabels)])
def test_labels_need_not_change_nor_be_there(method):
    check_method(method)


def test_a_method_may_be_made_for_the_bags():
    made = []

    def for_bags(bags: Bags) -> FPL:
        made.append(bags)
        classes = np.tile(np.arange(bags.n_classes), bags.n_bags)
        return FPL(first=np.repeat(classes, bags.counts.ravel()))

    CHECKS["takes_a_single_bag"](for_bags)
    assert [bags.n_bags for bags in made] == [1]


def test_codes_may_be_refused_but_only_by_a_config_error():
    CHECKS["takes_codes_alone"](METHODS["pi-model"])
    with pytest.raises(AssertionError) as caught:
        CHECKS["takes_codes_alone"](Own(AddsNoise))
    assert not isinstance(caught.value.__cause__, ConfigError)
    CHECKS["takes_codes_alone"](ProportionLoss())
