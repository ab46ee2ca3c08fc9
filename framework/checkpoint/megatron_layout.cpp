#include "framework/checkpoint/megatron_layout.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "framework/base/error.h"

namespace tessera {
namespace {

const std::string layers_begin = "decoder.layers.";
constexpr std::int64_t run = 64;  // every weight begins at a multiple of this in its bucket

std::vector<std::string> words_of(const Value* list) {
  std::vector<std::string> all;
  if (list != nullptr)
    for (const auto& item : list->items) all.push_back(item.scalar);
  return all;
}

bool ends_with_one(const std::string& name, const std::vector<std::string>& ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const auto& end) {
    return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  });
}

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

std::int64_t megatron_layer_of(const std::string& name) {
  return name.rfind(layers_begin, 0) == 0 ? std::strtoll(name.c_str() + layers_begin.size(), nullptr, 10) : -1;
}

std::string megatron_shifted(const std::string& name, std::int64_t by) {
  const auto layer = megatron_layer_of(name);
  if (layer < 0) return name;
  const auto end = std::min(name.find('.', layers_begin.size()), name.size());
  return layers_begin + std::to_string(layer + by) + name.substr(end);
}

MegatronCut::MegatronCut(const Value& table, bool gated) : gated_(gated) {
  if (const auto* cut = table.find("cut")) {
    rows_ = words_of(cut->find("rows"));
    columns_ = words_of(cut->find("columns"));
  }
}

int MegatronCut::dim_of(const std::string& name) const {
  return ends_with_one(name, rows_) ? 0 : ends_with_one(name, columns_) ? 1 : -1;
}

std::vector<Box> MegatronCut::boxes(const std::string& name, const Shape& whole, std::int64_t ranks,
                                    std::int64_t rank) const {
  const auto all = Box::of(std::vector<std::int64_t>(whole.rank(), 0), whole);
  const auto dim = dim_of(name);
  if (ranks == 1 || dim < 0) return {all};
  const auto at = static_cast<std::size_t>(dim);
  const std::int64_t blocks = gated_ && name.find(".linear_fc1.") != std::string::npos ? 2 : 1;
  if (whole.rank() <= at || whole[at] % (ranks * blocks) != 0)
    throw ConfigError(text("'", name, "' of ", whole, " cannot be cut over ", ranks, " tensor parallel ranks"));
  const auto share = whole[at] / ranks / blocks;
  std::vector<Box> out;
  for (std::int64_t block = 0; block < blocks; ++block) {
    auto box = all;
    box.begin[at] = block * (whole[at] / blocks) + rank * share;
    box.extent[at] = share;
    out.push_back(std::move(box));
  }
  return out;
}

Shape MegatronCut::part(const std::string& name, const Shape& whole, std::int64_t ranks) const {
  const auto dim = dim_of(name);
  if (ranks == 1 || dim < 0) return whole;
  std::vector<std::int64_t> dims(whole.dims().begin(), whole.dims().end());
  dims.at(static_cast<std::size_t>(dim)) /= ranks;
  return Shape(dims);
}

Shape MegatronCut::whole(const std::string& name, const Shape& part, std::int64_t ranks) const {
  const auto dim = dim_of(name);
  std::vector<std::int64_t> dims(part.dims().begin(), part.dims().end());
  if (dim >= 0 && static_cast<std::size_t>(dim) < dims.size()) dims[static_cast<std::size_t>(dim)] *= ranks;
  return Shape(dims);
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

}  // namespace tessera
