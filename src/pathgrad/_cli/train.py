"""`pathgrad train EXPERIMENT`: the same for all of them."""

import contextlib
import dataclasses
import inspect
import shlex
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro

import pathgrad as pg
from pathgrad._runs.rundir import RunDir
from pathgrad._runs.status import resume_command
from pathgrad._train.progress import report
from pathgrad._words.errors import UserError, as_options

from .arguments import given_words, option_fields, parse, with_first_word
from .processes import Processes


@dataclasses.dataclass(frozen=True)
class Where:
    """The run directory, and who trains in it."""

    out: Path | None = None
    """Directory of the run. By default one in runs/, named after experiment, method and seed."""
    resume: bool = False
    """Go on with the run in --out from its last checkpoint, to the same bits as without the break (on as many
    devices). Its options are those of the run; how long it goes on (--steps, --max-seconds, ...) may be given
    anew (a decaying learning rate then follows the new number of steps)."""
    overwrite: bool = False
    """Replace the run in --out. Without this, nothing that exists is touched."""
    checkpoint_seconds: float = 10.0
    """A killed run loses at most this much work, and the block at hand."""
    together: Processes = Processes()


def run(prog: str, words: list[str]) -> int:
    """Train, from the beginning or from a checkpoint: one run, or the series that the options plan."""
    experiment = pg.find_experiment(prog.split()[-1])
    kind = _command_of(experiment)
    words = with_first_word(experiment, kind, words)
    given = given_words(words)
    resumed = _resumed(experiment, given) if "resume" in given else None
    parsed: Any = parse(kind, prog, words, kind(_default(experiment, given, resumed)))
    where: Where = parsed.run
    options = getattr(parsed, experiment.name.replace("-", "_"))
    for note in [] if resumed else experiment.settled(options)[1]:
        print(f"pathgrad: {note}", file=sys.stderr)
    out = where.out or Path("runs") / options.name
    plan = experiment.planned(options, getattr(parsed, "preset", ""), out)
    several = [path for path, _ in plan] != [out]
    again = as_options(resume_command(experiment, out))
    if several:
        kept = [word for word in words if word not in ("--overwrite", "--resume")]
        kept += [] if where.out else ["--out", str(out)]
        again = f"{prog} {shlex.join(kept)} --resume"
    with where.together.together(f"Go on with all of them: {again}"):
        if several:
            return _train_series(experiment, plan, out, where, again)
        return train(experiment, plan[0][1], out, where, resumed=resumed, again=again)


def _train_series(
    experiment: pg.AbstractExperiment, plan: list[tuple[Path, Any]], out: Path, where: Where, again: str
) -> int:
    """Train several runs, one after the other, and sum them up."""
    if not pg.devices.is_alone():
        raise UserError("this trains several runs, one after the other: start a single process.")
    if where.overwrite:  # what is left of an older series must not pass for a part of this one
        for path in experiment.series(out):
            if (path / "config.toml").exists() and RunDir(path).config.get("experiment") == experiment.name:
                RunDir(path).remove()
    for path, options in plan:
        print(f"\n{path}", flush=True)
        resumed = None
        if where.resume and (path / "config.toml").exists():
            resumed = pg.Run.open(path, experiment)
        if code := train(experiment, options, path, where, resumed=resumed, again=again):
            return code
    _tell_series([path for path, _ in plan])
    return 0


def _command_of(experiment: pg.AbstractExperiment) -> type:
    """Return the dataclass of a training command: the options, where they come from, where to."""
    fields = option_fields(experiment)
    said = "Take the options of this config.toml (of an earlier run) as defaults, to repeat or vary it."
    fields.append(("config", Annotated[Path | None, tyro.conf.arg(help=said)], None))
    fields.append(("run", Where, Where(checkpoint_seconds=experiment.checkpoint_seconds)))
    doc = inspect.getdoc(experiment.Options)
    return dataclasses.make_dataclass("Train", fields, frozen=True, namespace={"__doc__": doc})


def _default(experiment: pg.AbstractExperiment, given: dict[str, str], resumed: pg.Run | None) -> Any:
    """Return the options that those on the command line are to replace."""
    if resumed is not None:
        return resumed.settings
    if "config" not in given:
        return experiment.defaults(**given)
    file = given["config"]
    try:
        contents = tomllib.loads(Path(file).read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"--config {file} cannot be read: {error}") from error
    if contents.get("experiment") != experiment.name:
        kind = contents.get("experiment")
        raise UserError(f"{file} is of the experiment {kind!r}, not {experiment.name!r}.")
    return experiment.adapted(experiment.read(contents.get("options", {}), file), **given)


def _resumed(experiment: pg.AbstractExperiment, given: dict[str, str]) -> pg.Run | None:
    """Return the run to go on with; `None` where there is a series of them."""
    if "out" not in given:
        raise UserError("--resume needs --out, the directory of the run to go on with.")
    path = Path(given["out"])
    is_series = not (path / "config.toml").exists() and any(path.glob("*/config.toml"))
    return None if is_series else pg.Run.open(path, experiment)


