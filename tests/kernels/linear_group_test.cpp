// Layers that are computed together, as the experts of a layer, give what each gives alone.
#include <gtest/gtest.h>

#include <iostream>
#include <numeric>

#include "framework/kernels/linear.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/typed.h"
#include "tests/sanitized.h"

namespace tessera::kernels {
namespace {

using LinearGroup = ForEveryIsa;
FOR_EVERY_ISA(LinearGroup);

/// Layers of the same widths, whose rows follow one another.
struct Layers {
  std::int64_t in, out;
  std::vector<std::int64_t> rows;
  DType type, result;  ///< of the factors; of y and dx

  std::int64_t all_rows() const { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }
  std::int64_t count() const { return static_cast<std::int64_t>(rows.size()); }
};

std::string story(const Layers& layers, unsigned seed) {
  std::string rows;
  for (const auto r : layers.rows) rows += text(" ", r);
  return text("seed ", seed, ": ", layers.in, " x ", layers.out, ", ", name_of(layers.type), " to ",
              name_of(layers.result), ", rows", rows);
}

/// None, few, odd and many rows; more layers than are computed at once; one layer that has most of the rows.
Layers draw(std::mt19937& random) {
  const auto upto = [&](std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  const bool is_16_bit = random() % 3 != 0;
  Layers layers{.in = 2 * upto(80), .out = 2 * upto(80), .rows = {}, .type = DType::float32, .result = DType::float32};
  if (is_16_bit) layers.type = random() % 2 == 0 ? DType::bfloat16 : DType::float16;
  if (is_16_bit && random() % 2 == 0) layers.result = layers.type;
  const auto count = random() % 8 == 0 ? 64 + upto(20) : upto(12);
  for (std::int64_t i = 0; i < count; ++i) layers.rows.push_back(random() % 6 == 0 ? 0 : upto(60));
  if (random() % 2 == 0) layers.rows[random() % layers.rows.size()] = 500 + upto(900);
  return layers;
}

/// All three products, in one group or each layer alone: y, dx, dw.
std::vector<float> results(Threads& threads, const Layers& layers, unsigned seed, bool grouped) {
  const auto values = [&](std::int64_t size, unsigned which) {
    return random_normal(static_cast<std::size_t>(size), seed + which);
  };
  const auto [in, out] = std::pair(layers.in, layers.out);
  const auto all = layers.all_rows();
  Typed x(layers.type, values(all * in, 1)), dy(layers.type, values(all * out, 2));
  Typed w(layers.type, values(layers.count() * in * out, 3));
  Typed y(layers.result, values(all * out, 4)), dx(layers.result, values(all * in, 5));
  auto dw = values(layers.count() * in * out, 6);
  const auto part = [](const auto& elements, std::int64_t first, std::int64_t count, std::int64_t width) {
    return elements.part(static_cast<std::size_t>(first * width), static_cast<std::size_t>(count * width));
  };
  std::vector<LinearOperands> forward, input, weight;
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < layers.count(); ++i) {
    const auto rows = layers.rows[static_cast<std::size_t>(i)];
    const LinearExtents e{rows, in, out};
    const auto own_w = part(w.elements(), i * out, out, in);
    const auto own_dw = part(MutableElements(dw), i * out, out, in);
    forward.push_back({e, part(x.elements(), row, rows, in), own_w, part(y.elements(), row, rows, out)});
    input.push_back({e, part(dy.elements(), row, rows, out), own_w, part(dx.elements(), row, rows, in), i % 3 == 0});
    weight.push_back({e, part(dy.elements(), row, rows, out), part(x.elements(), row, rows, in), own_dw, i % 2 == 0});
    row += rows;
  }
  if (grouped) {
    linear_group(threads, LinearProduct::forward, forward);
    linear_group(threads, LinearProduct::backward_input, input);
    linear_group(threads, LinearProduct::backward_weight, weight);
  } else {
    for (const auto& l : forward) linear_forward(threads, l.extents, l.left, l.right, {}, l.result);
    for (const auto& l : input) linear_backward_input(threads, l.extents, l.left, l.right, l.result, l.add);
    for (const auto& l : weight)
      linear_backward_weight(threads, l.extents, l.left, l.right.elements,
                             {reinterpret_cast<float*>(l.result.at), l.result.size()}, l.add);
  }
  return joined({y.now(), dx.now(), dw});
}

TEST_P(LinearGroup, EqualsItsLayersAlone) {
  const auto first_seed = std::random_device{}();
  std::cout << "seed " << first_seed << "\n";
  for (unsigned seed = first_seed; seed != first_seed + (sanitized ? 4 : 25); ++seed) {
    std::mt19937 random(seed);
    const auto layers = draw(random);
    Threads threads(2);
    const auto alone = results(threads, layers, seed, false);
    const auto together = on_any_threads([&](Threads& some) { return results(some, layers, seed, true); });
    // The order of every sum is that of the layer alone.
    EXPECT_TRUE(same_bits(together, alone)) << story(layers, seed);
  }
}

TEST_P(LinearGroup, NamesTheOperandThatDoesNotFit) {
  std::vector<float> x(12), w(6), y(8);
  Threads threads(1);
  const LinearOperands fits{{4, 3, 2}, x, w, y}, short_w{{4, 3, 2}, x, std::span(w).first(5), y};
  const std::vector<LinearOperands> layers{fits, short_w};
  EXPECT_THROW(linear_group(threads, LinearProduct::forward, layers), ShapeError);
  EXPECT_THROW(linear_group(threads, LinearProduct::backward_weight, layers), ShapeError);
  linear_group(threads, LinearProduct::forward, {});
}

}  // namespace
}  // namespace tessera::kernels
