#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/autograd/tape.h"
#include "framework/tensor/box.h"
#include "framework/tensor/parameter_role.h"

namespace tessera::parallel {
struct ProcessGroups;
}

namespace tessera::nn {

/// The initial distribution of a parameter. Random draws are keyed by the parameter's full name and the element's index
/// in the unsharded tensor, so the values are the same on every parallel layout.
struct Init {
  enum class Kind { zeros, ones, normal, constant, uniform } kind = Kind::zeros;
  double std = 0;  ///< normal: the standard deviation; constant: the value; uniform: draws are in [-std, std)
  static Init zeros() { return {}; }
  static Init constant(double value) { return {Kind::constant, value}; }
  static Init uniform(double bound) { return {Kind::uniform, bound}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(double std) { return {Kind::normal, std}; }
};

/// The elements [first, first + count) of an array.
struct ElementRange {
  std::int64_t first = 0, count = 0;
};

/// The part of an unsharded tensor that a rank has: one or more strips (ranges along one dimension), stored one after
/// the other in the given order. Several ranks may have the same strip; exactly one of them owns it. The owner counts
/// these elements in sums over the model (gradient norm, number of parameters) and saves them to checkpoints.
struct TensorCut {
  struct Strip {
    std::int64_t first, count;  ///< range [first, first + count) along `dim` of the unsharded tensor
    bool owned = true;          ///< whether this rank owns the strip
    bool copied = false;        ///< a copied key and value head: each rank computes a summand of its gradient
  };
  std::size_t dim = 0;        ///< the dimension that is divided; must be 0 if there are several strips
  std::vector<Strip> strips;  ///< empty: the whole tensor, owned by this rank

  /// A copy of a whole tensor with `extent` rows that another rank owns.
  static TensorCut copy(std::int64_t extent) { return {0, {{0, extent, false}}}; }
  /// Part `index` of `count` equal parts of dimension `dim` with `extent` elements. `count` must divide `extent`.
  static TensorCut even(std::size_t dim, std::int64_t extent, int index, int count) {
    return {dim, {{extent / count * index, extent / count, true}}};
  }
  std::int64_t extent() const;         ///< extent of all strips together along `dim`; 0 without strips
  Shape of(const Shape& whole) const;  ///< shape of this rank's part of a tensor of shape `whole`
};

/// Groups of ranks that each compute a summand of the gradient of the same elements. The summands are all-reduced
/// before the gradient is used.
enum class GradientSharers {
  tensor,         ///< the tensor-parallel group
  expert_tensor,  ///< the expert-tensor-parallel group: ranks that each have a part of the same expert
  head_copies,    ///< the tensor-parallel ranks that have copies of the same key and value heads
  ends            ///< first and last pipeline stage, for an embedding tied to the output layer
};

/// A weight of a model: its name, shape, part on this rank, and views of its memory. A parameter owns no memory; the
/// owner of the memory sets the views (training/state/shared_state.h, training/state/frozen_weights.h).
struct Parameter {
  std::string name;  ///< full name, the same on every parallel layout: "decoder.layers.0.mlp.linear_fc1.weight"
  ParameterRole role = ParameterRole::matrix;
  Shape global_shape;  ///< shape of the unsharded tensor
  Init init;
  /// Type of leaf.value. A trained 16-bit value is a rounded copy of the fp32 weight, or that weight (leaf.stored),
  /// which
  /// operations round when they read it.
  DType type = DType::float32;
  /// false: the parameter is frozen. It has no gradient, no fp32 copy and no optimizer state. Equal on all ranks that
  /// have the parameter.
  bool trained = true;
  /// Ranges of this rank's part that are frozen although the parameter is trained: their reduced gradient is zero. Only
  /// of parameters without weight decay, so that no optimizer changes them.
  std::vector<ElementRange> frozen_elements = {};
  TensorCut cut = {};  ///< the part of the tensor that this rank has
  /// Computes the initial values of this rank's part from those of other parameters, in place of `init`, once these are
  /// initialised or loaded. Collective over the ranks of `groups`, null for a whole model. Empty: `init` decides.
  std::function<void(kernels::Threads& threads, const parallel::ProcessGroups* groups, std::span<float> values)> derive;

  /// A range of elements whose gradient must be summed over a group of ranks.
  struct Shared {
    GradientSharers with;
    ElementRange elements;  ///< range in this rank's part
  };
  std::vector<Shared> shared;

  /// Views of the value and, if it is trained, of the main gradient; empty until they are set.
  autograd::Leaf leaf;

  Shape shape() const { return cut.of(global_shape); }          ///< shape of this rank's part
  std::int64_t elements() const { return shape().elements(); }  ///< number of elements of this rank's part
  /// Requests that the gradient of all elements of this rank's part is summed over the group `with`.
  void share(GradientSharers with) { shared.push_back({with, {0, elements()}}); }
  /// The ranges of this rank's part that this rank owns (see TensorCut).
  std::vector<ElementRange> owned() const;
};

/// Whether every operation that reads the parameter also reads a StoredMatrix: matrices, except those of adapters.
bool may_be_stored(const Parameter& parameter);

/// Requests the sum of the gradients of the strips of `parameter` that are copied (TensorCut::Strip) over their ranks.
void share_copied_rows(Parameter& parameter);

/// Divides the range `elements` of this rank's part of `parameter` into boxes of the unsharded tensor. This rank's part
/// has the elements of one box after those of the other. For checkpoints, which address tensors by boxes. Throws
/// BugError for more than two dimensions.
std::vector<Box> boxes_of(const Parameter& parameter, ElementRange elements);

/// The ranges of the unsharded tensor that this rank's part consists of, in the order in which it has their elements.
std::vector<ElementRange> global_ranges_of(const Parameter& parameter);

}  // namespace tessera::nn
