#!/usr/bin/env python3
"""Loads pairs of folders with Hugging Face Transformers: A B A B ... Both must load whole and give the same logits to the bit.

Needs torch and transformers.
"""
import sys

import torch
import transformers


def load(folder):
    model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32, attn_implementation="eager")
    # Transformers has no layers for multi-token prediction: those behind the last one are left out.
    behind = tuple(f"model.layers.{model.config.num_hidden_layers + i}." for i in range(model.config.to_dict().get("num_nextn_predict_layers") or 0))
    told["unexpected_keys"] = {key for key in told["unexpected_keys"] if not key.startswith(behind)}
    wrong = {key: value for key, value in told.items() if value}
    assert not wrong, f"{folder}: {wrong}"
    return model.eval()


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for one, other in zip(sys.argv[1::2], sys.argv[2::2]):
        a, b = load(one), load(other)
        tokens = torch.arange(40).reshape(2, 20) % a.config.vocab_size
        with torch.no_grad():
            assert torch.equal(a(tokens).logits, b(tokens).logits), f"{one} and {other} give other logits"
        for key in ("eos_token_id", "bos_token_id", "tie_word_embeddings"):
            assert getattr(a.config, key, None) == getattr(b.config, key, None), f"{other}: {key}"
