"""The files behind targets: what is read, what is refused, and what downloads are made into."""

import hashlib
import io
import json
import pickle
import shutil
import zipfile
from typing import Any

import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli import data
from pathgrad._data.conversions import CONVERSIONS
from pathgrad._data.download import download
from pathgrad._data.files import File
from pathgrad._words.errors import UserError
from pathgrad.targets import reading, sources
from pathgrad.targets.sources import SOURCES

from .target_helpers import HERE, needs_data
from .test_cli_data import server  # noqa: F401 (a fixture)

# After a failure pooch leaves its connection to the garbage collector, who warns.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def zipped(contents, name="some.json"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, contents)
    return file.getvalue()


def chains(draws, names):
    """Draws as posteriordb writes them, the columns in another order."""
    order = list(reversed(range(len(names))))
    tables = [{names[k]: chain[:, k].tolist() for k in order} for chain in draws]
    return zipped(json.dumps(tables).encode())


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


DRAWS = np.random.default_rng(0).normal(size=(2, 5, 3))
PAIR = (np.arange(6.0).reshape(3, 2), np.array([1, -1, 1], np.int8))
# What a server sends, and what is kept of it.
MADE = {
    "member": (zipped(b'{"a": 1}'), b'{"a": 1}'),
    "draws": (chains(DRAWS, ["a", "b", "c"]), npy(DRAWS.astype(np.float32))),
    "labelled": (pickle.dumps(PAIR), npy(np.array([[0, 1, 1], [2, 3, -1], [4, 5, 1]], float))),
}


def known(server, conversion, contents, expected):  # noqa: F811
    server.files["/f"] = contents
    digest, columns = hashlib.sha256(expected).hexdigest(), tuple("abc")
    return File("D/made", digest, len(expected), f"{server.address}/f", "sha256", conversion, columns)


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_what_is_made_from_a_download(conversion, server, tmp_path):  # noqa: F811
    sent, expected = MADE[conversion]
    download(known(server, conversion, sent, expected), tmp_path)
    assert (tmp_path / "D" / "made").read_bytes() == expected
    assert [p.name for p in (tmp_path / "D").iterdir()] == ["made"]


def two_files():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("b", b"2")
    return file.getvalue()


@pytest.mark.parametrize(
    ("conversion", "sent", "said"),
    [
        ("member", b"<html>Please log in.</html>", "no zip archive"),
        ("member", two_files(), "got 2 files"),
        ("draws", zipped(b"[1, 2]"), "list of chains with the columns a, b, c"),
        ("draws", zipped(b"no json"), "Expecting value"),
        ("labelled", pickle.dumps(print), "only NumPy arrays are allowed"),
        ("labelled", pickle.dumps(PAIR[0]), "pair of features and labels"),
        ("labelled", pickle.dumps((PAIR[0] + 1, PAIR[1])), "has the hash"),
    ],
)
def test_other_contents_are_refused(conversion, sent, said, server, tmp_path):  # noqa: F811
    with pytest.raises(UserError, match=said) as error:
        download(known(server, conversion, sent, MADE[conversion][1]), tmp_path)
    assert server.address in str(error.value)
    assert not (tmp_path / "D").exists()


def test_missing_and_damaged_files_name_the_remedy(tmp_path, monkeypatch):
    monkeypatch.delenv("PATHGRAD_DATA", raising=False)
    with pytest.raises(UserError, match=r"data download german-credit.*seeds need no data") as error:
        pg.targets.load("credit", tmp_path)
    assert "targets/german.data-numeric" in str(error.value)
    with pytest.raises(UserError, match="data download arK"):
        pg.targets.load("arK", tmp_path)
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "pines.csv").write_text("x,y\n")
    with pytest.raises(UserError, match=r"pines.csv is damaged, .* SHA256"):
        pg.targets.load("cox-1024", tmp_path)


def test_files_that_only_look_right_are_refused(tmp_path, monkeypatch):
    """Were a hash ever wrong, the readers would still not run what is in a file."""

    def holding(contents):
        found = (File("f", "", None), tmp_path / "f", contents)
        monkeypatch.setattr(reading, "read", lambda name, part, data: found)

    objects = io.BytesIO()
    np.save(objects, np.array([print], object), allow_pickle=True)
    holding(objects.getvalue())
    with pytest.raises(UserError, match="cannot be read as a NumPy file"):
        reading.labelled("sonar", None)
    holding(b"1 2 3\n")
    with pytest.raises(UserError, match="must have 25 columns, got 3"):
        reading.credit(None)
    holding(b"1 two 3\n")
    with pytest.raises(UserError, match="no table of numbers"):
        reading.credit(None)
    holding(b'{"y": [1, 2]}')
    with pytest.raises(UserError, match="does not hold the data of eight_schools_noncentered"):
        reading.posterior("eight_schools_noncentered", None)


def test_every_target_with_data_can_be_downloaded():
    for name, source in SOURCES.items():
        assert source.addresses, name
        for files in source.files.values():
            assert files[-1].address or files[0].address
    assert sources.addresses(SOURCES["arK"].files) == SOURCES["arK"].addresses


@needs_data
def test_downloads_of_the_real_files_would_be_recognised(tmp_path):
    """Draws and features as they are sent give the bytes whose hash is known, and the same target."""
    name = "eight_schools_noncentered"
    folder = tmp_path / "posteriors" / name
    folder.mkdir(parents=True)
    (tmp_path / "targets").mkdir()
    shutil.copy(HERE / "posteriors" / name / "data.json", folder)
    with np.load(HERE / "posteriors" / name / "reference.npz") as arrays:
        sent = chains(arrays["draws"], [str(n) for n in arrays["names"]])
    [_, form] = SOURCES[name].files["reference"]
    made = CONVERSIONS["draws"](sent, form.columns)
    assert hashlib.sha256(made).hexdigest() == form.digest
    (folder / "draws.npy").write_bytes(made)
    one, other = pg.targets.load(name, HERE).reference, pg.targets.load(name, tmp_path).reference
    np.testing.assert_array_equal(one.draws, other.draws)
    np.testing.assert_array_equal(one.sd, other.sd)
    for name in ("sonar", "ionosphere"):
        with np.load(HERE / "targets" / f"{name}.npz") as arrays:
            sent = pickle.dumps((arrays["x"], arrays["y"]))
        [_, form] = SOURCES[name].files["all"]
        made = CONVERSIONS["labelled"](sent, ())
        assert hashlib.sha256(made).hexdigest() == form.digest
        (tmp_path / form.path).write_bytes(made)
        densities: list[Any] = [pg.targets.load(name, f).density for f in (HERE, tmp_path)]
        np.testing.assert_array_equal(densities[0].signed, densities[1].signed)


@needs_data
def test_the_command_knows_the_data_of_targets(capsys):
    assert data.run("pathgrad data verify", ["targets", "--data", str(HERE)]) == 0
    out = capsys.readouterr().out
    assert "sonar: targets/sonar.npz is good" in out
    assert "mnist" not in out
    assert data.run("pathgrad data list", ["--data", str(HERE)]) == 0
    assert "data of targets" in capsys.readouterr().out
