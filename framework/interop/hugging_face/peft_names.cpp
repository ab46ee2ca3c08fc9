#include "framework/interop/hugging_face/peft_names.h"

#include <array>
#include <utility>

namespace tessera::hugging_face {
namespace {

const std::string weight_end = ".weight", our_experts = ".local_experts.", their_experts = ".experts.";

bool ends_in(const std::string& name, const std::string& end) {
  return name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// Parts of fused layers, in the order of the tables' rows.
std::string part_name(std::size_t count, std::size_t index) {
  static const std::array<const char*, 3> attention = {"q_proj", "k_proj", "v_proj"};
  static const std::array<const char*, 2> gated = {"gate_proj", "up_proj"};
  if (count == attention.size()) return attention[index];
  if (count == gated.size()) return gated[index];
  return "";
}

/// Whether the weight is one that PEFT's adapters can be on: two-dimensional, of a linear layer or an embedding.
bool is_linear(const std::string& ours) {
  return ours.find("norm") == std::string::npos && ours.find("position_embeddings") == std::string::npos;
}

}  // namespace

PeftNames::PeftNames(WeightTable table) : table_(std::move(table)) {
  for (const auto& row : table_.rows()) {
    rows_.emplace(row.name, &row);
    if (row.expert) continue;  // PEFT has no adapters of one expert in a tensor of all
    for (std::size_t i = 0; i < row.from.size(); ++i) parameters_.emplace(spelled(row.from[i]), std::pair(&row, i));
    if (!ends_in(row.name, weight_end) || !is_linear(row.name)) continue;
    const auto layer = row.name.substr(0, row.name.size() - weight_end.size());
    for (std::size_t i = 0; i < row.from.size(); ++i) {
      if (!ends_in(row.from[i], weight_end)) continue;
      const auto name = spelled(row.from[i].substr(0, row.from[i].size() - weight_end.size()));
      by_layer_[layer].push_back(modules_.size());
      by_name_.emplace(name, modules_.size());
      modules_.push_back({name, layer, part_name(row.from.size(), i), &row, i});
    }
    const auto ours = layer.find(our_experts), theirs = modules_.back().name.find(their_experts);
    if (ours == std::string::npos || theirs == std::string::npos || !ends_in(layer, ".linear_fc1")) continue;
    const auto name = modules_.back().name.substr(0, theirs + their_experts.size() - 1);
    const auto [place, is_new] = experts_by_name_.emplace(name, experts_.size());
    if (is_new) experts_.push_back({name, layer.substr(0, ours + our_experts.size())});
    ++experts_[place->second].count;
  }
}

std::string PeftNames::spelled(std::string name) const {
  for (const auto& [file, module] : table_.renamed_modules())
    if (const auto at = name.find("." + file + "."); at != std::string::npos) name.replace(at + 1, file.size(), module);
  return table_.as_module(name);
}

const PeftModule* PeftNames::module(const std::string& name) const {
  for (const auto& full : table_.names_in_table(spelled(name)))
    if (const auto found = by_name_.find(full); found != by_name_.end()) return &modules_[found->second];
  return nullptr;
}

const PeftExperts* PeftNames::experts(const std::string& name) const {
  const auto found = experts_by_name_.find(name);
  return found == experts_by_name_.end() ? nullptr : &experts_[found->second];
}

std::vector<const PeftModule*> PeftNames::of_ours(const std::string& ours) const {
  std::vector<const PeftModule*> found;
  if (const auto layer = by_layer_.find(ours); layer != by_layer_.end()) {
    for (const auto at : layer->second) found.push_back(&modules_[at]);
    return found;
  }
  const auto dot = ours.rfind('.');
  const auto layer = by_layer_.find(ours.substr(0, dot));
  if (dot == std::string::npos || layer == by_layer_.end()) return found;
  for (const auto at : layer->second)
    if (modules_[at].part == ours.substr(dot + 1)) found.push_back(&modules_[at]);
  return found;
}

const WeightRow* PeftNames::parameter(const std::string& name, std::size_t& index) const {
  for (const auto& full : table_.names_in_table(spelled(name)))
    if (const auto found = parameters_.find(full); found != parameters_.end()) {
      index = found->second.second;
      return found->second.first;
    }
  return nullptr;
}

const WeightRow* PeftNames::row(const std::string& name) const {
  const auto found = rows_.find(name);
  return found == rows_.end() ? nullptr : found->second;
}

}  // namespace tessera::hugging_face
