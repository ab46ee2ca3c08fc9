#include "framework/checkpoint/layout.h"

#include <algorithm>
#include <cstdlib>

#include "framework/base/error.h"

namespace tessera {
namespace {

const std::string layers_begin = "decoder.layers.";

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

}  // namespace

std::int64_t layer_of(const std::string& name) {
  return name.rfind(layers_begin, 0) == 0 ? std::strtoll(name.c_str() + layers_begin.size(), nullptr, 10) : -1;
}

CheckpointCut::CheckpointCut(const Value& table, bool gated) : gated_(gated) {
  if (const auto* cut = table.find("cut")) {
    rows_ = words_of(cut->find("rows"));
    columns_ = words_of(cut->find("columns"));
  }
}

int CheckpointCut::dim_of(const std::string& name) const {
  return ends_with_one(name, rows_) ? 0 : ends_with_one(name, columns_) ? 1 : -1;
}

std::vector<Box> CheckpointCut::boxes(const std::string& name, const Shape& whole, std::int64_t ranks,
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

Shape CheckpointCut::part(const std::string& name, const Shape& whole, std::int64_t ranks) const {
  const auto dim = dim_of(name);
  if (ranks == 1 || dim < 0) return whole;
  std::vector<std::int64_t> dims(whole.dims().begin(), whole.dims().end());
  dims.at(static_cast<std::size_t>(dim)) /= ranks;
  return Shape(dims);
}

Shape CheckpointCut::whole(const std::string& name, const Shape& part, std::int64_t ranks) const {
  const auto dim = dim_of(name);
  std::vector<std::int64_t> dims(part.dims().begin(), part.dims().end());
  if (dim >= 0 && static_cast<std::size_t>(dim) < dims.size()) dims[static_cast<std::size_t>(dim)] *= ranks;
  return Shape(dims);
}

}  // namespace tessera
