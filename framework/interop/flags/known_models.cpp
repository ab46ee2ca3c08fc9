#include "framework/interop/flags/known_models.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "framework/options/embedded.h"
#include "framework/options/same.h"
#include "framework/options/yaml.h"

namespace tessera::flags {
namespace {

const std::string group_name = "model_config";

const options::Value* default_of(const std::string& name, const options::Facts& facts,
                                 const std::string& group_of_option = group_name) {
  const auto group = facts.find(group_of_option);
  if (group == facts.end()) return nullptr;
  for (const auto& schema : group->second)
    for (const auto& option : schema.options)
      if (option.name == name && !option.required) return &option.default_value;
  return nullptr;
}

bool is_set(const options::Value& model, const std::string& name) {
  const auto* value = model.find(name);
  return value && value->kind != options::Value::Kind::none;
}

/// Whether two models say the same of `name`; what is not said is the default.
bool agree(const options::Value& a, const options::Value& b, const std::string& name, const options::Facts& facts) {
  static const options::Value null;
  const auto* usual = default_of(name, facts);
  const auto value = [&](const options::Value& model) -> const options::Value& {
    const auto* own = model.find(name);
    return own ? *own : usual ? *usual : null;
  };
  return options::same(value(a), value(b));
}

/// The width inside the feed-forward: four times the outer one when it is not said.
std::int64_t feed_forward_width(const options::Value& model) {
  const auto number = [&model](const char* name) {
    return std::strtoll(model.find(name)->scalar.c_str(), nullptr, 10);
  };
  if (is_set(model, "ffn_hidden_size")) return number("ffn_hidden_size");
  return is_set(model, "hidden_size") ? 4 * number("hidden_size") : 0;
}

/// Heads of keys and values.
std::string key_value_heads(const options::Value& model) {
  const auto* grouped = model.find("group_query_attention");
  const bool shares = grouped && options::same(*grouped, options::Value::of("true", {}));
  const auto* heads = model.find(shares ? "num_query_groups" : "num_attention_heads");
  return heads ? heads->scalar : "1";
}

bool fits(const options::Value& model, const options::Value& known, const options::Facts& facts) {
  for (const auto* name : {"num_layers", "hidden_size", "num_attention_heads"})
    if (!is_set(model, name) || !agree(model, known, name, facts)) return false;
  for (const auto* name : {"position_embedding_type", "normalization", "hidden_act"})
    if (!agree(model, known, name, facts)) return false;
  return feed_forward_width(model) == feed_forward_width(known) && key_value_heads(model) == key_value_heads(known);
}

std::size_t differences(const options::Value& model, const options::Value& known, const options::Facts& facts) {
  return static_cast<std::size_t>(std::count_if(known.fields.begin(), known.fields.end(), [&](const auto& field) {
    return !agree(model, known, field.name, facts);
  }));
}

}  // namespace

KnownModel known_model(const options::Value& tree, const options::Facts& facts) {
  KnownModel best{""};
  std::size_t fewest = 0;
  const auto* model = tree.find(group_name);
  for (const auto& file : options::embedded_configs()) {
    const std::string name(file.name);
    if (!model || name.rfind("models/", 0) != 0 || std::count(name.begin(), name.end(), '/') != 1) continue;
    const auto known = options::parse_yaml(std::string(file.text), name);
    const auto* theirs = known.find(group_name);
    if (!theirs || !fits(*model, *theirs, facts)) continue;
    const auto count = differences(*model, *theirs, facts);
    if (best.name.empty() || count < fewest) best = {name, known}, fewest = count;
  }
  return best;
}

void answer_base(options::Value& tree, const options::Value& base, const options::Facts& facts) {
  for (const auto& [group, options] : base.fields)
    for (const auto& field : options.fields) {
      const auto path = group + "." + field.name;
      const auto* usual = default_of(field.name, facts, group);
      if (!tree.at(path) && usual) tree.set(path, *usual);
    }
}

}  // namespace tessera::flags
