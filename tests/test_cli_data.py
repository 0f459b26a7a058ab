"""`pathgrad data list|verify|download`, against a server of our own: no test asks for a real address."""

import contextlib
import dataclasses
import errno
import gc
import hashlib
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pathgrad._cli import data
from pathgrad._data.download import download
from pathgrad._data.files import File
from pathgrad._train import progress
from pathgrad._words.errors import UserError
from pathgrad.experiments.vae.data.sources import SOURCES, Source

CONTENTS = bytes(range(256)) * 1000

# After a failure pooch leaves its connection to the garbage collector, who warns.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class Server(http.server.ThreadingHTTPServer):
    """Serves files on this machine, and keeps a record of what was asked for."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/f": CONTENTS}
        self.asked: list[str] = []
        self.lengths = True
        self.cut: int | None = None
        self.go_on = threading.Event()  # cleared, a connection stays open when all is sent
        self.go_on.set()
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends files, whole or broken off, with or without their length."""

    def do_GET(self):
        server = self.server
        assert isinstance(server, Server)
        server.asked.append(self.path)
        if self.path not in server.files:
            self.send_error(404)
            return
        contents = server.files[self.path]
        self.send_response(200)
        if server.lengths:
            self.send_header("Content-Length", str(len(contents)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the other side may have had enough
            self.wfile.write(contents[: server.cut])
            self.wfile.flush()
            server.go_on.wait(timeout=60)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.go_on.set()
        running.shutdown()
        thread.join()
        gc.collect()  # here, where the warning is expected, and in no later test


def known(server, contents=CONTENTS, *, name="f", algorithm="sha256"):
    digest = hashlib.new(algorithm, contents).hexdigest()
    address = f"{server.address}/{name}"
    return File(f"D/{name}.bin", digest, len(contents), address, algorithm)


def names(folder):
    return sorted(p.name for p in (folder / "D").iterdir())


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
@pytest.mark.parametrize("lengths", [True, False])
def test_download(lengths, algorithm, server, tmp_path):
    server.lengths = lengths
    download(known(server, algorithm=algorithm), tmp_path / "new")
    path = tmp_path / "new" / "D" / "f.bin"
    assert path.read_bytes() == CONTENTS
    assert names(tmp_path / "new") == ["f.bin"]
    assert server.asked == ["/f"]
    assert path.stat().st_mode & 0o777 == 0o644  # others on the machine may read the images too


@pytest.mark.parametrize("lengths", [True, False])
def test_what_broke_off_has_no_name(lengths, server, tmp_path):
    server.lengths, server.cut = lengths, 100_000
    with pytest.raises(UserError, match="100000 bytes read" if lengths else "hash") as error:
        download(known(server), tmp_path)
    for said in (server.address, str(tmp_path / "D"), "Run the command again"):
        assert said in str(error.value)
    assert names(tmp_path) == []
    server.cut = None
    download(known(server), tmp_path)
    assert (tmp_path / "D" / "f.bin").read_bytes() == CONTENTS


def test_what_was_killed_has_no_name(server, tmp_path):
    """Nor does it stand in the way of another attempt."""
    server.cut = 100_000
    server.go_on.clear()
    file = known(server)
    code = f"""
from pathlib import Path
from pathgrad._data.download import download
from pathgrad._data.files import File
download({file!r}, Path({str(tmp_path)!r}))
"""
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 60
        # Something is downloaded before the end.
        while not any(p.stat().st_size for p in (tmp_path / "D").glob("*")):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    assert "f.bin" not in names(tmp_path)
    server.cut = None
    server.go_on.set()
    download(file, tmp_path)
    assert (tmp_path / "D" / "f.bin").read_bytes() == CONTENTS
    assert names(tmp_path) == ["f.bin"]  # what the kill left is swept


def test_wrong_contents_are_not_taken(server, tmp_path):
    (tmp_path / "D").mkdir()
    (tmp_path / "D" / "f.bin").write_bytes(b"what was there")
    server.files["/f"] = b"<html>Please log in.</html>"
    with pytest.raises(UserError) as error:
        download(known(server), tmp_path)
    for contents in (CONTENTS, server.files["/f"]):
        assert hashlib.sha256(contents).hexdigest() in str(error.value)
    assert str(tmp_path / "D") in str(error.value)
    assert names(tmp_path) == ["f.bin"]
    assert (tmp_path / "D" / "f.bin").read_bytes() == b"what was there"


def test_failures_name_the_cause_and_the_remedy(server, tmp_path):
    def told(file, folder=tmp_path):
        with pytest.raises(UserError) as error:
            download(file, folder, timeout=0.5)
        said = str(error.value)
        assert "\n" not in said
        assert " object at 0x" not in said  # as the errors of requests say
        return said

    said = told(known(server, name="gone"))
    assert "404" in said
    assert f"{server.address}/gone" in said
    assert f"put it into {tmp_path / 'D'}" in said
    assert names(tmp_path) == []
    # Nobody serves at this port.
    assert "refused" in told(File("D/f.bin", "0" * 64, 5, "http://127.0.0.1:1/f"))
    assert "no address" in told(File("D/f.bin", "0" * 64))
    (tmp_path / "file").write_text("no folder")
    assert "directory" in told(known(server), tmp_path / "file")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/f"
        assert "timed out" in told(File("D/f.bin", "0" * 64, 5, address))
    server.cut = 1000
    server.go_on.clear()  # silent in the middle
    assert "timed out" in told(known(server))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk(server, tmp_path, monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"No space left on device.*Run the command again"):
        download(known(server), tmp_path)
    assert names(tmp_path) == []


def test_links_that_somebody_planted_are_not_followed(server, tmp_path):
    (tmp_path / "D").mkdir()
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    for name in ("f.bin", "f.bin.part", ".f.bin.00000000.tmp"):
        (tmp_path / "D" / name).symlink_to(victim)
    download(known(server), tmp_path)
    assert victim.read_bytes() == b"precious"
    assert (tmp_path / "D" / "f.bin").read_bytes() == CONTENTS
    assert not (tmp_path / "D" / "f.bin").is_symlink()


def test_no_server_can_fill_the_disk(server, tmp_path, monkeypatch):
    server.lengths = False
    short = dataclasses.replace(known(server), size=100_000)
    unknown = dataclasses.replace(known(server), size=None)
    monkeypatch.setattr("pathgrad._data.download._MOST", 200_000)
    for file, most in ((short, "100,000"), (unknown, "200,000")):
        with pytest.raises(UserError, match=f"longer than the {most} bytes"):
            download(file, tmp_path)
    assert names(tmp_path) == []


@pytest.fixture
def sources(server):
    """Three data sets of a few bytes: of two files, of one, and one that cannot be downloaded."""
    real = dict(SOURCES)
    SOURCES.clear()
    server.files = {"/a": b"first" * 100, "/b": b"second" * 100, "/c": b"third" * 100}
    a, b, c = (known(server, server.files[f"/{n}"], name=n) for n in "abc")
    packed = File("D/a.bin.gz", hashlib.sha256(b"packed").hexdigest(), 6)
    alone = File("D/alone.bin", hashlib.sha256(b"alone").hexdigest(), 5)
    for name, files in {
        "pair": {"train": (a, packed), "test": (b,)},
        "single": {"all": (c,)},
        "rebuilt": {"all": (alone,)},
    }.items():
        SOURCES[name] = Source(files, (4, 3, 2), (3, 2), 2, f"about {name}")
    yield
    SOURCES.clear()
    SOURCES.update(real)


def command(capsys, word, *words):
    """Run a command; return its exit code, and what it printed to either side."""
    code = data.run(f"pathgrad data {word}", list(words))
    out, err = capsys.readouterr()
    return code, out, err


def row(table, name):
    return next(line for line in table.splitlines() if f" {name} " in line)


def test_list_verify_and_download(capsys, sources, server, tmp_path):
    where = ("--data", str(tmp_path))
    code, out, _ = command(capsys, "list", *where)
    assert code == 0
    assert "4 / 3 / 2" in row(out, "pair")
    assert "rebuilt: about rebuilt\n    D/alone.bin\n" in out
    assert all("missing" in row(out, name) for name in SOURCES)
    assert f"folder: {tmp_path}" in out
    assert command(capsys, "verify", *where)[0] == 0  # nothing is there, so nothing is damaged
    assert command(capsys, "verify", "pair", *where)[0] == 1

    code, out, err = command(capsys, "download", "pair", *where)
    assert code == 0
    assert "pair: D/a.bin was downloaded" in out
    assert "D/a.bin: 0.0 of 0.0 MB" in err
    assert "complete" in row(command(capsys, "list", *where)[1], "pair")
    code, out, _ = command(capsys, "verify", "pair", *where)
    assert code == 0
    assert "pair: D/b.bin is good" in out

    (tmp_path / "D" / "b.bin").write_bytes(b"second" * 99 + b"SECOND")
    code, out, _ = command(capsys, "verify", *where)
    assert code == 1
    assert "pair: D/b.bin is damaged: it has SHA256 " in out
    assert "damaged" in row(command(capsys, "list", *where)[1], "pair")
    server.asked.clear()
    code, out, _ = command(capsys, "download", *where)
    assert code == 0
    assert server.asked == ["/b", "/c"]
    assert "pair: D/a.bin already exists" in out
    assert command(capsys, "verify", "pair", "single", *where)[0] == 0


def test_either_form_of_a_file_will_do(capsys, sources, server, tmp_path):
    where = ("--data", str(tmp_path))
    command(capsys, "download", "pair", *where)
    (tmp_path / "D" / "a.bin").unlink()
    assert "1 of 2 files" in row(command(capsys, "list", *where)[1], "pair")
    (tmp_path / "D" / "a.bin.gz").write_bytes(b"packed")
    listed = command(capsys, "list", *where)[1]
    assert "complete" in row(listed, "pair")
    assert "pair: about pair\n    D/a.bin.gz\n    D/b.bin\n" in listed
    server.asked.clear()
    assert command(capsys, "download", "pair", *where)[0] == 0
    assert server.asked == []
    (tmp_path / "D" / "a.bin.gz").write_bytes(b"pack")
    code, out, _ = command(capsys, "verify", "pair", *where)
    assert code == 1
    assert "a.bin.gz is damaged: it has 4 bytes instead of 6" in out


def test_one_failure_does_not_keep_the_others_away(capsys, sources, server, tmp_path):
    del server.files["/a"]
    code, out, err = command(capsys, "download", "--data", str(tmp_path))
    assert code == 1
    assert "/a could not be fetched" in err
    assert "404" in err
    assert names(tmp_path) == ["b.bin", "c.bin"]
    assert "single: D/c.bin was downloaded" in out


def test_names_are_checked_before_anything_is_done(capsys, sources, server, tmp_path):
    where = ("--data", str(tmp_path))
    with pytest.raises(UserError, match="Did you mean 'single'"):
        command(capsys, "download", "pair", "singel", *where)
    with pytest.raises(UserError, match="no data set 'x'"):
        command(capsys, "verify", "x", *where)
    with pytest.raises(UserError, match=r"rebuilt has no address .*D/alone\.bin"):
        command(capsys, "download", "pair", "rebuilt", *where)
    with pytest.raises(UserError, match="--data"):
        command(capsys, "list", "--dat", "x")
    assert server.asked == []


def test_progress_is_told_in_lines_off_a_terminal(capsys, sources, server, monkeypatch, tmp_path):
    server.files["/c"] = CONTENTS * 20
    SOURCES["single"].files["all"] = (known(server, server.files["/c"], name="c"),)
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.0)
    assert command(capsys, "download", "single", "--data", str(tmp_path))[0] == 0
    _, _, err = command(capsys, "download", "single", "--data", str(tmp_path / "again"))
    lines = [re.fullmatch(r"D/c\.bin: (.*) of 5\.1 MB(  \d+:\d\d left)?", line) for line in err.splitlines()]
    done = [float(line[1]) for line in lines if line]
    assert len(done) == len(lines) > 20
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0.1, 5.1)


