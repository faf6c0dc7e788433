"""Batches on their way to a device."""

import pytest
import torch

from apportion.engine.copies import Copies, as_networks_take

CPU = torch.device("cpu")


def test_on_the_cpu_batches_are_there_already():
    copies, part = Copies(CPU), torch.arange(3)
    assert copies.ahead == 0
    (sent,), event = copies.send(copies.pinned((part,)))
    assert sent is part
    assert event is None
    assert copies.arrived((sent,), event)[0] is part


def test_only_float64_is_taken_as_another_type():
    given = [torch.zeros(2, dtype=kind) for kind in (torch.float64, torch.int64, torch.float16)]
    taken = as_networks_take(given)
    assert [part.dtype for part in taken] == [torch.float32, torch.int64, torch.float16]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_batches_travel_from_pinned_memory_on_a_stream_of_their_own():
    device = torch.device("cuda", 0)
    copies, part = Copies(device), torch.arange(1000.0)
    (pinned,) = copies.pinned((part,))
    assert pinned.is_pinned()
    (arrived,) = copies.arrived(*copies.send((pinned,)))
    assert arrived.device == device
    assert torch.equal(arrived.cpu(), part)
    assert copies.stream != torch.cuda.current_stream(device)
