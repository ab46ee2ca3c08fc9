"""Record what the real `tokenizers` makes of random texts with a small tokenizer.json of each shape that Hugging Face models have.

    python3 record_tokenizers.py OUT_FOLDER [--seed N] [--texts N]

Each file tests/data/tokenizers/<shape>.json has the tokenizer.json itself (`tokenizer`), perhaps a tokenizer_config.json (`config`), and cases
`{"text", "ids", "decoded", "split_ids"}`, the last with special tokens as ordinary text (encode_special_tokens; not in the recorded files). The tokenizers are trained on the texts below and on random ones; tests/end_to_end/tokenizers_test.py builds the same
shapes with fresh texts. Recorded with tokenizers 0.23.3, whose training does not repeat to the bit: a new run gives other files.
"""
import argparse
import json
import pathlib
import random
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = """The quick brown fox jumps over the lazy dog. It's what we'd have said, isn't it? They'll see; you're right, I'm sure, and she's gone.
def encode(text): return [self.vocab[c] for c in text if c in self.vocab]  # 12345 67 890
In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of the deep.
Der Übermut der Ärzte ließ die Straße größer wirken; naïve café façade, Ελλάδα και η γλώσσα, Привет, мир! Как дела сегодня?
你好，世界。今天天气很好，我们去公园散步吧。 日本語の文章もここにあります。 안녕하세요 세계 여러분
مرحبا بالعالم كيف حالك اليوم  नमस्ते दुनिया कैसे हो  สวัสดีชาวโลก
<html><body class="x">&amp; 3.14159 + 2,718 = 5.859; x ** 2 != y // 3 -> None</body></html>
""".split("\n")

# What cuts, folds, joins or hides in the parts of a tokenizer.
ODD = ["'s", "'S", "'ſ", "'ll", "'LL", "'ve", "n't", " .", " ,", " '", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u2028", "\u3000", "\u200b", "\u200d", "\ufeff",
       "\u0301", "e\u0301", "é", "Å", "ﬁ", "½", "①", "㍿", "Ⅷ", "ß", "İ", "ı", "Σ", "ς", "K", "\u1e9b\u0323", "각", "가", "👩‍👩‍👧", "🇩🇪", "😀", "\U0001d518", "𠀀", "\ue000", "\x00", "\x01",
       "\x7f", "\x85", "\ufffd", "▁", "Ġ", "##", "</w>", "<0x41>", "<s>", "</s>", "<unk>", "<pad>", "[MASK]", "[SEP]", " [MASK] ", "<|endoftext|>", "<|im_start|>", "lol", "LOL", "0", "12", "345", "6789",
       "٣٤", "१२", "_", "-", "--", "(", ")", "“", "”", "…", "。", "，", "!", "?!", "/", "\\n", "A", "aB", "iPhone", "don't", "DON'T", "中文", "中", "カタカナ", "ひらがな"]


def random_text(random_numbers):
    kind = random_numbers.random()
    if kind < 0.05:
        return random_numbers.choice(["", " ", "\n", "a", "▁", "<s>", "  x", "x  ", "\u0301"])
    words = []
    for _ in range(random_numbers.randrange(1, 14)):
        choice = random_numbers.random()
        if choice < 0.45:
            line = random_numbers.choice(CORPUS)
            begin = random_numbers.randrange(len(line) + 1)
            words.append(line[begin:begin + random_numbers.randrange(1, 16)])
        elif choice < 0.85:
            words.append(random_numbers.choice(ODD))
        else:
            words.append("".join(random_character(random_numbers) for _ in range(random_numbers.randrange(1, 5))))
        if random_numbers.random() < 0.4:
            words.append(" ")
    return "".join(words)


def random_character(random_numbers):
    while True:
        last = random_numbers.choice([0x7F, 0x24F, 0x5FF, 0x1FFF, 0xFFFF, 0x1FFFF, 0x10FFFF])
        code = random_numbers.randrange(last + 1)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def special(*contents, **properties):
    return [AddedToken(content, **{"special": True, "normalized": False, **properties}) for content in contents]


def train(tokenizer, trainer, corpus):
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def byte_level(corpus, vocabulary, pre_tokenizer, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(tokenizer, trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False), corpus)


def gpt2(corpus):
    tokenizer = byte_level(corpus, 420, pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.add_special_tokens(special("<|endoftext|>"))
    tokenizer.add_tokens([AddedToken("lol", single_word=True), AddedToken(" iPhone", lstrip=True), AddedToken("中", rstrip=True, normalized=False)])
    return tokenizer


def after_split(corpus, *patterns, **options):
    steps = [split(pattern) for pattern in patterns] + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    return byte_level(corpus, 420, pre_tokenizers.Sequence(steps), **options)


def llama3(corpus):
    tokenizer = after_split(corpus, LLAMA3, ignore_merges=True)
    tokenizer.add_special_tokens(special("<s>", "</s>"))
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                    processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", bos)])])
    return tokenizer


def qwen2(corpus):
    tokenizer = after_split(corpus, QWEN2, normalizer=normalizers.NFC())
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>"))
    return tokenizer


def sentencepiece_bpe(corpus, byte_fallback=True):
    """BPE over U+2581-joined words, with the byte tokens in the vocabulary as SentencePiece puts them."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokens = ["<unk>", "<s>", "</s>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else [])
    train(tokenizer, trainers.BpeTrainer(vocab_size=300 + len(tokens), special_tokens=tokens, show_progress=False, limit_alphabet=120), corpus)
    content = json.loads(tokenizer.to_str())
    content["pre_tokenizer"] = None
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < 3]
    return content


def llama2(corpus):
    content = sentencepiece_bpe(corpus)
    for token in content["added_tokens"]:
        token["normalized"] = token["content"] == "</s>"
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return tokenizer


def mistral(corpus):
    tokenizer = Tokenizer.from_str(json.dumps(sentencepiece_bpe(corpus)))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def gemma(corpus):
    tokenizer = Tokenizer.from_str(json.dumps(sentencepiece_bpe(corpus)))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(special("<pad>", "[MASK]"))
    return tokenizer


def bpe_unknown(corpus):
    tokenizer = Tokenizer.from_str(json.dumps(sentencepiece_bpe(corpus, byte_fallback=False)))
    tokenizer.model.fuse_unk = False
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="never"), pre_tokenizers.Digits(individual_digits=True)])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="never")
    return tokenizer


def bpe_fused(corpus):
    tokenizer = Tokenizer.from_str(json.dumps(sentencepiece_bpe(corpus, byte_fallback=False)))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def end_of_word(corpus):
    """The first GPT's: a suffix ends each word, and BertPreTokenizer cuts."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder()
    return train(tokenizer, trainers.BpeTrainer(vocab_size=350, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False, limit_alphabet=100), corpus)


def bert(corpus, lowercase=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=lowercase)
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=420, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False, limit_alphabet=150), corpus)
    tokenizer.add_special_tokens(special("[MASK]", lstrip=True))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def bert_cased(corpus):
    return bert(corpus, lowercase=False)


