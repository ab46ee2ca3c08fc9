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
  std::int64_t first, count;  ///< in elements; `count` without the padding to the next multiple of `alignment`
  /// With that padding.
  std::int64_t padded() const { return (count + alignment - 1) / alignment * alignment; }
};

/// The layout of a model's parameters in one flat array: each parameter is a range that begins on a multiple of 64
/// elements. The layout depends on the list of parameters only. The memory is the caller's: the same layout serves the
/// weights, the main gradients and every state tensor of the optimizer.
class FlatParameters {
 public:
  /// The parameters are not owned and must outlive this. Numbers their leaves (Leaf::number) in this order.
  explicit FlatParameters(std::vector<Parameter*> parameters);

  std::int64_t elements() const { return elements_; }                    ///< of the flat array, with padding
  const std::vector<ParameterRange>& ranges() const { return ranges_; }  ///< in the order of the parameters

  bool has_16_bit() const;  ///< whether the model reads any parameter in a 16-bit type

  /// Makes every parameter a view of its range.
  ///
  ///   values      elements() floats: the fp32 weights
  ///   gradients   elements() floats: the main gradients; empty: all parameters are frozen
  ///   rounded     2 * elements() bytes: the values of parameters of a 16-bit type; empty if there are none
  ///
  /// The spans must outlive the use of the parameters. Throws ShapeError if one is too small.
  void bind(std::span<float> values, std::span<float> gradients, std::span<std::byte> rounded = {}) const;
  /// Updates the 16-bit copy of one parameter from the elements [first, first + count) of `values`, which must be in
  /// its range. In the calling thread.
  void round(const ParameterRange& range, std::span<const float> values, std::int64_t first, std::int64_t count) const;
  /// The same for all parameters.
  void round_all(std::span<const float> values) const;
  /// `range` of a flat array, as a tensor of the parameter's shape.
  static Tensor view(const ParameterRange& range, std::span<float> flat);
  /// Writes the initial value of every parameter to `values` [elements()]. One of a 16-bit type begins with a value
  /// rounded to that type, as in Megatron-LM. Independent of the layout over ranks.
  void initialise(kernels::Threads& threads, std::uint64_t seed, std::span<float> values) const;
  /// The same for one parameter; `values` has its elements() floats.
  static void initialise(kernels::Threads& threads, std::uint64_t seed, const Parameter& parameter,
                         std::span<float> values);

 private:
  std::vector<ParameterRange> ranges_;
  std::int64_t elements_ = 0;
};

}  // namespace tessera::nn
