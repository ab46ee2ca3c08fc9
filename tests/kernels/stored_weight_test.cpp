// Weights that lie in blocks of rows, in any type, give the bits of dense elements.
#include <gtest/gtest.h>

#include <memory>

#include "framework/kernels/embedding.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/weight.h"
#include "tests/drawn_seed.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/typed.h"

namespace tessera::kernels {
namespace {

using StoredWeight = ForEveryIsa;
FOR_EVERY_ISA(StoredWeight);

/// Elements that only unpack() reads.
class Halves final : public PackedArray {
 public:
  explicit Halves(std::vector<float> values) : values_(std::move(values)) {}
  std::string_view storage_type() const override { return "halves"; }
  std::int64_t size() const override { return static_cast<std::int64_t>(values_.size()); }
  std::int64_t bytes() const override { return 4 * size(); }
  void unpack(std::int64_t first, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = values_[static_cast<std::size_t>(first) + i] / 2;
  }

 private:
  std::vector<float> values_;
};

/// A stored matrix of blocks of a few rows, each a box of columns of a wider array of its own type, and the same
/// elements as floats.
struct Stored {
  StoredMatrix matrix;
  std::vector<float> floats;
  std::vector<std::unique_ptr<Typed>> memory;

  Stored(std::int64_t rows, std::int64_t width, std::mt19937& random) {
    const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    matrix.width = width;
    const bool whole = below(4) == 0;
    for (std::int64_t row = 0; row < rows;) {
      const auto count = whole ? rows : std::min(rows - row, 1 + below(70));
      const auto stride = width + below(3), before = below(2) * stride + below(stride - width + 1);
      auto values = random_normal(static_cast<std::size_t>(before + count * stride), static_cast<unsigned>(random()));
      StoredRows block{.rows = count, .first = before, .stride = stride, .plain = {}, .packed = nullptr};
      const std::vector types = {DType::float32, DType::bfloat16, DType::float16};
      const auto kind = static_cast<std::size_t>(below(4));
      if (kind < types.size()) {
        auto& typed = *memory.emplace_back(std::make_unique<Typed>(types[kind], values));
        const auto elements = typed.elements();
        block.plain = Tensor(std::span(elements.at, elements.size() * size_of(elements.type)), elements.type,
                             {static_cast<std::int64_t>(elements.size())});
        values = typed.now();
      } else {
        block.packed = std::make_shared<Halves>(values);
        for (auto& value : values) value /= 2;
      }
      for (std::int64_t r = 0; r < count; ++r) {
        const auto from = values.begin() + before + r * stride;
        floats.insert(floats.end(), from, from + width);
      }
      matrix.blocks.push_back(std::move(block));
      row += count;
    }
  }
};

std::vector<float> products(Threads& threads, LinearExtents e, const Weight& w, DType type, unsigned seed) {
  const auto values = [&](std::int64_t size, unsigned which) {
    return random_normal(static_cast<std::size_t>(size), seed + which);
  };
  Typed x(type, values(e.rows * e.in, 1)), dy(type, values(e.rows * e.out, 2));
  const auto bias = values(e.out, 3);
  Typed y(type, values(e.rows * e.out, 4)), before(type, values(e.rows * e.out, 4)),
      act(type, values(e.rows * e.out, 4));
  Typed dx(type, values(e.rows * e.in, 5)), sum(type, values(e.rows * e.in, 5));
  Typed in_double(DType::float32, values(e.rows * e.out, 6)), of_group(type, values(e.rows * e.in, 5));
  linear_forward(threads, e, x.elements(), w, bias, y.elements());
  linear_activation_forward(threads, e, Activation::silu, x.elements(), w, bias, before.elements(), act.elements());
  linear_backward_input(threads, e, dy.elements(), w, dx.elements(), false);
  linear_backward_input(threads, e, dy.elements(), w, sum.elements(), true);
  linear_forward_in_double(threads, e, x.elements(), w, in_double.elements());
  const LinearOperands layer{e, dy.elements(), w, of_group.elements()};
  linear_group(threads, LinearProduct::backward_input, std::span(&layer, 1));
  return joined({y.now(), before.now(), act.now(), dx.now(), sum.now(), in_double.now(), of_group.now()});
}

TEST_P(StoredWeight, GivesTheBitsOfDenseElements) {
  const auto seed = drawn_seed();
  std::mt19937 random(seed);
  for (int drawn = 0; drawn < 30; ++drawn) {
    const auto upto = [&](std::int64_t most) {
      return 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
    };
    const LinearExtents e{random() % 3 == 0 ? upto(32) : 32 + upto(90), 1 + upto(drawn % 5 == 0 ? 700 : 120),
                          upto(drawn % 5 == 1 ? 900 : 150)};
    const auto type = random() % 2 == 0 ? DType::float32 : DType::bfloat16;
    const Stored stored(e.out, e.in, random);
    SCOPED_TRACE(text("seed ", seed, ", case ", drawn, ": ", e.rows, " x ", e.in, " x ", e.out, " in ", name_of(type),
                      ", ", stored.matrix.blocks.size(), " blocks"));
    Typed dense(type, stored.floats);
    const auto case_seed = static_cast<unsigned>(random());
    Threads alone(1);
    const auto expected = products(alone, e, dense.elements(), type, case_seed);
    const auto got = on_any_threads([&](Threads& threads) {
      return products(threads, e, {stored.matrix, type}, type, case_seed);
    });
    ASSERT_TRUE(same_bits(got, expected));
  }
}

TEST_P(StoredWeight, IsATableOfAnEmbedding) {
  std::mt19937 random(drawn_seed());
  for (const auto type : {DType::float32, DType::bfloat16}) {
    const Stored stored(90, 13, random);
    Typed dense(type, stored.floats);
    const Tensor all(std::span(dense.elements().at, dense.elements().size() * size_of(type)), type, {90, 13});
    const std::vector<std::int32_t> ids = {0, 89, 3, 3, 47, 88};
    const auto rows = [&](const EmbeddingTable& table) {
      Threads threads(2);
      std::vector<float> y(ids.size() * 13, 7), part = y;
      embedding_forward(threads, ids, table, y, false);
      embedding_forward(threads, ids, table, y, true);
      embedding_part_forward(threads, 200, 30, ids, table, part);
      return joined({y, part});
    };
    EXPECT_TRUE(same_bits(rows({{stored.matrix, type}, 13}), rows(all)));
  }
}

TEST(StoredMatrix, HasNoElementsInMemory) {
  const auto tensor = Tensor::without_elements(DType::bfloat16, {3, 4});
  EXPECT_EQ(tensor.shape(), (Shape{3, 4}));
  EXPECT_EQ(tensor.dtype(), DType::bfloat16);
  EXPECT_THROW((void)tensor.raw(), BugError);
  EXPECT_THROW((void)tensor.as<bfloat16>(), BugError);
}

}  // namespace
}  // namespace tessera::kernels
