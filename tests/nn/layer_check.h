#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "framework/nn/bound_parameters.h"
#include "framework/nn/flat_parameters.h"
#include "framework/nn/layers.h"
#include "framework/nn/pass.h"
#include "tests/gradcheck.h"

// What the tests of layers share: a layer is compared with plain loops in double, its result and each gradient.

namespace tessera::nn {

/// The input "x" and the parameters by name.
using Numbers = std::map<std::string, std::vector<double>>;

inline std::vector<double> drawn(std::int64_t count, std::mt19937& random, double deviation) {
  std::normal_distribution<float> draw(0, static_cast<float>(deviation));
  std::vector<double> out(static_cast<std::size_t>(count));
  for (auto& x : out) x = draw(random);
  return out;
}

/// Compares `layer` with `expected`: its result, then the gradients of the sum of the result times random numbers.
/// Values in fp32 differ by some 1e-6 from those in double, a wrong term by the size of the value.
class LayerTest : public testing::Test {
 protected:
  static constexpr double tolerance = 1e-4;

  void check(Module& module, const Shape& shape,
             const std::function<autograd::Var(autograd::Tape&, const autograd::Var&)>& layer,
             const std::function<std::vector<double>(const Numbers&)>& expected, bool has_input = true) {
    std::mt19937 random(11);
    const FlatParameters layout(module.parameters());
    std::vector<float> values(static_cast<std::size_t>(layout.elements())), gradients(values.size());
    bind_parameters(layout, values, gradients);
    Numbers numbers;
    for (const auto& range : layout.ranges()) {
      auto& own = numbers[range.parameter->name];
      own = drawn(range.count, random, 0.5);
      std::copy(own.begin(), own.end(), values.begin() + range.first);
    }
    numbers["x"] = drawn(shape.elements(), random, 1);
    std::vector<float> x(numbers["x"].begin(), numbers["x"].end());

    kernels::Threads threads(2);
    Arena arena;
    autograd::Tape tape(arena, threads, true);
    Numbers claimed;
    std::vector<double> weights;
    {
      const auto in = tape.input(Tensor(std::span(x), shape), true);
      const auto y = layer(tape, in);
      const auto wanted = expected(numbers);
      ASSERT_EQ(y.floats().size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i)
        ASSERT_NEAR(y.floats()[i], wanted[i], tolerance) << "result " << i;
      weights = drawn(y.value().elements(), random, 1);
      std::vector<float> seed(weights.begin(), weights.end());
      tape.seed(y, Tensor(std::span(seed), y.shape()));
      tape.backward();
      const auto dx = tape.take_grad(in);
      ASSERT_EQ(dx.empty(), !has_input);
      if (has_input) claimed["x"].assign(dx.tensor.floats().begin(), dx.tensor.floats().end());
    }
    for (const auto& range : layout.ranges())
      if (range.parameter->role != ParameterRole::expert_bias)  // moved by the load of the experts, has no derivative
        claimed[range.parameter->name].assign(gradients.begin() + range.first,
                                              gradients.begin() + range.first + range.count);
    const auto loss_at = [&](const std::string& name, const std::vector<double>& at) {
      auto moved = numbers;
      moved[name] = at;
      const auto y = expected(moved);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
      return sum;
    };
    for (const auto& [name, gradient] : claimed) {
      SCOPED_TRACE("gradient of " + name);
      expect_gradient([&, which = name](const std::vector<double>& at) { return loss_at(which, at); }, numbers.at(name),
                      gradient, 1e-5, tolerance);
    }
  }
};

/// y = x w^T + bias, rows of x of the width of w; without a bias: none.
inline std::vector<double> linear_of(const Numbers& n, const std::string& name, const std::vector<double>& x,
                                     std::size_t out) {
  const auto& w = n.at(name + ".weight");
  const auto in = w.size() / out, rows = x.size() / in;
  const auto bias = n.find(name + ".bias");
  std::vector<double> y(rows * out);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < out; ++o) {
      double sum = bias == n.end() ? 0 : bias->second[o];
      for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y[r * out + o] = sum;
    }
  return y;
}

/// `count` values from `first` on, normalized; an empty bias: none.
inline void normalise(std::vector<double>& x, std::size_t first, std::size_t count, const NormKind& kind,
                      const std::vector<double>& gain, const std::vector<double>& bias) {
  double mean = 0, square = 0;
  for (std::size_t i = 0; i < count; ++i) mean += x[first + i] / static_cast<double>(count);
  if (kind.kind == Normalization::rms_norm) mean = 0;
  for (std::size_t i = 0; i < count; ++i) square += std::pow(x[first + i] - mean, 2) / static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i)
    x[first + i] = (x[first + i] - mean) / std::sqrt(square + kind.eps) * (gain[i] + kind.gain_offset()) +
                   (bias.empty() ? 0 : bias[i]);
}

inline std::vector<double> found(const Numbers& n, const std::string& name) {
  const auto at = n.find(name);
  return at == n.end() ? std::vector<double>() : at->second;
}

inline double act_of(kernels::Activation act, double x) {
  switch (act) {
    case kernels::Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case kernels::Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2)));
    case kernels::Activation::quick_gelu:
      return x / (1 + std::exp(-1.702 * x));
    case kernels::Activation::silu:
      return x / (1 + std::exp(-x));
    case kernels::Activation::relu:
      return std::max(x, 0.0);
    case kernels::Activation::squared_relu:
      return std::pow(std::max(x, 0.0), 2);
    default:
      return x;
  }
}

inline constexpr std::int64_t B = 2, T = 5, hidden_size = 6;

/// Five tokens of two samples; the second sample has two documents. Positions begin anew with each document.
struct Sequences {
  std::vector<std::int32_t> positions = {0, 1, 2, 3, 4, 0, 1, 0, 1, 2};
  std::vector<std::int32_t> first = {0, 0, 0, 0, 0, 0, 0, 2, 2, 2}, last = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
  std::vector<std::int32_t> window = {0, 0, 1, 2, 3, 0, 0, 2, 2, 3};  // two tokens
  std::vector<std::int64_t> ids = {3, 8};
  Pass pass() const {
    Pass pass;
    pass.B = B;
    pass.T = pass.S = T;
    pass.positions = positions;
    pass.visible = {first, last};
    pass.windowed = {window, last};
    pass.sample_ids = ids;
    return pass;
  }
};

struct RotaryCase {
  std::int64_t dim = 0;  ///< 0: none
  kernels::RotaryLayout layout = kernels::RotaryLayout::half;
};

/// Rotates `dim` channels from `at` on in pairs, by the angles of a position.
inline void rotate(double* at, std::int64_t dim, kernels::RotaryLayout layout, std::int32_t position) {
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const bool half = layout == kernels::RotaryLayout::half;
    auto& a = at[half ? i : 2 * i];
    auto& b = at[half ? i + dim / 2 : 2 * i + 1];
    const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    const auto turned = a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + a * std::sin(angle);
    a = turned;
  }
}

}  // namespace tessera::nn
