#!/usr/bin/env python3
"""docs/converting.md with its scripts and their recipes as they are now.

    converting_page.py TESSERA SOURCE_FOLDER    writes the page anew
"""
import pathlib
import re
import shlex
import subprocess
import sys

COUNTS = re.compile(r"^\d+ flags: [^;\n]*", re.MULTILINE)
MARK = re.compile(r"<!-- script (\S+)([^\n]*?) -->\n.*?<!-- end -->", re.DOTALL)


def page(tessera, source):
    """The page with a script and its recipe after each mark."""
    source = pathlib.Path(source)

    def shown(mark):
        name, arguments = mark.group(1), shlex.split(mark.group(2))
        folder = source / "tests" / "data" / "scripts"
        got = subprocess.run([tessera, "convert", name, *arguments], cwd=folder, capture_output=True, text=True)
        if got.returncode != 0:
            raise RuntimeError(f"{name}: exit code {got.returncode}\n{got.stderr}")
        line = " ".join(["tessera convert", name, *arguments])
        table = got.stderr[got.stderr.index("flags of "):]
        counts = COUNTS.search(table).group()
        script = (folder / name).read_text()
        return (f"<!-- script {name}{mark.group(2)} -->\n\n```bash\n{script}```\n\n`{line}` ({counts}):\n\n"
                f"```yaml\n{got.stdout}```\n\n<!-- end -->")

    return MARK.sub(shown, (source / "docs" / "converting.md").read_text())


if __name__ == "__main__":
    pathlib.Path(sys.argv[2], "docs", "converting.md").write_text(page(sys.argv[1], sys.argv[2]))
