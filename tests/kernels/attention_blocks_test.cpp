// Attention in several calls over blocks of keys, joined, is that of one call.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "framework/kernels/attention_tiles.h"
#include "framework/kernels/gemm.h"
#include "tests/kernels/emulated_tiles.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/spoiled_scratch.h"
#include "tests/kernels/typed.h"

namespace tessera::kernels {
namespace {

/// One sample of S tokens whose queries and keys are cut at the same places.
struct Blocks {
  std::mt19937 draw;
  AttentionExtents e{};
  std::vector<std::int64_t> cuts = {0}, ids = {11};
  std::vector<std::int32_t> first, last;
  std::vector<float> qkv, d_o, slopes, sinks;
  double rate;
  Threads threads{2};

  explicit Blocks(unsigned seed) : draw(seed) {
    const auto number = [&](std::int64_t from, std::int64_t to) {
      return std::uniform_int_distribution<std::int64_t>(from, to)(draw);
    };
    const auto G = number(1, 3), heads = number(1, 3), D = number(1, 3) * 8, S = number(20, 150);
    const auto row = G * (heads + 2) * D;
    e.B = 1;
    e.T = e.S = S;
    e.H = G * heads;
    e.G = G;
    e.D = D;
    e.scale = 0.4;
    e.q = {row, 0, (heads + 2) * D, D};
    e.k = {row, heads * D, (heads + 2) * D};
    e.v = {row, (heads + 1) * D, (heads + 2) * D};
    e.o = {e.H * D, 0, heads * D, D};
    e.softcap = draw() % 3 == 0 ? 2.0 : 0.0;
    rate = draw() % 2 == 0 ? 0.2 : 0.0;
    const bool biased = draw() % 2 == 0, sunk = draw() % 2 == 0;
    for (std::int64_t h = 0; h < e.H; ++h) {
      if (biased) slopes.push_back(0.2F / static_cast<float>(1 + h));
      if (sunk) sinks.push_back(static_cast<float>(number(-2, 2)));
    }
    e.alibi = {slopes, 0, 0, 0.5, draw() % 2 == 0};
    while (cuts.back() < S) cuts.push_back(std::min(S, cuts.back() + number(1, 70)));
    const auto look = draw() % 4;  // all before, a window, documents, both ways; one query sees nothing
    for (std::int64_t t = 0; t < S; ++t) {
      const auto a = look == 1 ? std::max<std::int64_t>(0, t - 17) : look == 2 ? t / 23 * 23 : 0;
      first.push_back(static_cast<std::int32_t>(a));
      last.push_back(static_cast<std::int32_t>(t == 19 ? a - 1 : look == 3 ? std::min(S - 1, t + 9) : t));
    }
    qkv = random_normal(static_cast<std::size_t>(S * row), seed, 0, 1.0F);
    d_o = random_normal(static_cast<std::size_t>(S * e.H * D), seed + 1);
  }

  DropoutMask mask(std::int64_t query = 0, std::int64_t key = 0) const {
    return {RandomKey(5, Purpose::attention_dropout, 2), ids, rate, query * e.S + key};
  }
  std::size_t at(std::int64_t token, const HeadRows& rows) const {
    return static_cast<std::size_t>(token * rows.row_stride);
  }

  /// Begins lse, [H, queries] of each block, with the sinks.
  void start(std::vector<float>& lse) const {
    std::size_t at = 0;
    for (std::size_t q = 0; q + 1 < cuts.size(); ++q)
      for (const auto sink : sinks)
        for (auto t = cuts[q]; t < cuts[q + 1]; ++t) lse[at++] = sink;
  }

  /// Calls block(extents, visible, mask, query, key, lse) for all pairs of blocks, the keys in a drawn order.
  template <class Block>
  void each(std::vector<float>& lse, const Block& block) {
    std::vector<std::size_t> keys(cuts.size() - 1);
    for (std::size_t k = 0; k < keys.size(); ++k) keys[k] = k;
    std::shuffle(keys.begin(), keys.end(), draw);
    std::size_t lse_at = 0;
    for (std::size_t q = 0; q + 1 < cuts.size(); ++q) {
      auto one = e;
      one.T = cuts[q + 1] - cuts[q];
      one.whole_tokens = e.S;
      one.alibi.first_query = cuts[q];
      const auto of_block = std::span(lse).subspan(lse_at, static_cast<std::size_t>(e.H * one.T));
      lse_at += of_block.size();
      for (const auto k : keys) {
        one.S = cuts[k + 1] - cuts[k];
        one.alibi.first_key = cuts[k];
        std::vector<std::int32_t> from, to;
        for (auto t = cuts[q]; t < cuts[q + 1]; ++t) {
          const auto i = static_cast<std::size_t>(t);
          from.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(first[i] - cuts[k], 0)));
          to.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(last[i] - cuts[k], one.S - 1)));
        }
        block(one, VisibleKeys{from, to}, mask(cuts[q], cuts[k]), cuts[q], cuts[k], of_block);
      }
    }
  }
};

