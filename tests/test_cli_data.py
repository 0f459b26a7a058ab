"""`pathgrad data list|verify|download`, against a server of our own: no test asks for a real address."""

import contextlib
import hashlib
import http.server
import re
import socket
import subprocess
import sys
import threading

import pytest

from pathgrad._cli import data
from pathgrad._errors import UserError
from pathgrad.experiments.vae.data.download import download
from pathgrad.experiments.vae.data.sources import SOURCES, File, Source

CONTENTS = bytes(range(256)) * 1000


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends files, and pieces of files, and breaks off where it is told to."""

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append((self.path, asked))
        if self.path not in server.files:
            self.send_error(404)
            return
        contents = server.files[self.path]
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and server.ranges else 0
        if asked and server.ranges and start >= len(contents):
            self.send_error(416)
            return
        start = min(start, len(contents)) + (server.shift if start else 0)
        self.send_response(206 if asked and server.ranges else 200)
        if asked and server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(contents) - 1}/{len(contents)}")
        if server.lengths:
            self.send_header("Content-Length", str(len(contents) - start))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the other side may have had enough
            self.wfile.write(contents[start : server.cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server of files on this machine, with a record of what was asked for."""
    monkeypatch.setenv("no_proxy", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files = {"/f": CONTENTS}
        running.asked = []
        running.ranges, running.lengths, running.cut, running.shift = True, True, None, 0
        running.address = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def known(server, contents=CONTENTS, *, size=True, name="f"):
    digest = hashlib.sha256(contents).hexdigest()
    return File(
        f"D/{name}.bin", digest, len(contents) if size else None, f"{server.address}/{name}"
    )


def fetch(file, folder):
    told = []
    download(file, folder, lambda done, total: told.append((done, total)), timeout=5.0)
    return told


def names(folder):
    return sorted(p.name for p in (folder / "D").iterdir())


def test_download(server, tmp_path):
    told = fetch(known(server), tmp_path / "new")
    assert (tmp_path / "new" / "D" / "f.bin").read_bytes() == CONTENTS
    assert names(tmp_path / "new") == ["f.bin"]
    assert server.asked == [("/f", None)]
    assert told[0] == (0, len(CONTENTS))
    assert told[-1] == (len(CONTENTS), len(CONTENTS))


@pytest.mark.parametrize("size", [True, False])
def test_a_download_that_broke_off_goes_on(size, server, tmp_path):
    file = known(server, size=size)
    server.cut = 100_000
    with pytest.raises(
        UserError, match=r"ended after 100000 of 256000 bytes\. Run .* to go on"
    ) as e:
        fetch(file, tmp_path)
    assert str(tmp_path / "D") in str(e.value)
    assert names(tmp_path) == ["f.bin.part"]
    server.cut = None
    told = fetch(file, tmp_path)
    assert server.asked == [("/f", None), ("/f", "bytes=100000-")]
    assert told[0] == (100_000, len(CONTENTS))
    assert (tmp_path / "D" / "f.bin").read_bytes() == CONTENTS
    assert names(tmp_path) == ["f.bin"]


@pytest.mark.parametrize("lengths", [True, False])
def test_a_server_without_ranges_begins_again(lengths, server, tmp_path):
    server.ranges, server.lengths, server.cut = False, lengths, 100_000
    with pytest.raises(UserError, match="100000 of 256000"):
        fetch(known(server), tmp_path)
    server.cut = None
    fetch(known(server), tmp_path)
    assert (tmp_path / "D" / "f.bin").read_bytes() == CONTENTS


def test_a_server_that_sends_another_piece_is_asked_for_everything(server, tmp_path):
    (tmp_path / "D").mkdir()
    (tmp_path / "D" / "f.bin.part").write_bytes(CONTENTS[:1000])
    server.shift = 10
    fetch(known(server), tmp_path)
    assert (tmp_path / "D" / "f.bin").read_bytes() == CONTENTS
    assert server.asked == [("/f", "bytes=1000-"), ("/f", None)]


@pytest.mark.parametrize("size", [True, False])
@pytest.mark.parametrize("begun", [len(CONTENTS) // 2, len(CONTENTS), len(CONTENTS) + 5])
@pytest.mark.parametrize("right", [True, False])
def test_whatever_was_begun_before(right, begun, size, server, tmp_path):
    """Also a beginning of another file, or a whole one that only lacks its name."""
    (tmp_path / "D").mkdir()
    start = (CONTENTS if right else bytes(len(CONTENTS))) + b"extra"
    (tmp_path / "D" / "f.bin.part").write_bytes(start[:begun])
    fetch(known(server, size=size), tmp_path)
    assert (tmp_path / "D" / "f.bin").read_bytes() == CONTENTS
    assert names(tmp_path) == ["f.bin"]
    if right and begun == len(CONTENTS):
        assert server.asked == ([] if size else [("/f", f"bytes={begun}-")])


def test_wrong_contents_are_not_taken(server, tmp_path):
    (tmp_path / "D").mkdir()
    (tmp_path / "D" / "f.bin").write_bytes(b"what was there")
    server.files["/f"] = b"<html>Please log in.</html>"
    with pytest.raises(UserError) as error:
        fetch(known(server), tmp_path)
    for contents in (CONTENTS, server.files["/f"]):
        assert hashlib.sha256(contents).hexdigest()[:12] in str(error.value)
    assert "not kept" in str(error.value)
    assert names(tmp_path) == ["f.bin"]
    assert (tmp_path / "D" / "f.bin").read_bytes() == b"what was there"


def test_no_more_than_wanted_is_written(server, tmp_path):
    server.files["/f"] = CONTENTS * 40
    told = []
    with pytest.raises(UserError, match="sent something else"):
        download(known(server), tmp_path, lambda done, total: told.append(done))
    assert max(told) < 2 * len(CONTENTS)


def test_failures_name_the_address_and_the_folder(server, tmp_path):
    with pytest.raises(UserError, match="404") as error:
        fetch(known(server, name="gone"), tmp_path)
    assert f"{server.address}/gone" in str(error.value)
    assert str(tmp_path / "D") in str(error.value)
    assert names(tmp_path) == []
    nobody = File("D/f.bin", "0" * 64, 5, "http://127.0.0.1:1/f")  # nobody serves at this port
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:1/f could not be fetched: .*refused"):
        fetch(nobody, tmp_path)
    with pytest.raises(UserError, match="no address"):
        fetch(File("D/f.bin", "0" * 64), tmp_path)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match="cannot be written"):
        fetch(known(server), tmp_path / "file")


def test_a_silent_server_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = File("D/f.bin", "0" * 64, 5, f"http://127.0.0.1:{silent.getsockname()[1]}/f")
        with pytest.raises(UserError, match=r"could not be fetched: .*(timed out|in time)"):
            download(file, tmp_path, lambda done, total: None, timeout=0.2)


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
    assert "pair: D/a.bin has come" in out
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
    assert [path for path, _ in server.asked] == ["/b", "/c"]
    assert "pair: D/a.bin is there" in out
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
    assert "/a could not be fetched: 404" in err
    assert names(tmp_path) == ["b.bin", "c.bin"]
    assert "single: D/c.bin has come" in out


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


def test_the_folder_may_come_from_the_environment(capsys, sources, monkeypatch, tmp_path):
    monkeypatch.setenv("PATHGRAD_DATA", str(tmp_path / "here"))
    assert f"folder: {tmp_path / 'here'}" in command(capsys, "list")[1]
    command(capsys, "download", "single")
    assert names(tmp_path / "here") == ["c.bin"]


def test_help_is_quick_and_names_the_data_sets():
    code = "from pathgrad._cli import data; data.run('pathgrad data {}', ['--help'])"
    for word in ("list", "verify", "download"):
        shown = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", code.format(word)],
            capture_output=True,
            text=True,
        )
        assert shown.returncode == 0
        assert not any(f" {heavy}\n" in shown.stderr for heavy in ("jax", "numpy", "scipy"))
        assert "--data" in shown.stdout
        if word != "list":
            text = " ".join(re.sub("[│]", " ", shown.stdout).split())
            listed = [n for n, s in SOURCES.items() if s.addresses or word == "verify"]
            assert f"Data sets: {', '.join(listed)}." in text
