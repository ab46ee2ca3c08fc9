#!/usr/bin/env python3
"""The two steps of launch/site.sh around mkdocs.

    docs/theme/site.py prepare WORK    puts docs/ into WORK/pages, beside the gallery that is there, and writes WORK/mkdocs.yml and WORK/theme
    docs/theme/site.py finish SITE     writes SITE/search/from_disk.js, with which the search works on pages opened from a disk
"""

import json
import pathlib
import re
import shutil
import sys

DOCS = pathlib.Path(__file__).resolve().parents[1]


# HTML that pages may hold. Any other `<word>` outside code is text, such as the name of a token in a description of an option.
MARKUP = ("a", "br", "details", "iframe", "img", "sub", "summary", "sup")


def with_text_escaped(text):
    """The page with `<` written as an entity where it begins no markup."""
    def escaped(match):
        return match[0] if match["tag"] is None or match["tag"] in MARKUP else "&lt;" + match[0][1:]
    return re.sub(r"^```.*?^```$|^    [^\n]*$|`[^`\n]+`|</?(?P<tag>[A-Za-z]\w*)", escaped, text, flags=re.MULTILINE | re.DOTALL)


def with_meaning_second(text):
    """The page with the last column of wide tables, if it is `meaning`, as the second one: a reader sees it without scrolling."""
    lines, inside = text.split("\n"), False
    for at, line in enumerate(lines):
        cells = re.split(r"(?<!\\)\|", line)[1:-1]
        head = not inside and len(cells) > 4 and cells[-1].strip() == "meaning"
        inside = line.startswith("|") and (inside or head)
        if inside:
            meaning = ' <span class="meaning">meaning</span> ' if head else cells[-1]
            lines[at] = "|" + "|".join([cells[0], meaning, *cells[1:-1]]) + "|"
    return "\n".join(lines)


def adapted(text):
    """A page as Python-Markdown takes it: info strings of code blocks in its form, and no links to files outside docs/. Tables as they fit."""
    text = with_meaning_second(with_text_escaped(text))
    text = re.sub(r"^```(\w+) file=(\S+)$", r'```\1 title="\2"', text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]\n]*)\]\(\.\./[^)\n]*\)", r"\1", text)


def prepare(work):
    pages = work / "pages"
    shutil.copytree(DOCS, pages, dirs_exist_ok=True, ignore=shutil.ignore_patterns("theme", "mkdocs.yml", "*.py", "gallery.json", "__pycache__"))
    for page in DOCS.glob("*.md"):
        (pages / page.name).write_text(adapted(page.read_text()))
    (pages / "index.md").write_text((pages / "index.md").read_text().replace("the gallery:", "the [gallery](gallery/index.md):"))
    shutil.copytree(DOCS / "theme", work / "theme", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    gallery = pages / "gallery" / "pages.json"
    lines = ["  - Gallery:", "      - gallery/index.md"] + [f"      - {title}: gallery/{name}" for title, name in json.loads(gallery.read_text())]
    gallery.unlink()
    settings = (DOCS / "mkdocs.yml").read_text()
    line = "  - Gallery: gallery/index.md"
    if settings.count(line) != 1:
        raise SystemExit(f"site: docs/mkdocs.yml must have the line '{line}' once")
    (work / "mkdocs.yml").write_text(settings.replace(line, "\n".join(lines)))


def finish(site):
    """A page opened from a disk may not read files by script: the index and the worker are given as a script."""
    index = (site / "search" / "search_index.json").read_text()
    (worker,) = (site / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    words = json.dumps(worker.read_text())
    (site / "search" / "from_disk.js").write_text(
        f"var __search = {{index: Promise.resolve({index}), worker: URL.createObjectURL(new Blob([{words}], {{type: \"text/javascript\"}}))}};\n")


def main():
    steps = {"prepare": prepare, "finish": finish}
    if len(sys.argv) != 3 or sys.argv[1] not in steps:
        raise SystemExit(__doc__)
    steps[sys.argv[1]](pathlib.Path(sys.argv[2]))


if __name__ == "__main__":
    main()
