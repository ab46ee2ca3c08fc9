// The passes of a GPT through its parts.

#include "framework/model/gpt_model.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/embedding.h"
#include "framework/autograd/ops/residual.h"
#include "framework/base/trace.h"
#include "framework/model/axis_angles.h"
#include "framework/model/recomputed_layers.h"
#include "framework/model/visibility.h"
#include "framework/nn/key_value_cache.h"
#include "framework/parallel/tensor_parallel_ops.h"

namespace tessera::model {

autograd::Var GptModel::through_layers(autograd::Var x, const nn::Pass& pass) const {
  const bool uniform =
      !chunk_.recompute && recomputes_layers(o_, chunk_) && o_.recompute_method == RecomputedLayers::uniform;
  const auto layers = static_cast<std::int64_t>(layers_.size());
  if (!uniform) {
    const auto alone = layers_recomputed_alone(o_, chunk_);
    for (std::int64_t i = 0; i < layers; ++i) {
      const auto one = std::span(layers_).subspan(static_cast<std::size_t>(i), 1);
      x = i < alone ? recomputed_layers(x, one, pass) : one[0]->forward(std::move(x), pass);
    }
    return x;
  }
  const auto count = std::min(*o_.recompute_num_layers, layers);
  for (std::int64_t i = 0; i < layers; i += count)
    x = recomputed_layers(
        x,
        std::span(layers_).subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(std::min(count, layers - i))),
        pass);
  return x;
}

autograd::Var GptModel::embedded_in_parts(autograd::Tape& tape, std::span<const std::int32_t> tokens,
                                          const nn::Pass& pass) const {
  auto x = parallel::vocab_parallel_embedding(tape, tokens, words_->leaf, vocabulary_, tensor_, pass,
                                              precision_.residual, o_.embedding_padding_token.value_or(-1));
  if (!position_table_) return x;
  const auto here = x.shape()[1];
  const auto first = here == pass.T ? 0 : here * tensor_.rank;
  return parallel::plus_positions(std::move(x), table_rows(tape, positions_here(tape, pass, first, here)),
                                  position_table_->leaf);
}

/// The rows of the position table for `positions`; in memory of `tape` if they differ.
std::span<const std::int32_t> GptModel::table_rows(autograd::Tape& tape,
                                                   std::span<const std::int32_t> positions) const {
  if (o_.position_embedding_offset == 0) return positions;
  const auto rows = tape.keep_array<std::int32_t>(positions.size());
  std::transform(positions.begin(), positions.end(), rows.begin(),
                 [&](auto position) { return static_cast<std::int32_t>(position + o_.position_embedding_offset); });
  return rows;
}

/// `site` keys the dropout.
autograd::Var GptModel::embedded(autograd::Tape& tape, std::span<const std::int32_t> tokens, const nn::Pass& pass,
                                 std::uint64_t site) const {
  const auto rows = position_table_ ? table_rows(tape, pass.positions) : pass.positions;
  auto x = tensor_.whole() ? autograd::embedding(tape, {pass.B, pass.T}, tokens, words_->leaf, rows,
                                                 position_table_ ? &position_table_->leaf : nullptr,
                                                 precision_.residual, o_.embedding_padding_token.value_or(-1))
                           : embedded_in_parts(tape, tokens, pass);
  if (word_adapter_) x = word_adapter_->add_to(std::move(x), tokens, pass, o_.embedding_padding_token);
  if (embedding_norm_) {
    tape.computes_in(precision_.residual);
    x = embedding_norm_->forward(x);
    tape.computes_in(precision_.compute);
  }
  if (o_.embedding_factor() != 1) x = autograd::scaled(std::move(x), o_.embedding_factor());
  const auto mask = pass.held.rows(pass.dropout(Purpose::hidden_dropout, site, o_.embedding_dropout()), o_.hidden_size);
  if (mask.rate > 0) x = autograd::dropout_add(std::move(x), {}, mask);
  return x;
}

/// What comes from the chunk before, or from this chunk's part of the vision tower.
VisionFront::Seen GptModel::seen(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                                 const ForwardMode& mode, const nn::Pass& pass) const {
  if (!vision_) return {x, {}};
  const auto here = tokens_between_layers(pass.S);
  return vision_->see(tape, x, batch, mode, tensor_.cuts_sequence() ? here * tensor_.rank : 0, here);
}

/// The output of this chunk, for the last chunk after the final norm. Sets the tape to fp32 for the projection to the
/// vocabulary that follows.
autograd::Var GptModel::hidden(autograd::Tape& tape, VisionFront::Seen seen, std::span<const std::int32_t> tokens,
                               const nn::Pass& pass) const {
  tape.computes_in(precision_.compute);
  auto x = chunk_.embedding ? embedded(tape, tokens, pass) : std::move(seen.x);
  if (chunk_.embedding && !seen.x.empty()) x = vision_->put(std::move(x), seen, pass);
  seen = {};
  if (chunk_.embedding) pass.show("embedding", x);
  x = through_layers(std::move(x), pass);
  if (final_norm_) {
    x = final_norm_->forward(x);
    pass.show(final_norm_->name(), x);
  }
  tape.computes_in(DType::float32);
  return x;
}

