r"""Formulas written as `$...$` and `$$...$$` become MathML when the site is built.

Browsers draw MathML by themselves, so pages need no script and no network to be read. Arithmatex (of
pymdown-extensions) finds the formulas, in pages and in docstrings; this hook translates the part of LaTeX
that we write. What it does not know is a warning, and so the end of a strict build: add it to the tables.
"""

import html
import logging
import re

log = logging.getLogger("mkdocs.hooks.mathml")

# fmt: off
LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "tau": "τ", "phi": "ϕ", "chi": "χ", "psi": "ψ", "omega": "ω", "ell": "ℓ", "Delta": "Δ",
    "Sigma": "Σ", "partial": "∂", "nabla": "∇", "infty": "∞", "top": "⊤", "blacktriangledown": "▼",
}
OPERATORS = {
    "cdot": "⋅", "circ": "∘", "times": "×", "pm": "±", "sim": "∼", "approx": "≈", "propto": "∝",
    "le": "≤", "ge": "≥", "ll": "≪", "gg": "≫", "ne": "≠", "in": "∈", "to": "→", "mapsto": "↦",
    "mid": "∣", "dots": "…", "cdots": "⋯", "langle": "⟨", "rangle": "⟩", "lceil": "⌈", "rceil": "⌉",
    "Leftrightarrow": "⇔", "equiv": "≡",
}
# fmt: on
BARS = {"lvert": "prefix", "rvert": "postfix"}
LARGE = {"sum": "∑", "prod": "∏", "int": "∫"}
FUNCTIONS = ("ln", "log", "exp", "sin", "cos", "sinh", "min", "max", "det", "arg", "tr", "diag")
ACCENTS = {"dot": "˙", "hat": "^", "tilde": "~", "bar": "¯", "widehat": "^"}
SPACES = {",": 0.167, ";": 0.278, ":": 0.222, " ": 0.25, "!": -0.167, "quad": 1.0, "qquad": 2.0}
STYLED = {"mathbb": {"E": "𝔼", "R": "ℝ"}, "mathcal": {"L": "ℒ"}}

_WORDS = re.compile(r"\\(text|texttt|mathrm|operatorname)\{([^{}]*)\}")
_TOKEN = re.compile(
    r"\\(?:text|texttt|mathrm|operatorname)\{[^{}]*\}|\\[a-zA-Z]+|\\.|[0-9]+(?:\.[0-9]+)?|\S",
    re.DOTALL,
)
_OPERATOR = re.compile(r"<mo[^>]*>[^)\]}⟩⌉|]*</mo>")
_FOUND = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.DOTALL)


def on_page_content(content: str, page, **_) -> str:
    """Translate every formula of a page."""

    def translated(match: re.Match) -> str:
        block, latex = match[2] == "[", html.unescape(match[3])
        try:
            return mathml(latex, block=block)
        except ValueError as error:
            log.warning("%s: %s in the formula %r", page.file.src_uri, error, latex)
            return match[0]

    return _FOUND.sub(translated, content)


def mathml(latex: str, *, block: bool = False) -> str:
    """Return a formula as a `math` element; raise a `ValueError` for what is not known here."""
    body = _Parser(latex, block=block).whole()
    # The source is what a reader copies, and what a screen reader without MathML reads.
    source = html.escape(latex.strip(), quote=False)
    display = ' display="block"' if block else ""
    note = f'<annotation encoding="application/x-tex">{source}</annotation>'
    return f"<math{display}><semantics>{body}{note}</semantics></math>"


def _element(name: str, content: str, **attributes: str) -> str:
    given = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<{name}{given}>{content}</{name}>"


