#include "framework/nn/rotary_embedding.h"

#include <algorithm>
#include <cmath>

namespace tessera::nn {
namespace {

constexpr double full_turn = 6.283185307179586;

/// The frequency of one pair under llama3 scaling.
double bent_as_llama3(double frequency, const RotaryScaling& s) {
  const double length = full_turn / frequency, original = static_cast<double>(s.original);
  if (length < original / s.high) return frequency;
  if (length > original / s.low) return frequency / s.factor;
  const double smooth = (original / length - s.low) / (s.high - s.low);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

/// The index i, as a real number, at which pair i makes `turns` rotations over the original positions.
double pair_of(double turns, std::int64_t rotary_dim, double base, const RotaryScaling& s) {
  return static_cast<double>(rotary_dim) * std::log(static_cast<double>(s.original) / (turns * full_turn)) /
         (2 * std::log(base));
}

/// The frequency of one pair under yarn scaling. `+ 0.001` avoids a division by 0, as in the reference implementation.
double bent_as_yarn(double frequency, std::int64_t pair, std::int64_t rotary_dim, double base, const RotaryScaling& s) {
  const double fast = pair_of(s.beta_fast, rotary_dim, base, s), slow = pair_of(s.beta_slow, rotary_dim, base, s);
  const double first = std::max(s.rounds ? std::floor(fast) : fast, 0.0);
  double last = std::min(s.rounds ? std::ceil(slow) : slow, static_cast<double>(rotary_dim - 1));
  if (last == first) last += 0.001;
  const double slowed = std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
  return frequency / s.factor * slowed + frequency * (1 - slowed);
}

}  // namespace

std::vector<double> rotary_frequencies(std::int64_t rotary_dim, double base, const RotaryScaling& scaling) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    auto frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    if (scaling.kind == RotaryScaling::Kind::llama3) frequency = bent_as_llama3(frequency, scaling);
    if (scaling.kind == RotaryScaling::Kind::yarn) frequency = bent_as_yarn(frequency, i, rotary_dim, base, scaling);
    if (scaling.kind == RotaryScaling::Kind::longrope) frequency /= scaling.divisors.at(static_cast<std::size_t>(i));
    all.push_back(frequency / scaling.positions_per_step);
  }
  return all;
}

RotaryEmbedding::RotaryEmbedding(std::int64_t rotary_dim, double base, kernels::RotaryLayout layout,
                                 std::int64_t positions, const RotaryScaling& scaling)
    : dim_(rotary_dim), base_(base), layout_(layout), positions_(positions), scaling_(scaling) {}

void RotaryEmbedding::make(kernels::Threads& threads) const {
  const auto frequencies = rotary_frequencies(dim_, base_, scaling_);
  const auto pairs = frequencies.size();
  const bool scales = scaling_.kind == RotaryScaling::Kind::yarn || scaling_.kind == RotaryScaling::Kind::longrope;
  const double by = scales ? scaling_.attention_factor : 1;
  const auto positions = static_cast<std::size_t>(positions_);
  cosine_ = Storage(positions * pairs * sizeof(float));
  sine_ = Storage(positions * pairs * sizeof(float));
  const auto cosine = cosine_.floats(), sine = sine_.floats();
  threads.parallel_for(positions, 64, [&](std::size_t first, std::size_t last) {
    for (auto at = first * pairs; at < last * pairs; ++at) {
      const double angle = static_cast<double>(at / pairs) * frequencies[at % pairs];
      cosine[at] = static_cast<float>(by * std::cos(angle));
      sine[at] = static_cast<float>(by * std::sin(angle));
    }
  });
}

}  // namespace tessera::nn
