#include "framework/checkpoint/coverage_sum.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/random.h"
#include "framework/checkpoint/manifest.h"

namespace tessera::checkpoint {
namespace {

/// A hash of a tensor's name, type and shape; odd, so that a product with it loses nothing.
std::uint64_t hash_of(const TensorRange& range) {
  return name_id(text(range.name, ' ', name_of(range.tensor.dtype()), ' ', range.global_shape)) | 1;
}

/// A random 64-bit number for the boundary `index` of dimension `dim` of a tensor.
std::uint64_t boundary(std::uint64_t tensor, std::size_t dim, std::int64_t index) {
  const auto at = static_cast<std::uint64_t>(index);
  const auto words =
      philox({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), static_cast<std::uint32_t>(dim), 0},
             {static_cast<std::uint32_t>(tensor), static_cast<std::uint32_t>(tensor >> 32)});
  return static_cast<std::uint64_t>(words[0]) << 32 | words[1];
}

/// The weight of all elements of a box, modulo 2^64. An element weighs the product, over the dimensions, of the
/// difference of the boundaries on its two sides, so the weight of a box is a product of differences too, and boxes
/// that divide a tensor weigh as much as the tensor, however they divide it.
std::uint64_t weight_of_box(std::uint64_t tensor, const std::vector<std::int64_t>& offsets, const Shape& extents) {
  std::uint64_t weight = tensor;
  for (std::size_t dim = 0; dim < offsets.size(); ++dim)
    weight *= boundary(tensor, dim, offsets[dim] + extents[dim]) - boundary(tensor, dim, offsets[dim]);
  return weight;
}

bool has_first_element(const TensorRange& range) {
  return range.tensor.elements() > 0 &&
         std::all_of(range.offsets.begin(), range.offsets.end(), [](auto offset) { return offset == 0; });
}

void append(std::string& packed, std::uint64_t number) {
  packed.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::uint64_t number_at(const std::string& packed, std::size_t at) {
  std::uint64_t number = 0;
  std::memcpy(&number, packed.data() + at, sizeof number);
  return number;
}

}  // namespace

std::string coverage_sum(std::span<const TensorRange> ranges) {
  std::uint64_t sum = 0;
  std::string first_elements;
  for (const auto& range : ranges) {
    const auto tensor = hash_of(range);
    sum += weight_of_box(tensor, range.offsets, range.tensor.shape());
    if (!has_first_element(range)) continue;
    // The rank with the first element subtracts the whole tensor: then the sum over all ranks is 0.
    sum -= weight_of_box(tensor, std::vector<std::int64_t>(range.offsets.size(), 0), range.global_shape);
    append(first_elements, tensor);
  }
  std::string packed;
  append(packed, sum);
  return packed + first_elements;
}

bool cover_exactly(std::span<const std::string> sums) {
  std::uint64_t total = 0;
  std::vector<std::uint64_t> first_elements;
  for (const auto& packed : sums) {
    total += number_at(packed, 0);
    for (auto at = sizeof total; at < packed.size(); at += sizeof total)
      first_elements.push_back(number_at(packed, at));
  }
  // A tensor that is covered twice has the sum of one that is covered once, but two first elements.
  std::sort(first_elements.begin(), first_elements.end());
  return total == 0 && std::adjacent_find(first_elements.begin(), first_elements.end()) == first_elements.end();
}

std::string list_of_ranges(std::span<const TensorRange> ranges) {
  Manifest list;
  for (const auto& range : ranges)
    list.tensors.try_emplace(range.name, Manifest::TensorEntry{range.tensor.dtype(), range.global_shape, {}})
        .first->second.ranges.push_back({.file = "",
                                         .byte_offset = 0,
                                         .bytes = 0,
                                         .offsets = range.offsets,
                                         .extents = range.tensor.shape(),
                                         .crc = 0});
  return write_manifest(list);
}

void must_cover(std::span<const std::string> lists) {
  Manifest all;
  for (const auto& list : lists) all.merge(read_manifest(list, "checkpoint: the ranges of a rank"));
  must_cover(all);
}

}  // namespace tessera::checkpoint
