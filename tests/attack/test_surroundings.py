"""A machine that is not as it should be: no home, no device, no memory, nowhere to print."""

import contextlib
import io
import os
import shlex
import sys
from pathlib import Path

import jax
import pytest

import pathgrad as pg
from pathgrad._cli import demo
from pathgrad._cli.failures import explained
from pathgrad._cli.main import main
from pathgrad._runs import files
from pathgrad._show.style import new_figure, save
from pathgrad._words import memory
from pathgrad.experiments.density.loading import load_density

from ..run_helpers import make_run, refused, rows_of


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Two runs that differ in their seed, whose means are written with ±."""
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        make_run(tmp_path / f"run{seed}", rows_of([0.2, 0.5 + 0.1 * seed]), seed=seed)
    return tmp_path


def printed_on(stream, monkeypatch, *words):
    """Run a command with another standard output; return the exit code."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stream)
        try:
            return main([*words])
        finally:
            if stream is None:
                sys.stdout.close()  # what was put in its place


def test_a_terminal_without_unicode_gets_everything(two, monkeypatch):
    held = io.BytesIO()
    stream = io.TextIOWrapper(held, encoding="ascii")
    assert printed_on(stream, monkeypatch, "compare", str(two), "--markdown") == 0
    assert b"55.00 +/- 7.07 %" in held.getvalue()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("words", [["--help"], ["compare", "run0"], ["report", "run0", "--out", "r.html"]])
def test_what_cannot_be_printed_is_told(words, two, monkeypatch, capsys):
    with open("/dev/full", "w", encoding="utf-8") as stream:
        assert printed_on(stream, monkeypatch, *[str(two / w) if "run" in w else w for w in words]) == 2
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # so that closing it works
    said = "pathgrad: the output cannot be written: No space left on device. What was saved is kept;"
    err = capsys.readouterr().err
    assert err.startswith(said)
    assert len(err.splitlines()) == 1


def test_without_standard_output_the_work_is_done(two, monkeypatch):
    page = two / "page.html"
    assert printed_on(None, monkeypatch, "report", str(two), "--out", str(page)) == 0
    assert page.read_text("utf-8").startswith("<!doctype html>")


def nowhere(*args):
    raise RuntimeError("Could not determine home directory.")


def test_without_a_home_directory(two, monkeypatch, capsys):
    monkeypatch.setattr(Path, "home", nowhere)
    for name in ("PATHGRAD_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert "There is no home directory. Give a folder of data with --data" in refused(capsys, "data", "list")
    monkeypatch.setenv("PATHGRAD_DATA", "~nosuchuser")
    assert "there is no such home directory" in refused(capsys, "data", "list")


@pytest.mark.parametrize("command", ["train toy", "sample run0 --out x.npz", "bench cnf"])
def test_a_device_that_is_not_there(command, two, monkeypatch, capsys):
    def failing():
        raise AssertionError

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr(pg.devices, "number_in_all", failing)
    assert "JAX_PLATFORMS is cuda, and JAX finds no such device here" in refused(capsys, *command.split())
    assert not Path("runs").exists()


def test_a_block_that_does_not_fit_is_refused_before_anything_is_written(two, monkeypatch, capsys):
    monkeypatch.setattr(memory, "available", lambda: 60_000.0)
    tiny = shlex.split("--width 4 --depth 1 --solver-steps 1 --batch 1000 --block 5 --steps 5")
    said = refused(capsys, "train", "toy", *tiny, "--out", "new")
    assert "a block of steps takes" in said
    assert "Most likely --batch 1000 is too large" in said
    assert not Path("new").exists()


def test_only_devices_of_this_process_are_asked_for_their_memory(monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_limit": 5}

    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [Device(), Device()])
    monkeypatch.setattr(jax, "devices", lambda: pytest.fail("the others cannot be asked"))
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    assert memory.available() == 30


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save(new_figure(2.0, 2.0), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_demo_tells_how_to_repeat_it(two, capsys):
    (two / "a b").mkdir()
    (two / "a b" / "path").mkdir()
    assert "already holds a demo. Choose another --out, or replace it with --overwrite" in refused(
        capsys, "demo", "--out", "a b"
    )


def test_what_a_killed_demo_left_is_no_other_file(two):
    (two / "demo").mkdir()
    (two / "demo" / ".comparison.png.0123abcd.tmp").write_text("half")
    demo._check_free(two / "demo", overwrite=False)


def test_where_open_files_cannot_be_moved_they_are_closed(tmp_path, monkeypatch):
    replace, unlink = os.replace, Path.unlink
    opened = []

    def replace_closed(old, new):
        assert opened[-1].closed
        replace(old, new)

    def unlink_closed(path):
        assert opened[-1].closed
        unlink(path)

    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setattr(os, "replace", replace_closed)
    monkeypatch.setattr(Path, "unlink", unlink_closed)
    for chunks in ([b"new"], [b"newer", None]):
        with contextlib.suppress(TypeError), files.replacing(tmp_path / "file") as file:
            opened.append(file)
            for chunk in chunks:
                file.write(chunk)
    assert (tmp_path / "file").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_options_without_memory_are_not_blamed_for_it():
    words = shlex.split("train toy --steps 100000 --split-seed 99999999 --batch 5000")
    assert "--batch 5000" in str(explained(MemoryError(), words))
    assert "Use fewer draws" in str(explained(MemoryError(), words[:-2]))


def test_a_failure_inside_a_density_is_not_blamed_on_the_machine(tmp_path):
    code = tmp_path / "mine.py"
    code.write_text("import json\n\ndef f(x):\n    return json.load(open('/nowhere'))\n")
    density = load_density(f"{code}:f")
    with pytest.raises(FileNotFoundError) as caught:
        pg.LogDensity(density, (2,))
    said = str(explained(caught.value, []))
    assert said.startswith("the density or model that you gave failed: FileNotFoundError")
    assert said.endswith(f"({code}, line 4).")
