#!/usr/bin/env python3
"""Records samples of instruction data from the real programs, small cases for tests/data/instructions.

    python3 tests/peers/record_instructions.py --megatron DIR --mindspeed DIR

DIR are checkouts of Megatron-LM (its newest main) and MindSpeed-LLM. Their dataset code runs as it is; NumPy stands in for
torch, and empty modules for what it imports of accelerators and of the rest of the program. Needs numpy, datasets,
transformers, tokenizers."""
import argparse
import importlib.util
import json
import pathlib
import random
import sys
import tempfile
import types

import datasets  # before the modules that stand in for torch
import numpy as np
import transformers

transformers.AutoTokenizer, transformers.utils.is_torch_available(), datasets.load_dataset
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "instructions"
SPECIAL = ["<unk>", "<s>", "</s>", "<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<SPECIAL_233>"]
CHATML = ("{% for m in messages %}{{ '<s>' + m.role + '\\n' + m.content + '</s>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<s>assistant\\n' }}{% endif %}")


class Array(np.ndarray):
    """As much of a torch tensor as the dataset code uses."""

    def numel(self):
        return self.size

    def clone(self):
        return self.copy()

    def numpy(self):
        return np.asarray(self)

    @property
    def device(self):
        return None


def array(values, dtype=None, device=None):
    made = np.array(values, dtype=dtype).view(Array)
    return made


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    made.__path__ = []
    sys.modules[name] = made
    for depth in range(1, name.count(".") + 1):
        parent = ".".join(name.split(".")[:depth])
        if parent not in sys.modules:
            module(parent)
    return made


