"""Build an autoencoder and its training from options, with public names only."""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key

import pathgrad as pg
from pathgrad._words.memory import check_memory

from ..flows.making import ADJOINTS, ESTIMATORS, make_divergence, make_integrator
from .amortised import AmortisedFlow, LogScaleHead, VarianceHead
from .augmentation import Augmentation, draw_pixels
from .data.datasets import Dataset
from .dreams import Dreaming
from .field import LowRank
from .gates import Gates
from .layers import Affine
from .likelihoods import (
    AbstractLikelihood,
    Bernoulli,
    DiscretisedLogistic,
    Softmax,
    SoftmaxOfFeatures,
    log_odds,
)
from .model import Autoencoder
from .networks import (
    AbstractDecoder,
    AbstractEncoder,
    CompactDecoder,
    CompactEncoder,
    MLPDecoder,
    MLPEncoder,
    PublishedDecoder,
    PublishedEncoder,
)
from .options import AutoencoderOptions, AutoencoderTrainOptions, check_least
from .watch import SolverWatch, settled

_FEATURES = 16  # outputs of a decoder for a pixel, of which 256 logits are made
_WATCHED = 200  # images by which the solver is watched
_HEAD_SCALE = 0.3  # factor on the initial weights of what images add to fields


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """The weight of the KL term: it grows to one over some steps, or over some epochs with each of them."""

    steps: int
    epochs: int
    steps_per_epoch: int

    def __call__(self, step: Int[Array, ""] | int) -> Float[Array, ""]:
        """Return the weight at a step, counted from zero."""
        epoch = jnp.asarray(step) // self.steps_per_epoch
        by_epoch = jnp.minimum((epoch + 1) / max(self.epochs, 1), 1.0)
        return by_epoch * jnp.minimum((jnp.asarray(step) + 1) / max(self.steps, 1), 1.0)

    @property
    def length(self) -> int:
        """Steps until it is over."""
        return max(self.steps, self.epochs * self.steps_per_epoch)


