"""Rules of CONTRIBUTING.md that no tool checks, tested by looking at the code."""

import ast
import inspect
import types

import pathgrad

from .test_layers import FILES, LAYERS, SOURCE, part, public_names

# Where draws are not what is mapped over, or where `vmap` itself stands. (file, function): why.
VMAPS = {
    ("_words/tree.py", "over_draws"): "the one place",
    ("_ingredients/bases.py", "log_prob"): "over the components of a mixture",
    ("_ingredients/divergence.py", "__call__"): "over basis vectors, and over probes",
    ("_ingredients/precise.py", "_batch"): "the batching rule of an operation",
    ("metrics.py", "_pareto_fit"): "over candidate parameters of a fit",
    # Outside the solve on purpose: Gauss-Newton needs the gradient of every draw, so each has its own copy
    # of the parameters' adjoint. Memory is bounded by its chunk instead.
    ("_train/gauss_newton/moments.py", "log_densities_and_scores"): "one gradient for each draw",
}
UP_TO_TRAINING = set().union(*LAYERS[:6])


def mapping_functions():
    """Yield the functions that call `vmap` or `filter_vmap`: file, and name of the outermost `def`."""
    for path in FILES:
        if part(path) not in UP_TO_TRAINING:
            continue
        tree = ast.parse(path.read_text())
        classes = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
        for body in (tree.body, *classes):
            for node in body:
                names = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                if not isinstance(node, ast.ClassDef) and names & {"vmap", "filter_vmap", "pmap"}:
                    yield path.relative_to(SOURCE).as_posix(), getattr(node, "name", "")


def test_draws_are_mapped_over_in_one_place():
    assert set(mapping_functions()) == set(VMAPS)


def public_functions():
    """Yield every public function, and every method of a public class: name and function."""
    for name in public_names():
        public = getattr(pathgrad, name)
        if name.startswith("_"):
            continue
        if isinstance(public, types.ModuleType):
            yield from (
                (f"{name}.{inner}", function)
                for inner, function in vars(public).items()
                if inspect.isfunction(function) and function.__module__ == public.__name__
            )
        elif inspect.isclass(public):
            for inner in dir(public):
                function = inspect.getattr_static(public, inner)
                function = getattr(function, "__func__", function)
                if inner == "__init__" or not inner.startswith("_"):
                    yield f"{name}.{inner}", inspect.unwrap(function)
        elif callable(public):
            yield name, inspect.unwrap(public)


def test_keys_are_keyword_only():
    by_position, seen = set(), set()
    for name, function in public_functions():
        if not callable(function):
            continue
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # of a type written in C
            continue
        for parameter in parameters.values():
            if parameter.name in ("key", "keys"):
                seen.add(name)
                if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
                    by_position.add(name)
    assert by_position == {"Batch.__init__"}  # a record, of which keys are the first field
    assert seen >= {"Flow.draw", "AbstractBase.draw", "CNF.push", "Hutchinson.noise", "fit"}
    assert seen >= {"AffineCoupling.__init__", "TwoCopyGradient.draw", "check_gradients"}
