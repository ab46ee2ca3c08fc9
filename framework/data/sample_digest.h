#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "framework/base/crc32c.h"
#include "framework/base/random.h"

namespace tessera::data {

/// A checksum of a set of samples that does not depend on their order: two sums, modulo 2^32, of hashes of each
/// sample's position in the run and its index in the dataset. The sum of the ranks' digests is the digest of all
/// samples.
struct SampleDigest {
  std::uint32_t low = 0, high = 0;

  /// Adds the sample at position `number` of the run, which has index `index` in its dataset.
  void add(std::int64_t number, std::int64_t index) {
    const auto n = static_cast<std::uint64_t>(number), i = static_cast<std::uint64_t>(index);
    const auto words = philox({static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32U),
                               static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32U)},
                              {0, 0});
    low += words[0];
    high += words[1];
  }
  /// Extends `chain`, the checksum of all earlier steps, by a step with these samples.
  std::uint32_t after(std::uint32_t chain) const {
    const std::array<std::uint32_t, 2> both = {low, high};
    return crc32c(std::as_bytes(std::span(both)), chain);
  }
  bool operator==(const SampleDigest& other) const { return low == other.low && high == other.high; }
};

}  // namespace tessera::data
