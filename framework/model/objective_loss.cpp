#include "framework/model/objective_loss.h"

#include <algorithm>

#include "framework/autograd/ops/linear.h"
#include "framework/base/trace.h"
#include "framework/model/visibility.h"
#include "framework/parallel/process_groups.h"

namespace tessera::model {
namespace {

/// Calls `see` with the indices of each of this rank's tokens: in an array of its own tokens, and in one of whole
/// samples.
template <class See>
void for_own_tokens(const TokenShare& tokens, std::int64_t length, std::size_t own, std::size_t whole, const See& see) {
  const auto samples = static_cast<std::int64_t>(whole) / length, each = static_cast<std::int64_t>(own) / samples;
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t t = 0; t < each; ++t)
      see(static_cast<std::size_t>(b * each + t),
          static_cast<std::size_t>(b * length + tokens.context.index(tokens.first + t, length)));
}

/// The values of whole samples [samples, length] from those of each rank. Each rank adds zeros to those of the others,
/// so that they arrive exactly.
void gather_samples(const TokenShare& tokens, const ForwardMode& mode, std::int64_t length, std::span<const float> here,
                    std::span<float> whole) {
  std::fill(whole.begin(), whole.end(), 0.0F);
  for_own_tokens(tokens, length, here.size(), whole.size(), [&](auto own, auto at) { whole[at] = here[own]; });
  if (tokens.cuts_sequence) mode.groups->tensor.all_reduce(whole, "values of tokens");
  if (!tokens.context.whole()) mode.groups->context.all_reduce(whole, "losses of tokens");
}

/// Lets the objective judge the values of whole samples, and seeds the backward pass.
autograd::LossSum judged(const autograd::Var& values, const TokenShare& tokens, const TokenBatch& batch,
                         const ForwardMode& mode) {
  auto& tape = values.tape();
  const auto count = batch.labels.size(), here = values.floats().size();
  const auto whole_memory = tape.scratch(count), seeds_memory = tape.scratch(count);
  const auto whole = autograd::Tape::floats(whole_memory).first(count);
  const auto seeds = autograd::Tape::floats(seeds_memory).first(tape.records() ? count : 0);
  const auto metrics = mode.objective->metrics().size();
  const auto metrics_memory = tape.scratch(metrics * sizeof(autograd::LossSum) / sizeof(float));
  const std::span reported(reinterpret_cast<autograd::LossSum*>(metrics_memory.bytes().data()), metrics);
  const auto own_memory = tape.scratch(seeds.empty() ? 0 : here);
  const auto own = autograd::Tape::floats(own_memory).first(seeds.empty() ? 0 : here);
  autograd::LossSum sum;
  if (!tape.threads().idle()) {  // else nothing was computed that could be judged
    gather_samples(tokens, mode, batch.seq_length, values.floats(), whole);
    std::fill(seeds.begin(), seeds.end(), 0.0F);
    std::fill(reported.begin(), reported.end(), autograd::LossSum());
    sum = mode.objective->judge({batch, whole, mode.share}, seeds, reported);
    for_own_tokens(tokens, batch.seq_length, own.size(), count, [&](auto at, auto in) { own[at] = seeds[in]; });
  }
  if (!seeds.empty()) tape.seed(values, Tensor(own, values.shape()));
  if (tape.threads().idle() || tokens.context.rank > 0) return {};  // all of them have the same values
  for (std::size_t i = 0; mode.log && i < metrics; ++i)
    mode.log->add_metric(static_cast<std::int64_t>(i), reported[i].sum, reported[i].count);
  return sum;
}

/// Collective as objective_loss, and over mode.groups->tensor if its ranks have different tokens.
autograd::VocabularyLoss judged_values(autograd::Var values, const TokenShare& tokens, const TokenBatch& batch,
                                       const ForwardMode& mode) {
  const auto total = judged(values, tokens, batch, mode);
  return {total, std::move(values)};
}

}  // namespace

autograd::VocabularyLoss score_loss(const autograd::Var& h, autograd::Leaf& weight, const TokenShare& tokens,
                                    const TokenBatch& batch, const ForwardMode& mode) {
  if (mode.objective->weighs_tokens())
    throw ConfigError(
        "a model with model_config.score_head gives scores, and no log-probabilities of tokens; give training_config."
        "stage: rm, or a model with an output layer");
  const TraceSpan span(TraceKind::operation, "score head and loss");
  return judged_values(autograd::linear(h, weight, nullptr), tokens, batch, mode);
}

autograd::VocabularyLoss objective_loss(const autograd::Var& h, const OutputLayer& output, const TokenBatch& batch,
                                        const ForwardMode& mode) {
  auto& tape = h.tape();
  const auto here = [&]<class T>(std::span<const T> array) {
    return held_tokens(tape, output.context, batch.samples, batch.seq_length, array);
  };
  autograd::LossTerms terms{.labels = here(batch.labels),
                            .mask = here(batch.loss_mask),
                            .type = output.type,
                            .softcap = output.softcap,
                            .sharers = output.sharers,
                            .bias = output.bias};
  if (mode.objective->weighs_tokens()) {
    const auto weights = mode.objective->weigh(tape, batch, mode.share);
    terms.seed = weights.seed;
    terms.weights = weights.each.empty() ? weights.each : here(weights.each);
    return autograd::vocabulary_loss(h, output.weight, terms, output.adapter);
  }
  return judged_values(autograd::token_losses(h, output.weight, terms, output.adapter), {.context = output.context},
                       batch, mode);
}

}  // namespace tessera::model
