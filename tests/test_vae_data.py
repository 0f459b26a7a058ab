"""The image data sets: formats and splits on files made here, and the real files where there are any."""

import functools
import gzip
import hashlib
import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from pathgrad._data.files import File, data_folder
from pathgrad._words.errors import UserError
from pathgrad.experiments.vae.data import formats
from pathgrad.experiments.vae.data.datasets import load
from pathgrad.experiments.vae.data.sources import SOURCES, resolve

from . import vae_helpers
from .vae_helpers import amat

HERE = Path("made")


def matlab(**variables):
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=True)
    return file.getvalue()


def python2_pickle(array):
    """Write a list with an array of bytes as Python 2 and the NumPy of its time did, by protocol 0."""
    contents = "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in "'\\" else f"\\x{b:02x}" for b in array.tobytes()
    )
    rows, columns = array.shape
    return (
        "(lp0\ncnumpy.core.multiarray\n_reconstruct\np1\n(cnumpy\nndarray\np2\n(I0\ntp3\nS'b'\np4\ntp5\nRp6\n"
        f"(I1\n(I{rows}\nI{columns}\ntp7\ncnumpy\ndtype\np8\n(S'u1'\np9\nI0\nI1\ntp10\nRp11\n"
        "(I3\nS'|'\np12\nNNNI-1\nI-1\nI0\ntp13\nbI00\n"
        f"S'{contents}'\np14\ntp15\nba."
    ).encode("ascii")


def random_bits(*shape, seed=1):
    return np.random.default_rng(seed).integers(0, 2, shape, dtype=np.uint8)


@pytest.fixture
def publish(monkeypatch, tmp_path):
    """Write files, and make them those that a data set is known to consist of."""
    return functools.partial(vae_helpers.publish, monkeypatch, tmp_path)


@pytest.mark.parametrize("ending", [".amat", ".amat.gz"])
def test_text_of_digits(ending):
    images = random_bits(7, 6)
    contents = amat(images)
    contents = gzip.compress(contents) if ending.endswith("gz") else contents
    read = formats.amat(contents, Path("a" + ending), 6)
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, images)


BAD_TEXT = {
    "a two": (b"0 1\n0 2\n", "line 2"),
    "a letter": (b"0 1\nx 0\n", "line 2"),
    "below zero": (b"0 /\n0 1\n", "line 1"),
    "a comma": (b"0,1\n0 1\n", "line 1"),
    "no end of line": (b"0 1\n0 1 ", "line 2"),
    "a shorter line": (b"0 1\n0\n", "6 bytes"),
    "nothing": (b"", "0 bytes"),
}


@pytest.mark.parametrize(("contents", "said"), BAD_TEXT.values(), ids=BAD_TEXT)
def test_other_text_is_refused(contents, said):
    with pytest.raises(UserError, match=said):
        formats.amat(contents, Path("a.amat"), 2)


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b"0 1\n", lambda b: b[:20] + b"?" * 9])
def test_a_damaged_archive_is_refused(damage):
    packed = gzip.compress(amat(random_bits(50, 6)))
    with pytest.raises(UserError, match=r"a\.amat\.gz cannot be unpacked"):
        formats.amat(damage(packed), Path("a.amat.gz"), 6)


def test_matlab_variables_and_what_is_wrong_with_them():
    one, two = random_bits(3, 4), np.linspace(0, 1, 6).reshape(2, 3)
    contents = matlab(one=one, two=two, word="no number")
    read = formats.matlab(contents, HERE, {"two": (2, 3), "one": (3, 4)})
    np.testing.assert_array_equal(read[0], two)
    np.testing.assert_array_equal(read[1], one)
    for shapes, said in [
        ({"three": (3, 4)}, "no variable `three`"),
        ({"one": (4, 3)}, r"`one` must be .* \(4, 3\), got uint8 of shape \(3, 4\)"),
        ({"word": (1, 1)}, "`word` must be an array of numbers"),
    ]:
        with pytest.raises(UserError, match=said):
            formats.matlab(contents, HERE, shapes)
    for wrong in (b"", b"no such file", contents[:150], contents[:-150]):
        with pytest.raises(UserError, match="made cannot be read as a MATLAB file"):
            formats.matlab(wrong, HERE, {"one": (3, 4), "two": (2, 3)})


