#include "framework/data/dataset_options.h"

#include "framework/base/checked.h"
#include "framework/options/limits.h"

namespace tessera::data {

void describe(options::Schema<BatchOptions>& s) {
  using O = BatchOptions;
  s.when_changed(options::Change::told);
  s.option("batch_size", &O::batch_size, "Micro-batch size per rank, in samples.")
      .above(0)
      .at_most(1048576)
      .alias("micro_batch_size")
      .unit("samples");
  s.option("micro_batch_num", &O::micro_batch_num, "Number of micro-batches per step (gradient accumulation).")
      .replaces({"global_batch_size"})
      .above(0)
      .at_most(1048576);
  s.option("global_batch_size", &O::global_batch_size, "Global batch size, in samples.")
      .replaces({"micro_batch_num"})
      .above(0)
      .at_most(options::most_step_samples)
      .unit("samples");
  s.option("train_samples", &O::train_samples,
           "Length of the run in samples, instead of `training_iters`; null or 0: `training_iters`.")
      .when_changed(options::Change::order)
      .at_least(0)
      .at_most(options::most_samples)
      .unit("samples");
  s.option("num_workers", &O::num_workers,
           "Number of threads per split that read micro-batches ahead of the step, two each; 0: the step reads them "
           "itself. Does not affect results.")
      .when_changed(options::Change::silent)
      .at_least(0)
      .at_most(256)
      .unit("threads");
  s.option("bad_sample_limit", &O::bad_sample_limit,
           "Maximum number of unusable samples that are replaced (cannot be read, wrong checksum, or tokens outside "
           "the vocabulary); the run ends if there are more; 0: it ends at the first.")
      .when_changed(options::Change::silent)
      .at_least(0)
      .at_most(256)
      .unit("samples")
      .no_flag("only Tessera has it");
  s.option("quarantine_file", &O::quarantine_file,
           "Samples that are replaced from the beginning: quarantine.jsonl of an earlier run with the same data; null: "
           "none.")
      .no_flag("only Tessera has it");
}

std::int64_t BatchOptions::samples_per_step(std::int64_t ranks) const {
  return checked_product(
      {{"batch_size", batch_size}, {"micro_batch_num", micro_batches(ranks)}, {"data parallel ranks", ranks}});
}

std::int64_t BatchOptions::micro_batches(std::int64_t ranks) const {
  if (micro_batch_num) return *micro_batch_num;
  return global_batch_size ? *global_batch_size / (batch_size * ranks) : 1;
}

}  // namespace tessera::data
