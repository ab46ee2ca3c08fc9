"""Every block of README.md and docs/ that a reader can type or copy does what its page says."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest

import harness
from harness import program

SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])
PAGES = [SOURCE / "README.md", *sorted((SOURCE / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Blocks that are not run here, and why. A page without a number: all of its blocks of that language.
ELSEWHERE = {
    ("README.md", "sh"): "the scripts that run this test",
    ("adding_things.md", "sh"): "the scripts that run this test",
    ("adding_things.md", "cpp"): "declarations of the program itself",
    ("checkpoints.md", "json"): "an excerpt of a manifest",
    ("converting.md", "bash"): "convert_test.py converts these scripts",
    ("converting.md", "yaml"): "convert_test.py compares these recipes",
    ("extending.md", "cpp"): "extending_test.py", ("extending.md", "cmake"): "extending_test.py",
    ("extending.md", "sh"): "extending_test.py", ("extending.md", "yaml"): "extending_test.py",
    ("index.md", "sh"): "package_test.py installs the package and trains this recipe, on two ranks too",
    ("installing.md", "sh"): "package_test.py installs packages and folder; extending_test.py",
    ("qwen2vl.md", "sh"): "of a model of 2 billion parameters; qwen2vl_test.py runs data, conversion and training on a small one",
    ("tutorial_tensor_parallel.md", "cpp"): "tutorial_test.py", ("tutorial_tensor_parallel.md", "cmake"): "tutorial_test.py",
    ("tutorial_tensor_parallel.md", "sh"): "tutorial_test.py",
    ("watch.md", "sh"): "watch_test.py",
}

# What stands for the program: training is short and logs every step. The file `iterations` has the steps of the next calls, a line each.
# A process that was killed holds the lock of its run folder until the kernel has ended it, which is waited for.
TESSERA = """#!/bin/bash
words=("$@")
if [[ $1 == train ]]; then
  steps=4
  if [[ -s iterations ]]; then read -r steps <iterations; sed -i 1d iterations; fi
  for pair in training_iters=$steps eval_iters=1 eval_interval=2 save_interval=1000 log_interval=1; do words+=(--set "training_config.$pair"); done
  words+=(--set optimizer_config.override_opt_param_scheduler=true)
  if [[ -e wider/in_use ]]; then flock --timeout 60 wider/in_use true; fi
fi
exec "$TESSERA_PROGRAM" "${words[@]}"
"""

# What stands for `sleep 20` before a process is killed: it waits until the run has logged a step more.
SLEEP = """#!/bin/bash
lines() { cat wider/metrics.jsonl 2>/dev/null | wc -l; }
before=$(lines)
for ((i = 0; i < 1200; ++i)); do
  if (($(lines) > before)); then exit 0; fi
  /bin/sleep 0.05
done
echo "no step was logged within a minute"
exit 1
"""


def blocks(page, *languages):
    return [(language, words) for language, _, words in BLOCK.findall(page.read_text()) if language in languages]


class Pages(harness.InOwnFolder):
    def setUp(self):
        super().setUp()
        for name, words in (("tessera", TESSERA), ("sleep", SLEEP)):
            self.write(f"bin/{name}", words).chmod(0o755)
        shutil.copytree(SOURCE / "configs", self.folder / "configs")

    def shell(self, words, code=0):
        """Run a block as a reader would type it, line by line."""
        done = subprocess.run(["bash", "-ec", words], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=200, env={**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout[-3000:]}")
        return done.stdout

    def make_quickstart(self):
        """What launch/quickstart.sh leaves, of a small text and a few steps."""
        data = self.folder / "quickstart" / "data"
        data.mkdir(parents=True)
        verses = [f"Ge{n}:{n} In the beginning the earth was without form, and day {n} was the first of {n * 7} days." for n in range(1, 800)]
        (data / "train.txt").write_text("\n".join(verses))
        (data / "held_out.txt").write_text("\n".join(verses[-60:]))
        self.shell("""cd quickstart/data
tessera data train-bpe --input train.txt --vocab-size 300 --output-dir bpe
for name in train held_out; do
  tessera data preprocess --input $name.txt --append-eod --output-prefix $name --vocab-file bpe/vocab.json --merge-file bpe/merges.txt
