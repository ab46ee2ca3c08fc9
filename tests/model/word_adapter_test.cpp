// The adapter of a word embedding with magnitudes against the table that it stands for, in double: each channel of
// W + scale (B A)^T times its magnitude over the norm of its column, as PEFT's DoraEmbeddingLayer has it.
#include "framework/model/word_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "framework/autograd/ops/embedding.h"
#include "framework/nn/bound_parameters.h"

namespace tessera::model {
namespace {

constexpr std::int64_t table_rows = 5000, table_width = 6, factor_rank = 2;  // several parts of the sum over a column
constexpr double factor_scale = 1.5;

/// A table of words, and its adapter.
class AdaptedWords final : public nn::Module {
 public:
  explicit AdaptedWords(bool magnitudes)
      : Module("embedding"),
        table(declare("word_embeddings.weight", ParameterRole::word_embedding, {table_rows, table_width},
                      nn::Init::normal(1))),
        adapter({.rank = factor_rank,
                 .scale = factor_scale,
                 .a_init = nn::Init::normal(0.5),
                 .b_init = nn::Init::normal(0.5),
                 .magnitudes = magnitudes},
                table, {}) {
    contains(adapter);
  }
  nn::Parameter& table;
  WordAdapter adapter;
};

class WordAdapterTest : public testing::Test {
 protected:
  void bind(AdaptedWords& words) {
    nn::FlatParameters layout(words.parameters());
    values.resize(static_cast<std::size_t>(layout.elements()));
    gradients.assign(values.size(), 0);
    nn::bind_parameters(layout, values, gradients);
    nn::initialise_parameters(layout, threads, 1, values);
    for (auto* one : words.parameters()) {
      named[one->name] = one;
      if (one->derive) one->derive(threads, nullptr, one->leaf.value.floats());
    }
  }
  std::span<float> of(const std::string& name) { return named.at("embedding." + name)->leaf.value.floats(); }

  /// The table with its adapter, and the norms of its columns.
  std::vector<double> dense(std::vector<double>& norms) {
    const auto w = of("word_embeddings.weight"), a = of("word_embeddings.lora_A.weight"),
               b = of("word_embeddings.lora_B.weight");
    std::vector<double> sum(w.begin(), w.end());
    norms.assign(table_width, 0);
    for (std::size_t v = 0; v < table_rows; ++v)
      for (std::size_t c = 0; c < table_width; ++c) {
        for (std::size_t r = 0; r < factor_rank; ++r)
          sum[v * table_width + c] +=
              factor_scale * static_cast<double>(b[c * factor_rank + r]) * static_cast<double>(a[r * table_rows + v]);
        norms[c] += sum[v * table_width + c] * sum[v * table_width + c];
      }
    for (auto& norm : norms) norm = std::sqrt(norm);
    return sum;
  }

  Arena arena;
  kernels::Threads threads{2};
  std::vector<float> values, gradients;
  std::map<std::string, nn::Parameter*> named;
};

TEST_F(WordAdapterTest, WithMagnitudesScalesTheColumnsOfTheWholeTable) {
  AdaptedWords words(true);
  bind(words);
  std::vector<double> norms;
  auto sum = dense(norms);
  const auto m = of("word_embeddings.lora_magnitude.weight");
  for (std::size_t c = 0; c < table_width; ++c) EXPECT_NEAR(m[c], norms[c], 1e-5 * norms[c]) << "first the norms";
  for (std::size_t c = 0; c < table_width; ++c) m[c] *= 1 + 0.1F * static_cast<float>(c);
  const std::vector<std::int32_t> tokens = {0, 17, 4999, 17, 4096, 4095}, positions = {0, 1, 2, 0, 1, 2};
  nn::Pass pass;
  pass.B = 2;
  pass.T = pass.S = 3;
  for (const int change : {0, 1}) {  // the second time with other factors, whose norms are not remembered
    if (change == 1) {
      for (auto& one : of("word_embeddings.lora_B.weight")) one *= -2;
      sum = dense(norms);
    }
    autograd::Tape tape(arena, threads, true);
    auto x = autograd::embedding(tape, {2, 3}, tokens, words.table.leaf, positions, nullptr, DType::float32, -1);
    const auto y = words.adapter.add_to(std::move(x), tokens, pass, {});
    std::vector<float> seeds(y.floats().size());
    std::iota(seeds.begin(), seeds.end(), -7.0F);
    std::vector<double> of_m(table_width, 0);
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      const auto c = i % table_width, at = static_cast<std::size_t>(tokens[i / table_width]) * table_width + c;
      EXPECT_NEAR(y.floats()[i], m[c] / norms[c] * sum[at], 1e-4) << i;
      of_m[c] += static_cast<double>(seeds[i]) * sum[at] / norms[c];
    }
    std::ranges::fill(gradients, 0.0F);
    tape.seed(y, Tensor(std::span<float>(seeds), y.shape()));
    tape.backward();
    const auto dm = named.at("embedding.word_embeddings.lora_magnitude.weight")->leaf.grad().floats();
    for (std::size_t c = 0; c < table_width; ++c) EXPECT_NEAR(dm[c], of_m[c], 1e-3 * std::max(1.0, std::abs(of_m[c])));
  }
}

}  // namespace
}  // namespace tessera::model
