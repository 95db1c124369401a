from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trained
from sparkdl_bench import load_model, saved
from sparkdl_bench.errors import ConfigurationError


def test_save_and_load_give_the_same_bits(tmp_path: Path) -> None:
    weights = {
        "fc1.weight": np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32),
        "fc1.bias": np.zeros(3, np.float32),
    }
    saved.save(tmp_path / "a" / "model", {"name": "mlp", "layers": []}, weights, {"shape": [4], "labels": ["a", "ü"]})
    loaded = saved.load(tmp_path / "a" / "model")
    assert loaded.input == {"shape": [4], "labels": ["a", "ü"]}
    assert loaded.specification == {"name": "mlp", "layers": []}
    assert loaded.weights.keys() == weights.keys()
    for name, array in weights.items():
        assert loaded.weights[name].dtype == np.float32
        np.testing.assert_array_equal(loaded.weights[name], array)


def test_a_model_of_an_older_version_says_nothing_of_its_rows(tmp_path: Path) -> None:
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.zeros(4, np.float32)})
    assert saved.load(tmp_path).input == {}
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.zeros(4, np.float32)}, {"shape": [4], "factor": 0.5})
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.zeros(4, np.float32)})
    assert saved.load(tmp_path).input == {}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^There is no folder '.*nowhere'\. A saved model is a folder with"):
        saved.load(tmp_path / "nowhere")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no saved model"):
        saved.load(tmp_path)


@given(st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=6))
def test_split_gives_every_value_to_one_parameter(shapes: list[list[int]]) -> None:
    layout, offset = [], 0
    for index, shape in enumerate(shapes):
        layout.append({"name": f"p{index}", "shape": shape, "offset": offset})
        offset += int(np.prod(shape))
    flat = np.arange(offset, dtype=np.float32)
    parts = saved.split(flat, layout)
    assert [list(part.shape) for part in parts.values()] == shapes
    joined = np.concatenate([part.ravel() for part in parts.values()]) if parts else flat
    np.testing.assert_array_equal(joined, flat)


def test_split_copies() -> None:
    flat = np.zeros(2, np.float32)
    part = saved.split(flat, [{"name": "a", "shape": [2], "offset": 0}])["a"]
    part[0] = 1
    assert flat[0] == 0


def test_a_layout_that_goes_past_the_end() -> None:
    with pytest.raises(ValueError, match=r"fc1\.bias ends at value 5"):
        saved.split(np.zeros(4, np.float32), [{"name": "fc1.bias", "shape": [2], "offset": 3}])


def _npy(shape: str, dtype: str = "<f4", data: bytes = bytes(16)) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (_npy("(1000000000000,)"), r"says that it has \(1000000000000,\) values"),
        (_npy("(-4,)"), "says that it has"),
        (_npy("(4,)", data=bytes(12)), "16 bytes, and there are 12"),
        (_npy("(4,)", data=bytes(20)), "16 bytes, and there are 20"),
        (_npy("(2,)", "<f8"), r"w\.npy holds values of float64, and weights are fp32, .*array\.astype\('<f4'\)"),
        (_npy("(2,)", "|O"), "holds values of object"),
        (b"nonsense", "holds no saved model"),
    ],
)
def test_an_archive_is_believed_nothing_that_its_bytes_do_not_hold(tmp_path: Path, array: bytes, told: str) -> None:
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.zeros(4, np.float32)})
    with zipfile.ZipFile(tmp_path / "weights.npz", "w") as archive:
        archive.writestr("w.npy", array)
    with pytest.raises(ConfigurationError, match=told):
        saved.load(tmp_path)


def test_files_that_nobody_wrote_by_save(tmp_path: Path) -> None:
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.zeros(4, np.float32)})
    for text in ("[1]", "[" * 100_000, "{"):
        (tmp_path / "input.json").write_text(text)
        with pytest.raises(ConfigurationError, match="holds no saved model"):
            saved.load(tmp_path)
    (tmp_path / "input.json").unlink()
    packed = bytearray((tmp_path / "weights.npz").read_bytes())
    packed[packed.index(b"PK\x01\x02") + 8] |= 1  # says that it is encrypted
    (tmp_path / "weights.npz").write_bytes(packed)
    with pytest.raises(ConfigurationError, match="holds no saved model"):
        saved.load(tmp_path)


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_packed_archive_whose_bytes_are_damaged(tmp_path: Path, packing: int) -> None:
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.zeros(4, np.float32)})
    with zipfile.ZipFile(tmp_path / "weights.npz", "w", packing) as archive:
        archive.writestr("w.npy", _npy("(4,)"))
    assert saved.load(tmp_path).weights["w"].shape == (4,)
    good = (tmp_path / "weights.npz").read_bytes()
    first, last = good.index(b"w.npy") + 5, good.index(b"PK\x01\x02")
    refused = 0
    for at in range(first, last):
        for value in (0, 0xFF):
            (tmp_path / "weights.npz").write_bytes(good[:at] + bytes([value]) + good[at + 1 :])
            try:  # some bytes, such as the size of a dictionary, mean nothing here
                np.testing.assert_array_equal(saved.load(tmp_path).weights["w"], np.zeros(4, np.float32))
            except ConfigurationError as error:
                refused += "holds no saved model" in str(error)
    assert refused > (last - first) / 2


@pytest.mark.parametrize(
    "shape", ["(4,", "(4,))", "4", "('4',)", "(4,)\0", "(4.0,)", "((4,),)", "(4,) 'x'", "(1e999,)"]
)
def test_the_header_of_an_array_makes_no_sense(tmp_path: Path, shape: str) -> None:
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.zeros(4, np.float32)})
    with zipfile.ZipFile(tmp_path / "weights.npz", "w") as archive:
        archive.writestr("w.npy", _npy(shape))
    with pytest.raises(ConfigurationError, match="holds no saved model"):
        saved.load(tmp_path)


def test_an_archive_that_is_cut_off(tmp_path: Path) -> None:
    saved.save(tmp_path, {"name": "mlp"}, {"w": np.zeros(400, np.float32)})
    whole = (tmp_path / "weights.npz").read_bytes()
    for length in range(0, len(whole), 97):
        (tmp_path / "weights.npz").write_bytes(whole[:length])
        with pytest.raises(ConfigurationError, match="holds no saved model"):
            saved.load(tmp_path)


def test_a_model_takes_the_place_of_a_modules(tmp_path: Path) -> None:
    for name in saved.OF_A_MODULE:
        (tmp_path / name).write_text("{}")
    trained.perceptron().save(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(saved.OF_A_NET)
    assert repr(load_model(tmp_path)) == repr(trained.perceptron())
