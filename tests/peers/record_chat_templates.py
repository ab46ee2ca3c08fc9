#!/usr/bin/env python3
"""Records what Hugging Face Transformers renders from the templates of tests/data/chat_templates.

    python3 tests/peers/record_chat_templates.py          # needs transformers and jinja2
    python3 tests/peers/record_chat_templates.py --check  # only compares with what is recorded

Writes tests/data/chat_templates/cases.jsonl: one case a line with the template's file, the messages, what else the
template sees, and the text or, for a conversation that the template refuses, null."""
import json
import pathlib
import sys

from transformers.utils.chat_template_utils import render_jinja_template

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data" / "chat_templates"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def m(role, content, **more):
    return {"role": role, "content": content, **more}


CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [2.5, "é\n\"", None]}}}
CONVERSATIONS = [
    [m("user", "Hello")],
    [m("user", "  Hello  "), m("assistant", "\n Hi there \n")],
    [m("system", "Be brief."), m("user", "Héllo, 世界 🌍?"), m("assistant", "<think>\nhm\n</think>\n\nYes."), m("user", "Why?")],
    [m("user", "a"), m("assistant", "b"), m("user", "<c> & 'd'"), m("assistant", "e", reasoning_content="because")],
    [m("user", "a"), m("user", "b")],
    [m("system", ""), m("user", ""), m("assistant", "")],
    [m("tester", "x")],
    [m("user", "add"), m("assistant", None, tool_calls=[CALL]), m("tool", "3.5", tool_call_id="abcdefghi"), m("assistant", "It is 3.5")],
    [m("user", "add"), m("assistant", "", tool_calls=[CALL, CALL]), m("tool", "1"), m("tool", "2"), m("user", "thanks")],
    [m("user", [{"type": "text", "text": " part "}, {"type": "image"}])],
    [m("user", "q"), m("assistant", "a", thinking="t1")],
    [m("user", "\u2003wide\u00a0")],
    [{"role": "user"}],
]


def cases():
    for file in sorted(FOLDER.glob("*.jinja")):
        source = file.read_text(encoding="utf-8")
        for messages in CONVERSATIONS[:1] if file.name == "expressions.jinja" else CONVERSATIONS:
            for prompt in (False, True):
                kept = [{k: v for k, v in one.items() if v is not None} for one in messages]
                try:
                    text = render_jinja_template([kept], chat_template=source, add_generation_prompt=prompt, **TOKENS)[0][0]
                except Exception:  # the template refuses, or fails
                    text = None
                yield {"template": file.name, "messages": messages, "add_generation_prompt": prompt,
                       "special_tokens": TOKENS, "text": text}


def main():
    lines = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases())
    target = FOLDER / "cases.jsonl"
    if "--check" in sys.argv:
        sys.exit(0 if target.read_text(encoding="utf-8") == lines else f"{target} differs from what is rendered now")
    target.write_text(lines, encoding="utf-8")
    print(f"{target}: {lines.count(chr(10))} cases, {lines.count('null}')} refused")


if __name__ == "__main__":
    main()
