#include "framework/data/dataset.h"

namespace tessera {

SamplesAsked samples_asked(std::int64_t train_iters, std::int64_t samples_per_step, std::int64_t eval_interval,
                           std::int64_t eval_iters) {
  const auto evaluations = eval_interval > 0 ? train_iters / eval_interval + 1 : 0;
  return {train_iters * samples_per_step, evaluations * eval_iters * samples_per_step,
          evaluations > 0 ? eval_iters * samples_per_step : 0};
}

}  // namespace tessera
