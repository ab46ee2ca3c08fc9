#!/usr/bin/env python3
"""Records what Hugging Face Transformers makes of folders with a tokenizer.json and the files beside it: special tokens, chat template, and the ids of
conversations and texts without the special tokens at their ends.

    python3 tests/peers/record_hf_folders.py          # needs transformers and jinja2
    python3 tests/peers/record_hf_folders.py --check  # only compares with what is recorded

Writes tests/data/hf_folders.json. `shape` names the tokenizer.json, a file of tests/data/tokenizers; `files` are those beside it; `mistake` is true where
the original refuses to use the chat template. Recorded with transformers 5.23.0."""
import json
import pathlib
import sys
import tempfile

from transformers import AutoTokenizer

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
FAST = "PreTrainedTokenizerFast"
TURNS = ("{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] }}{{ eos_token }}{{ '\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}{{ image_token }}{{ unk_token }}{{ pad_token }}")
CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": " <s> é"}, {"role": "user", "content": "It's <|endoftext|> lol 中 中\n  12"}, {"role": "assistant", "content": "</s></s> ok [MASK] <unk>▁"}],
]
TEXTS = ["", " a", "<s></s> <unk><pad>", "The quick <|endoftext|>\n<|im_start|>  x", "[CLS] a [SEP] [MASK]  lol LOL e\u0301", "<e1><img> <e2>"]
TOKEN = {"__type": "AddedToken", "content": "<e1>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}


def added(content, **more):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True, **more}


def config(tokenizer_class=FAST, **fields):
    return {"tokenizer_config.json": {"tokenizer_class": tokenizer_class, **fields}}


def folders():
    """Shape, files."""
    for shape in ("gpt2", "llama3", "qwen2", "mistral", "gemma", "bert", "t5", "unigram_fallback", "falcon"):
        yield shape, config(chat_template=TURNS, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    yield "gpt2", {}
    yield "gpt2", config("GPT2Tokenizer", chat_template=TURNS)
    yield "qwen2", config("Qwen2TokenizerFast", chat_template=TURNS)
    yield "qwen2", config("Qwen2Tokenizer", unk_token=None, bos_token=None, pad_token=None, eos_token="<|im_start|>", chat_template=TURNS)
    yield "qwen2", {"config.json": {"model_type": "qwen2"}, "chat_template.jinja": TURNS}
    yield "gpt2", config("GPTNeoXTokenizer")
    yield "gemma", config("GemmaTokenizer")
    yield "bert", config("BertTokenizer")
    yield "gpt2", {**config(eos_token="A", chat_template=TURNS),
                   "special_tokens_map.json": {"eos_token": "B", "bos_token": added("C", lstrip=True), "image_token": "<img>", "additional_special_tokens": ["<e1>"]}}
    yield "gpt2", {**config(eos_token="A", added_tokens_decoder={"424": added("<e1>", lstrip=True), "425": added("<e2>", rstrip=True)}, chat_template=TURNS),
                   "special_tokens_map.json": {"eos_token": "B", "bos_token": "C"}}
    yield "gpt2", {**config(eos_token="</e>"), "special_tokens_map.json": {"eos_token": None}}
    yield "gpt2", config(eos_token=TOKEN, image_token="<img>", chat_template=TURNS)
    yield "gpt2", config(eos_token="A", image_token="<img>", audio_token=TOKEN, zeta_token="<z>", extra_special_tokens={"video": "<v>", "q_token": "<q>"},
                         chat_template={"default": TURNS})
    yield "gpt2", config(additional_special_tokens=["<e1>"], extra_special_tokens=["<e2>"])
    yield "gpt2", config(additional_special_tokens=["<e1>"], extra_special_tokens=[])
    yield "gpt2", {**config(additional_special_tokens=["<e1>"]), "special_tokens_map.json": {"additional_special_tokens": ["<e2>"]}}
    yield "gpt2", {**config(extra_special_tokens=["<e1>"]), "special_tokens_map.json": {"extra_special_tokens": ["<e2>", "<e1>"]}}
    yield "llama3", config(bos_token="<s>", eos_token="</s>",
                           chat_template=[{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ bos_token }}1"}, {"name": "default", "template": TURNS}])
    yield "gpt2", {**config(chat_template="old"), "chat_template.jinja": "new\r\n\r{{ messages[0].content }}\n\n"}
    yield "gpt2", {**config(chat_template="old"), "chat_template.jinja": "new", "additional_chat_templates/rag.jinja": "rag"}
    yield "gpt2", {**config(chat_template="old"), "chat_template.jinja": "new", "additional_chat_templates/default.jinja": "other"}
    yield "gpt2", {**config(chat_template="old"), "additional_chat_templates/rag.jinja": "rag"}
    yield "gpt2", config(chat_template="")
    for mistake in (5, True, [], {}, [{"name": "rag", "template": "x"}], {"rag": "x"}, [{"name": "default", "template": 3}], ["x"], [{"name": "default"}]):
        yield "gpt2", config(chat_template=mistake)


def write(folder, shape, files):
    tokenizer = json.loads((DATA / "tokenizers" / f"{shape}.json").read_text(encoding="utf-8"))["tokenizer"]
    for name, content in {**files, "tokenizer.json": tokenizer}.items():
        path = pathlib.Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((content if isinstance(content, str) else json.dumps(content)).encode())


def record(shape, files):
    case = {"shape": shape, "files": files}
    with tempfile.TemporaryDirectory() as folder:
        write(folder, shape, files)
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
        except (TypeError, KeyError):  # a chat template that cannot be read
            return {**case, "mistake": True}
    case["special_tokens"] = [[name, token, tokenizer.convert_tokens_to_ids(token)] for name, token in tokenizer.special_tokens_map.items()]
    case["size"] = len(tokenizer)
    if "GPTNeoXTokenizer" not in json.dumps(files):  # this class puts NFC in place of the normalizer of tokenizer.json
        case["texts"] = [{"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]} for text in TEXTS]
    if tokenizer.chat_template is None:
        return case
    case["conversations"] = []
    try:
        case["chat_template"] = tokenizer.get_chat_template()
        for messages in CONVERSATIONS:
            for prompt in (False, True):
                ids = tokenizer.apply_chat_template(messages, add_generation_prompt=prompt)["input_ids"]
                case["conversations"].append({"messages": messages, "add_generation_prompt": prompt, "ids": ids})
    except (TypeError, ValueError):
        case = {**{key: value for key, value in case.items() if key not in ("chat_template", "conversations")}, "mistake": True}
    return case


def main():
    cases = [record(*folder) for folder in folders()]
    words = "[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n"
    target = DATA / "hf_folders.json"
    if "--check" in sys.argv:
        sys.exit(0 if target.read_text(encoding="utf-8") == words else f"{target} differs from what is made now")
    target.write_text(words, encoding="utf-8")
    print(f"{target}: {len(cases)} folders, {sum('mistake' in case for case in cases)} with a template that is refused")


if __name__ == "__main__":
    main()