def train(
    experiment: pg.AbstractExperiment,
    options: Any,
    out: Path,
    where: Where,
    *,
    resumed: pg.Run | None = None,
    again: str | None = None,
) -> int:
    """Train in a run directory and tell about it; return the exit code. `again` is the command to go on."""
    began = time.monotonic()
    talks = pg.devices.is_first()
    with pg.session(experiment, options, out, resumed=resumed, overwrite=where.overwrite) as work:
        if talks:
            _tell_idle(work)
        below: list[pg.Row] = []
        row, ended = None, False
        shown = report(work.training.steps, visible=talks, max_seconds=work.max_seconds)
        try:
            with _stop_signals(talks=talks) as stopped, shown as tell:
                for row in work.rows(where.checkpoint_seconds):
                    if row.below_bound is not None:
                        below.append(row)
                    if talks and below and row is below[0]:
                        print(_alarm(row), file=sys.stderr)
                    tell(row)
                    # A signal may reach one process only, and all must stop at the same step.
                    if ended := pg.devices.any_process(stopped()):
                        work.save()
                        break
        except pg.TrainingDiverged as failure:
            if talks:
                print(f"pathgrad: {as_options(failure.text)} They are saved in {out}.", file=sys.stderr)
            return 1
        if talks and ended:
            said = f"stopped at step {int(work.state.step)} and saved. Go on with: {again}"
            print(f"pathgrad: {said}", file=sys.stderr)
        elif talks:
            _summarise(work, row, time.monotonic() - began, below)
    return 130 if ended else 0


def _tell_idle(work: "pg.Session") -> None:
    used, there = work.trainer.devices, pg.devices.number_in_all()
    if used < there:
        why = "their number must divide the --batch, and gauss-newton uses one"
        print(f"pathgrad: {used} of {there} devices are used: {why}", file=sys.stderr)


def _alarm(row: pg.Row) -> str:
    assert row.loss is not None
    assert row.below_bound is not None
    return (
        f"\npathgrad: warning: at step {row.step} the loss {row.loss:.4f} is {row.below_bound:.4f} below "
        f"-log Z = {row.loss + row.below_bound:.4f}, which no density can reach: the solver is too coarse "
        "for log q. Take more --solver-steps; path gradients suffer from it least."
    )


@contextlib.contextmanager
def _stop_signals(*, talks: bool) -> Iterator[Callable[[], bool]]:
    """Note Ctrl-C and SIGTERM, to stop after the block at hand; a second Ctrl-C stops at once."""
    seen: list[int] = []

    def note(number: int, frame: object) -> None:
        if seen and number == signal.SIGINT:
            raise KeyboardInterrupt
        seen.append(number)
        if talks:
            print("\npathgrad: stopping after this block (again to stop at once)", file=sys.stderr)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_LAST = {
    "ess": "ESS {:.2%}",
    "loss": "loss {:.5f}",
    "kl": "KL {:.5f}",
    "gradient_norm": "gradient norm {:.3g}",
    "epoch": "epoch {:.4g}",
    "validation": "validation {:.3f}",
    "best_validation": "best {:.3f}",
    "waiting": "{} without a better one",
    "skipped": "{} steps skipped in all",
}


def _summarise(work: "pg.Session", row: pg.Row | None, wall: float, below: list[pg.Row]) -> None:
    trainer, path, steps = work.trainer, work.run.path, int(work.state.step)
    why = "" if trainer.stopped is None else as_options(trainer.stopped.text)
    if row is None:
        print(f"{path} has nothing to do at step {steps}: {why}. (Give it more to go on.)")
        return
    if trainer.stopped not in (None, pg.Stop.STEPS_TAKEN):
        print(f"Stopped: {why}.")
    rate = trainer.seconds / steps * 1e3
    print(
        f"{steps} steps in {trainer.seconds:.1f} s ({rate:.2f} ms a step; compiling took "
        f"{trainer.compile_seconds:.1f} s, {wall:.1f} s in all on {trainer.devices} "
        f"{pg.devices.kind()} device{'s' if trainer.devices > 1 else ''})."
    )
    told = [form.format(v) for name, form in _LAST.items() if (v := row.value(name)) is not None]
    print(f"Last block: {', '.join(told)}.")
    print(f"Saved in {path}. Next: pathgrad evaluate {shlex.quote(str(path))}")
    if below:
        print(
            f"Warning: {len(below)} rows of the metrics, the last at step {below[-1].step}, have a loss "
            "below -log Z: the densities of training are wrong by at least that much. `pathgrad "
            "evaluate` solves more finely and says what the flow is worth."
        )


def _tell_series(paths: list[Path]) -> None:
    """Sum up several runs that were trained one after the other."""
    print("\n   run    steps   seconds    in all   last block")
    in_all = 0.0
    for path in paths:
        found = pg.Run.open(path)
        quantity = found.experiment.followed(found.options)
        in_all += found.at_end("seconds") or 0.0
        print(
            f"{path.name:>6} {found.at_end('step') or 0:8.0f} {found.at_end('seconds') or 0.0:9.1f} "
            f"{in_all:9.1f}   {quantity.title} {quantity.write(quantity.value(found.numbers))}"
        )
    print(f"Next: pathgrad evaluate {shlex.quote(str(paths[-1]))}")
