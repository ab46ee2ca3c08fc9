// Adapters with magnitudes: the norms of rows of W + s B A against dense sums in double, gradients with these norms as
// constants against central differences.
#include "framework/autograd/ops/magnitude.h"

#include "framework/autograd/ops/linear.h"
#include "framework/autograd/ops/residual.h"
#include "framework/kernels/magnitude.h"
#include "framework/kernels/type_conversion.h"
#include "tests/autograd/ops_fixture.h"

namespace tessera::autograd {
namespace {

class MagnitudesTest : public Ops {
 protected:
  static constexpr std::int64_t in = 6, out = 9;

  /// Adapters of the rows 0-1 and 4-5, and of the rows 3 and 8, of a layer with 9 outputs.
  std::array<LowRankFactors, 2> two() {
    return {LowRankFactors{&a.leaf, &b.leaf, 0.5, first_rows}, LowRankFactors{&c.leaf, &d.leaf, 1.5, second_rows}};
  }
  std::array<Magnitudes, 2> magnitudes() { return {Magnitudes{&m.leaf, first_rows}, Magnitudes{&n.leaf, second_rows}}; }

  /// The squared norms of the rows of W + s B A, from the sum itself.
  std::vector<double> dense_squares() {
    std::vector<double> sum(w.value.begin(), w.value.end()), squares(out, 0.0);
    for (const auto& one : two())
      for (const auto& block : one.rows)
        for (std::int64_t row = 0; row < block.count; ++row)
          for (std::int64_t i = 0; i < in; ++i)
            for (std::int64_t k = 0; k < one.a->value.shape()[0]; ++k)
              sum[static_cast<std::size_t>((block.in_layer + row) * in + i)] +=
                  one.scale *
                  one.b->value
                      .floats()[static_cast<std::size_t>((block.in_factor + row) * one.a->value.shape()[0] + k)] *
                  one.a->value.floats()[static_cast<std::size_t>(k * in + i)];
    for (std::size_t i = 0; i < sum.size(); ++i) squares[i / in] += sum[i] * sum[i];
    return squares;
  }
  std::vector<double> squares(const Leaf& weight, std::span<const LowRankFactors> factors) {
    std::vector<double> all(out);
    kernels::row_squares(threads, weight.weight(), weight.value.shape()[1], all);
    add_low_rank_squares(tape, weight, false, factors, all);
    return all;
  }
  Memory constant_norms(Tape& on) const {
    auto memory = on.scratch(out);
    std::copy(norms.begin(), norms.end(), Tape::floats(memory).begin());
    return memory;
  }
  kernels::DropoutMask mask(double rate) const { return {RandomKey(1, Purpose::adapter_dropout, 1), samples, rate}; }

  const std::vector<kernels::RowBlock> first_rows = {{0, 0, 2}, {4, 2, 2}}, second_rows = {{3, 0, 1}, {8, 1, 1}};
  const std::vector<std::int64_t> samples = {3, 8};
  const std::vector<float> norms = {1, 2, 0.5F, 3, 1.5F, 0.75F, 1, 2, 1.25F};
  Weight w{{out, in}, 1}, a{{2, in}, 2}, b{{4, 2}, 3}, c{{3, in}, 4}, d{{2, 3}, 5}, m{{4}, 6}, n{{2}, 7},
      bias{{out}, 8};
};

TEST_F(MagnitudesTest, AreDividedByTheNormsOfTheSumThatIsNotMade) {
  const auto factors = two();
  const auto expected = dense_squares(), given = squares(w.leaf, factors);
  for (std::size_t row = 0; row < out; ++row) EXPECT_NEAR(given[row], expected[row], 1e-5 * expected[row]) << row;
}

TEST_F(MagnitudesTest, HaveNormsThatAddUpOverColumns) {
  const auto expected = dense_squares();
  std::vector<double> sum(out, 0.0);
  for (const std::int64_t first : {0, 2}) {
    const std::int64_t width = first == 0 ? 2 : 4;
    const auto columns = [&](const Weight& whole) {
      Weight part({whole.leaf.value.shape()[0], width}, 1);
      for (std::int64_t row = 0; row < whole.leaf.value.shape()[0]; ++row)
        std::copy_n(whole.value.begin() + row * in + first, width, part.value.begin() + row * width);
      return part.value;
    };
    Weight part_w({out, width}, 1), part_a({2, width}, 1), part_c({3, width}, 1);
    std::ranges::copy(columns(w), part_w.value.begin());
    std::ranges::copy(columns(a), part_a.value.begin());
    std::ranges::copy(columns(c), part_c.value.begin());
    const std::array<LowRankFactors, 2> factors = {LowRankFactors{&part_a.leaf, &b.leaf, 0.5, first_rows},
                                                   LowRankFactors{&part_c.leaf, &d.leaf, 1.5, second_rows}};
    const auto own = squares(part_w.leaf, factors);
    for (std::size_t row = 0; row < out; ++row) sum[row] += own[row];
  }
  for (std::size_t row = 0; row < out; ++row) EXPECT_NEAR(sum[row], expected[row], 1e-5 * expected[row]) << row;
}

/// Numbers in a storage type that is no DType.
class Quarters final : public PackedArray {
 public:
  explicit Quarters(std::vector<float> values) : values_(std::move(values)) {}
  std::string_view storage_type() const override { return "quarters"; }
  std::int64_t size() const override { return static_cast<std::int64_t>(values_.size()); }
  std::int64_t bytes() const override { return 4 * size(); }
  void unpack(std::int64_t first, std::span<float> to) const override {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = values_[static_cast<std::size_t>(first) + i] / 4;
  }

