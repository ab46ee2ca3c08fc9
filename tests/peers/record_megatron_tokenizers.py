"""Record Megatron-LM's own BertWordPieceLowerCase, BertWordPieceCase and TikTokenizer, for tests/data/{bert,tiktoken}_test.cpp.

    python3 record_megatron_tokenizers.py MEGATRON OUT [--texts 120] [--seed 1]

MEGATRON is a checkout of core_v0.12.1; OUT is tests/data. Writes OUT/bert and OUT/tiktoken: small vocabularies and cases.jsonl, whose
lines are, for each tokenizer, its options and properties, then random texts with their ids ("error" where it raises) and random ids with
their text. Needs Python 3.11 (Unicode 14) and by pip tiktoken 0.14.0, numpy, six.
"""
import argparse
import base64
import importlib.util
import json
import random
import sys
import types
import unicodedata
from pathlib import Path

KNOWN = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Co") and (c < 0x30000 or c > 0xE0000)]
ODD = list(" \t\n\r\u3000\u00a0\u200b\u2028\u2029\x1c\x1f\x85\x00\ufffd\u00ad'\"-_$^`~\u00bf\u3002\u4e00\u9fff\u3400\uf900\u0130\u03a3\u00df\u0301\u0345")
WORDS = ["don't", "I'm", "it's", "we've", "they're", "Hello", "WORLD", "caf\u00e9", "CAF\u00c9", "na\u00efve", "\u039f\u0394\u039f\u03a3", "3.14", "1234567",
         "a.b", "[CLS]", "[MASK]", "<extra_id_0>", "<s>", "</s>", "\u6f22\u5b57", "\ud55c\uad6d\uc5b4", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467", "the", "and", "lord", "of", "unto", "\r\n\r\n", "  ", "/path/to", "...", "!!!", "x" * 201, "ab" * 100]


def megatron_tokenizers(megatron):
    """The module tokenizer.py with stand-ins for what it imports and these classes do not use."""
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

    quiet = {"print_rank_0": lambda *_: None}
    for name in ("megatron", "megatron.core", "megatron.core.datasets"):
        module(name)
    module("megatron.training", **quiet)
    module("megatron.training.utils", **quiet)
    module("megatron.training.tokenizer", **quiet)
    module("megatron.training.tokenizer.gpt2_tokenization", GPT2Tokenizer=None)
    module("megatron.training.tokenizer.multimodal_tokenizer", MultimodalTokenizer=None)
    load("megatron.core.datasets.megatron_tokenizer", "megatron/core/datasets/megatron_tokenizer.py")
    load("megatron.training.tokenizer.bert_tokenization", "megatron/training/tokenizer/bert_tokenization.py")
    return load("megatron.training.tokenizer.tokenizer", "megatron/training/tokenizer/tokenizer.py")


def random_text(rng):
    parts = []
    for _ in range(rng.randrange(0, 10)):
        kind = rng.random()
        if kind < 0.5:
            parts.append(rng.choice(WORDS))
        elif kind < 0.75:
            parts.append("".join(rng.choice(ODD) for _ in range(rng.randrange(1, 4))))
        elif kind < 0.9:
            parts.append("".join(rng.choice("abcdenstlrvmABE'. 019") for _ in range(rng.randrange(1, 9))))
        else:
            parts.append("".join(rng.choice(KNOWN) for _ in range(rng.randrange(1, 5))))
        parts.append(rng.choice(["", " ", " ", "\n"]))
    return "".join(parts)


def properties(tokenizer):
    found = {"vocab_size": tokenizer.vocab_size, "eod": tokenizer.eod, "identity": dict(tokenizer.unique_identifiers)}
    for name in ("pad", "bos", "eos", "cls", "sep", "mask"):
        try:
            found[name] = getattr(tokenizer, name)
        except (NotImplementedError, AttributeError):
            found[name] = None
    return found


def record(out, cases, tokenizers, texts):
    """`tokenizers`: (options of dataset_config, tokenizer)."""
    with open(out / cases, "w", encoding="utf-8") as file:
        for options, tokenizer in tokenizers:
            file.write(json.dumps({"options": options, **properties(tokenizer)}, ensure_ascii=False) + "\n")
            rng = random.Random(len(options) + tokenizer.vocab_size)
            ids = sorted(tokenizer.inv_vocab)
            for text in texts:
                try:
                    line = {"text": text, "ids": tokenizer.tokenize(text)}
                except KeyError as error:
                    line = {"text": text, "error": str(error)}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            for _ in range(len(texts) // 2):
                some = [rng.choice(ids) for _ in range(rng.randrange(0, 30))]
                file.write(json.dumps({"ids": some, "decoded": tokenizer.detokenize(some)}, ensure_ascii=False) + "\n")


def bert(module, out, texts):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = list("abcdefghijklmnopqrstuvwxyzABCDEHILMOW0123456789'.,!?-$^") + ["\u00e9", "\u03c2", "\u03c3", "\u03bf", "\u03b4", "\u4e00", "\u6f22", "\u0301", "\ud55c"]
    pieces = ["the", "and", "lord", "of", "un", "##to", "hello", "Hello", "##orld", "cafe", "caf\u00e9", "CAF", "na", "##ive", "don", "do", "##n", "n't", "'m",
              "'s", "##'s", "'ve", "'re", "##ab", "##abab", "x", "##x", "##xxxx", "ab", "\u039f\u0394\u039f\u03a3", "##12", "123", "...", "##", "#", "###a", "t", "m", "s", "ve", "re"]
    lines = special + letters + ["##" + c for c in letters] + pieces
    (out / "vocab.txt").write_bytes("\n".join(lines).encode())
    # Blank lines, equal lines, ends of lines of three kinds, blanks around tokens and in them, its own [EOS]; no [UNK].
    odd = ["[PAD]", "", "a", "b", "a", "[CLS]", "  [SEP]\t", "[MASK]", "\u3000x\u3000", "x y", "n", "'", "##'", "t", "##t", "s", ".", "", "[EOS]", "##a", "a ##b", "#", "## z", "", ""]
    ends = ["\n", "\r\n", "\r"]
    (out / "odd.txt").write_bytes("".join(line + ends[i % 3] for i, line in enumerate(odd)).encode())
    made = []
    for vocab, extra in (("vocab.txt", 0), ("vocab.txt", 3), ("odd.txt", 2)):
        for name, lower in (("BertWordPieceLowerCase", True), ("BertWordPieceCase", False)):
            if extra == 3 and lower:
                continue
            tokenizer = module._BertWordPieceTokenizer(vocab_file=str(out / vocab), lower_case=lower, vocab_extra_ids=extra)
            tokenizer.unique_identifiers["tokenizer_path"] = [vocab]
            made.append(({"tokenizer_type": name, "vocab_file": vocab, "vocab_extra_ids": extra}, tokenizer))
    record(out, "cases.jsonl", made, texts)


def tiktoken_vocabulary(texts, count):
    """256 bytes and frequent strings of the texts, shorter ones first, as a trained vocabulary has them."""
    found = {}
    for text in texts:
        data = text.encode()
        for size in range(2, 9):
            for at in range(len(data) - size + 1):
                part = data[at:at + size]
                found[part] = found.get(part, 0) + 1
    common = sorted(found, key=lambda part: (-found[part], part))[:count]
    return [bytes([i]) for i in range(256)] + sorted(common, key=lambda part: (len(part), part))


def tiktoken(module, out, texts, seed):
    rng = random.Random(seed)
    tokens = tiktoken_vocabulary([random_text(rng) for _ in range(300)], 500)
    entries = [{"rank": i, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode("utf-8", "replace")}
               for i, token in enumerate(tokens)]
    (out / "vocab.json").write_text(json.dumps(entries, indent=0), encoding="utf-8")
    made = []
    for pattern, size, special_count, special in (("v1", len(tokens) + 10, 10, None), ("v2", len(tokens) + 10, 10, None),
                                                  ("v2", 600, 4, ["</s>", "<it's>", "<unk>", "<s>"]), ("v1", 300, 7, ["<unk>", "<s>", "</s>", "a\n\u00e9'"])):
        tokenizer = module.CustomTikTokenizer(
            path=str(out / "vocab.json"), pattern=module.PATTERN_TIKTOKEN if pattern == "v1" else module.PATTERN_TIKTOKEN_V2,
            vocab_size=size, num_special_tokens=special_count, special_tokens=special)
        tokenizer.unique_identifiers["tokenizer_path"] = ["vocab.json"]
        options = {"tokenizer_type": "TikTokenizer", "tokenizer_model": "vocab.json", "tiktoken_pattern": pattern, "vocab_size": size,
                   "tiktoken_num_special_tokens": special_count}
        if special:
            options["tiktoken_special_tokens"] = special
        made.append((options, tokenizer))
    record(out, "cases.jsonl", made, texts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("megatron", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    module = megatron_tokenizers(given.megatron)
    rng = random.Random(given.seed)
    texts = [random_text(rng) for _ in range(given.texts)]
    for name in ("bert", "tiktoken"):
        (given.out / name).mkdir(exist_ok=True)
    bert(module, given.out / "bert", texts)
    tiktoken(module, given.out / "tiktoken", texts, given.seed)


if __name__ == "__main__":
    main()
