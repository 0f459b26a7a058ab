import errno
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from pathgrad._train import checkpoint, rundir
from pathgrad._train.checkpoint import CheckpointError, load, read_header, save
from pathgrad._train.checkpoint_folder import CheckpointFolder

REFUSED = r"is damaged|is not a pathgrad checkpoint"


def make_state(seed: int):
    """Build what a training keeps, and one leaf of every kind that could go wrong."""
    model = eqx.nn.MLP(3, 2, 5, 2, dtype=jnp.float32, key=jr.key(seed))
    optimiser = optax.adam(1e-3).init(eqx.filter(model, eqx.is_inexact_array))
    # Two NaNs with payloads of their own, and a negative zero: equal values are not equal bits.
    odd_bits = struct.pack("<3I", 0x7FC00001 + seed, 0xFFC0BEEF, 0x80000000)
    return {
        "model": model,
        "optimiser": optimiser,
        "key": jr.key(seed),
        "keys": jr.split(jr.key(seed), 3),
        "step": jnp.asarray(seed, dtype=jnp.int32),
        "half": jr.normal(jr.key(seed), (3, 2)).astype(jnp.bfloat16),
        "odd": jnp.asarray(np.frombuffer(odd_bits, np.float32)),
        "empty": jnp.zeros((0, 4)),
        "flags": jnp.asarray([True, False, seed > 0]),
        "complex": jnp.asarray(seed + 1j),
        "host": np.arange(6, dtype=np.int64).reshape(2, 3).T + seed,
        "host scalar": np.float32(seed + 0.1),
        "rate": 0.1 * seed,
        "count": seed,
        "nothing": None,
    }


