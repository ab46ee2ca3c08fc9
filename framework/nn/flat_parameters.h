#pragma once

#include <span>
#include <vector>

#include "framework/nn/parameter.h"

namespace tessera {

/// The parameters of a model as runs of one flat array, each beginning on a multiple of 64 elements. The layout is a
/// function of the list alone; the memory is the caller's: the same layout serves weights, main gradients and every
/// slot of the optimizer.
class FlatParameters {
 public:
  static constexpr std::int64_t run_elements = 64;

  struct Run {
    Parameter* parameter;
    std::int64_t first, count;  ///< elements; `count` without the padding to the next multiple of 64
    std::int64_t padded() const { return (count + run_elements - 1) / run_elements * run_elements; }
  };

  explicit FlatParameters(std::vector<Parameter*> parameters);

  std::int64_t elements() const { return elements_; }  ///< with padding
  const std::vector<Run>& runs() const { return runs_; }

  bool has_16_bit() const;  ///< some parameter is of a 16-bit type

  /// Let every parameter look at its run of `values` and `gradients` (empty: nothing is trained). Both have elements()
  /// floats. Parameters of a 16-bit type look into `rounded` instead, of two bytes an element; empty when there are
  /// none.
  void bind(std::span<float> values, std::span<float> gradients, std::span<std::byte> rounded = {}) const;
  /// Bring what parameters of a 16-bit type look at up to date with the elements [first, first + count) of `values`,
  /// which lie in one run. In the calling thread.
  void round(const Run& run, std::span<const float> values, std::int64_t first, std::int64_t count) const;
  /// The same of all.
  void round_all(std::span<const float> values) const;
  /// The part of a flat array that belongs to `run`, in the parameter's shape.
  static Tensor view(const Run& run, std::span<float> flat);
  /// Give every parameter its initial value, in `values`. One of a 16-bit type begins as a value of that type, as in
  /// Megatron-LM.
  void initialise(Threads& threads, std::uint64_t seed, std::span<float> values) const;
  /// The same of one, in its elements() values.
  static void initialise(Threads& threads, std::uint64_t seed, const Parameter& parameter, std::span<float> values);

 private:
  std::vector<Run> runs_;
  std::int64_t elements_ = 0;
};

}  // namespace tessera
