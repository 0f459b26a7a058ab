"""Several training methods in sequence, as one method."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
from jaxtyping import Array, Key, PyTree

from .._gradients.objectives import AbstractObjective
from .._words.arguments import instance, shown, whole
from .._words.errors import ArgumentError, named
from .blocks import AbstractCompiledMethod
from .method import AbstractMethod, AbstractRunner, Block
from .state import TrainState, copied


class Stages(AbstractMethod):
    """Train with one method for some steps, then with the next, which starts from the result so far.

    A run of stages is one run: it can be interrupted and resumed anywhere, with bit-identical results.

    Attributes:
        methods: The methods, in order.
        steps_of: The number of steps of each. Any further steps are taken with the last method.
    """

    methods: tuple[AbstractMethod, ...]
    steps_of: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, stages: Sequence[tuple[AbstractMethod, int]]) -> None:
        """Take pairs of a method and its number of steps."""
        is_list = isinstance(stages, Sequence) and not isinstance(stages, str) and len(stages) > 0
        if not is_list or not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in stages):
            raise ArgumentError(
                f"{named('stages')} must be a list of at least one pair of a method and a number of steps, "
                f"got {shown(stages)}."
            )
        for method, _ in stages:
            instance("stages", method, AbstractMethod, "pairs of a method and a number of steps")
        self.methods = tuple(method for method, _ in stages)
        self.steps_of = tuple(whole("stages", steps) for _, steps in stages)

    def __check_init__(self):
        if any(isinstance(method, Stages) for method in self.methods):
            raise ArgumentError(f"{named('stages')} cannot contain `Stages`: write them in one list.")

    @property
    def steps(self):
        return sum(self.steps_of)

    @property
    def needs_horizon(self):
        return any(method.needs_horizon for method in self.methods)

    def at(self, step: int) -> tuple[int, int]:
        """Return the index of the stage that takes a step, and the first step of that stage."""
        begins = 0
        for i, steps in enumerate(self.steps_of[:-1]):
            if step < begins + steps:
                return i, begins
            begins += steps
        return len(self.methods) - 1, begins

    def init(self, model):
        # The memories of all, from the start: a checkpoint has the same leaves at any stage.
        return tuple(method.init(model) for method in self.methods)

    def runner(self, objective, *, key):
        sizes = {m.n for m in self.methods if isinstance(m, AbstractCompiledMethod)}
        if objective.data is not None and len(sizes) > 1:
            raise ArgumentError(
                f"Stages that learn from data must have the same {named('n')}, so that they count epochs "
                f"alike; got {sorted(sizes)}."
            )
        return StagesRunner(self, objective, key)

    def result(self, state):
        # Ask the stage that took the last step: the next one has not begun.
        i, _ = self.at(max(int(state.step) - 1, 0))
        return self.methods[i].result(_seen_by(i, state))


class StagesRunner(AbstractRunner):
    """Hands each step to the runner of its stage."""

    def __init__(self, stages: Stages, objective: AbstractObjective, key: Key[Array, ""]) -> None:
        self.stages = stages
        self.runners = [method.runner(objective, key=key) for method in stages.methods]
        self.mesh = self.runners[0].mesh

    def length(self, step):
        i, begins = self.stages.at(step)
        length = self.runners[i].length(step)
        last = i == len(self.runners) - 1
        return length if last else min(length, begins + self.stages.steps_of[i] - step)

    def prepare(self, state, length):
        i, begins = self.stages.at(int(state.step))
        if i and int(state.step) == begins:
            state = self._enter(state, i)
        inner = self.runners[i].prepare(_seen_by(i, state), length)
        self.mesh = self.runners[i].mesh
        self.compile_seconds = sum(runner.compile_seconds for runner in self.runners)
        return _joined(inner, state.memory, i)

    def run(self, state, length):
        i, _ = self.stages.at(int(state.step))
        block = self.runners[i].run(_seen_by(i, state), length)
        return Block(_joined(block.state, state.memory, i), block.steps, block.numbers | {"stage": float(i)})

    def _enter(self, state: TrainState, i: int) -> TrainState:
        """Start a stage from the result of the one before."""
        before, now = self.stages.methods[i - 1], self.stages.methods[i]
        model = before.result(_seen_by(i - 1, state))
        # Copies, since no array may be in two places of a state: the next block overwrites them.
        model, memory = copied((model, now.init(model)))
        return _joined(dataclasses.replace(state, model=model, memory=memory), state.memory, i)


def _seen_by(i: int, state: TrainState) -> TrainState:
    """Return the state as the method of a stage sees it: with its own memory only."""
    return dataclasses.replace(state, memory=state.memory[i])


def _joined(inner: TrainState, memories: tuple[PyTree, ...], i: int) -> TrainState:
    """Return a stage's state together with the memories of all other stages."""
    return dataclasses.replace(inner, memory=(*memories[:i], inner.memory, *memories[i + 1 :]))
