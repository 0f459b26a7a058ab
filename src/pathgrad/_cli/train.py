"""`pathgrad train EXPERIMENT`, the same for all experiments."""

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
from pathgrad._runs.sources import Trust, check_near, named_again
from pathgrad._runs.status import resume_command
from pathgrad._train.progress import at_first_use, report
from pathgrad._words.errors import UserError, as_options, check_seconds

from .arguments import check_used, given_words, option_fields, parse, with_first_word
from .evaluate import evaluate
from .processes import CpuDevices, Processes
from .trusting import check_notes, tell_notes


@dataclasses.dataclass(frozen=True)
class Where:
    """The run directory, and the processes that train in it."""

    out: Path | None = None
    """Directory of the run. By default one in runs/, named after experiment, method and seed."""
    resume: bool = False
    """Continue the run in --out from its last checkpoint; the result has the same bits as without a break (on
    the same number of devices). The run keeps its options, but its length (--steps, --max-seconds, ...) may
    change (a decaying learning rate then follows the new number of steps)."""
    overwrite: bool = False
    """Replace the run in --out. Without this, nothing that exists is touched."""
    checkpoint_seconds: float = 10.0
    """Seconds between checkpoints: a killed run loses at most this much work, and the current block."""
    trust: bool = False
    """Resume (or repeat, with --config) a run even if that runs code that only its options name, from outside
    the working directory, or code or options that have changed since."""
    cpu_devices: CpuDevices = None
    processes: Processes = Processes()


def run(prog: str, words: list[str]) -> int:
    """Train, from scratch or from a checkpoint: one run, or the series that the options plan."""
    experiment = pg.find_experiment(prog.split()[-1])
    kind = _command_of(experiment)
    words = with_first_word(experiment, kind, words)
    given = given_words(words)
    resumed = _resumed(experiment, given) if "resume" in given else None
    parsed: Any = parse(kind, prog, words, kind(_default(experiment, given, resumed)))
    where: Where = parsed.run
    options = getattr(parsed, experiment.name.replace("-", "_"))
    if resumed is None:
        check_used(given, experiment.unused(options))
    for note in [] if resumed else experiment.settled(options)[1]:
        print(f"pathgrad: {note}", file=sys.stderr)
    out = where.out or Path("runs") / options.name
    check_seconds(checkpoint_seconds=where.checkpoint_seconds)
    if "config" in given and not where.trust:
        for source in experiment.sources(options):
            if source.name not in given:
                check_near(source, given["config"], Path(given["config"]).parent, "beside the configuration")
    check_notes(resumed)
    plan = experiment.planned(options, getattr(parsed, "preset", ""), out)
    several = [path for path, _ in plan] != [out]
    again = as_options(resume_command(experiment, out) + named_again(experiment, options))
    if several:
        kept = [word for word in words if word not in ("--overwrite", "--resume")]
        kept += [] if where.out else ["--out", str(out)]
        again = f"{prog} {shlex.join(kept)} --resume"
    before = pg.number_in(resumed.config.get("provenance"), "devices") if resumed else None
    where.processes.split_cpu(experiment, where.cpu_devices, int(before) if before else None)
    with where.processes.together(f"Continue with all of them: {again}"):
        tell_notes(resumed)
        if several:
            return _train_series(experiment, plan, out, where, again)
        return train(experiment, plan[0][1], out, where, resumed=resumed, again=again)


def _train_series(
    experiment: pg.AbstractExperiment, plan: list[tuple[Path, Any]], out: Path, where: Where, again: str
) -> int:
    """Train several runs, one after the other, and print a summary."""
    if not pg.devices.is_alone():
        raise UserError("This command trains several runs, one after the other. Start a single process.")
    if where.overwrite:  # runs left over from an older series must not pass for part of this one
        for path in experiment.series(out):
            if (path / "config.toml").exists() and RunDir(path).config.get("experiment") == experiment.name:
                RunDir(path).remove()
    for path, options in plan:
        print(f"\n{path}", flush=True)
        resumed = None
        if where.resume and (path / "config.toml").exists():
            resumed = pg.Run.open(path, experiment, trust=where.trust)
        if code := train(experiment, options, path, where, resumed=resumed, again=again):
            return code
    _print_series([path for path, _ in plan])
    return 0


