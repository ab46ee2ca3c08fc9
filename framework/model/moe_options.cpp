#include "framework/model/moe_options.h"

#include <cctype>

#include "framework/base/error.h"
#include "framework/options/limits.h"

namespace tessera::model {
namespace {

using O = MoeOptions;

using options::most_experts, options::most_layers;

constexpr std::int64_t most_width = std::int64_t{1} << 20;

/// Reads expressions of integer lists: sum = product {"+" product}; product = atom {"*" int}; atom = list | "(" sum
/// ")".
class ListExpression {
 public:
  explicit ListExpression(const std::string& text) : text_(text) {}

  bool read(std::vector<std::int64_t>& out) { return sum(out) && at_end(); }

 private:
  using List = std::vector<std::int64_t>;

  bool at_end() { return peek() == '\0'; }
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool number(std::int64_t& out) {
    if (!std::isdigit(static_cast<unsigned char>(peek()))) return false;
    out = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      out = 10 * out + (text_[at_++] - '0');
      if (out > most_layers) return false;
    }
    return true;
  }
  bool sum(List& out) {
    if (!product(out)) return false;
    while (take('+')) {
      List more;
      if (!product(more)) return false;
      out.insert(out.end(), more.begin(), more.end());
      if (out.size() > most_layers) return false;
    }
    return true;
  }
  bool product(List& out) {
    std::int64_t before = 1, factor = 0;
    if (number(before) && !take('*')) return false;
    if (!atom(out)) return false;
    if (!repeat(out, before)) return false;
    while (take('*'))
      if (!number(factor) || !repeat(out, factor)) return false;
    return true;
  }
  static bool repeat(List& list, std::int64_t times) {
    if (static_cast<std::int64_t>(list.size()) * times > most_layers) return false;
    const auto once = list;
    list.clear();
    for (std::int64_t i = 0; i < times; ++i) list.insert(list.end(), once.begin(), once.end());
    return true;
  }
  bool atom(List& out) {
    if (take('(')) {
      if (++depth_ > 100 || !sum(out)) return false;
      --depth_;
      return take(')');
    }
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      std::int64_t item = 0;
      if (!number(item)) return false;
      out.push_back(item);
    } while (take(','));
    return take(']');
  }

  const std::string& text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

bool are_flags(const std::vector<std::int64_t>& list) {
  for (const auto item : list)
    if (item != 0 && item != 1) return false;
  return !list.empty();
}

}  // namespace

std::string LayerFrequency::Option::json_schema() {
  // What ListExpression reads, but for the pairs of parentheses.
  const std::string list = R"(\\[\\s*(?:0*[01]\\s*(?:,\\s*0*[01]\\s*)*)?\\])",
                    product = R"([\\s(]*(?:\\d+\\s*\\*[\\s(]*)*)" + list + R"([\\s)]*(?:\\*\\s*\\d+[\\s)]*)*)";
  return R"({"not": {"enum": [0, "0"]}, "anyOf": [{"$ref": "#/$defs/int"},
             {"type": "array", "items": {"enum": [0, 1]}, "minItems": 1},
             {"type": "string", "pattern": "^)" +
         product + R"((?:\\+)" + product + R"()*$"}]})";
}

bool LayerFrequency::Option::read(const options::Value& value, LayerFrequency& out) {
  LayerFrequency given;
  if (options::OptionType<std::int64_t>::read(value, given.every)) {
    if (given.every == 0) return false;
  } else if (value.kind == options::Value::Kind::list) {
    if (!options::OptionType<std::vector<std::int64_t>>::read(value, given.list) || !are_flags(given.list))
      return false;
  } else if (value.kind != options::Value::Kind::scalar || !ListExpression(value.scalar).read(given.list) ||
             !are_flags(given.list)) {
    return false;
  }
  out = given;
  return true;
}

options::Value LayerFrequency::Option::write(const LayerFrequency& value) {
  return value.list.empty() ? options::OptionType<std::int64_t>::write(value.every)
                            : options::OptionType<std::vector<std::int64_t>>::write(value.list);
}