EVERY_BYTE = np.arange(256, dtype=np.uint8).reshape(32, 8)


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param(python2_pickle(EVERY_BYTE), id="Python 2"),
        pytest.param(pickle.dumps([EVERY_BYTE], 3), id="protocol 3"),
        pytest.param(pickle.dumps(EVERY_BYTE, 4), id="protocol 4, no list"),
    ],
)
def test_pickled_arrays(contents):
    np.testing.assert_array_equal(formats.pickled_bytes(contents, HERE, (32, 8)), EVERY_BYTE)


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize(
    ("function", "argument", "name"),
    [
        pytest.param(os.system, "touch {}", "posix.system|nt.system", id="system"),
        pytest.param(eval, "open('{}', 'w')", "builtins.eval", id="eval"),
        pytest.param(np.load, "{}", "numpy.load", id="another function of NumPy"),
    ],
)
def test_a_pickle_cannot_call_functions(function, argument, name, protocol, tmp_path):
    trace = tmp_path / "called"
    contents = pickle.dumps([EVERY_BYTE, Call(function, argument.format(trace))], protocol)
    if protocol < 3:  # these write arrays by way of another function, which is refused before
        contents = pickle.dumps(Call(function, argument.format(trace)), protocol)
        name += "|__builtin__.eval"  # its name in Python 2
    with pytest.raises(UserError, match=rf"made cannot be unpickled: it asks for `({name})`"):
        formats.pickled_bytes(contents, HERE, (32, 8))
    assert not trace.exists()


OTHER_PICKLES = {
    "a number": (pickle.dumps(3), "got int"),
    "two arrays": (pickle.dumps([EVERY_BYTE, EVERY_BYTE], 4), "got list"),
    "floats": (pickle.dumps(EVERY_BYTE / 255.0, 4), r"got float64 of shape \(32, 8\)"),
    "objects": (pickle.dumps(EVERY_BYTE.astype(object), 4), r"got object of shape \(32, 8\)"),
    "turned": (pickle.dumps(EVERY_BYTE.T.copy(), 4), r"got uint8 of shape \(8, 32\)"),
    "cut off": (pickle.dumps(EVERY_BYTE, 4)[:-9], "cannot be unpickled"),
    "text": (b"no pickle", "cannot be unpickled"),
    "an array by protocol 2": (pickle.dumps(EVERY_BYTE, 2), "asks for `_codecs.encode`"),
}


@pytest.mark.parametrize(("contents", "said"), OTHER_PICKLES.values(), ids=OTHER_PICKLES)
def test_other_pickles_are_refused(contents, said):
    with pytest.raises(UserError, match=said):
        formats.pickled_bytes(contents, HERE, (32, 8))


def test_mnist_is_taken_as_it_is(publish):
    parts = [random_bits(n, 6, seed=n) for n in (5, 3, 2)]
    texts = [amat(part) for part in parts]
    contents = {
        "train": ("M/a.amat.gz", gzip.compress(texts[0])),
        "validation": ("M/b.amat", texts[1]),
        "test": ("M/c.amat", texts[2]),
    }
    data = load("mnist", publish("mnist", contents, (5, 3, 2), (3, 2)))
    for found, made in zip((data.train, data.validation, data.test), parts, strict=True):
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, made.reshape(-1, 3, 2))
    assert (data.name, data.levels, data.binarise_each_batch) == ("mnist", 2, False)
    with pytest.raises(UserError, match=r"c\.amat must have 4 lines, got 2"):
        load("mnist", publish("mnist", contents, (5, 3, 4), (3, 2)))


