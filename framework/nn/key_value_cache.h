#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/tensor/arena.h"

namespace tessera::nn {

/// The keys and values of all earlier tokens in generation, for every layer: [samples, capacity, width] each, fp32,
/// where width = key/value groups * head dimension. Latent attention has no values, and stores as keys one row of its
/// own width per token (nn/latent_attention.h). Owns its memory.
class KeyValueCache {
 public:
  /// An empty cache. `capacity` is the maximum number of tokens per sample. `has_values` false: only keys are stored.
  KeyValueCache(std::int64_t layers, std::int64_t samples, std::int64_t capacity, std::int64_t width,
                bool has_values = true)
      : samples_(samples),
        capacity_(capacity),
        width_(width),
        arrays_(has_values ? 2 : 1),
        shifts_(static_cast<std::size_t>(samples)),
        begins_(static_cast<std::size_t>(samples)),
        layer_floats_(static_cast<std::size_t>(samples * capacity * width)),
        memory_(static_cast<std::size_t>(layers * arrays_) * layer_floats_ * sizeof(float)) {}

  std::int64_t length() const { return length_; }  ///< number of tokens stored so far of each sample
  std::int64_t capacity() const { return capacity_; }
  std::int64_t width() const { return width_; }  ///< floats per token, in keys and also in values
  std::int64_t samples() const { return samples_; }
  void advance(std::int64_t tokens) { length_ += tokens; }  ///< to be called after all layers have stored the tokens
  /// Notes tokens [samples, count], of a model that must be able to compute all of them again.
  void remember(std::span<const std::int32_t> tokens, std::int64_t count) {
    texts_.resize(static_cast<std::size_t>(samples_));
    for (std::int64_t b = 0; b < samples_; ++b) {
      const auto own = tokens.subspan(static_cast<std::size_t>(b * count), static_cast<std::size_t>(count));
      auto& text = texts_[static_cast<std::size_t>(b)];
      text.insert(text.end(), own.begin(), own.end());
    }
  }
  /// All that was noted, [samples, tokens].
  std::vector<std::int32_t> remembered() const {
    std::vector<std::int32_t> all;
    for (const auto& text : texts_) all.insert(all.end(), text.begin(), text.end());
    return all;
  }
  /// Empties the cache for another text.
  void rewind() {
    length_ = 0;
    texts_.clear();
    shifts_.assign(shifts_.size(), 0);
    begins_.assign(begins_.size(), 0);
  }

  /// What is added to the index of a token in `sample` to get its position, from the next token on. Not 0 behind
  /// images, whose tokens share positions.
  std::int64_t position_shift(std::int64_t sample) const { return shifts_[static_cast<std::size_t>(sample)]; }
  void shift_positions(std::int64_t sample, std::int64_t by) { shifts_[static_cast<std::size_t>(sample)] = by; }

  /// Number of padding tokens before the tokens of `sample`, which no token sees.
  std::int64_t begin(std::int64_t sample) const { return begins_[static_cast<std::size_t>(sample)]; }
  /// Takes the only sample of each of `others`, caches of the same model, as samples in their order. Padding before the
  /// shorter ones lets all end at the same token. This cache is empty and has room for the longest of them. Throws
  /// BugError if one noted tokens to be computed again.
  void join(std::span<const KeyValueCache> others);

  /// The keys and the values of one layer, [samples, capacity, width]; the first length() tokens of a sample are valid.
  std::span<float> keys(std::int64_t layer) { return part(arrays_ * layer); }
  std::span<float> values(std::int64_t layer) { return part(arrays_ * layer + 1); }

 private:
  std::span<float> part(std::int64_t index) {
    return memory_.floats().subspan(static_cast<std::size_t>(index) * layer_floats_, layer_floats_);
  }
  std::int64_t samples_, capacity_, width_, arrays_, length_ = 0;
  std::vector<std::int64_t> shifts_, begins_;     ///< [samples]
  std::vector<std::vector<std::int32_t>> texts_;  ///< [samples] of remember()
  std::size_t layer_floats_;
  Storage memory_;
};

}  // namespace tessera::nn
