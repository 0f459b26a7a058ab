import errno
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from collections import OrderedDict
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from pathgrad._runs import rundir
from pathgrad._runs.checkpoint_folder import CheckpointFolder
from pathgrad._runs.provenance import package_version, provenance
from pathgrad._runs.rundir import RunDir, RunError
from pathgrad._runs.toml import dump_toml
from pathgrad._train.row import Row

SOURCES = Path(rundir.__file__).parents[2]
CONFIG = {"experiment": "toy", "seed": 3, "estimator": "path", "target": {"size": [12, 12], "kappa": 0.3}}

NASTY = {
    "empty": {},
    "empty table": {"a": {}, "b": {"c": {}}},
    "values after a table": {"a": {"x": 1}, "b": 2, "c": {"y": {"z": 3}, "w": 4}},
    "keys": {"a b": 1, "": 2, "a.b": {"c.d": {'"': 3}}, "ü": 4, "\n": 5, "1": 6, "-": 7, "\\": 8},
    "texts": {"a": '"', "b": "\\", "c": "C:\\new\\table", "d": "'''", "e": '"""', "f": "", "g": "#"},
    "controls": {"all": "".join(map(chr, range(0x20))) + "\x7f\x80\x85\u2028\ufeff", "crlf": "\r\n"},
    "unicode": {"a": "φ⁴ – größe 🎲", "astral": "\U0010ffff", "noncharacter": "\uffff"},
    "escapes as text": {"a": "\\u0041", "b": "\\n", "c": "\\\\n", "d": "\\"},
    "integers": {"a": 0, "b": -1, "c": 2**63 - 1, "d": -(2**63), "bool": True, "no": False},
    "floats": {
        "list": [0.1, 1 / 3, 1e-5, 1e16, 1e22, 5e-324, 1.7976931348623157e308, -0.0, 1.0],
        "infinities": [math.inf, -math.inf],
    },
    "lists": {"a": [], "b": [[1, 2], [], ["x"]], "c": [True, 1, 1.5, "x"], "d": [{}, {"e f": [1]}]},
    "lookalikes": {"a": "true", "b": "1", "c": "nan", "d": "1979-05-27", "inf": 1, "true": 2},
}


@pytest.mark.parametrize("mapping", NASTY.values(), ids=NASTY)
def test_toml_reads_back_as_written(mapping):
    read = tomllib.loads(dump_toml(mapping))
    assert read == mapping
    assert repr(sorted(read)) == repr(sorted(mapping))
    everything = {"nested": [mapping], "table": {"deep er": NASTY, "x": 1}}
    assert tomllib.loads(dump_toml(everything)) == everything


def test_toml_keeps_types_and_signs():
    read = tomllib.loads(dump_toml({"zero": -0.0, "one": 1.0, "yes": True, "nan": [math.nan]}))
    assert math.copysign(1, read["zero"]) == -1
    assert (type(read["one"]), read["yes"]) == (float, True)
    assert math.isnan(read["nan"][0])


def test_toml_writes_kin_as_what_toml_has():
    written = dump_toml(
        OrderedDict(path=Path("a/b"), pair=(1, (2, 3)), none=None, table={"none": None}, f=np.float64(0.1))
    )
    assert tomllib.loads(written) == {"path": "a/b", "pair": [1, [2, 3]], "table": {}, "f": 0.1}


def test_toml_keeps_the_bits_of_floats():
    numbers = np.random.default_rng(0).bytes(8 * 2000)
    floats = [x for x in np.frombuffer(numbers) if np.isfinite(x)]
    read = tomllib.loads(dump_toml({"x": floats}))["x"]
    assert np.asarray(read).tobytes() == np.asarray(floats).tobytes()


@pytest.mark.parametrize(
    ("mapping", "error", "message"),
    [
        ({"a": {"b": object()}}, TypeError, "`a.b` holds a object"),
        ({"a": {1: 2}}, TypeError, "key '1'"),
        ({"a": {1: {}}}, TypeError, "key '1'"),
        ({"a": [1, None]}, TypeError, "`a` holds a NoneType"),
        ({"a": "\udcff"}, ValueError, "a = .* not valid Unicode"),
        ({"\udcff": 1}, ValueError, "not valid Unicode"),
    ],
)
def test_toml_names_what_it_cannot_write(mapping, error, message):
    with pytest.raises(error, match=message):
        dump_toml(mapping)


