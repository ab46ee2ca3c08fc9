#include "framework/interop/megatron/megatron_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <utility>

namespace tessera::megatron {
namespace {

const std::string layers_begin = "decoder.layers.", predictions_begin = "mtp.layers.";
const std::string experts_begin = ".mlp.experts.", expert_begin = ".local_experts.";
constexpr std::int64_t run = 64;  // every weight begins at a multiple of this in its bucket

/// Place of its part of the model, layer, place in the layer, expert, bias after weight.
using Place = std::tuple<std::size_t, std::int64_t, std::size_t, std::int64_t, bool>;

Place place_of(const std::string& name, const options::Value& table) {
  const auto& order = table.find("order")->items;
  const auto layer = megatron_layer(name);
  std::size_t part = order.size(), inside = order.size();
  for (std::size_t i = order.size(); i-- > 0;) {
    if (name.rfind(order[i].scalar, 0) == 0) part = i;
    if (layer >= 0 && order[i].scalar.front() == '.' && name.find(order[i].scalar) != std::string::npos) inside = i;
  }
  const std::string bias = ".bias";
  const bool is_bias = name.size() >= bias.size() && name.compare(name.size() - bias.size(), bias.size(), bias) == 0;
  return {part, layer, inside, megatron_expert(name), is_bias};
}

std::int64_t up_to_run(std::int64_t count) { return (count + run - 1) / run * run; }

}  // namespace

std::string megatron_rank_folder(const checkpoint::CheckpointLayout& layout, std::int64_t rank, std::int64_t stage) {
  const auto number = [](const char* format, std::int64_t value) {
    std::array<char, 32> words{};
    std::snprintf(words.data(), words.size(), format, static_cast<long long>(value));
    return std::string(words.data());
  };
  auto name = number("mp_rank_%02lld", layout.tensor_rank(rank));
  if (layout.stages() > 1) name += number("_%03lld", stage);
  if (layout.expert > 1) name += number("_%03lld", layout.expert_rank(rank));
  return name;
}

std::int64_t megatron_layer(const std::string& name) {
  if (name.rfind(predictions_begin, 0) != 0) return checkpoint::layer_of(name);
  return std::strtoll(name.c_str() + predictions_begin.size(), nullptr, 10);
}

std::string megatron_shifted(const std::string& name, std::int64_t by) {
  const auto layer = checkpoint::layer_of(name);
  if (layer < 0) return name;
  const auto end = std::min(name.find('.', layers_begin.size()), name.size());
  return layers_begin + std::to_string(layer + by) + name.substr(end);
}

bool megatron_is_of_expert(const std::string& name) { return name.find(experts_begin) != std::string::npos; }

std::int64_t megatron_expert(const std::string& name) {
  const auto at = name.find(expert_begin);
  return at == std::string::npos ? -1 : std::strtoll(name.c_str() + at + expert_begin.size(), nullptr, 10);
}

std::string megatron_shifted_expert(const std::string& name, std::int64_t by) {
  const auto expert = megatron_expert(name);
  if (expert < 0 || by == 0) return name;
  const auto number = name.find(expert_begin) + expert_begin.size();
  return name.substr(0, number) + std::to_string(expert + by) +
         name.substr(std::min(name.find('.', number), name.size()));
}

std::vector<std::size_t> megatron_order(const std::vector<std::string>& names, const options::Value& table) {
  std::vector<Place> places;
  for (const auto& name : names) places.push_back(place_of(name, table));
  std::vector<std::size_t> order(names.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return places[a] < places[b]; });
  return order;
}

std::vector<std::int64_t> megatron_flat_places(const std::vector<MegatronFlat>& weights, std::int64_t bucket,
                                               std::vector<std::int64_t>* begins) {
  std::vector<std::int64_t> places(weights.size() + 1), bases = {0};
  std::int64_t used = 0;  // what is in the last bucket; its padding is not in the file
  const auto next_bucket = [&](std::int64_t end) {
    if (end > bases.back()) bases.push_back(end);
    used = 0;
  };
  for (auto i = weights.size(); i-- > 0;) {
    const auto& weight = weights[i];
    if (weight.bucket_of_its_own) next_bucket(bases.back() + up_to_run(used));
    const auto start = up_to_run(used);
    places[i] = bases.back() + start;
    used = start + weight.elements;
    if (weight.bucket_of_its_own || (bucket > 0 && used >= bucket)) next_bucket(bases.back() + used);
  }
  places.back() = bases.back() + used;
  if (begins != nullptr) *begins = std::move(bases);
  return places;
}

}  // namespace tessera::megatron
