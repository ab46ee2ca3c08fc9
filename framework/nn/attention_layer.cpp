#include "framework/nn/attention_layer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "framework/autograd/ops/recompute.h"
#include "framework/nn/key_value_cache.h"
#include "framework/tensor/strided.h"

namespace tessera::nn {

HeadsOfRank heads_of_rank(std::int64_t heads, std::int64_t groups, const TensorRank& tensor) {
  const auto here = heads / tensor.ranks;
  return {here, std::max<std::int64_t>(1, groups / tensor.ranks), here * tensor.rank};
}

namespace {

/// Queries, keys and values of linear_qkv, whose rows are ordered [group][its queries, its key, its value][channel].
std::vector<LinearPart> parts_of_projection(const AttentionSizes& s) {
  std::vector<LinearPart> parts = {{"q_proj", {}}, {"k_proj", {}}, {"v_proj", {}}};
  const auto queries = s.heads / s.groups * s.channels;
  for (std::int64_t group = 0; group < s.groups; ++group) {
    const auto first = group * (queries + 2 * s.channels);
    parts[0].rows.push_back({first, queries});
    parts[1].rows.push_back({first + queries, s.channels});
    parts[2].rows.push_back({first + queries + s.channels, s.channels});
  }
  return parts;
}

}  // namespace

autograd::Var core_attention(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                             const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask, std::int64_t layer,
                             const Pass& pass, const autograd::HeadSinks& sinks) {
  return pass.core ? pass.core->attend(qkv, e, visible, mask, layer, pass, sinks)
                   : autograd::attention(qkv, e, visible, mask, sinks);
}

std::vector<float> alibi_slopes(std::int64_t heads) {
  const auto below = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  std::vector<float> slopes;
  const auto add = [&](std::int64_t power, double of) {
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * static_cast<double>(power) / of)));
  };
  for (std::int64_t i = 1; i <= below; ++i) add(i, static_cast<double>(below));
  for (std::int64_t i = 1; below + i <= heads; ++i) add(2 * i - 1, static_cast<double>(2 * below));
  return slopes;
}

SelfAttention::SelfAttention(const std::string& name, std::int64_t layer, const AttentionSizes& s,
                             const RotaryEmbedding* rotary, const LayerMaker& maker)
    : Attention(name),
      sizes_(s),
      here_(heads_of_rank(s.heads, s.groups, maker.tensor())),
      layer_(layer),
      rotary_(rotary) {
  const auto& tensor = maker.tensor();
  qkv_ = maker.column_parallel(inner("linear_qkv"),
                               {.in = s.hidden,
                                .out = (s.heads + 2 * s.groups) * s.channels,
                                .has_bias = s.qkv_bias,
                                .init = s.init,
                                .parts = s.fused_parts ? parts_of_projection(s) : std::vector<LinearPart>()},
                               rows_here(tensor));
  out_ = maker.row_parallel(inner("linear_proj"),
                            {.in = s.heads * s.channels, .out = s.hidden, .has_bias = s.out_bias, .init = s.out_init});
  contains(*qkv_);
  contains(*out_);
  // Heads of a group in a row of the projection: its query heads, then one key and one value head. All but the value
  // head are rotated.
  const auto in_group = here_.heads / here_.groups + 2;
  for (std::int64_t g = 0; g < here_.groups; ++g)
    for (std::int64_t h = 0; h + 1 < in_group; ++h) {
      const auto offset = (g * in_group + h) * s.channels;
      turning_heads_.push_back(offset);
      (h + 2 < in_group ? query_heads_ : key_heads_).push_back(offset);
    }
  declare_sinks(tensor);
  if (s.alibi) {
    const auto all = alibi_slopes(s.heads);
    slopes_.assign(all.begin() + here_.first_head, all.begin() + here_.first_head + here_.heads);
  }
  if (s.head_norm) s.norms_all_heads ? declare_whole_norms(maker) : declare_norms(maker);
}

void SelfAttention::declare_norms(const LayerMaker& maker) {
  const auto& kind = *sizes_.head_norm;
  for (auto* norm : {&query_norm_, &key_norm_}) {
    const std::string of = norm == &query_norm_ ? "q_layernorm." : "k_layernorm.";
    norm->gain = &declare(of + "weight", ParameterRole::norm_gain, {sizes_.channels}, kind.gain());
    if (kind.kind == Normalization::layer_norm)
      norm->bias = &declare(of + "bias", ParameterRole::bias, {sizes_.channels}, Init::zeros());
    if (maker.tensor().whole()) continue;
    norm->gain->share(GradientSharers::tensor);  // each rank computed the gradient of its own heads only
    if (norm->bias) norm->bias->share(GradientSharers::tensor);
  }
}

