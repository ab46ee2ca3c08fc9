#include "framework/parallel/data_parallel_options.h"

namespace tessera {

std::int64_t DataParallelOptions::bucket_elements(std::int64_t ranks) const {
  return bucket_size.value_or(std::max<std::int64_t>(40000000, 1000000 * ranks));
}

void describe(Schema<DataParallelOptions>& s) {
  using O = DataParallelOptions;
  s.option("bucket_size", &O::bucket_size,
           "Gradients that data parallel ranks sum in one go; 40 million, or 1 million for each rank where that is "
           "more.")
      .alias("ddp_bucket_size")
      .unit("elements")
      .at_least(1);
  s.option("overlap_grad_reduce", &O::overlap_grad_reduce,
           "Sum a bucket of gradients while the backward pass goes on.");
  s.option("delay_grad_reduce", &O::delay_grad_reduce,
           "With overlap_grad_reduce: stages after the first sum when their backward passes are done.");
  s.option("use_distributed_optimizer", &O::use_distributed_optimizer,
           "Data parallel ranks share the optimizer's state, each a part of it.");
  s.planned("wrap_with_ddp", false, "Data parallel ranks sum gradients in buckets; always so here.").also(true);
  s.planned("enable_mem_align", false, "Parameters begin at multiples of 512 bytes; always 256 here.").also(true);
}

void describe(Schema<ParameterGatherOptions>& s) {
  s.option("overlap_param_gather", &ParameterGatherOptions::overlap_param_gather,
           "Fetch weights while the forward pass runs; with use_distributed_optimizer and overlap_grad_reduce.");
}

}  // namespace tessera
