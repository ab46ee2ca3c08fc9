"""Parquet files of pyarrow as input of `tessera data`, and the other commands on token files."""

import json
import os
import pathlib
import random
import unittest

import harness

PYTHON = os.environ.get("TESSERA_TEST_PYTHON")
WRITER = pathlib.Path(__file__).with_name("parquet_writer.py")
needs_pyarrow = unittest.skipUnless(PYTHON, "TESSERA_TEST_PYTHON names no Python with pyarrow")

# The columns of the Alpaca data set, and what the usual script makes of it: the column `text` as JSON lines.
ALPACA = """
import json, sys
import pyarrow as pa, pyarrow.parquet as pq
rows = [{"instruction": f"Task {i}", "input": "é" * (i % 3), "output": "line\\nline" * i, "text": f'Task "{i}": 漢字 𝄞 ' * i} for i in range(500)]
pq.write_table(pa.Table.from_pylist(rows), "alpaca.parquet", row_group_size=170)
with open("expected.json", "w", encoding="utf-8") as out:
    for row in rows:
        out.write(json.dumps({"text": row["text"]}) + "\\n")
"""


class Parquet(harness.InOwnFolder):
    @needs_pyarrow
    def test_random_tables_are_read_as_pyarrow_reads_them(self):
        seed, count = random.randrange(1 << 30), 40
        self.command(PYTHON, "-B", WRITER, self.folder, seed, count)
        self.write("letters.txt", "the quick brown fox " * 20)
        self.tessera("data", "train-bpe", "--input", "letters.txt", "--vocab-size", 262, "--output-dir", "bpe")
        tokens = ["--json-keys", "text", "list", "--vocab-file", "bpe/vocab.json", "--merge-file", "bpe/merges.txt", "--append-eod"]
        for number in range(count):
            how = f"parquet_writer.py FOLDER {seed} {count}, table {number}: " + (self.folder / f"{number}.options").read_text()
            with self.subTest(how):
                self.tessera("data", "to-jsonl", f"{number}.parquet", "--output", "out.jsonl")
                self.assertEqual((self.folder / "out.jsonl").read_bytes(), (self.folder / f"{number}.jsonl").read_bytes(), how)
                if (self.folder / f"{number}.texts").exists():
                    for source in ["parquet", "jsonl"]:
                        self.tessera("data", "preprocess", "--input", f"{number}.{source}", "--output-prefix", source, *tokens)
                    self.assert_same_files("parquet", "jsonl", how)

    def assert_same_files(self, one, other, how="", keys=("text", "list")):
        for name in [f"_{key}_document{suffix}" for key in keys for suffix in [".bin", ".idx"]]:
            self.assertEqual((self.folder / (one + name)).read_bytes(), (self.folder / (other + name)).read_bytes(), how + name)

    @needs_pyarrow
    def test_parquet_is_an_input_of_preprocess(self):
        self.command(PYTHON, "-c", ALPACA)
        self.tessera("data", "to-jsonl", "alpaca.parquet", "--output", "alpaca.jsonl")
        self.tessera("data", "train-bpe", "--input", "alpaca.parquet", "--json-keys", "text", "output", "--vocab-size", 300,
                     "--output-dir", "bpe")
        self.tessera("data", "train-bpe", "--input", "alpaca.jsonl", "--json-keys", "text", "output", "--vocab-size", 300,
                     "--output-dir", "same")
        self.assertEqual((self.folder / "bpe/merges.txt").read_bytes(), (self.folder / "same/merges.txt").read_bytes())
        common = ["--vocab-file", "bpe/vocab.json", "--merge-file", "bpe/merges.txt", "--append-eod", "--json-keys", "text", "output"]
        for variant in [[], ["--workers", 3], ["--partitions", 3], ["--partitions", 3, "--keep-sequential-samples"]]:
            for source in ["parquet", "jsonl"]:
                self.tessera("data", "preprocess", "--input", f"alpaca.{source}", "--output-prefix", source, *common, *variant)
            self.assert_same_files("parquet", "jsonl", str(variant), keys=("text", "output"))
        refused = ["data", "preprocess", "--input", "alpaca.parquet", "--output-prefix", "x", *common[:4]]
        self.assertIn("no column 'absent'; it has instruction, input, output, text",
                      self.tessera(*refused, "--json-keys", "absent", code=2))
        self.assertIn("leave --format out", self.tessera(*refused, "--format", "file", code=2))
        self.assertEqual(list(self.folder.glob("x*")), [])
        self.command(PYTHON, "-c", "import pyarrow as pa, pyarrow.parquet as pq\n"
                     "pq.write_table(pa.table({'text': ['a', None, 'b'], 'n': [1, 2, 3]}), 'null.parquet')")
        refused[3] = "null.parquet"
        self.assertIn("null.parquet:2: ", self.tessera(*refused, code=2))
        self.assertIn("column 'n' holds neither texts nor lists of texts", self.tessera(*refused, "--json-keys", "n", code=2))
        told = self.tessera("data", "preprocess", "--input", "null.parquet", "--output-prefix", "skipped", *common[:4], "--on-error", "skip")
        self.assertIn("skipped_text_document: 2 documents", told)

    @needs_pyarrow
    def test_alpaca(self):
        self.command(PYTHON, "-c", ALPACA)
        self.tessera("data", "to-jsonl", "alpaca.parquet", "--columns", "text", "--output", "alpaca.json")
        self.assertEqual((self.folder / "alpaca.json").read_bytes(), (self.folder / "expected.json").read_bytes())
        bpe = ["--vocab-file", "bpe/vocab.json", "--merge-file", "bpe/merges.txt"]
        self.tessera("data", "train-bpe", "--input", "alpaca.json", "--vocab-size", 300, "--output-dir", "bpe")
        self.tessera("data", "preprocess", "--input", "alpaca.json", "--output-prefix", "alpaca", "--append-eod", *bpe)
        told = self.tessera("data", "inspect", "alpaca_text_document", "--document", 1, "--verify", *bpe)
        self.assertIn("documents   500\n", told)
        self.assertIn('Task "1": 漢字', told)
        self.assertRegex(told, r"verified    \d+ tokens read, ids 1?\d?\d to 299\n")

    def test_help_names_the_commands(self):
        told = self.tessera("data", "--help")
        for command in ["preprocess", "inspect", "merge", "to-jsonl", "train-bpe"]:
            self.assertIn(f"  {command} ", told)