def _command_of(experiment: pg.AbstractExperiment) -> type:
    """Return the dataclass of a training command: options, their defaults, and the run directory."""
    fields = option_fields(experiment)
    config = "Use the options in this config.toml of an earlier run as defaults, to repeat or vary that run."
    fields.append(("config", Annotated[Path | None, tyro.conf.arg(help=config)], None))
    fields.append(("run", Where, Where(checkpoint_seconds=experiment.checkpoint_seconds)))
    doc = inspect.getdoc(experiment.Options)
    return dataclasses.make_dataclass("Train", fields, frozen=True, namespace={"__doc__": doc})


def _default(experiment: pg.AbstractExperiment, given: dict[str, str], resumed: pg.Run | None) -> Any:
    """Return the options that those on the command line replace."""
    if resumed is not None:
        return resumed.settings
    if "config" not in given:
        return experiment.defaults(**given)
    file = given["config"]
    try:
        contents = tomllib.loads(Path(file).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--config {file} cannot be read: {error}") from error
    if contents.get("experiment") != experiment.name:
        kind = contents.get("experiment")
        raise UserError(f"{file} belongs to {kind!r}, not to {experiment.name!r}. Name another file.")
    options = contents.get("options", {})
    if not isinstance(options, dict):
        raise UserError(f"{file}: options = {options!r} is not a table. Write `[options]` and their names.")
    return experiment.adapted(experiment.read(options, file), **given)


def _resumed(experiment: pg.AbstractExperiment, given: dict[str, str]) -> pg.Run | None:
    """Return the run to resume; `None` where there is a series of them."""
    if "out" not in given:
        raise UserError("--resume needs --out, the directory of the run to continue.")
    path = Path(given["out"])
    is_series = not (path / "config.toml").exists() and any(path.glob("*/config.toml"))
    check_used(given, {"overwrite": "--resume continues what is there"})
    if is_series:
        return None
    check_used(given, dict.fromkeys(("config", "preset"), "a resumed run keeps its options"))
    opened = pg.Run.open(path, experiment, trust="trust" in given)
    named = any(source.name in given for source in experiment.sources(opened.settings))
    return opened.with_trust(Trust.NAMED) if named else opened


def train(
    experiment: pg.AbstractExperiment,
    options: Any,
    out: Path,
    where: Where,
    *,
    resumed: pg.Run | None = None,
    again: str | None = None,
) -> int:
    """Train in a run directory, print the outcome, return the exit code. `again` is the resume command."""
    began = time.monotonic()
    is_first = pg.devices.is_first()
    with (
        at_first_use(visible=is_first) as (tell_deciding, close),
        pg.session(
            experiment,
            options,
            out,
            resumed=resumed,
            overwrite=where.overwrite,
            tell=tell_deciding,
            note=print,
        ) as work,
    ):
        close()
        if is_first:
            _print_idle(work)
        below: list[pg.Row] = []
        ended = diverged = False
        shown = report(work.training.steps, visible=is_first, max_seconds=work.max_seconds)
        try:
            with _stop_signals(is_first=is_first) as stopped, shown as tell:
                for row in work.rows(where.checkpoint_seconds):
                    if row.below_bound is not None:
                        below.append(row)
                    if is_first and below and row is below[0]:
                        print(_alarm(row), file=sys.stderr)
                    tell(row)
                    # A signal may reach one process only, and all must stop at the same step.
                    if ended := pg.devices.any_process(stopped()):
                        work.save()
                        break
        except pg.TrainingDiverged as failure:
            diverged = True
            if is_first:
                print(f"pathgrad: {as_options(failure.text)} They are saved in {out}.", file=sys.stderr)
        if is_first and ended:
            text = f"stopped at step {int(work.state.step)} and saved. Continue with: {again}"
            print(f"pathgrad: {text}", file=sys.stderr)
        elif is_first and not diverged:
            _summarise(work, time.monotonic() - began, below)
    if experiment.is_evaluated_at_end and not ended:
        if is_first and diverged:
            print("The best flow from before that is evaluated.", flush=True)
        _evaluate(pg.Run.open(out, experiment).with_trust(work.run.trust))
    return 130 if ended else int(diverged)


def _evaluate(trained: pg.Run) -> None:
    """Tell how the training went, evaluate the run, and say what to do next."""
    is_first = pg.devices.is_first()
    for line in trained.experiment.story(trained) if is_first else ():
        print(line)
    evaluate(trained, trained.experiment.first_evaluation(trained.options), seed=0, as_json=False)
    evaluated = pg.Run.open(trained.path, trained.experiment).with_trust(trained.trust)
    for line in evaluated.experiment.advice(evaluated) if is_first else ():
        print(as_options(line))


def _print_idle(work: "pg.Session") -> None:
    used, available = work.trainer.devices, pg.devices.number_in_all()
    if used < available:
        why = "their number must divide --batch, and gauss-newton uses one"
        print(f"pathgrad: only {used} of {available} devices are used: {why}", file=sys.stderr)


def _alarm(row: pg.Row) -> str:
    assert row.loss is not None
    assert row.below_bound is not None
    return (
        f"\npathgrad: warning: at step {row.step} the loss {row.loss:.4f} is {row.below_bound:.4f} below "
        f"-log Z = {row.loss + row.below_bound:.4f}, which no density can reach: the solver is too coarse "
        "for log q. Use more --solver-steps; path gradients suffer least from this."
    )


@contextlib.contextmanager
def _stop_signals(*, is_first: bool) -> Iterator[Callable[[], bool]]:
    """Catch Ctrl-C and SIGTERM, to stop after the current block; a second Ctrl-C stops at once."""
    seen: list[int] = []

    def note(number: int, frame: object) -> None:
        if seen and number == signal.SIGINT:
            raise KeyboardInterrupt
        seen.append(number)
        if is_first:
            print("\npathgrad: stopping after this block (Ctrl-C again: stop at once)", file=sys.stderr)

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
    "waiting": "{} validations without a better one",
    "skipped": "{} steps skipped in total",
}


