"""Plain pickles: arrays of bytes as numpy would read them, and nothing that a file may run."""

import builtins
import copyreg
import os
import pickle
import subprocess

import numpy as np
import pytest

from apportion.study.datasets import _unpickle
from apportion.study.datasets._unpickle import PickledArray, unpickle_plain

ROWS = np.random.default_rng(0).integers(0, 256, (5, 7), np.uint8)


class Calls:
    """Is pickled as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def refused(content):
    with pytest.raises(pickle.UnpicklingError) as caught:
        unpickle_plain(content)
    return str(caught.value)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("rows", [ROWS, ROWS[:0], np.asfortranarray(ROWS), ROWS[::2, 1:]])
def test_arrays_of_bytes_are_what_numpy_would_read(protocol, rows):
    content = pickle.dumps({b"data": rows, "twice": [rows]}, protocol)
    read = unpickle_plain(content)
    for array in (read[b"data"], read["twice"][0]):
        assert isinstance(array, PickledArray)
        assert array.content.dtype == np.uint8
        assert array.content.shape == rows.shape
        assert np.array_equal(array.content, rows)


def test_older_numpy_named_its_modules_otherwise():
    for protocol, module in ((4, b"multiarray"), (5, b"numeric")):
        content = pickle.dumps(ROWS, protocol)
        # The length of a name stands before it: that of the module loses its underscore.
        new, old = (b"numpy." + core + b"." + module for core in (b"_core", b"core"))
        assert new in content
        at = content.index(new)
        older = content[: at - 1] + bytes([len(old)]) + old + content[at + len(new) :]
        older = older[:3] + (len(older) - 11).to_bytes(8, "little") + older[11:]
        assert np.array_equal(unpickle_plain(older).content, ROWS)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_things_are_what_pickle_would_read(protocol):
    plain = {"labels": [1, 2**70, -3], "pair": (True, None, 0.5), "é": {"x": []}}
    assert unpickle_plain(pickle.dumps(plain, protocol)) == plain


def test_text_of_python_2_is_bytes():
    assert unpickle_plain(b"\x80\x02}U\x04data](K\x03K\x08es.") == {b"data": [3, 8]}


# ----------------------------------------------------------------------------------------- malice


@pytest.mark.parametrize("protocol", range(6))
def test_functions_are_named_and_never_run(tmp_path, protocol):
    mark = tmp_path / "mark"
    calls = [
        (Calls(os.system, f"echo > {mark}"), "system"),
        (Calls(eval, f"open({str(mark)!r}, 'w').close()"), "eval"),
        (Calls(exec, f"open({str(mark)!r}, 'w').close()"), "exec"),
        (Calls(getattr, mark, "touch"), ""),
        (Calls(subprocess.check_output, ["touch", str(mark)]), ".check_output"),
    ]
    for call, name in calls:
        for thing in (call, [call], {"data": ROWS.tolist(), "labels": call}):
            message = refused(pickle.dumps(thing, protocol))
            assert message.startswith("it asks for ")
            assert f"{name}, which is refused" in message
    assert not mark.exists()


@pytest.mark.parametrize("name", ["os system", "posix system", "__builtin__ eval", "nt system"])
def test_names_of_python_2_are_refused_as_they_are_written(tmp_path, name):
    module, function = name.split()
    command = f"touch {tmp_path / 'mark'}".encode()
    content = f"c{module}\n{function}\n(S'".encode() + command + b"'\ntR."
    assert refused(content) == f"it asks for {module}.{function}, which is refused"
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "name",
    [
        "numpy load", "numpy fromfile", "numpy memmap", "numpy core.multiarray._reconstruct",
        "numpy ndarray.tofile", "numpy dtype.__class__", "numpy.core.multiarray scalar",
        "numpy._core.multiarray fromfile", "numpy.core.numeric fromfunction", "_codecs encode",
        "copy_reg _reconstructor", "collections OrderedDict",
    ],
)  # fmt: skip
def test_nothing_else_of_numpy_or_python_is_given(name):
    module, attribute = name.split()
    expected = f"it asks for {module}.{attribute}, which is refused"
    assert refused(f"c{module}\n{attribute}\n.".encode()) == expected
    by_stack = b"\x80\x04" + b"".join(
        b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, attribute)
    )
    assert refused(by_stack + b"\x93.") == expected


def test_names_lead_to_stand_ins_not_to_numpy():
    for module, name in _unpickle.STAND_INS:
        given = unpickle_plain(f"c{module}\n{name}\n.".encode())
        assert given not in (np.ndarray, np.dtype)
        assert given.__module__ == "apportion.study.datasets._unpickle"
    with pytest.raises(TypeError):
        unpickle_plain(b"cnumpy\nndarray\n(K\x03tR.")


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("dtype", ["O", "f8", "i8", "i1", "S3", "u2", "u1,u1"])
def test_arrays_of_anything_but_bytes_are_refused(protocol, dtype):
    array = np.zeros(2, dtype)
    assert "not of bytes ('u1')" in refused(pickle.dumps(array, protocol))


@pytest.mark.parametrize("dtype", [b"N", b"U\x02u1", b"cnumpy\ndtype\n"])
def test_a_dtype_must_be_one(dtype):
    array = b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01K\x02\x85" + dtype + b"\x89U\x02abtb."
    assert "not of bytes ('u1')" in refused(b"\x80\x02" + array)


def test_a_file_leaves_no_mark_on_what_it_names():
    content = b"\x80\x02cnumpy\nndarray\nN}X\x04\x00\x00\x00markK\x01s\x86b."
    assert unpickle_plain(content).mark == 1
    assert not any(hasattr(stand_in, "mark") for stand_in in _unpickle.STAND_INS.values())


def test_names_by_number_and_persistent_names_are_refused():
    copyreg.add_extension("os", "system", 7)
    try:
        assert refused(b"\x80\x02\x82\x07.") == "it asks for os.system, which is refused"
    finally:
        copyreg.remove_extension("os", "system", 7)
    with pytest.raises(pickle.UnpicklingError):
        unpickle_plain(b"Pname\n.")


def test_no_name_of_builtins_is_given():
    for name in dir(builtins):
        assert "which is refused" in refused(f"cbuiltins\n{name}\n.".encode())
