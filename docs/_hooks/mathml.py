r"""Formulas written as `$...$` and `$$...$$` become MathML when the site is built, by math-core.

Browsers draw MathML by themselves, so pages need no script and no network to be read. Arithmatex (of
pymdown-extensions) finds the formulas, in pages and in docstrings. What math-core does not know is a warning,
and so the end of a strict build.
"""

import html
import logging
import re

from math_core import LatexError, LatexToMathML

log = logging.getLogger("mkdocs.hooks.mathml")

# The source goes along: it is what a reader copies, and what a screen reader without MathML reads.
_CONVERTER = LatexToMathML(annotation=True, fancy_error=False)
_FOUND = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.DOTALL)


def on_page_content(content: str, page, **_) -> str:
    """Translate every formula of a page."""

    def translated(match: re.Match) -> str:
        latex = html.unescape(match[3])
        try:
            return _CONVERTER.convert_with_local_state(latex, displaystyle=match[2] == "[")
        except LatexError as error:
            log.warning("%s: %s in the formula %r", page.file.src_uri, error, latex)
            return match[0]

    return _FOUND.sub(translated, content)
