"""Damaged files of a run: reported and passed over, never a traceback, never accepted for what they were."""

import json
import random
import shutil
import zipfile
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._runs.checkpoint import CheckpointError, load, read_header
from pathgrad._train.blocks import CompiledRunner
from pathgrad.experiments.options import FlowOptions, TrainOptions
from pathgrad.experiments.toy.experiment import ToyOptions

from ..helpers import has_marks
from ..run_helpers import make_evaluation
from ..test_checkpoint import forge

TINY = ToyOptions(
    flow=FlowOptions(width=4, depth=1, solver_steps=1), training=TrainOptions(batch=4, steps=4, block=2)
)
TEXTS = ("config.toml", "metrics.jsonl", "evaluation.json")
# What a value of a text file is replaced by.
TOKENS = [
    "-1", "0", "1e999", "null", "[]", "{}", '""', "NaN", "true", "9" * 400, "[" * 3000, '{"a": ' * 3000,
    '"\\ud800"', "1.5", '"x"', "[1, [2], null]", "2026-01-01", "\x00", "'", "\ufeff", "-inf", '{"step": "x"}',
]  # fmt: skip


class Accepted(BaseException):
    """The files were accepted, and the work would begin."""


def accept(*args, **kwargs):
    raise Accepted


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs of a few steps, with what an evaluation would have written."""
    folder = tmp_path_factory.mktemp("damaged")
    run = pg.train("toy", TINY, out=folder / "run")
    make_evaluation(run.directory, step=4, arrays=False)
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(200, 2)), "log_weight": rng.normal(size=200)}
    arrays |= {"grid": np.zeros((2, 9)), "grid_log_prob": rng.normal(size=(9, 9))}
    np.savez_compressed(run.directory.output("evaluation.npz"), allow_pickle=False, **arrays)
    shutil.copytree(folder / "run", folder / "good")
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(trained, tmp_path / "runs"))
    monkeypatch.setattr(CompiledRunner, "prepare", accept)
    monkeypatch.setattr(pg, "weighted_chunks", accept)
    return Path.cwd()


def damaged(whole: bytes, rng: random.Random, *, is_text: bool) -> bytes:
    """Return the bytes of a file with some damage."""
    a, b = sorted(rng.randrange(len(whole) + 1) for _ in range(2))
    kind = rng.choice([*["token" if is_text else "flip"] * 4, "flip", "cut", "repeat", "junk", "end"])
    match kind:
        case "token":
            places = [i for i, x in enumerate(whole) if x in b"=:"]
            start = rng.choice(places) + 1
            ends = [whole.find(x, start) for x in (b",", b"\n", b"}")]
            end = min((i for i in ends if i >= 0), default=len(whole))
            return whole[:start] + b" " + rng.choice(TOKENS).encode("utf-8", "surrogatepass") + whole[end:]
        case "flip":
            broken = bytearray(whole)
            for _ in range(rng.choice((1, 1, 20))):
                broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
            return bytes(broken)
        case "cut":
            return whole[:a] + whole[b:]
        case "repeat":
            return whole[:b] + whole[a:]
        case "junk":
            return whole[:a] + rng.randbytes(rng.choice((1, 8, 300))) + whole[a:]
    return whole[:a]


def run_command(words: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """Return the exit code, or `Accepted`, and what was said; there must be one line of an error."""
    capsys.readouterr()
    try:
        code: object = main(words.split())
    except Accepted:
        code = Accepted
    out, err = capsys.readouterr()
    assert code in (0, 2, Accepted), words
    assert "Traceback" not in err
    assert not has_marks(out + err)
    if code == 2:
        assert len([line for line in err.splitlines() if line.startswith("pathgrad: ")]) == 1, err
    return code, out, err


def attack_texts(seed: int, count: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage text files and arrays, and let every command read them."""
    rng, run = random.Random(seed), folder / "run"
    whole = {name: (run / name).read_bytes() for name in (*TEXTS, "evaluation.npz")}
    for i in range(count):
        name = rng.choice(list(whole))
        broken = damaged(whole[name], rng, is_text=name in TEXTS)
        (run / name).write_bytes(broken)
        try:
            # The other run is always shown.
            code, out, _ = run_command("compare run good", capsys)
            assert code == 0
            assert " good " in out
            if i % 12 == 0:
                assert run_command("report run good --out page.html", capsys)[0] == 0
            if i % 6 == 0:
                run_command(f"train toy --out run --resume --steps {rng.choice((4, 6))}", capsys)
                run_command("evaluate run", capsys)
            if name == "evaluation.npz":
                assert_arrays_are_whole(run, whole[name])
        except BaseException:
            print(f"damage {i} of seed {seed} to {name}: {broken[:2000]!r}")
            raise
        for name, content in whole.items():
            (run / name).write_bytes(content)