@pytest.fixture
def run(tmp_path) -> RunDir:
    return RunDir.create(tmp_path / "runs" / "first", CONFIG)


def names(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.path.iterdir())


def test_a_run_is_created_and_opened(run):
    assert names(run) == ["config.toml", "lock"]
    opened = RunDir.open(run.path)
    assert opened == run
    assert opened.config == CONFIG
    assert opened.checkpoints == CheckpointFolder(run.path / "checkpoints")


def test_opening_what_is_no_run_is_refused(tmp_path, run):
    with pytest.raises(RunError, match=r"missing is not a run directory: it does not exist"):
        RunDir.open(tmp_path / "missing")
    with pytest.raises(RunError, match=r"it has no config\.toml"):
        RunDir.open(tmp_path)
    for content in (b"seed = = 3", b"seed = '\xff'"):
        (run.path / "config.toml").write_bytes(content)
        with pytest.raises(RunError, match=r"config\.toml cannot be read"):
            RunDir.open(run.path)


def test_a_run_is_not_replaced_unasked(run):
    with pytest.raises(RunError, match=r"another `out`, .* `resume`, or .* `overwrite`"):
        RunDir.create(run.path, {"seed": 4})
    assert run.config == CONFIG


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_of_something_else_is_left_alone(overwrite, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=r"not a run directory.*Choose another `out`"):
        RunDir.create(tmp_path, CONFIG, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="Not a directory"):
        RunDir.create(tmp_path / "thesis.tex", CONFIG, overwrite=overwrite)


def test_an_empty_directory_is_used(tmp_path):
    # This is also what a process leaves that was killed before it wrote its configuration.
    (tmp_path / "lock").touch()
    (tmp_path / ".config.toml.0123abcd.tmp").write_text("seed")
    assert RunDir.create(tmp_path, CONFIG).config == CONFIG


def test_overwrite_removes_what_pathgrad_wrote_and_nothing_else(run):
    run.append_metrics(Row(1))
    run.checkpoints.save({"x": jnp.ones(2)}, step=5, meta={})
    run.write_json("evaluation.json", {"ess": 0.5})
    run.output("loss.png").write_bytes(b"picture")
    (run.path / "notes.png").write_bytes(b"precious")
    (run.path / "checkpoints" / "notes.txt").write_text("precious")
    (run.path / "checkpoints" / "step-000000003.ckpt").write_text("of an older version")
    (run.path / "mine").mkdir()
    # Whatever is in the list of outputs, nothing outside the directory is ever removed.
    with (run.path / ".outputs").open("a") as stream:
        stream.write("../other\n..\nmine/x\n")
    (run.path.parent / "other").write_text("precious")
    again = RunDir.create(run.path, {"seed": 4}, overwrite=True)
    assert again.config == {"seed": 4}
    assert names(run) == ["checkpoints", "config.toml", "lock", "mine", "notes.png"]
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == ["notes.txt"]
    assert (run.path.parent / "other").exists()
    assert run.checkpoints.newest() is None


def test_a_configuration_that_cannot_be_written_makes_nothing(tmp_path):
    with pytest.raises(TypeError, match="`seed`"):
        RunDir.create(tmp_path / "run", {"seed": object()})
    assert not (tmp_path / "run").exists()


def test_metrics_are_strict_json_lines(run):
    rows = [
        Row(1, 0.5, loss=0.1, more={"ü\n\u2028": 3, "damping": 0.5}),
        Row(2, loss=math.nan, ess=0.25, kl=-math.inf, skipped=4),
    ]
    for row in rows:
        run.append_metrics(row)

    def refuse(constant):
        raise AssertionError(constant)

    lines = (run.path / "metrics.jsonl").read_text().split("\n")
    assert lines.pop() == ""
    more = {"ü\n\u2028": 3, "damping": 0.5}
    assert [json.loads(line, parse_constant=refuse) for line in lines] == [
        {"step": 1, "seconds": 0.5, "skipped": 0, "loss": 0.1} | more,
        {"step": 2, "seconds": None, "skipped": 4, "loss": None, "ess": 0.25, "kl": None},
    ]
    assert run.read_metrics() == [Row(1, 0.5, loss=0.1, more=more), Row(2, ess=0.25, skipped=4)]


