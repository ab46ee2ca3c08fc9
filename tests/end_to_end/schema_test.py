"""The JSON Schema of recipes: what it accepts and refuses beside what `tessera check` does, judged by the package jsonschema."""

import copy
import json
import os
import pathlib
import random
import re
import subprocess
import unittest

from harness import TINY, InOwnFolder, main

SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])
SCHEMA = SOURCE / "docs" / "tessera.schema.json"
PYTHON = os.environ.get("TESSERA_TEST_PYTHON")
CONFIGS = sorted((SOURCE / "configs").rglob("*.yaml"))

# How `tessera check` says that one key is wrong by itself, whatever the others are.
ONE_KEY = re.compile(r" takes .*, not '|must be [<>]=? |^no option '|^no group '|^\w+\.\w+ is missing$|^no \w+ '.*'; have "
                     r"|is not implemented yet|is a group of options, not|is a map of options, not")
# The first says that a rule between three keys is broken; the second is of a list that the plan of layers knows and nothing serves yet.
NOT_OF_ONE_KEY = ("training_config.training_iters is missing", "select_comm_recompute is not implemented yet")

VALUES = [0, 1, -1, 2, 3, 7, 0.5, 1.5, -0.5, 1e-5, 1.0, 0.0, "0", "1", "-1", "2", "0.5", "1.5", "3e-4", "1e2", "-3e-4", "0x10", "010", "true",
          "True", "yes", "", "none", "NONE", "cosine", "${HOME}", "${NO_SUCH_NAME:-1}", "${NOT_CLOSED", True, False, None, [], [1], [1, 2],
          [0.9, 0.95], ["0.9", "0.95"], [0.9, 1.5], [[1, 1]], "[[1,1],[1,1]]", "1,1", [1, None], ["x"], {}, {"a": 1}, [{"params": "*"}],
          [{"params": "*", "lr_mult": -1}], [{"lr_mult": 1}], "float32", "sgd", "AdamW", "adam", "full", "uniform", ["core_attn"], ["mlp", "x"]]


class Schema(InOwnFolder):
    def test_the_page_in_docs_is_current(self):
        self.assertEqual(SCHEMA.read_text(), self.tessera("options", "--json-schema"),
                         "bring it up to date: tessera options --json-schema > docs/tessera.schema.json")

    def test_every_recipe_names_it_in_its_first_line(self):
        for config in CONFIGS:
            line = config.read_text().splitlines()[0]
            found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", line)
            self.assertTrue(found, f"{config}: {line}")
            self.assertEqual((config.parent / found[1]).resolve(), SCHEMA, config)