def _row(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else _element("mrow", "".join(parts))


class _Parser:
    """Reads tokens from left to right."""

    def __init__(self, latex: str, *, block: bool) -> None:
        self.tokens = _TOKEN.findall(latex.replace("\\ ", "\\  "))
        self.at = 0
        self.block = block

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if token is None or (wanted is not None and token != wanted):
            raise ValueError(f"expected {wanted or 'more'}, found {token or 'the end'}")
        self.at += 1
        return token

    def whole(self) -> str:
        body = self.row()
        if self.peek() is not None:
            raise ValueError(f"unexpected {self.peek()}")
        return body

    def row(self, *ends: str) -> str:
        """Read until one of the given tokens, which stays, or the end."""
        parts: list[str] = []
        while self.peek() is not None and self.peek() not in (*ends, "}", "\\right", "\\end"):
            # After another operator, or at the beginning, a minus is a sign and stands close.
            sign = self.peek() == "-" and (not parts or bool(_OPERATOR.match(parts[-1])))
            part = self.scripted()
            parts.append(part.replace("<mo>", '<mo form="prefix">') if sign else part)
        return _row(parts)

    def scripted(self) -> str:
        """Read an atom with what hangs below and above it."""
        token = self.peek()
        limits = self.block and token in ("\\sum", "\\prod", "\\min", "\\max")
        atom, hung = self.atom(), {}
        while self.peek() in ("^", "_", "'"):
            mark = self.take()
            hung["^" if mark == "'" else mark] = (
                _element("mo", "′") if mark == "'" else self.argument()
            )
        names = ("munder", "mover", "munderover") if limits else ("msub", "msup", "msubsup")
        if "_" in hung and "^" in hung:
            return _element(names[2], atom + hung["_"] + hung["^"])
        if hung:
            [(mark, content)] = hung.items()
            return _element(names[0] if mark == "_" else names[1], atom + content)
        return atom

    def argument(self) -> str:
        """Read what a command or a script applies to: a group, or one sign; of a number one digit."""
        token = self.peek() or ""
        if token[:1].isdigit() and len(token) > 1:
            self.tokens[self.at : self.at + 1] = [token[0], token[1:]]
        return self.atom()

    def atom(self) -> str:
        token = self.take()
        if token == "{":
            inside = self.row()
            self.take("}")
            return inside
        if words := _WORDS.fullmatch(token):
            kind = "mtext" if words[1].startswith("text") else "mi"
            return _element(kind, html.escape(words[2]), mathvariant="normal")
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0].isdigit():
            return _element("mn", token)
        if token.isalpha():
            return _element("mi", token)
        if token in "^_}&":
            raise ValueError(f"unexpected {token}")
        if token in "()[]":
            return _element("mo", token, stretchy="false")
        return _element("mo", {"-": "−", "*": "∗"}.get(token, html.escape(token)))

    def command(self, name: str) -> str:
        if name in LETTERS:
            return _element("mi", LETTERS[name])
        if name in OPERATORS:
            return _element("mo", OPERATORS[name])
        if name in BARS:
            return _element("mo", "|", form=BARS[name], stretchy="false")
        if name in LARGE:
            return _element("mo", LARGE[name])
        if name in FUNCTIONS:
            return _element("mo", name, lspace="0.167em", rspace="0.167em")
        if name in SPACES:
            return f'<mspace width="{SPACES[name]}em"/>'
        if name in ("{", "}", "|"):
            return _element("mo", {"|": "‖"}.get(name, name), stretchy="false")
        if name in ("frac", "tfrac"):
            return _element("mfrac", self.argument() + self.argument())
        if name == "sqrt":
            return _element("msqrt", self.argument())
        if name in ACCENTS:
            return _element("mover", self.argument() + _element("mo", ACCENTS[name]), accent="true")
        if name in STYLED:
            letter = self.letters()
            if letter not in STYLED[name]:
                raise ValueError(f"no translation of \\{name}{{{letter}}}")
            return _element("mi", STYLED[name][letter])
        return self.fenced_or_table(name)

    def letters(self) -> str:
        """Read the tokens of a group, or a single one, as they stand."""
        if self.peek() != "{":
            return self.take()
        self.take("{")
        end = self.tokens.index("}", self.at)
        found, self.at = self.tokens[self.at : end], end + 1
        return "".join(found)

    def fenced_or_table(self, name: str) -> str:
        if name in ("big", "Big"):
            return self.atom()
        if name == "left":
            left = self.atom().replace(' stretchy="false"', "")
            inside = self.row()
            self.take("\\right")
            return _element("mrow", left + inside + self.atom().replace(' stretchy="false"', ""))
        if name == "begin" and self.letters() == "aligned":
            return self.aligned()
        raise ValueError(f"no translation of \\{name}")

    def aligned(self) -> str:
        rows: list[list[str]] = [[]]
        while True:
            rows[-1].append(self.row("&", "\\\\"))
            mark = self.take()
            if mark == "\\end":
                self.letters()
                break
            if mark == "\\\\":
                rows.append([])
        made = (_element("mtr", "".join(_element("mtd", cell) for cell in cells)) for cells in rows)
        return _element("mtable", "".join(made), displaystyle="true")
