"""How a solve, a training step or a training run ended. Each member carries its own message."""

import enum

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .errors import in_python, named


class Outcome(enum.IntEnum):
    """How a solve or a training step ended; a plain number in compiled code.

    Anything but `FINE` is a failure. For solves in sequence the first failure is kept, for parallel ones
    (chunks, devices) the largest number.

    Attributes:
        text: What happened and what to do about it, with the names of arguments marked.
    """

    text: str

    def __new__(cls, value: int, text: str) -> "Outcome":
        """Make a member from its number and its message."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member

    @property
    def message(self) -> str:
        """What happened and what to do about it."""
        return in_python(self.text)

    FINE = 0, "nothing went wrong"
    TOO_MANY_STEPS = (
        1,
        "an ODE solve needed more steps than allowed: the field may have become stiff. Lower the learning "
        "rate, loosen the tolerance, use a fixed number of steps, or allow more of them "
        "(`Adaptive(max_steps=...)`, and `Discrete(max_steps=...)` if that adjoint is used)",
    )
    STEP_TOO_SHORT = (
        2,
        "an ODE solve could not meet its tolerance even with the shortest step that the precision allows: "
        "the field is not finite somewhere, or very stiff. Lower the learning rate, loosen the tolerance, "
        "or use a fixed number of steps",
    )
    STATE_NOT_FINITE = (
        3,
        "the state of an ODE solve became infinite or NaN: the field may have become stiff. Lower the "
        "learning rate, or take more steps",
    )
    TARGET_NOT_FINITE = (
        4,
        "the target's log density was NaN or infinite at a draw (is it finite everywhere the flow can go?)",
    )
    DENSITY_NOT_FINITE = (
        5,
        f"the flow's own log density was not finite (the {named('learning_rate')} may be too high)",
    )
    GRADIENT_NOT_FINITE = (
        6,
        "the gradient was not finite (does the target have a gradient everywhere? `jnp.where` around an "
        "undefined branch still differentiates it)",
    )
    UPDATE_NOT_FINITE = (
        7,
        f"the gradient was finite, but the optimiser's update was not (check its {named('learning_rate')})",
    )
    VALIDATION_NOT_FINITE = (
        8,
        f"the validation loss was not finite. A lower {named('learning_rate')} in a new run may help",
    )


def failure_if(condition: Bool[Array, "..."], failure: Outcome) -> Int[Array, "..."]:
    """Return `failure` where a condition holds, and `FINE` elsewhere."""
    return jnp.where(condition, failure, Outcome.FINE).astype(jnp.int32)


def first_failure(*outcomes: Int[Array, "..."]) -> Int[Array, "..."]:
    """Return the first failure, or `FINE`: later failures are likely consequences of the first."""
    first = outcomes[0]
    for other in outcomes[1:]:
        first = jnp.where(first == Outcome.FINE, other, first)
    return first


class Stop(enum.Enum):
    """Why a training run ended. The value is the message to show."""

    STEPS_TAKEN = "all its steps are taken"
    TIME_USED_UP = f"its {named('max_seconds')} are used up"
    GOOD_ENOUGH = "fresh draws show that the flow is good"
    PATIENCE_USED_UP = f"the validation has not improved for longer than {named('patience')} allows"

    @property
    def text(self) -> str:
        """The message, with the names of arguments marked."""
        return self.value

    @property
    def message(self) -> str:
        """The message, for somebody who calls the library from Python."""
        return in_python(self.text)
