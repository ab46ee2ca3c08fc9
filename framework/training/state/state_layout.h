#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/nn/flat_parameters.h"
#include "framework/optim/optimizer.h"
#include "framework/parallel/buckets.h"

namespace tessera::training {

/// How data-parallel ranks, which have the same weights, share the optimizer's work.
struct StateSharing {
  int rank = 0, ranks = 1;             ///< rank in, and size of, the data-parallel group
  bool distributed_optimizer = false;  ///< each rank updates only its shards and has only their optimizer state
  std::int64_t bucket_elements = 0;    ///< elements of a gradient bucket; 0: as few buckets as possible

  /// Whether a rank updates shards instead of everything.
  bool shards() const { return distributed_optimizer && ranks > 1; }
};

/// The arrays with everything that training changes on one rank (frozen parameters: FrozenWeights). "With shards":
/// StateSharing::shards() is true.
enum class StateArray {
  weights,    ///< fp32 weights; with shards, only of parameters that the model reads in fp32
  gradients,  ///< fp32 main gradients of all parameters; empty without an optimizer
  /// 16-bit weights: with shards, 2 bytes per element of the flat layout; else only of the 16-bit parameters whose
  /// rounded copy is kept (StateLayout::keeps_rounded). Empty if there are none.
  rounded_weights,
  master_weights,  ///< with shards: this rank's shards of the fp32 weights of rounded_weights; else empty
  optimizer_state  ///< fp32: this rank's shards of the first state tensor, then of the second, ...
};
inline constexpr std::size_t state_arrays = 5;

/// The arrays in one contiguous segment of memory, with sizes that are known before the memory is allocated.
struct StateSegment {
  struct Array {
    /// `offset`: in the segment, a multiple of `alignment`; an exchanged array is preceded by its GroupBuffer's header.
    std::size_t offset = 0, bytes = 0;
    bool exchanged = false;  ///< the data-parallel ranks sum or gather the array
  };
  static constexpr std::size_t alignment = 4096;  ///< a page

  std::array<Array, state_arrays> arrays = {};
  std::size_t bytes = 0;      ///< size of the segment, including padding between arrays
  std::size_t own_bytes = 0;  ///< size of its first part, which has all arrays that are not exchanged

  const Array& of(StateArray which) const { return arrays[static_cast<std::size_t>(which)]; }
};

/// Bytes by purpose, without padding between arrays.
struct StateBytes {
  std::int64_t weights = 0, gradients = 0, optimizer = 0;
  /// Of frozen weights that are read where they lie in files, not in `weights`, nor in all(): memory that is reserved
  /// for them and not used, and what they take in the files.
  std::int64_t mapped = 0, in_files = 0;
  std::int64_t all() const { return weights + gradients + optimizer; }
  StateBytes& operator+=(const StateBytes& more) {
    weights += more.weights, gradients += more.gradients, optimizer += more.optimizer;
    mapped += more.mapped, in_files += more.in_files;
    return *this;
  }
};

/// A range of one parameter that this rank updates, and where its weights and optimizer state are.
struct PlacedShard {
  std::size_t parameter;      ///< index in StateLayout::parameters().ranges()
  nn::ElementRange elements;  ///< range in the flat arrays, as `gradients`; may end with padding
  StateArray weights_in;      ///< array with its fp32 weights: weights or master_weights
  std::size_t weight;         ///< index of its first element in that array
  std::size_t state;          ///< index of its first element in each state tensor of the optimizer
};

/// A range of elements of one array.
struct StateRange {
  StateArray array;
  std::size_t first, count;
};

/// Which elements a function returns.
enum class StateScope {
  held,   ///< all elements on this rank
  owned,  ///< elements assigned to this rank: over all ranks of the run, each element of the model exactly once
  saved   ///< the same, where ranks that hold the same elements have equally many of them each
};

/// Of the elements in `ranges`, counted from 0 in their order, those with numbers in [first, end).
std::vector<nn::ElementRange> elements_between(const std::vector<nn::ElementRange>& ranges, std::int64_t first,
                                               std::int64_t end);

/// The layout of a model's state on one rank: shards, buckets, arrays, and the ranges that checkpoints and norms read.
/// A pure function of the parameters, the optimizer's list of state tensors and the sharing; no memory, no
/// communication. Source of the distributed optimizer: Rajbhandari et al., arXiv:1910.02054 (stage 1).
class StateLayout {
 public:
  /// The parameters, all trained (else BugError), must outlive this object; their leaves are numbered in this order.
  /// `optimizer`: only asked for its state tensors; null: only weights, for evaluation and generation. Throws
  /// ConfigError if an array would have 2^63 bytes or more.
  StateLayout(std::vector<nn::Parameter*> parameters, const optim::Optimizer* optimizer,
              const StateSharing& sharing = {});

