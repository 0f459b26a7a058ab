"""How far numbers can be trusted: a level, and reasons that carry their own messages.

No JAX here: code that only reads results judges them by the same rules.
"""

import collections
import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._words.errors import in_python, named
from .._words.text import listed
from .foresight import ess_with_more_draws
from .limits import NO_SHIFT, khat_limit, limits_of, number_of
from .quantity import Numbers

_FEWEST_DRAWS = 21  # with fewer, not even five are left for the tail
HARMLESS = 0.95  # ESS with many more draws, above which the tail does not matter whatever its shape
LOST = 0.01  # share of the target's mass, found where the flow has too little, that counts
_FINE, _SMALL = 0.01, 0.1  # rounding that hides nothing: in nats, and as a share of the spread of log-weights
WRONG_DIVERGENCE = 1e-3  # relative error of a closed form; leaves room for single precision

Write = Callable[[str], str]  # writes a message in the form its reader needs: `in_python`, `as_options`


_LESS_ROUNDING = (
    "Subtract a constant from the log density, or compute in double precision (`JAX_ENABLE_X64=1`)."
)


class Level(enum.IntEnum):
    """How far numbers can be trusted, from best to worst."""

    GOOD = 0
    USABLE = 1
    UNKNOWN = 2
    UNRELIABLE = 3
    UNUSABLE = 4


class AbstractReason(enum.Enum):
    """Why numbers are less than good; `Reason` explains the attributes of each member."""

    level: Level
    brief: str
    text: str

    def __init__(self, level: Level, brief: str, text: str) -> None:
        self.level, self.brief, self.text = level, brief, text

    def explain(self, numbers: Numbers, write: Write = in_python) -> str:
        """Return in full what is wrong with these numbers, and what to do."""
        # A number that is missing, or `None` in a file, is NaN; in an edited file it may be anything.
        try:
            known = {name: value for name, value in numbers.items() if value is not None} | limits_of(numbers)
            return write(self.text.format_map(collections.defaultdict(lambda: math.nan, known)))
        except (TypeError, ValueError, OverflowError):
            return f"{self.brief[0].upper()}{self.brief[1:]}."


