#!/usr/bin/env python3
"""Writes the pages of the gallery: for each recipe of configs/ its parameters, memory, command, differences from the defaults, and the report of a
run made in small. docs/gallery/gallery.json says which recipes share a page, and what makes the runs small.

    docs/gallery/make.py --tessera PROGRAM --output DIR

--output DIR   folder of the pages, which is created: index.md, NAME.md, NAME_report.html and pages.json ([[title, file], ...])

It runs `tessera check`, `diff`, `train` and `report` in a temporary folder. Python 3 alone, and the data of launch/fine_tuning_data.sh.
"""

import argparse
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GALLERY = json.loads(pathlib.Path(__file__).with_name("gallery.json").read_text())
# The options that a recipe must give. What `diff` finds against this recipe is what another one differs in from the defaults.
LEAST = """training_config: {training_iters: 1000}
model_config: {num_layers: 1, hidden_size: 1, num_attention_heads: 1, seq_length: 1, vocab_size: 1}
dataset_config: {dataset_type: mock}
"""


class Runner:
    """Runs the program in a temporary folder that looks like a checkout."""

    def __init__(self, tessera, folder):
        self.program, self.folder = tessera, folder
        self.environment = {**os.environ, "TESSERA_QUICKSTART": "quickstart", "TESSERA_OUTPUT": "output", "TESSERA": tessera}
        (folder / "configs").symlink_to(SOURCE / "configs")
        (folder / "least.yaml").write_text(LEAST)
        self.groups = json.loads(self.tessera("options", "--json-schema"))["properties"]

    def run(self, *words, accepted=(0,)):
        done = subprocess.run(words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
        if done.returncode not in accepted:
            raise SystemExit(f"gallery: '{' '.join(map(str, words))}' gave exit code {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def tessera(self, *words, accepted=(0,)):
        return self.run(self.program, *words, accepted=accepted)

    def has_report(self):
        return re.search(r"^  report ", self.tessera("--help"), re.MULTILINE) is not None

    def default_of(self, group, key):
        """The default of an option as text; "" if it has none."""
        option = self.groups[group]["properties"].get(key, {})
        value = option.get("default", "")
        return value if isinstance(value, str) else json.dumps(value)

    def make_quickstart(self):
        """Data like that of launch/quickstart.sh, of some hundred made-up verses."""
        data = self.folder / "quickstart" / "data"
        data.mkdir(parents=True)
        verses = [f"Ge{n}:{n} In the beginning the earth was without form, and day {n} was the first of {n * 7} days.\n" for n in range(1, 800)]
        (data / "train.txt").write_text("".join(verses))
        (data / "held_out.txt").write_text("".join(verses[-60:]))
        self.tessera("data", "train-bpe", "--input", data / "train.txt", "--vocab-size", "400", "--output-dir", data / "bpe")
        for name in ("train", "held_out"):
            self.tessera("data", "preprocess", "--input", data / f"{name}.txt", "--append-eod", "--output-prefix", data / name,
                         "--vocab-file", data / "bpe/vocab.json", "--merge-file", data / "bpe/merges.txt")
        self.run(SOURCE / "launch" / "fine_tuning_data.sh", "--output", self.folder / "quickstart")


def set_words(pairs, option="--set"):
    return [word for pair in pairs for word in (option, pair)]


def completed(page):
    """The page with its recipes: of models, those of configs/models and their small sisters."""
    if "models" not in page:
        return {"shared": [], "tiny": [], "run": page["recipes"][0], **page}
    recipes = [f"configs/models/{name}.yaml" for name in page["models"]]
    tiny = [f"configs/models/tiny/{name}.yaml" for name in page["models"]]
    return {"shared": [], **page, "recipes": recipes, "tiny": tiny, "run": tiny[0], "data": "models"}


def differences(runner, recipe, checks):
    """{option: (value, default)} of a recipe, as `tessera diff` finds them."""
    told = runner.tessera("diff", "least.yaml", recipe, *set_words(checks, "--set-b"), accepted=(0, 1))
    found = {}
    for group in re.finditer(r"^(\w+)\n((?:  .*\n?)+)", told, re.MULTILINE):
        for key, value in re.findall(r"^  (\w+)\n    - .*\n    \+ (.*)$", group[2], re.MULTILINE):
            value, origin = re.fullmatch(r"(.*?)  \((.*)\)", value).groups() if "  (" in value else (value, "default")
            if origin == "default" or origin.startswith("--set"):
                continue
            found[f"{group[1]}.{key}"] = (value, runner.default_of(group[1], key))
    return found


def cell(words):
    """Text as code in a cell of a table."""
    return f"`{words}`".replace("|", "\\|") if words else ""


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def parameters_of(told):
    """What `tessera check` prints about parameters and memory, and the figures of the first table."""
    parts = re.findall(r"^(?:model|memory of).*\n(?: .*\n?)*", told, re.MULTILINE)
    number = re.search(r"^  parameters +([\d ]+)$", told, re.MULTILINE)[1].strip()
    weights = re.search(r"^  weights +(.*?) \(", told, re.MULTILINE)[1]
    together = re.search(r"^memory of.*\n.*\n(.*)$", told, re.MULTILINE)[1].split("  ")[-1].strip()
    sequence = re.search(r"^  sequence +([\d ]+) tokens", told, re.MULTILINE)[1].strip()
    return "".join(parts), [figure.replace(" ", "\N{NO-BREAK SPACE}") for figure in (number, sequence, weights, together)]


def losses(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["iteration"], row["loss"]) for row in rows if isinstance(row.get("loss"), (int, float))]


def drawing(points):
    """A loss curve as SVG, for programs without `tessera report`."""
    low, high = min(y for _, y in points), max(y for _, y in points)
    first, last = points[0][0], points[-1][0]
    line = " ".join(f"{10 + 580 * (x - first) / max(1, last - first):.1f},{10 + 180 * (high - y) / max(1e-9, high - low):.1f}" for x, y in points)
    title = f"Training loss of iterations {first} to {last}: {points[0][1]:.4g} at first, {points[-1][1]:.4g} at last"
    return (f'<svg viewBox="0 0 600 200" role="img" xmlns="http://www.w3.org/2000/svg"><title>{html.escape(title)}</title>'
            f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="2"/></svg>\n')


def train_in_small(runner, page):
    """Runs the page's recipe in small. Returns the command and the run folder."""
    small = GALLERY["small"] + GALLERY["sets"].get(page.get("data"), [])
    if page["name"] == "qlora":
        runner.tessera("checkpoint", "convert", "--from", "tessera", "--to", "hf", "quickstart/run", "quickstart/hf")
    words = ["train", page["run"], *set_words(small)]
    told = runner.tessera(*words)
    return ["tessera", *words], runner.folder / re.search(r"^saved (.*)/checkpoints/", told, re.MULTILINE)[1]


def describe_run(runner, page, output):
    command, run = train_in_small(runner, page)
    points = losses(run)
    lines = ["## A run in small\n", GALLERY["notes"].get(page.get("data"), "").replace("RUN", page["run"]) + "\n",
             "```sh\n" + " \\\n  ".join(re.sub(r" (--set)", r"\n\1", " ".join(command)).split("\n")) + "\n```\n",
             f"The training loss was {points[0][1]:.4g} at iteration {points[0][0]} and {points[-1][1]:.4g} at iteration {points[-1][0]}.\n"]
    if runner.has_report():
        runner.tessera("report", run.relative_to(runner.folder), "-o", output / f"{page['name']}_report.html")
        lines.append(f"[Open the report of this run]({page['name']}_report.html), which `tessera report` wrote.\n")
        lines.append(f'<iframe class="report" src="{page["name"]}_report.html" title="Report of the run in small" loading="lazy"></iframe>\n')
    else:
        lines.append(drawing(points))
    return "\n".join(lines)


def describe(runner, page, output):
    """Writes the page, and returns the row of each recipe for the index."""
    checks = GALLERY["checks"].get(page.get("data"), [])
    rows, printed, found = [], [], {}
    for recipe in page["recipes"]:
        told, figures = parameters_of(runner.tessera("check", recipe, *set_words(checks)))
        rows.append([f"`{recipe}`", *figures])
        command = " ".join(["tessera", "check", recipe, *set_words(checks)])
        printed.append(f"```sh\n{command}\n```\n\n```text\n{told}```\n")
        found[recipe] = differences(runner, recipe, checks)
    head = ["recipe", "parameters", "sequence, in tokens", "weights", "memory of training on one rank"]
    text = [f"# {page['title']}\n", table(head, rows), page.get("remark", "") + "\n"]
    text.append("## Differences from the defaults\n\nAn option without a default is required, or its default depends on another option.\n")
    names = [pathlib.Path(recipe).stem for recipe in page["recipes"]]
    keys = list(dict.fromkeys(key for options in found.values() for key in options))
    defaults = {key: next(options[key][1] for options in found.values() if key in options) for key in keys}
    text.append(table(["option", *names, "default"], [[f"`{key}`", *(cell(found[recipe].get(key, ("", ""))[0]) for recipe in page["recipes"]),
                                                       cell(defaults[key])] for key in keys]))
    for title, recipes in (("Base of the recipe", page["shared"]), ("Small sisters", page["tiny"])):
        if recipes:
            text.append(f"{title}: " + ", ".join(f"`{recipe}`" for recipe in recipes) + ".\n")
    text.append("## The command\n")
    text.append("```sh\n" + "\n".join(" ".join(["tessera", "train", recipe, *model_words(page)]) for recipe in page["recipes"]) + "\n```\n")
    text.append(describe_run(runner, page, output))
    text += ["## What `tessera check` prints\n", *printed]
    (output / f"{page['name']}.md").write_text("\n".join(text))
    return rows


def model_words(page):
    """Options that a recipe of a model leaves to its user."""
    if page.get("data") != "models":
        return []
    return set_words(["training_config.training_iters=1000", "dataset_config.data_path=DATA", "training_config.output_dir=RUN"])


def check_complete(pages):
    """Throws if a recipe of configs/ is on no page, or a page names one that does not exist."""
    named = [recipe for page in pages for recipe in page["recipes"] + page["tiny"] + page["shared"]]
    there = sorted(str(path.relative_to(SOURCE)) for path in (SOURCE / "configs").rglob("*.yaml"))
    missing, unknown = sorted(set(there) - set(named)), sorted(set(named) - set(there))
    if missing or unknown or len(named) != len(set(named)):
        raise SystemExit(f"gallery: docs/gallery/gallery.json lacks {missing}, names {unknown} which do not exist, and must name each recipe once")


def main():
    parser = argparse.ArgumentParser(description="Writes the pages of the gallery.")
    parser.add_argument("--tessera", required=True, help="the program")
    parser.add_argument("--output", required=True, type=pathlib.Path, help="folder of the pages, which is created")
    words = parser.parse_args()
    tessera = shutil.which(words.tessera)
    if tessera is None:
        raise SystemExit(f"gallery: --tessera: there is no program '{words.tessera}'")
    output = words.output.resolve()
    output.mkdir(parents=True)
    pages = [completed(page) for page in GALLERY["pages"]]
    check_complete(pages)
    rows = []
    with tempfile.TemporaryDirectory(prefix="tessera.gallery.") as folder:
        runner = Runner(str(pathlib.Path(tessera).resolve()), pathlib.Path(folder))
        runner.make_quickstart()
        for page in pages:
            print(f"gallery: {page['title']}", file=sys.stderr, flush=True)
            rows += [[f"[{recipe}]({page['name']}.md)", *figures] for recipe, *figures in describe(runner, page, output)]
    head = ["recipe", "parameters", "sequence, in tokens", "weights", "memory of training on one rank"]
    (output / "index.md").write_text(
        "# Gallery\n\nEach recipe of `configs/`, with what `tessera check` says of it and the report of a run made in small when these pages were built. "
        "Memory is what one rank needs at its peak with the recipe's batch size.\n\n" + table(head, rows))
    (output / "pages.json").write_text(json.dumps([[page["title"], f"{page['name']}.md"] for page in pages]))


if __name__ == "__main__":
    main()