def test_a_torn_last_line_is_harmless(run):
    assert run.read_metrics() == []
    for step in (10, 20):
        run.append_metrics(Row(step, 0.5))
    file = run.path / "metrics.jsonl"
    whole = file.read_bytes()
    for torn in (b"{", b'{"step": 30, "lo', b'{"step": 3', b'{"note": "\xc3', bytes(50)):
        file.write_bytes(whole + torn)
        assert run.read_metrics() == [Row(10, 0.5), Row(20, 0.5)]
        run.append_metrics(Row(30, 1.5))
        assert file.read_bytes() == whole + b'{"step": 30, "seconds": 1.5, "skipped": 0}\n'
        file.write_bytes(whole + torn)
        run.truncate_metrics(20)
        assert file.read_bytes() == whole


@pytest.mark.parametrize("broken", [b'{"step": 1', b"12"])
def test_a_broken_line_before_the_last_is_reported(broken, run):
    (run.path / "metrics.jsonl").write_bytes(b'{"step": 0}\n' + broken + b'\n{"step": 2}\n')
    with pytest.raises(RunError, match=r"Line 2 of .*metrics\.jsonl is not a JSON object"):
        run.read_metrics()


@pytest.mark.parametrize("odd", [b"{}", b'{"ess": 0.5}', b'{"step": null}', b'{"step": "1"}'])
@pytest.mark.parametrize("last", [b"", b'{"step": 2}\n'])
def test_what_is_no_row_is_reported_or_left_out(odd, last, run):
    file = run.path / "metrics.jsonl"
    file.write_bytes(b'{"step": 0}\n' + odd + b"\n" + last)
    for read in (run.read_metrics, lambda: run.truncate_metrics(0)):
        with pytest.raises(RunError, match=r"Line 2 of .*metrics\.jsonl is not a row .* no `step`"):
            read()
    assert file.read_bytes() == b'{"step": 0}\n' + odd + b"\n" + last
    assert run.read_metrics(lenient=True) == [Row(0), *([Row(2)] if last else [])]


def test_truncation_keeps_the_lines_up_to_a_step(run):
    run.truncate_metrics(0)
    assert run.read_metrics() == []
    (run.path / "metrics.jsonl").write_text('{"step":1,   "x": "y"}\n{"step":2}\n{"step":3}')
    run.truncate_metrics(2)
    assert (run.path / "metrics.jsonl").read_text() == '{"step":1,   "x": "y"}\n{"step":2}\n'
    assert names(run) == ["config.toml", "lock", "metrics.jsonl"]


