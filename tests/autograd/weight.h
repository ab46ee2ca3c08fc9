#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// `n` normally distributed numbers.
inline std::vector<float> normal(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> out(static_cast<std::size_t>(n));
  for (auto& v : out) v = draw(random);
  return out;
}

/// A parameter with memory of its own.
struct Weight {
  Weight(const Shape& shape, unsigned seed) : value(normal(shape.elements(), seed)), grad(value.size(), 0.0F) {
    leaf.value = Tensor(std::span<float>(value), shape);
    leaf.bind_grad(Tensor(std::span<float>(grad), shape));
  }
  std::vector<float> value, grad;
  Leaf leaf;
};

}  // namespace tessera::autograd
