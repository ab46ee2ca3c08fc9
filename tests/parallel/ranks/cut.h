#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/nn/bound_parameters.h"
#include "framework/nn/flat_parameters.h"
#include "framework/parallel/model_parallel.h"
#include "framework/parallel/tensor_parallel.h"
#include "tests/ranks/ranks.h"

namespace tessera::parallel {

/// A tape with memory, and a way to ask for gradients.
struct Work {
  kernels::Threads threads{1};
  Arena arena;
  autograd::Tape tape{arena, threads, true};

  autograd::Var input(std::vector<float>& values, const Shape& shape) {
    return tape.input(Tensor(std::span(values), shape), true);
  }
  void seed(const autograd::Var& y, std::vector<float> dy) { tape.seed(y, Tensor(std::span(dy), y.shape())); }
  void backward(const autograd::Var& y, const std::vector<float>& dy) {
    seed(y, dy);
    tape.backward();
  }
  /// The gradient of `x` when that of `y` is `dy`.
  std::vector<float> backward(const autograd::Var& y, const std::vector<float>& dy, const autograd::Var& x) {
    seed(y, dy);
    return backward(x);
  }
  /// The same for what was seeded.
  std::vector<float> backward(const autograd::Var& x) {
    tape.backward();
    const auto dx = tape.take_grad(x);
    const auto floats = dx.tensor.floats();
    return {floats.begin(), floats.end()};
  }
};

inline std::vector<float> values_of(const autograd::Var& y) { return {y.floats().begin(), y.floats().end()}; }

/// Numbers that look drawn, the same on every rank: in [-1, 1), or whole ones in [-8, 8) for sums without rounding.
inline std::vector<float> made(std::int64_t count, int which, bool whole = false) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    auto h = static_cast<std::uint32_t>(i * 2654435761U + static_cast<unsigned>(which) * 40503U + 12345U);
    h = (h ^ (h >> 15)) * 2246822519U;
    h ^= h >> 13;
    out[i] = whole ? static_cast<float>(h % 16) - 8 : static_cast<float>(h % 20000) / 10000.F - 1;
  }
  return out;
}

/// [outer, extent, inner] cut along the middle: part `index` of `count`.
inline std::vector<float> part_of(const std::vector<float>& whole, const Shape& shape, std::size_t dim, int index,
                                  int count) {
  std::size_t inner = 1, extent = static_cast<std::size_t>(shape[dim]), n = static_cast<std::size_t>(count);
  for (std::size_t k = dim + 1; k < shape.rank(); ++k) inner *= static_cast<std::size_t>(shape[k]);
  std::vector<float> out;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto place = i / inner % extent;
    if (place / (extent / n) == static_cast<std::size_t>(index)) out.push_back(whole[i]);
  }
  return out;
}

/// Sums of the same numbers in another order differ by some roundings of the largest.
inline void expect_near(const std::vector<float>& got, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  float most = 1e-3F;
  for (const auto value : expected) most = std::max(most, std::abs(value));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], 4e-6F * most) << what << ", element " << i;
}

/// A module with memory for its parameters, which begin as every layout's do.
class Weights {
 public:
  explicit Weights(const std::unique_ptr<nn::GatheredLinear>& module) : Weights(*module) {}
  explicit Weights(nn::Module& module) : layout_(module.parameters()) {
    values_.resize(static_cast<std::size_t>(layout_.elements()));
    grads_.resize(values_.size());
    bind_parameters(layout_, values_, grads_);
    kernels::Threads threads(1);
    initialise_parameters(layout_, threads, 7, values_);
  }
  const nn::FlatParameters& layout() const { return layout_; }
  std::span<float> grad(const nn::ParameterRange& run) {
    return std::span(grads_).subspan(static_cast<std::size_t>(run.first), static_cast<std::size_t>(run.count));
  }

  /// The gradients here are those of the same elements of the unsplit module.
  void expect_part_of(Weights& whole) {
    for (const auto& run : layout_.ranges()) {
      const auto& runs = whole.layout_.ranges();
      const auto same = std::find_if(runs.begin(), runs.end(),
                                     [&](const auto& other) { return other.parameter->name == run.parameter->name; });
      ASSERT_NE(same, runs.end()) << run.parameter->name;
      const auto all = whole.grad(*same);
      std::vector<float> expected;
      for (const auto& range : nn::global_ranges_of(*run.parameter))
        std::copy_n(all.begin() + range.first, range.count, std::back_inserter(expected));
      const auto here = grad(run);
      expect_near({here.begin(), here.end()}, expected, "gradient of " + run.parameter->name);
    }
  }

 private:
  nn::FlatParameters layout_;
  std::vector<float> values_, grads_;
};

/// A layer with its weights and its place of work.
template <class Layer>
struct Bench {
  template <class... Args>
  explicit Bench(Args&&... args) : layer(std::forward<Args>(args)...), weights(layer) {}
  Layer layer;
  Weights weights;
  Work work;
};

/// What processes have parts of is summed over whom the parameters name.
inline void sum_shared(Weights& weights, const ProcessGroups& groups) {
  for (const auto& run : weights.layout().ranges())
    for (const auto& shared : run.parameter->shared) {
      const auto part = weights.grad(run).subspan(static_cast<std::size_t>(shared.elements.first),
                                                  static_cast<std::size_t>(shared.elements.count));
      (shared.with == nn::GradientSharers::tensor ? groups.tensor : groups.head_copies).all_reduce(part, "shared");
    }
}

}  // namespace tessera::parallel
