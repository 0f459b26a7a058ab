"""The library does without optional packages, and says what to install where one is needed."""

import subprocess
import sys

from .run_helpers import make_run, rows_of

EXTRA = ("matplotlib", "pooch", "rich", "tyro")
# Of other extras. What is hidden and yet imported is an error, so none of them is loaded with the library.
OTHERS = ("numpyro", "funsor", "pymc", "arviz", "arviz_base", "xarray", "pandas")


def run_without(code):
    """Run code where the packages of the extras are not installed."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({EXTRA + OTHERS}))"
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
draws = {{"x": [[0.0]], "log_q": [0.0], "log_weight": [0.0]}}
for call in (pg.from_numpyro, pg.from_pymc, lambda of: pg.to_arviz(of, draws)):
    try:
        call(print)
    except pg.UserError as error:
        print(error)
"""
    )
    assert code == 0, said
    lines = said.splitlines()
    assert lines[0].startswith("toy correlated")
    wanted = [f'pip install "pathgrad[{extra}]"' for extra in ("numpyro", "pymc", "arviz")]
    assert [line.partition("with: ")[2] for line in lines[1:]] == wanted


def test_none_of_them_is_loaded_where_they_are_installed():
    code = "import pathgrad as pg; [getattr(pg, name) for name in pg.__all__]"
    code += f"; import sys; print([name for name in {OTHERS} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_commands_name_what_is_missing_in_one_line():
    commands = (["--help"], ["compare", "x"], ["train", "toy"], ["report", "x"])
    codes = f"[main(words) for words in {commands}]"
    _, said = run_without(f"from pathgrad._cli.main import main; print({codes})")
    lines = said.strip().splitlines()
    assert "[0, 2, 2, 2]" in lines
    assert [line.count('pip install "pathgrad[cli]"') for line in lines[-4:]].count(1) == 3