def bits(leaf) -> tuple:
    """Describe an array leaf by all that a computation can see of it."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return str(jr.key_impl(leaf)), leaf.shape, np.asarray(jr.key_data(leaf)).tobytes()
    array = np.asarray(leaf)
    return str(array.dtype), array.shape, array.tobytes()


def array_bits(tree) -> list[tuple]:
    leaves = jax.tree.leaves(tree)
    return [bits(x) for x in leaves if eqx.is_array_like(x) and not isinstance(x, int | float)]


@pytest.fixture(scope="module")
def state():
    return make_state(7)


@pytest.fixture(scope="module")
def other_state():
    return make_state(2)


@pytest.fixture(scope="module")
def saved(state, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "one.ckpt"
    save(path, state, step=1234, meta={"loss": 0.1, "name": "föö", "nested": {"list": [1, None]}})
    return path


@pytest.fixture
def copy(saved, tmp_path) -> Path:
    return Path(shutil.copy(saved, tmp_path / "copy.ckpt"))


def test_arrays_come_back_to_the_bit(state, other_state, saved):
    assert array_bits(state) != array_bits(other_state)
    loaded = load(saved, other_state)
    assert array_bits(loaded) == array_bits(state)
    assert [*map(type, jax.tree.leaves(loaded))] == [*map(type, jax.tree.leaves(state))]


def test_configuration_comes_from_like(state, other_state, saved):
    loaded = load(saved, other_state)
    assert (loaded["rate"], loaded["count"], loaded["nothing"]) == (0.2, 2, None)
    assert loaded["model"].activation is other_state["model"].activation
    x = jnp.asarray([0.3, -1.0, 2.0], dtype=jnp.float32)
    assert bits(loaded["model"](x)) == bits(state["model"](x))


def test_payload_is_the_plain_bytes_of_the_leaves(state, saved):
    expected = b"".join(data for _, _, data in array_bits(state))
    assert saved.read_bytes().endswith(b"\n" + expected)
    assert read_header(saved).payload_bytes == len(expected)


def test_loaded_keys_draw_the_same_numbers(tmp_path):
    key = jr.key(3, impl="rbg")
    save(tmp_path / "key.ckpt", {"key": key}, step=0, meta={})
    like = jax.eval_shape(lambda: {"key": jr.key(0, impl="rbg")})
    loaded = load(tmp_path / "key.ckpt", like)["key"]
    assert bits(jr.bits(loaded, (4,))) == bits(jr.bits(key, (4,)))
    with pytest.raises(CheckpointError, match=r"key<rbg>\[\] in the file and key<threefry2x32>"):
        load(tmp_path / "key.ckpt", {"key": jr.key(0)})


def test_like_may_be_shapes_only(state, saved):
    arrays, rest = eqx.partition(state, eqx.is_array)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
    assert array_bits(load(saved, eqx.combine(shapes, rest))) == array_bits(state)


def test_arrays_return_to_committed_devices(tmp_path):
    device = jax.devices()[0]
    tree = {"pinned": jax.device_put(jnp.ones(2), device), "free": jnp.ones(2)}
    save(tmp_path / "a.ckpt", tree, step=0, meta={})
    loaded = load(tmp_path / "a.ckpt", tree)
    assert (loaded["pinned"].committed, loaded["free"].committed) == (True, False)
    sharding = jax.sharding.SingleDeviceSharding(device)
    shape = jax.ShapeDtypeStruct((2,), tree["free"].dtype, sharding=sharding)
    assert load(tmp_path / "a.ckpt", tree | {"free": shape})["free"].committed


def test_header_describes_the_file(saved):
    header = read_header(saved)
    assert (header.format, header.step) == (checkpoint.FORMAT, 1234)
    assert header.meta == {"loss": 0.1, "name": "föö", "nested": {"list": [1, None]}}
    assert header.leaves["['model'].layers[0].weight"] == "float32[5,3]"
    assert header.leaves["['half']"] == "bfloat16[3,2]"
    assert header.leaves["['empty']"] == "float64[0,4]"
    assert header.leaves["['keys']"] == "key<threefry2x32>[3]"
    assert "['rate']" not in header.leaves


@pytest.mark.parametrize("leaf", [np.asarray("text"), np.asarray([None]), np.ones(2, ">f8")])
def test_leaves_that_cannot_be_stored_are_named(leaf, tmp_path):
    with pytest.raises(CheckpointError, match=r"leaf `\['bad'\]`"):
        save(tmp_path / "a.ckpt", {"good": jnp.ones(2), "bad": leaf}, step=0, meta={})
    assert not list(tmp_path.iterdir())


def test_a_truncated_file_is_refused(copy, state):
    whole = copy.read_bytes()
    start = len(whole) - read_header(copy).payload_bytes
    lengths = {0, 1, 10, 20, 83, 84, 85, 86, start // 2, start - 1, start, start + 1}
    lengths |= set(range(start, len(whole), 97)) | {len(whole) - 1}
    for length in sorted(lengths):
        copy.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=REFUSED):
            load(copy, state)
        assert copy.read_bytes() == whole[:length]
    copy.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="instead of"):
        load(copy, state)


def test_a_flipped_bit_is_refused_wherever_it_is(copy, state):
    whole = copy.read_bytes()
    start = len(whole) - read_header(copy).payload_bytes
    places = {*range(0, start, 61), *range(start, len(whole), 53), 84, start - 1, len(whole) - 1}
    for place in sorted(places):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        copy.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=REFUSED):
            load(copy, state)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n" + bytes(100), b"", b"some text\n" * 9])
def test_a_foreign_file_is_refused(content, tmp_path, state):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    for read in (lambda: load(path, state), lambda: read_header(path)):
        with pytest.raises(CheckpointError, match="foreign is not a pathgrad checkpoint"):
            read()
    assert path.read_bytes() == content


def test_wrong_arguments_are_reported(tmp_path, state):
    with pytest.raises(ValueError, match="`keep` must be at least 1"):
        CheckpointFolder(tmp_path, keep=0)
    with pytest.raises(ValueError, match="`step` counts from 0"):
        CheckpointFolder(tmp_path).save({}, step=-1, meta={})
    with pytest.raises(CheckpointError, match="Is a directory"):
        load(tmp_path, state)
    with pytest.raises(CheckpointError, match="No such file"):
        read_header(tmp_path / "missing.ckpt")


def test_another_format_is_refused_and_not_called_damaged(copy, state, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", 3)
    copy.rename(copy.parent / "step-000000001.ckpt")
    with pytest.raises(
        CheckpointError, match=r"format 2, written by .* reads format 3.*version\.$"
    ):
        CheckpointFolder(copy.parent).load_newest(state)


def test_another_model_is_refused_by_name(saved, state):
    wider = eqx.tree_at(lambda s: s["model"].layers[0].weight, state, jnp.ones((6, 3)))
    with pytest.raises(CheckpointError, match=r"different model or configuration.*; and 3 more\."):
        load(saved, wider | {"odd": 1, "half": 1, "key": 1, "flags": 1, "complex": 1})
    for message, like in {
        "`['model'].layers[0].weight` is float32[5,3] in the file and float64[6,3] here": wider,
        "`['step']` is int32[] in the file and absent here": state | {"step": 7},
        "`['step']` is int32[] in the file and float32[] here": state | {"step": np.float32(7)},
        "`['new']` is absent in the file and float64[1] here": state | {"new": jnp.ones(1)},
    }.items():
        with pytest.raises(CheckpointError, match=re.escape(message)):
            load(saved, like)


def test_64_bits_need_64_bits(saved, state):
    with jax.enable_x64(False), pytest.raises(CheckpointError, match="jax_enable_x64"):
        load(saved, state)


@pytest.fixture
def folder(tmp_path, state, other_state) -> CheckpointFolder:
    folder = CheckpointFolder(tmp_path / "run" / "checkpoints")
    folder.save(other_state, step=100, meta={})
    folder.save(state, step=200, meta={})
    return folder


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.folder.iterdir())


def contents(folder: CheckpointFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.folder.iterdir()}


@pytest.mark.parametrize("step", [200, 300])
@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, None])
def test_a_failed_save_changes_nothing(code, call, step, folder, state, monkeypatch):
    def fail(*_):
        raise OSError(code, os.strerror(code)) if code else KeyboardInterrupt

    before = contents(folder)
    monkeypatch.setattr(rundir.os, call, fail)
    why = f"step-000000{step}.ckpt: {os.strerror(code)}. Older.* untouched" if code else None
    with pytest.raises(CheckpointError if code else KeyboardInterrupt, match=why):
        folder.save({"x": jnp.ones(2)}, step=step, meta={})
    monkeypatch.undo()
    assert contents(folder) == before
    assert array_bits(folder.load_newest(state)) == array_bits(state)


def test_a_folder_in_the_way_is_reported(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(CheckpointError, match="Could not write"):
        CheckpointFolder(tmp_path / "file").save({"x": jnp.ones(2)}, step=0, meta={})
    (tmp_path / "a.ckpt").mkdir()
    with pytest.raises(CheckpointError, match="Is a directory"):
        save(tmp_path / "a.ckpt", {"x": jnp.ones(2)}, step=0, meta={})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ckpt", "file"]


def test_the_newest_two_are_kept(folder, state):
    assert names(folder) == ["step-000000100.ckpt", "step-000000200.ckpt"]
    path = folder.save({"x": jnp.ones(2)}, step=1_000_000_000, meta={})
    assert names(folder) == ["step-000000200.ckpt", "step-1000000000.ckpt"]
    assert path == folder.newest() == folder.folder / "step-1000000000.ckpt"
    folder.save({"x": jnp.ones(2)}, step=150, meta={})
    assert folder.newest() == path
    assert len(names(folder)) == 3
    assert array_bits(load(folder.paths()[1], state)) == array_bits(state)


def test_other_files_are_never_removed(folder):
    mine = ["notes.txt", "step-1.ckpt", "step-000000001.ckpt.bak", ".step-notes.tmp", "x.tmp"]
    for name in mine:
        (folder.folder / name).write_text("precious")
    for step in (300, 400, 500):
        folder.save({"x": jnp.ones(2)}, step=step, meta={})
    assert names(folder) == sorted([*mine, "step-000000400.ckpt", "step-000000500.ckpt"])
    folder.clear()
    assert names(folder) == sorted(mine)


def test_an_empty_folder_has_nothing_to_load(folder, state):
    folder.clear()
    assert not folder.folder.exists()
    assert folder.newest() is None
    with pytest.raises(CheckpointError, match=r"There is no checkpoint in .*checkpoints"):
        folder.load_newest(state)


KILLED_WHILE_SAVING = """
import os, signal, sys
from pathlib import Path
from pathgrad._train.files import write_atomically

