#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/communicator.h"

namespace tessera::training {

/// Memory for messages of deliver_boxes(), in bytes each for what a rank sends and what it receives. More only for
/// groups of more than 1,024 ranks: 32 KiB for each rank.
inline constexpr std::size_t delivery_bytes = std::size_t{32} << 20;

/// Fills the fp32 memory of `wanted`, any boxes of any tensors, from the ranks that own the elements: over all ranks,
/// each element is in `owned` of at most one. Returns for each box how many of its elements some rank owns; the others
/// are unchanged. Collective. `bytes` is the memory for messages.
std::vector<std::int64_t> deliver_boxes(const comm::Communicator& world, std::span<const checkpoint::TensorRange> owned,
                                        std::span<const checkpoint::TensorRange> wanted,
                                        std::size_t bytes = delivery_bytes);

}  // namespace tessera::training
