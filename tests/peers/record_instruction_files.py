#!/usr/bin/env python3
"""Records what MindSpeed-LLM's preprocess_data.py writes for instructions: tests/data/instructions/files.json.

    python3 tests/peers/record_instruction_files.py --megatron DIR --mindspeed DIR

DIR are checkouts of Megatron-LM (core_v0.12.1) and MindSpeed-LLM. The whole program runs as it is, with the real
datasets, transformers and tokenizers; empty modules stand in for torch and accelerators. Needs numpy, datasets,
transformers, tokenizers."""
import argparse
import hashlib
import importlib
import json
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import record_instructions as shared  # imports datasets and transformers before the modules that stand in for torch
import numpy as np
import pyarrow
import pyarrow.parquet

shared.SPECIAL[:] = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>",
                     "<|end_header_id|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|system|>", "[gMASK]", "sop",
                     "<start_of_turn>", "<end_of_turn>", "<|endoftext|>", "<pad>"]
FOLDER = shared.FOLDER
OWN = ("qwen_lf", "gpt_oss", "intern2")  # templates of templates.json beside the corpora
KEYS = ("input_ids", "attention_mask", "labels")
PAIR_KEYS = ("chosen_input_ids", "chosen_labels", "rejected_input_ids", "rejected_labels")


class IntTensor:
    def __init__(self, values):
        self.values = values

    def numpy(self):
        return np.array(self.values, np.int32)

    def numel(self):
        return len(self.values)


def program(megatron, mindspeed):
    torch = shared.fake_torch()
    torch.IntTensor = IntTensor
    for name in ("torch.nn", "torch.nn.functional", "torch.utils", "torch.utils.data"):
        shared.module(name)
    torch.utils = sys.modules["torch.utils"]
    torch.utils.data = sys.modules["torch.utils.data"]
    torch.utils.data.Dataset = object
    torch.nn = sys.modules["torch.nn"]
    torch.nn.Module = type("Module", (), {})
    torch.nn.functional = sys.modules["torch.nn.functional"]
    shared.module("megatron.core.datasets.utils_s3", S3Config=object, is_s3_path=lambda path: False,
                  maybe_download_file=None, object_exists=None, parse_s3_path=None)
    shared.module("megatron.core.msc_utils", MultiStorageClientFeature=type("Off", (), {
        "is_enabled": staticmethod(lambda: False)}), open_file=open, maybe_download_file=None)
    shared.module("megatron.core.utils", log_single_rank=None)
    shared.module("megatron.core.datasets.object_storage_utils", ObjectStorageConfig=object,
                  is_object_storage_path=lambda path: False, cache_index_file=None, dataset_exists=None,
                  get_index_cache_path=None, get_object_storage_access=None, parse_s3_path=None)
    shared.module("megatron.training", print_rank_0=lambda *_: None, get_args=None)
    shared.module("megatron.core", parallel_state=None, mpu=None)
    indexed = shared.load("megatron.core.datasets.indexed_dataset", megatron / "megatron/core/datasets/indexed_dataset.py")
    sys.modules["megatron.core.datasets"].indexed_dataset = indexed
    patch = shared.load("patch", mindspeed / "mindspeed_llm/core/datasets/indexed_dataset.py")
    builder = indexed.IndexedDatasetBuilder
    builder.__init__ = patch.indexed_dataset_builder_init_wrapper(builder.__init__)
    builder.add_item = patch.add_item_wrapper(builder.add_item)
    builder.finalize = patch.finalize_wrapper(builder.finalize)
    shared.module("megatron.legacy.data.dataset_utils", get_train_valid_test_split_=None)
    shared.module("mindspeed_llm.tasks.utils.error_utils", check_equal=None, ensure_valid=None)
    shared.module("mindspeed_llm.tasks.posttrain.utils", convert_token_to_id=None)
    shared.module("mindspeed_llm.training.utils", compute_actual_seq_len=None, auto_coverage=lambda fn: fn)
    shared.module("megatron.training.tokenizer", build_tokenizer=None)
    shared.module("megatron.training.tokenizer.tokenizer", _vocab_size_with_padding=lambda size, args: size)
    shared.module("megatron.core.datasets.megatron_tokenizer",
                  MegatronTokenizer=type("MegatronTokenizer", (), {"__init__": lambda self, *_: None}))
    shared.module("mindspeed_llm.training.tokenizer", build_tokenizer=None)
    shared.module("mindspeed_llm.training.tokenizer.magistral_tokenizer", create_magistral_tokenizer=None)
    shared.module("mindspeed_llm.tasks.preprocess").__path__ = [str(mindspeed / "mindspeed_llm/tasks/preprocess")]
    for name in ("templates", "data_handler"):
        importlib.import_module("mindspeed_llm.tasks.preprocess." + name)
    tokenizer = shared.load("tokenizer_of_mindspeed", mindspeed / "mindspeed_llm/training/tokenizer/tokenizer.py")
    sys.modules["mindspeed_llm.training.tokenizer"].build_tokenizer = tokenizer.build_tokenizer
    return shared.load("preprocess_data", mindspeed / "preprocess_data.py")


