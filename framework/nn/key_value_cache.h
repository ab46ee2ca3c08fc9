#pragma once

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
        layer_floats_(static_cast<std::size_t>(samples * capacity * width)),
        memory_(static_cast<std::size_t>(layers * arrays_) * layer_floats_ * sizeof(float)) {}

  std::int64_t length() const { return length_; }  ///< number of tokens stored so far of each sample
  std::int64_t capacity() const { return capacity_; }
  std::int64_t width() const { return width_; }  ///< floats per token, in keys and also in values
  std::int64_t samples() const { return samples_; }
  void advance(std::int64_t tokens) { length_ += tokens; }  ///< to be called after all layers have stored the tokens
  /// Empties the cache for another text.
  void rewind() {
    length_ = 0;
    shifts_.assign(shifts_.size(), 0);
  }

  /// What is added to the index of a token in `sample` to get its position, from the next token on. Not 0 behind
  /// images, whose tokens share positions.
  std::int64_t position_shift(std::int64_t sample) const { return shifts_[static_cast<std::size_t>(sample)]; }
  void shift_positions(std::int64_t sample, std::int64_t by) { shifts_[static_cast<std::size_t>(sample)] = by; }

  /// The keys and the values of one layer, [samples, capacity, width]; the first length() tokens of a sample are valid.
  std::span<float> keys(std::int64_t layer) { return part(arrays_ * layer); }
  std::span<float> values(std::int64_t layer) { return part(arrays_ * layer + 1); }

 private:
  std::span<float> part(std::int64_t index) {
    return memory_.floats().subspan(static_cast<std::size_t>(index) * layer_floats_, layer_floats_);
  }
  std::int64_t samples_, capacity_, width_, arrays_, length_ = 0;
  std::vector<std::int64_t> shifts_;  ///< [samples]
  std::size_t layer_floats_;
  Storage memory_;
};

}  // namespace tessera::nn
