#include "framework/nn/latent_attention.h"

#include <algorithm>

#include "framework/autograd/ops/recompute.h"
#include "framework/kernels/columns.h"
#include "framework/nn/key_value_cache.h"

namespace tessera::nn {

LatentAttention::LatentAttention(const std::string& name, std::int64_t layer, const LatentAttentionSizes& s,
                                 const RotaryEmbedding* rotary, const LayerMaker& maker)
    : Attention(name), sizes_(s), here_(s.heads), layer_(layer), rotary_(rotary) {
  const auto& tensor = maker.tensor();
  const auto own = heads_of_rank(s.heads.heads, s.heads.heads, tensor);
  here_.heads = own.heads;
  first_head_ = own.first_head;
  const auto& h = s.heads;
  const auto of_heads = [&](const char* part, std::int64_t in, std::int64_t out) {
    return maker.column_parallel(inner(part), {in, out, false, s.init}, tensor.part(0, out, "rows of a projection"));
  };
  const auto down = [&](const char* part, std::int64_t out) {
    return maker.gathered(inner(part), {s.hidden, out, false, s.init});
  };
  out_ = maker.row_parallel(inner("linear_proj"), {h.heads * h.value, s.hidden, s.out_bias, s.out_init});
  contains(*out_);
  const auto query_width = h.heads * (h.plain + h.rotary);
  if (s.query_rank) {
    query_down_ = down("linear_q_down_proj", *s.query_rank);
    query_up_ = of_heads("linear_q_up_proj", *s.query_rank, query_width);
    contains(*query_down_);
    contains(*query_up_);
  } else {
    query_ = of_heads("linear_q_proj", s.hidden, query_width);
    contains(*query_);
  }
  down_ = down("linear_kv_down_proj", s.key_value_rank + h.rotary);
  up_ = of_heads("linear_kv_up_proj", s.key_value_rank, h.heads * (h.plain + h.value));
  contains(*down_);
  contains(*up_);
  for (std::int64_t head = 0; head < here_.heads; ++head)
    rotated_queries_.push_back(head * (h.plain + h.rotary) + h.plain);
  if (!s.norm) return;
  if (s.query_rank) {
    query_norm_ = make_norm(*s.norm, inner("q_layernorm"), *s.query_rank);
    contains(*query_norm_);
  }
  norm_ = make_norm(*s.norm, inner("kv_layernorm"), s.key_value_rank);
  contains(*norm_);
}

LatentAttention::Compressed LatentAttention::compressed(const autograd::Var& x, const Pass& pass) const {
  Compressed out;
  out[0] = query_down_ ? query_down_->forward(x, *sizes_.query_rank, pass).own : x;
  auto down = down_->forward(x, sizes_.key_value_rank, pass);
  out[1] = std::move(down.own);
  out[2] =
      rotary_ ? autograd::rotary(std::move(down.all), rotary_->tables(x.tape().threads(), rotated_key_), pass.positions)
              : std::move(down.all);
  return out;
}

autograd::Var LatentAttention::queries(const autograd::Var& from, const Pass& pass) const {
  auto q = query_        ? query_->forward(from, pass)
           : query_norm_ ? query_up_->forward(query_norm_->forward(from), pass)
                         : query_up_->forward(from, pass);
  if (!rotary_) return q;
  const auto tables = rotary_->tables(q.tape().threads(), rotated_queries_);
  return autograd::rotary(std::move(q), tables, pass.positions);
}

autograd::Var LatentAttention::normed(const autograd::Var& keys_and_values) const {
  return norm_ ? norm_->forward(keys_and_values) : keys_and_values;
}

autograd::Var LatentAttention::fused(const Compressed& from, const Pass& pass) const {
  const auto q = queries(from[0], pass), kv = up_->forward(normed(from[1]), pass);
  return autograd::latent_heads(q, kv, from[2], here_);
}

autograd::Var LatentAttention::forward(const autograd::Var& x, const Pass& pass) const {
  const auto from = compressed(x, pass);
  if (pass.cache) return out_->forward(cached(queries(from[0], pass), normed(from[1]), from[2], pass), pass);
  return mixed(from, pass);
}

autograd::Var LatentAttention::mixed(const Compressed& from, const Pass& pass) const {
  const auto up = [this, pass](const Compressed& c) { return fused(c, pass); };
  const auto rest = [this, pass](const autograd::Var& f) { return out_->forward(core(f, pass), pass); };
  // With both kinds of recomputation one node repeats both; nested ones would repeat the projections twice.
  if (sizes_.recomputes_up && sizes_.recomputed)
    return autograd::RecomputedValue(from, [up, rest](const Compressed& c) { return rest(up(c)); }).value();
  if (sizes_.recomputes_up) {
    autograd::RecomputedValue heads(from, up);
    const auto mixed = core(heads.value(), pass);
    // The fused heads are the largest activation of the layer: free them until the backward pass of attention.
    heads.discard();
    return out_->forward(mixed, pass);
  }
  return sizes_.recomputed ? autograd::recomputed(up(from), rest) : rest(up(from));
}

autograd::Var LatentAttention::core(const autograd::Var& fused, const Pass& pass) const {
  const auto& h = here_;
  const auto D = h.width(), row = 3 * h.heads * D;
  kernels::AttentionExtents e{};
  e.B = pass.B;
  e.T = e.S = pass.T;
  e.H = e.G = h.heads;
  e.D = D;
  e.scale = sizes_.scale;
  e.q = {row, 0, 3 * D, 0};
  e.k = {row, D, 3 * D};
  e.v = {row, 2 * D, 3 * D};
  e.o = {h.heads * D, 0, D, 0};
  auto mask = pass.dropout(Purpose::attention_dropout, static_cast<std::uint64_t>(layer_), sizes_.dropout);
  mask.first_element = first_head_ * pass.mask_tokens() * pass.mask_tokens();  // as in SelfAttention
  e.whole_tokens = pass.mask_tokens();
  auto heads = core_attention(fused, e, pass.visible, mask, layer_, pass);
  return h.value < D ? autograd::head_columns(heads, h.heads, h.value) : heads;
}

// Generation: the cache holds the compressed vector and the rotary key of each token. The part of linear_kv_up_proj
// that makes keys is applied to the queries instead, and the part that makes values to the mixed compressed vectors:
// attention with one key for all heads, whose keys and values are the rows of the cache.
autograd::Var LatentAttention::cached(const autograd::Var& q, const autograd::Var& compressed,
                                      const autograd::Var& k_rotary, const Pass& pass) const {
  auto& tape = q.tape();
  auto& threads = tape.threads();
  auto& cache = *pass.cache;
  must(!tape.records(), "generation records no tape");
  const auto& h = here_;
  const auto rank = sizes_.key_value_rank, width = rank + h.rotary, rows = pass.B * pass.T;
  const auto stored = cache.keys(layer_);
  const auto new_c = tape.read(compressed), new_k = tape.read(k_rotary), q_all = tape.read(q);
  for (std::int64_t b = 0; b < pass.B; ++b)
    for (std::int64_t t = 0; t < pass.T; ++t) {
      const auto from = b * pass.T + t, to = (b * cache.capacity() + cache.length() + t) * width;
      std::copy_n(new_c.span().begin() + from * rank, rank, stored.begin() + to);
      std::copy_n(new_k.span().begin() + from * h.rotary, h.rotary, stored.begin() + to + rank);
    }
  const auto merged = up_->merged_weight(tape);
  const auto weight = merged.empty() ? tape.read(up_->weight(), DType::float32) : tape.read(merged);
  const auto floats = [&](std::int64_t count) { return tape.make({count}, false); };
  const auto queries = floats(rows * h.heads * width), mixed = floats(rows * h.heads * width),
             out = floats(rows * h.heads * h.value), one = floats(rows * std::max(rank, h.plain)),
             other = floats(rows * std::max(rank, h.value)), lse = floats(rows * h.heads);
  const auto part = [](std::span<float> all, std::int64_t count) { return all.first(static_cast<std::size_t>(count)); };
  const auto rows_of_weight = [&](std::int64_t first, std::int64_t count) {
    return weight.span().subspan(static_cast<std::size_t>(first * rank), static_cast<std::size_t>(count * rank));
  };
  kernels::ColumnBlocks copy;
  for (std::int64_t head = 0; head < h.heads; ++head) {
    const auto plain = part(one.floats(), rows * h.plain), absorbed = part(other.floats(), rows * rank);
    const auto first = head * (h.plain + h.rotary);
    copy = {1, h.plain, first, 0, 0, 0};
    kernels::copy_columns(threads, rows, q_all.span(), q.shape().width(), plain, h.plain, copy);
    kernels::linear_backward_input(threads, {rows, rank, h.plain}, plain,
                                   rows_of_weight(head * (h.plain + h.value), h.plain), absorbed, false);
    copy = {1, rank, 0, 0, head * width, 0};
    kernels::copy_columns(threads, rows, absorbed, rank, queries.floats(), h.heads * width, copy);
    copy = {1, h.rotary, first + h.plain, 0, head * width + rank, 0};
    kernels::copy_columns(threads, rows, q_all.span(), q.shape().width(), queries.floats(), h.heads * width, copy);
  }
  kernels::AttentionExtents e{};
  e.B = pass.B;
  e.T = pass.T;
  e.S = cache.capacity();
  e.H = h.heads;
  e.G = 1;
  e.D = width;
  e.scale = sizes_.scale;
  e.q = e.o = {h.heads * width, 0, 0, width};
  e.k = e.v = {width, 0, 0};
  kernels::attention_forward(
      threads, e, pass.visible, {},
      {.q = queries.floats(), .k = stored, .v = stored, .o = mixed.floats(), .lse = lse.floats()});
  for (std::int64_t head = 0; head < h.heads; ++head) {
    const auto vector = part(one.floats(), rows * rank), value = part(other.floats(), rows * h.value);
    copy = {1, rank, head * width, 0, 0, 0};
    kernels::copy_columns(threads, rows, mixed.floats(), h.heads * width, vector, rank, copy);
    kernels::linear_forward(threads, {rows, rank, h.value}, vector,
                            rows_of_weight(head * (h.plain + h.value) + h.plain, h.value), {}, value);
    copy = {1, h.value, 0, 0, head * h.value, 0};
    kernels::copy_columns(threads, rows, value, h.value, out.floats(), h.heads * h.value, copy);
  }
  auto heads = tape.result({pass.B, pass.T, h.heads * h.value}, false);
  std::copy(out.floats().begin(), out.floats().end(), tape.write(heads).span().begin());
  return heads;
}

}  // namespace tessera::nn