def make_training(options: AutoencoderTrainOptions, model: Autoencoder, dataset: Dataset) -> pg.Training:
    """Return the training of a model on images that the options describe."""
    data = pg.Data(
        dataset.train,
        change=draw_pixels if dataset.binarise_each_batch else None,
        augment=Augmentation(options.shifts, flips=options.flips, until=options.augment_until).or_none,
    )
    epoch = data.steps_per_epoch(options.batch)
    warm_up = WarmUp(options.kl_warmup, options.warmup_epochs, epoch)
    every = -(-options.validate // epoch) * epoch
    elbo = pg.NegativeELBO(data, ESTIMATORS[options.estimator](), warm_up)
    return pg.Training(
        with_first_bias(model, dataset),
        Dreaming(elbo) if options.is_dreaming else elbo,
        pg.FirstOrder(
            _optimizer(options),
            options.batch,
            block=options.block,
            average=options.average or None,
            rate=_rate(options),
        ),
        options.epochs * epoch,
        pg.Validation(
            # No gradient is needed here, and log q without its score is cheapest.
            pg.NegativeELBO(pg.Data(dataset.validation), pg.TotalGradient()),
            every=every,
            n=options.batch,
            patience=options.patience,
            patient_until=warm_up.length,
            watch=SolverWatch(dataset.validation[:_WATCHED]),
        ),
        settle=settled,
    )


def _rate(options: AutoencoderTrainOptions) -> pg.Trapezoid | None:
    is_constant = not options.rate_warmup and options.rate_hold == 1
    return None if is_constant else pg.Trapezoid(options.rate_warmup, options.rate_hold)


def _optimizer(options: AutoencoderTrainOptions) -> optax.GradientTransformation:
    rate = options.learning_rate
    made = optax.adam(rate) if options.optimizer == "adam" else optax.adamax(rate, eps=1e-7)
    return optax.chain(optax.clip_by_global_norm(options.clip), made) if options.clip else made


def with_first_bias(model: Autoencoder, dataset: Dataset) -> Autoencoder:
    """Begin with the mean of the training images, where the decoder has a bias for each pixel."""
    if dataset.levels > 2 or not hasattr(model.decoder, "bias"):
        return model
    return eqx.tree_at(lambda m: m.decoder.bias, model, log_odds(dataset.train))


def make_model(
    options: AutoencoderOptions, shape: tuple[int, int], levels: int, *, key: Key[Array, ""]
) -> Autoencoder:
    """Return the untrained model for images of this shape."""
    if any(side < 4 or side % 4 for side in shape):
        raise ValueError(f"Both sides of the images must be multiples of four, got {shape}.")
    check_least(1, channels=options.network.channels, latent=options.latent)
    flow, hidden = options.flow, options.network.hidden
    check_least(0, hidden=hidden)
    for_each = hidden + options.network.channels + 2 * max(0, flow.cnfs) * flow.width
    weights = options.latent * for_each + hidden * shape[0] * shape[1]
    check_memory(
        4 * weights, latent=options.latent, width=flow.width, cnfs=flow.cnfs, hidden=hidden,
        channels=options.network.channels,
    )  # fmt: skip
    keys = jr.split(key, 4)
    likelihood = make_likelihood(options, levels, key=keys[3])
    encoder, decoder = make_networks(options, shape, likelihood.outputs, key=keys[0])
    flow = make_amortised_flow(options, encoder.features, levels, key=keys[1])
    return Autoencoder(encoder, flow, decoder, likelihood, levels)


def make_likelihood(options: AutoencoderOptions, levels: int, *, key: Key[Array, ""]) -> AbstractLikelihood:
    """Return the distribution of the pixels."""
    if levels == 2:
        return Bernoulli()
    if options.likelihood == "logistic":
        return DiscretisedLogistic()
    # The published decoder has 256 outputs of its own.
    return Softmax() if options.network.networks == "published" else SoftmaxOfFeatures(_FEATURES, key=key)


def make_networks(
    options: AutoencoderOptions, shape: tuple[int, int], outputs: int, *, key: Key[Array, ""]
) -> tuple[AbstractEncoder, AbstractDecoder]:
    """Return the encoder and the decoder."""
    given, latent, (one, other) = options.network, options.latent, jr.split(key)
    if given.networks == "published":
        channels = given.channels
        return (
            PublishedEncoder(shape, key=one, channels=channels),
            PublishedDecoder(shape, latent, outputs, key=other, channels=channels),
        )
    if given.networks == "mlp":
        return (
            MLPEncoder(shape, key=one, width=given.hidden),
            MLPDecoder(shape, latent, outputs, key=other, width=given.hidden),
        )
    decoder = CompactDecoder(
        shape,
        latent,
        outputs,
        key=other,
        hidden=given.hidden,
        coarse=given.channels,
        blocks=given.blocks,
        fine=given.fine_channels,
    )
    return CompactEncoder(shape, key=one, fine=16 if given.fine_channels else 0), decoder


def make_amortised_flow(
    options: AutoencoderOptions, features: int, levels: int, *, key: Key[Array, ""]
) -> AmortisedFlow:
    """Return what turns features into the flow of a posterior."""
    flow, latent = options.flow, options.latent
    if not 0 < abs(flow.end_time) < math.inf:
        raise pg.ArgumentError(f"{pg.named('end_time')} must be finite and not zero, got {flow.end_time}.")
    check_least(0, cnfs=flow.cnfs)
    divergence = make_divergence(flow.divergence, flow.depth, pg.Hutchinson(flow.probes, flow.noise))
    integrator = make_integrator(flow.solver, flow.solver_steps, flow.tolerance)
    base_key, head_key, field_key = jr.split(key, 3)
    head_keys, field_keys = jr.split(head_key, flow.cnfs), jr.split(field_key, flow.cnfs)
    if flow.field == "low-rank":
        sizes = flow.width, flow.depth, flow.rank, flow.activation
        families = tuple(LowRank(latent, *sizes, key=k) for k in field_keys)
        heads = tuple(
            Affine.random(features, family.size, key=k) for family, k in zip(families, head_keys, strict=True)
        )
        ends = [Affine.random(features, latent, key=k) for k in jr.split(base_key)]
        base = VarianceHead(*ends, is_grey=levels > 2)
    else:
        if flow.depth != 1:
            raise pg.ArgumentError(
                f"Gates have one hidden layer, got {pg.named('depth')} {flow.depth}. Leave it out, or choose "
                f"{pg.named('field')} low-rank."
            )
        families = tuple(Gates(latent, flow.width, key=k) for k in field_keys)
        heads = tuple(
            Affine.normal(features, family.size, key=k, scale=_HEAD_SCALE)
            for family, k in zip(families, head_keys, strict=True)
        )
        base = LogScaleHead.normal(features, latent, key=base_key)
    adjoint = ADJOINTS[flow.adjoint]
    return AmortisedFlow(
        base,
        heads,
        families,
        divergence=divergence,
        integrator=integrator,
        adjoint=adjoint,
        end_time=flow.end_time,
    )


def check_training(training: AutoencoderTrainOptions) -> None:
    """Raise an error unless the numbers make sense."""
    check_least(1, batch=training.batch, epochs=training.epochs, block=training.block)
    check_least(1, validate=training.validate)
    names = ("kl_warmup", "warmup_epochs", "rate_warmup", "patience")
    check_least(0, **{name: getattr(training, name) for name in names})
    for name in ("learning_rate", "max_seconds"):
        value = getattr(training, name)
        if value is not None and not 0 < value < math.inf:
            raise pg.ArgumentError(f"{pg.named(name)} must be a positive number, got {value}.")
    for name in ("average", "rate_hold", "shifts", "augment_until"):
        if not 0 <= getattr(training, name) <= 1:
            raise pg.ArgumentError(f"{pg.named(name)} must be from 0 to 1, got {getattr(training, name)}.")
    if not 0 <= training.clip < math.inf:
        raise pg.ArgumentError(f"{pg.named('clip')} must be at least 0, got {training.clip}.")
