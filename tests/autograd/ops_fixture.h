#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "framework/autograd/tape.h"
#include "tests/autograd/weight.h"

namespace tessera::autograd {

class Ops : public testing::Test {
 protected:
  using Forward = std::function<Var(Tape&, const Var&)>;

  /// The gradients that the tape gives for sum(cotangent * f(x)), against central differences of the forward pass in
  /// float. A step of 1e-2 leaves about 1e-4 of curvature and 1e-5 of rounding relative to values of 1; a wrong term is
  /// off by the size of the gradient.
  void check(const Shape& shape, std::vector<Weight*> weights, const Forward& f) {
    auto x = normal(shape.elements(), 99);
    std::vector<float> cotangent, dx(x.size());
    {
      const auto in = tape.input(Tensor(std::span<float>(x), shape), true);
      const auto y = f(tape, in);
      cotangent = normal(y.value().elements(), 98);
      tape.seed(y, Tensor(std::span<float>(cotangent), y.shape()));
      tape.backward();
      const auto grad = tape.take_grad(in);
      std::copy_n(grad.tensor.floats().begin(), dx.size(), dx.begin());
    }
    tape.clear();
    const auto loss = [&] {
      Tape looking(arena, threads, false);
      const auto y = f(looking, looking.input(Tensor(std::span<float>(x), shape), false));
      double sum = 0;
      for (std::size_t i = 0; i < cotangent.size(); ++i) sum += static_cast<double>(cotangent[i]) * y.floats()[i];
      return sum;
    };
    compare(x, dx, loss, "x");
    for (auto* w : weights) compare(w->value, w->grad, loss, "a weight");
    EXPECT_EQ(arena.in_use(), 0u);
  }

  static void compare(std::span<float> at, std::span<const float> claimed, const std::function<double()>& loss,
                      const char* what) {
    constexpr float step = 1e-2F;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const auto here = at[i];
      at[i] = here + step;
      const auto up = loss();
      at[i] = here - step;
      const auto down = loss();
      at[i] = here;
      const auto measured = (up - down) / (2.0 * step);
      EXPECT_NEAR(claimed[i], measured, 3e-3 * std::max(1.0, std::abs(measured))) << what << " " << i;
    }
  }

  Arena arena;
  kernels::Threads threads{2};
  Tape tape{arena, threads, true};
};

}  // namespace tessera::autograd