 private:
  std::vector<float> values_;
};

TEST_F(MagnitudesTest, HaveNormsOfWeightsAsTheyAreStored) {
  // Rows 0-3 in bfloat16, the others packed; w has their values.
  std::vector<bfloat16> half(4 * in);
  std::vector<float> fours;
  for (std::size_t i = 0; i < w.value.size(); ++i) {
    if (i < half.size()) half[i] = bfloat16(w.value[i]), w.value[i] = static_cast<float>(half[i]);
    if (i >= half.size()) fours.push_back(4 * w.value[i]);
  }
  StoredMatrix matrix{.width = in, .blocks = {}, .files = {}};
  const Tensor plain(std::as_writable_bytes(std::span(half)), DType::bfloat16, {4, in});
  matrix.blocks.push_back({.rows = 4, .first = 0, .stride = in, .plain = plain, .packed = nullptr});
  matrix.blocks.push_back(
      {.rows = 5, .first = 0, .stride = in, .plain = {}, .packed = std::make_shared<Quarters>(fours)});
  Leaf stored;
  stored.value = Tensor::without_elements(DType::float32, {out, in});
  stored.stored = std::make_shared<const StoredMatrix>(std::move(matrix));
  const auto factors = two();
  EXPECT_EQ(squares(stored, factors), squares(w.leaf, factors));
}

TEST_F(MagnitudesTest, HaveTheirGradientsWhileNormsAreConstant) {
  for (const bool has_bias : {false, true}) {
    for (auto* one : {&w, &a, &b, &c, &d, &m, &n, &bias}) std::ranges::fill(one->grad, 0.0F);
    std::vector<Weight*> all = {&w, &a, &b, &c, &d, &m, &n};
    if (has_bias) all.push_back(&bias);
    check({2, 3, in}, all, [&, factors = two(), scales = magnitudes()](Tape& on, const Var& x) {
      return scale_by_magnitudes(add_low_rank(linear(x, w.leaf, nullptr), x, factors, {}), scales, constant_norms(on),
                                 has_bias ? &bias.leaf : nullptr);
    });
  }
}

TEST_F(MagnitudesTest, LeaveOtherOutputsAsTheyAre) {
  auto x = normal(2 * out, 9);
  const auto input = tape.input(Tensor(std::span<float>(x), {2, out}), false);
  const auto scales = magnitudes();
  const auto y = scale_by_magnitudes(input, scales, constant_norms(tape), &bias.leaf);
  const std::vector<double> factors = {m.value[0] / norms[0], m.value[1] / norms[1], 1, n.value[0] / norms[3],
                                       m.value[2] / norms[4], m.value[3] / norms[5], 1, 1,
                                       n.value[1] / norms[8]};
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(y.floats()[i], x[i] * factors[i % out] + bias.value[i % out], 1e-5) << i;
}

TEST_F(MagnitudesTest, SplitInputsByDropoutIntoTwoPartsWithTheirGradients) {
  auto x = normal(2 * 3 * in, 9);
  {
    const auto input = tape.input(Tensor(std::span<float>(x), {2, 3, in}), false);
    const auto [kept, rest] = split_by_dropout(input, mask(0.4));
    std::size_t dropped = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool drops = kept.floats()[i] == 0;
      dropped += drops ? 1 : 0;
      EXPECT_NEAR(kept.floats()[i], drops ? 0 : x[i] / 0.6F, 1e-5) << i;
      EXPECT_NEAR(rest.floats()[i], x[i] - kept.floats()[i], 1e-6) << i;
    }
    EXPECT_TRUE(dropped > 4 && dropped < x.size() - 4) << dropped;
  }
  tape.clear();
  const auto plain = mask(0);
  check({2, 3, in}, {&w, &a}, [&](Tape&, const Var& from) {
    // The input also has another use, so that its gradient is added to.
    const auto parts = split_by_dropout(from, mask(0.4));
    auto y = dropout_add(linear(parts.first, w.leaf, nullptr), linear(parts.second, w.leaf, nullptr), plain);
    y = dropout_add(std::move(y), linear(parts.first, w.leaf, nullptr), plain);
    return dropout_add(std::move(y), linear(from, w.leaf, nullptr), plain);
  });
}

TEST_F(MagnitudesTest, GiveTheSameBitsForAnyNumberOfThreads) {
  auto x = normal(2 * 70 * out, 9), dy = normal(2 * 70 * out, 10);
  std::vector<std::vector<float>> seen;
  for (const int count : {1, 2, 3}) {
    for (auto* one : {&m, &n, &bias}) std::ranges::fill(one->grad, 0.0F);
    kernels::Threads some(count);
    Tape own(arena, some, true);
    auto& all = seen.emplace_back();
    {
      const auto scales = magnitudes();
      const auto input = own.input(Tensor(std::span<float>(x), {2, 70, out}), true);
      const auto y = scale_by_magnitudes(input, scales, constant_norms(own), &bias.leaf);
      all.assign(y.floats().begin(), y.floats().end());
      own.seed(y, Tensor(std::span<float>(dy), y.shape()));
      own.backward();
      const auto dx = own.take_grad(input);
      all.insert(all.end(), dx.tensor.floats().begin(), dx.tensor.floats().end());
    }
    for (const auto* one : {&m, &n, &bias}) all.insert(all.end(), one->grad.begin(), one->grad.end());
    EXPECT_EQ(all, seen.front()) << count;
  }
}

TEST_F(MagnitudesTest, RefuseOtherExtents) {
  auto x = normal(2 * 4, 9);
  const auto input = tape.input(Tensor(std::span<float>(x), {2, 4}), false);
  const auto scales = magnitudes();
  EXPECT_THROW(scale_by_magnitudes(input, scales, constant_norms(tape), nullptr), ShapeError);
}

}  // namespace
}  // namespace tessera::autograd
