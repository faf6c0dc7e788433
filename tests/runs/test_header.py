"""Headers of safetensors files: what goes in comes out, without torch, or the file is named."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from apportion.bags.columns import Columns
from apportion.errors import RunError
from apportion.runs.header import columns_of, metadata, opened, read_header, seal
from apportion.runs.run import FORMAT_VERSION

COLUMNS = Columns(("age", "job"), {"age": 40.0}, (), ("age",), {"job": ("cook", "Łódź")}, {})
CONTENT = {"names": ["Zürich", "\u2028"], "tiny": 5e-324, "large": 2**80, "none": None}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def saved(path, found):
    save_file({"weight": np.arange(3.0)}, path, found)
    if "checksum" in str(found):
        seal(path)


def test_content_comes_back_with_its_kind_and_format(path):
    saved(path, metadata("model", CONTENT))
    assert read_header(path, "model") == {**CONTENT, "kind": "model", "format": FORMAT_VERSION}
    with opened(path, "model") as (file, header):
        assert header["tiny"] == 5e-324
        assert file.get_tensor("weight").tolist() == [0, 1, 2]


def test_there_is_one_key_and_the_order_of_names_does_not_matter(path, tmp_path):
    saved(path, metadata("model", CONTENT))
    saved(tmp_path / "turned", metadata("model", dict(reversed(CONTENT.items()))))
    assert path.read_bytes() == (tmp_path / "turned").read_bytes()
    with safe_open(path, framework="numpy") as file:
        assert list(file.metadata()) == ["apportion"]


def test_columns_come_back(path):
    saved(path, metadata("model", {"columns": COLUMNS.to_dict()}))
    assert columns_of(read_header(path, "model")) == COLUMNS
    assert columns_of({}) is None
    assert columns_of({"columns": None}) is None


def header(**changes):
    return {"apportion": json.dumps({"format": FORMAT_VERSION, "kind": "model", **changes})}


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (None, "was not saved by apportion"),
        ({"format": "pt"}, "was not saved by apportion"),
        ({"apportion": "{"}, "has a damaged header"),
        ({"apportion": "[" * 100_000}, "has a damaged header"),
        ({"apportion": "{}"}, "has a damaged header: 'format'"),
        ({"apportion": json.dumps({"format": FORMAT_VERSION})}, "has a damaged header: 'kind'"),
        ({"apportion": str(FORMAT_VERSION)}, "has a damaged header"),
        (header(columns=[]), "has a damaged header"),
        (header(columns={"names": ["a"]}), "has a damaged header"),
        # As files of format 1 said it.
        ({"apportion": "1", "scalars": "{}"}, "is of format version 1; this apportion reads"),
        (header(format=99), f"is of format version 99; this apportion reads {FORMAT_VERSION}."),
        (header(kind="checkpoint"), "holds another kind: checkpoint, not model."),
    ],
)
def test_a_header_that_is_not_right_is_refused_with_a_remedy(path, found, problem):
    saved(path, found)
    with pytest.raises(RunError, match=re.escape(problem)) as refused:
        read_header(path, "model")
    told, remedy = str(refused.value).split("\n  ")
    assert told.startswith(str(path))
    assert "another folder" in remedy


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 64])
def test_a_damaged_file_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(RunError, match="is damaged or cut short"):
        read_header(path, "model")


def test_every_bit_that_changes_is_noticed(path):
    """In the header or in the tensors; what is not there any more cannot be read at all."""
    saved(path, metadata("model", CONTENT))
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(RunError, match=re.escape(str(path))):
            read_header(path, "model")
    path.write_bytes(whole)
    assert read_header(path, "model")["tiny"] == 5e-324


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("names", ["age", "job", "job"]),
        ("means", {"age": float("nan")}),
        ("means", {"age": "40"}),
        ("means", {"age": True}),
        ("shifted", ["job"]),
        ("gaps", "age"),
        ("categories", {"job": ["cook", "cook"]}),
        ("categories", {"job": "cook"}),
        ("left_out", {"age": 3}),
        ("left_out", {"job": -1}),
        ("more", 3),
    ],
)
def test_columns_that_make_no_sense_are_refused(path, field, value):
    saved(path, metadata("model", {"columns": {**COLUMNS.to_dict(), field: value}}))
    with pytest.raises(RunError, match="has a damaged header"):
        read_header(path, "model")


def test_a_file_that_was_cut_short_is_refused_although_its_header_is_whole(path):
    saved(path, metadata("model", {}))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RunError, match="is damaged or cut short"):
        read_header(path, "model")


def test_a_missing_file_is_named_with_the_remedy_of_the_caller(path):
    problem = re.escape(f"{path} does not exist.\n  Train it.")
    with pytest.raises(RunError, match=problem), opened(path, "model", remedy="Train it."):
        pass


def test_the_room_is_read_without_torch_numba_or_pandas(path):
    saved(path, metadata("model", {"columns": COLUMNS.to_dict()}))
    code = """
import sys
from pathlib import Path
import apportion.runs.evaluation, apportion.runs.run
from apportion.runs.header import columns_of, read_header
print(columns_of(read_header(Path(sys.argv[1]), "model")))
print({"torch", "numba", "pandas", "pyarrow", "scipy", "sklearn"} & sys.modules.keys())
"""
    source = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", code, str(path)]
    told = subprocess.run(command, env=source, capture_output=True, text=True, check=True).stdout
    assert told == f"{COLUMNS}\nset()\n"
