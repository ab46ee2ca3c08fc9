#!/usr/bin/env python3
"""Folders that TRL, PEFT and bitsandbytes write, and what two folders have in common.

    tuned_folders.py write BASE OUT
    tuned_folders.py compare [--bits] FOLDER OTHER

The first trains adapters on the model in BASE: OUT/dpo (DPOTrainer) and OUT/reward (RewardTrainer, with a score head, on OUT/reward_base), and
writes the models that PEFT merges, OUT/NAME_merged. It writes a wider model in bfloat16, OUT/wide, the same in 4 bits, OUT/nf4 and with nested
statistics OUT/nf4_double, an adapter of all linear layers, OUT/NAME_adapter, and the weights of that beside the values of the 4 bits,
OUT/NAME_merged. The second compares the tensors of two folders: their values, or with --bits their bits, apart from blanks in a JSON text.
Deviations end it with exit code 1.
"""

import json
import pathlib
import random
import sys

import torch
from safetensors.torch import load_file

TOLERANCE = 1e-6


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    words = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2, **{f"w{i}": i for i in range(3, 112)}}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def pairs():
    from datasets import Dataset
    draw = random.Random(1)
    some = lambda count: " ".join(f"w{draw.randrange(3, 112)}" for _ in range(count))
    return Dataset.from_list([{"prompt": some(4) + " ", "chosen": some(4), "rejected": some(3)} for _ in range(16)])


def train(trainer, config, model, out, **lora):
    from peft import LoraConfig
    settings = config(output_dir=f"{out}_run", max_steps=4, per_device_train_batch_size=2, report_to=[], use_cpu=True, bf16=False, learning_rate=1e-2,
                      gradient_checkpointing=False)
    run = trainer(model, args=settings, train_dataset=pairs(), processing_class=tokenizer(), peft_config=LoraConfig(r=4, lora_alpha=8, **lora))
    run.train()
    run.save_model(f"{out}")
    run.model.merge_and_unload().save_pretrained(f"{out}_merged")


def write_trl(base, out):
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    from trl import DPOConfig, DPOTrainer, RewardConfig, RewardTrainer
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    train(DPOTrainer, DPOConfig, model, out / "dpo", target_modules="all-linear", task_type="CAUSAL_LM")
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32, pad_token_id=0)
    model.save_pretrained(out / "reward_base")
    train(RewardTrainer, RewardConfig, model, out / "reward", target_modules=["q_proj", "v_proj"], task_type="SEQ_CLS", modules_to_save=["score"])


def write_four_bits(out):
    from bitsandbytes.functional import dequantize_4bit
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(vocab_size=300, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                                 num_key_value_heads=2, max_position_embeddings=64)).to(torch.bfloat16).save_pretrained(out / "wide")
    for name, double in (("nf4", False), ("nf4_double", True)):
        how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double)
        quantised = AutoModelForCausalLM.from_pretrained(out / "wide", dtype=torch.bfloat16, quantization_config=how)
        quantised.save_pretrained(out / name)
        model = AutoModelForCausalLM.from_pretrained(out / "wide", dtype=torch.float32)
        weights = model.state_dict()
        for module, layer in quantised.named_modules():
            if type(layer).__name__ == "Linear4bit":
                weights[module + ".weight"].copy_(dequantize_4bit(layer.weight.data, layer.weight.quant_state).float())
        tuned = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False))
        tuned.save_pretrained(out / f"{name}_adapter")
        tuned.merge_and_unload().save_pretrained(out / f"{name}_merged")


def tensors(folder):
    return {name: tensor for path in sorted(pathlib.Path(folder).glob("*.safetensors")) for name, tensor in load_file(path).items()}


def compare(one, other, bits):
    ours, theirs = tensors(one), tensors(other)
    if ours.keys() != theirs.keys():
        sys.exit(f"the names of tensors differ: {sorted(ours.keys() ^ theirs.keys())}")
    largest = 0.0
    for name, tensor in ours.items():
        if "quant_state.bitsandbytes" in name:
            same = json.loads(bytes(tensor.tolist())) == json.loads(bytes(theirs[name].tolist()))
        elif bits:
            same = torch.equal(tensor, theirs[name])
        else:
            away = (tensor.float() - theirs[name].float()).abs().max().item() / max(1.0, theirs[name].float().abs().max().item())
            largest = max(largest, away)
            same = away <= TOLERANCE
        if not same:
            sys.exit(f"{name} differs between {one} and {other}")
    print(f"{len(ours)} tensors, largest deviation {largest:.2g}")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_trl(sys.argv[2], pathlib.Path(sys.argv[3]))
        write_four_bits(pathlib.Path(sys.argv[3]))
    else:
        compare(*[word for word in sys.argv[2:] if word != "--bits"], "--bits" in sys.argv)
