#include "framework/nn/attention_layer.h"

#include <algorithm>
#include <cmath>

#include "framework/nn/key_value_cache.h"

namespace tessera {

RotaryEmbedding::RotaryEmbedding(std::int64_t rotary_dim, double base, RotaryLayout layout, std::int64_t positions)
    : dim_(rotary_dim), layout_(layout) {
  const auto pairs = rotary_dim / 2;
  cosine_.resize(static_cast<std::size_t>(positions * pairs));
  sine_.resize(cosine_.size());
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double turn = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
      const auto at = static_cast<std::size_t>(p * pairs + i);
      cosine_[at] = static_cast<float>(std::cos(static_cast<double>(p) * turn));
      sine_[at] = static_cast<float>(std::sin(static_cast<double>(p) * turn));
    }
}

SelfAttention::SelfAttention(const std::string& name, std::int64_t layer, const AttentionSizes& s,
                             const RotaryEmbedding* rotary)
    : Module(name),
      sizes_(s),
      layer_(layer),
      rotary_(rotary),
      qkv_(inner("linear_qkv"), s.hidden, (s.heads + 2 * s.groups) * s.channels, s.qkv_bias, s.init),
      out_(inner("linear_proj"), s.heads * s.channels, s.hidden, s.out_bias, s.out_init) {
  contains(qkv_);
  contains(out_);
  const auto in_group = s.heads / s.groups + 2;
  for (std::int64_t g = 0; g < s.groups; ++g)
    for (std::int64_t h = 0; h + 1 < in_group; ++h) turning_heads_.push_back((g * in_group + h) * s.channels);
}

AttentionExtents SelfAttention::extents(const Pass& pass) const {
  const auto D = sizes_.channels, queries = sizes_.heads / sizes_.groups, group = (queries + 2) * D;
  const auto row = sizes_.groups * group;
  return {pass.B,
          pass.T,
          pass.T,
          sizes_.heads,
          sizes_.groups,
          D,
          1 / std::sqrt(static_cast<double>(D)),
          {row, 0, group, D},
          {row, queries * D, group},
          {row, (queries + 1) * D, group},
          {sizes_.heads * D, 0, queries * D, D}};
}

Var SelfAttention::forward(const Var& x, const Pass& pass) const {
  auto projected = qkv_.forward(x);
  if (rotary_) projected = rotary(std::move(projected), rotary_->tables(turning_heads_), pass.positions);
  if (pass.cache) return out_.forward(cached(projected, pass));
  const auto mask = pass.dropout(Purpose::attention_dropout, static_cast<std::uint64_t>(layer_), sizes_.dropout);
  const auto mixed = attention(projected, extents(pass), pass.visible, mask);
  projected = {};
  return out_.forward(mixed);
}

// Generation: the new tokens' keys and values join the cache, their queries look at all of it. Nothing is recorded.
Var SelfAttention::cached(const Var& qkv, const Pass& pass) const {
  auto& tape = qkv.tape();
  auto& cache = *pass.cache;
  must(!tape.records(), "generation records no tape");
  auto e = extents(pass);
  const auto keys = cache.keys(layer_), values = cache.values(layer_);
  const auto rows = qkv.floats();
  for (std::int64_t b = 0; b < pass.B; ++b)
    for (std::int64_t t = 0; t < pass.T; ++t)
      for (std::int64_t g = 0; g < e.G; ++g) {
        const auto from = (b * pass.T + t) * e.k.row_stride + g * e.k.group_stride;
        const auto to = (b * cache.capacity() + cache.length() + t) * cache.width() + g * e.D;
        std::copy_n(rows.begin() + from + e.k.offset, e.D, keys.begin() + to);
        std::copy_n(rows.begin() + from + e.v.offset, e.D, values.begin() + to);
      }
  e.S = cache.capacity();
  e.k = e.v = {cache.width(), 0, e.D};
  auto mixed = tape.make({e.B, e.T, e.H * e.D}, false);
  auto lse = tape.make({e.B, e.H, e.T}, false);
  attention_forward(tape.threads(), e, pass.visible, {}, rows, keys, values, mixed.floats(), lse.floats());
  return mixed;
}

}  // namespace tessera
