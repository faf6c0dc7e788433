"""Running statistics of several ranks become their means."""

import torch
from torch import nn

from apportion.engine.distributed import ALONE, Ranks
from apportion.engine.statistics import average_statistics


class Twice(Ranks):
    """Two ranks, of which the other has 3 more everywhere."""

    def sum_(self, tensors):
        for tensor in tensors:
            tensor += tensor + 3


def net():
    made = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False))
    made.register_buffer("constant", torch.ones(2))
    return made


def test_means_and_variances_are_averaged_and_nothing_else():
    first, second = net(), net()
    average_statistics([first, second], Twice(0, 2))
    for own in (first, second):
        assert own[0].running_mean.tolist() == [1.5, 1.5]
        assert own[0].running_var.tolist() == [2.5, 2.5]
        assert own[0].num_batches_tracked == 0
        assert own.constant.tolist() == [1, 1]


def test_a_process_alone_keeps_its_own():
    own = net()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    average_statistics([own], ALONE)
    assert all((value == before[name]).all() for name, value in own.state_dict().items())
