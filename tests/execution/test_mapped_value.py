"""Memory-mapped values: loaded unchanged, shared between processes, and copied on write."""

import pickle

import numpy as np

from relcrf.execution.mapped_value import PAGE, MappedValue


def test_loaded_value_equals_saved_value(tmp_path):
    value = {
        "large": np.arange(3 * PAGE, dtype=np.int32),
        "odd": np.array([1.5, -2.5, np.nan]),
        "empty": np.empty((0, 2)),
        "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "strided": np.arange(10)[::3],
        "text": np.array(["a", "ö"], dtype=object),
        "plain": ("x", 1),
    }
    written = MappedValue.save(value, tmp_path / "value")
    assert len(pickle.dumps(written)) < 500, "arrays are not pickled"
    found = pickle.loads(pickle.dumps(written)).load()
    assert list(found) == list(value) and found["plain"] == ("x", 1)
    for name in list(value)[:-1]:
        np.testing.assert_array_equal(found[name], value[name])
        assert found[name].dtype == value[name].dtype and found[name].flags.writeable


def test_arrays_are_pages_of_file(tmp_path):
    """Check that writes to an array stay private, and that a new reader sees the content of the file."""
    written = MappedValue.save(np.zeros(2 * PAGE, dtype=np.int8), tmp_path / "value")
    first = written.load()
    first[:] = 1
    assert not written.load().any() and not first.flags.owndata
    with (tmp_path / "value").open("r+b") as file:
        file.write(b"\x02")
    assert written.load()[0] == 2


def test_value_without_arrays(tmp_path):
    assert MappedValue.save("text", tmp_path / "value").load() == "text"
