"""Writes the files of this folder with pyarrow: record.py FOLDER. Recorded with pyarrow 26.0.1."""

import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

folder = pathlib.Path(sys.argv[1])
message = pa.struct([("from", pa.string()), ("value", pa.string())])


def write(name, columns, expected=True, **options):
    table = pa.table(columns)
    pq.write_table(table, folder / f"{name}.parquet", store_schema=False, **options)
    if expected:
        (folder / f"{name.split('_')[0]}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


# The columns of the Alpaca data set.
tasks = [("Name a prime.", "", "7"), ("Add.", "1 and 2", "3"), ("Say \"é\".", "", "é 漢 𝄞\n\tdone\\")]
write("alpaca", {"instruction": [i for i, _, _ in tasks], "input": [i for _, i, _ in tasks],
                 "output": [o for _, _, o in tasks], "text": [f"### Instruction:\n{i}\n### Response:\n{o}" for i, _, o in tasks]})

texts = ["", "aaaa", None, "aaab", "aaab", "the end"] * 4
nested = {
    "text": texts,
    "list": [["x", None, ""], [], None, ["y"]] * 6,
    "deep": pa.array([[[[1], []], []], None, [], [None, [[2, None], None]]] * 6, pa.list_(pa.list_(pa.list_(pa.int16())))),
    "conversations": pa.array([[{"from": "human", "value": "Hi"}, {"from": "gpt", "value": None}], [], None, [None]] * 6,
                              pa.list_(message)),
    "map": pa.array([[("k", 1), ("l", None)], [], None, [("", -1)]] * 6, pa.map_(pa.string(), pa.int64())),
    "flag": [True, False, None, True] * 6,
    "small": pa.array([-128, 127, 0, None] * 6, pa.int8()),
    "unsigned": pa.array([0, 2**32 - 1, None, 5] * 6, pa.uint32()),
    "wide": pa.array([0, 2**64 - 1, None, 2**63] * 6, pa.uint64()),
    "long": pa.array([-2**63, 2**63 - 1, 0, None] * 6, pa.int64()),
    "single": pa.array([0.1, None, -2.5, 1e30] * 6, pa.float32()),
    "double": [1e16, 1e-5, -0.0, 0.1] * 6,
    "nothing": pa.nulls(24),
}
write("nested_snappy", nested, row_group_size=7, data_page_size=20, write_batch_size=3)
write("nested_zstd_v2", nested, compression="ZSTD", data_page_version="2.0", row_group_size=10, data_page_size=20,
      write_batch_size=2, write_page_checksum=True)
write("nested_gzip", nested, compression="GZIP", use_dictionary=False, use_compliant_nested_type=False)
write("nested_plain_v2", nested, compression="NONE", data_page_version="2.0", use_dictionary=False)

numbers = {"text": [f"{i % 7} text {i * i}" for i in range(300)], "words": [f"common beginning {i}" for i in range(300)],
           "i": pa.array([(i * 7919) % 1000 - 500 for i in range(300)], pa.int32()), "j": [i * 10**15 * (-1) ** i for i in range(300)],
           "b": [i % 3 == 0 for i in range(300)]}
write("deltas", numbers, use_dictionary=False, compression="SNAPPY", data_page_version="2.0", data_page_size=700,
      column_encoding={"text": "DELTA_LENGTH_BYTE_ARRAY", "words": "DELTA_BYTE_ARRAY", "i": "DELTA_BINARY_PACKED",
                       "j": "DELTA_BINARY_PACKED", "b": "RLE"})
write("empty", {"text": pa.array([], pa.string())})

# Refused by name.
write("brotli", {"text": ["a"]}, expected=False, compression="BROTLI")
write("lz4", {"text": ["a"]}, expected=False, compression="LZ4")
write("split", {"number": [1.0]}, expected=False, use_dictionary=False, column_encoding={"number": "BYTE_STREAM_SPLIT"})
write("types", {"text": ["a"], "time": pa.array([0], pa.timestamp("us")), "price": pa.array([1], pa.decimal128(9, 2)),
                "fixed": pa.array([b"ab"], pa.binary(2)), "not_finite": [float("nan")], "bytes": pa.array([b"\xff"], pa.binary()),
                "null": pa.array([None], pa.string())}, expected=False)