void SelfAttention::declare_sinks(const TensorRank& tensor) {
  if (sizes_.sinks == Sinks::none) return;
  if (sizes_.sinks == Sinks::learnt) {
    sinks_.leaf = &declare("core_attention.softmax_offset", ParameterRole::bias, {sizes_.heads}, sizes_.init,
                           tensor.part(0, sizes_.heads, "attention sinks"))
                       .leaf;
    return;
  }
  zeros_.assign(static_cast<std::size_t>(here_.heads), 0.0F);
  fixed_ = std::make_unique<autograd::Leaf>();
  fixed_->value = Tensor(std::span(zeros_), {here_.heads});
  sinks_.leaf = fixed_.get();
}

void SelfAttention::declare_whole_norms(const LayerMaker& maker) {
  const auto& kind = *sizes_.head_norm;
  must(kind.kind == Normalization::rms_norm, "a norm over all heads is an RMS norm");
  const auto D = sizes_.channels;
  TensorCut queries, keys;
  if (!maker.tensor().whole()) {
    const bool copied = sizes_.groups < maker.tensor().ranks;
    const auto group = here_.first_head / (sizes_.heads / sizes_.groups);
    queries.strips.push_back({here_.first_head * D, here_.heads * D, true});
    keys.strips.push_back({group * D, here_.groups * D, owns_keys(), copied});
  }
  query_norm_.gain =
      &declare("q_layernorm.weight", ParameterRole::norm_gain, {sizes_.heads * D}, kind.gain(), std::move(queries));
  key_norm_.gain =
      &declare("k_layernorm.weight", ParameterRole::norm_gain, {sizes_.groups * D}, kind.gain(), std::move(keys));
  share_copied_rows(*key_norm_.gain);
  add_up_ = maker.sum_over_ranks(name());
}

/// Rows of linear_qkv on this rank: whole groups; or, with more ranks than groups, some query heads of one group and a
/// copy of its key and value heads, owned by the first of the ranks that share the group.
TensorCut SelfAttention::rows_here(const TensorRank& tensor) const {
  if (tensor.whole()) return {};
  if (sizes_.groups >= tensor.ranks)
    return tensor.part(0, (sizes_.heads + 2 * sizes_.groups) * sizes_.channels, "rows of the QKV projection");
  const auto queries = sizes_.heads / sizes_.groups, group = here_.first_head / queries;
  const auto first = group * (queries + 2), own = here_.first_head % queries;
  TensorCut cut;
  cut.strips.push_back({(first + own) * sizes_.channels, here_.heads * sizes_.channels, true});
  // A rank computes only the part of the gradient of a copy that comes from its own query heads.
  cut.strips.push_back({(first + queries) * sizes_.channels, 2 * sizes_.channels, own == 0, true});
  return cut;
}

// A row of the projection is [group][queries, key, value][channel]; rows of the output are [head][channel].
kernels::AttentionExtents SelfAttention::extents(const Pass& pass) const {
  const auto D = sizes_.channels, queries = here_.heads / here_.groups, group = (queries + 2) * D;
  const auto row = here_.groups * group;
  auto alibi = sizes_.alibi.value_or(kernels::Alibi());
  alibi.slopes = slopes_;
  return {.B = pass.B,
          .T = pass.T,
          .S = pass.T,
          .H = here_.heads,
          .G = here_.groups,
          .D = D,
          .scale = sizes_.scale,
          .q = {row, 0, group, D},
          .k = {row, queries * D, group},
          .v = {row, (queries + 1) * D, group},
          .o = {here_.heads * D, 0, queries * D, D},
          .softcap = sizes_.softcap,
          .alibi = alibi};
}