def texts(rng):
    words = ["yes", "no ", " Wörter", "{{idx}} and {{content}}", "two\nlines", "x" * 9, "数", "\\\"quoted\"", "</s> inside",
             "<think>\nhm\n</think>\n\nso", "<|im_end|>"]
    return " ".join(rng.choice(words) for _ in range(rng.randrange(1, 5)))


def corpora(rng):
    alpaca = []
    for number in range(40):
        row = {"instruction": texts(rng), "input": texts(rng) if rng.random() < .5 else "", "output": texts(rng),
               "system": texts(rng) if rng.random() < .3 else "",
               "history": [[texts(rng), texts(rng)] for _ in range(rng.randrange(3))]}
        if number == 3:
            row["output"] = ""
        if number == 5:
            row["instruction"] = row["input"] = ""
        if number == 7:
            row["output"] = None
        if number == 9:
            row["instruction"] = None
        if number == 11:
            row["output"] = texts(rng) * 7
        if number == 13:
            row["instruction"] = texts(rng) * 9
        alpaca.append(row)
    sharegpt = []
    for number in range(40):
        turns = []
        if rng.random() < .3:
            turns.append({"from": "system", "value": texts(rng)})
        for _ in range(rng.randrange(1, 4)):
            turns += [{"from": "observation" if rng.random() < .2 else "human", "value": texts(rng)},
                      {"from": "gpt", "value": texts(rng)}]
        if number == 3:
            turns.append({"from": "human", "value": "no answer"})
        if number == 5:
            turns[-1]["from"] = "robot"
        if number == 7:
            turns += [{"from": "human", "value": None}, {"from": "gpt", "value": None}]
        if number == 9:
            turns = [{"from": "system", "value": "alone"}]
        if number == 11:
            turns[-1]["value"] = ""
        if number == 13:
            turns += [{"from": "gpt", "value": "out of order"}, {"from": "human", "value": "too"}]
        if number == 15:
            turns[-1]["value"] *= 12
        sharegpt.append({"conversations": turns, "system": texts(rng) if rng.random() < .4 else ""})
    roles = {"human": "user", "gpt": "assistant", "system": "system", "observation": "tool", "robot": "robot"}
    messages = [{"messages": [{"role": roles[t["from"]], "content": t["value"]} for t in row["conversations"]]}
                for row in sharegpt]
    dump = lambda rows: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    for name, words in (("alpaca.jsonl", dump(alpaca)), ("alpaca.json", json.dumps(alpaca, indent=1)),
                        ("sharegpt.jsonl", dump(sharegpt)), ("messages.jsonl", dump(messages))):
        (FOLDER / name).write_text(words, encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(alpaca), FOLDER / "alpaca.parquet")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(sharegpt), FOLDER / "sharegpt.parquet")


def pairs(rng):
    alpaca = []
    for number in range(30):
        row = {"instruction": texts(rng), "input": texts(rng) if rng.random() < .5 else "", "chosen": texts(rng),
               "rejected": texts(rng), "system": texts(rng) if rng.random() < .3 else "",
               "history": [[texts(rng), texts(rng)] for _ in range(rng.randrange(3))]}
        if number == 3:
            row["rejected"] = ""
        if number == 5:
            row["rejected"] = row["chosen"]
        if number == 7:
            row["chosen"] = None
        if number == 9:
            row["instruction"] = texts(rng) * 9
        if number == 11:
            row["rejected"] = texts(rng) * 9
        alpaca.append(row)
    lists = [{"question": texts(rng), "answers": [texts(rng) for _ in range(2 + number % 2)]} for number in range(10)]
    sharegpt = []
    for number in range(30):
        turns = []
        if rng.random() < .3:
            turns.append({"from": "system", "value": texts(rng)})
        for _ in range(rng.randrange(3)):
            turns += [{"from": "observation" if rng.random() < .2 else "human", "value": texts(rng)},
                      {"from": "gpt", "value": texts(rng)}]
        turns.append({"from": "human", "value": texts(rng)})
        row = {"conversations": turns, "chosen": {"from": "gpt", "value": texts(rng)},
               "rejected": {"from": "gpt", "value": texts(rng)}}
        if number == 3:
            turns.append({"from": "gpt", "value": "an answer too many"})
        if number == 5:
            turns[-1]["from"] = "robot"
        if number == 7:
            row["rejected"]["from"] = "human"
        sharegpt.append(row)
    for name, rows in (("pairs.jsonl", alpaca), ("pair_lists.jsonl", lists), ("pair_messages.jsonl", sharegpt)):
        (FOLDER / name).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def pair_cases():
    alpaca, sharegpt = "AlpacaStylePairwiseHandler", "SharegptStylePairwiseHandler"
    everything = json.dumps({"history": "history", "system": "system"})
    for kind in ("default", "empty", "qwen", "llama2", "llama3", "gemma", "qwen3", "chatglm2", "mistral", *OWN):
        yield "pairs.jsonl", [alpaca, kind, "--map-keys", everything]
        yield "pair_messages.jsonl", [sharegpt, kind]
    columns = json.dumps({"prompt": "question", "query": "", "chosen": "answers", "rejected": "answers"})
    yield "pair_lists.jsonl", [alpaca, "qwen", "--map-keys", columns]
    for thinking in ("true", "false", "none"):
        for length in ("100", "300"):
            yield "pairs.jsonl", [alpaca, "qwen3", "--enable-thinking", thinking, "--seq-length", length]


