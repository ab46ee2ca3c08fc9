#include "framework/parallel/data_parallel_options.h"

#include "framework/options/limits.h"

namespace tessera::parallel {

std::int64_t DataParallelOptions::bucket_elements(std::int64_t ranks) const {
  return bucket_size.value_or(std::max<std::int64_t>(40000000, 1000000 * ranks));
}

void describe(options::Schema<DataParallelOptions>& s) {
  using O = DataParallelOptions;
  s.when_changed(options::Change::silent);
  s.option("bucket_size", &O::bucket_size, "Bucket size of the gradient reduction, in elements.")
      .alias("ddp_bucket_size")
      .unit("elements")
      .at_least(1)
      .at_most(std::int64_t{1} << 40)
      .otherwise("the larger of 40 million and 1 million per data-parallel rank");
  s.option("overlap_grad_reduce", &O::overlap_grad_reduce, "Overlap gradient reduction with the backward pass.");
  s.option("delay_grad_reduce", &O::delay_grad_reduce,
           "With `overlap_grad_reduce`: pipeline stages after the first reduce after their backward passes.");
  s.option("use_distributed_optimizer", &O::use_distributed_optimizer,
           "Distributed optimizer (ZeRO-1): shard the optimizer state over data-parallel ranks.");
}

void describe(options::Schema<ParameterGatherOptions>& s) {
  s.when_changed(options::Change::silent);
  s.option("overlap_param_gather", &ParameterGatherOptions::overlap_param_gather,
           "Overlap the parameter all-gather with the work between the update and the next forward pass; requires "
           "`use_distributed_optimizer` and `overlap_grad_reduce`.");
}

}  // namespace tessera::parallel
