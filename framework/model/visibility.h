#pragma once

#include <algorithm>
#include <array>

#include "framework/model/model.h"

namespace tessera::model {

/// The Pass of a training or evaluation batch: each token sees its document up to itself; in layers with sliding-window
/// attention, `window` tokens to the left (-1: all) and right within its document. A mask in the batch replaces
/// document boundaries and causality, but not the window. The index arrays live on `tape`.
nn::Pass training_pass(autograd::Tape& tape, const TokenBatch& batch, const ForwardMode& mode,
                       std::array<std::int64_t, 2> window);

/// Of an array with one element per token, [samples, length], the elements of the tokens that `context` has: the array
/// itself, or a copy that lives on `tape`.
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

/// `all` [samples, length], each sample moved one place to the left, 0 at its end; in memory of the tape.
template <class T>
std::span<const T> moved_left(autograd::Tape& tape, std::span<const T> all, std::int64_t length) {
  const std::span<T> out(reinterpret_cast<T*>(tape.keep(all.size_bytes()).data()), all.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool last = (i + 1) % static_cast<std::size_t>(length) == 0;
    out[i] = last ? T{} : all[i + 1];
  }
  return out;
}

/// The Pass of a generation step: each of `count` new tokens per sample sees all tokens in the cache, the earlier new
/// tokens and itself; in layers with sliding-window attention, those in the window. Throws ConfigError if the window
/// extends to the right, because those tokens do not exist yet.
nn::Pass generating_pass(autograd::Tape& tape, std::int64_t count, nn::KeyValueCache& cache,
                         std::array<std::int64_t, 2> window);

}  // namespace tessera::model