nn::Pass GptModel::pass_of(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
  must(batch.position_axes() == 1 || o_.has_mrope(), "only mrope has positions of several axes");
  auto pass = training_pass(tape, batch, mode, o_.window());
  pass.longest = seq_length_;
  if (o_.has_longrope() && !tape.threads().idle())
    pass.reach = 1 + *std::max_element(batch.positions.begin(), batch.positions.end());
  if (!context_.whole()) {
    pass.T = pass.S / context_.ranks;
    pass.positions = held_tokens(tape, context_, pass.B, pass.S, batch.positions);
    pass.core = &*shared_attention_;
  }
  if (o_.has_mrope()) pass.angles = angles(tape, pass);
  if (shared_experts_) pass.experts = &*shared_experts_;
  const auto here = tokens_between_layers(pass.S), first = tensor_.cuts_sequence() ? here * tensor_.rank : 0;
  pass.held = nn::HeldTokens::of(context_, first, first + here, pass.S);
  pass.gathered = nn::HeldTokens::of(context_, 0, pass.S / context_.ranks, pass.S);
  return pass;
}

/// The angles of mrope at the positions of `pass`.
nn::TokenAngles GptModel::angles(autograd::Tape& tape, const nn::Pass& pass) const {
  return sectioned_angles(tape, rotary_->tables(tape.threads(), {}), *o_.mrope_section, pass.positions, pass.B, pass.T,
                          o_.mrope_tables_in_fp32 ? DType::float32 : precision_.compute);
}

/// Tokens of a sample of `length` that this rank has between attention and the other layers.
std::int64_t GptModel::tokens_between_layers(std::int64_t length) const {
  return length / context_.ranks / (tensor_.cuts_sequence() ? tensor_.ranks : 1);
}

Model::Boundaries GptModel::boundary(const TokenBatch& batch) const {
  const Boundary one{{batch.samples, tokens_between_layers(batch.seq_length), o_.hidden_size}, precision_.residual};
  return vision_ ? vision_->boundaries(batch, one) : Boundaries{one, one};
}

/// h of all tokens of this context-parallel rank, times output_multiplier, on every rank that has a part of the output
/// layer.
autograd::Var GptModel::before_head(autograd::Var h, const nn::Pass& pass) const {
  if (o_.output_multiplier != 1) h = autograd::scaled(std::move(h), o_.output_multiplier);
  if (tensor_.whole()) return h;
  constexpr auto who = "output layer";
  const auto& group = parallel::tensor_group(pass, tensor_);
  return tensor_.cuts_sequence() ? parallel::gather_from_sequence_region(h, group, who)
                                 : parallel::copy_to_tensor_region(h, group, who);
}

/// Its ranks of a vocabulary-parallel head are kept until the tape is cleared.
OutputLayer GptModel::output_layer(const autograd::Var& h, const nn::Pass& pass) const {
  OutputLayer output{.weight = head(),
                     .bias = head_bias(),
                     .type = precision_.logits,
                     .softcap = o_.output_logit_softcap.value_or(0),
                     .context = context_};
  if (!tensor_.whole())
    output.sharers = new (h.tape().keep(sizeof(parallel::VocabParallelHead)).data())
        parallel::VocabParallelHead(parallel::tensor_group(pass, tensor_), vocabulary_);
  if (output_ && output_->adapters()) output.adapter = output_->adapters()->of_logits(h, pass);
  return output;
}

/// Runs the layers of multi-token prediction on `h`, the decoder's output after its final norm. Layer k (from 0) gets
/// the embedding of the token k + 1 places to the right and predicts the token after that one; positions are not
/// shifted.
void GptModel::predict_further(autograd::Tape& tape, autograd::Var h, const TokenBatch& batch, const ForwardMode& mode,
                               const nn::Pass& pass) const {
  auto tokens = batch.tokens;
  auto labels = batch.labels;
  auto mask = batch.loss_mask;
  const auto weight = o_.mtp_loss_scaling_factor / static_cast<double>(predictions_.size());
  for (std::size_t k = 0; k < predictions_.size(); ++k) {
    tokens = moved_left(tape, tokens, batch.seq_length);
    labels = moved_left(tape, labels, batch.seq_length);
    mask = moved_left(tape, mask, batch.seq_length);
    double counted = 0;
    for (const auto one : mask) counted += static_cast<double>(one);
    tape.computes_in(precision_.compute);
    // Sites of dropout: four for each layer, after those of the embedding.
    const auto site = 4 * static_cast<std::uint64_t>(o_.num_layers + o_.predictions() + 1) + k;
    const auto here = [&]<class T>(std::span<const T> array) {
      return held_tokens(tape, context_, batch.samples, batch.seq_length, array);
    };
    const auto embedding = embedded(tape, here(tokens), pass, site);
    h = predictions_[k]->forward(embedding, h, pass, recomputes_layers(o_, chunk_));
    tape.computes_in(DType::float32);
    const auto seed = mode.objective->sums_over_step() ? mode.share.scale
                      : counted > 0                    ? mode.auxiliary_seed / counted
                                                       : 0;
    const auto before = before_head(h, pass);
    const auto output = output_layer(before, pass);
    const TraceSpan span(TraceKind::operation, "output layer and loss");
    const auto loss = autograd::vocabulary_loss(before, output.weight,
                                                {.labels = here(labels),
                                                 .mask = here(mask),
                                                 .seed = weight * seed,
                                                 .type = output.type,
                                                 .softcap = output.softcap,
                                                 .sharers = output.sharers,
                                                 .bias = output.bias},
                                                output.adapter);
    // The log averages over ranks, but each context-parallel rank has only a part of the sum: multiply by their number.
    const auto own = counted > 0 ? loss.total.sum * context_.ranks / counted : 0;
    if (pass.log) pass.log->add_prediction(static_cast<std::int64_t>(k), own);
  }
}

