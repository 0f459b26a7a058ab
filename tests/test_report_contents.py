"""Runs that are whole, killed, going on, empty or broken, as the report reads them."""

import subprocess
import sys

import numpy as np
import pytest

from pathgrad._cli.main import main
from pathgrad._cli.report import find_runs
from pathgrad._errors import as_options
from pathgrad._report import read_run
from pathgrad._report.contents import is_training
from pathgrad._report.verdict import Trust, verdict
from pathgrad._train.row import Row
from pathgrad._train.rundir import RunDir

from .run_helpers import four_runs, make_run, refused, rows_of
from .test_report import RESULTS, one, page_of


def keep_checkpoint(path):
    (path / "checkpoints").mkdir()
    (path / "checkpoints/step-000000010.ckpt").touch()


def test_a_killed_run_is_read_up_to_its_torn_line(tmp_path):
    path = tmp_path / "run"
    make_run(path, rows_of([0.2, 0.5]), steps=1000)
    with (path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 30, "ess": 0.')
    run = one(path)
    assert [row.step for row in run.rows] == [10, 20]
    assert run.state == (
        "stopped",
        "stopped at step 20 of 1,000: its checkpoints are not here, so it cannot go on",
    )
    keep_checkpoint(path)
    run = one(path)
    assert "--" not in run.state.text  # it is the page that speaks of options
    resume = f"go on with `pathgrad train phi4 --out {path} --resume`"
    assert as_options(run.state.text).endswith(resume)
    assert f"<code>pathgrad train phi4 --out {path} --resume</code>" in page_of(path)
    said = verdict([run])
    assert (said.level, said.headline) == (Trust.OPEN, "50.00\u00a0%")
    assert "last block of training" in said.sentences[1]
    assert f"`pathgrad evaluate {path}`" in said.sentences[1]


def test_a_run_that_goes_on_is_not_disturbed(tmp_path):
    path = tmp_path / "run"
    run = make_run(path, rows_of([0.2]), steps=50)
    with run.locked():
        assert is_training(path)
        assert one(path).state == ("running", "training now: step 10 of 50")
        # Still locked: another look has not taken it away.
        assert is_training(path)
    assert not is_training(path)
    (path / "lock").unlink()
    assert not is_training(path)
    assert not (path / "lock").exists()


@pytest.mark.parametrize(
    ("training", "last", "ends"),
    [
        ({"steps": 10}, {}, "all its steps are done"),
        ({"steps": 5, "newton_steps": 5}, {}, "all its steps are done"),
        ({"steps": 8, "newton_steps": 5}, {}, None),
        ({"steps": 99, "max_seconds": 1.0}, {}, "its 1.0 s of training are used up"),
        ({"epochs": 5}, {"epoch": 5.0}, "all its epochs are done"),
        (
            {"epochs": 9, "patience": 2},
            {"epoch": 5.0, "waiting": 3},
            "no better validation for 3 epochs",
        ),
        ({"epochs": 9, "patience": 3}, {"epoch": 5.0, "waiting": 3}, None),
    ],
)
def test_why_a_run_ended(tmp_path, training, last, ends):
    vae = "epochs" in training
    config = {"experiment": "vae" if vae else "toy", "options": {"training": training}}
    run = RunDir.create(tmp_path / "run", config)
    run.append_metrics(Row(10, 1.5, **last))
    state = one(run.path).state
    assert state.kind == ("ended" if ends else "stopped")
    assert ends is None or state.text.endswith(ends)


def test_a_run_without_rows_has_a_card_and_no_curve(tmp_path):
    make_run(tmp_path / "run", [], steps=5)
    text = page_of(tmp_path / "run")
    assert "no numbers yet" in text
    assert "Stopped before its first block" in text
    assert "there is no curve to draw" in text
    assert 'class="chart"' not in text


def test_odd_contents_are_read_as_far_as_possible(tmp_path):
    path = tmp_path / "run"
    make_run(path, rows_of([0.4]))
    lines = (path / "metrics.jsonl").read_text()
    (path / "metrics.jsonl").write_text(
        lines + '{"step": 20, "ess": "good", "kl": NaN}\n{"ess": 0.5}\n'
    )
    (path / "evaluation.json").write_text("{half")
    (path / "evaluation.npz").write_bytes(b"PK no")
    run = one(path)
    assert [(row.step, row.ess) for row in run.rows] == [(10, 0.4), (20, None)]
    assert len(run.troubles) == 2
    warnings = verdict([run]).warnings
    assert all(f"`pathgrad evaluate {path}`" in text for text in warnings[:2])
    (path / "metrics.jsonl").write_text("nonsense\n" + lines)
    assert "Line 1" in one(path).troubles[0]


def test_a_broken_run_among_others_is_named_and_alone_refused(tmp_path, capsys):
    four_runs(tmp_path)
    (tmp_path / "path0/config.toml").write_text("experiment = ")
    (tmp_path / "path1/config.toml").write_text('experiment = "toy"\noptions = 3\n')
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd/config.toml").write_text('experiment = "toy"\nprovenance = "mine"\n')
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.count("not shown") == 3
    assert said.endswith(f"report of 2 runs: {out}\n")
    text = out.read_text("utf-8")
    assert text.count("Not shown: ") == 3
    assert "cannot be read" in refused(capsys, "report", tmp_path / "path0", "--out", out)
    assert out.read_text("utf-8") == text


def test_errors_name_the_remedy(tmp_path, capsys):
    make_run(tmp_path / "run", rows_of([0.5]))
    assert "at least one" in refused(capsys, "report")
    assert "does not exist" in refused(capsys, "report", tmp_path / "none")
    file = tmp_path / "run/config.toml"
    assert f"{file} is a file: name the directory" in refused(capsys, "report", file)
    (tmp_path / "empty").mkdir()
    assert "no folder in it has" in refused(capsys, "report", tmp_path / "run", tmp_path / "empty")
    assert ".html" in refused(
        capsys, "report", tmp_path / "run", "--out", tmp_path / "run/config.toml"
    )
    assert "no directory" in refused(
        capsys, "report", tmp_path / "run", "--out", tmp_path / "a/b.html"
    )
    (tmp_path / "dir.html").mkdir()
    assert "is a directory" in refused(
        capsys, "report", tmp_path / "run", "--out", tmp_path / "dir.html"
    )


def test_folders_are_searched_and_runs_taken_once(tmp_path):
    for name in ("a", "b/c", "b/d/e"):
        make_run(tmp_path / name, rows_of([0.5]))
    paths = find_runs((tmp_path / "b", tmp_path / "a", tmp_path / "a/../a", tmp_path))
    assert [p.resolve().relative_to(tmp_path.resolve()).as_posix() for p in paths] == [
        "b/c",
        "b/d/e",
        "a",
    ]


def test_the_page_is_made_without_jax(tmp_path):
    code = (
        "import sys; from pathgrad._cli.main import main; "
        f"code = main(['report', {str(RESULTS / 'toy/demo')!r}, '--out', {str(tmp_path / 'p.html')!r}]); "
        "sys.exit(code or 'jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    assert "toy correlated: path and total" in (tmp_path / "p.html").read_text("utf-8")


@pytest.mark.parametrize(
    "arrays", [{"fields": np.zeros(3)}, {"x": np.array(["a"])}, {"log_weight": np.full(9, np.nan)}]
)
def test_odd_arrays_do_not_keep_the_page_from_being_made(tmp_path, arrays):
    run = make_run(tmp_path / "run", rows_of([0.2, 0.5, 0.9]))
    np.savez(run.output("evaluation.npz"), **arrays)
    text = page_of(run.path)
    assert ("holds something else than expected" in text) == ("log_weight" not in arrays)
    assert "Log-weights" not in text


def test_the_run_is_left_as_it_was(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5]))
    before = sorted((p.name, p.stat().st_mtime_ns) for p in run.path.iterdir())
    read_run(run.path)
    assert sorted((p.name, p.stat().st_mtime_ns) for p in run.path.iterdir()) == before


def test_names_of_runs_stay_as_they_are(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / f"frey-s{seed}", rows_of([0.5]), seed=seed, steps=99)
    text = page_of(tmp_path / "frey-s0", tmp_path / "frey-s1")
    assert "<p>frey-s0: Stopped at step 10 of 99" in text


def test_a_picture_too_large_for_the_page_is_named(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5]))
    file = run.output("evaluation.png")
    for size, shown in ((1_000, True), (3_000_000, False)):
        file.write_bytes(b"\x89PNG\r\n\x1a\n".ljust(size, b"."))
        text = page_of(run.path)
        assert ("data:image/png" in text) == shown
        assert (f"too large for this page (3.0 MB): see <code>{file}</code>" in text) != shown
