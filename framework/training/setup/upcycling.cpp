#include "framework/training/setup/upcycling.h"

#include <algorithm>
#include <cctype>

#include "framework/base/error.h"

namespace tessera::training {
namespace {

const std::string experts = ".mlp.experts.local_experts.";

/// The weight of the dense network of the same layer, of a weight of an expert:
/// "decoder.layers.7.mlp.experts.local_experts.3.linear_fc1.weight" -> "decoder.layers.7.mlp.linear_fc1.weight".
std::string dense_name(const std::string& name) {
  const auto at = name.find(experts), end = name.find('.', at + experts.size());
  must(at != std::string::npos && end != std::string::npos, "an expert's weight is named after MixtureOfExperts");
  return name.substr(0, at) + ".mlp" + name.substr(end);
}

bool is_of_router(const checkpoint::TensorRange& weight) {
  return weight.role == ParameterRole::router || weight.role == ParameterRole::expert_bias;
}

}  // namespace

UpcycledWeights::UpcycledWeights(const checkpoint::WeightSource& dense, std::span<const checkpoint::TensorRange> all)
    : dense_(dense) {
  if (const auto name = expert_in(dense_); !name.empty())
    throw ConfigError(text("moe_config.moe_use_upcycling: ", dense_.folder().string(), " has experts already: '", name,
                           "'; leave moe_use_upcycling out, or give the checkpoint of a dense model"));
  for (const auto& weight : all) {
    if (weight.role != ParameterRole::expert || of_experts_.count(weight.name) > 0) continue;
    auto there = dense_name(weight.name);
    copies_[there].push_back(weight.name);
    of_experts_[weight.name] = std::move(there);
  }
}

std::vector<std::string> UpcycledWeights::names() const {
  std::vector<std::string> all;
  for (const auto& name : dense_.names()) {
    const auto copies = copies_.find(name);
    if (copies == copies_.end())
      all.push_back(name);
    else
      all.insert(all.end(), copies->second.begin(), copies->second.end());
  }
  return all;
}

const std::string& UpcycledWeights::name_there(const std::string& name) const {
  const auto found = of_experts_.find(name);
  return found == of_experts_.end() ? name : found->second;
}

void UpcycledWeights::read_box(const checkpoint::TensorRange& into) const {
  auto there = into;
  there.name = name_there(into.name);
  dense_.read_box(there);
}

std::vector<checkpoint::TensorRange> upcycled(std::span<const checkpoint::TensorRange> weights) {
  std::vector<checkpoint::TensorRange> all(weights.begin(), weights.end());
  std::erase_if(all, is_of_router);
  return all;
}

std::string expert_in(const checkpoint::WeightSource& source) {
  for (const auto& name : source.names())  // a file has names alone, no roles
    if (name.find(experts) != std::string::npos) return name;
  return {};
}

void refuse_dense(const checkpoint::WeightSource& source, std::span<const checkpoint::TensorRange> weights) {
  for (const auto& weight : weights) {
    if (weight.role != ParameterRole::expert) continue;
    const auto there = dense_name(weight.name);
    if (source.has(weight.name) || !source.has(there)) continue;
    throw ConfigError(text(source.folder().string(), ": is the checkpoint of a dense model: it has '", there,
                           "', but that layer has experts here ('", weight.name,
                           "'). Give moe_config.moe_use_upcycling: true, training_config.load_checkpoint and another "
                           "output_dir to copy the dense network into every expert, or a checkpoint with experts"));
  }
}

}  // namespace tessera::training