def chunks():
    yield b"half of a checkpoint" * 1000
    os.kill(os.getpid(), signal.SIGKILL)

write_atomically(Path(sys.argv[1]), chunks())
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.parametrize("step", [200, 300])
def test_a_process_killed_while_saving_harms_nothing(step, folder, state):
    before = contents(folder)
    environment = os.environ | {"PYTHONPATH": str(Path(rundir.__file__).parents[2])}
    command = [sys.executable, "-c", KILLED_WHILE_SAVING, folder.folder / f"step-{step:09d}.ckpt"]
    done = subprocess.run(command, env=environment)
    assert done.returncode < 0
    assert len(names(folder)) == 3
    assert before.items() <= contents(folder).items()  # a temporary file has been added, no more
    assert array_bits(folder.load_newest(state)) == array_bits(state)
    folder.save(state, step=400, meta={})
    assert names(folder) == ["step-000000200.ckpt", "step-000000400.ckpt"]


def test_a_broken_newest_points_to_the_one_before(folder, state, other_state):
    newest = folder.newest()
    newest.write_bytes(newest.read_bytes()[:-1])
    before = contents(folder)
    with pytest.raises(CheckpointError) as caught:
        folder.load_newest(state)
    assert contents(folder) == before
    message = str(caught.value)
    older = folder.folder / "step-000000100.ckpt"
    assert f"{newest} is damaged" in message
    assert f"The newest intact checkpoint is {older}. To continue from step 100" in message
    assert f"move {newest} out of the folder and resume again" in message
    newest.rename(folder.folder.parent / "broken")
    assert array_bits(folder.load_newest(state)) == array_bits(other_state)
    with pytest.raises(CheckpointError, match="different model"):
        folder.load_newest({"x": jnp.ones(2)})
    older.write_bytes(b"")
    with pytest.raises(CheckpointError, match="No intact checkpoint is beside it"):
        folder.load_newest(state)
