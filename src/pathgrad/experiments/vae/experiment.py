"""Variational autoencoders of images. No JAX here: the command line imports this to print help."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pathgrad as pg
from pathgrad._data.files import data_folder
from pathgrad._words.paths import expanded

from ..options import unused_of
from .data.sources import SOURCES, resolve
from .options import AutoencoderEvaluateOptions, AutoencoderOptions, known_of, preset
from .verdict import read_verdict
from .words import explained, warming_up

_CURVES = (
    pg.Quantity("loss", "training loss", means="nats per image; down is better"),
    pg.Quantity("kl", "KL term", means="nats per image spent on the latent code"),
    # It does not vanish, because the divergence is noisy and the decoder is trained too.
    pg.Quantity("gradient_norm", "gradient norm", axis="log", means="of the flow and both networks together"),
    pg.Quantity("gradient_snr", "signal-to-noise ratio of the gradient", axis="log", means="up is better"),
    pg.Quantity("evaluations", "field evaluations of a step", means="work of the ODE solver"),
    pg.Quantity("evaluations_backward", "field evaluations of the backward pass", means="the adjoint's work"),
)
_REACHED = (pg.Quantity("epochs", "epochs"), pg.Quantity("best_epoch", "best epoch"))
_COSTS = (
    pg.Quantity("forward_evaluations", "forward evaluations", "{:.1f}"),
    pg.Quantity("backward_evaluations", "backward evaluations", "{:.1f}"),
    pg.Quantity("step_ms", "ms/step", "{:.1f}"),
    pg.Quantity("seconds", "training, s", "{:.1f}"),
    pg.Quantity("skipped", "skipped", "count"),
)
# Options that other networks than the compact ones do not have.
_VOID = {"mlp": ("channels", "blocks", "fine_channels"), "published": ("blocks", "fine_channels", "hidden")}


class VaeExperiment(pg.AbstractExperiment):
    """Train a variational autoencoder whose posterior is a continuous flow."""

    name: ClassVar[str] = "vae"
    summary: ClassVar[str] = "train a variational autoencoder of images, its posterior a flow"
    Options: ClassVar[type] = AutoencoderOptions
    EvaluateOptions: ClassVar[type] = AutoencoderEvaluateOptions
    presets: ClassVar[Mapping[str, str]] = {
        "cpu": "a compact model for one CPU core and an hour or less, with sizes for each data set",
        "paper": "the published model and training for the data set, meant for a day on a GPU",
        "tiny": "a small dense network, to try things out in a minute",
    }
    # Long, since a checkpoint holds arrays of the size of the weights four times: the current and the best
    # weights, and the optimiser's two moments (five times with an average of the weights).
    checkpoint_seconds: ClassVar[float] = 300.0
    cpu_devices: ClassVar[int] = 2
    incidental_options: ClassVar[tuple[str, ...]] = ("training.seed", "data", "training.epochs")
    shown_options: ClassVar[tuple[str, ...]] = ("dataset", "training.estimator")
    compared_options: ClassVar[tuple[str, ...]] = tuple(
        f"training.{name}" for name in ("estimator", "epochs", "max_seconds", "patience")
    )

    def defaults(self, /, **given: str) -> AutoencoderOptions:
        return preset(given.get("preset", "cpu"), given.get("dataset", "mnist"))

    def settled(self, options: AutoencoderOptions) -> tuple[AutoencoderOptions, list[str]]:
        """Resolve the folder and the data set, with a note if it is not the data set that was asked for."""
        if options.data is not None:  # a run may be evaluated from another directory
            data = str(expanded(options.data).resolve())
            options = dataclasses.replace(options, data=data)
        # A run states what was done.
        training = dataclasses.replace(options.training, dreams=options.training.is_dreaming)
        options = dataclasses.replace(options, training=training)
        dataset = resolve(options.dataset, data_folder(options.data))
        if dataset == options.dataset:
            return options, []
        note = (
            f"chardata.mat of {options.dataset} was not found; training on {dataset} instead, whose "
            "likelihoods cannot be compared with published ones."
        )
        return dataclasses.replace(options, dataset=dataset), [note]  # pyright: ignore[reportArgumentType]

    def build(self, options: AutoencoderOptions) -> Any:
        from .problem import AutoencoderProblem

        return AutoencoderProblem(options)

    def unused(self, options: AutoencoderOptions) -> Mapping[str, str]:
        """Return the options that others make void."""
        flow, kind = options.flow, options.network.networks
        void = dict.fromkeys(_VOID.get(kind, ()), f"{pg.named('networks')} is {kind}")
        if not options.training.shifts:
            void["augment_until"] = f"{pg.named('shifts')} is 0"
        if not flow.cnfs:
            names = [field.name for field in dataclasses.fields(flow) if field.name != "cnfs"]
            return void | dict.fromkeys(names, f"{pg.named('cnfs')} is 0")
        if flow.divergence != "hutchinson":
            void["noise"] = f"{pg.named('divergence')} is {flow.divergence}"
        if flow.field == "gates":
            void |= dict.fromkeys(("rank", "activation"), f"{pg.named('field')} is gates")
        return void | unused_of(flow)

    def may_change(self, options: AutoencoderOptions) -> tuple[str, ...]:
        return "training.epochs", "training.patience", "training.max_seconds", "data"

    def problem(self, options: pg.OptionsTable) -> str:
        return str(options.get("dataset", AutoencoderOptions.dataset))

    def title(self, options: pg.OptionsTable) -> str:
        return f"{self.name} {known_of(self.problem(options)).title}"

    def length(self, options: pg.OptionsTable) -> tuple[str, float | None]:
        return "epoch", pg.number_in(options.get("training"), "epochs")

    def doubts(self, runs: Sequence[pg.Run], seconds: float) -> list[str]:
        """Return a caveat if the KL warm-up was not over after so many seconds of training."""
        rows = [row for run in runs for row in [row for row in run.rows if row.seconds <= seconds][-1:]]
        weights = [beta for row in rows if (beta := warming_up(row)) is not None]
        caveat = f"The KL warm-up of {runs[0].method} was not over at that point: the KL term had weight"
        return [f"{caveat} {min(weights):.2g}."] if weights else []

    def followed(self, options: pg.OptionsTable) -> pg.Quantity:
        means = "on images not used for training; down is better"
        return self._likelihood(options, "validation", "validation negative ELBO", means=means, best=True)

    def result(self, options: pg.OptionsTable) -> pg.Quantity:
        return self._likelihood(options, "negative_elbo", "negative ELBO", compared=True)

    def published(self, options: pg.OptionsTable) -> Mapping[str, float]:
        return known_of(self.problem(options)).results

    def curves(self, options: pg.OptionsTable) -> Sequence[pg.Quantity]:
        return _CURVES

    def measured(self, options: pg.OptionsTable) -> Sequence[pg.Quantity]:
        return (
            pg.Quantity("images", "test images", "count"),
            pg.Quantity("failed", "failed images", "count"),
            pg.Quantity("epoch", "epoch"),
            self._likelihood(options, "best_validation", "best validation"),
            self.result(options),
            self._likelihood(options, "negative_elbo_by_batch", "averaged by batch, as in the paper"),
            pg.Quantity("bits_per_dim", "bits/dim", "{:.4f}"),
            pg.Quantity("reconstruction", "reconstruction", "{:.2f}", "nats"),
            pg.Quantity("kl", "KL", "{:.2f}", "nats"),
            self._likelihood(options, "nll", "NLL", compared=True),
            # The NLL depends on the images and on the number of draws, so comparisons show both.
            pg.Quantity("nll_images", "NLL images", "count", compared=True),
            pg.Quantity("nll_samples", "NLL draws", "count", compared=True),
            self._likelihood(options, "nll_images_negative_elbo", "negative ELBO of the same images"),
            pg.Quantity("nll_effective_samples", "effective draws, median", "{:.1f}"),
            pg.Quantity("solver_shift_rms", "solver shift, RMS", "{:.1e}", "nats"),
            pg.Quantity("evaluations", "field evaluations", "{:.1f}"),
        )

    def _likelihood(self, options: pg.OptionsTable, name: str, title: str, **more: Any) -> pg.Quantity:
        """Return a quantity in the unit of the data set: bits per pixel for grey images, nats for others."""
        source = SOURCES.get(self.problem(options))
        if source is None or source.levels == 2:
            return pg.Quantity(name, title, "{:.2f}", "nats", better=-1, **more)
        bit = math.prod(source.pixels) * math.log(2)
        return pg.Quantity(name, title, "{:.3f}", "bits/dim", bit, better=-1, **more)

    def columns(self, options: pg.OptionsTable) -> list[pg.Quantity]:
        measured = self.measured(options)
        best = [quantity for quantity in measured if quantity.name == "best_validation"]
        return [*_REACHED, *best, *(quantity for quantity in measured if quantity.compared), *_COSTS]

    def totals(self, rows: Sequence[pg.Row]) -> dict[str, Any]:
        """Return the number of epochs, and the mean number of field evaluations per step."""
        epochs = [epoch for row in rows if (epoch := row.value("epoch")) is not None]
        return {
            "epochs": epochs[-1] if epochs else None,
            "forward_evaluations": _mean_of_steps(rows, "evaluations"),
            "backward_evaluations": _mean_of_steps(rows, "evaluations_backward"),
        }

    def verdict(self, evaluation: pg.Numbers) -> pg.Verdict | None:
        return read_verdict(evaluation)

    def explained(self, runs: Sequence[pg.Run]) -> list[str]:
        return explained(runs)

    def warnings(self, run: pg.Run) -> list[str]:
        """Return a warning if the KL warm-up is not over."""
        beta = warming_up(run.last)
        if beta is None:
            return []
        return [
            f"The KL warm-up is not over: the KL term has weight {beta:.2g}, not 1. Train for more epochs, "
            f"or with less {pg.named('kl_warmup')} and {pg.named('warmup_epochs')}."
        ]

    def panels(self) -> Mapping[str, pg.Panel]:
        from .figures import PANELS

        return PANELS


def _mean_of_steps(rows: Sequence[pg.Row], name: str) -> float | None:
    before = [0, *(row.step for row in rows)]
    known = [
        (row.step - b, v) for row, b in zip(rows, before, strict=False) if (v := row.value(name)) is not None
    ]
    steps = sum(block for block, _ in known)
    return sum(block * value for block, value in known) / steps if steps else None


VAE = VaeExperiment()
