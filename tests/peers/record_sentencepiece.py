#!/usr/bin/env python3
"""Records tests/data/sentencepiece: ids and texts of Megatron-LM's own SentencePieceTokenizer, GPTSentencePieceTokenizer and Llama2Tokenizer.

    python record_sentencepiece.py MEGATRON CORPUS OUT [--lines 60] [--vectors 40] [--seed 1]

MEGATRON is a checkout of core_v0.12.1, CORPUS the folder tests/data/golden_data/corpus, whose texts train small models of every kind: BPE with byte
fallback, unigram with a normalization rule, characters with the space as a suffix, words with a rule for decoding. Recorded in the format of
golden_data: tokenizers.json, NAME_ids.jsonl for random texts ("decoded": what detokenize gives for them), and NAME_decoded.jsonl: random ids with
their text. Needs sentencepiece and numpy. `--lines 20000 --out` elsewhere is a longer comparison: point tests at it by golden_runner.
"""
import argparse
import importlib.util
import json
import random
import sys
import types
from pathlib import Path

import sentencepiece

SPECIAL = ["<CLS>", "<SEP>", "<EOD>", "<MASK>", "<PAD>", "<BOS>", "<EOS>", "<s>", "</s>", "<pad>", "<unk>", "<extra_id_0>", "<extra_id_1>",
           "<extra_id_10>", "<extra_id_", "<CLS", "<0x0A>", "<stop>"]
ODD = " \t\n\u3000\u00a0\u200b\u2581a1\uff12\ufb01\u2460\u2167\u0301\u00e9\u00ad\ufeff\u2047"


def megatron_tokenizers(megatron):
    """The module tokenizer.py with stand-ins for what it imports and these three classes do not use."""
    def module(name, **attributes):
        made = types.ModuleType(name)
        made.__path__ = []
        vars(made).update(attributes)
        sys.modules[name] = made

    def load(name, path):
        spec = importlib.util.spec_from_file_location(name, megatron / path)
        made = importlib.util.module_from_spec(spec)
        sys.modules[name] = made
        spec.loader.exec_module(made)
        return made

    for name in ("megatron", "megatron.core", "megatron.core.datasets", "megatron.training", "megatron.training.tokenizer"):
        module(name)
    module("megatron.training.tokenizer.bert_tokenization", FullTokenizer=None)
    module("megatron.training.tokenizer.gpt2_tokenization", GPT2Tokenizer=None)
    module("megatron.training.tokenizer.multimodal_tokenizer", MultimodalTokenizer=None)
    load("megatron.core.datasets.megatron_tokenizer", "megatron/core/datasets/megatron_tokenizer.py")
    return load("megatron.training.tokenizer.tokenizer", "megatron/training/tokenizer/tokenizer.py")


def train(corpus, out):
    """Models of every type and of every option that changes encoding or decoding."""
    texts = [json.loads(line)["text"] for name in ("verses", "hard") for line in (corpus / f"{name}.jsonl").open(encoding="utf-8")]
    lines = [line for text in texts for line in text.replace("\0", "").splitlines() if line.strip()]
    rule, back = out / "rule.tsv", out / "back.tsv"
    rule.write_text("41\t61\nFF12\t32\nFB01\t66 69\n3000\t20\nA0\t20\n9\t20\nA\t20\n", encoding="utf-8")
    back.write_text("74 68\tFE\n65 20\t45 20\n", encoding="utf-8")
    common = {"minloglevel": 2, "hard_vocab_limit": False, "num_threads": 1, "character_coverage": 0.98}
    kinds = {
        "bpe": dict(model_type="bpe", vocab_size=420, byte_fallback=True, split_digits=True, normalization_rule_name="identity",
                    remove_extra_whitespaces=False, max_sentence_length=20000),
        "unigram": dict(model_type="unigram", vocab_size=300, normalization_rule_tsv=str(rule), pad_id=0, unk_id=2, bos_id=-1, eos_id=1,
                        user_defined_symbols=["<SEP>", "<CLS"], unk_surface=" ? "),
        "char": dict(model_type="char", vocab_size=120, normalization_rule_name="identity", treat_whitespace_as_suffix=True,
                     remove_extra_whitespaces=False, bos_piece="<stop>", control_symbols=["<MASK>"]),
        "word": dict(model_type="word", vocab_size=200, normalization_rule_name="identity", denormalization_rule_tsv=str(back), eos_id=-1,
                     bos_id=1, unk_id=0, pad_id=2),
        "plain": dict(model_type="unigram", vocab_size=500, normalization_rule_name="identity", add_dummy_prefix=False, byte_fallback=True,
                      remove_extra_whitespaces=False),
    }
    for name, options in kinds.items():
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(out / "models" / name), **common, **options)
        (out / "models" / f"{name}.vocab").unlink()
    rule.unlink(), back.unlink()
    return list(kinds)