def assert_arrays_are_whole(run: Path, whole: bytes) -> None:
    """Arrays that are read are those that were written: a checksum in the file guards each."""
    (run / "whole.npz").write_bytes(whole)
    with np.load(run / "whole.npz") as expected:
        for name, array in pg.Run.open(run).arrays.items():
            if name in expected.files:
                np.testing.assert_array_equal(array, expected[name])


def attack_checkpoints(seed: int, count: int, run: Path) -> None:
    """Damage a checkpoint: it is refused, or its arrays are as they were."""
    rng, path = random.Random(seed), max(run.glob("checkpoints/*.safetensors"))
    whole, like = path.read_bytes(), state_of(run)
    expected = jax.tree.leaves(eqx.filter(load(path, like), eqx.is_array))
    for _ in range(count):
        broken = damaged(whole, rng, is_text=False)
        path.write_bytes(broken)
        if broken == whole:
            continue
        with pytest.raises(CheckpointError):
            load(path, like)
    path.write_bytes(whole)
    assert len(expected) > 5


def state_of(run: Path):
    training = pg.Run.open(run).problem().training
    return eqx.filter_eval_shape(training.trainer(key=jax.random.key(0)).init, training.model)


def test_damaged_texts_and_arrays(folder, capsys):
    attack_texts(0, 36, folder, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_many_damaged_texts_and_arrays(seed, folder, capsys):
    attack_texts(seed, 500, folder, capsys)


def test_damaged_checkpoints(folder):
    attack_checkpoints(0, 100, folder / "run")


@pytest.mark.slow
def test_many_damaged_checkpoints(folder):
    attack_checkpoints(1, 3000, folder / "run")


FORGED = {
    "no seconds": {"meta": "{}"},
    "a list": {"meta": "[]"},
    "rows of nothing": {"meta": '{"seconds": 1.0, "rows": [3, {}]}'},
    "seconds of text": {"meta": '{"seconds": "long"}'},
    "no format": {"format": None},
    "another format": {"format": "4", "library": "9.9"},
    "nested": {"meta": "[" * 50_000},
}


@pytest.mark.parametrize("name", FORGED)
def test_headers_that_no_version_writes(name, folder, capsys):
    path = max((folder / "run").glob("checkpoints/*.safetensors"))
    forge(path, metadata=FORGED[name])
    before = path.read_bytes()
    code, _, err = run_command("train toy --out run --resume --steps 6", capsys)
    assert code == 2
    assert path.name in err
    assert path.read_bytes() == before


def test_a_later_version_may_add_fields(folder, capsys):
    path = max((folder / "run").glob("checkpoints/*.safetensors"))
    forge(path, metadata={"meta": json.dumps(read_header(path).meta | {"colour": "red"}), "more": "of it"})
    assert run_command("train toy --out run --resume --steps 6", capsys)[0] is Accepted


def test_arrays_that_claim_to_be_huge_are_not_read(folder, capsys):
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }"
    with zipfile.ZipFile(folder / "run" / "evaluation.npz", "w") as archive:
        archive.writestr("x.npy", header.ljust(127) + b"\n" + bytes(80))
    assert pg.Run.open(folder / "run").arrays == {}
    assert "claims to hold 8e+04 GB" in run_command("compare run good", capsys)[1]
