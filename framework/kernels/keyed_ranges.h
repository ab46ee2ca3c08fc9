#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera::kernels {

/// Divides the elements [begin, end) of a batch with `per_sample` elements in each sample into consecutive ranges, and
/// calls body(id, element, first, size) for each of them: the elements [first, first + size) of the batch belong to the
/// sample with the id `id`, and their indices in the unsharded sample are consecutive from `element` on. `size` is at
/// most `most`. `keyed` has the members sample_ids, first_element, gap_at and gap of DropoutMask (dropout.h), and may
/// have row, row_stride and tokens. Internal to this component.
template <class Keyed, class Body>
void for_keyed_ranges(const Keyed& keyed, std::size_t per_sample, std::size_t begin, std::size_t end, std::size_t most,
                      const Body& body) {
  const auto gap_at = static_cast<std::size_t>(keyed.gap_at);
  while (begin < end) {
    const auto sample = begin / per_sample, at = begin % per_sample;
    const auto limit = at < gap_at && gap_at < per_sample ? gap_at : per_sample;
    auto size = std::min({end - begin, limit - at, most});
    auto element = keyed.first_element + static_cast<std::int64_t>(at) + (at >= gap_at ? keyed.gap : 0);
    if constexpr (requires { keyed.row_stride; }) {
      if (keyed.row > 0) {
        const auto token = static_cast<std::int64_t>(at) / keyed.row,
                   column = static_cast<std::int64_t>(at) % keyed.row;
        size = std::min(size, static_cast<std::size_t>(keyed.row - column));
        element += token * (keyed.row_stride - keyed.row);
      }
      if (!keyed.tokens.empty()) element += keyed.tokens[sample] * keyed.row_stride;
    }
    body(static_cast<std::uint64_t>(keyed.sample_ids[sample]), static_cast<std::uint64_t>(element), begin, size);
    begin += size;
  }
}

}  // namespace tessera::kernels
