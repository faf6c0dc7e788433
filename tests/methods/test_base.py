"""What every method's state is made of."""

from typing import Any

import torch

from apportion.methods.base import Supervision


def test_a_supervision_need_not_do_anything():
    class Nothing(Supervision):
        pass

    nothing: Any = Nothing()
    assert nothing.labels is None
    assert not nothing.needs_confidence
    assert not nothing.decides_first
    assert nothing.instance_loss(torch.nn.Identity(), None, torch.zeros(1, 2)) is None
    confidence = torch.zeros(1, 2)
    assert nothing.moments(confidence) is confidence
    assert nothing.bag_loss(confidence, torch.zeros(1, 2), torch.ones(1)) is None
    assert nothing.epoch_end(1, None) == {}
    assert nothing.state_dict() == {}
    nothing.load_state_dict({})