def cases():
    alpaca, sharegpt = "AlpacaStyleInstructionHandler", "SharegptStyleInstructionHandler"
    everything = json.dumps({"history": "history", "system": "system"})
    tags = json.dumps({"messages": "messages", "tags": {
        "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
        "observation_tag": "tool", "function_tag": "function", "system_tag": "system"}})
    plain = ("default", "empty", "trl", "alpaca", "chatml", "qwen", "hunyuan", "llama2", "llama3", "mistral", "gemma", "cpm",
             "deepseek2", "deepseek3", "baichuan2", "chatglm2", "chatglm3", "glm4", "qwen3", "glm4_moe", "plm", "mixtral",
             "deepseek2-lite", *OWN)
    for kind in plain:
        more = ["--append-eod"] if kind in ("qwen", "gemma") else []
        yield "alpaca.jsonl", [alpaca, kind, *more, "--map-keys", everything]
        yield "sharegpt.jsonl", [sharegpt, kind, "--map-keys", json.dumps({"system": "system"})]
    for file in ("alpaca.json", "alpaca.parquet"):
        yield file, [alpaca, "qwen"]
    yield "alpaca.jsonl", [alpaca, "qwen"]
    yield "alpaca.jsonl", [alpaca, "qwen", "--map-keys", json.dumps({"query": None, "prompt": "input"})]
    yield "sharegpt.parquet", [sharegpt, "llama3"]
    yield "messages.jsonl", [sharegpt, "qwen", "--map-keys", tags]
    for kind in ("qwen", "llama2", "gemma", "qwen3", "chatglm3", *OWN):
        for length in ("40", "150", "400"):
            for flags in ([], ["--pack"], ["--pack", "--neat-pack"], ["--pack", "--neat-pack", "--append-eod"]):
                for file, handler in (("alpaca.jsonl", alpaca), ("sharegpt.jsonl", sharegpt)):
                    yield file, [handler, kind, "--seq-length", length, *flags]
    for thinking in ("true", "false", "none"):
        for file, handler in (("alpaca.jsonl", alpaca), ("sharegpt.jsonl", sharegpt)):
            yield file, [handler, "qwen3", "--enable-thinking", thinking]
    yield from pair_cases()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megatron", type=pathlib.Path, required=True)
    parser.add_argument("--mindspeed", type=pathlib.Path, required=True)
    given = parser.parse_args()
    corpora(random.Random(3))
    pairs(random.Random(4))
    run = program(given.megatron.resolve(), given.mindspeed.resolve())
    recorded = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "tokenizer").mkdir()
        shared.byte_tokenizer(scratch / "tokenizer")
        templates = sys.modules["mindspeed_llm.tasks.preprocess.templates"].templates
        for number, (file, words) in enumerate(cases()):
            templates.clear()  # a process makes one corpus
            prefix = str(scratch / str(number))
            sys.argv = ["preprocess_data.py", "--input", str(FOLDER / file), "--output-prefix", prefix,
                        "--tokenizer-type", "PretrainedFromHF", "--tokenizer-name-or-path", str(scratch / "tokenizer"),
                        "--cache-dir", str(scratch / "cache"), "--overwrite-cache", "--handler-name", words[0],
                        "--prompt-type", words[1], *words[2:]]
            if words[1] in OWN:
                sys.argv += ["--prompt-type-path", str(FOLDER / "templates.json")]
            case = {"input": file, "arguments": words}
            try:
                run.main()
                case["md5"] = [hashlib.md5(pathlib.Path(f"{prefix}_packed_{key}_document.{end}").read_bytes()).hexdigest()
                               for key in (PAIR_KEYS if "Pairwise" in words[0] else KEYS) for end in ("bin", "idx")]
            except Exception as error:  # a row at which the program stops
                case["error"] = type(error).__name__
                print(case, error)
            recorded.append(case)
    (FOLDER / "files.json").write_text(
        '{"special_tokens": ' + json.dumps(shared.SPECIAL) + ', "cases": [\n'
        + ",\n".join(json.dumps(case) for case in recorded) + "\n]}\n")
    print(len(recorded), "runs of MindSpeed-LLM,", sum("error" in case for case in recorded), "of them stop")


if __name__ == "__main__":
    main()
