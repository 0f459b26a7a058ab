"""The library does without the packages of the command line, which say what to install."""

import subprocess
import sys

from .run_helpers import make_run, rows_of

EXTRA = ("matplotlib", "pooch", "rich", "tyro")


def run_without(code):
    """Run code where the packages of the extra `cli` are not installed."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({EXTRA}))"
    done = subprocess.run([sys.executable, "-c", f"{hidden}\n{code}"], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_every_public_name_is_there_without_the_extra(tmp_path):
    make_run(tmp_path / "run", rows_of([0.5, 0.9]), experiment="toy", target="correlated")
    code, said = run_without(
        f"""
import pathgrad as pg
for name in pg.__all__:
    getattr(pg, name)
experiment = pg.find_experiment("toy")
problem = experiment.build(experiment.defaults())
run = pg.Run.open({str(tmp_path / "run")!r})
pg.compare_groups(pg.group_runs([run]))
print(run.label)
"""
    )
    assert code == 0, said
    assert said.startswith("toy correlated")


def test_commands_name_what_is_missing_in_one_line():
    commands = (["--help"], ["compare", "x"], ["train", "toy"], ["report", "x"])
    codes = f"[main(words) for words in {commands}]"
    _, said = run_without(f"from pathgrad._cli.main import main; print({codes})")
    lines = said.strip().splitlines()
    assert "[0, 2, 2, 2]" in lines
    assert [line.count('pip install "pathgrad[cli]"') for line in lines[-4:]].count(1) == 3
