"""Run by a Python that has jsonschema and yaml: the schema's file as argument, one JSON value a line on stdin, whether the schema accepts it
a line on stdout, or why not. {"yaml": FILE, "dialect": "1.1" | "1.2"} stands for a file as readers of that YAML see it."""

import json
import re
import sys

import jsonschema
import yaml


class Reader12(yaml.SafeLoader):
    """YAML 1.2's numbers and switches: 1e-5 is a number, yes is a word."""
    yaml_implicit_resolvers = {}


for words, tag, first in [(r"^(?:true|True|TRUE|false|False|FALSE)$", "bool", "tTfF"), (r"^[-+]?[0-9]+$", "int", "-+0123456789"),
                          (r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "float", "-+.0123456789"),
                          (r"^(?:~|null|Null|NULL|)$", "null", ["~", "n", "N", ""]), (r"^<<$", "merge", "<")]:
    Reader12.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(words), list(first))


def read(value):
    if isinstance(value, dict) and "yaml" in value:
        with open(value["yaml"]) as file:
            return yaml.load(file, Loader=Reader12 if value["dialect"] == "1.2" else yaml.SafeLoader)
    return value


def main():
    with open(sys.argv[1]) as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for line in sys.stdin:
        error = jsonschema.exceptions.best_match(validator.iter_errors(read(json.loads(line))))
        print("accepted" if error is None else f"refused: {'/'.join(map(str, error.absolute_path))}: {error.message}"[:300].replace("\n", " "))


main()