def unigram(normalizer, pre_tokenizer, decoder, byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokens = ["<pad>", "</s>", "<unk>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if byte_fallback else [])
    train(tokenizer, trainers.UnigramTrainer(vocab_size=420 + len(tokens), special_tokens=tokens, unk_token="<unk>", show_progress=False), CORPUS * 3)
    content = json.loads(tokenizer.to_str())
    content["model"]["byte_fallback"] = byte_fallback
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.decoder = decoder
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def t5(_):
    normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Strip(left=False), normalizers.Replace(Regex(" {2,}"), "▁")])
    return unigram(normalizer, pre_tokenizers.Metaspace(), decoders.Metaspace())


def charsmap():
    """The text map of SentencePiece's nmt_nfkc rules, as its trainer puts it into a model."""
    import io

    import sentencepiece  # noqa: not everybody has it
    from sentencepiece import sentencepiece_model_pb2 as proto

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS * 20), model_writer=model, vocab_size=250, minloglevel=2,
                                             normalization_rule_name="nmt_nfkc", hard_vocab_limit=False)
    parsed = proto.ModelProto()
    parsed.ParseFromString(model.getvalue())
    return parsed.normalizer_spec.precompiled_charsmap


def unigram_fallback(_):
    normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Lowercase()])
    pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Metaspace(prepend_scheme="first")])
    return unigram(normalizer, pre_tokenizer, decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]), byte_fallback=True)


def word_level(corpus):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return train(tokenizer, trainers.WordLevelTrainer(vocab_size=150, special_tokens=["<unk>"], show_progress=False), corpus)


SHAPES = {
    "gpt2": gpt2,
    "llama2": llama2,
    "llama3": llama3,
    "qwen2": qwen2,
    "mistral": mistral,
    "gemma": gemma,
    "bert": bert,
    "bert_cased": bert_cased,
    "t5": t5,
    "unigram_fallback": unigram_fallback,
    "bpe_unknown": bpe_unknown,
    "bpe_fused": bpe_fused,
    "end_of_word": end_of_word,
    "word_level": word_level,
    "cl100k": lambda corpus: after_split(corpus, CL100K),
    "o200k": lambda corpus: after_split(corpus, O200K),
    "deepseek": lambda corpus: after_split(corpus, *DEEPSEEK),
    "kimi": lambda corpus: after_split(corpus, KIMI),
    "bloom": lambda corpus: after_split(corpus, BLOOM, normalizer=normalizers.NFD()),
    "falcon": lambda corpus: byte_level(corpus, 420, pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=True), pre_tokenizers.Digits(),
        split("[0-9][0-9][0-9]", "merged_with_next")])),
    "behaviors": lambda corpus: byte_level(corpus, 420, pre_tokenizers.Sequence([
        split(r"\s+", "merged_with_previous"), split(r"\p{Nd}|,", "contiguous"), split(r"\w+|[^\w\s]+", "removed", True), pre_tokenizers.Split(".", "merged_with_next"),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])),
}


def training_corpus():
    """The same for every seed of the texts."""
    numbers = random.Random(14)
    return CORPUS * 3 + [random_text(numbers) for _ in range(400)]


def build(shape):
    return SHAPES[shape](training_corpus())


def cases(tokenizer, numbers, count):
    rows = []
    for _ in range(count):
        text = random_text(numbers)
        ids = tokenizer.encode(text).ids
        rows.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        tokenizer.encode_special_tokens = True
        rows[-1]["split_ids"] = tokenizer.encode(text).ids
        tokenizer.encode_special_tokens = False
    size = tokenizer.get_vocab_size()
    for _ in range(count // 4):  # ids that no text has
        ids = [numbers.randrange(size + 2) for _ in range(numbers.randrange(1, 12))]
        rows.append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--texts", type=int, default=60)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for shape in SHAPES:
        try:
            tokenizer = build(shape)
        except ImportError as missing:
            print(f"{shape} is left out: {missing}", file=sys.stderr)
            continue
        content = {"recorded_with": f"tokenizers {tokenizers.__version__}", "tokenizer": json.loads(tokenizer.to_str()), "vocab_size": tokenizer.get_vocab_size(),
                   "cases": cases(tokenizer, random.Random(f"{arguments.seed} {shape}"), arguments.texts)}
        (arguments.out / f"{shape}.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
