"""What lies outside `docs/` and belongs to the site: the records of the measurements, as they are.

Documents link to files of the repository, so that they read well there. On the site, pages and pictures below
`results/` are built along; a link to anything else (source files, directories) keeps its words and loses its
address, because the site does not hold it. A link to what does not exist is left alone: the strict build then
fails on it.
"""

import logging
import os
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

log = logging.getLogger("mkdocs.hooks.repository")

ROOT = Path(__file__).parent.parent.parent
PAGES = (
    "results/README.md",
    "results/targets/README.md",
    "results/targets/targets.md",
    "results/modes/modes.md",
    "results/posteriors/posteriors.md",
    "results/phi4/README.md",
    "results/phi4/second_order.md",
    "results/vae/README.md",
    "results/bench/bench.md",
    "results/trust/README.md",
)
KINDS = (".png", ".json")

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config, **_) -> Files:
    """Add the pages, and the pictures and numbers that pages link to."""
    documents = [ROOT / name for name in PAGES]
    documents += [Path(f.abs_src_path) for f in files.documentation_pages()]
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for path in sorted({p for document in documents for p in _linked(document)}):
        if path.is_relative_to(ROOT / "results") and path.suffix in KINDS and path.is_file():
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def _linked(document: Path) -> list[Path]:
    found = _LINK.findall(document.read_text(encoding="utf-8"))
    return [(document.parent / target).resolve() for _, _, target, _ in found]


def on_page_markdown(markdown: str, page, files: Files, **_) -> str:
    """Turn links into the repository into links within the site."""
    here = Path(page.file.abs_src_path).parent

    def rewritten(match: re.Match) -> str:
        picture, label, target, anchor = match.groups()
        path = (here / target).resolve()
        if not path.exists() or not path.is_relative_to(ROOT):
            return match[0]
        name = path.relative_to(ROOT).as_posix()
        name = name.removeprefix("docs/")
        if files.get_file_from_path(name) is None:
            log.info("%s: no page of the site for %s", page.file.src_uri, target)
            return label
        address = os.path.relpath(name, Path(page.file.src_uri).parent.as_posix())
        return f"{picture}[{label}]({address}{anchor or ''})"

    return _LINK.sub(rewritten, markdown)
