#pragma once

#include <cstddef>

namespace tessera::comm {

/// A range of an array, in bytes.
struct ByteRange {
  std::size_t first = 0, count = 0;
  std::size_t end() const { return first + count; }
};

/// The shard of `whole` that member `rank` of `size` members owns. The shards are in the order of ranks and as equal as
/// possible, with boundaries at multiples of `grain` bytes from the start of `whole`. May be empty.
ByteRange shard_of(ByteRange whole, int rank, int size, std::size_t grain);

}  // namespace tessera::comm