def test_of_two_forms_the_first_is_read(publish):
    parts = [random_bits(n, 6, seed=n) for n in (5, 3, 2)]
    contents = {str(len(part)): (f"M/{len(part)}.amat", amat(part)) for part in parts}
    folder = publish("mnist", contents, (5, 3, 2), (3, 2))
    (first,) = SOURCES["mnist"].files["5"]
    packed = gzip.compress(amat(parts[0]))
    second = File("M/5.amat.gz", hashlib.sha256(packed).hexdigest())
    SOURCES["mnist"].files["5"] = (first, second)
    (folder / second.path).write_bytes(b"never looked at")
    np.testing.assert_array_equal(load("mnist", folder).train.reshape(5, 6), parts[0])
    (folder / first.path).unlink()
    with pytest.raises(UserError, match=r"5\.amat\.gz is damaged"):
        load("mnist", folder)
    (folder / second.path).write_bytes(packed)
    np.testing.assert_array_equal(load("mnist", folder).train.reshape(5, 6), parts[0])


def test_caltech_is_turned_upright_and_inverted(publish):
    upright = [random_bits(n, 3, 2, seed=n) for n in (5, 3, 2)]
    # As MATLAB lists the pixels, and with the object as 0.
    rows = [1 - np.stack([image.ravel(order="F") for image in part]) for part in upright]
    names = ("train_data", "val_data", "test_data")
    made = dict(zip(names, rows, strict=True))
    folder = publish("caltech", {"all": ("C/s.mat", matlab(**made))}, (5, 3, 2), (3, 2))
    data = load("caltech", folder)
    for found, image in zip((data.train, data.validation, data.test), upright, strict=True):
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, image)
    assert not data.binarise_each_batch
    made["val_data"] = made["val_data"] + 1
    publish("caltech", {"all": ("C/s.mat", matlab(**made))}, (5, 3, 2), (3, 2))
    with pytest.raises(UserError, match="must be 0 or 1"):
        load("caltech", folder)


def omniglot_file(seed=0):
    grey = np.random.default_rng(seed).uniform(size=(9, 16)).round(2)
    grey[grey < 0.4] = 0.0  # as on most paper
    grey[grey > 0.9] = 1.0
    return grey[:, :12], grey[:, 12:]


def published_recipe(data, testdata, seed, train):
    """Split and binarise by the global generator, as published code does."""
    before = np.random.get_state()
    try:
        np.random.seed(seed)
        upright = [
            x.T.astype(np.float32).reshape(-1, 3, 3).reshape((-1, 9), order="F") for x in (data, testdata)
        ]
        np.random.shuffle(upright[0])
        np.random.seed(777)
        validation = np.random.binomial(1, upright[0][train:])
        return upright[0][:train], validation, np.random.binomial(1, upright[1])
    finally:
        np.random.set_state(before)


def test_omniglot_is_split_as_in_published_work(publish):
    data, testdata = omniglot_file()
    contents = {"all": ("O/chardata.mat", matlab(data=data, testdata=testdata))}
    folder = publish("omniglot", contents, (9, 3, 4), (3, 3), algorithm="md5")
    before = np.random.get_state()[1].copy()  # pyright: ignore
    tests = []
    for seed in (123, 5):
        found = load("omniglot", folder, split_seed=seed)
        expected = published_recipe(data, testdata, seed, 9)
        for got, part in zip((found.train, found.validation, found.test), expected, strict=True):
            np.testing.assert_array_equal(got.reshape(-1, 9), part)
        assert (found.train.dtype, found.test.dtype) == (np.float32, np.uint8)
        assert (found.name, found.levels, found.binarise_each_batch) == ("omniglot", 2, True)
        tests.append(found.test)
    np.testing.assert_array_equal(*tests)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # pyright: ignore
    data = data.copy()
    data[0, 0] = np.nan
    contents = {"all": ("O/chardata.mat", matlab(data=data, testdata=testdata))}
    publish("omniglot", contents, (9, 3, 4), (3, 3))
    with pytest.raises(UserError, match="numbers from 0 to 1"):
        load("omniglot", folder)


