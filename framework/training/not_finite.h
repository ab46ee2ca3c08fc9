#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "framework/comm/communicator.h"
#include "framework/kernels/threads.h"
#include "framework/tensor/tensor.h"

namespace tessera::training {

/// A value of this rank that is not finite.
struct NotFinite {
  std::int64_t order = 0;  ///< of two ranks' values that with the smaller number was computed first
  std::string what = {};   ///< empty: every value is finite
};

/// The description of the first of all ranks' values, with its rank if there are several; empty if there is none. All
/// ranks call it.
std::string earliest(const comm::Communicator& world, const NotFinite& own);

/// Sees the values of the forward passes of a step, as StepTap, and keeps the first that is not finite.
class FirstValue {
 public:
  /// `position` of a chunk of this rank among the `chunks` of the whole model, in the order of the forward pass.
  FirstValue(kernels::Threads& threads, std::int64_t chunks, std::function<std::int64_t(std::int64_t chunk)> position)
      : threads_(threads), chunks_(chunks), position_(std::move(position)) {}
  void see(std::int64_t micro_batch, std::int64_t chunk, std::string_view name, const Tensor& value);
  const NotFinite& found() const { return found_; }

 private:
  kernels::Threads& threads_;
  std::int64_t chunks_;
  std::function<std::int64_t(std::int64_t)> position_;
  std::int64_t pass_ = -1;   ///< of a chunk by a micro-batch
  std::int64_t values_ = 0;  ///< of this pass so far
  NotFinite found_;
};

}  // namespace tessera::training
