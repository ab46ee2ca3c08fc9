#include "framework/multimodal/packing.h"

#include <algorithm>
#include <map>

#include "framework/base/error.h"

namespace tessera::multimodal {

std::vector<std::vector<std::size_t>> packed_rows(std::span<const std::int64_t> lengths, std::int64_t capacity) {
  std::map<std::int64_t, std::vector<std::size_t>> remaining;  // the rows of each length
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    must(lengths[i] > 0 && lengths[i] <= capacity, "a row that is packed fits");
    remaining[lengths[i]].push_back(i);
  }
  std::vector<std::vector<std::size_t>> packed;
  while (!remaining.empty()) {
    auto& row = packed.emplace_back();
    auto free = capacity;
    for (auto next = remaining.upper_bound(free); next != remaining.begin(); next = remaining.upper_bound(free)) {
      --next;
      free -= next->first;
      row.push_back(next->second.back());
      next->second.pop_back();
      if (next->second.empty()) remaining.erase(next);
    }
  }
  return packed;
}

std::vector<std::int64_t> packing_batches(std::int64_t records, const Packing& packing) {
  std::vector<std::int64_t> batches;
  batches.reserve(static_cast<std::size_t>(records));
  const auto shares = std::max<std::int64_t>(1, std::min(packing.shares, records));
  std::int64_t batch = 0;
  for (std::int64_t share = 0; share < shares; ++share) {
    const auto own = records / shares + (share < records % shares ? 1 : 0);  // the first ones have one more
    for (std::int64_t i = 0; i < own; ++i) batches.push_back(batch + i / packing.records_at_once);
    batch += (own + packing.records_at_once - 1) / packing.records_at_once;
  }
  return batches;
}

}  // namespace tessera::multimodal
