#pragma once

#include <span>
#include <vector>

#include "framework/nn/parameter.h"

namespace tessera::nn {

/// The range of one parameter in a flat array of elements.
struct ParameterRange {
  /// Alignment of ranges, in elements; the block size of the optimizer (256 bytes of fp32, whole cache lines).
  static constexpr std::int64_t alignment = 64;

  Parameter* parameter;
  std::int64_t first, count;  ///< in elements; `count` excludes the padding to the next multiple of `alignment`
  /// Number of elements including the padding.
  std::int64_t padded() const { return (count + alignment - 1) / alignment * alignment; }
};

/// The layout of a model's parameters in one flat array: each parameter is a range that begins on a multiple of 64
/// elements. The layout depends on the list of parameters only. The memory is the caller's: the same layout serves the
/// weights, the main gradients and every state tensor of the optimizer.
class FlatParameters {
 public:
  /// The parameters are not owned and must outlive this. Numbers their leaves (Leaf::number) in this order.
  explicit FlatParameters(std::vector<Parameter*> parameters);

  std::int64_t elements() const { return elements_; }                    ///< length of the flat array, with padding
  const std::vector<ParameterRange>& ranges() const { return ranges_; }  ///< in the order of the parameters

  bool has_16_bit() const;  ///< whether the model reads any parameter in a 16-bit type

  /// The elements of `range` in a flat array, as a tensor of the parameter's shape.
  static Tensor view(const ParameterRange& range, std::span<float> flat);
  /// Writes the initial value of one parameter to `values`, which has parameter.elements() floats. The initial value of
  /// a parameter of a 16-bit type is rounded to that type, as in Megatron-LM. The bits do not depend on the parallel
  /// layout or the number of threads.
  static void initialise(kernels::Threads& threads, std::uint64_t seed, const Parameter& parameter,
                         std::span<float> values);

 private:
  std::vector<ParameterRange> ranges_;
  std::int64_t elements_ = 0;
};

}  // namespace tessera::nn