@unittest.skipUnless(PYTHON, "TESSERA_TEST_PYTHON names no Python with jsonschema")
class SchemaJudged(InOwnFolder):
    def judged(self, values):
        done = subprocess.run([PYTHON, SOURCE / "tests/end_to_end/schema_judge.py", SCHEMA], text=True, capture_output=True,
                              input="".join(json.dumps(value) + "\n" for value in values), timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        answers = done.stdout.splitlines()
        self.assertEqual(len(answers), len(values))
        return answers

    def checked(self, recipe):
        """What `tessera check` finds in a recipe: messages."""
        self.write("mutant.yaml", json.dumps(recipe))
        process = self.start("check", "mutant.yaml", "--json")
        out, err = process.communicate(timeout=200)
        self.assertIn(process.returncode, (0, 2), f"{recipe}: {out}{err}")
        return [finding["message"] for finding in json.loads(out)]

    def test_every_recipe_of_ours_is_accepted(self):
        for dialect in ("1.1", "1.2"):
            accepted = self.judged([{"yaml": str(config), "dialect": dialect} for config in CONFIGS])
            wrong = [f"{config}: {answer}" for config, answer in zip(CONFIGS, accepted)
                     if answer != "accepted"]
            self.assertEqual(wrong, [], f"YAML {dialect}")

    def test_what_one_key_has_wrong_is_refused(self):
        def with_key(group, key, value):
            recipe = copy.deepcopy(TINY)
            recipe["training_config"]["tensorboard"] = False
            recipe.setdefault(group, {})[key] = value
            return recipe
        refused = [with_key(*what) for what in [
            ("training_config", "seeed", 1), ("training_config", "seed", -1), ("training_config", "seed", "x"), ("training_config", "bf16", 1),
            ("optimizer_config", "betas", [0.9, 1]), ("optimizer_config", "betas", [0.9]), ("optimizer_config", "adam_beta1", 1.5),
            ("optimizer_config", "optimizer_type", "adamm"), ("model_config", "num_layers", 0), ("model_config", "fa_config", {"pre": 1}),
            ("parallel_config", "cp_comm_type", ["p2p", "ring"]), ("parallel_config", "use_custom_fsdp", True), ("optimizer_config", "muon_momentum", 0.9), ("moe_config", "moe_router_topk", 0),
            ("trainig_config", "seed", 1), ("optimizer_config", "lr", "-3e-4"), ("model_config", "normalization", "rmsnorm"),
            ("model_config", "no_rope_freq", "never"), ("model_config", "no_rope_freq", "[0]*2+"), ("moe_config", "moe_layer_freq", "[2]")]]
        accepted = [with_key(*what) for what in [
            ("training_config", "seed", "${SEED:-1}"), ("training_config", "seed", "7"), ("optimizer_config", "adam_beta1", 0.5),
            ("optimizer_config", "optimizer_type", "AdamW"), ("model_config", "fa_config", {"pre_tokens": 4}), ("x-notes", "any", {"thing": [1]}),
            ("parallel_config", "cp_comm_type", ["p2p", "a2a+p2p"]), ("optimizer_config", "lr", "3e-4"), ("training_config", "bf16", "True"),
            ("parallel_config", "num_layer_list", "[[2],[2]]"), ("optimizer_config", "lr_warmup_fraction", None)]]
        del accepted[7]["optimizer_config"]["learning_rate"]
        without = copy.deepcopy(TINY)
        del without["model_config"]["num_layers"]
        refused.append(without)
        accepted.append({"base": "tiny.yaml", "model_config": {"hidden_size": 64}})
        accepted.append({"base": ["tiny.yaml"], "training_config": None})
        answers = self.judged(refused + accepted)
        for recipe, answer in zip(refused, answers):
            self.assertNotEqual(answer, "accepted", recipe)
        for recipe, answer in zip(accepted, answers[len(refused):]):
            self.assertEqual(answer, "accepted", recipe)

    @staticmethod
    def change(mutant):
        """What a mutant has that the recipe it was made of has not."""
        return {group: {key: value for key, value in keys.items() if TINY.get(group, {}).get(key) != value} if isinstance(keys, dict) else keys
                for group, keys in mutant.items() if keys != TINY.get(group)}

    def mutants(self, schema, number, dice):
        """Recipes of which most have one or two keys changed: a value of any kind, a key left out, misspelt or in the wrong group."""
        groups = {name: part["properties"] for name, part in schema["properties"].items() if "properties" in part}
        keys = [(group, key) for group, properties in groups.items() for key in properties]
        start = copy.deepcopy(TINY)
        start["training_config"]["tensorboard"] = False

        def any_value(group, key):
            words = [word for one in groups[group][key].get("anyOf", []) if isinstance(one, dict) for word in one.get("enum", [])]
            pool = dice.choice([VALUES, words or VALUES])
            return dice.choice(pool)

        for _ in range(number):
            mutant = copy.deepcopy(start)
            for _ in range(dice.choice([1, 1, 1, 2])):
                how = dice.random()
                group, key = dice.choice(keys)
                if how < 0.8:
                    nested = groups[group][key].get("properties")
                    if nested and dice.random() < 0.9:
                        inner = dice.choice(list(nested))
                        mutant.setdefault(group, {})[key] = {inner: dice.choice(VALUES)}
                    else:
                        mutant.setdefault(group, {})[key] = any_value(group, key)
                elif how < 0.9:
                    group = dice.choice([name for name in start if mutant.get(name)])
                    del mutant[group][dice.choice(list(mutant[group]))]
                elif how < 0.95:
                    mutant.setdefault(group, {})[dice.choice([key[:-1], key + "s", key.upper(), "x-" + key])] = 1
                else:
                    mutant[dice.choice([group + "s", "base_", "model"])] = dice.choice([None, {}, {key: 1}])
            yield mutant

    def agree(self, half):
        seed = int(os.environ.get("TESSERA_SEED", "6"))
        print(f"seed {seed}; another by TESSERA_SEED")
        mutants = list(self.mutants(json.loads(SCHEMA.read_text()), int(os.environ.get("TESSERA_MUTANTS", "250")), random.Random(seed)))[half::2]
        wrong, counts = [], {}
        environment = re.compile(r"\$\{(HOME|NO_SUCH_NAME:-1)\}")  # what these stand for, the schema cannot know
        for mutant, answer in zip(mutants, self.judged(mutants)):
            problems = self.checked(mutant)
            pair = (answer == "accepted", not problems)
            counts[pair] = counts.get(pair, 0) + 1
            if not problems and answer != "accepted":
                wrong.append(f"check takes it, the schema does not: {self.change(mutant)}: {answer}")
            for problem in problems:
                if answer == "accepted" and ONE_KEY.search(problem) and problem not in NOT_OF_ONE_KEY and not environment.search(json.dumps(mutant)):
                    wrong.append(f"the schema takes it, check does not: {self.change(mutant)}: {problem}")
        self.assertEqual("\n".join(wrong), "")
        print("(schema accepts, check accepts): number", counts)
        for pair in ((True, True), (False, False), (True, False)):
            self.assertGreater(counts.get(pair, 0), 1, f"{pair} hardly happens; the mutants show nothing")

    def test_check_and_schema_agree_but_for_rules_between_keys(self):
        self.agree(0)

    def test_check_and_schema_agree_on_the_other_half_of_the_mutants(self):
        self.agree(1)


if __name__ == "__main__":
    main()
