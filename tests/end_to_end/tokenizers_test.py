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
        for shape in shapes:
            content = json.loads(shape.read_text(encoding="utf-8"))
            folder = self.folder / shape.stem
            folder.mkdir()
            (folder / "tokenizer.json").write_text(json.dumps(content["tokenizer"]), encoding="utf-8")
            cases = [case for case in content["cases"] if case.get("text") and case["ids"]]
            self.write(f"{shape.stem}.jsonl", "".join(json.dumps({"text": case["text"]}) + "\n" for case in cases))
            self.tessera("data", "preprocess", "--input", f"{shape.stem}.jsonl", "--output-prefix", shape.stem, "--workers", "1",
                         "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", folder)
            ours = documents(self.folder / f"{shape.stem}_text_document")
            self.assertEqual(len(ours), len(cases), f"{shape.stem}, seed {seed}")
            for case, ids in zip(cases, ours):
                self.assertEqual(ids, case["ids"], f"{shape.stem}, seed {seed}: {case['text']!r}")