/// How the factors are multiplied: their type, and the tiles of pairs of bfloat16, or null.
struct Factors {
  const char* name;
  DType type;
  const TileKernels* pairs;
};

std::vector<Factors> all_factors() {
  std::vector<Factors> all = {{"float32", DType::float32, nullptr},
                              {"float16, widened", DType::float16, nullptr},
                              {"bfloat16, widened", DType::bfloat16, nullptr},
                              {"pairs, emulated", DType::bfloat16, &emulated_pairs<1>()},
                              {"pairs in blocks, emulated", DType::bfloat16, &emulated_pairs<4>()}};
  if (pair_tiles() != nullptr) all.push_back({"pairs", DType::bfloat16, pair_tiles()});
  return all;
}

/// `unit`: of the largest value. fp32 sums in another order differ by some units in the last place.
void expect_close(const std::vector<float>& got, const std::vector<float>& expected, float unit,
                  const std::string& what) {
  float most = 1e-3F;
  for (const auto value : expected)
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    ASSERT_NEAR(got[i], expected[i], unit * most) << what << ", element " << i;
  }
}

void blocks_equal_one_call(unsigned seed, const Factors& factors) {
  Blocks w(seed);
  const auto name = text("seed ", seed, ", ", factors.name);
  const VisibleKeys visible{w.first, w.last};
  const auto rows = static_cast<std::size_t>(w.e.S * w.e.H);
  Typed qkv(factors.type, w.qkv), d_o(factors.type, w.d_o);
  const auto x = qkv.now(), slope = d_o.now();  // as floats, exactly
  std::vector<float> o(w.d_o.size()), lse(rows), d(w.qkv.size());
  attention_forward(w.threads, w.e, visible, w.mask(), {.q = x, .k = x, .v = x, .o = o, .lse = lse, .sinks = w.sinks});
  attention_backward(w.threads, w.e, visible, w.mask(),
                     {.q = x, .k = x, .v = x, .o = o, .lse = lse, .d_o = slope, .dq = d, .dk = d, .dv = d});

  std::vector<float> blocks_o(o.size()), blocks_lse(rows, -std::numeric_limits<float>::infinity()), blocks_d(d.size());
  w.start(blocks_lse);
  const auto from = [](const Elements& all, std::size_t first) { return all.part(first, all.size() - first); };
  w.each(blocks_lse, [&](const AttentionExtents& e, const VisibleKeys& seen, const DropoutMask& mask,
                         std::int64_t query, std::int64_t key, std::span<float> l) {
    spoil_scratch();
    const auto kv = from(qkv.elements(), w.at(key, e.k));
    attention_forward_by(factors.pairs, w.threads, e, seen, mask,
                         {.q = from(qkv.elements(), w.at(query, e.q)),
                          .k = kv,
                          .v = kv,
                          .o = std::span(blocks_o).subspan(w.at(query, e.o)),
                          .lse = l},
                         Earlier::join);
  });
  w.each(blocks_lse, [&](const AttentionExtents& e, const VisibleKeys& seen, const DropoutMask& mask,
                         std::int64_t query, std::int64_t key, std::span<float> l) {
    spoil_scratch();
    const auto kv = from(qkv.elements(), w.at(key, e.k));
    const auto dkv = std::span(blocks_d).subspan(w.at(key, e.k));
    attention_backward_by(factors.pairs, w.threads, e, seen, mask,
                          {.q = from(qkv.elements(), w.at(query, e.q)),
                           .k = kv,
                           .v = kv,
                           .o = from(blocks_o, w.at(query, e.o)),
                           .lse = l,
                           .d_o = from(d_o.elements(), w.at(query, e.o)),
                           .dq = std::span(blocks_d).subspan(w.at(query, e.q)),
                           .dk = dkv,
                           .dv = dkv},
                          Earlier::join);
  });
  // Products of pairs round probabilities and gradients of scores, to 2^-9 of each term; a sum can be smaller than its
  // terms.
  const float unit = factors.pairs != nullptr ? 0x1p-7F : 3e-6F;
  expect_close(blocks_o, o, unit, name + ", o");
  expect_close(blocks_d, d, unit, name + ", gradients");
}

TEST(AttentionInBlocks, IsThatOfOneCall) {
  const auto start = std::random_device()();
  for (unsigned trial = 0; trial < 25; ++trial)
    for (const auto& factors : all_factors()) blocks_equal_one_call(start + trial, factors);
}

}  // namespace
}  // namespace tessera::kernels
