#include "framework/interop/megatron/megatron_files.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "framework/checkpoint/layout.h"

namespace tessera::megatron {
namespace {

const std::string layers_begin = "decoder.layers.", predictions_begin = "mtp.layers.";
constexpr std::int64_t run = 64;  // every weight begins at a multiple of this in its bucket

std::int64_t up_to_run(std::int64_t count) { return (count + run - 1) / run * run; }

}  // namespace

std::string megatron_rank_folder(std::int64_t tensor_rank, std::int64_t stage, std::int64_t stages) {
  std::array<char, 64> words{};
  if (stages > 1)
    std::snprintf(words.data(), words.size(), "mp_rank_%02lld_%03lld", static_cast<long long>(tensor_rank),
                  static_cast<long long>(stage));
  else
    std::snprintf(words.data(), words.size(), "mp_rank_%02lld", static_cast<long long>(tensor_rank));
  return words.data();
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

std::vector<std::int64_t> megatron_flat_places(const std::vector<MegatronFlat>& weights, std::int64_t bucket) {
  std::vector<std::int64_t> places(weights.size() + 1);
  std::int64_t base = 0, used = 0;  // where the bucket begins, and what is in it; its padding is not in the file
  for (auto i = weights.size(); i-- > 0;) {
    const auto& weight = weights[i];
    auto start = up_to_run(used);
    if (weight.bucket_of_its_own) base += start, start = 0;
    places[i] = base + start;
    used = start + weight.elements;
    if (weight.bucket_of_its_own || (bucket > 0 && used >= bucket)) base += used, used = 0;
  }
  places.back() = base + used;
  return places;
}

}  // namespace tessera::megatron
