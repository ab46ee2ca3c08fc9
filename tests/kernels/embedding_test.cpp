#include "framework/kernels/embedding.h"

#include "framework/base/error.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

Tensor rows_of(std::vector<float>& table, std::int64_t width) {
  return {std::span<float>(table), {static_cast<std::int64_t>(table.size()) / width, width}};
}

using Embeddings = ForEveryIsa;
FOR_EVERY_ISA(Embeddings);

TEST_P(Embeddings, RowsOfTheTableAreTakenAndAdded) {
  const std::vector<std::int32_t> ids = {4, 0, 4, 2, 1};
  for (const std::int64_t width : {1, 7, 65, 200}) {
    const auto n = static_cast<std::size_t>(width);
    auto table = random_normal(5 * n, 1);
    const auto old = random_normal(ids.size() * n, 2);
    std::vector<double> taken, added;
    for (std::size_t r = 0; r < ids.size(); ++r)
      for (std::size_t i = 0; i < n; ++i) {
        taken.push_back(table[static_cast<std::size_t>(ids[r]) * n + i]);
        added.push_back(taken.back() + old[r * n + i]);
      }
    const auto all = on_any_threads([&](Threads& threads) {
      std::vector<float> y(ids.size() * n), sum = old;
      embedding_forward(threads, ids, rows_of(table, width), y, false);
      embedding_forward(threads, ids, rows_of(table, width), sum, true);
      return joined({y, sum});
    });
    EXPECT_CLOSE(std::span<const float>(all).first(taken.size()), taken, 0);
    EXPECT_CLOSE(std::span<const float>(all).subspan(taken.size()), added, 6e-8);
  }
}

TEST_P(Embeddings, RowsOfA16BitTableAreWidened) {
  const std::vector<std::int32_t> ids = {4, 0, 4};
  std::vector<bfloat16> table;
  for (const float v : random_normal(5 * 19, 1)) table.emplace_back(v);
  std::vector<float> y(ids.size() * 19), sum(y.size(), 1.0F);
  Threads threads(2);
  const Tensor all(std::span<bfloat16>(table), {5, 19});
  embedding_forward(threads, ids, all, y, false);
  embedding_forward(threads, ids, all, sum, true);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto expected = static_cast<float>(table[static_cast<std::size_t>(ids[i / 19]) * 19 + i % 19]);
    EXPECT_EQ(y[i], expected);
    EXPECT_EQ(sum[i], 1 + expected);
  }
}

TEST_P(Embeddings, GradientsOfOneIdAreAddedInTheOrderOfTheRows) {
  std::vector<std::int32_t> ids;
  for (std::int32_t r = 0; r < 301; ++r) ids.push_back(r * r % 7);
  const std::size_t n = 131;
  const auto dy = random_normal(ids.size() * n, 1);
  std::vector<float> expected(7 * n, 1.0F);
  for (std::size_t r = 0; r < ids.size(); ++r)
    for (std::size_t i = 0; i < n; ++i) expected[static_cast<std::size_t>(ids[r]) * n + i] += dy[r * n + i];
  const auto got = on_any_threads([&](Threads& threads) {
    std::vector<float> dtable(7 * n, 1.0F);
    embedding_backward(threads, static_cast<std::int64_t>(n), ids, dy, dtable);
    return dtable;
  });
  EXPECT_TRUE(same_bits(got, expected));
}

TEST(Embedding, ThePaddingIdAddsNothingToTheGradient) {
  Threads alone(1);
  const std::vector<std::int32_t> ids = {0, 2, 0, 1};
  const std::vector<float> dy = {1, 2, 3, 4};
  std::vector<float> table(3), part(2);
  embedding_backward(alone, 1, ids, dy, table, 0);
  EXPECT_EQ(table, (std::vector<float>{0, 4, 2}));
  embedding_part_backward(alone, 1, 1, ids, dy, part, 2);
  EXPECT_EQ(part, (std::vector<float>{4, 0}));
  // Of a part that has rows 0 and 1, the memory behind them keeps its values.
  std::vector<float> more(3);
  embedding_part_backward(alone, 1, 0, ids, dy, std::span(more).first(2), -1);
  EXPECT_EQ(more, (std::vector<float>{4, 4, 0}));
}

TEST(Embedding, AnIdBeyondTheTableIsNamedWithItsRow) {
  Threads alone(1);
  const std::vector<std::int32_t> ids = {0, 4};  // the first that the table does not have
  std::vector<float> table(12), y(6);
  try {
    embedding_forward(alone, ids, rows_of(table, 3), y, false);
    FAIL() << "accepted id 4 of 4";
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("row 1 asks for id 4; the table has 4 rows"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::kernels
