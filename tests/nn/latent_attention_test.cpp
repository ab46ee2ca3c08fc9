// Multi-head latent attention against plain loops in double: the result, and each gradient against central differences.
#include "framework/nn/latent_attention.h"

#include "tests/nn/layer_check.h"

namespace tessera::nn {
namespace {

constexpr auto adjacent = kernels::RotaryLayout::interleaved;

/// x after one of the norms of the compressed vectors, in rows of `width`.
std::vector<double> normed(const Numbers& n, const LatentAttentionSizes& s, const std::string& name,
                           std::vector<double> x, std::int64_t width) {
  if (!s.norm) return x;
  const auto count = static_cast<std::size_t>(width);
  for (std::size_t row = 0; row < x.size(); row += count)
    normalise(x, row, count, *s.norm, n.at("attention." + name + ".weight"), found(n, "attention." + name + ".bias"));
  return x;
}

/// Queries of all heads, [B T, heads, plain + rotary], before their rotation.
std::vector<double> queries_of(const Numbers& n, const LatentAttentionSizes& s, std::size_t width) {
  if (!s.query_rank) return linear_of(n, "attention.linear_q_proj", n.at("x"), width);
  const auto down = linear_of(n, "attention.linear_q_down_proj", n.at("x"), static_cast<std::size_t>(*s.query_rank));
  return linear_of(n, "attention.linear_q_up_proj", normed(n, s, "q_layernorm", down, *s.query_rank), width);
}

/// The layer in double, as its header describes it.
std::vector<double> latent_attention_of(const Numbers& n, const LatentAttentionSizes& s, bool rotates,
                                        const Sequences& sequences) {
  const auto H = static_cast<std::size_t>(s.heads.heads), P = static_cast<std::size_t>(s.heads.plain),
             R = static_cast<std::size_t>(s.heads.rotary), V = static_cast<std::size_t>(s.heads.value),
             rank = static_cast<std::size_t>(s.key_value_rank);
  auto q = queries_of(n, s, H * (P + R));
  auto down = linear_of(n, "attention.linear_kv_down_proj", n.at("x"), rank + R);
  std::vector<double> compressed;
  for (std::size_t row = 0; row < B * T; ++row) {
    const auto position = sequences.positions[row];
    compressed.insert(compressed.end(), &down[row * (rank + R)], &down[row * (rank + R)] + rank);
    if (!rotates) continue;
    rotate(&down[row * (rank + R) + rank], s.heads.rotary, adjacent, position);
    for (std::size_t h = 0; h < H; ++h) rotate(&q[(row * H + h) * (P + R) + P], s.heads.rotary, adjacent, position);
  }
  const auto kv = linear_of(n, "attention.linear_kv_up_proj",
                            normed(n, s, "kv_layernorm", compressed, s.key_value_rank), H * (P + V));
  std::vector<double> mixed(B * T * H * V);
  for (std::size_t row = 0; row < B * T; ++row)
    for (std::size_t h = 0; h < H; ++h) {
      const auto first = row / T * T + static_cast<std::size_t>(sequences.first[row]),
                 last = row / T * T + static_cast<std::size_t>(sequences.last[row]);
      std::vector<double> p;
      double sum = 0;
      for (auto t = first; t <= last; ++t) {
        double score = 0;
        for (std::size_t c = 0; c < P + R; ++c)
          score += q[(row * H + h) * (P + R) + c] *
                   (c < P ? kv[(t * H + h) * (P + V) + c] : down[t * (rank + R) + rank + c - P]);
        p.push_back(std::exp(s.scale * score));
        sum += p.back();
      }
      for (auto t = first; t <= last; ++t)
        for (std::size_t c = 0; c < V; ++c)
          mixed[(row * H + h) * V + c] += p[t - first] / sum * kv[(t * H + h) * (P + V) + P + c];
    }
  return linear_of(n, "attention.linear_proj", mixed, hidden_size);
}

class LatentAttentionTest : public LayerTest {
 protected:
  static LatentAttentionSizes sizes(std::int64_t value = 3) {
    LatentAttentionSizes s;
    s.hidden = hidden_size;
    s.heads = {.heads = 2, .plain = 2, .rotary = 4, .value = value};
    s.key_value_rank = 5;
    s.scale = 0.4;
    return s;
  }
  void check_layer(const LatentAttentionSizes& s, bool rotates = true) {
    const RotaryEmbedding rotary(s.heads.rotary, 10000.0, adjacent, 16);
    LatentAttention layer("attention", 0, s, rotates ? &rotary : nullptr, whole_layers());
    const Sequences sequences;
    const auto pass = sequences.pass();
    check(
        layer, {B, T, hidden_size}, [&](autograd::Tape&, const autograd::Var& x) { return layer.forward(x, pass); },
        [&](const Numbers& n) { return latent_attention_of(n, s, rotates, sequences); });
  }
};

TEST_F(LatentAttentionTest, HeadsShareOneRotaryKey) {
  for (const bool rotates : {true, false}) check_layer(sizes(), rotates);
}

TEST_F(LatentAttentionTest, ValuesAreNarrowerOrWiderThanQueries) {
  for (const std::int64_t value : {1, 6, 7}) {
    SCOPED_TRACE(text("values of ", value));
    check_layer(sizes(value));
  }
}

TEST_F(LatentAttentionTest, QueriesAreProjectedDirectlyOrFromACompressedVector) {
  for (const auto rank : {std::optional<std::int64_t>(), std::optional<std::int64_t>(3)}) {
    auto s = sizes();
    s.query_rank = rank;
    s.out_bias = rank.has_value();
    check_layer(s);
  }
}

TEST_F(LatentAttentionTest, CompressedVectorsAreNormalized) {
  for (const auto kind : {Normalization::layer_norm, Normalization::rms_norm})
    for (const bool centred : {false, true}) {
      auto s = sizes();
      s.query_rank = 3;
      s.norm = NormKind{kind, 1e-3, centred};
      check_layer(s);
    }
}

TEST_F(LatentAttentionTest, RecomputationChangesNothing) {
  for (const bool core : {false, true})
    for (const bool up : {false, true}) {
      SCOPED_TRACE(text("core ", core, ", up-projections ", up));
      auto s = sizes();
      s.query_rank = 3;
      s.norm = NormKind{Normalization::rms_norm, 1e-3, false};
      s.recomputed = core;
      s.recomputes_up = up;
      check_layer(s);
    }
}

}  // namespace
}  // namespace tessera::nn