done""")
        self.shell("tessera train configs/quickstart.yaml")

    def test_the_first_hour(self):
        self.make_quickstart()
        shutil.copy(self.folder / "quickstart/data/train.txt", self.folder / "my.txt")
        seen = 0
        for language, words in blocks(SOURCE / "docs" / "first_hour.md", "sh", "yaml"):
            if language == "yaml":
                name = re.match(r"# (\S+\.yaml)\n", words).group(1)
                self.write(name, words)
                if name == "mine.yaml":
                    self.assertIn("train_data_path is left out", self.shell(f"tessera check {name}"))
                continue
            if "launch/quickstart.sh" in words:
                continue  # a part of .ci/run
            if "kill -9" in words:
                self.write("iterations", "100000\n8\n")
            self.shell(words, code=2 if "lerning_rate" in words else 0)
            seen += 1
        self.assertEqual(self.losses("wider")[-1], self.metrics("wider")[7]["loss"])
        self.assertGreaterEqual(seen, 7)

    def test_recipes_and_parts_of_recipes(self):
        self.make_quickstart()
        os.symlink("quickstart/data", self.folder / "data")
        self.write("common.yaml", "base: quickstart.yaml\n")
        # What the part of a recipe needs around it.
        around = {"parallelism.md": [["--ranks", "4"], ["--set", "model_config.num_layers=62", "--ranks", "4", "--set", "dataset_config.batch_size=1"]]}
        seen = 0
        for page in PAGES:
            if (page.name, "yaml") in ELSEWHERE or page.name == "first_hour.md":
                continue
            for at, (_, words) in enumerate(blocks(page, "yaml")):
                whole = re.match(r"# \S+\.yaml|base:", words)
                self.write("part.yaml", words if whole else "base: quickstart.yaml\n" + words)
                with self.subTest(page=page.name, block=at):
                    self.shell(" ".join(["tessera check part.yaml", *(around[page.name][at] if page.name in around else [])]))
                seen += 1
        self.assertGreaterEqual(seen, 6)

    def test_commands_that_use_the_quickstart(self):
        self.make_quickstart()
        for words in [words for _, words in blocks(SOURCE / "docs" / "experts.md", "sh")]:
            self.shell(words)
        example, event = blocks(SOURCE / "docs" / "metrics.md", "json")
        lines = [json.loads(line) for line in (self.folder / "quickstart/run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(sorted(json.loads(example[1])), sorted(next(line for line in lines if "validation_loss" in line)))
        happened = [json.loads(line) for line in (self.folder / "quickstart/run/events.jsonl").read_text().splitlines()]
        self.assertEqual(sorted(json.loads(event[1])), sorted(next(one for one in happened if one["event"] == "saved")))
        os.symlink("quickstart/run", self.folder / "output")
        (reader,) = blocks(SOURCE / "docs" / "metrics.md", "python")
        self.assertEqual(self.command("python3", "-c", reader[1] + "\nprint(len(losses))"), "4\n")

    def test_conversations(self):
        (block,) = blocks(SOURCE / "docs" / "data.md", "sh")
        self.assertIn("assistant: 6", self.shell(block[1]))
        self.assertEqual(len(self.losses()), 4)

    def test_indented_commands(self):
        """Those whose words are no placeholders, as the pages have them."""
        self.make_quickstart()
        for name in ("output", "run_a", "run_b", "run_c"):
            os.symlink("quickstart/run", self.folder / name)
        self.write("corpus.txt", (self.folder / "quickstart/data/train.txt").read_text())
        self.write("corpus.jsonl", "".join(json.dumps({"text": line}) + "\n" for line in (self.folder / "corpus.txt").read_text().splitlines()))
        for name in ("run.yaml", "recipe.yaml"):
            self.write(name, "base: configs/quickstart.yaml\ntraining_config: {output_dir: another}\n")
        seen = 0
        for page, pattern in (("report.md", "report"), ("data.md", "data (?:train-bpe|preprocess|inspect|merge part|checksum|show run)"), ("profiling.md", "train"),
                              ("converting.md", "convert recipe.yaml")):
            text = re.sub(r" \\\n +", " ", (SOURCE / "docs" / page).read_text())
            for words in re.findall(rf"^    (tessera (?:{pattern}).*)$", text, re.MULTILINE):
                if "part_0" in words:
                    for part, ending in ((part, ending) for part in ("part_0", "part_1") for ending in ("bin", "idx")):
                        shutil.copy(self.folder / f"my_text_document.{ending}", self.folder / f"{part}_text_document.{ending}")
                if not re.search(r"\.\.\.|\[|alpaca", words):
                    self.shell(words + " --allow-refused" if " convert " in words else words)
                    seen += 1
        self.assertGreaterEqual(seen, 11)

    def test_every_block_is_run_somewhere(self):
        here = {("first_hour.md", "sh"), ("first_hour.md", "yaml"), ("experts.md", "sh"), ("metrics.md", "json"), ("metrics.md", "python"),
                ("data.md", "sh")}
        for page in PAGES:
            for language in {language for language, _ in blocks(page, "sh", "bash", "json", "python", "cpp", "cmake")}:
                self.assertTrue((page.name, language) in here or (page.name, language) in ELSEWHERE,
                                f"docs/{page.name}: blocks of {language} are run by no test; run them here")


@functools.cache
def help_of(*command):
    done = subprocess.run([*command, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout if done.returncode == 0 else None


# Keys in the form of an option that are none, and why.
OTHER_KEYS = {
    ("converting.md", "model_config.llm"): "of a file of another program",
    ("extending.md", "model_config.neighbour"): "of the extension that the page writes",
    ("first_hour.md", "optimizer_config.lerning_rate"): "the mistake that the page shows",
}


class Commands(harness.InOwnFolder):
    """Options of the commands that pages show, also of commands that no test can run, exist."""

    def unknown(self, words):
        """Options of a line 'tessera ...' or 'tsrun ...' that the help of its command does not name."""
        tsrun = pathlib.Path(program()).with_name("tsrun")
        command, missing = [], []
        for word in words:
            if word in ("tessera", "tsrun") and (not command or command == [str(tsrun)]):
                command = [program() if word == "tessera" else str(tsrun)]
            elif word == "--":
                break  # flags of another program follow
            elif not command:
                continue
            elif re.fullmatch(r"--[a-z][a-z0-9_-]*(=.*)?", word):
                option = word.split("=")[0]
                if not re.search(rf"(?<![\w-]){option}(?![\w-])", help_of(*command)):
                    missing.append(f"{pathlib.Path(command[0]).name} {' '.join(command[1:])}: {option}")
            elif len(command) < 3 and re.fullmatch(r"[a-z][a-z-]+", word) and command[0] == program() and "\nSubcommands:" in help_of(*command):
                if re.search(rf"^ +{word} ", help_of(*command).split("\nSubcommands:")[1], re.MULTILINE):
                    command.append(word)
                else:
                    missing.append(f"{pathlib.Path(command[0]).name} {' '.join(command[1:])}: no command {word}")
        return missing

    def test_unknown_words_of_a_command_are_found(self):
        self.assertEqual([bool(self.unknown(words.split())) for words in ("tessera nowhere", "tessera data nowhere x", "tessera train a.yaml --nowhere 3")], [True] * 3)
        self.assertEqual(self.unknown("tsrun --worker_num 2 tessera data show a.yaml --step 3".split()), [])

    def test_options_of_shown_commands_exist(self):
        seen, missing = 0, []
        for page in PAGES:
            if page.name == "flags.md":
                continue  # generated; `tessera options --adam-beta2` there has a flag as its pattern
            text = page.read_text()
            lines = re.findall(r"`([^`\n]*\b(?:tessera|tsrun) [^`\n]*)`", text) + re.findall(r"^(?:    |)(?:\w\$ )?((?:tessera|tsrun) [^\n]*)", text, re.MULTILINE)
            for line in lines:
                for part in re.split(r"[|;#]|&&", line.replace("\\", " ")):
                    missing += [f"{page.name}: {words}" for words in self.unknown(part.replace("[", " ").replace("]", " ").split())]
                seen += 1
        self.assertEqual(missing, [])
        self.assertGreater(seen, 100)

    def test_options_of_recipes_that_pages_name_exist(self):
        options = set(self.command(program(), "options", "--names").split())
        groups = {name.split(".")[0] for name in options}
        seen, missing = 0, []
        for page in PAGES:
            if page.name in ("flags.md", "options.md"):
                continue  # generated, and they name the keys of other programs
            for group, key in re.findall(r"(?<![\w.])(\w+_config)\.(\w+)", page.read_text()):
                name = f"{group}.{key}"
                if group in groups and key not in ("json", "yaml", "key") and (page.name, name) not in OTHER_KEYS:
                    seen += 1
                    missing += [f"{page.name}: {name}"] if name not in options else []
        self.assertEqual(missing, [])
        self.assertGreater(seen, 50)


def anchors(text):
    """The names that GitHub gives the headings of a page, and those that the page itself gives."""
    found = set(re.findall(r"<\w+ (?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#+ +(.+?) *$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (name if number == 0 else f"{name}-{number}") in found:
            number += 1
        found.add(name if number == 0 else f"{name}-{number}")
    return found


def dead_links(page, text):
    """Relative links of a page to files or headings that do not exist."""
    dead = []
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    for address in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", address):
            continue
        path, _, name = address.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists():
            dead.append(f"{page.name}: {address}: no such file")
        elif name and name not in anchors(target.read_text() if path else text):
            dead.append(f"{page.name}: {address}: no such heading")
    return dead


class Links(unittest.TestCase):
    def test_every_relative_link_goes_to_a_file_and_a_heading(self):
        self.assertEqual([words for page in PAGES for words in dead_links(page, page.read_text())], [])

    def test_no_text_is_taken_for_an_html_tag(self):
        for page in PAGES:
            prose = re.sub(r"^```.*?^```$|^    [^\n]*$|`+[^`\n]*`+", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
            tags = [tag for tag in re.findall(r"<[A-Za-z/!?][^>\n]*>", prose) if not re.match(r'<a id="[^"]*">|</a>|<!-- (script [^>]*|end) -->', tag)]
            self.assertEqual(tags, [], page.name)

    def test_a_dead_link_is_found(self):
        page = SOURCE / "docs" / "index.md"
        self.assertEqual(dead_links(page, "# A\n[a](#a) [b](#b) [c](nowhere.md) [d](data.md#nowhere) [e](https://example.org/x#y) `[f](f.md)`"),
                         ["index.md: #b: no such heading", "index.md: nowhere.md: no such file", "index.md: data.md#nowhere: no such heading"])


if __name__ == "__main__":
    harness.main()
