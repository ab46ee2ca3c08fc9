#include "framework/nn/key_value_cache.h"

#include <algorithm>

#include "framework/base/error.h"

namespace tessera::nn {

void KeyValueCache::join(std::span<const KeyValueCache> others) {
  must(std::ssize(others) == samples_ && length_ == 0, "an empty cache takes a sample for each of its own");
  for (const auto& other : others) length_ = std::max(length_, other.length_);
  must(length_ <= capacity_, "the joined cache has room for the longest sample");
  const auto arrays = static_cast<std::int64_t>(memory_.floats().size() / layer_floats_);
  for (std::int64_t b = 0; b < samples_; ++b) {
    const auto& other = others[static_cast<std::size_t>(b)];
    must(other.samples_ == 1 && other.width_ == width_ && other.texts_.empty(), "a sample of the same model is joined");
    const auto before = length_ - other.length_;
    begins_[static_cast<std::size_t>(b)] = before;
    shifts_[static_cast<std::size_t>(b)] = other.shifts_[0] - before;
    for (std::int64_t array = 0; array < arrays; ++array) {
      const auto from = other.memory_.floats().subspan(static_cast<std::size_t>(array) * other.layer_floats_);
      const auto to = part(array).subspan(static_cast<std::size_t>((b * capacity_ + before) * width_));
      std::copy_n(from.begin(), other.length_ * width_, to.begin());
    }
  }
}

}  // namespace tessera::nn