def load(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def fake_torch():
    class Dataset:
        pass

    return module("torch", tensor=array, int32=np.int32, int64=np.int64, long=np.int64, float32=np.float32,
                  Generator=type("Generator", (), {}), nn=types.SimpleNamespace(Module=type("Module", (), {})),
                  from_numpy=lambda a: a.view(Array), Tensor=Array,
                  ones=lambda n, dtype=None: np.ones(n, dtype).view(Array),
                  full=lambda shape, value, dtype=None: np.full(shape, value, dtype).view(Array),
                  arange=lambda n, dtype=None, device=None: np.arange(n, dtype=dtype).view(Array),
                  utils=types.SimpleNamespace(data=types.SimpleNamespace(Dataset=Dataset)))


def byte_tokenizer(folder):
    """Ids 0 to 255 are bytes; special tokens follow."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    kept = list(range(ord("!"), ord("~") + 1)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    letters, more = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte) if byte in kept else chr(256 + more)
        more += byte not in kept
    made = Tokenizer(models.BPE({letter: byte for byte, letter in letters.items()}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>",
        "chat_template": CHATML}))


def conversations(rng):
    words = ["yes", "no ", " Wörter", "/think", "/no_think now", "two\nlines", "x" * 9, "数"]
    text = lambda: " ".join(rng.choice(words) for _ in range(rng.randrange(1, 4)))
    lines = []
    for _ in range(14):
        messages = []
        for _ in range(rng.randrange(1, 4)):
            messages.append({"role": "system", "content": text()})
            for _ in range(rng.randrange(1, 3)):
                messages += [{"role": "user", "content": text()}, {"role": "assistant", "content": text()}]
        if rng.random() < .3:
            messages = messages[1:]  # no system message
        lines.append(messages)
    return lines


def record_sft(megatron, scratch):
    fake_torch()
    class MegatronDataset:
        def __init__(self, dataset, path, indices, num_samples, split, config):
            self.dataset, self.indices, self.num_samples, self.config = dataset, indices, num_samples, config

    module("megatron.core.datasets.gpt_dataset", GPTDatasetConfig=object)
    module("megatron.core.datasets.megatron_dataset", LowLevelDataset=object, MegatronDataset=MegatronDataset)
    module("megatron.core.datasets.utils", Split=object)
    tokenizers = load("sft_tokenizer", megatron / "megatron/core/tokenizers/text/libraries/sft_tokenizer.py")
    sft = load("sft_dataset", megatron / "megatron/training/datasets/sft_dataset.py")
    (scratch / "tokenizer").mkdir()
    byte_tokenizer(scratch / "tokenizer")
    lines = conversations(random.Random(1))
    file = FOLDER / "conversations.jsonl"
    file.write_text("".join(json.dumps({"messages": m}, ensure_ascii=False) + "\n" for m in lines), encoding="utf-8")
    cases = []
    for prompt_format in ("nemotron-h-aligned", "nemotron-nano-v2", "identity", "default"):
        tokenizer = tokenizers.SFTTokenizer(str(scratch / "tokenizer"), prompt_format)
        tokenizer.pad = tokenizer.pad_id
        for length in (40, 128, 600):
            config = types.SimpleNamespace(tokenizer=tokenizer, sequence_length=length, reset_position_ids=False,
                                           context_parallel_size=1, create_attention_mask=False,
                                           reset_attention_mask=False)
            first, last = (0, 14) if length != 128 else (3, 9)
            data = sft.SFTDataset(sft.SFTLowLevelDataset(str(file)), str(file), np.arange(first, last), 20, None,
                                       config)
            for index in (range(20) if length == 40 else (0, 1, 2, 7, 16)):
                one = data[index]
                cases.append({"prompt_format": prompt_format, "seq_length": length, "lines": [first, last], "index": index,
                              **{key: [float(v) if key == "loss_mask" else int(v) for v in one[key]]
                                 for key in ("tokens", "labels", "loss_mask", "position_ids")},
                              "cu_seqlens": sorted({int(v) for v in one["cu_seqlens"]})})
    return cases


def instruction_files(rng):
    """Three streams of samples: single ones, some of them long; and packed ones of 48 tokens with eos 2."""
    def turns(count):
        ids, labels = [], []
        for _ in range(count):
            prompt = [rng.randrange(3, 250) for _ in range(rng.randrange(1, 12))]
            answer = [rng.randrange(3, 250) for _ in range(rng.randrange(1, 12))] + [2]
            ids += prompt + answer
            labels += [-100] * len(prompt) + answer
        return ids, labels

    single = []
    for _ in range(23):
        ids, labels = turns(rng.randrange(1, 4))
        single.append((ids, [1] * len(ids), labels))
    packed = []
    for _ in range(9):
        ids, mask, labels, part = [], [], [], 0
        while True:
            more, answers = turns(1)
            if len(ids) + len(more) > 47:
                break
            part += 1
            ids, mask, labels = ids + more, mask + [part] * len(more), labels + answers
        rest = 48 - len(ids)
        packed.append((ids + [0] * rest, mask + [0] * rest, labels + [-100] * rest))
    return {"single": single, "packed": packed}


def record_mindspeed(mindspeed, scratch):
    fake_torch()
    sys.modules["torch"].nn = types.SimpleNamespace()
    module("torch.nn.functional", pad=lambda a, widths, value: np.pad(a, widths, constant_values=value))
    sys.modules["torch.nn"].functional = sys.modules["torch.nn.functional"]
    sys.modules["torch"].nn = sys.modules["torch.nn"]
    args = types.SimpleNamespace()
    everything = instruction_files(random.Random(2))
    module("megatron.training", print_rank_0=lambda *_: None, get_args=lambda: args)
    module("megatron.core", parallel_state=None, mpu=None)
    module("megatron.legacy.data.dataset_utils", get_train_valid_test_split_=None)
    module("mindspeed_llm.training.tokenizer", build_tokenizer=None)
    module("mindspeed_llm.tasks.utils.error_utils", check_equal=None, ensure_valid=None)

    class Items:
        def __init__(self, name, data_prefix, documents):
            del name, documents
            self.items = everything[data_prefix]

        def __getitem__(self, index):
            return dict(zip(("input_ids", "attention_mask", "labels"),
                            (np.array(part, np.int32) for part in self.items[index])))

    module("mindspeed_llm.tasks.preprocess.mtf_dataset", MTFDataset=Items, get_packed_indexed_dataset=None)
    module("mindspeed_llm.tasks.preprocess.templates",
           get_model_template=lambda name, *_: types.SimpleNamespace(efficient_eos=name == "glm4"))

    def actual(seq):
        zero = [i for i, v in enumerate(seq) if v == 0][1:]
        return zero + [len(seq)]

    module("mindspeed_llm.training.utils", compute_actual_seq_len=actual)
    code = load("decoder_packed", mindspeed / "mindspeed_llm/tasks/preprocess/decoder_packed_mtf_dataset.py")
    cases = []
    usual = dict(reset_position_ids=False, reset_attention_mask=False, neat_pack=False, cut_max_seqlen=False,
                 no_cut_token=False, padded_samples=False, no_shuffle=False, is_pairwise_dataset=False, mtp_num_layers=None,
                 return_document_ids=False, dataset_additional_keys=[], prompt_type=None, prompt_type_path=None,
                 enable_thinking=False, reasoning_effort=None, drop_thinking=None, global_batch_size=4,
                 full_shuffle_instruction_dataset=False)
    settings = [("single", 64, {}), ("single", 64, {"cut_max_seqlen": True}), ("single", 16, {}),
                ("single", 16, {"prompt_type": "glm4"}), ("single", 16, {"cut_max_seqlen": True}),
                ("packed", 48, {"reset_attention_mask": True}),
                ("packed", 48, {"reset_attention_mask": True, "reset_position_ids": True}),
                ("packed", 48, {"reset_attention_mask": True, "neat_pack": True}),
                ("packed", 48, {"reset_attention_mask": True, "reset_position_ids": True, "neat_pack": True})]
    for files, length, changes in settings:
        args.__dict__.update({**usual, **changes, "seq_length": length})
        data = code.DecoderPackedMTFDataset.__new__(code.DecoderPackedMTFDataset)
        data.args, data.seq_length, data.eos_token = args, length, 2
        data.mtf_dataset = Items("", files, None)
        data.shuffle_index = list(range(len(everything[files])))
        for index in data.shuffle_index:
            one = data[index]
            cases.append({"files": files, "seq_length": length, **changes, "sample": index,
                          **{key: [int(v) for v in value] for key, value in one.items()}})
    orders = []
    for first, count, asked, seed, changes in [(0, 10, 25, 1234, {}), (3, 7, 7, 1, {}), (0, 10, 11, 5, {"padded_samples": True}),
                                               (2, 8, 9, 5, {"no_shuffle": True, "padded_samples": True}), (0, 1000, 1500, 42, {})]:
        args.__dict__.update({**usual, **changes})
        rng, order = np.random.RandomState(seed=seed), []
        while len(order) < asked:
            make = code._build_sequential_idx if args.no_shuffle else code._build_shuffle_idx
            order += make(count, first, *([] if args.no_shuffle else [rng])).tolist()
        orders.append({"first": first, "count": count, "asked": asked, "seed": seed, "global_batch_size": 4, **changes,
                       "order": order})
    return {"files": everything, "samples": cases, "orders": orders}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megatron", type=pathlib.Path, required=True)
    parser.add_argument("--mindspeed", type=pathlib.Path, required=True)
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        sft = record_sft(given.megatron, pathlib.Path(scratch))
        (FOLDER / "sft.json").write_text(json.dumps(
            {"special_tokens": SPECIAL, "chat_template": CHATML, "cases": sft}, separators=(",", ":")) + "\n")
        mindspeed = record_mindspeed(given.mindspeed, pathlib.Path(scratch))
        (FOLDER / "mindspeed.json").write_text(json.dumps(mindspeed, separators=(",", ":")) + "\n")
    print(len(sft), "samples of Megatron-LM,", len(mindspeed["samples"]), "of MindSpeed-LLM")


if __name__ == "__main__":
    main()