def test_only_downloads_need_pooch(tmp_path):
    code = (
        "import sys; sys.modules['pooch'] = None\n"
        "from pathgrad._cli.main import main\n"
        f"sys.argv = ['pathgrad', 'data', sys.argv[1], '--data', {str(tmp_path)!r}]; sys.exit(main())"
    )
    runs = {
        word: subprocess.run([sys.executable, "-c", code, word], capture_output=True, text=True)
        for word in ("list", "verify", "download")
    }
    assert [run.returncode == 0 for run in runs.values()] == [True, True, False]
    [line] = runs["download"].stderr.splitlines()
    assert "`pip install pooch`" in line


def test_the_folder_may_come_from_the_environment(capsys, sources, monkeypatch, tmp_path):
    monkeypatch.setenv("PATHGRAD_DATA", str(tmp_path / "here"))
    assert f"folder: {tmp_path / 'here'}" in command(capsys, "list")[1]
    command(capsys, "download", "single")
    assert names(tmp_path / "here") == ["c.bin"]


def test_help_is_quick_and_names_the_data_sets():
    code = "from pathgrad._cli import data; data.run('pathgrad data {}', ['--help'])"
    for word in ("list", "verify", "download"):
        shown = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", code.format(word)], capture_output=True, text=True
        )
        assert shown.returncode == 0
        assert not any(f" {heavy}\n" in shown.stderr for heavy in ("jax", "numpy", "scipy"))
        assert "--data" in shown.stdout
        if word != "list":
            text = " ".join(re.sub("[│]", " ", shown.stdout).split())
            listed = [n for n, s in SOURCES.items() if s.addresses or word == "verify"]
            assert f"Data sets: {', '.join(listed)}." in text
