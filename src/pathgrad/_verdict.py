"""What the numbers about a flow are worth: a value, and reasons that carry their own words.

No JAX here: those who only read results judge them by the same rules.
"""

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ._errors import named

_NO_SHIFT = 1e-5  # nobody quotes log Z closer than this, however small its error
_FEWEST_DRAWS = 21  # with fewer, not even five are left for the tail


class Level(enum.IntEnum):
    """How far numbers can be relied on, from the best to the worst."""

    GOOD = 0
    USABLE = 1
    UNKNOWN = 2
    UNRELIABLE = 3
    UNUSABLE = 4


class Reason(enum.Enum):
    """Why numbers are less than good. Each member knows how far it lowers the level, and what to say.

    Attributes:
        level: The best that numbers can be where the reason holds.
        brief: In a few words.
        message: In full, with what to do about it; made for the numbers by `explain`.
    """

    level: Level
    brief: str
    message: str

    def __init__(self, level: Level, brief: str, message: str) -> None:
        self.level, self.brief, self.message = level, brief, message

    FAILED_DRAWS = (
        Level.UNUSABLE,
        "failed draws",
        "{failed} of {samples} draws have no finite weight. Lower the learning rate, take more solver steps, "
        "or check the target for NaN.",
    )
    FEW_DRAWS = (
        Level.UNKNOWN,
        "too few draws",
        "{samples} draws are too few to judge the tail of the weights; take 1000 or more.",
    )
    HEAVY_TAIL = (
        Level.UNRELIABLE,
        "the tail of the weights",
        "K-hat {khat:.2f} is above {khat_limit:.2f}: a few draws dominate; train longer or use a larger "
        "flow, more draws will not help.",
    )
    TAIL_NEEDS_DRAWS = (
        Level.UNRELIABLE,
        "the tail of the weights",
        "K-hat {khat:.2f} is above {khat_limit:.2f} for {samples} draws; take at least {khat_draws} draws "
        "and look again.",
    )
    SLOW_TAIL = (
        Level.USABLE,
        "the tail of the weights",
        "K-hat {khat:.2f} is below {khat_limit:.2f}, but averages converge slowly; take many draws, or train "
        "longer.",
    )
    MISSED_MODE = (
        Level.UNRELIABLE,
        "a missed mode or tail",
        "Exact draws of the target give an ESS of only {forward_ess:.1%}: the flow misses a mode or a tail "
        "of it.",
    )
    COARSE_SOLVER = (
        Level.UNRELIABLE,
        "a coarse solver",
        "The ODE solver is too coarse: with twice the steps log Z moves by {solver_shift:+.1e}, more than "
        "its error of {shift_limit:.1e}, and the ESS by {ess_shift:+.2%}. Evaluate with twice the "
        f"{named('refine')}, or train with more solver steps.",
    )
    ESS_MOVES = (
        Level.UNRELIABLE,
        "a coarse solver",
        "With twice the solver steps the ESS moves by {ess_shift:+.2%}, more than its error of {ess_err:.2%}."
        f" Evaluate with twice the {named('refine')}, or train with more solver steps.",
    )
    UNCHECKED_SOLVER = (
        Level.GOOD,
        "an unchecked solver",
        "The ODE solver could not be checked: its tolerance is at the limit of the precision, or the finer "
        "solve failed.",
    )

    def explain(self, numbers: Mapping[str, Any]) -> str:
        """Say in full what is wrong with these numbers, and what to do."""
        return self.message.format_map(_with_limits(numbers))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What an evaluation comes to.

    Attributes:
        level: How far its numbers can be relied on.
        reasons: Why not further, the gravest first; remarks that change nothing last.
    """

    level: Level
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, reasons: Iterable[Reason]) -> "Verdict":
        """Return the verdict that some reasons leave."""
        ordered = sorted(reasons, key=lambda reason: -reason.level)
        return cls(max((r.level for r in ordered), default=Level.GOOD), tuple(ordered))

    def to_json(self) -> dict[str, Any]:
        """Return it as names, for a file."""
        return {
            "level": self.level.name.lower(),
            "reasons": [reason.name.lower() for reason in self.reasons],
        }

    def explain(self, numbers: Mapping[str, Any]) -> list[str]:
        """Return a sentence for each reason."""
        return [reason.explain(numbers) for reason in self.reasons]

    def sentence(self, numbers: Mapping[str, Any]) -> str:
        """Sum it up in one sentence, which begins with the level."""
        word = self.level.name.lower()
        if self.level is Level.GOOD:
            return (
                f"{word}: k-hat {_form(numbers.get('khat'))}; weighted averages and their error bars can be "
                "trusted."
            )
        graver = [reason for reason in self.reasons if reason.level > Level.GOOD]
        if len(graver) == 1:
            text = graver[0].explain(numbers)
            return f"{word}: {text[0].lower()}{text[1:]}"
        briefs = dict.fromkeys(reason.brief for reason in graver)  # each once
        return f"{word}, because of {' and '.join(briefs)}."


def read_verdict(evaluation: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict in the contents of an evaluation.json; `None` where there is none to be had.

    Older versions wrote a sentence there. It is not parsed: the numbers beside it are judged again.
    """
    stored = evaluation.get("verdict")
    if isinstance(stored, Mapping):
        try:
            reasons = tuple(Reason[str(name).upper()] for name in stored["reasons"])
            return Verdict(Level[str(stored["level"]).upper()], reasons)
        except (KeyError, TypeError):
            return None
    try:
        return judge(evaluation)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def khat_limit(n: int) -> float:
    r"""Return below which $\hat k$ averages over `n` weighted draws are reliable (Vehtari et al. 2024)."""
    return min(1 - 1 / math.log10(n), 0.7) if n > 1 else 0.0


