import errno
import hashlib
import json
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
import safetensors.numpy

from pathgrad._runs import checkpoint, rundir
from pathgrad._runs.checkpoint import CheckpointError, load, read_header, save
from pathgrad._runs.checkpoint_folder import CheckpointFolder
from pathgrad._runs.provenance import package_version

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
        "short": jnp.asarray(seed / 3, jnp.float16),
        "eighth": jnp.asarray([seed, -0.5]).astype(jnp.float8_e4m3fn),
        "bytes": jnp.asarray([seed, 255], jnp.uint8),
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
    path = tmp_path_factory.mktemp("saved") / "one.safetensors"
    save(path, state, step=1234, meta={"loss": 0.1, "name": "föö", "nested": {"list": [1, None]}})
    return path


@pytest.fixture
def copy(saved, tmp_path) -> Path:
    return Path(shutil.copy(saved, tmp_path / "copy.safetensors"))


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


def test_others_read_the_file(state, saved):
    arrays = safetensors.numpy.load_file(saved)
    assert list(read_header(saved).leaves) == [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        if isinstance(leaf, jax.Array | np.ndarray | np.generic)
    ]
    assert arrays.keys() == read_header(saved).leaves.keys()
    for name in ("half", "short", "odd", "empty", "flags", "host", "host scalar", "bytes", "step"):
        assert bits(arrays[f"['{name}']"]) == bits(state[name])
    weight = state["model"].layers[0].weight
    assert bits(arrays["['model'].layers[0].weight"]) == bits(weight)
    assert bits(arrays["['keys']"]) == bits(jr.key_data(state["keys"]))
    # The format has no name for these: two numbers each, and bytes.
    assert bits(arrays["['complex']"].view(np.complex128)[0]) == bits(state["complex"])
    assert arrays["['eighth']"].tobytes() == np.asarray(state["eighth"]).tobytes()
    with safetensors.safe_open(saved, "numpy") as file:
        metadata = file.metadata()
    assert (metadata["format"], metadata["step"]) == ("3", "1234")
    assert json.loads(metadata["meta"])["name"] == "föö"


def test_arrays_can_be_mapped_where_they_are(saved):
    """Other programs map an array into memory, and need it at a multiple of its numbers' size."""
    header, start = header_of(saved)
    assert start % 8 == 0
    table = {name: entry for name, entry in header.items() if name != "__metadata__"}
    size = {name: np.dtype(x.dtype).itemsize for name, x in safetensors.numpy.load_file(saved).items()}
    assert all(entry["data_offsets"][0] % size[name] == 0 for name, entry in table.items())