def test_a_full_disk_leaves_whole_lines(run, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run.append_metrics(Row(1))
    run.write_json("evaluation.json", {"ess": 1})
    before = {name: (run.path / name).read_bytes() for name in names(run)}
    monkeypatch.setattr(rundir.os, "fsync", fail)
    for write in (
        lambda: run.append_metrics(Row(2)),
        lambda: run.truncate_metrics(0),
        lambda: run.write_json("evaluation.json", {"ess": 2}),
    ):
        with pytest.raises(RunError, match=r"Could not write to .*first: No space left"):
            write()
    assert {name: (run.path / name).read_bytes() for name in names(run)} == before


def test_json_outputs_are_readable_and_strict(run):
    path = run.write_json("evaluation.json", {"ess": np.float32(0.5), "khat": math.nan, "at": Path("a")})
    assert path.read_text() == '{\n  "ess": 0.5,\n  "khat": null,\n  "at": "a"\n}\n'
    arrays = {"n": np.int64(2), "z": jnp.asarray(0.5), "all": np.array([1.0, -math.inf]), "ok": True}
    path = run.write_json("arrays.json", arrays)
    assert json.loads(path.read_text()) == {"n": 2, "z": 0.5, "all": [1.0, None], "ok": True}
    with pytest.raises(TypeError, match="JSON cannot hold a object"):
        run.write_json("arrays.json", {"odd": object()})
    for name in ("../evaluation.json", "", "..", "a/b", ".outputs"):
        with pytest.raises(ValueError, match="plain file name"):
            run.write_json(name, {})


HOLD_THE_LOCK = """
import sys, time
from pathlib import Path
from pathgrad._runs.rundir import RunDir
with RunDir.open(Path(sys.argv[1])).locked():
    print(sorted({"jax", "numpy", "equinox"} & set(sys.modules)), flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(rundir.fcntl is None, reason="needs file locks")
def test_one_process_trains_at_a_time(run):
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", HOLD_THE_LOCK, run.path]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        try:
            # The command line imports this module for `--help`, so it must not load JAX.
            assert child.stdout is not None
            assert child.stdout.readline() == "[]\n"
            taken = rf"Another process \(pid {child.pid}\) is training in {run.path}\."
            with pytest.raises(RunError, match=taken), run.locked():
                pass
            with pytest.raises(RunError, match=taken):
                RunDir.create(run.path, {}, overwrite=True)
        finally:
            child.send_signal(signal.SIGKILL)
    with run.locked():
        assert (run.path / "lock").read_text() == str(os.getpid())
    with run.locked():
        pass
    assert run.config == CONFIG


def test_systems_without_locks_still_train(run, monkeypatch):
    monkeypatch.setattr(rundir, "fcntl", None)
    with run.locked(), run.locked():  # with locks, the second would be refused
        run.append_metrics(Row(1))
    assert run.read_metrics() == [Row(1)]


def test_provenance_tells_what_ran(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/ada/pathgrad/__main__.py", "demo"])
    assert provenance()["command"] == "python -m pathgrad demo"
    monkeypatch.setattr(sys, "argv", ["/home/ada/bin/pathgrad", "train", "a b", "\udcff"])
    found = provenance()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert (found["jax"], found["numpy"]) == (package_version("jax"), np.__version__)
    assert shlex.split(found["command"])[:3] == ["pathgrad", "train", "a b"]
    assert tomllib.loads(dump_toml(found)) == {k: v for k, v in found.items() if v is not None}


def git(folder: Path, *arguments: str) -> str:
    # Within a Git hook, GIT_DIR would lead these commands to the developer's repository.
    environment = {key: text for key, text in os.environ.items() if not key.startswith("GIT_")}
    options = ("user.name=a", "user.email=a@b", "commit.gpgsign=false", "tag.gpgsign=false")
    settings = [word for option in options for word in ("-c", option)]
    command = ["git", "-C", folder, *settings, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip()


def test_the_commit_is_that_of_our_own_checkout(tmp_path, monkeypatch):
    module = tmp_path / "package" / "provenance.py"
    module.parent.mkdir()
    module.write_text("1")
    monkeypatch.setattr(sys.modules[provenance.__module__], "__file__", str(module))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert provenance()["commit"] is None
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a project that is not ours")
    assert provenance()["commit"] is None
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-q", "-m", "ours")
    git(tmp_path, "tag", "-a", "v1", "-m", "a tag")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert provenance()["commit"] == commit
    module.write_text("2")
    assert provenance()["commit"] == f"{commit}-dirty"
    monkeypatch.setenv("PATH", "")
    assert provenance()["commit"] is None


def test_a_run_is_removed_with_its_own_files_alone(tmp_path):
    for name in ("mine", "shared", "foreign"):
        (tmp_path / name).mkdir()
    for name in ("mine", "shared"):
        RunDir.create(tmp_path / name, {"experiment": "toy"}).append_metrics(Row(1))
    (tmp_path / "shared" / "notes.txt").write_text("mine")
    (tmp_path / "foreign" / "config.toml").write_text("port = 80\n")
    RunDir(tmp_path / "mine").remove()
    RunDir(tmp_path / "shared").remove()
    RunDir(tmp_path / "nowhere").remove()
    with pytest.raises(RunError, match="was not written by pathgrad"):
        RunDir(tmp_path / "foreign").remove()
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["foreign", "foreign/config.toml", "shared", "shared/notes.txt"]
    run = RunDir.create(tmp_path / "held", {"experiment": "toy"})
    with run.locked(), pytest.raises(RunError, match="Another process"):
        RunDir(tmp_path / "held").remove()
