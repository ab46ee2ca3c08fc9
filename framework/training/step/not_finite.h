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
  std::int64_t order = 0;  ///< position in the computation: of the values of two ranks the smaller was computed first
  std::string what = {};   ///< description; empty: every value is finite
};

/// Returns the description of the value of all ranks that was computed first, with its rank if there are several ranks;
/// empty if all values are finite. Collective.
std::string earliest(const comm::Communicator& world, const NotFinite& own);

/// Checks the values of the forward passes of a step (as a StepTap) and keeps the first that is not finite.
class FirstValue {
 public:
  /// `chunks`: number of chunks of the whole model. `position`: maps a chunk of this rank to its index among them, in
  /// the order of the forward pass. `threads` must outlive this object.
  FirstValue(kernels::Threads& threads, std::int64_t chunks, std::function<std::int64_t(std::int64_t chunk)> position)
      : threads_(threads), chunks_(chunks), position_(std::move(position)) {}
  void see(std::int64_t micro_batch, std::int64_t chunk, std::string_view name, const Tensor& value);
  const NotFinite& found() const { return found_; }

 private:
  kernels::Threads& threads_;
  std::int64_t chunks_;
  std::function<std::int64_t(std::int64_t)> position_;
  std::int64_t pass_ = -1;   ///< number of the pass: micro-batch and chunk
  std::int64_t values_ = 0;  ///< values seen in this pass so far
  NotFinite found_;
};

}  // namespace tessera::training
