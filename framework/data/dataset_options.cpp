#include "framework/data/dataset_options.h"

namespace tessera {

void describe(Schema<BatchOptions>& s) {
  using O = BatchOptions;
  s.option("batch_size", &O::batch_size, "Samples of one micro-batch, on each rank.")
      .above(0)
      .alias("micro_batch_size")
      .unit("samples");
  s.option("micro_batch_num", &O::micro_batch_num,
           "Micro-batches whose gradients are summed to one step; null: as global_batch_size asks, or 1.")
      .above(0);
  s.option("global_batch_size", &O::global_batch_size,
           "Samples of one step over all ranks; null: batch_size times micro_batch_num times ranks.")
      .above(0)
      .unit("samples");
  s.option("train_samples", &O::train_samples, "Length of the run, instead of training_iters; null or 0: that says it.")
      .at_least(0)
      .unit("samples");
}

std::int64_t BatchOptions::micro_batches(std::int64_t ranks) const {
  if (micro_batch_num) return *micro_batch_num;
  return global_batch_size ? *global_batch_size / (batch_size * ranks) : 1;
}

}  // namespace tessera