def test_the_rebuilt_omniglot_stands_in_under_its_own_name(publish):
    data, testdata = omniglot_file()
    contents = {"all": ("O/chardata.mat", matlab(data=data, testdata=testdata))}
    folder = publish("omniglot", contents, (9, 3, 4), (3, 3))
    data, testdata = omniglot_file(seed=1)
    contents = {"all": ("O/rebuilt.mat", matlab(data=data, testdata=testdata))}
    publish("omniglot-rebuilt", contents, (9, 3, 4), (3, 3))
    assert load("omniglot", folder).name == resolve("omniglot", folder) == "omniglot"
    rebuilt = load("omniglot-rebuilt", folder)
    assert rebuilt.name == "omniglot-rebuilt"
    original = folder / "O" / "chardata.mat"
    kept = original.read_bytes()
    original.write_bytes(kept[:-1])  # a damaged one is a mistake, not a reason to take another
    with pytest.raises(UserError, match=r"chardata\.mat is damaged"):
        load("omniglot", folder)
    original.unlink()
    assert resolve("omniglot", folder) == "omniglot-rebuilt"
    with pytest.raises(UserError, match=r"omniglot needs O/chardata\.mat"):
        load("omniglot", folder)  # what has begun with the one does not go on with the other
    (folder / "O" / "rebuilt.mat").unlink()
    with pytest.raises(UserError, match=r"omniglot needs O/chardata\.mat"):
        load("omniglot", folder)
    with pytest.raises(UserError, match=r"needs O/rebuilt\.mat.*cannot be downloaded"):
        load("omniglot-rebuilt", folder)


def test_freyfaces_are_shuffled_then_cut(publish):
    images = np.random.default_rng(3).integers(0, 256, (10, 6), dtype=np.uint8)
    contents = {"all": ("F/f.pkl", python2_pickle(images))}
    folder = publish("freyfaces", contents, (6, 3, 1), (3, 2))
    first, second = (load("freyfaces", folder, split_seed=seed) for seed in (123, 321))
    for data, seed in ((first, 123), (second, 321)):
        order = np.random.RandomState(seed).permutation(10)
        together = np.concatenate([data.train, data.validation, data.test])
        np.testing.assert_array_equal(together, images[order].reshape(-1, 3, 2))
        assert [len(p) for p in (data.train, data.validation, data.test)] == [6, 3, 1]
    assert first.levels == 256
    assert not np.array_equal(first.train, second.train)


