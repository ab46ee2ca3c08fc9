#include "framework/interop/hugging_face/falcon_rules.h"

#include "framework/base/error.h"

namespace tessera::hugging_face {
namespace {

constexpr std::int64_t most_heads = 1 << 20;

std::int64_t heads_of(const ConvertedConfig& c) {
  const auto heads = c.integer("num_attention_heads", 1, most_heads);
  if (!heads) c.problem("does not give num_attention_heads");
  return *heads;
}

void set_groups(ConvertedConfig& c, std::int64_t groups) {
  c.set("group_query_attention", "true");
  c.set("num_query_groups", text(groups));
}

/// What Transformers cannot compute: the layer lacks a norm that the forward pass reads.
void must_have_norms(const ConvertedConfig& c, bool newer, bool parallel, std::int64_t norms) {
  if (newer && !parallel)
    c.problem("parallel_attn is false and new_decoder_architecture is true: Transformers has no such layer");
  if (norms < 1 || norms > 2 || (norms == 2 && !newer && parallel))
    c.problem(text("num_ln_in_parallel_attn is ", norms, "; expected 1, or 2 with new_decoder_architecture"));
}

}  // namespace

void read_falcon_layers(ConvertedConfig& c) {
  const bool newer = c.says("facts.new_decoder", "true"), parallel = c.says("facts.parallel", "true");
  const auto norms = c.integer("facts.norms", 0, most_heads).value_or(newer ? 2 : 1);
  must_have_norms(c, newer, parallel, norms);
  const auto heads = heads_of(c), given = c.integer("facts.groups", 1, most_heads).value_or(heads);
  const bool shared_head = !newer && c.says("facts.multi_query", "true");  // num_kv_heads is not used then
  if (!newer && !shared_head && given != heads)
    c.problem(text("num_kv_heads is ", given, " and num_attention_heads ", heads,
                   "; they must be equal without multi_query and new_decoder_architecture"));
  set_groups(c, shared_head ? 1 : given);
  c.set("use_parallel_residual", parallel ? "true" : "false");
  c.set("shared_parallel_norm", parallel && norms == 1 ? "true" : "false");
}

void write_falcon_layers(ConvertedConfig& c) {
  const auto heads = heads_of(c), groups = c.integer("num_query_groups", 1, most_heads).value_or(heads);
  const bool parallel = c.says("use_parallel_residual", "true"), shared = c.says("shared_parallel_norm", "true");
  const bool newer = parallel && (!shared || (groups != 1 && groups != heads));
  if (!newer && groups != 1 && groups != heads)
    c.problem(text("has one key/value head or one for each query head in layers that are not parallel; ",
                   "num_query_groups is ", groups));
  c.set("facts.new_decoder", newer ? "true" : "false");
  c.set("facts.parallel", parallel ? "true" : "false");
  c.set("facts.multi_query", newer || groups == 1 ? "true" : "false");
  c.set("facts.groups", text(newer ? groups : heads));
  if (newer) c.set("facts.norms", shared ? "1" : "2");
}

}  // namespace tessera::hugging_face