class Reason(AbstractReason):
    """Why the numbers of an `Evaluation` are less than good, judging by its importance weights.

    Attributes:
        level: The best level that numbers can have if the reason applies.
        brief: The reason in a few words.
        text: The full message, with what to do about it; `explain` fills in the numbers.
    """

    FAILED_DRAWS = (
        Level.UNUSABLE,
        "failed draws",
        "{failed} of {samples} draws have no finite weight. Lower the learning rate, take more solver steps, "
        "or check the target for NaN.",
    )
    WRONG_DIVERGENCE = (
        Level.UNUSABLE,
        "a wrong divergence",
        "The closed-form divergence of a field is wrong (relative error {divergence_error:.1e}, compared "
        "with automatic differentiation), so log q is not the flow's density, and every number is wrong. "
        "Correct `prepare` or `velocity_and_divergence` of the field, or use `Exact()`, and train again.",
    )
    FEW_DRAWS = (
        Level.UNKNOWN,
        "too few draws",
        "{samples} draws are too few to judge the tail of the weights; take 1000 or more.",
    )
    UNKNOWN_TAIL = (
        Level.UNKNOWN,
        "an unknown tail of the weights",
        "There is no k-hat, so nothing is known about the tail of the weights; evaluate again.",
    )
    ROUNDED = (
        Level.UNKNOWN,
        "rounding",
        "Log densities are so large that they are rounded by {rounding:.2g}, while the log-weights vary by "
        "{spread:.2g}: a bad fit would look like a good one. " + _LESS_ROUNDING,
    )
    EQUAL_WEIGHTS = (
        Level.GOOD,
        "equal weights",
        "All log-weights are exactly equal, although log densities are so large that they are rounded by "
        "{rounding:.2g}: smaller differences cannot be seen. " + _LESS_ROUNDING,
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
        "Draws of the target give an ESS of only {forward_ess:.1%}: the flow misses a mode or a tail of it.",
    )
    LOST_REGION = (
        Level.UNRELIABLE,
        "a lost region",
        "A search that started outside the flow's own draws found at least {lost:.1%} of the target's mass "
        "where the flow has far too little, such as around {lost_where}. Averages and log Z leave that out. "
        "Start from a base that covers it, such as a mixture with a component there.",
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


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The judgement on an evaluation.

    Attributes:
        level: How far its numbers can be trusted.
        reasons: Why the level is not higher, most serious first; remarks that do not affect it last.
    """

    level: Level
    reasons: tuple[AbstractReason, ...] = ()

    @classmethod
    def of(cls, reasons: Iterable[AbstractReason]) -> "Verdict":
        """Return the verdict that follows from some reasons."""
        ordered = sorted(reasons, key=lambda reason: -reason.level)
        return cls(max((r.level for r in ordered), default=Level.GOOD), tuple(ordered))

    @classmethod
    def from_json(cls, stored: Any, reasons: type[AbstractReason] = Reason) -> "Verdict | None":
        """Read what `to_json` wrote, without reasons of later versions; return `None` for anything else."""
        try:
            names = [name.upper() for name in stored["reasons"]]
            level = Level[stored["level"].upper()]
        except (AttributeError, KeyError, TypeError):
            return None
        return cls(level, tuple(reasons[name] for name in names if name in reasons.__members__))

    def to_json(self) -> dict[str, str | list[str]]:
        """Return the names of level and reasons, for a file."""
        return {"level": self.level.name.lower(), "reasons": [reason.name.lower() for reason in self.reasons]}

    def explain(self, numbers: Numbers, write: Write = in_python) -> list[str]:
        """Return a sentence for each reason."""
        return [reason.explain(numbers, write) for reason in self.reasons]

    def sentence(self, numbers: Numbers, write: Write = in_python) -> str:
        """Return a summary in one sentence, which begins with the level."""
        word, decisive = self.level.name.lower(), self._decisive
        if self.level is Level.GOOD:
            return f"{word}: {_trusted(numbers)}"
        if len(decisive) == 1:
            text = decisive[0].explain(numbers, write)
            return f"{word}: {text[0].lower()}{text[1:]}"
        return f"{word}, because of {listed([reason.brief for reason in decisive])}."

    def rows(self, numbers: Numbers, write: Write = in_python) -> list[tuple[str, str]]:
        """Return the last rows of a table: the warnings that the sentence leaves out, and the sentence."""
        included = self._decisive if len(self._decisive) == 1 else ()
        others = [reason.explain(numbers, write) for reason in self.reasons if reason not in included]
        return [*(("warning", text) for text in others), ("verdict", self.sentence(numbers, write))]

    @property
    def _decisive(self) -> tuple[AbstractReason, ...]:
        """The reasons without which the level would be better."""
        return tuple(r for r in self.reasons if r.level is self.level > Level.GOOD)


def _trusted(numbers: Numbers) -> str:
    khat = number_of(numbers, "khat")
    if math.isnan(khat):
        return "no problem was found."
    shape = "the weights have no tail" if khat == -math.inf else f"k-hat {khat:.2f}"
    largest = number_of(numbers, "largest_weight")
    if khat >= min(0.5, limits_of(numbers)["khat_limit"]) and not math.isnan(largest):  # and yet it is good
        shape += f", but the largest weight is only {largest:.3g} times the mean"
    # Draws of the flow never visit a mode that it has lost; those of the target would.
    is_checked = not math.isnan(number_of(numbers, "forward_ess"))
    limits = "" if is_checked else ", as far as the flow's own draws can tell"
    chains = number_of(numbers, "chains", 0.0)
    if limits and chains > 0:  # which have found nothing, or the numbers would not be good
        limits = f"{limits.removesuffix(' can tell')} and {chains:.0f} chains from outside them can tell"
    return f"{shape}; weighted averages and their error bars can be trusted{limits}."


def read_verdict(evaluation: Numbers) -> Verdict | None:
    """Return the verdict in the contents of a flow's evaluation.json; `None` if there is none.

    Older versions wrote a sentence there. It is not parsed: the numbers beside it are judged again.
    """
    stored = evaluation.get("verdict")
    if isinstance(stored, Mapping):
        return Verdict.from_json(stored)
    try:
        return judge(evaluation)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def judge(numbers: Numbers) -> Verdict:
    r"""Judge the numbers of an `Evaluation`, by their names; NaN may be written as `None`.

    A k-hat that is too large counts only if the tail is large too. If the tail goes on as k-hat says, and the
    ESS would still be at least 95 % with a hundred times as many draws, then k-hat is no reason. Then what
    the target has in excess beyond the largest weight is about a fifth of a standard error, $1/\sqrt n$, or
    less. Files of older versions have no largest weight: there, k-hat decides.
    """
    worthless = {
        Reason.FAILED_DRAWS: numbers["failed"],
        Reason.WRONG_DIVERGENCE: has_wrong_divergence(numbers),
    }
    if any(worthless.values()):  # then the other numbers mean nothing
        return Verdict.of(reason for reason, is_true in worthless.items() if is_true)
    missed = number_of(numbers, "forward_ess") < 0.5 * number_of(numbers, "ess")
    lost = Reason.LOST_REGION if number_of(numbers, "lost") > LOST else None
    mode = Reason.MISSED_MODE if missed else None
    reasons = [lost, _tail(numbers), _precision(numbers), mode, _solver(numbers)]
    return Verdict.of(reason for reason in reasons if reason is not None)


def has_wrong_divergence(numbers: Numbers) -> bool:
    """Return whether a closed-form divergence was found wrong; older files do not say."""
    return number_of(numbers, "divergence_error", 0.0) > WRONG_DIVERGENCE


def _precision(numbers: Numbers) -> Reason | None:
    """Say whether the weights have lost what they should tell; files of older versions do not."""
    spread, rounding = number_of(numbers, "spread"), number_of(numbers, "rounding")
    if rounding > _FINE and rounding > _SMALL * spread:
        return Reason.ROUNDED
    # In full precision they are equal only if the target was written as the flow's own density.
    return Reason.EQUAL_WEIGHTS if spread == 0 and rounding > NO_SHIFT else None


def _tail(numbers: Numbers) -> Reason | None:
    reason = _tail_by_shape(numbers)
    if reason is None or reason in (Reason.FEW_DRAWS, Reason.UNKNOWN_TAIL):
        return reason
    measured = (number_of(numbers, name) for name in ("ess", "khat", "largest_weight"))
    is_harmless = ess_with_more_draws(int(number_of(numbers, "samples")), *measured) >= HARMLESS
    return None if is_harmless else reason


def _tail_by_shape(numbers: Numbers) -> Reason | None:
    """Return what k-hat alone would say of the tail."""
    n, khat = int(number_of(numbers, "samples")), number_of(numbers, "khat")
    if n < _FEWEST_DRAWS:
        return Reason.FEW_DRAWS
    if math.isnan(khat):
        return Reason.UNKNOWN_TAIL
    limit = khat_limit(n)
    if khat < min(0.5, limit):
        return None
    if khat < limit:
        return Reason.SLOW_TAIL
    return Reason.TAIL_NEEDS_DRAWS if khat < 0.7 else Reason.HEAVY_TAIL


def ess_moves(numbers: Numbers) -> bool | None:
    """Return whether a finer solver changes the ESS by more than its error; `None` if that is not known."""
    shift, error = (number_of(numbers, name) for name in ("ess_shift", "ess_err"))
    if math.isnan(shift) or math.isnan(error):
        return None
    total = math.hypot(error, number_of(numbers, "ess_shift_err", 0.0))
    return abs(shift) > max(total, limits_of(numbers)["resolution"])


def _solver(numbers: Numbers) -> Reason | None:
    shift, limits = number_of(numbers, "solver_shift"), limits_of(numbers)
    if math.isnan(shift):
        return Reason.UNCHECKED_SOLVER
    if abs(shift) > max(limits["shift_limit"], limits["resolution"]):
        return Reason.COARSE_SOLVER
    return Reason.ESS_MOVES if ess_moves(numbers) else None