def random_text(rng, words):
    parts = []
    for _ in range(rng.randint(0, 12)):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(words) + rng.choice(["", " ", "  "]))
        elif kind < 0.5:
            parts.append(rng.choice(SPECIAL))
        elif kind < 0.65:
            parts.append(rng.choice(ODD) * rng.randint(1, 3))
        else:
            limit = rng.choice([0x80, 0x800, 0x3400, 0x110000])
            codes = [rng.randrange(limit) for _ in range(rng.randint(1, 6))]
            parts.append("".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000))
    return "".join(parts)


def value(tokenizer, name):
    try:
        return getattr(tokenizer, name)
    except Exception as error:
        return f"raises {type(error).__name__}"


def record(out, name, flags, tokenizer, texts, rng, vectors):
    with (out / f"{name}_ids.jsonl").open("w", encoding="utf-8") as file:
        for line, text in enumerate(texts):
            ids = tokenizer.tokenize(text)
            file.write(json.dumps({"file": "random", "line": line, "ids": ids, "decoded": tokenizer.detokenize(ids)}) + "\n")
    special = [i for i in range(tokenizer.vocab_size) if i < 20 or i >= tokenizer.vocab_size - 20]
    with (out / f"{name}_decoded.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(vectors):
            ids = [rng.choice(special) if rng.random() < 0.3 else rng.randrange(min(280, tokenizer.vocab_size))
                   if rng.random() < 0.5 else rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(0, 25))]
            file.write(json.dumps({"ids": ids, "decoded": tokenizer.detokenize(ids)}) + "\n")
    row = {"tokenizer": name, "flags": flags, "vocab_size": tokenizer.vocab_size, "padded_vocab_size": -(-tokenizer.vocab_size // 128) * 128,
           "eod": tokenizer.eod, "unique_identifiers": dict(tokenizer.unique_identifiers)}
    return row | {key: value(tokenizer, key) for key in ("pad", "bos", "eos", "cls", "sep", "mask")}


def main(given):
    rng = random.Random(given.seed)
    module = megatron_tokenizers(Path(given.megatron))
    out, corpus = Path(given.out), Path(given.corpus).resolve()
    for folder in ("models", "corpus"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    models = train(corpus, out)
    words = [word for line in (corpus / "verses.jsonl").open(encoding="utf-8") for word in json.loads(line)["text"].split()]
    texts = ["", " ", "  a  ", "<s>", "<CLS><CLS> x"] + [random_text(rng, words) for _ in range(given.lines)]
    with (out / "corpus" / "random.jsonl").open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    import os
    os.chdir(out)  # paths of the identity are relative
    rows = []
    for model in models:
        path = f"models/{model}.model"
        flags = ["--tokenizer-model", path]
        sp = module._SentencePieceTokenizer(path, vocab_extra_ids=0 if model == "char" else 11)
        extra = [] if model == "char" else ["--vocab-extra-ids", "11"]
        rows.append(record(Path("."), f"sp_{model}", ["--tokenizer-type", "SentencePieceTokenizer", *flags, *extra], sp, texts, rng, given.vectors))
        if model == "word":  # has no eos: Tessera refuses it as what ends a document
            continue
        gpt = module._GPTSentencePieceTokenizer(path)
        rows.append(record(Path("."), f"gptsp_{model}", ["--tokenizer-type", "GPTSentencePieceTokenizer", *flags], gpt, texts, rng, given.vectors))
        if model == "unigram":  # has no bos
            continue
        llama = module._Llama2Tokenizer(path)
        rows.append(record(Path("."), f"llama_{model}", ["--tokenizer-type", "Llama2Tokenizer", *flags], llama, texts, rng, given.vectors))
    Path("tokenizers.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megatron")
    parser.add_argument("corpus")
    parser.add_argument("out")
    parser.add_argument("--lines", type=int, default=60)
    parser.add_argument("--vectors", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    main(parser.parse_args())
