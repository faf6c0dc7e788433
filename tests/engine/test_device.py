"""Devices by name, and settings that are given back as they were found."""

import os

import numpy as np
import pytest
import torch

from apportion.engine.device import device_for, memory_for, own_stream, own_threads, precision_for
from apportion.errors import ConfigError
from apportion.methods.registry import METHODS
from apportion.testing import toy_bags, toy_config, toy_net
from apportion.training.fit import fit

CPU = torch.device("cpu")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_without_a_gpu_auto_is_the_cpu(no_gpu):
    assert device_for("auto") == device_for("cpu") == CPU


def test_with_a_gpu_auto_is_that(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert device_for("auto") == device_for("cuda") == torch.device("cuda", 2)
    assert device_for("cuda:1") == torch.device("cuda", 1)
    assert device_for("cpu") == CPU


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:3"])
def test_a_gpu_that_is_not_there_is_refused(name, no_gpu):
    with pytest.raises(ConfigError, match=r"(?s)torch sees no GPU.*'cpu' or 'auto'"):
        device_for(name)


@pytest.mark.parametrize("name", ["gpu", "", "cpu0", "Auto"])
def test_a_name_that_is_no_device_is_refused(name):
    with pytest.raises(ConfigError) as caught:
        device_for(name)
    assert str(caught.value) == f"device must be 'auto', 'cpu' or 'cuda'; got {name!r}."


def test_fit_refuses_a_gpu_that_is_not_there(no_gpu):
    bags = toy_bags()
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        fit(toy_net(bags), bags, config=toy_config(device="cuda"))


def test_precision(monkeypatch):
    cuda = torch.device("cuda")
    assert precision_for("auto", CPU) == precision_for("float32", cuda) == torch.float32
    assert precision_for("bfloat16", CPU) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert precision_for("auto", cuda) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    assert precision_for("auto", cuda) == torch.float32


def test_arrays_in_memory_find_room_on_the_cpu_whatever_their_size(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    assert memory_for([np.zeros(3), torch.zeros(3)], CPU) >= 2**60
    assert memory_for([], CPU) >= 2**60


def test_mapped_files_find_room_in_most_of_the_memory(monkeypatch, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    memory = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}
    monkeypatch.setattr(os, "sysconf", lambda name: memory[name])
    for parts in ([mapped], [np.zeros(3), mapped]):
        assert 0.5 * 4_096_000 < memory_for(parts, CPU) < 0.95 * 4_096_000
    assert isinstance(memory_for([mapped], CPU), int)


def test_on_a_gpu_there_is_room_in_most_of_what_is_free(monkeypatch):
    device = torch.device("cuda", 3)  # which need not be there
    monkeypatch.setattr(torch.cuda, "mem_get_info", {device: (900, 9000)}.__getitem__)
    monkeypatch.setattr(torch.cuda, "memory_reserved", {device: 300}.__getitem__)
    monkeypatch.setattr(torch.cuda, "memory_allocated", {device: 200}.__getitem__)
    assert 500 < memory_for([np.zeros(3)], device) < 950


def test_the_cpu_has_no_streams():
    with own_stream(CPU):
        pass
    with pytest.raises(ZeroDivisionError), own_stream(CPU):
        _ = 1 / 0


def test_threads_are_given_back(two_threads):
    with own_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_they_are_given_back_after_an_error_too(two_threads):
    with pytest.raises(ZeroDivisionError), own_threads(1):
        torch.rand(1 // 0)
    assert torch.get_num_threads() == 2


def test_without_a_number_threads_stay(two_threads):
    with own_threads(None):
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("name", METHODS)
def test_fit_leaves_no_trace_in_what_belongs_to_the_caller(name, two_threads):
    bags = toy_bags()
    model = toy_net(bags, dropout=0.5)
    before = torch.get_rng_state(), repr(np.random.get_state(legacy=False))  # noqa: NPY002
    seen = []
    fit(
        model,
        bags,
        bags,
        method=name,
        config=toy_config(threads=1),
        on_epoch=lambda record, model: seen.append(torch.get_num_threads()),
        progress=False,
    )
    assert seen == [1, 1, 1]
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), before[0])
    assert repr(np.random.get_state(legacy=False)) == before[1]  # noqa: NPY002
    assert not torch.is_autocast_enabled("cpu")
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("name", ["fpl", "llp-vat"])
def test_fit_does_not_depend_on_the_callers_random_state(name):
    bags = toy_bags()
    found = []
    for seed in (1, 2):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            torch.rand(seed)
            model = toy_net(bags, dropout=0.5)
            fit(model, bags, method=name, config=toy_config(), progress=False)
        found.append(model.state_dict())
    assert all(torch.equal(found[0][weight], found[1][weight]) for weight in found[0])


def test_an_error_in_the_callers_function_leaves_no_trace_either(two_threads):
    bags = toy_bags()
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError):
        fit(toy_net(bags), bags, config=toy_config(), on_epoch=lambda *_: 1 // 0)  # type: ignore[arg-type]
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), state)
