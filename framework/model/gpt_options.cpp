#include "framework/model/gpt_options.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace tessera::model {

nn::FeedForwardKind GptOptions::feed_forward() const {
  if (swiglu.value_or(false)) return nn::FeedForwardKind::swiglu;
  return gated_linear_unit ? nn::gated(hidden_act) : hidden_act;
}

std::int64_t GptOptions::inner() const {
  if (ffn_hidden_size) return *ffn_hidden_size;
  return nn::is_gated(feed_forward()) ? hidden_size * 8 / 3 / 64 * 64 : 4 * hidden_size;
}

std::int64_t GptOptions::rotary_dim() const {
  return static_cast<std::int64_t>(static_cast<double>(channels()) * rotary_percent) / 2 * 2;
}

nn::RotaryScaling GptOptions::rotary_scaling(std::int64_t positions) const {
  const std::int64_t original = rope_scaling_type == nn::RotaryScaling::Kind::llama3 ? 8192 : positions;
  nn::RotaryScaling s;
  s.kind = rope_scaling_type;
  s.factor = rope_scaling_factor;
  s.low = rope_scaling_low_freq_factor;
  s.high = rope_scaling_high_freq_factor;
  s.beta_fast = rope_scaling_beta_fast;
  s.beta_slow = rope_scaling_beta_slow;
  s.attention_factor = rope_scaling_attention_factor;
  s.original = rope_scaling_original_max_position_embeddings.value_or(original);
  s.positions_per_step = positions_per_step();
  return s;
}

std::array<std::int64_t, 2> GptOptions::window() const {
  return {sliding_window ? *sliding_window - 1 : window_size[0], window_size[1]};
}

bool GptOptions::windowed(std::int64_t layer) const {
  return layer_types.empty() || layer_types[static_cast<std::size_t>(layer) % layer_types.size()] == LayerSight::window;
}

nn::Init GptOptions::weight_init(std::int64_t out, std::int64_t in, bool output) const {
  if (init_method == InitMethod::xavier_uniform)
    return nn::Init::uniform(std::sqrt(6.0 / static_cast<double>(out + in)));
  return nn::Init::normal(output ? init_method_std / std::sqrt(2.0 * static_cast<double>(num_layers))
                                 : init_method_std);
}

nn::Init GptOptions::table_init(std::int64_t rows) const {
  return embedding_init_method_std ? nn::Init::normal(*embedding_init_method_std)
                                   : weight_init(rows, hidden_size, false);
}

bool GptOptions::recomputes(RecomputedModule module) const {
  return recompute_granularity == Recomputation::selective &&
         std::find(recompute_modules.begin(), recompute_modules.end(), module) != recompute_modules.end();
}

std::optional<options::Finding> broken_length(const GptOptions& o, std::int64_t seq_length) {
  const auto positions = o.max_position_embeddings.value_or(seq_length);
  if (o.position_embedding_type == PositionEmbedding::none || seq_length <= positions) return std::nullopt;
  return options::Finding{.option = "max_position_embeddings",
                          .message = text("max_position_embeddings is ", positions, ", but seq_length is ", seq_length),
                          .advice = "give max_position_embeddings at least seq_length, or shorten the sequences",
                          .rule = "M6"};
}

std::vector<options::Finding> broken_rules(const GptOptions& o, std::int64_t seq_length) {
  auto all = options::broken_rules(o);
  if (auto length = broken_length(o, seq_length)) all.push_back(*std::move(length));
  return all;
}

}  // namespace tessera::model
