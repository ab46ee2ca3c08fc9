"""Loads a distributed checkpoint with torch.distributed.checkpoint and writes every tensor, whole, as raw bytes.

load_dist.py FOLDER OUT: OUT/<number>.bin holds the elements, OUT/tensors.json the key, element type, shape and, of what Megatron-LM stores
flattened, the shape before, of each number; OUT/objects.json has the keys of the objects, each of which is loaded too. Megatron-LM is not needed.
"""

import io
import json
import pathlib
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata

folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
metadata = dcp.FileSystemReader(folder).read_metadata()
state, objects = {}, []
for key, about in metadata.state_dict_metadata.items():
    if isinstance(about, TensorStorageMetadata):
        state[key] = torch.full(about.size, 7, dtype=about.properties.dtype)
    else:
        assert isinstance(about, BytesStorageMetadata), about
        state[key] = io.BytesIO()
        objects.append(key)
dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
for key in objects:
    value = state[key]
    if isinstance(value, io.BytesIO):
        value = torch.load(value, weights_only=False)
    assert value == [None], (key, value)

flattened = getattr(metadata, "mcore_data", None) or {}
out.mkdir(parents=True, exist_ok=True)
facts = []
for key, tensor in state.items():
    if key in objects:
        continue
    (out / f"{len(facts)}.bin").write_bytes(bytes(tensor.contiguous().view(torch.uint8).flatten().tolist()))
    before = flattened.get(key, {}).get("nd_reformulated_orig_global_shape")
    facts.append({"key": key, "type": str(tensor.dtype), "shape": list(tensor.shape), "before": list(before) if before else None})
(out / "tensors.json").write_text(json.dumps(facts))
(out / "objects.json").write_text(json.dumps(sorted(objects)))
common = torch.load(folder / "common.pt", weights_only=False)
(out / "common.json").write_text(json.dumps({"iteration": common["iteration"], "args": {key: str(value) for key, value in vars(common["args"]).items()},
                                             "optimizer": str(common.get("optimizer")), "keys": list(common)}))