class TokenFiles(harness.InOwnFolder):
    NULL = ["--tokenizer-type", "NullTokenizer", "--vocab-size", 60]

    def preprocess(self, prefix, *texts):
        self.write(prefix + ".jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
        self.tessera("data", "preprocess", "--input", prefix + ".jsonl", "--output-prefix", prefix, *self.NULL)

    def test_merging_a_folder(self):
        (self.folder / "parts").mkdir()
        texts = {"parts/b": ["3", "4 5"], "parts/a": ["1 2"], "parts/B": ["0"]}
        for prefix, words in texts.items():
            self.preprocess(prefix, *words)
        for path in (self.folder / "parts").glob("*.jsonl"):
            path.unlink()
        self.preprocess("all", "0", "1 2", "3", "4 5")
        self.tessera("data", "merge", "--input", "parts", "--output-prefix", "merged")
        for suffix in [".bin", ".idx"]:
            self.assertEqual((self.folder / f"merged{suffix}").read_bytes(),
                             (self.folder / f"all_text_document{suffix}").read_bytes())
        self.assertIn("overwrite the input",
                      self.tessera("data", "merge", "--input", "parts", "--output-prefix", "parts/a_text_document", code=2))
        (self.folder / "parts/a_text_document.idx").unlink()
        told = self.tessera("data", "merge", "--input", "parts", "--output-prefix", "merged", code=2)
        self.assertIn("parts/a_text_document.bin without parts/a_text_document.idx", told)
        self.assertIn("either prefixes", self.tessera("data", "merge", "--output-prefix", "x", code=2))
        self.assertIn("--input", self.tessera("data", "merge", "x", "--input", "parts", "--output-prefix", "y", code=2))

    def test_inspecting(self):
        self.preprocess("a", "5 6 7", "", " ".join(["8"] * 40))
        told = self.tessera("data", "inspect", "a_text_document", "--document", 2, 0, "--tokens", 3)
        self.assertIn("document 2 begins 8 8 8\ndocument 0 is 5 6 7\n", told)
        self.assertRegex(told, r"\n +2-3 \|#{40} 1  50.0 %\n(.*\n)* +32-63 \|#{40} 1  50.0 %\n")
        facts = json.loads(self.tessera("data", "inspect", "a_text_document", "--json", "--verify", *self.NULL))
        self.assertEqual((facts["documents"], facts["empty_documents"], facts["tokens"], facts["type"]), (3, 1, 43, "uint16"))
        self.assertEqual(facts["shown"], [{"document": 0, "tokens": 3, "ids": [5, 6, 7], "text": "5 6 7"}])
        self.assertEqual(facts["verified"]["greatest_id"], 8)
        self.assertIn("has the documents 0 to 2", self.tessera("data", "inspect", "a_text_document", "--document", 3, code=2))
        self.assertIn("--document x", self.tessera("data", "inspect", "a_text_document", "--document", "x", code=2))
        told = self.tessera("data", "inspect", "a_text_document", "--verify", "--tokenizer-type", "NullTokenizer", "--vocab-size", 6, code=2)
        self.assertIn("41 of 43 tokens are outside the vocabulary of 7; the first: a_text_document.bin: document 0, token 2", told)
        self.assertIn("prefixes a_text_document", self.tessera("data", "inspect", "a", code=2))


if __name__ == "__main__":
    harness.main()
