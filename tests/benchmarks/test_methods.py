"""The benchmark of all methods: what it measures, and its table."""

import pytest

from apportion import TrainConfig
from benchmarks.methods import KEY, PAGE, WARM_UP, measured, render


@pytest.mark.parametrize("net", ["conv1d", pytest.param("resnet18", marks=pytest.mark.slow)])
def test_a_measurement_is_a_line_with_its_key_and_its_phases(net):
    config = TrainConfig.preset("paper", epochs=WARM_UP + 1, device="cpu", threads=1)
    line = measured(net, "fpl", 4, 8, 1, config)
    assert [line[name] for name in KEY] == [net, "fpl", 4, 8, 1]
    assert line["seconds"] > 0
    assert line["phases"].keys() >= {"train", "confidence", "labels"}


def test_the_table_has_a_column_per_net_and_number_of_trainings():
    about = {"size": 64, "instances": 128, "hardware": "a GPU", "versions": {"torch": "2.11"}}
    lines = [
        {"net": net, "method": "fpl", "together": n, "seconds": n / 8 + (net == "conv1d"), **about}
        for net in ("resnet18", "conv1d")
        for n in (1, 4)
    ]
    head, _, row, *_, last = render(lines).splitlines()
    assert head.startswith("| bags of 64, 128 instances | `resnet18`, alone | `resnet18`, 4 |")
    assert row == "| `fpl` | 0.125 | 0.500 | 1.125 | 1.500 |"
    assert last == "a GPU, torch 2.11."


def test_the_page_has_its_marks():
    assert "<!-- seconds -->" in PAGE.read_text("utf-8")