  const nn::FlatParameters& parameters() const { return parameters_; }
  const StateSharing& sharing() const { return sharing_; }
  /// Gradient buckets, in the order of the backward pass.
  std::span<const parallel::Bucket> buckets() const { return buckets_; }
  /// The ranges that this rank updates, in ascending order of elements.
  std::span<const PlacedShard> shards() const { return shards_; }
  /// Names of the optimizer's state tensors.
  std::span<const std::string> state_tensors() const { return state_tensors_; }

  const StateSegment& segment() const { return segment_; }
  /// Sizes by purpose.
  StateBytes bytes() const;

  /// Index of the first element of a parameter in `weights`. With shards, only for parameters that the model reads in
  /// fp32.
  std::size_t weight_of(std::size_t parameter) const { return weight_of_[parameter]; }
  /// Whether a 16-bit parameter has a rounded copy of its fp32 weight. false: operations round the weight when they
  /// read it, which takes no memory; so with an optimizer and all fp32 weights on the rank, where products multiply
  /// floats.
  bool keeps_rounded(std::size_t parameter) const { return rounded_of_[parameter].has_value(); }
  /// Index of the first element of such a copy in `rounded_weights`. Throws BugError if there is none.
  std::size_t rounded_of(std::size_t parameter) const;
  /// Range of state tensor `tensor` of a shard or part.
  StateRange state_of(const PlacedShard& shard, std::size_t tensor) const;
  /// What ranks all-gather after an update, for one bucket: the weights that the model reads, in elements of its type.
  StateRange gathered(const parallel::Bucket& bucket) const;

  /// The elements that this rank owns, merged into long ranges, for sums over the model: in `gradients`, and the
  /// weights of the same elements. Without the biases of routers, which no optimizer updates. The ranges may contain
  /// padding, which is zero in every array.
  std::span<const StateRange> owned_gradients() const { return owned_gradients_; }
  std::span<const StateRange> owned_weights() const { return owned_weights_; }
  /// Number of padding elements in owned_gradients().
  std::int64_t owned_padding() const { return owned_padding_; }

  /// The parts of the shards that have the elements of `scope`, without padding: for checkpoints.
  std::vector<PlacedShard> parts(StateScope scope) const;
  /// The elements of a part, as boxes of the unsharded parameter: those of one box lie after those of the other.
  std::vector<Box> boxes_of(const PlacedShard& part) const;
  /// Bytes that this rank saves of weights and state tensors.
  std::int64_t saved_bytes() const;

 private:
  void place_shards();
  void place_rounded(bool trains);
  void size_arrays(bool trains);
  void join_owned();
  void deal_out();
  /// Number of owned elements that the ranks before `rank` save.
  std::int64_t first_dealt(int rank) const { return owned_before_.back() * rank / sharing_.ranks; }
  std::vector<nn::ElementRange> elements_of(const PlacedShard& shard, StateScope scope) const;

  StateSharing sharing_;
  nn::FlatParameters parameters_;
  std::vector<std::string> state_tensors_;
  std::vector<parallel::Bucket> buckets_;
  std::vector<PlacedShard> shards_;
  std::vector<std::size_t> weight_of_;
  std::vector<std::optional<std::size_t>> rounded_of_;
  std::size_t rounded_ = 0;                 ///< elements of rounded_weights
  std::vector<std::int64_t> owned_before_;  ///< without shards: owned elements of the parameters before each, and all
  std::size_t weights_ = 0, masters_ = 0, updated_ = 0;  ///< elements of weights, master_weights and one state tensor
  StateSegment segment_;
  std::vector<StateRange> owned_gradients_, owned_weights_;
  std::int64_t owned_padding_ = 0;
};

}  // namespace tessera::training
