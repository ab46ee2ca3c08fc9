#include "framework/nn/attention_layer.h"

#include <algorithm>

#include "framework/autograd/ops/recompute.h"
#include "framework/nn/key_value_cache.h"

namespace tessera {

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
    for (std::int64_t h = 0; h + 1 < in_group; ++h) {
      const auto offset = (g * in_group + h) * s.channels;
      turning_heads_.push_back(offset);
      (h + 2 < in_group ? query_heads_ : key_heads_).push_back(offset);
    }
  if (!s.head_norm) return;
  for (auto* norm : {&query_norm_, &key_norm_}) {
    const std::string of = norm == &query_norm_ ? "q_layernorm." : "k_layernorm.";
    norm->gain = &declare(of + "weight", {s.channels}, s.head_norm->gain());
    if (s.head_norm->kind == Normalization::layer_norm) norm->bias = &declare(of + "bias", {s.channels}, Init::zeros());
  }
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
          sizes_.scale,
          {row, 0, group, D},
          {row, queries * D, group},
          {row, (queries + 1) * D, group},
          {sizes_.heads * D, 0, queries * D, D},
          sizes_.softcap};
}

Var SelfAttention::normalised(Var qkv) const {
  if (!sizes_.head_norm) return qkv;
  const auto& kind = *sizes_.head_norm;
  return head_norm(qkv, query_norm_.of(query_heads_), key_norm_.of(key_heads_),
                   {sizes_.channels, kind.kind == Normalization::layer_norm, kind.eps, kind.gain_offset()});
}

Var SelfAttention::mixed(const Var& qkv, const Pass& pass) const {
  const auto mask = pass.dropout(Purpose::attention_dropout, static_cast<std::uint64_t>(layer_), sizes_.dropout);
  return attention(qkv, extents(pass), seen(pass), mask);
}

Var SelfAttention::forward(const Var& x, const Pass& pass) const {
  auto projected = normalised(qkv_.forward(x));
  if (rotary_) projected = rotary(std::move(projected), rotary_->tables(turning_heads_), pass.positions);
  if (pass.cache) return out_.forward(cached(projected, pass));
  if (sizes_.recomputed)
    return recomputed(projected, [this, pass](const Var& qkv) { return out_.forward(mixed(qkv, pass)); });
  const auto heads = mixed(projected, pass);
  projected = {};
  return out_.forward(heads);
}

// Generation: the new tokens' keys and values join the cache, their queries look at all of it. Nothing is recorded.
Var SelfAttention::cached(const Var& qkv, const Pass& pass) const {
  auto& tape = qkv.tape();
  auto& cache = *pass.cache;
  must(!tape.records(), "generation records no tape");
  auto e = extents(pass);
  const auto keys = cache.keys(layer_), values = cache.values(layer_);
  const auto projected = tape.read(qkv);
  const auto rows = projected.span();
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
  auto heads = tape.result({e.B, e.T, e.H * e.D}, false);
  auto lse = tape.make({e.B, e.H, e.T}, false);
  attention_forward(tape.threads(), e, seen(pass), {}, rows, keys, values, tape.write(heads), lse.floats());
  return heads;
}

}  // namespace tessera