ChunkResult GptModel::forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                              const ForwardMode& mode) const {
  const auto pass = pass_of(tape, batch, mode);
  const auto here = [&]<class T>(std::span<const T> array) {
    return held_tokens(tape, context_, batch.samples, batch.seq_length, array);
  };
  auto h = hidden(tape, seen(tape, x, batch, mode, pass), here(batch.tokens), pass);
  if (!chunk_.loss) return {std::move(h), {}};
  if (mode.training && !predictions_.empty()) predict_further(tape, h, batch, mode, pass);
  const bool cut = tensor_.cuts_sequence();
  if (score_)
    return {{}, score_loss(h, score_->leaf, {context_, cut ? h.shape()[1] * tensor_.rank : 0, cut}, batch, mode)};
  h = before_head(h, pass);
  const TraceSpan span(TraceKind::operation, "output layer and loss");
  return {{}, objective_loss(h, output_layer(h, pass), batch, mode)};
}

autograd::Var GptModel::logits(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode) const {
  must(context_.whole(), "logits are computed by a rank that has all tokens");
  const auto pass = pass_of(tape, batch, mode);
  return project(hidden(tape, seen(tape, {}, batch, mode, pass), batch.tokens, pass), pass);
}

autograd::Var GptModel::project(const autograd::Var& h, const nn::Pass& pass) const {
  if (score_) return autograd::linear(h, score_->leaf, nullptr);
  const auto before = before_head(h, pass);
  const auto* adapters = output_ ? output_->adapters() : nullptr;
  auto logits =
      adapters ? adapters->forward(before, head(), head_bias(), pass) : autograd::linear(before, head(), head_bias());
  if (!tensor_.whole())
    logits = parallel::gather_from_tensor_region(logits, parallel::tensor_group(pass, tensor_), "logits");
  return o_.output_logit_softcap ? autograd::softcapped(logits, *o_.output_logit_softcap) : logits;
}

nn::KeyValueCache GptModel::make_cache(std::int64_t samples, std::int64_t capacity) const {
  if (score_) throw ConfigError("a model with model_config.score_head generates no tokens: it has no output layer");
  if (o_.multi_latent_attention)
    return {o_.num_layers, samples, capacity, nn::LatentAttention::cached_width(latent_sizes(o_, false)), false};
  return {o_.num_layers, samples, capacity, o_.groups() * o_.channels()};
}

autograd::Var GptModel::next_logits(autograd::Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                                    nn::KeyValueCache& cache, const TokenBatch* given) const {
  if (cache.length() + count > std::min(cache.capacity(), positions_))
    throw ShapeError(text("gpt: ", count, " tokens after ", cache.length(), " do not fit; the cache holds ",
                          cache.capacity(), " and the model has ", positions_, " positions"));
  if (o_.has_longrope()) {
    const auto original = o_.rotary_scaling(positions_).original, before = cache.length();
    cache.remember(tokens, count);
    // Behind the original maximum all keys have other frequencies: the earlier tokens are computed again.
    if (before > 0 && before <= original && before + count > original) {
      const auto all = cache.remembered();
      cache.rewind();
      return next_logits(tape, all, before + count, cache, nullptr);
    }
  }
  auto pass = generating_pass(tape, count, cache, o_.window());
  pass.reach = cache.length() + count;
  if (given) pass.positions = given->positions;
  if (o_.has_mrope()) pass.angles = angles(tape, pass);
  const auto seen = given && vision_ ? vision_->see(tape, {}, *given, {}, 0, count) : VisionFront::Seen{};
  const auto h = hidden(tape, seen, tokens, pass);
  const auto all = tape.read(h);
  cache.advance(count);
  auto last = tape.make({cache.samples(), o_.hidden_size}, false);
  const auto width = static_cast<std::size_t>(o_.hidden_size);
  for (std::int64_t b = 0; b < cache.samples(); ++b) {
    const auto row = static_cast<std::size_t>((b + 1) * count - 1);
    std::copy_n(all.span().begin() + static_cast<std::ptrdiff_t>(row * width), width,
                last.floats().begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b) * width));
  }
  return project(last, pass);
}

}  // namespace tessera::model