autograd::Var SelfAttention::normalised_together(const autograd::Var& qkv, const Pass& pass) const {
  autograd::WholeNormKind kind{sizes_.channels, sizes_.head_norm->eps, sizes_.head_norm->gain_offset()};
  if (add_up_) kind.add_up = [this, groups = pass.groups](std::span<double> numbers) { add_up_(groups, numbers); };
  return autograd::whole_norm(qkv, {query_heads_, sizes_.heads, true, &query_norm_.gain->leaf},
                              {key_heads_, sizes_.groups, owns_keys(), &key_norm_.gain->leaf}, kind);
}

autograd::Var SelfAttention::normalised(autograd::Var qkv, const Pass& pass) const {
  if (!sizes_.head_norm) return qkv;
  if (sizes_.norms_all_heads) return normalised_together(qkv, pass);
  const auto& kind = *sizes_.head_norm;
  return autograd::head_norm(qkv, query_norm_.of(query_heads_), key_norm_.of(key_heads_),
                             {sizes_.channels, kind.kind == Normalization::layer_norm, kind.eps, kind.gain_offset()});
}

autograd::Var SelfAttention::mixed(const autograd::Var& qkv, const Pass& pass) const {
  auto mask = pass.dropout(Purpose::attention_dropout, static_cast<std::uint64_t>(layer_), sizes_.dropout);
  // Element (head * M + t) * M + s in the unsharded model, with M = mask_tokens(); this rank begins with head
  // `first_head`.
  mask.first_element = here_.first_head * pass.mask_tokens() * pass.mask_tokens();
  auto e = extents(pass);
  e.whole_tokens = pass.mask_tokens();
  return core_attention(qkv, e, seen(pass), mask, layer_, pass, sinks_);
}

autograd::Var SelfAttention::forward(const autograd::Var& x, const Pass& pass) const {
  auto projected = normalised(qkv_->forward(x, pass), pass);
  if (!pass.angles.empty()) {
    const auto& a = pass.angles;
    projected =
        autograd::rotary(std::move(projected), {a.rotary_dim, a.layout, a.cosine, a.sine, turning_heads_}, a.rows);
  } else if (rotary_) {
    projected = autograd::rotary(std::move(projected), rotary_->tables(x.tape().threads(), turning_heads_, pass.reach),
                                 pass.positions);
  }
  if (pass.cache) return out_->forward(cached(projected, pass), pass);
  if (sizes_.recomputed)
    return autograd::recomputed(
        projected, [this, pass](const autograd::Var& qkv) { return out_->forward(mixed(qkv, pass), pass); });
  const auto heads = mixed(projected, pass);
  // Frees the projection early if no gradient is needed; else the recorded operation keeps it.
  projected = {};
  return out_->forward(heads, pass);
}

// Generation: the keys and values of the new tokens are stored in the cache, and their queries attend to all of it.
autograd::Var SelfAttention::cached(const autograd::Var& qkv, const Pass& pass) const {
  auto& tape = qkv.tape();
  auto& cache = *pass.cache;
  must(!tape.records(), "generation records no tape");
  auto e = extents(pass);
  const auto keys = cache.keys(layer_), values = cache.values(layer_);
  const auto projected = tape.read(qkv);
  const auto rows = projected.span();
  // Rows [sample, token, group] of the projection are copied to the cache after the tokens that it already has.
  const auto in_row = [&](const kernels::HeadRows& head) {
    return StridedRows{head.offset, {pass.T * head.row_stride, head.row_stride, head.group_stride}};
  };
  const StridedRows behind{cache.length() * cache.width(), {cache.capacity() * cache.width(), cache.width(), e.D}};
  copy_strided({pass.B, pass.T, e.G, e.D}, rows, in_row(e.k), keys, behind);
  copy_strided({pass.B, pass.T, e.G, e.D}, rows, in_row(e.v), values, behind);
  // The cache has room for more tokens than it holds; `seen` limits the keys to those that exist.
  e.S = cache.capacity();
  e.alibi.first_query = cache.length();
  e.k = e.v = {cache.width(), 0, e.D};
  auto heads = tape.result({e.B, e.T, e.H * e.D}, false);
  auto lse = tape.make({e.B, e.H, e.T}, false);
  const auto sinks = sinks_.leaf ? tape.read(sinks_.leaf->value) : autograd::Floats(tape);
  kernels::attention_forward(
      tape.threads(), e, seen(pass), {},
      {.q = rows, .k = keys, .v = values, .o = tape.write(heads).span(), .lse = lse.floats(), .sinks = sinks.span()});
  return heads;
}

}  // namespace tessera::nn
