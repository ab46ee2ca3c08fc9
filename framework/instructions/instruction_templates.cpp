#include "framework/instructions/instruction_templates.h"

#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/files/input_file.h"

namespace tessera::instructions {
namespace {

using Json = nlohmann::ordered_json;
using Slots = PromptTemplate::Slots;
using SlotKind = PromptTemplate::Slot::Kind;

// The formats of MindSpeed-LLM's templates.json (August 2026) without its long system messages; "like" takes what is
// not given from another one.
constexpr const char* built_in = R"json([
{"name": "default", "user": ["Human: {{content}}\nAssistant:"], "system": ["{{content}}\n"], "separator": ["\n"]},
{"name": "empty", "user": ["{{content}}"], "assistant": ["{{content}}"]},
{"name": "trl", "like": "empty", "prefix": [["bos_token"]]},
{"name": "alpaca", "user": ["### Instruction:\n{{content}}\n\n### Response:\n"], "separator": ["\n\n"],
 "default_system": "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"},
{"name": "chatml", "user": ["<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n"],
 "system": ["<|im_start|>system\n{{content}}<|im_end|>\n"],
 "observation": ["<|im_start|>tool\n{{content}}<|im_end|>\n<|im_start|>assistant\n"], "separator": ["\n"],
 "stop_words": ["<|im_end|>", "<|im_start|>"], "replace_eos": true},
{"name": "qwen", "like": "chatml", "default_system": "You are a helpful assistant.", "stop_words": ["<|im_end|>"]},
{"name": "qwen3", "user": ["<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n"],
 "assistant": ["{{content}}<|im_end|>\n"], "system": ["<|im_start|>system\n{{content}}<|im_end|>\n"],
 "observation": ["<|im_start|>user\n<tool_response>\n{{content}}\n</tool_response><|im_end|>\n<|im_start|>assistant\n"],
 "stop_words": ["<|im_end|>"], "replace_eos": true, "template_class": "ReasoningTemplate"},
{"name": "plm", "user": ["<|im_start|>user\n{{content}}<|im_end|>\n<|im_start|>assistant\n"],
 "assistant": ["{{content}}<|im_end|>\n"], "system": ["<|im_start|>system\n{{content}}<|im_end|>\n"],
 "default_system": "You are a helpful assistant.", "stop_words": ["<|endoftext|>"], "replace_eos": true},
{"name": "hunyuan", "like": "empty", "default_system": "You are a helpful assistant."},
{"name": "llama2", "user": [["bos_token"], "[INST] {{content}} [/INST]"],
 "system": ["<<SYS>>\n{{content}}\n<</SYS>>\n\n"], "template_class": "Llama2Template"},
{"name": "llama3",
 "user": ["<|start_header_id|>user<|end_header_id|>\n\n{{content}}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"],
 "system": ["<|start_header_id|>system<|end_header_id|>\n\n{{content}}<|eot_id|>"],
 "observation": ["<|start_header_id|>tool<|end_header_id|>\n\n{{content}}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"],
 "prefix": [["bos_token"]], "stop_words": ["<|eot_id|>"], "replace_eos": true},
{"name": "mistral", "user": ["[INST] {{content}} [/INST]"], "prefix": [["bos_token"]]},
{"name": "mixtral", "like": "mistral"},
{"name": "gemma", "user": ["<start_of_turn>user\n{{content}}<end_of_turn>\n<start_of_turn>model\n"],
 "observation": ["<start_of_turn>tool\n{{content}}<end_of_turn>\n<start_of_turn>model\n"],
 "separator": ["<end_of_turn>\n"], "prefix": [["bos_token"]], "efficient_eos": true},
{"name": "cpm", "user": ["<用户>{{content}}<AI>"], "prefix": [["bos_token"]]},
{"name": "deepseek2", "user": ["User: {{content}}\n\nAssistant:"], "system": ["{{content}}\n\n"],
 "prefix": [["bos_token"]]},
{"name": "deepseek2-lite", "like": "deepseek2"},
{"name": "minicpm3", "like": "deepseek2"},
{"name": "deepseek3", "user": ["<｜User｜>{{content}}<｜Assistant｜>"], "prefix": [["bos_token"]]},
{"name": "baichuan2", "user": ["<reserved_106>{{content}}<reserved_107>"], "efficient_eos": true},
{"name": "chatglm2", "user": ["[Round {{idx}}]\n\n问：{{content}}\n\n答："],
 "prefix": [{"token": "[gMASK]"}, {"token": "sop"}], "separator": ["\n\n"], "efficient_eos": true},
{"name": "chatglm3", "user": [{"token": "<|user|>"}, "\n", "{{content}}", {"token": "<|assistant|>"}],
 "assistant": ["\n", "{{content}}"], "system": [{"token": "<|system|>"}, "\n", "{{content}}"],
 "observation": [{"token": "<|observation|>"}, "\n", "{{content}}", {"token": "<|assistant|>"}],
 "prefix": [{"token": "[gMASK]"}, {"token": "sop"}], "stop_words": ["<|user|>", "<|observation|>"],
 "efficient_eos": true},
{"name": "glm4", "user": ["<|user|>\n{{content}}<|assistant|>"], "assistant": ["\n{{content}}"],
 "system": ["<|system|>\n{{content}}"], "observation": ["<|observation|>\n{{content}}<|assistant|>"],
 "prefix": ["[gMASK]<sop>"], "stop_words": ["<|user|>", "<|observation|>"], "efficient_eos": true},
{"name": "glm4_moe", "like": "glm4", "template_class": "ReasoningTemplate"}
])json";

