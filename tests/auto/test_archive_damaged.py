"""A run folder of a table that is damaged: refused by its name, and with what is wrong."""

import pytest
import torch

from apportion import Run
from apportion.errors import RunError
from apportion.model.model import Model
from tests.auto.tables import few_steps, leave, train
from tests.faults.damaged_runs import read_parts, write_parts


@pytest.fixture(autouse=True)
def _short(steps):
    steps(2)


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """The files of a run that was left after net 3."""
    folder = tmp_path_factory.mktemp("left") / "a"
    with pytest.MonkeyPatch.context() as patch:
        few_steps(2, patch.setattr)
        leave(folder, 3)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def run(left, tmp_path):
    for name, content in left.items():
        (tmp_path / name).write_bytes(content)
    return Run(tmp_path)


def average_in(header):
    header["nets"][0] = {"net": "average", "groups": [[header["nets"][0]]]}


HEADERS = {
    "epoch too large": (lambda h: h.update(epoch=99), "saved after net 99 of 10"),
    "epoch of all nets": (lambda h: h.update(epoch=10), "saved after net 10 of 10, and has 3"),
    "epoch too small": (lambda h: h.update(epoch=2), "saved after net 2 of 10, and has 3"),
    "epoch 0": (lambda h: h.update(epoch=0), "epoch is 0, not an integer ≥ 1"),
    "epoch true": (lambda h: h.update(epoch=True), "epoch is True"),
    "epoch missing": (lambda h: h.pop("epoch"), "epoch is missing"),
    "nets missing": (lambda h: h.pop("nets"), "saved after net 3 of 10, and has 0"),
    "nets no list": (lambda h: h.update(nets={"0": 1}), "saved after net 3 of 10, and has 0"),
    "nets too few": (lambda h: h["nets"].pop(), "saved after net 3 of 10, and has 2"),
    "recipe null": (lambda h: h["nets"].__setitem__(1, None), "recipe of no net"),
    "recipe a text": (lambda h: h["nets"].__setitem__(1, "mlp"), "recipe of no net"),
    "recipe of another": (lambda h: h["nets"].reverse(), "weights of another net"),
    "recipe of other classes": (lambda h: h["nets"][0].update(classes=3), "recipe of no net"),
    "recipe of an average": (average_in, "recipe of no net"),
    "recipe of a learner": (lambda h: h["nets"][0].update(net="learner"), "recipe of no net"),
    "recipe of a resnet": (lambda h: h["nets"][0].update(net="resnet18"), "recipe of no net"),
    "threads 0": (lambda h: h.update(threads=0), "threads is 0, not from 1 to"),
    "threads missing": (lambda h: h.pop("threads"), "threads is missing"),
    "threads too many": (lambda h: h.update(threads=10**6), "threads is 1000000"),
    "identity missing": (lambda h: h.pop("identity"), "identity is missing"),
    "identity empty": (lambda h: h.update(identity={}), "identity of the run has nothing"),
    "other classes": (lambda h: h.update(classes=["a", "b"]), "classes is of another run"),
    "other parts": (lambda h: h.update(parts=[]), "parts is of another run"),
    "a best epoch": (lambda h: h.update(best_epoch=2, best_error=0.5), "best_epoch is of another"),
    "trained": (lambda h: h.update(trained={"0.body": True}), "trained is of another"),
}  # fmt: skip


def renamed(tensors):
    """Turn the tensors of net 2 into those of a net 7."""
    for name in [name for name in tensors if name.startswith("2.")]:
        tensors[f"7{name[1:]}"] = tensors.pop(name)


def lost(tensors):
    for name in [name for name in tensors if name.startswith("1.")]:
        del tensors[name]


def first_float(tensors):
    return next(name for name in sorted(tensors) if name.endswith(".weight"))


TENSORS = {
    "of no net": (renamed, "tensors of no net, or no tensors of one"),
    "without a net": (lost, "tensors of no net, or no tensors of one"),
    "without a dot": (lambda t: t.update(more=torch.zeros(1)), "tensors of no net"),
    "of a weight more": (lambda t: t.update({"0.more": torch.zeros(1)}), "weights of another net"),
    "of a weight less": (lambda t: t.pop(first_float(t)), "weights of another net"),
    "NaN": (lambda t: t[first_float(t)].fill_(torch.nan), "values that are not finite"),
    "infinite": (lambda t: t[first_float(t)][0].fill_(torch.inf), "values that are not finite"),
    "of another shape": (lambda t: t.update({first_float(t): torch.zeros(7)}), "another net"),
}


def content(run):
    return {path.name: path.read_bytes() for path in run.folder.iterdir()}


def refusal(run):
    before = content(run)
    with pytest.raises(RunError) as refused:
        train(run.folder)
    problem, remedy = str(refused.value).split("\n  ")
    assert str(run.folder) in problem
    assert remedy
    assert content(run) == before
    return problem


@pytest.mark.parametrize("case", HEADERS)
def test_a_damaged_header_is_refused_and_says_what_is_wrong(case, run):
    change, words = HEADERS[case]
    header, tensors = read_parts(run.checkpoint)
    change(header)
    write_parts(run.checkpoint, header, tensors)
    assert words in refusal(run)


@pytest.mark.parametrize("case", TENSORS)
def test_damaged_tensors_are_refused_and_it_is_said_what_is_wrong(case, run):
    change, words = TENSORS[case]
    header, tensors = read_parts(run.checkpoint)
    change(tensors)
    write_parts(run.checkpoint, header, tensors)
    assert words in refusal(run)


def cut(text, n):
    return "".join(line + "\n" for line in text.splitlines()[:n])


LOGS = {
    "shorter": (lambda text: cut(text, 2), "has 2 lines, but the checkpoint was saved after 3"),
    "empty": (lambda text: "", "has 0 lines"),
    "torn": (lambda text: text[:-9], "has None in line 3, but the checkpoint linear start"),
    "of another member": (
        lambda text: text.replace("linear start", "ridge"),
        "has 'ridge' in line 3, but the checkpoint linear start",
    ),
    "of no members": (lambda text: text.replace('"member"', '"number"'), "has number"),
    "without a member": (
        lambda text: text.replace('"member": "likelihood", ', "", 1),
        "has None in line 2, but the checkpoint likelihood",
    ),
}


@pytest.mark.parametrize("case", LOGS)
def test_a_log_that_is_not_that_of_the_checkpoint_is_refused(case, run):
    change, words = LOGS[case]
    text = run.log.read_text()
    assert change(text) != text
    run.log.write_text(change(text))
    assert words in refusal(run)


def test_a_log_that_lost_its_last_newline_goes_on(run):
    run.log.write_text(run.log.read_text()[:-1])
    assert len(train(run.folder).history.records) == 10
    assert [r["epoch"] for r in run.records()] == list(range(1, 11))


def test_a_model_that_is_not_there_yet_is_said_to_be_of_a_run_that_goes_on(run):
    with pytest.raises(RunError, match="3 of 10 nets are done, and no model is selected yet"):
        Model.load(run.folder)
    with pytest.raises(RunError, match="averages 10 nets: it has a model at its end"):
        Model.load(run.folder, last=True)
