#include "framework/interop/hugging_face/peft_export.h"

#include <algorithm>
#include <set>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/new_folder.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/hugging_face/peft_rules.h"
#include "framework/interop/hugging_face/peft_tensors.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;
using options::Value;

Value list_of_names(const std::set<std::string>& names) {
  Value list;
  list.kind = Value::Kind::list;
  for (const auto& name : names) list.items.push_back(Value::of(name, {}));
  return list;
}

std::string escaped(const std::string& name) {
  std::string pattern;
  for (const char c : name) pattern += c == '.' ? std::string("\\.") : std::string(1, c);
  return pattern;
}

void put_option(Value& group, const std::string& option, Value value) {
  std::erase_if(group.fields, [&](const auto& field) { return field.name == option; });
  if (value.kind != Value::Kind::none) group.fields.push_back({option, std::move(value)});
}

/// The options in Transformers' words for the modules that have adapters.
class PeftTargets {
 public:
  PeftTargets(const PeftNames& names, const PeftTensors& tensors, const PeftExport& how)
      : names_(names), out_(how.lora_config) {
    std::set<std::string> parameters;
    for (const auto& [name, module] : tensors.modules()) {
      if (module.parameter)
        parameters.insert(name);
      else
        adapted_.insert(name);
    }
    if (!named_exactly()) name_all();
    if (!saved_exactly(tensors)) put_option(out_, "modules_to_save", list_of_names(tensors.saved()));
    if (!parameters.empty()) put_option(out_, "target_parameters", shortened(parameters));
    set_numbers(tensors, "lora_rank", "rank_pattern", 8, [](const auto& module) { return module.rank; });
    if (how.alpha)
      set_numbers(tensors, "lora_alpha", "alpha_pattern", 8,
                  [&](const auto& module) { return how.alpha(module.ours); });
  }
  Value take() { return std::move(out_); }

 private:
  bool named_exactly() const {
    const auto* targets = out_.find("target_modules");
    if (targets == nullptr || targets->kind == Value::Kind::none) return adapted_.empty();
    const auto* layers = out_.find("layers_to_transform");
    const bool has_layers = layers != nullptr && layers->kind != Value::Kind::none;
    if (has_layers && targets->kind != Value::Kind::list) return false;  // PEFT refuses them beside a pattern
    return std::all_of(names_.modules().begin(), names_.modules().end(), [&](const auto& module) {
      const bool named = peft_names_module(targets, module.name) &&
                         !peft_names_module(out_.find("exclude_modules"), module.name) &&
                         peft_in_layers(layers, module.name);
      return named == adapted_.contains(module.name);
    });
  }
  bool saved_exactly(const PeftTensors& tensors) const {
    const auto* given = out_.find("modules_to_save");
    return std::all_of(tensors.saved().begin(), tensors.saved().end(),
                       [&](const auto& module) { return peft_names_module(given, module); });
  }
  void name_all() {
    for (const char* option : {"exclude_modules", "layers_to_transform"}) put_option(out_, option, {});
    put_option(out_, "target_modules", list_of_names(adapted_));
  }
  /// The given names of parameters if each is one; else the ends of all names, once.
  Value shortened(const std::set<std::string>& parameters) const {
    const auto* given = out_.find("target_parameters");
    if (given != nullptr && std::all_of(parameters.begin(), parameters.end(),
                                        [&](const auto& name) { return peft_names_module(given, name); }))
      return *given;
    std::set<std::string> ends;
    for (const auto& name : parameters) ends.insert(name.substr(name.find("mlp.")));
    return list_of_names(ends);
  }
  template <class Number>
  void set_numbers(const PeftTensors& tensors, const char* option, const char* patterns, std::int64_t otherwise,
                   Number number) {
    const auto common = peft_integer(out_, option, otherwise);
    const bool as_given = std::all_of(tensors.modules().begin(), tensors.modules().end(), [&](const auto& one) {
      return peft_number(out_.find(patterns), one.first, common) == number(one.second);
    });
    if (as_given) return;
    Value own;
    own.kind = Value::Kind::group;
    for (const auto& [name, module] : tensors.modules())
      if (number(module) != common)
        own.fields.push_back({escaped(name), Value::of(std::to_string(number(module)), {})});
    put_option(out_, patterns, std::move(own));
  }

  const PeftNames& names_;
  Value out_;
  std::set<std::string> adapted_;
};

}  // namespace

void write_peft(const fs::path& folder, const PeftNames& names, const checkpoint::WeightSource& trained,
                const PeftExport& how, const options::Mappings& mappings) {
  const auto* bias = how.lora_config.find("bias");
  const PeftTensors tensors(names, trained, bias != nullptr && bias->scalar == "lora_only");
  auto labels = how.labels;
  labels.fan_in_fan_out = tensors.transposed();
  labels.ensure_weight_tying = tensors.tied();
  const auto config = write_peft_config(PeftTargets(names, tensors, how).take(), labels, mappings);
  make_new_folder(folder, [&](const fs::path& unfinished) {
    checkpoint::write_safetensors(unfinished / peft_weights_file, tensors.tensors(), {{"format", "pt"}});
    write_file_atomic(unfinished / peft_config_file, config);
  });
}

}  // namespace tessera::hugging_face
