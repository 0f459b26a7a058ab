"""Show how modules are made, and shapes as they are written.

The reference is made by reading the source. There, Equinox modules and named tuples have no `__init__`:
they take their attributes, in order. And the axes of `Float[Array, "batch *event"]` pass for a product.
"""

import dataclasses

import griffe


class Signatures(griffe.Extension):
    """Give classes the `__init__` that their fields imply, and annotations their axes."""

    def on_function(self, *, func: griffe.Function, **_) -> None:
        for annotation in (func.returns, *(p.annotation for p in func.parameters)):
            _mend_axes(annotation)

    def on_attribute(self, *, attr: griffe.Attribute, **_) -> None:
        _mend_axes(attr.annotation)

    def on_class(self, *, cls: griffe.Class, **_) -> None:
        bases = [str(base).rpartition(".")[2] for base in cls.bases]
        made_of_fields = any(b in ("Module", "NamedTuple") or b.startswith("Abstract") for b in bases)
        if not made_of_fields or cls.name.startswith("Abstract") or "__init__" in cls.members:
            return
        parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
        parameters += [_parameter(a) for a in cls.attributes.values() if _is_field(a)]
        init = griffe.Function("__init__", parent=cls, parameters=griffe.Parameters(*parameters))
        cls.set_member("__init__", init)


def _is_field(attribute: griffe.Attribute) -> bool:
    return attribute.annotation is not None and "property" not in attribute.labels


def _parameter(attribute: griffe.Attribute) -> griffe.Parameter:
    default = attribute.value
    if isinstance(default, griffe.ExprCall) and str(default.function) == "eqx.field":
        given = {a.name: a.value for a in default.arguments if isinstance(a, griffe.ExprKeyword)}
        default = given.get("default")
    kind = griffe.ParameterKind.positional_or_keyword
    return griffe.Parameter(attribute.name, annotation=attribute.annotation, kind=kind, default=default)


def _mend_axes(annotation: object) -> None:
    """Turn `batch * event` within a tuple back into a string, in place."""
    if isinstance(annotation, griffe.ExprTuple):
        annotation.elements = [
            f'"{e.left} *{e.right}"' if isinstance(e, griffe.ExprBinOp) and e.operator == "*" else e
            for e in annotation.elements
        ]
    if isinstance(annotation, griffe.Expr):
        for field in dataclasses.fields(annotation):
            part = getattr(annotation, field.name)
            for inner in part if isinstance(part, list) else [part]:
                _mend_axes(inner)
