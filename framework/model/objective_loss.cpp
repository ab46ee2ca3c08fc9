#include "framework/model/objective_loss.h"

#include <algorithm>

#include "framework/model/visibility.h"
#include "framework/parallel/process_groups.h"

namespace tessera::model {
namespace {

/// The values of whole samples [samples, length] from those of each context-parallel rank. Each rank adds zeros to
/// those of the others, so that they arrive exactly.
void gather_samples(const nn::ContextRank& context, const ForwardMode& mode, std::int64_t length,
                    std::span<const float> here, std::span<float> whole) {
  if (context.whole()) {
    std::copy(here.begin(), here.end(), whole.begin());
    return;
  }
  std::fill(whole.begin(), whole.end(), 0.0F);
  const auto tokens = length / context.ranks, run = length / context.parts();
  const auto samples = static_cast<std::int64_t>(whole.size()) / length;
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t t = 0; t < tokens; t += run)
      std::copy_n(here.begin() + b * tokens + t, run, whole.begin() + b * length + context.index(t, length));
  mode.groups->context.all_reduce(whole, "losses of tokens");
}

/// Lets the objective judge the losses of whole samples, and seeds the backward pass.
autograd::LossSum judged(const autograd::Var& losses, const nn::ContextRank& context, const TokenBatch& batch,
                         const ForwardMode& mode) {
  auto& tape = losses.tape();
  const auto tokens = batch.labels.size();
  const auto whole_memory = tape.scratch(tokens), seeds_memory = tape.scratch(tokens);
  const auto whole = autograd::Tape::floats(whole_memory).first(tokens);
  const auto seeds = autograd::Tape::floats(seeds_memory).first(tape.records() ? tokens : 0);
  const auto metrics = mode.objective->metrics().size();
  const auto metrics_memory = tape.scratch(metrics * sizeof(autograd::LossSum) / sizeof(float));
  const std::span values(reinterpret_cast<autograd::LossSum*>(metrics_memory.bytes().data()), metrics);
  if (tape.threads().idle()) {  // nothing was computed that could be judged
    const auto memory = tape.scratch(losses.floats().size());
    if (!seeds.empty())
      tape.seed(losses, Tensor(autograd::Tape::floats(memory).first(losses.floats().size()), losses.shape()));
    return {};
  }
  gather_samples(context, mode, batch.seq_length, losses.floats(), whole);
  std::fill(seeds.begin(), seeds.end(), 0.0F);
  std::fill(values.begin(), values.end(), autograd::LossSum());
  const auto sum = mode.objective->judge({batch, whole, mode.share}, seeds, values);
  if (!seeds.empty()) {
    const auto here = held_tokens(tape, context, batch.samples, batch.seq_length, std::span<const float>(seeds));
    const auto memory = tape.scratch(here.size());
    const auto own = autograd::Tape::floats(memory).first(here.size());
    std::copy(here.begin(), here.end(), own.begin());
    tape.seed(losses, Tensor(own, losses.shape()));
  }
  if (context.rank > 0) return {};  // all of them have the same values
  for (std::size_t i = 0; mode.log && i < metrics; ++i)
    mode.log->add_metric(static_cast<std::int64_t>(i), values[i].sum, values[i].count);
  return sum;
}

}  // namespace

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
                            .sharers = output.sharers};
  if (mode.objective->weighs_tokens()) {
    const auto weights = mode.objective->weigh(tape, batch, mode.share);
    terms.seed = weights.seed;
    terms.weights = weights.each.empty() ? weights.each : here(weights.each);
    return autograd::vocabulary_loss(h, output.weight, terms);
  }
  auto losses = autograd::token_losses(h, output.weight, terms);
  const auto total = judged(losses, output.context, batch, mode);
  return {total, std::move(losses)};
}

}  // namespace tessera::model