def header_of(path: Path) -> tuple[dict, int]:
    """Read a header as the safetensors format has it, and where it ends."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), end


def test_loaded_keys_draw_the_same_numbers(tmp_path):
    key = jr.key(3, impl="rbg")
    save(tmp_path / "key.safetensors", {"key": key}, step=0, meta={})
    like = jax.eval_shape(lambda: {"key": jr.key(0, impl="rbg")})
    loaded = load(tmp_path / "key.safetensors", like)["key"]
    assert bits(jr.bits(loaded, (4,))) == bits(jr.bits(key, (4,)))
    with pytest.raises(CheckpointError, match=r"key<rbg>\[\] in the file and key<threefry2x32>"):
        load(tmp_path / "key.safetensors", {"key": jr.key(0)})


def test_like_may_be_shapes_only(state, saved):
    arrays, rest = eqx.partition(state, eqx.is_array)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays)
    assert array_bits(load(saved, eqx.combine(shapes, rest))) == array_bits(state)


def test_arrays_return_to_committed_devices(tmp_path):
    device = jax.devices()[0]
    tree = {"pinned": jax.device_put(jnp.ones(2), device), "free": jnp.ones(2)}
    save(tmp_path / "a.safetensors", tree, step=0, meta={})
    loaded = load(tmp_path / "a.safetensors", tree)
    assert (loaded["pinned"].committed, loaded["free"].committed) == (True, False)
    sharding = jax.sharding.SingleDeviceSharding(device)
    shape = jax.ShapeDtypeStruct((2,), tree["free"].dtype, sharding=sharding)
    assert load(tmp_path / "a.safetensors", tree | {"free": shape})["free"].committed


def test_header_describes_the_file(saved):
    header = read_header(saved)
    assert (header.library, header.step) == (package_version("pathgrad"), 1234)
    assert header.meta == {"loss": 0.1, "name": "föö", "nested": {"list": [1, None]}}
    assert header.leaves["['model'].layers[0].weight"] == "float32[5,3]"
    assert header.leaves["['half']"] == "bfloat16[3,2]"
    assert header.leaves["['empty']"] == "float64[0,4]"
    assert header.leaves["['keys']"] == "key<threefry2x32>[3]"
    assert "['rate']" not in header.leaves


@pytest.mark.parametrize("leaf", [np.asarray("text"), np.asarray([None]), np.ones(2, ">f8")])
def test_leaves_that_cannot_be_stored_are_named(leaf, tmp_path):
    with pytest.raises(CheckpointError, match=r"leaf `\['bad'\]`"):
        save(tmp_path / "a.safetensors", {"good": jnp.ones(2), "bad": leaf}, step=0, meta={})
    assert not list(tmp_path.iterdir())


def test_a_truncated_file_is_refused(copy, state):
    whole = copy.read_bytes()
    start = len(whole) - read_header(copy).payload_bytes
    lengths = {0, 1, 7, 8, 9, 52, 53, 54, 116, 117, 118, start // 2, start - 1, start, start + 1}
    lengths |= set(range(start, len(whole), 97)) | {len(whole) - 1}
    for length in sorted(lengths):
        copy.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=REFUSED):
            load(copy, state)
        assert copy.read_bytes() == whole[:length]
    copy.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="array bytes, not"):
        load(copy, state)


def test_a_flipped_bit_is_refused_wherever_it_is(copy, state):
    whole = copy.read_bytes()
    start = len(whole) - read_header(copy).payload_bytes
    # Every bit of what comes before the first name, its length and checksum included, and samples.
    places = [(place, bit) for place in range(140) for bit in range(8)]
    places += [(place, place % 8) for place in {*range(140, len(whole), 37), start - 1, start}]
    for place, bit in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << bit
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
    with pytest.raises(ValueError, match="`step` counts from 0"):
        CheckpointFolder(tmp_path).save({}, step=-1, meta={})
    with pytest.raises(CheckpointError, match="Is a directory"):
        load(tmp_path, state)
    with pytest.raises(CheckpointError, match="No such file"):
        read_header(tmp_path / "missing.safetensors")


def test_another_programs_safetensors_is_refused(tmp_path, state):
    path = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file({"x": np.ones(2)}, path, {"format": "3"})
    with pytest.raises(CheckpointError, match="is not a pathgrad checkpoint"):
        load(path, state)


def forge(path: Path, length: int | None = None, **changes: object) -> None:
    """Change the header of a checkpoint and make its checksum right again, as malice would."""
    header, end = header_of(path)
    header["__metadata__"] |= changes.pop("metadata", {})
    text = json.dumps(header | changes).encode()
    begin = len(checkpoint._MAGIC)
    start = (length or len(text)).to_bytes(8, "little") + text[:begin]
    digest = hashlib.sha256(start + text[begin + 64 :]).hexdigest().encode()
    path.write_bytes(start + digest + text[begin + 64 :] + path.read_bytes()[end:])


@pytest.mark.parametrize(
    "changes",
    [
        {"length": 2**63},
        {"length": 1},
        {"metadata": {"leaves": "[1, 2]"}},
        {"metadata": {"leaves": '{"x": "float64[2]"}'}},
        {"metadata": {"step": "many"}},
        {"metadata": {"meta": "[" * 10**5}},
        {"metadata": {"leaves": "null"}},
        {"['odd']": {"dtype": "F32", "shape": [3], "data_offsets": [0, float("inf")]}},
        {"['odd']": {"dtype": "F32", "shape": [3], "data_offsets": [2**62, 2**62 + 12]}},
        {"['odd']": {"dtype": "F32", "shape": [3], "data_offsets": [-(2**62), 12]}},
        {"['odd']": {"dtype": "F32", "shape": [3]}},
    ],
)
def test_a_forged_header_does_no_harm(changes, copy, state):
    forge(copy)
    assert array_bits(load(copy, state)) == array_bits(state)
    forge(copy, **changes)
    with pytest.raises(CheckpointError):
        load(copy, state)


def test_a_newer_format_is_refused_and_not_called_damaged(copy, state):
    forge(copy, metadata={"format": "4", "library": "9.9", "leaves": "in another way"})
    copy.rename(copy.parent / "step-000000001.safetensors")
    with pytest.raises(CheckpointError, match=r"written by a newer pathgrad: 9\.9, .* format 4.*again\.$"):
        CheckpointFolder(copy.parent).load_newest(state)


# How formats 1 and 2 began: the magic, a checksum, and a line of JSON before the arrays.
OLDER = b'pathgrad checkpoint %064d\n{"format": 2, "library": "0.1.0", "step": 5, "meta": {}}\n'


def test_older_checkpoints_name_their_version(folder, state):
    folder.clear()
    folder.folder.mkdir()
    older = folder.folder / "step-000000005.ckpt"
    older.write_bytes(OLDER % 7 + bytes(100))
    assert folder.newest() == older
    with pytest.raises(CheckpointError, match=r"older pathgrad: 0\.1\.0, .*Use pathgrad 0\.1\.0 for"):
        folder.load_newest(state)
    folder.clear()
    assert not folder.folder.exists()


def test_two_leaves_of_one_name_are_refused(tmp_path):
    class Alike:
        def __repr__(self):
            return "alike"

        def __lt__(self, other):
            return id(self) < id(other)

    tree = {Alike(): jnp.ones(1), Alike(): jnp.ones(2)}
    with pytest.raises(CheckpointError, match="same path"):
        save(tmp_path / "a.safetensors", tree, step=0, meta={})


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
    why = f"step-000000{step}.safetensors: {os.strerror(code)}. Older.* untouched" if code else None
    with pytest.raises(CheckpointError if code else KeyboardInterrupt, match=why):
        folder.save({"x": jnp.ones(2)}, step=step, meta={})
    monkeypatch.undo()
    assert contents(folder) == before
    assert array_bits(folder.load_newest(state)) == array_bits(state)


def test_a_folder_in_the_way_is_reported(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(CheckpointError, match="Could not write"):
        CheckpointFolder(tmp_path / "file").save({"x": jnp.ones(2)}, step=0, meta={})
    (tmp_path / "a.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="Is a directory"):
        save(tmp_path / "a.safetensors", {"x": jnp.ones(2)}, step=0, meta={})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "file"]


def test_the_newest_two_are_kept(folder, state):
    assert names(folder) == ["step-000000100.safetensors", "step-000000200.safetensors"]
    path = folder.save({"x": jnp.ones(2)}, step=1_000_000_000, meta={})
    assert names(folder) == ["step-000000200.safetensors", "step-1000000000.safetensors"]
    assert path == folder.newest() == folder.folder / "step-1000000000.safetensors"
    folder.save({"x": jnp.ones(2)}, step=150, meta={})
    assert folder.newest() == path
    assert len(names(folder)) == 3
    assert array_bits(load(folder.paths()[1], state)) == array_bits(state)


def test_other_files_are_never_removed(folder):
    mine = ["notes.txt", "step-1.safetensors", "step-000000001.safetensors.bak", ".step-notes.tmp", "x.tmp"]
    for name in mine:
        (folder.folder / name).write_text("precious")
    for step in (300, 400, 500):
        folder.save({"x": jnp.ones(2)}, step=step, meta={})
    assert names(folder) == sorted([*mine, "step-000000400.safetensors", "step-000000500.safetensors"])
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
from pathgrad._runs.files import write_atomically

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
    command = [sys.executable, "-c", KILLED_WHILE_SAVING, folder.folder / f"step-{step:09d}.safetensors"]
    done = subprocess.run(command, env=environment)
    assert done.returncode < 0
    assert len(names(folder)) == 3
    assert before.items() <= contents(folder).items()  # a temporary file has been added, no more
    assert array_bits(folder.load_newest(state)) == array_bits(state)
    folder.save(state, step=400, meta={})
    assert names(folder) == ["step-000000200.safetensors", "step-000000400.safetensors"]


def test_a_broken_newest_points_to_the_one_before(folder, state, other_state):
    newest = folder.newest()
    newest.write_bytes(newest.read_bytes()[:-1])
    before = contents(folder)
    with pytest.raises(CheckpointError) as caught:
        folder.load_newest(state)
    assert contents(folder) == before
    message = str(caught.value)
    older = folder.folder / "step-000000100.safetensors"
    assert f"{newest} is damaged" in message
    assert f"The newest intact checkpoint is {older}. To continue from step 100" in message
    assert f"move {newest} out of the folder and resume again" in message
    newest.rename(folder.folder.parent / "broken")
    assert array_bits(folder.load_newest(state)) == array_bits(other_state)
    with pytest.raises(CheckpointError, match="different model"):
        folder.load_newest({"x": jnp.ones(2)})
    older.write_bytes(b"")
    with pytest.raises(CheckpointError, match="holds no intact checkpoint"):
        folder.load_newest(state)