def test_what_is_missing_or_damaged_is_explained(tmp_path):
    with pytest.raises(UserError) as missing:
        load("freyfaces", tmp_path)
    for said in (
        "Freyfaces/freyfaces.pkl", str(tmp_path), "`data`", "PATHGRAD_DATA",
        "`pathgrad data download freyfaces`", "https://github.com/riannevdberg/",
    ):  # fmt: skip
        assert said in str(missing.value)
    with pytest.raises(UserError, match=r"binarized_mnist_train\.amat or .*\.amat\.gz"):
        load("mnist", tmp_path)
    path = tmp_path / "Freyfaces" / "freyfaces.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps([EVERY_BYTE], 4))
    with pytest.raises(UserError) as damaged:
        load("freyfaces", tmp_path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    for said in (str(path), found[:12], "3b69410c6a5f", "`pathgrad data download freyfaces`"):
        assert said in str(damaged.value)
    with pytest.raises(UserError, match="no data set 'cifar'"):
        load("cifar", tmp_path)
    with pytest.raises(UserError, match="got -1"):
        load("freyfaces", tmp_path, split_seed=-1)


def test_folder_of_the_data(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("PATHGRAD_DATA", raising=False)
    assert data_folder(None) == tmp_path / ".cache" / "pathgrad"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert data_folder(None) == tmp_path / ".cache" / "pathgrad"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder(None) == tmp_path / "cache" / "pathgrad"
    monkeypatch.setenv("PATHGRAD_DATA", "~/images")
    assert data_folder(None) == tmp_path / "images"
    assert data_folder("given") == Path("given")


# From here on the real files.


@pytest.fixture(scope="module")
def real():
    if not os.environ.get("PATHGRAD_DATA"):
        pytest.skip("PATHGRAD_DATA names no folder with the real files")
    loaded = {}

    def get(name, seed=123):
        if (name, seed) not in loaded:
            files = SOURCES[name].files.values()
            folder = data_folder(None)
            if not all(any((folder / f.path).is_file() for f in forms) for forms in files):
                pytest.skip(f"{name} is not in {folder}")
            loaded[name, seed] = load(name, folder, split_seed=seed)
        return loaded[name, seed]

    return get


def sha(images):
    return hashlib.sha256(images.tobytes()).hexdigest()


@pytest.mark.parametrize("name", SOURCES)
def test_real_parts_are_as_large_as_announced(name, real):
    data, source = real(name), SOURCES[name]
    parts = (data.train, data.validation, data.test)
    assert tuple(len(p) for p in parts) == source.images
    assert all(p.shape[1:] == source.pixels for p in parts)
    kinds = [np.float32 if data.binarise_each_batch else np.uint8, np.uint8, np.uint8]
    assert [p.dtype for p in parts] == kinds
    assert all(p.max() < data.levels for p in parts)
    assert data.binarise_each_batch == name.startswith("omniglot")


def test_real_mnist(real):
    data = real("mnist")
    ones = [int(p.sum()) for p in (data.train, data.validation, data.test)]
    assert ones == [5_118_041, 1_028_036, 1_038_896]
    # The test file begins with its zeros: rings, whose middle is empty. Its ones at about 1,000 to 2,100 are
    # upright strokes: higher than wide, as they would not be on their side.
    zeros, strokes = data.test[:900].mean(axis=0), data.test[1100:2000]
    assert zeros[13:15, 13:15].max() < 0.1 < 0.5 < zeros.max()
    height, width = (strokes.any(axis=axis).sum(axis=1).mean() for axis in (2, 1))
    assert height > 1.5 * width


def test_real_omniglot_rebuilt(real):
    data = real("omniglot-rebuilt")
    assert int(data.test.sum()) == 518_326
    assert sha(data.test) == "617d98f3186b328e8e123a4ae11a827270a3a79e6eedd830d15d7c7a3f866837"
    grey = np.unique(data.train) * 255
    np.testing.assert_allclose(grey, np.round(grey), atol=1e-4)


def test_real_caltech(real):
    data = real("caltech")
    # Objects fill the middle and leave the edges free: so they are 1.
    mean = data.train.mean(axis=0)
    assert mean[10:18, 10:18].min() > 0.6
    assert mean[[0, -1]].mean() < 0.3
    # An umbrella that stands upright is wide above and thin below.
    file = data_folder(None) / SOURCES["caltech"].files["all"][0].path
    variables = scipy.io.loadmat(file)
    names = [name.item() for name in variables["classnames"][0]]
    umbrellas = data.test[variables["test_labels"].ravel() == names.index("umbrella") + 1]
    assert len(umbrellas) > 10
    assert umbrellas[:, :14].mean() > 2 * umbrellas[:, 14:].mean()


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (123, ["84def2cfe086795d", "4adc1b668ded6099", "330344e6421f91af"]),
        (321, ["e6349d3ccd309f87", "49b5e0f6ebdfc665", "5bc9c6ee64eae221"]),
        (231, ["ffd1f5b95fd333d7", "5e5b1fa2cb721514", "0f6c2bb7358c3a23"]),
    ],
)
def test_real_freyfaces(seed, expected, real):
    data = real("freyfaces", seed)
    assert [sha(p)[:16] for p in (data.train, data.validation, data.test)] == expected
