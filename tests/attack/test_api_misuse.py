"""Wrong calls of the library end in one sentence that names the argument; right ones of any kind work."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 400  # characters of a message
# What the insides of Python, NumPy and JAX call things.
JARGON = re.compile(
    r"[Tt]racer|jaxpr|has no attribute|not iterable|NoneType|__\w+__|not callable|\baval\b|not subscriptable|"
    r"unsupported operand|zero-size|<class|object at 0x|<function|<lambda>|\bndim\b|could not convert|"
    r"not supported between|invalid literal|missing \d"
)
# What else a message may call an argument: there is no other word for it on the command line.
ALSO = {
    "log_prob": "log density",
    "model": "target|a flow|pymc",
    "paths": "no run was given",
    "objective": "target",
    "name": "there is no",
}


@pytest.fixture(scope="module")
def report():
    """Return what all wrong calls said, in a process without the type checks of tests."""
    settings = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "tests.attack.api_misuses"]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def complaint(misuse):
    """Return what is wrong with the answer to a wrong call; `None` if nothing is."""
    text, kind = misuse["text"], misuse["kind"]
    # Python's own words for an argument that is not there, or for an abstract class.
    said = re.sub(r"^\w+\.__init__\(\)", "", text).split(" with abstract method")[0]
    names = [word.lower() for name in misuse["wrong"] for word in (name, ALSO.get(name, name))]
    if kind is None:
        return "nothing was said"
    if kind.startswith("not"):
        return kind
    if "\n" in text or len(text) > LONGEST:
        return "too long"
    if found := JARGON.search(said):
        return f"jargon: {found[0]}"
    is_named = any(re.search(rf"\b({name})\b", text.lower()) for name in names)
    return None if is_named else "does not name the argument"


def test_wrong_calls_end_in_one_sentence(report):
    assert len(report["misuses"]) > 2000
    found = [(m["call"], m["wrong"], complaint(m), m["text"][:200]) for m in report["misuses"]]
    assert [one for one in found if one[2] is not None] == []


def test_every_public_callable_is_misused(report):
    assert report["without"] == []


def test_wrong_calls_are_refused_before_anything_is_compiled(report):
    slow = [(m["call"], m["wrong"]) for m in report["misuses"] if m["seconds"] > 5]
    assert slow == []


def test_right_calls_of_any_kind_work(report):
    assert report["right"] == dict.fromkeys(report["right"], "fine")
    assert len(report["right"]) >= 10


def test_the_table_can_fail():
    for kind, text in (
        (None, ""),
        ("TypeError", "'int' object is not iterable"),
        ("ValueError", "`m` is wrong."),
    ):
        assert complaint({"wrong": {"n": "3"}, "kind": kind, "text": text}) is not None
    assert (
        complaint({"wrong": {"n": "0"}, "kind": "ArgumentError", "text": "`n` must be at least 1, got 0."})
        is None
    )
