#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/checkpoint/box.h"
#include "framework/options/value.h"

// How Megatron-LM parts a model over the files of a checkpoint.

namespace tessera {

/// The ranks of a checkpoint. Which layers a stage has, [stage][chunk]: layers are numbered through chunk 0 of all
/// stages, then chunk 1, ...
struct MegatronLayout {
  std::int64_t tensor = 1, data = 1;
  std::vector<std::vector<std::int64_t>> layers = {};  ///< empty: one stage with all there are
  bool distributed_optimizer = false;                  ///< the optimizer's state lies in distrib_optim.pt
  std::int64_t vocabulary = 0;                         ///< rows, for ranks that have none of them; 0: as tensors say

  std::int64_t stages() const { return layers.empty() ? 1 : static_cast<std::int64_t>(layers.size()); }
};

/// "mp_rank_01", with several stages "mp_rank_01_002".
std::string megatron_rank_folder(std::int64_t tensor_rank, std::int64_t stage, std::int64_t stages);

/// The layer in "decoder.layers.7.mlp..."; -1: in none.
std::int64_t megatron_layer_of(const std::string& name);
/// The name with its layer's number `by` higher.
std::string megatron_shifted(const std::string& name, std::int64_t by);

/// Which parts of a weight tensor parallel ranks have: mappings/weights/megatron.yaml, `cut`.
class MegatronCut {
 public:
  /// `gated`: the first product of the feed-forward has the rows of the gate, then as many others; both are cut.
  MegatronCut(const Value& table, bool gated);

  /// The boxes of the whole tensor that make rank `rank`'s part, one below the other. `name` may be that of optimizer
  /// state, "optimizer.<slot>.<weight>". Throws ConfigError when `ranks` do not divide it.
  std::vector<Box> boxes(const std::string& name, const Shape& whole, std::int64_t ranks, std::int64_t rank) const;
  /// The shape of one rank's part.
  Shape part(const std::string& name, const Shape& whole, std::int64_t ranks) const;
  /// The whole tensor's from that of one rank's part.
  Shape whole(const std::string& name, const Shape& part, std::int64_t ranks) const;

 private:
  /// The dim that is cut; -1: every rank has all of it.
  int dim_of(const std::string& name) const;
  std::vector<std::string> rows_, columns_;  ///< ends of names
  bool gated_;
};

/// A weight of one chunk, as the distributed optimizer lays it out.
struct MegatronFlat {
  std::int64_t elements = 0;
  bool bucket_of_its_own = false;  ///< a tied embedding of a pipeline's end
};
/// Where each weight of a chunk, given in the order of the modules, begins in a buffer of distrib_optim.pt; and the
/// buffer's length as the last item. `bucket`: elements after which a bucket is full; 0: there is one.
std::vector<std::int64_t> megatron_flat_places(const std::vector<MegatronFlat>& weights, std::int64_t bucket);

}  // namespace tessera