namespace {

void describe_layers(options::Schema<O>& s) {
  s.option("num_experts", &O::num_experts, "Number of experts per layer; 1: `model_config.num_experts` is used.")
      .at_least(1)
      .at_most(most_experts);
  s.needs("experts");
  s.option("moe_layer_freq", &O::moe_layer_freq,
           "Layers that have experts: every N-th from the first on, or a list with 0 or 1 for each layer, also as an "
           "expression such as ([0]*1+[1]*3).");
  s.option("moe_ffn_hidden_size", &O::moe_ffn_hidden_size, "Hidden size of an expert.")
      .otherwise("`ffn_hidden_size`")
      .at_least(1)
      .at_most(4 * most_width);
  s.option("moe_shared_expert_intermediate_size", &O::moe_shared_expert_intermediate_size,
           "Hidden size of the shared expert, which processes every token; null: no shared expert.")
      .at_least(1)
      .at_most(4 * most_width);
  s.option("moe_shared_expert_gate", &O::moe_shared_expert_gate,
           "Multiply the output of the shared expert by a gate: the sigmoid of the input's product with a weight.")
      .matters_when([](const O& o) { return o.moe_shared_expert_intermediate_size.has_value(); },
                    "`moe_shared_expert_intermediate_size` is not given");
  s.option(
       "moe_use_upcycling", &O::moe_use_upcycling,
       "Begin with the weights of a dense model, `training_config.load_checkpoint`: its feed-forward network is copied "
       "into every expert (upcycling). No effect once the run has checkpoints of its own.")
      .when_changed(options::Change::silent)
      .must(
          "upcycling", [](const O& o) { return !o.moe_use_upcycling || !o.moe_shared_expert_intermediate_size; },
          [](const O& o) {
            return text("moe_use_upcycling is true, but moe_shared_expert_intermediate_size is ",
                        *o.moe_shared_expert_intermediate_size, ": a dense model has no weights of a shared expert");
          },
          "leave one of them out", {"moe_shared_expert_intermediate_size"});
  s.option("moe_layer_recompute", &O::moe_layer_recompute,
           "Recompute the experts and their router in the backward pass, as `recompute_modules: [moe]` does.")
      .when_changed(options::Change::silent);
}

constexpr auto sinkhorn = [](const O& o) {
  return o.moe_router_load_balancing_type == autograd::RouterBalance::sinkhorn;
};

void describe_router(options::Schema<O>& s) {
  s.option("moe_router_topk", &O::moe_router_topk, "Number of experts per token (top-k).")
      .at_least(1)
      .at_most(most_experts);
  s.option(
       "moe_router_dtype", &O::moe_router_dtype,
       "Data type of the router's matrix product; null: that of the activations. fp64: products are summed in double, "
       "and each logit is rounded once to fp32.")
      .when_changed(options::Change::told);
  s.option("moe_router_score_function", &O::moe_router_score_function, "Function that turns router logits into scores.")
      .matters_when([](const O& o) { return !sinkhorn(o); }, "`moe_router_load_balancing_type` is sinkhorn");
  s.option("moe_router_pre_softmax", &O::moe_router_pre_softmax,
           "Apply the softmax over all experts before the top-k selection instead of over the selected ones.")
      .matters_when(
          [](const O& o) { return !sinkhorn(o) && o.moe_router_score_function == kernels::RouterScore::softmax; },
          "`moe_router_score_function` is not softmax, or `moe_router_load_balancing_type` is sinkhorn");
  s.option("moe_router_num_groups", &O::moe_router_num_groups,
           "Number of expert groups for group-limited routing; null: no groups.")
      .at_least(1)
      .at_most(most_experts)
      .matters_when([](const O& o) { return o.moe_router_group_topk.has_value() && !sinkhorn(o); },
                    "`moe_router_group_topk` is not given, or `moe_router_load_balancing_type` is sinkhorn");
  s.option("moe_router_group_topk", &O::moe_router_group_topk,
           "Number of expert groups from which the experts of a token are chosen.")
      .at_least(1)
      .at_most(most_experts)
      .matters_when([](const O& o) { return !sinkhorn(o); }, "`moe_router_load_balancing_type` is sinkhorn")
      .must(
          "MOE12", [](const O& o) { return !o.moe_router_group_topk || o.moe_router_num_groups; },
          [](const O& o) {
            return text("moe_router_group_topk is ", *o.moe_router_group_topk,
                        ", but moe_router_num_groups is missing");
          },
          "give moe_router_num_groups", {"moe_router_num_groups"})
      .must(
          "MOE12",
          [](const O& o) {
            return !o.moe_router_group_topk || !o.moe_router_num_groups ||
                   *o.moe_router_group_topk <= *o.moe_router_num_groups;
          },
          [](const O& o) {
            return text("moe_router_group_topk is ", *o.moe_router_group_topk, ", but moe_router_num_groups only ",
                        *o.moe_router_num_groups);
          },
          "give at most as many as there are groups", {"moe_router_num_groups"})
      .must(
          "MOE12", [](const O& o) { return !o.moe_router_group_topk || *o.moe_router_group_topk <= o.moe_router_topk; },
          [](const O& o) {
            return text("moe_router_group_topk is ", *o.moe_router_group_topk, ", but moe_router_topk only ",
                        o.moe_router_topk, ": the score of a group is that of its best moe_router_topk / ",
                        "moe_router_group_topk experts");
          },
          "give at most moe_router_topk", {"moe_router_topk"});
  s.option("moe_router_topk_scaling_factor", &O::moe_router_topk_scaling_factor,
           "Factor of the weights of the selected experts; null: 1.")
      .above(0)
      .at_most(1e6)
      .matters_when([](const O& o) { return !sinkhorn(o); }, "`moe_router_load_balancing_type` is sinkhorn");
  s.option(
       "moe_router_enable_expert_bias", &O::moe_router_enable_expert_bias,
       "Add a bias to each expert's score for the selection, for load balancing without an auxiliary loss: each step "
       "moves it by `moe_router_bias_update_rate` towards a balanced load.")
      .must(
          "MOE10",
          [](const O& o) {
            return !o.moe_router_enable_expert_bias ||
                   (o.moe_router_score_function == kernels::RouterScore::sigmoid && !sinkhorn(o));
          },
          [](const O&) { return "moe_router_enable_expert_bias needs moe_router_score_function sigmoid"; },
          "choose sigmoid, and another moe_router_load_balancing_type than sinkhorn",
          {"moe_router_score_function", "moe_router_load_balancing_type"});
  s.option("moe_router_bias_update_rate", &O::moe_router_bias_update_rate, "Update rate of the expert bias per step.")
      .when_changed(options::Change::told)
      .at_least(0)
      .at_most(1e6)
      .matters_when([](const O& o) { return o.moe_router_enable_expert_bias; },
                    "`moe_router_enable_expert_bias` is false");
  s.option("moe_input_jitter_eps", &O::moe_input_jitter_eps,
           "Amplitude of the router's input jitter: in training the router sees its input times random factors between "
           "1 - eps and 1 + eps; null: none.")
      .when_changed(options::Change::told)
      .at_least(0)
      .at_most(1);
  s.option("moe_router_force_load_balancing", &O::moe_router_force_load_balancing,
           "Route tokens to random experts, which balances the load, for benchmarks: random numbers replace the "
           "router's logits.")
      .when_changed(options::Change::told);
}

void describe_losses(options::Schema<O>& s) {
  s.option("moe_router_load_balancing_type", &O::moe_router_load_balancing_type,
           "Load balancing: aux_loss (a loss over the micro-batch), seq_aux_loss (a loss for each sequence), sinkhorn "
           "(balanced assignment) or none.")
      .when_changed(options::Change::weights);
  s.option("moe_aux_loss_coeff", &O::moe_aux_loss_coeff, "Coefficient of the load-balancing loss.")
      .at_least(0)
      .at_most(1e6)
      .matters_when([](const O& o) { return o.moe_router_load_balancing_type != autograd::RouterBalance::none; },
                    "`moe_router_load_balancing_type` is none")
      .must(
          "sinkhorn", [](const O& o) { return !sinkhorn(o) || o.moe_aux_loss_coeff == 0; },
          [](const O& o) {
            return text("moe_aux_loss_coeff is ", o.moe_aux_loss_coeff,
                        ", but moe_router_load_balancing_type is sinkhorn, which has no such loss");
          },
          "leave it out, or choose aux_loss or seq_aux_loss", {"moe_router_load_balancing_type"});
  s.option("moe_z_loss_coeff", &O::moe_z_loss_coeff,
           "Coefficient of the router z-loss, the mean squared log-sum-exp of the logits; null: none.")
      .at_least(0)
      .at_most(1e6);
  s.option("moe_per_layer_logging", &O::moe_per_layer_logging,
           "Write the losses of each layer's router to TensorBoard, besides their means over the layers.")
      .when_changed(options::Change::silent);
}

void describe_capacity(options::Schema<O>& s) {
  s.option("moe_expert_capacity_factor", &O::moe_expert_capacity_factor,
           "Capacity of an expert, relative to a balanced assignment; tokens beyond it are dropped. null or negative: "
           "unlimited.")
      .at_most(1e6)
      .must(
          "MOE8", [](const O& o) { return !o.moe_expert_capacity_factor || !sinkhorn(o); },
          [](const O& o) {
            return text("moe_expert_capacity_factor is ", *o.moe_expert_capacity_factor,
                        ", but moe_router_load_balancing_type is sinkhorn, which is balanced without it");
          },
          "leave it out, or choose aux_loss, seq_aux_loss or none", {"moe_router_load_balancing_type"})
      .must(
          "MOE8", [](const O& o) { return o.moe_expert_capacity_factor != 0; },
          [](const O&) { return "moe_expert_capacity_factor is 0: every token would be dropped"; },
          "give a factor above 0, or leave it out");
  s.option("moe_pad_expert_input_to_capacity", &O::moe_pad_expert_input_to_capacity,
           "Pad the input of each expert to its capacity. All experts then have the same load, so that the expert bias "
           "does not change, as in Megatron-LM; padding is not computed, and has no other effect.")
      .when_changed(options::Change::told)
      .must(
          "MOE8",
          [](const O& o) {
            return !o.moe_pad_expert_input_to_capacity || o.moe_expert_capacity_factor.value_or(-1) > 0;
          },
          [](const O&) { return "moe_pad_expert_input_to_capacity needs moe_expert_capacity_factor"; },
          "give it, or leave moe_pad_expert_input_to_capacity out", {"moe_expert_capacity_factor"});
  s.option("moe_token_drop_policy", &O::moe_token_drop_policy,
           "Selection of the tokens that an expert keeps if more tokens are routed to it than its capacity. probs: "
           "those with the largest routing weights; position: those that Megatron-LM keeps.")
      .matters_when([](const O& o) { return o.moe_expert_capacity_factor.value_or(-1) > 0; },
                    "`moe_expert_capacity_factor` is not given");
  s.option("moe_apply_probs_on_input", &O::moe_apply_probs_on_input,
           "Multiply the input of an expert by its weight instead of its activation.")
      .when_changed(options::Change::weights)
      .must(
          "one expert", [](const O& o) { return !o.moe_apply_probs_on_input || o.moe_router_topk == 1; },
          [](const O& o) {
            return text("moe_apply_probs_on_input needs moe_router_topk 1, which is ", o.moe_router_topk);
          },
          "give moe_router_topk 1, or leave it out", {"moe_router_topk"});
}

}  // namespace

void describe(options::Schema<MoeOptions>& s) {
  s.when_changed(options::Change::tensors);
  describe_layers(s);
  s.when_changed(options::Change::weights);
  describe_router(s);
  s.when_changed(options::Change::told);
  describe_losses(s);
  describe_capacity(s);
}

kernels::RouterRule MoeOptions::router_rule(std::int64_t experts) const {
  kernels::RouterRule rule{experts, moe_router_topk};
  rule.score = moe_router_score_function;
  rule.pre_softmax = moe_router_pre_softmax;
  if (moe_router_group_topk) {
    rule.groups = moe_router_num_groups.value_or(1);
    rule.groups_kept = *moe_router_group_topk;
  }
  rule.scaling = moe_router_topk_scaling_factor.value_or(1);
  return rule;
}

}  // namespace tessera::model
