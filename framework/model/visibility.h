#pragma once

#include <algorithm>
#include <array>

#include "framework/model/model.h"

namespace tessera::model {

/// The Pass of a training or evaluation batch. Each token sees the tokens of its document up to itself; in layers with
/// sliding-window attention it sees window[0] tokens to its left (-1: all) and window[1] tokens to its right within its
/// document. An attention mask in the batch replaces document boundaries and causality, but not the window. The index
/// arrays live in memory of `tape`; the pass also refers to `batch`.
nn::Pass training_pass(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode,
                       std::array<std::int64_t, 2> window);

/// Selects from an array with one element per token, [samples, length], the elements of the tokens that the rank
/// `context` has. Returns the array itself if there is no context parallelism, else a copy in memory of `tape`.
template <class T>
std::span<const T> held_tokens(autograd::Tape& tape, const nn::ContextRank& context, std::int64_t samples,
                               std::int64_t length, std::span<const T> array) {
  if (context.whole()) return array;
  const auto here = length / context.ranks, run = length / context.parts();
  const auto bytes = tape.keep(static_cast<std::size_t>(samples * here) * sizeof(T));
  const std::span<T> out(reinterpret_cast<T*>(bytes.data()), static_cast<std::size_t>(samples * here));
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t t = 0; t < here; t += run)
      std::copy_n(array.begin() + b * length + context.index(t, length), run, out.begin() + b * here + t);
  return out;
}

/// The positions of the tokens [first, first + here) of each sample; pass.positions has T tokens of each sample. In
/// memory of `tape`, unless these are all.
std::span<const std::int32_t> positions_here(autograd::Tape& tape, const nn::Pass& pass, std::int64_t first,
                                             std::int64_t here);

/// A copy of `all` [samples, length] with the elements of each sample shifted one place to the left and 0 at its end;
/// in memory of `tape`.
template <class T>
std::span<const T> moved_left(autograd::Tape& tape, std::span<const T> all, std::int64_t length) {
  const std::span<T> out(reinterpret_cast<T*>(tape.keep(all.size_bytes()).data()), all.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool last = (i + 1) % static_cast<std::size_t>(length) == 0;
    out[i] = last ? T{} : all[i + 1];
  }
  return out;
}

/// The Pass of a generation step. Each of the `count` new tokens per sample sees all tokens in the cache, the earlier
/// new tokens and itself; in layers with sliding-window attention it sees only those in its window. The index arrays
/// live in memory of `tape`. Throws ConfigError if the window extends to the right, because those tokens do not exist
/// yet.
nn::Pass generating_pass(autograd::Tape& tape, std::int64_t count, nn::KeyValueCache& cache,
                         std::array<std::int64_t, 2> window);

}  // namespace tessera::model
