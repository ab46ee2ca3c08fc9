#pragma once

#include <cstdint>
#include <optional>

#include "framework/options/schema.h"

namespace tessera::parallel {

/// Options of training_config about the reduction of gradients over data-parallel ranks. They change the order of sums
/// at most.
struct DataParallelOptions {
  std::optional<std::int64_t> bucket_size;
  bool overlap_grad_reduce = false;
  bool delay_grad_reduce = false;
  bool use_distributed_optimizer = false;

  /// Elements per bucket for so many data-parallel ranks: bucket_size, or else Megatron-LM's
  /// max(40 million, 1 million * ranks).
  std::int64_t bucket_elements(std::int64_t ranks) const;
};
/// Declares the options: name, default, limits, meaning.
void describe(options::Schema<DataParallelOptions>& s);

/// Options of optimizer_config about the all-gather of weights that a distributed optimizer has updated.
struct ParameterGatherOptions {
  bool overlap_param_gather = false;
};
/// Declares the options.
void describe(options::Schema<ParameterGatherOptions>& s);

}  // namespace tessera::parallel
