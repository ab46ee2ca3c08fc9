#pragma once

#include <cstdint>
#include <optional>

#include "framework/options/schema.h"

namespace tessera {

/// training_config: how data parallel ranks bring their gradients together. None of these changes what is computed,
/// beyond the order of sums.
struct DataParallelOptions {
  std::optional<std::int64_t> bucket_size;
  bool overlap_grad_reduce = false;
  bool delay_grad_reduce = false;
  bool use_distributed_optimizer = false;

  /// Elements of one bucket: bucket_size, else Megatron-LM's max(40 million, 1 million x ranks).
  std::int64_t bucket_elements(std::int64_t ranks) const;
};
void describe(Schema<DataParallelOptions>& s);

/// optimizer_config: how data parallel ranks that share the optimizer's state fetch each other's weights.
struct ParameterGatherOptions {
  bool overlap_param_gather = false;
};
void describe(Schema<ParameterGatherOptions>& s);

}  // namespace tessera
