#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/group_buffer.h"
#include "framework/model/model.h"
#include "framework/nn/flat_parameters.h"
#include "framework/optim/optimizer.h"
#include "framework/parallel/buckets.h"
#include "framework/tensor/arena.h"

namespace tessera {

/// How processes that have the same weights share the work on them.
struct StateSharing {
  Communicator data = {};              ///< those processes
  bool distributed_optimizer = false;  ///< each updates a share and keeps the optimizer's state of that alone
  bool overlaps_gather = false;        ///< update does not wait for the others' shares: weights_needed does
  std::int64_t bucket_elements = 0;    ///< of one bucket of gradients; 0: as few buckets as there can be
};

/// All numbers that training changes: weights, main gradients and the optimizer's slots, each one flat fp32 array in
/// the layout of FlatParameters; and for parameters that the model reads in 16 bits, the weights rounded. With a
/// distributed optimizer slots, and fp32 weights behind 16-bit ones, are those of the own stretches alone. Owns the
/// memory; the models' parameters look into it. Source of the distributed optimizer: Rajbhandari et al.,
/// arXiv:1910.02054 (stage 1).
class ModelState {
 public:
  /// For training the chunks of one process with `optimizer`, which must outlive this; nullptr: weights alone, for
  /// evaluation and generation.
  ModelState(std::span<Model* const> chunks, const Optimizer* optimizer, const StateSharing& sharing = {});
  ModelState(Model& model, const Optimizer* optimizer);

  const FlatParameters& layout() const { return layout_; }
  const StateSharing& sharing() const { return sharing_; }
  /// The fp32 weights of all parameters; only where no process has a share of them alone.
  std::span<float> weights() const;
  std::span<float> gradients() const { return gradients_.floats(); }
  void initialise(Threads& threads, std::uint64_t seed) const;
  /// To be called by all that share, after own weights were written: what the models read follows.
  void weights_changed() const;

  /// To be called before weights are read again: waits for those that other processes updated.
  void weights_needed() const;

  /// Buckets in the order of the backward pass, and the sum of one over the data-parallel group. With a distributed
  /// optimizer only the own stretches hold it afterwards.
  std::span<const Bucket> buckets() const { return buckets_; }
  void begin_sum(std::size_t bucket) const;
  void progress() const;
  void finish_sums() const;

  /// Parts of the gradients, and of the fp32 weights, that this process counts when the whole run counts each element
  /// once: what its part of the model owns, and with a distributed optimizer its stretches of that. Padding between
  /// parameters may be among them: it is zero.
  const std::vector<std::span<float>>& counted_gradients() const { return counted_gradients_; }
  const std::vector<std::span<float>>& counted_weights() const { return counted_weights_; }
  /// How much of these is padding.
  std::int64_t padding_counted() const { return padding_counted_; }

  /// Of weights, gradients and slots as they lie in memory.
  std::int64_t bytes() const;

  /// One step of the optimizer on every weight.
  void update(Threads& threads, StepScalars scalars) const { update(threads, {&scalars, 1}, {}); }
  /// The same with scalars of their own for groups of parameters, which the optimizer prepares in place: `group_of[i]`
  /// is the group of parameter i in layout().runs(); empty: all are in the first.
  void update(Threads& threads, std::span<StepScalars> groups, std::span<const std::size_t> group_of) const;

  /// Whom ranges are for.
  enum class Ranges {
    held,  ///< all that is here: to be filled by loading
    saved  ///< what this process speaks for: together, those of all processes are every tensor once
  };
  /// The fp32 weights under their global names.
  std::vector<TensorRange> weight_ranges(Ranges which = Ranges::held) const;
  /// The optimizer's slots as "optimizer.<slot>.<parameter>".
  std::vector<TensorRange> optimizer_ranges(Ranges which = Ranges::held) const;

  /// Bytes by what they are for.
  struct Bytes {
    std::int64_t weights = 0, gradients = 0, optimizer = 0;
    std::int64_t all() const { return weights + gradients + optimizer; }
  };
  /// What training with these slots takes for weights, gradients and slots of `model`, of which `ranks` processes share
  /// the optimizer: exact, without making them.
  static Bytes bytes_for(Model& model, const Optimizer& optimizer, int ranks = 1);
  /// The same for these parameters.
  static Bytes bytes_for(const std::vector<Parameter*>& parameters, const Optimizer& optimizer, int ranks = 1);

 private:
  /// An array that is in memory of its own, or one that the group can reach.
  class Array {
   public:
    Array() = default;
    Array(const Communicator* group, std::size_t bytes);
    std::span<std::byte> bytes() const;
    std::span<float> floats() const;
    GroupBuffer& shared() const { return *shared_; }

   private:
    Storage own_;
    std::unique_ptr<GroupBuffer> shared_;
  };
  /// Where the state of a stretch begins: the fp32 weights in values_ or masters_, the slots in slots_.
  struct Placed {
    Stretch stretch;
    std::size_t master, slot;
    bool in_masters;
  };
  /// What one thread updates at a time, or a matrix that the optimizer wants whole.
  struct Piece {
    std::size_t placed, first, count;  ///< first: in the stretch
    bool decays;
  };
  void allocate();
  void place_stretches();
  void bind() const;
  void count_ranges();
  std::vector<ElementRange> spoken_for(const Placed& placed) const;
  void cut_into_pieces();
  std::span<float> master(const Placed& placed) const;
  std::span<float> slot(const Placed& placed, std::size_t k) const;
  Block block(const Piece& piece) const;
  void round(const Placed& placed, std::size_t first, std::size_t count) const;
  void gather() const;
  std::vector<TensorRange> ranges(Ranges which, const std::string& prefix, std::size_t slot_index) const;
  bool shards() const { return sharing_.distributed_optimizer && sharing_.data.size() > 1; }

  const Optimizer* optimizer_;
  StateSharing sharing_;
  FlatParameters layout_;
  std::vector<Bucket> buckets_;
  Array values_, gradients_, rounded_;
  Storage masters_, slots_memory_;
  std::vector<std::size_t> value_first_;  ///< of each run in values_, which with shards has fp32 parameters alone
  std::vector<std::string> slots_;
  std::vector<Placed> placed_;
  std::vector<std::span<float>> counted_gradients_, counted_weights_;
  std::int64_t padding_counted_ = 0;
  std::vector<Piece> pieces_, wholes_;
};

}  // namespace tessera
