"""Renders with the real Jinja what chat_template_test.py compares: run by a Python that has jinja2.

    python chat_template_peer.py TEMPLATE CONVERSATIONS < {"bos_token": ...}

Prints one JSON text for each line of CONVERSATIONS, null where the template refuses it."""
import json
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """The tag that Transformers adds: its body is rendered in a scope of its own."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("rendered"), [], [], body).set_lineno(line)

    def rendered(self, caller):
        return caller()


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def plain(message):
    """A message as Transformers hands it to the template."""
    message = {key: value for key, value in message.items() if value is not None}
    thoughts = [message[key] for key in ("reasoning_content", "thinking", "reasoning") if key in message]
    return {"thinking": thoughts[0], **message, "reasoning_content": thoughts[0]} if thoughts else message


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                               extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    with open(sys.argv[1], encoding="utf-8", newline="") as file:
        template = environment.from_string(file.read())
    variables = json.load(sys.stdin)
    with open(sys.argv[2], encoding="utf-8") as file:
        for line in file:
            messages = [plain(message) for message in json.loads(line)["messages"]]
            try:
                print(json.dumps(template.render(messages=messages, tools=None, documents=None, **variables)))
            except Exception:  # as apply_chat_template: the template refuses, or fails
                print("null")


if __name__ == "__main__":
    main()
