#!/usr/bin/env python3
"""What PEFT makes of an adapter of ours.

    compare_peft.py BASE ADAPTER MERGED OUT
    compare_peft.py --merged FOLDER OTHER

The first loads ADAPTER with PEFT on the model in BASE, compares its logits with those of the model in MERGED, and the weights that PEFT merges
with those there. Then it trains the adapter for three steps, and writes OUT/adapter and, merged, OUT/merged. The second compares the weights
of two folders. Deviations end it with exit code 1.
"""

import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-5


def model_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def compare(what, one, other):
    scale = max(1.0, one.abs().max().item())
    away = (one - other).abs().max().item() / scale
    print(f"{what}: deviates by {away:.2g}")
    if away > TOLERANCE:
        sys.exit(f"{what}: {away:.3g} is more than {TOLERANCE}")


def compare_weights(what, one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    if ours.keys() != theirs.keys():
        sys.exit(f"{what}: the names of weights differ: {sorted(ours.keys() ^ theirs.keys())}")
    for name in ours:
        compare(f"{what} {name}", ours[name], theirs[name])


def check_adapter(base, adapter, merged, out):
    tokens = torch.randint(0, 60, (2, 16), generator=torch.Generator().manual_seed(5))
    tuned = PeftModel.from_pretrained(model_of(base), adapter, is_trainable=True)
    compare("logits", tuned(tokens).logits.detach(), model_of(merged)(tokens).logits.detach())
    compare_weights("merged by PEFT", PeftModel.from_pretrained(model_of(base), adapter).merge_and_unload(), model_of(merged))
    optimizer = torch.optim.AdamW([p for p in tuned.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(3):
        loss = tuned(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print("losses", losses)
    if not losses[-1] < losses[0]:
        sys.exit(f"the adapter does not learn in PEFT: {losses}")
    tuned.save_pretrained(f"{out}/adapter")
    tuned.merge_and_unload().save_pretrained(f"{out}/merged")


if sys.argv[1] == "--merged":
    compare_weights("merged", model_of(sys.argv[2]), model_of(sys.argv[3]))
else:
    check_adapter(*sys.argv[1:])
