#include "framework/kernels/scratch.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <new>
#include <numeric>

#include "framework/base/error.h"

namespace tessera::kernels {
namespace {

// Also the alignment that the widest vector stores and gemm_tiles.h need.
constexpr std::align_val_t cache_line{64};

struct Free {
  void operator()(float* memory) const { ::operator delete[](memory, cache_line); }
};

/// An uninitialized, aligned buffer that only grows. Its old contents are lost when it grows.
class GrowOnly {
 public:
  std::span<float> at_least(std::size_t floats) {
    if (floats > size_) {
      // Free before allocating, so that both are never held at once; size_ stays 0 if the allocation throws.
      size_ = 0;
      memory_.reset();
      memory_.reset(static_cast<float*>(::operator new[](floats * sizeof(float), cache_line)));
      size_ = floats;
    }
    return {memory_.get(), floats};
  }

 private:
  std::unique_ptr<float, Free> memory_;
  std::size_t size_ = 0;
};

struct Buffers {
  std::array<GrowOnly, Scratch::most_buffers> all;
  std::size_t leased = 0;                                              // the first `leased` buffers are in use
  std::array<std::size_t, Scratch::most_buffers> most_for_loops = {};  // largest lease, in floats
  int loops = 0;  // number of nested loops whose tiles this thread runs
};

thread_local Buffers buffers;

}  // namespace

Scratch::Scratch(std::size_t floats) {
  if (floats == 0) return;
  must(buffers.leased < most_buffers, "a thread holds no more than most_buffers scratch buffers");
  floats_ = buffers.all[buffers.leased].at_least(floats);
  if (auto& most = buffers.most_for_loops[buffers.leased]; buffers.loops == 0 && floats > most) most = floats;
  ++buffers.leased;
#ifndef NDEBUG
  // What is read before it is written shows: a NaN times a weight of 0 is a NaN.
  std::ranges::fill(floats_, std::numeric_limits<float>::quiet_NaN());
#endif
}

Scratch::~Scratch() {
  if (!floats_.empty()) --buffers.leased;
}

TilesOfLoop::TilesOfLoop() { ++buffers.loops; }
TilesOfLoop::~TilesOfLoop() { --buffers.loops; }

std::size_t workspace_bytes() {
  const auto& all = buffers.most_for_loops;
  return std::accumulate(all.begin(), all.end(), std::size_t{0}) * sizeof(float);
}
void forget_workspace() { buffers.most_for_loops = {}; }

void prepare_scratch() {
  for (std::size_t i = 0; i < Scratch::ready_buffers; ++i) buffers.all[i].at_least(Scratch::ready_floats);
}

}  // namespace tessera::kernels
