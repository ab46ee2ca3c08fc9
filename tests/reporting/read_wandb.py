"""Prints the history, the summary, the configuration and the end of a run file of Weights & Biases as JSON, decoded with W&B's own protocol buffers."""
import json
import struct
import sys
import zlib

try:
    from wandb.proto import wandb_internal_pb2
except ImportError:
    sys.exit(77)  # the test is skipped

BLOCK, HEAD = 32768, 7


def records(content):
    assert content[:7] == b":W&B\xe1\xbe\x00", content[:7]
    at, whole = 7, b""
    while at < len(content):
        left = BLOCK - at % BLOCK
        if left < HEAD:
            assert content[at:at + left] == bytes(left)
            at += left
            continue
        crc, size, kind = struct.unpack("<IHB", content[at:at + HEAD])
        data = content[at + HEAD:at + HEAD + size]
        assert len(data) == size and crc == zlib.crc32(bytes([kind]) + data), at
        whole = data if kind in (1, 2) else whole + data
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(whole)
        at += HEAD + size


def items(of):
    return {item.nested_key[0]: json.loads(item.value_json) for item in of}


out = {"numbers": [], "history": [], "summary": {}, "config": [], "exit": [], "run": None, "metrics": []}
for record in records(open(sys.argv[1], "rb").read()):
    out["numbers"].append(record.num)
    kind = record.WhichOneof("record_type")
    if kind == "history":
        out["history"].append(items(record.history.item) | {"step": record.history.step.num})
    elif kind == "summary":
        out["summary"] |= items(record.summary.update)
    elif kind == "run":
        run = record.run
        out["run"] = [run.run_id, run.project, run.display_name, run.host]
        out["config"].append(items(run.config.update))
    elif kind == "config":
        out["config"].append(items(record.config.update))
    elif kind == "metric":
        out["metrics"].append([record.metric.name, record.metric.glob_name, record.metric.step_metric])
    elif kind == "exit":
        out["exit"].append(record.exit.exit_code)
print(json.dumps(out))
