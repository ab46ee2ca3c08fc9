#include "framework/model/visibility.h"

#include <algorithm>

#include "framework/nn/key_value_cache.h"

namespace tessera::model {
namespace {

/// Memory for `count` integers that is valid until the tape is cleared.
std::span<std::int32_t> integers(autograd::Tape& tape, std::size_t count) {
  static_assert(sizeof(std::int32_t) == sizeof(float));
  return {reinterpret_cast<std::int32_t*>(tape.keep(count * sizeof(float)).data()), count};
}

std::int32_t narrow(std::int64_t place) { return static_cast<std::int32_t>(place); }

/// The window of each token, limited to its document; a sample has `length` tokens. Iterates from the last token to the
/// first, because the end of a document is known only at its last token.
kernels::VisibleKeys windows(autograd::Tape& tape, std::span<const std::int32_t> first, std::int64_t length,
                             std::array<std::int64_t, 2> window) {
  const auto begin = integers(tape, first.size()), last = integers(tape, first.size());
  for (auto i = static_cast<std::int64_t>(first.size()) - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const auto place = i % length;
    begin[at] = window[0] < 0 ? first[at] : std::max(first[at], narrow(std::max<std::int64_t>(0, place - window[0])));
    // The last token of a document: the next one has another first token.
    const bool ends = place + 1 == length || first[at + 1] != first[at];
    last[at] = ends ? narrow(place) : last[at + 1];
  }
  for (std::size_t i = 0; i < last.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i) % length;
    last[i] = narrow(std::min<std::int64_t>(last[i], place + std::min(window[1], length)));
  }
  return {begin, last};
}

bool is_causal(std::array<std::int64_t, 2> window) { return window[0] < 0 && window[1] == 0; }

/// Intervals of all tokens of the sample, with the attention mask of the batch.
kernels::VisibleKeys whole_samples(autograd::Tape& tape, const TokenBatch& batch) {
  const auto first = integers(tape, batch.tokens.size()), last = integers(tape, batch.tokens.size());
  std::fill(first.begin(), first.end(), 0);
  std::fill(last.begin(), last.end(), narrow(batch.seq_length - 1));
  return {first, last, batch.visible};
}

/// From the beginning of the document to the token itself.
kernels::VisibleKeys causal(autograd::Tape& tape, const TokenBatch& batch) {
  const auto last = integers(tape, batch.tokens.size());
  for (std::size_t i = 0; i < last.size(); ++i) last[i] = narrow(static_cast<std::int64_t>(i) % batch.seq_length);
  return {batch.document_start, last};
}

}  // namespace

nn::Pass training_pass(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode,
                       std::array<std::int64_t, 2> window) {
  nn::Pass pass;
  pass.B = batch.samples;
  pass.T = pass.S = batch.seq_length;
  pass.positions = batch.positions;
  pass.visible = batch.visible.empty() ? causal(tape, batch) : whole_samples(tape, batch);
  pass.windowed = pass.visible;
  if (!is_causal(window)) {
    pass.windowed = windows(tape, pass.visible.first, batch.seq_length, window);
    pass.windowed.among = batch.visible;
  }
  pass.sample_ids = batch.sample_ids;
  pass.seed = mode.seed;
  pass.training = mode.training;
  pass.auxiliary_seed = mode.auxiliary_seed;
  pass.log = mode.log;
  pass.tap = mode.tap;
  pass.assumed = mode.assumed;
  pass.groups = mode.groups;
  return pass;
}

nn::Pass generating_pass(autograd::Tape& tape, std::int64_t count, nn::KeyValueCache& cache,
                         std::array<std::int64_t, 2> window) {
  if (window[1] > 0)
    throw ConfigError(text("generate: window_size[1] is ", window[1],
                           ", so tokens attend to later tokens, which do not exist during generation; give 0"));
  const auto rows = static_cast<std::size_t>(cache.samples() * count);
  const auto first = integers(tape, rows), near = integers(tape, rows), last = integers(tape, rows),
             positions = integers(tape, rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto place = cache.length() + static_cast<std::int64_t>(i) % count;
    const auto sample = static_cast<std::int64_t>(i) / count, begin = cache.begin(sample);
    first[i] = narrow(begin);
    near[i] = narrow(window[0] < 0 ? begin : std::max(begin, place - window[0]));
    last[i] = narrow(place);
    positions[i] = narrow(place + cache.position_shift(sample));
  }
  nn::Pass pass;
  pass.B = cache.samples();
  pass.T = pass.S = count;
  pass.positions = positions;
  pass.visible = {first, last};
  pass.windowed = {near, last};
  pass.cache = &cache;
  return pass;
}

std::span<const std::int32_t> positions_here(autograd::Tape& tape, const nn::Pass& pass, std::int64_t first,
                                             std::int64_t here) {
  if (here == pass.T) return pass.positions;
  const auto count = static_cast<std::size_t>(here);
  const auto out = tape.keep_array<std::int32_t>(static_cast<std::size_t>(pass.B) * count);
  for (std::int64_t b = 0; b < pass.B; ++b) {
    const auto from = pass.positions.subspan(static_cast<std::size_t>(b * pass.T + first), count);
    std::copy(from.begin(), from.end(), out.begin() + b * here);
  }
  return out;
}

}  // namespace tessera::model