// Its other prompt types, whose templates are too long to be built in, and their `efficient_eos`.
constexpr std::pair<std::string_view, bool> not_built_in[] = {
    {"chatglm3_system", true}, {"chatml_de", false}, {"qwen_lf", false}, {"qwen_r1", false},
    {"qwen_math_r1", false},   {"magistral", false}, {"intern2", false}, {"bailing_mini", true},
    {"gpt_oss", true},         {"deepseek4", false}};

// Whether `words` have {{name}}.
bool names_a_placeholder(std::string_view words) {
  const auto starts_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  for (auto at = words.find("{{"); at != std::string_view::npos; at = words.find("{{", at + 1)) {
    auto end = at + 2;
    if (end >= words.size() || !starts_name(words[end])) continue;
    while (end < words.size() && (starts_name(words[end]) || (words[end] >= '0' && words[end] <= '9'))) ++end;
    if (words.substr(end, 2) == "}}") return true;
  }
  return false;
}

class Reader {
 public:
  Reader(const Json& entry, std::string where) : entry_(entry), where_(std::move(where)) {}

  PromptTemplate operator()(const std::string& name) const {
    PromptTemplate made;
    made.name = name;
    made.kind = kind();
    made.efficient_eos = flag("efficient_eos");
    made.replace_eos = flag("replace_eos");
    made.default_system = joined_words("default_system");
    made.stop_words = words("stop_words");
    if (made.replace_eos && made.stop_words.empty()) refuse("replace_eos needs stop_words");
    made.thought_words = {"<think>\n", "\n</think>\n\n"};
    if (const auto thoughts = words("thought_words"); !thoughts.empty()) {
      if (thoughts.size() != 2) refuse("thought_words must be two texts");
      made.thought_words = {thoughts[0], thoughts[1]};
    }
    const Slots content = {{SlotKind::text, "{{content}}"}};
    made.user = slots("user", content, true);
    auto answer = content;
    if (!made.efficient_eos) answer.push_back({SlotKind::eos, ""});
    made.assistant = slots("assistant", answer, true);
    made.system = slots("system", content, true);
    made.observation = slots("observation", made.user, true);
    made.separator = slots("separator", {}, false);
    made.prefix = slots("prefix", {}, false);
    if (made.kind == PromptTemplate::Kind::llama2 && made.system[0].kind != SlotKind::text)
      refuse("format_system of a Llama2Template must begin with a text");
    return made;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(text(where_, ": ", what, "; correct the template, or choose another --prompt-type"));
  }
  const Json* find(const std::string& key) const {
    const auto at = entry_.find(key);
    return at == entry_.end() || at->is_null() ? nullptr : &*at;
  }
  bool flag(const std::string& key) const {
    const auto* value = find(key);
    if (value != nullptr && !value->is_boolean()) refuse(text(key, " must be true or false"));
    return value != nullptr && value->get<bool>();
  }
  std::vector<std::string> words(const std::string& key) const {
    const auto* value = find(key);
    if (value == nullptr) return {};
    std::vector<std::string> made;
    for (const auto& one : *value) {
      if (!value->is_array() || !one.is_string()) refuse(text(key, " must be a list of texts"));
      made.push_back(one.get<std::string>());
    }
    return made;
  }
  std::string joined_words(const std::string& key) const {
    const auto* value = find(key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    std::string all;
    for (const auto& one : words(key)) all += one;
    return all;
  }
  PromptTemplate::Kind kind() const {
    const auto* value = find("template_class");
    const auto name = value != nullptr && value->is_string() ? value->get<std::string>() : "";
    if (name == "Llama2Template") return PromptTemplate::Kind::llama2;
    if (name == "LFDefaultTemplate") return PromptTemplate::Kind::without_separator;
    if (name == "ReasoningTemplate") return PromptTemplate::Kind::reasoning;
    if (name == "DeepSeek4Template") refuse(text("template_class '", name, "' is not supported"));
    return PromptTemplate::Kind::plain;
  }

  // A missing or empty list of slots is the default, as there.
  Slots slots(const std::string& key, Slots otherwise, bool needs_placeholder) const {
    const auto* value = find("format_" + key);
    if (value != nullptr) {
      if (!value->is_object()) refuse(text("format_", key, " must be an object"));
      if (value->empty()) return otherwise;
      value = value->contains("slots") ? &value->at("slots") : nullptr;
    } else {
      value = find(key);  // the built-in ones are shorter
      if (value == nullptr) return otherwise;
    }
    if (value == nullptr || !value->is_array() || value->empty()) refuse(text("format_", key, " has no list of slots"));
    Slots made;
    bool has_placeholder = false;
    for (const auto& one : *value) {
      made.push_back(slot(key, one));
      has_placeholder = has_placeholder || (one.is_string() && names_a_placeholder(made.back().text));
    }
    if (has_placeholder != needs_placeholder)
      refuse(
          text("format_", key, needs_placeholder ? " needs" : " may not have", " a placeholder such as {{content}}"));
    return made;
  }

  PromptTemplate::Slot slot(const std::string& key, const Json& value) const {
    if (value.is_string()) return {SlotKind::text, value.get<std::string>()};
    if (value.is_object() && value.contains("token") && value["token"].is_string())
      return {SlotKind::token, value["token"].get<std::string>()};
    if (value == Json::array({"bos_token"})) return {SlotKind::bos, ""};
    if (value == Json::array({"eos_token"})) return {SlotKind::eos, ""};
    refuse(text("a slot of format_", key,
                " is neither a text, nor {\"token\": ...}, nor [\"bos_token\"], nor [\"eos_token\"]"));
  }

  const Json& entry_;
  std::string where_;
};

const Json* named(const Json& all, const std::string& name) {
  const Json* found = nullptr;
  for (const auto& one : all)
    if (one.is_object() && one.contains("name") && one["name"] == name) found = &one;  // the last one counts
  return found;
}

const Json& built_in_templates() {
  static const Json all = [] {
    auto read = parse_json<Json>(built_in);
    for (auto& one : read)
      if (one.contains("like")) {
        auto whole = *named(read, one["like"]);
        whole.update(one);
        one = whole;
      }
    return read;
  }();
  return all;
}

std::string joined_names(const Json& all) {
  std::string names;
  for (const auto& one : all)
    if (one.is_object() && one.contains("name") && one["name"].is_string())
      names += text(names.empty() ? "" : ", ", one["name"].get<std::string>());
  return names;
}

}  // namespace

