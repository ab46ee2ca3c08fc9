#include "framework/interop/flags/recipe_writer.h"

#include <algorithm>
#include <cctype>
#include <functional>

#include "framework/base/error.h"
#include "framework/options/same.h"

namespace tessera::flags {
namespace {

const std::vector<std::string> order = {"model_config",     "parallel_config", "training_config",
                                        "optimizer_config", "dataset_config",  "moe_config",
                                        "vision_config",    "lora_config",     "preference_config"};

/// The option `name` of a group of `tree`, of the type that is chosen there when several have it; null when there is
/// none.
const options::OptionFacts* option_of(const std::string& name, const options::Value& group,
                                      const std::vector<options::SchemaFacts>& schemas) {
  const options::OptionFacts* found = nullptr;
  for (const auto& schema : schemas)
    for (const auto& option : schema.options) {
      if (option.name != name) continue;
      const auto* chosen = schema.key.empty() ? nullptr : group.find(schema.key);
      if (!found || (chosen && chosen->scalar == schema.type)) found = &option;
    }
  return found;
}

/// Each option of a group, those of nested maps by "fa_config.pre_tokens".
void each_option(const options::Value& group, const std::string& prefix,
                 const std::function<void(const std::string&, const options::Value&)>& see) {
  for (const auto& [name, value] : group.fields) {
    if (value.kind == options::Value::Kind::group)
      each_option(value, prefix + name + ".", see);
    else
      see(prefix + name, value);
  }
}

bool plain(const std::string& words, bool in_list) {
  static const std::string never_first = "!&*-?|>@`\"'%#,[]{}:~ ";
  if (words.empty() || words.back() == ' ' || words.back() == ':') return false;
  const bool number = words.size() > 1 && words[0] == '-' && (std::isdigit(static_cast<unsigned char>(words[1])) != 0);
  if (never_first.find(words[0]) != std::string::npos && !number) return false;
  if (words == "null" || words.find(": ") != std::string::npos || words.find(" #") != std::string::npos) return false;
  if (in_list && words.find_first_of(",[]{}") != std::string::npos) return false;
  return std::none_of(words.begin(), words.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

std::string quoted(const std::string& words) {
  static const char* digits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : words) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (byte < ' ')
      out += "\\x", out += digits[byte >> 4], out += digits[byte & 15];
    else
      out += c;
  }
  return out + '"';
}

std::string written(const options::Value& value, bool in_list = false) {
  switch (value.kind) {
    case options::Value::Kind::none:
      return "null";
    case options::Value::Kind::scalar:
      if (value.scalar == "True" || value.scalar == "False") return value.scalar == "True" ? "true" : "false";
      return plain(value.scalar, in_list) ? value.scalar : quoted(value.scalar);
    case options::Value::Kind::list:
    case options::Value::Kind::group:
      break;
  }
  std::string all;
  for (const auto& item : value.items) all += (all.empty() ? "" : ", ") + written(item, true);
  return "[" + all + "]";
}

bool is_path(const std::string& option) {
  const auto ends = [&option](const std::string& with) {
    return option.size() >= with.size() && option.compare(option.size() - with.size(), with.size(), with) == 0;
  };
  return ends("_path") || ends("_file") || ends("_dir") || option == "load_checkpoint" || option == "tokenizer_model";
}

/// The fields of a group in the order of their declaration, then what is not declared.
std::vector<const options::Value::Field*> in_order(const options::Value& group,
                                                   const std::vector<options::SchemaFacts>& schemas) {
  std::vector<const options::Value::Field*> fields;
  const auto add = [&fields](const options::Value::Field& field) {
    if (std::find(fields.begin(), fields.end(), &field) == fields.end()) fields.push_back(&field);
  };
  for (const auto& schema : schemas) {
    for (const auto& field : group.fields)
      if (field.name == schema.key) add(field);
    for (const auto& option : schema.options)
      for (const auto& field : group.fields)
        if (field.name == option.name.substr(0, option.name.find('.'))) add(field);
  }
  for (const auto& field : group.fields) add(field);
  return fields;
}

/// Writes the lines of a recipe.
class Writer {
 public:
  Writer(const options::Facts& facts, const RecipeText& around) : facts_(facts), around_(around) {}

  std::string write(const options::Value& tree) {
    for (const auto& line : around_.head) out_ += text(line.empty() ? "#" : "# ", line, "\n");
    if (!around_.base.empty()) out_ += "base: " + around_.base + "\n";
    for (const auto& name : order) group(name, tree);
    for (const auto& [name, value] : tree.fields)
      if (std::find(order.begin(), order.end(), name) == order.end()) group(name, tree);
    for (const auto& line : around_.tail) out_ += text(line.empty() ? "#" : "# ", line, "\n");
    return out_;
  }

 private:
  void group(const std::string& name, const options::Value& tree) {
    const auto* given = tree.find(name);
    const auto facts = facts_.find(name);
    std::string lines;
    lines.swap(out_);
    if (given) fields(*given, name, "  ", facts == facts_.end() ? std::vector<options::SchemaFacts>{} : facts->second);
    lines.swap(out_);
    if (!lines.empty()) out_ += name + ":\n" + lines;
  }

  void fields(const options::Value& group, const std::string& path, const std::string& indent,
              const std::vector<options::SchemaFacts>& schemas) {
    for (const auto* field : in_order(group, schemas)) {
      const auto full = path + "." + field->name;
      if (field->value.kind == options::Value::Kind::group) {
        out_ += indent + field->name + ":\n";
        fields(field->value, full, indent + "  ", {});
      } else {
        line(full, indent, field->name + ": " + written(field->value));
      }
    }
  }

  void line(const std::string& path, const std::string& indent, const std::string& words) {
    const auto shut = around_.shut.find(path);
    const auto comment = around_.comments.find(path);
    out_ += indent + (shut == around_.shut.end() ? "" : "# ") + words;
    if (shut != around_.shut.end())
      out_ += "  # " + shut->second;
    else if (comment != around_.comments.end())
      out_ += "  # " + comment->second;
    out_ += "\n";
  }

  const options::Facts& facts_;
  const RecipeText& around_;
  std::string out_;
};

}  // namespace

options::Value what_differs(const options::Value& tree, const options::Value& base, const options::Facts& facts) {
  options::Value out;
  out.kind = options::Value::Kind::group;
  for (const auto& [name, group] : tree.fields) {
    const auto schemas = facts.find(name);
    each_option(group, "", [&, group_name = name, whole = &group](const std::string& key, const options::Value& value) {
      const auto path = group_name + "." + key;
      const auto* option = schemas == facts.end() ? nullptr : option_of(key, *whole, schemas->second);
      const auto* there = base.at(path);
      if (!there && option && !option->required) there = &option->default_value;
      if (!there || !options::same(*there, value)) out.set(path, value);
    });
  }
  return out;
}

std::string write_recipe(const options::Value& tree, const options::Facts& facts, const RecipeText& around) {
  return Writer(facts, around).write(tree);
}

void make_paths_variables(options::Value& tree) {
  for (auto& group : tree.fields)
    for (auto& [name, value] : group.value.fields) {
      const auto& words = value.scalar;
      if (!is_path(name) || words.empty() || words.find_first_of("${}") != std::string::npos) continue;
      std::string variable;
      for (const char c : name) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      value.scalar = text("${", variable, ":-", words, "}");
    }
}

}  // namespace tessera::flags
