#pragma once

#include <cstdint>
#include <optional>

#include "framework/options/schema.h"

namespace tessera::parallel {

/// Options of training_config for the reduction of gradients over data-parallel ranks. They affect results at most
/// through the order of sums. describe() documents each option.
struct DataParallelOptions {
  std::optional<std::int64_t> bucket_size;
  bool overlap_grad_reduce = false;
  bool delay_grad_reduce = false;
  bool use_distributed_optimizer = false;

  /// Number of elements per bucket for `ranks` data-parallel ranks: bucket_size, or Megatron-LM's default max(40
  /// million, 1 million * ranks).
  std::int64_t bucket_elements(std::int64_t ranks) const;
};
/// Declares the options: name, default, limits, meaning.
void describe(options::Schema<DataParallelOptions>& s);

/// Options of optimizer_config for the all-gather of weights that a distributed optimizer has updated.
struct ParameterGatherOptions {
  bool overlap_param_gather = false;
};
/// Declares the options.
void describe(options::Schema<ParameterGatherOptions>& s);

}  // namespace tessera::parallel
