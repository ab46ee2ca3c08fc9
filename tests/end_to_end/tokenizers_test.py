"""HuggingFaceTokenizer against the real library `tokenizers`: small tokenizers of every shape, fresh random texts."""

import json
import os
import pathlib
import random
import struct
import subprocess
import unittest

from harness import InOwnFolder

PYTHON = os.environ.get("TESSERA_TEST_PYTHON")
RECORDER = pathlib.Path(__file__).parents[1] / "peers" / "record_tokenizers.py"


def documents(prefix):
    """The documents of a token file of 16-bit ids."""
    index = pathlib.Path(f"{prefix}.idx").read_bytes()
    count = struct.unpack_from("<Q", index, 18)[0]
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    tokens = pathlib.Path(f"{prefix}.bin").read_bytes()
    ids = struct.unpack(f"<{len(tokens) // 2}H", tokens)
    ends = [sum(lengths[:i + 1]) for i in range(count)]
    return [list(ids[end - length:end]) for end, length in zip(ends, lengths)]


@unittest.skipUnless(PYTHON, "TESSERA_TEST_PYTHON names no Python with tokenizers")
class Tokenizers(InOwnFolder):
    def test_random_texts_have_the_ids_of_the_original(self):
        seed = random.randrange(1 << 30)
        done = subprocess.run([PYTHON, RECORDER, self.folder / "recorded", "--seed", str(seed), "--texts", "150"], text=True, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        shapes = sorted((self.folder / "recorded").glob("*.json"))
        self.assertGreater(len(shapes), 15, done.stderr)
        differing = 0
        for shape in shapes:
            content = json.loads(shape.read_text(encoding="utf-8"))
            folder = self.folder / shape.stem
            folder.mkdir()
            (folder / "tokenizer.json").write_text(json.dumps(content["tokenizer"]), encoding="utf-8")
            texts = [case for case in content["cases"] if case.get("text")]
            self.compare(folder, [(case["text"], case["ids"]) for case in texts], f"{shape.stem}, seed {seed}")
            # Special tokens as ordinary text.
            (folder / "tokenizer_config.json").write_text('{"split_special_tokens": true}')
            differing += sum(case["ids"] != case["split_ids"] for case in texts)
            self.compare(folder, [(case["text"], case["split_ids"]) for case in texts], f"{shape.stem}, special tokens split, seed {seed}")
        self.assertGreater(differing, 50)

    def compare(self, folder, cases, about):
        """Ids of texts by the tokenizer in `folder`; a document without tokens is not written."""
        cases = [(text, ids) for text, ids in cases if ids]
        self.write("texts.jsonl", "".join(json.dumps({"text": text}) + "\n" for text, _ in cases))
        self.tessera("data", "preprocess", "--input", "texts.jsonl", "--output-prefix", "texts", "--workers", "1",
                     "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", folder)
        ours = documents(self.folder / "texts_text_document")
        self.assertEqual(len(ours), len(cases), about)
        for (text, wanted), ids in zip(cases, ours):
            self.assertEqual(ids, wanted, f"{about}: {text!r}")
        for ending in (".idx", ".bin"):
            (self.folder / f"texts_text_document{ending}").unlink()
