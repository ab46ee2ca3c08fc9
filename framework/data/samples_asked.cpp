#include "framework/base/checked.h"
#include "framework/data/dataset.h"

namespace tessera::data {

SamplesAsked samples_asked(std::int64_t train_iters, std::int64_t samples_per_step, std::int64_t eval_interval,
                           std::int64_t eval_iters) {
  const auto evaluations = eval_interval > 0 ? train_iters / eval_interval + 1 : 0;
  const NamedSize step{"samples of a step", samples_per_step}, one{"eval_iters", eval_iters};
  return {checked_product({{"steps", train_iters}, step}), checked_product({{"evaluations", evaluations}, one, step}),
          evaluations > 0 ? checked_product({one, step}) : 0};
}

}  // namespace tessera::data