def _summarise(work: "pg.Session", wall: float, below: list[pg.Row]) -> None:
    trainer, path, steps, row = work.trainer, work.run.path, int(work.state.step), work.last
    why = "" if trainer.stopped is None else as_options(trainer.stopped.text)
    if row is None:
        print(f"{path} has nothing to do at step {steps}: {why}. (Raise the limit to train further.)")
        return
    if trainer.stopped not in (None, pg.Stop.STEPS_TAKEN):
        print(f"Stopped: {why}.")
    rate = trainer.seconds / steps * 1e3
    print(
        f"{steps} steps in {trainer.seconds:.1f} s ({rate:.2f} ms per step; compiling took "
        f"{trainer.compile_seconds:.1f} s, {wall:.1f} s in total on {trainer.devices} "
        f"{pg.devices.kind()} device{'s' if trainer.devices > 1 else ''})."
    )
    numbers = [form.format(v) for name, form in _LAST.items() if (v := row.value(name)) is not None]
    print(f"Last block: {', '.join(numbers)}.")
    after = (
        "" if work.run.experiment.is_evaluated_at_end else f" Next: {as_options(work.run.evaluate_command)}"
    )
    print(f"Saved in {path}.{after}")
    if below:
        print(
            f"Warning: {len(below)} rows of the metrics, the last at step {below[-1].step}, have a loss "
            "below -log Z: the densities in training are wrong by at least that much. `pathgrad "
            "evaluate` uses a finer solver and shows how good the flow is."
        )


def _print_series(paths: list[Path]) -> None:
    """Print a summary of several runs that were trained one after the other."""
    print("\n   run    steps   seconds     total   last block")
    total = 0.0
    for path in paths:
        trained = pg.Run.open(path)
        quantity = trained.experiment.followed(trained.options)
        total += trained.at_end("seconds") or 0.0
        print(
            f"{path.name:>6} {trained.at_end('step') or 0:8.0f} {trained.at_end('seconds') or 0.0:9.1f} "
            f"{total:9.1f}   {quantity.title} {quantity.write(quantity.value(trained.numbers))}"
        )
    print(f"Next: pathgrad evaluate {shlex.quote(str(paths[-1]))}")
