"""Chat templates, rendered by `tessera data render-chat` and by the real Jinja: random conversations, a printed seed.

CHAT_TEMPLATES=FOLDER compares also the templates (*.jinja, or chat_template of tokenizer_config.json) below FOLDER."""
import json
import os
import pathlib
import random
import subprocess
import unittest

from harness import InOwnFolder, program

PYTHON = os.environ.get("TESSERA_TEST_PYTHON")
HERE = pathlib.Path(__file__).resolve().parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def has_jinja():
    return PYTHON and subprocess.run([PYTHON, "-c", "import jinja2"], capture_output=True, check=False).returncode == 0


def random_text(rng):
    words = ["hello", "  ", "\n", "<think>", "</think>", "<b>&'\"", "Grüße", "世界", "🌍", "\u00a0", "\t", "{{ x }}", "\\n",
             "<tool_response>", "a" * 30, ""]
    return "".join(rng.choice(words) + rng.choice(["", " "]) for _ in range(rng.randrange(6)))


def random_value(rng, depth=0):
    kind = rng.randrange(7 if depth < 2 else 5)
    if kind < 5:
        return [None, rng.random() < .5, rng.randrange(-5, 10**12), rng.choice([0.5, 1e-7, -2.0, 1e300]), random_text(rng)][kind]
    if kind == 5:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(["a", "b", "ß", "name"]): random_value(rng, depth + 1) for _ in range(rng.randrange(3))}


def random_conversation(rng):
    roles = ["system", "user", "assistant", "tool", "other"]
    orderly = rng.random() < .7
    messages = [{"role": "system", "content": random_text(rng)}] if rng.random() < .5 else []
    for i in range(rng.randrange(1, 6)):
        message = {"role": ["user", "assistant"][i % 2] if orderly else rng.choice(roles), "content": random_text(rng)}
        if rng.random() < .1:
            message["content"] = rng.choice([None, [{"type": "text", "text": random_text(rng)}, {"type": "image"}]])
        if message["role"] == "assistant" and rng.random() < .3:
            message["reasoning_content"] = random_text(rng)
        if message["role"] == "assistant" and rng.random() < .3:
            arguments = {"x": random_value(rng), "y": random_value(rng)}
            message["tool_calls"] = [{"id": "abcdefghi", "function": {"name": "f", "arguments": arguments}}] * rng.randrange(1, 3)
        if message["role"] == "tool":
            message["tool_call_id"] = "abcdefghi"
        messages.append(message)
    return messages


@unittest.skipUnless(has_jinja(), "TESSERA_TEST_PYTHON names no Python with jinja2")
class ChatTemplate(InOwnFolder):
    def compare(self, template, conversations, prompt):
        conversation_file = self.folder / "in.jsonl"
        conversation_file.write_text(
            "".join(json.dumps({"messages": one}, ensure_ascii=False) + "\n" for one in conversations), encoding="utf-8")
        theirs = subprocess.run([PYTHON, HERE / "chat_template_peer.py", template, conversation_file], check=True, capture_output=True,
                                text=True, input=json.dumps({**TOKENS, "add_generation_prompt": prompt})).stdout
        words = [program(), "data", "render-chat", "--json", "--on-error", "skip", "--chat-template", str(template), "--input",
                 str(conversation_file), *(["--add-generation-prompt"] if prompt else [])]
        for name, token in TOKENS.items():
            words += ["--special-token", f"{name}={token}"]
        ours = subprocess.run(words, capture_output=True, text=True, check=False)
        self.assertEqual(ours.returncode, 0, ours.stderr)
        rendered = 0
        for conversation, want, got in zip(conversations, theirs.splitlines(), ours.stdout.splitlines(), strict=True):
            if json.loads(got) is None and json.loads(want) is not None:
                self.assertRegex(ours.stderr, "not supported", f"{template}: {conversation}")  # refused by its name
                continue
            self.assertEqual(json.loads(got), json.loads(want), f"{template}: {conversation}")
            rendered += json.loads(want) is not None
        return rendered

    def test_random_conversations_are_rendered_as_by_jinja(self):
        seed = int(os.environ.get("SEED", random.randrange(10**6)))
        print(f"SEED={seed}")
        rng = random.Random(seed)
        templates = sorted((HERE.parent / "data" / "chat_templates").glob("*.jinja"))
        self.assertGreater(len(templates), 10)
        rendered = 0
        for template in templates:
            for prompt in (False, True):
                rendered += self.compare(template, [random_conversation(rng) for _ in range(60)], prompt)
        self.assertGreater(rendered, 300)

    @unittest.skipUnless(os.environ.get("CHAT_TEMPLATES"), "CHAT_TEMPLATES names no folder with templates of models")
    def test_templates_of_models_are_rendered_as_by_jinja(self):
        rng = random.Random(1)
        folder = pathlib.Path(os.environ["CHAT_TEMPLATES"])
        found = list(folder.rglob("*.jinja"))
        for config in folder.rglob("tokenizer_config.json"):
            own = json.loads(config.read_text(encoding="utf-8")).get("chat_template")
            for name, source in ([("", own)] if isinstance(own, str) else [(o["name"], o["template"]) for o in own or []]):
                found.append(self.folder / f"{len(found)}_{config.parent.name}_{name}.jinja")
                found[-1].write_text(source, encoding="utf-8", newline="")
        self.assertTrue(found)
        for template in found:
            for prompt in (False, True):
                self.compare(template, [random_conversation(rng) for _ in range(60)], prompt)


if __name__ == "__main__":
    unittest.main()