PromptTemplate prompt_template(const std::string& name, const std::string& file) {
  if (file.empty()) {
    const auto* entry = named(built_in_templates(), name);
    if (entry == nullptr)
      throw ConfigError(text("--prompt-type: '", name, "' is not built in, only ", joined_names(built_in_templates()),
                             "; give --prompt-type-path with a file such as MindSpeed-LLM's "
                             "configs/finetune/templates.json that has it"));
    return Reader(*entry, "prompt type " + name)(name);
  }
  const auto all = parse_json<Json>(files::read_input(file, "prompt templates"));
  if (!all.is_array())
    throw ConfigError(text(file, ": is not a JSON list of prompt templates, as MindSpeed-LLM's templates.json is"));
  const auto* entry = named(all, name);
  if (entry == nullptr)
    throw ConfigError(text(file, ": has no prompt template '", name, "', only ", joined_names(all)));
  return Reader(*entry, text(file, ": prompt type ", name))(name);
}

std::optional<bool> efficient_eos_of(const std::string& name) {
  if (named(built_in_templates(), name) != nullptr) return prompt_template(name).efficient_eos;
  for (const auto& [other, efficient_eos] : not_built_in)
    if (other == name) return efficient_eos;
  return std::nullopt;
}

std::vector<std::string> prompt_template_names() {
  std::vector<std::string> names;
  for (const auto& one : built_in_templates()) names.push_back(one["name"]);
  return names;
}

}  // namespace tessera::instructions
