#include "framework/comm/byte_range.h"

#include <algorithm>

namespace tessera::comm {

ByteRange shard_of(ByteRange whole, int rank, int size, std::size_t grain) {
  const std::size_t grains = (whole.count + grain - 1) / grain;
  const auto begin = [&](int r) {
    return std::min(whole.count, grains * static_cast<std::size_t>(r) / static_cast<std::size_t>(size) * grain);
  };
  return {whole.first + begin(rank), begin(rank + 1) - begin(rank)};
}

}  // namespace tessera::comm
