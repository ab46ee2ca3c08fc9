#include "framework/interop/hugging_face/merge_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "framework/base/random.h"

namespace tessera::hugging_face {
namespace {

constexpr std::int64_t rows_of_check = 2, most_tokens_of_check = 32;
constexpr std::uint64_t seed_of_check = 29;

void fill_with_tokens(Batch& batch, std::int64_t rows, std::int64_t vocabulary) {
  const RandomKey key(seed_of_check, Purpose::sampling);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto sample = batch.sample(row);
    for (std::size_t t = 0; t < sample.tokens.size(); ++t) {
      const auto drawn = key.uniform(static_cast<std::uint64_t>(row), t) * static_cast<double>(vocabulary);
      sample.tokens[t] = std::min(static_cast<std::int32_t>(drawn), static_cast<std::int32_t>(vocabulary - 1));
      sample.labels[t] = 0;
      sample.loss_mask[t] = 1;
      sample.positions[t] = static_cast<std::int32_t>(t);
      sample.document_start[t] = 0;
    }
  }
}

}  // namespace

MergedWeights::Scale scale_of(const recipe::Recipe& recipe) {
  return [forms = recipe::adapters_of(recipe)](const std::string& ours, std::int64_t) { return forms.at(ours).scale; };
}

std::vector<float> fixed_logits(const recipe::TrainedModel& trained, kernels::Threads& threads) {
  const auto& model = *trained.model;
  Batch batch(rows_of_check, std::min(most_tokens_of_check, model.most_positions()));
  fill_with_tokens(batch, rows_of_check, model.vocabulary());
  Arena arena;
  autograd::Tape tape(arena, threads, false);
  const auto logits = model.logits(tape, batch.view(rows_of_check), {});
  const auto all = logits.floats();
  return {all.begin(), all.end()};
}

double difference(const std::vector<float>& of, const std::vector<float>& other) {
  if (of.size() != other.size()) return std::numeric_limits<double>::infinity();
  double largest = 1, away = 0;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const double a = of[i], b = other[i];
    if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(a));
    away = std::max(away, std::abs(a - b));
  }
  return away / largest;
}

void compute_in_fp32(recipe::Recipe& recipe) {
  recipe.half = {};
  recipe.precision = {};
}

recipe::TrainedModel load_merged(const recipe::Recipe& recipe, const MergedWeights& merged) {
  auto plain = recipe;
  compute_in_fp32(plain);
  plain.train_everything();
  auto out = recipe::without_weights(merged.folder(), std::move(plain), recipe.tokenizer.make());
  checkpoint::load_all(merged, out.weights->weight_ranges());
  out.weights->weights_changed();
  return out;
}

}  // namespace tessera::hugging_face
