#pragma once

#include <gtest/gtest.h>

#include <random>
#include <span>
#include <vector>

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// Small whole numbers: operations that copy and add them are exact.
inline std::vector<float> integers(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> out(static_cast<std::size_t>(n));
  for (auto& v : out) v = static_cast<float>(static_cast<int>(random() % 17) - 8);
  return out;
}

/// Tests of operations that copy and add.
class ExactOps : public testing::Test {
 protected:
  Var input(std::vector<float>& of, const Shape& shape) {
    return tape.input(Tensor(std::span<float>(of), shape), true);
  }
  std::vector<float> grad(const Var& of) {
    const auto g = tape.take_grad(of);
    return {g.tensor.floats().begin(), g.tensor.floats().end()};
  }
  void run(const Var& y, std::vector<float>& dy) {
    tape.seed(y, Tensor(std::span<float>(dy), y.shape()));
    tape.backward();
  }

  Arena arena;
  kernels::Threads threads{2};
  Tape tape{arena, threads, true};
};

}  // namespace tessera::autograd
