#include "framework/interop/megatron/megatron_dist_names.h"

#include "framework/interop/megatron/megatron_files.h"

namespace tessera::megatron {
namespace {

const std::string dist_layers = "decoder.layers.";

std::int64_t count_in(const Json& arguments, const char* name, std::int64_t otherwise) {
  const auto* value = arguments.find(name);
  return value != nullptr && value->is_number() ? value->get<std::int64_t>() : otherwise;
}

/// A list of layers with experts, or every n-th layer: then Megatron-LM takes the layers for different, even if the
/// list says the same of all.
bool has_numbered_layers(const Json& arguments) {
  const auto* experts = arguments.find("num_experts");
  if (experts == nullptr || !experts->is_number()) return false;
  const auto* frequency = arguments.find("moe_layer_freq");
  return frequency != nullptr && (frequency->is_array() || count_in(arguments, "moe_layer_freq", 1) > 1);
}

/// `name` without the number behind `mark`, the dot after it included.
std::string without_number(const std::string& name, const std::string& mark) {
  const auto begin = name.find(mark) + mark.size();
  return name.substr(0, begin) + name.substr(name.find('.', begin) + 1);
}

void replace_in(std::string& name, const std::string& part, const std::string& by) {
  if (const auto at = name.find(part); at != std::string::npos) name.replace(at, part.size(), by);
}

std::string dotted(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (const auto number : numbers) out += (out.empty() ? "" : ".") + std::to_string(number);
  return out;
}

}  // namespace

DistKeys::DistKeys(const Json& arguments, const options::Value& table)
    : table_(&table),
      layers_(count_in(arguments, "num_layers", 0)),
      experts_(count_in(arguments, "num_experts", 0)),
      numbered_(has_numbered_layers(arguments)),
      latent_(arguments.value("multi_latent_attention", false)),
      gated_(arguments.value("swiglu", false)) {}

DistKey DistKeys::of(const std::string& name) const {
  DistKey out{name, {}, {}};
  if (!latent_)
    for (const auto& [ours, theirs] : table_->find("distributed")->fields) replace_in(out.key, ours, theirs.scalar);
  if (const auto layer = megatron_layer(name); !numbered_ && name.rfind(dist_layers, 0) == 0) {
    out.key = without_number(out.key, dist_layers);
    out.axes.push_back(layers_);
    out.index.push_back(layer);
  }
  if (const auto expert = megatron_expert(name); expert >= 0) {
    out.key = without_number(out.key, ".local_experts.");
    replace_in(out.key, ".local_experts.", ".experts.");
    out.axes.push_back(experts_);
    out.index.push_back(expert);
  }
  return out;
}

std::string DistKeys::extra_state(const std::string& name) const {
  const std::string end = ".weight";
  if (megatron_layer(name) < 0 || name.size() < end.size() || name.substr(name.size() - end.size()) != end) return "";
  const auto module = name.substr(0, name.size() - end.size());
  const auto own = module.substr(module.rfind('.') + 1);
  if (own.rfind("linear_", 0) != 0 && own != "eh_proj") return "";
  const auto key = of(name);
  const bool single = key.axes.empty();
  return key.key.substr(0, key.key.size() - end.size()) + "._extra_state/shard_" +
         (single ? "0_1" : dotted(key.index) + "_" + dotted(key.axes));
}

bool DistKeys::is_gated(const std::string& name) const {
  return gated_ && name.find(".linear_fc1.") != std::string::npos;
}

}  // namespace tessera::megatron
