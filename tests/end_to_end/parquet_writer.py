"""Writes random tables with pyarrow, and each as JSON lines: parquet_writer.py FOLDER SEED COUNT

Table N becomes N.parquet and N.jsonl (json.dumps of each row). N.options says how it was written. N.texts has the documents of
its columns `text` and `list`, if neither has a null: one JSON list per line, of a list of texts for each of the two.
"""

import json
import pathlib
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ["", "a", "the", " ", "\n", "\"", "\\", "é", "漢字", "𝄞", "\x00", "\x7f", "\u2028", "tessera", "0123456789" * 30]


class Values:
    """Random values of a type, with nulls unless `full`."""

    def __init__(self, rng, full):
        self.rng, self.nulls = rng, 0 if full else rng.choice([0, 0, 0.1, 0.9])
        self.pool = [self.new_text() for _ in range(rng.choice([1, 2, 30, 1000]))]
        self.unique = rng.random()

    def new_text(self):
        rng = self.rng
        if rng.random() < 0.002:
            return "".join(rng.choice(WORDS) for _ in range(20000))
        return "".join(rng.choice(WORDS) for _ in range(rng.choice([0, 1, 3, 20])))

    def text(self):
        return self.new_text() if self.rng.random() < self.unique else self.rng.choice(self.pool)

    def integer(self, bits, signed):
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        rng = self.rng
        return rng.choice([low, high, min(7, high), 0, rng.randint(low, high), rng.randint(max(low, -20), min(high, 20))])

    def number(self):
        rng = self.rng
        return rng.choice([0.0, -0.0, 1.0, 1e16, 123456789012345680.0, 1e-4, 1e-5, 5e-324, 1.7e308, rng.random(), rng.gauss(0, 1e9), float(rng.randint(-9, 9))])

    def of(self, kind, top=True):
        if self.rng.random() < self.nulls:
            return None
        if kind == pa.null():
            return None
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self.text()
        if pa.types.is_boolean(kind):
            return self.rng.random() < 0.5
        if pa.types.is_integer(kind):
            return self.integer(kind.bit_width, pa.types.is_signed_integer(kind))
        if pa.types.is_float32(kind):
            return self.rng.choice([0.1, 2.5, -1e30, 3.0])
        if pa.types.is_floating(kind):
            return self.number()
        if pa.types.is_map(kind):
            return [(self.text(), self.of(kind.item_type)) for _ in range(self.rng.choice([0, 1, 3]))]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return [self.of(kind.value_type) for _ in range(self.rng.choice([0, 0, 1, 2, 9]))]
        return {field.name: self.of(field.type) for field in kind}


def kinds():
    text, message = pa.string(), pa.struct([("from", pa.string()), ("value", pa.string())])
    return [text, pa.large_string(), pa.dictionary(pa.int32(), text), pa.list_(text), pa.large_list(text),
            pa.list_(pa.list_(text)), pa.list_(pa.list_(pa.list_(pa.int16()))), message, pa.list_(message),
            pa.struct([("a", pa.list_(message)), ("b", pa.bool_()), ("c", pa.struct([("d", pa.list_(pa.float64()))]))]),
            pa.list_(pa.struct([("id", pa.int64()), ("tags", pa.list_(text)), ("inner", message)])),
            pa.map_(text, pa.int32()), pa.map_(text, pa.list_(text)), pa.bool_(), pa.null(), pa.float32(), pa.float64(),
            pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def encodings(table, rng):
    """An encoding for each leaf, instead of dictionaries."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.slice(0, 0), sink)
    schema = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    by_type = {"BYTE_ARRAY": ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"], "BOOLEAN": ["PLAIN", "RLE"],
               "INT32": ["PLAIN", "DELTA_BINARY_PACKED"], "INT64": ["PLAIN", "DELTA_BINARY_PACKED"]}
    leaves = [schema.column(i) for i in range(len(schema))]
    return {leaf.path: rng.choice(by_type.get(leaf.physical_type, ["PLAIN"])) for leaf in leaves}


def write(folder, number, rng):
    full = rng.random() < 0.3
    rows = rng.choice([0, 1, 2, 7, 64, 300, 1500])
    # The field `text` is also the second one: a column is found by its name, not by its number.
    fields = [("n", pa.int32()), ("text", pa.string()), ("list", pa.list_(pa.string()))]
    fields += [(f"c{i}", rng.choice(kinds())) for i in range(rng.choice([0, 1, 4]))]
    columns = []
    for name, kind in fields:
        values = Values(rng, full or name == "n")
        columns.append(pa.array([values.of(kind) for _ in range(rows)], type=kind))
    table = pa.table(columns, names=[name for name, _ in fields])
    options = {
        "compression": rng.choice(["NONE", "SNAPPY", "GZIP", "ZSTD"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "version": rng.choice(["1.0", "2.4", "2.6"]),
        "use_dictionary": rng.random() < 0.5,
        "row_group_size": rng.choice([1, 10, 100, 1 << 20]),
        "data_page_size": rng.choice([1, 100, 5000, 1 << 20]),
        "dictionary_pagesize_limit": rng.choice([10, 1000, 1 << 20]),
        "write_batch_size": rng.choice([1, 13, 1024]),
        "write_statistics": rng.random() < 0.5,
        "write_page_checksum": rng.random() < 0.3,
        "write_page_index": rng.random() < 0.3,
        "use_compliant_nested_type": True,
    }
    if options["row_group_size"] == 1 and rows > 300:
        options["row_group_size"] = 50
    if not options["use_dictionary"] and rng.random() < 0.7:
        options["column_encoding"] = encodings(table, rng)
    if rng.random() < 0.3:
        options["use_compliant_nested_type"] = False
        options.pop("column_encoding", None)
    pq.write_table(table, folder / f"{number}.parquet", **options)
    rows = table.to_pylist()
    (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / f"{number}.options").write_text(f"{options}\n{table.schema}\n")
    documents = [[[row["text"]], row["list"]] for row in rows]
    if all(text is not None and texts is not None and None not in texts for [text], texts in documents):
        (folder / f"{number}.texts").write_text("".join(json.dumps(document) + "\n" for document in documents))


def main():
    folder, seed, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for number in range(count):
        write(folder, number, random.Random(f"{seed} {number}"))


if __name__ == "__main__":
    main()