def judge(numbers: Mapping[str, Any]) -> Verdict:
    """Judge the numbers of an `Evaluation`, by their names; NaN may be written as `None`."""
    if numbers["failed"]:
        return Verdict.of([Reason.FAILED_DRAWS])
    found = [_tail(numbers), _coverage(numbers), _solver(numbers)]
    return Verdict.of(reason for reason in found if reason is not None)


def _tail(numbers: Mapping[str, Any]) -> Reason | None:
    n, khat = numbers["samples"], _number(numbers["khat"])
    if n < _FEWEST_DRAWS:
        return Reason.FEW_DRAWS
    limit = khat_limit(n)
    if khat < min(0.5, limit):
        return None
    if khat < limit:
        return Reason.SLOW_TAIL
    return Reason.TAIL_NEEDS_DRAWS if khat < 0.7 else Reason.HEAVY_TAIL


def _coverage(numbers: Mapping[str, Any]) -> Reason | None:
    forward = numbers.get("forward_ess")
    return None if forward is None or forward >= 0.5 * numbers["ess"] else Reason.MISSED_MODE


def ess_moves(numbers: Mapping[str, Any]) -> bool | None:
    """Say whether the ESS moves with the solver by more than its error; `None` where that is not known."""
    shift, error = numbers.get("ess_shift"), numbers.get("ess_err")
    if shift is None or error is None:
        return None
    total = math.hypot(error, numbers.get("ess_shift_err") or 0.0)
    return abs(shift) > max(total, _resolution(numbers))


def _solver(numbers: Mapping[str, Any]) -> Reason | None:
    shift = _number(numbers["solver_shift"])
    if math.isnan(shift):
        return Reason.UNCHECKED_SOLVER
    limit = _shift_limit(numbers["log_z_err"], numbers.get("solver_shift_err"))
    if abs(shift) > max(limit, _resolution(numbers)):
        return Reason.COARSE_SOLVER
    return Reason.ESS_MOVES if ess_moves(numbers) else None


def _shift_limit(log_z_err: float | None, shift_err: float | None) -> float:
    return math.hypot(_number(log_z_err), shift_err or 0.0)


def _resolution(numbers: Mapping[str, Any]) -> float:
    """Return below what a shift is rounding: every log-weight is known to as much."""
    return max(_NO_SHIFT, numbers.get("rounding") or 0.0)


def _with_limits(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Add what numbers are compared with."""
    n, khat = numbers["samples"], _number(numbers["khat"])
    known = {name: math.nan if value is None else value for name, value in numbers.items()}
    return known | {
        "khat": khat,
        "khat_limit": khat_limit(n),
        # The limit solved for n: 1 - 1/log10(n) = k.
        "khat_draws": math.ceil(10 ** (1 / (1 - khat))) if khat < 0.7 else math.inf,
        "shift_limit": _shift_limit(numbers.get("log_z_err"), numbers.get("solver_shift_err")),
    }


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _form(value: float | None) -> str:
    return "-" if value is None else format(value, ".2f")
