#include "framework/parallel/parallel_options.h"

#include <cctype>
#include <numeric>

#include "framework/options/limits.h"

namespace tessera::parallel {
namespace {

/// Reads "[[4,4],[4,2]]", "4,4,2" and "4" as lists; returns a Value of kind none if the text is not a list.
class ListReader {
 public:
  explicit ListReader(const std::string& words) : words_(words) {}

  options::Value read() {
    options::Value all = items();
    if (all.items.size() == 1 && all.items[0].kind == options::Value::Kind::list) all = options::Value(all.items[0]);
    return good_ && at_ == words_.size() ? all : options::Value{};
  }

 private:
  options::Value items() {
    options::Value list;
    list.kind = options::Value::Kind::list;
    skip();
    while (good_ && at_ < words_.size() && words_[at_] != ']') {
      list.items.push_back(item());
      skip();
      if (at_ < words_.size() && words_[at_] == ',') {
        ++at_, skip();
        good_ = good_ && at_ < words_.size() && words_[at_] != ']';
      } else {
        break;
      }
    }
    return list;
  }

  options::Value item() {
    if (words_[at_] == '[') {
      ++at_;
      good_ = good_ && ++depth_ <= deepest;
      auto list = items();
      --depth_;
      good_ = good_ && at_ < words_.size() && words_[at_] == ']';
      if (good_) ++at_;
      return list;
    }
    std::string number;
    while (at_ < words_.size() && (std::isdigit(static_cast<unsigned char>(words_[at_])) || words_[at_] == '-'))
      number += words_[at_++];
    good_ = good_ && !number.empty();
    return options::Value::of(number, {});
  }

  void skip() {
    while (at_ < words_.size() && words_[at_] == ' ') ++at_;
  }

  const std::string& words_;
  static constexpr int deepest = 8;  // of brackets; two say something
  std::size_t at_ = 0;
  int depth_ = 0;
  bool good_ = true;
};

bool says_nothing(const options::Value& value) {
  return value.kind == options::Value::Kind::none ||
         (value.kind == options::Value::Kind::scalar && value.scalar.empty());
}

/// The list that `value` is, or that its text contains.
options::Value as_list(const options::Value& value) {
  std::int64_t number = 0;
  if (options::OptionType<std::int64_t>::read(value, number)) return ListReader(std::to_string(number)).read();
  return value.kind == options::Value::Kind::scalar ? ListReader(value.scalar).read() : value;
}

using Numbers = std::vector<std::int64_t>;

constexpr auto has_stages = [](const ParallelOptions& o) { return o.pipeline_model_parallel_size > 1; };
constexpr const char* no_stages = "`pipeline_model_parallel_size` is 1";

void describe_pipeline(options::Schema<ParallelOptions>& s) {
  using O = ParallelOptions;
  s.option("virtual_pipeline_model_parallel_size", &O::virtual_pipeline_model_parallel_size,
           "Number of virtual stages (model chunks) per pipeline rank; above 1: interleaved schedule.")
      .replaces({"num_virtual_stages_per_pipeline_rank", "num_layers_per_virtual_pipeline_stage"})
      .alias("virtual_pipeline_model_parallel_size_ms")
      .at_least(1)
      .at_most(options::most_layers);
  s.option("num_virtual_stages_per_pipeline_rank", &O::num_virtual_stages_per_pipeline_rank,
           "Megatron-LM's name for `virtual_pipeline_model_parallel_size`.")
      .replaces({"virtual_pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage"})
      .at_least(1)
      .at_most(options::most_layers);
  s.option("num_layers_per_virtual_pipeline_stage", &O::num_layers_per_virtual_pipeline_stage,
           "Number of layers per virtual stage, as an alternative to `virtual_pipeline_model_parallel_size`.")
      .replaces({"virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"})
      .at_least(1)
      .at_most(options::most_layers)
      .matters_when([](const O& o) { return o.num_layer_list.empty(); }, "`num_layer_list` is given");
  s.option("microbatch_group_size_per_vp_stage", &O::microbatch_group_size_per_vp_stage,
           "Number of consecutive micro-batches per virtual stage in the interleaved schedule.")
      .at_least(1)
      .at_most(options::most_step_samples)
      .otherwise([](const O& o) { return o.pipeline_model_parallel_size; }, "`pipeline_model_parallel_size`");
  s.option("num_layer_list", &O::num_layer_list,
           "Number of layers of each chunk, [stage][chunk]: the outer list has `pipeline_model_parallel_size` items. "
           "Layers are numbered through chunk 0 of all stages, then chunk 1, and so on. A chunk with 0 layers passes "
           "on what "
           "it receives.")
      .at_least(0)
      .at_most(options::most_layers);
  s.option("decoder_first_pipeline_num_layers", &O::decoder_first_pipeline_num_layers,
           "Number of layers of the first pipeline stage; the other stages share the rest evenly.")
      .at_least(1)
      .at_most(options::most_layers);
  s.option("decoder_last_pipeline_num_layers", &O::decoder_last_pipeline_num_layers,
           "Number of layers of the last pipeline stage; the other stages share the rest evenly.")
      .at_least(1)
      .at_most(options::most_layers);
  s.option("pipeline_model_parallel_layout", &O::pipeline_model_parallel_layout,
           "Pipeline layout: all chunks in the order of the forward pass, separated by vertical bars; E embedding, t a "
           "layer, m a layer of multi-token prediction, L loss. t*3 repeats, also for parentheses; commas are ignored. "
           "Examples: docs/parallelism.md.");
  s.option("account_for_embedding_in_pipeline_split", &O::account_for_embedding_in_pipeline_split,
           "Count the embedding as a layer when layers are distributed over stages.")
      .matters_when(has_stages, no_stages);
  s.option("account_for_loss_in_pipeline_split", &O::account_for_loss_in_pipeline_split,
           "Count the loss as a layer when layers are distributed over stages.")
      .matters_when(has_stages, no_stages);
  s.option("standalone_embedding_stage", &O::standalone_embedding_stage,
           "The first pipeline stage holds the embedding alone; lists of layers describe the other stages.");
  s.option("noop_layers", &O::noop_layers,
           "Indices of no-op layers, which have no weights and return their input, counted from 0 and included in "
           "`num_layers`; they make the number of layers divisible by the number of stages.")
      .at_least(0)
      .at_most(options::most_layers);
}

void describe_recompute(options::Schema<ParallelOptions>& s) {
  using O = ParallelOptions;
  s.option("recompute", &O::recompute,
           "Number of fully recomputed layers of each chunk, from its first, [stage][chunk]. Replaces "
           "`model_config.recompute_granularity`.")
      .alias("recompute_config.recompute")
      .at_least(0)
      .at_most(options::most_layers);
  s.option("select_recompute", &O::select_recompute,
           "Number of layers of each chunk that recompute attention only, after those of `recompute`, [stage][chunk].")
      .alias("recompute_config.select_recompute")
      .at_least(0)
      .at_most(options::most_layers);
  s.option("select_comm_recompute", &O::select_comm_recompute,
           "Number of layers of each chunk that repeat the sequence-parallel all-gather in the backward pass, after "
           "those of `recompute`, [stage][chunk]. Not implemented yet: a list is refused.")
      .alias("recompute_config.select_comm_recompute")
      .at_least(0)
      .at_most(options::most_layers);
}

void describe_context(options::Schema<ParallelOptions>& s) {
  using O = ParallelOptions;
  const auto shares = [](const O& o) { return o.context_parallel_size > 1; };
  constexpr const char* alone = "`context_parallel_size` is 1";
  s.option("context_parallel_size", &O::context_parallel_size,
           "Context-parallel size: number of ranks that share each sequence.")
      .at_least(1)
      .at_most(options::most_ranks);
  s.option(
       "cp_comm_type", &O::cp_comm_type,
       "Exchange of keys and values among context-parallel ranks, for all layers or a list with one word per layer. "
       "p2p: ring; all_gather: all-gather; a2a: all-to-all of tokens for heads (Ulysses); a2a+p2p: a2a among adjacent "
       "ranks, a ring across these groups; null: `context_parallel_algo`, else p2p. Does not affect results.")
      .matters_when(shares, alone);
  s.option("hierarchical_context_parallel_sizes", &O::hierarchical_context_parallel_sizes,
           "Sizes of the two levels of `cp_comm_type` a2a+p2p, as [ranks of an all-to-all group, groups in the ring]; "
           "their product is `context_parallel_size`.")
      .at_least(1)
      .at_most(options::most_ranks)
      .matters_when(shares, alone);
  s.option("context_parallel_algo", &O::context_parallel_algo,
           "MindSpeed's name for `cp_comm_type`: ulysses_cp_algo is a2a, megatron_cp_algo p2p, hybrid_cp_algo a2a+p2p, "
           "kvallgather_cp_algo all_gather. Does not affect results.")
      .matters_when(shares, alone);
  s.option(
       "ulysses_degree_in_cp", &O::ulysses_degree_in_cp,
       "MindSpeed's name for the first of `hierarchical_context_parallel_sizes`; must divide `context_parallel_size`.")
      .at_least(1)
      .at_most(options::most_ranks)
      .matters_when(shares, alone);
}

void describe_experts(options::Schema<ParallelOptions>& s) {
  using O = ParallelOptions;
  s.option("expert_model_parallel_size", &O::expert_model_parallel_size,
           "Expert-parallel size: number of groups of ranks that divide the experts of a layer.")
      .at_least(1)
      .at_most(options::most_ranks);
  s.option("expert_tensor_parallel_size", &O::expert_tensor_parallel_size,
           "Expert-tensor-parallel size: number of ranks that share each expert.")
      .at_least(1)
      .at_most(options::most_ranks)
      .otherwise([](const O& o) { return o.tensor_model_parallel_size; }, "`tensor_model_parallel_size`")
      .needs("experts");
}

/// Ranks that have one replica of the model.
std::int64_t ranks_of_replica(const ParallelOptions& o) {
  return o.tensor_model_parallel_size * o.context_parallel_size * o.pipeline_model_parallel_size;
}

}  // namespace

bool ChunkNumbers::Option::read(const options::Value& value, ChunkNumbers& out) {
  if (says_nothing(value)) return out = {}, true;
  const auto list = as_list(value);
  ChunkNumbers all;
  Numbers flat;
  if (options::OptionType<Numbers>::read(list, flat)) {
    for (const auto number : flat) all.stages.push_back({number});
  } else if (!options::OptionType<std::vector<Numbers>>::read(list, all.stages)) {
    return false;
  }
  return out = std::move(all), true;
}

options::Value ChunkNumbers::Option::write(const ChunkNumbers& numbers) {
  return numbers.empty() ? options::Value{} : options::OptionType<std::vector<Numbers>>::write(numbers.stages);
}

std::string ChunkNumbers::Option::json_schema() {
  const std::string numbers = " *[0-9]{1,9} *(?:, *[0-9]{1,9} *)*", list = "\\\\[" + numbers + "\\\\] *";
  const std::string lists = " *" + list + "(?:, *" + list + ")*";
  const auto texts = text("^(?:", numbers, "|", lists, "|\\\\[", lists, "\\\\])?$");
  return R"({"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/item"}},
    {"type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    {"type": "integer", "minimum": 0}, {"type": "string", "pattern": ")" +
         texts + "\"}]}";
}

std::string LayerIds::Option::json_schema() {
  return R"({"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/item"}}, {"type": "integer", "minimum": 0},
    {"type": "string", "pattern": "^(?: *[0-9]{1,9} *(?:, *[0-9]{1,9} *)*)?$"}]})";
}

bool LayerIds::Option::read(const options::Value& value, LayerIds& out) {
  if (says_nothing(value)) return out = {}, true;
  return options::OptionType<Numbers>::read(as_list(value), out.ids);
}

options::Value LayerIds::Option::write(const LayerIds& layers) {
  return layers.ids.empty() ? options::Value{} : options::OptionType<Numbers>::write(layers.ids);
}

bool ContextExchanges::Option::read(const options::Value& value, ContextExchanges& out) {
  if (says_nothing(value)) return out = {}, true;
  ContextExchange one{};
  if (options::OptionType<ContextExchange>::read(value, one)) return out.layers = {one}, true;
  return options::OptionType<std::vector<ContextExchange>>::read(value, out.layers);
}

options::Value ContextExchanges::Option::write(const ContextExchanges& all) {
  if (all.empty()) return {};
  return all.layers.size() == 1 ? options::OptionType<ContextExchange>::write(all.layers[0])
                                : options::OptionType<std::vector<ContextExchange>>::write(all.layers);
}

std::string ContextExchanges::Option::json_schema() {
  std::string choices;
  for (const auto& word : options::OptionType<ContextExchange>::choices())
    choices += (choices.empty() ? "\"" : ", \"") + word + "\"";
  return R"({"anyOf": [{"enum": [)" + choices + R"(, ""]}, {"type": "array", "items": {"enum": [)" + choices + "]}}]}";
}

void describe(options::Schema<ParallelOptions>& s) {
  using O = ParallelOptions;
  s.when_changed(options::Change::silent);
  s.option("tensor_model_parallel_size", &O::tensor_model_parallel_size,
           "Tensor-parallel size: number of ranks that share each layer.")
      .at_least(1)
      .at_most(options::most_ranks);
  s.option("pipeline_model_parallel_size", &O::pipeline_model_parallel_size,
           "Pipeline-parallel size: number of stages.")
      .at_least(1)
      .at_most(options::most_layers);
  s.option("data_parallel_size", &O::data_parallel_size,
           "Data-parallel size; a given value is checked against the number of ranks.")
      .at_least(1)
      .at_most(options::most_ranks)
      .otherwise("ranks / `tensor_model_parallel_size` / `context_parallel_size` / `pipeline_model_parallel_size`");
  s.option("sequence_parallel", &O::sequence_parallel,
           "Sequence parallelism: tensor-parallel ranks also split norms and dropout along the sequence.")
      .matters_when([](const O& o) { return o.tensor_model_parallel_size > 1; }, "`tensor_model_parallel_size` is 1");
  s.option("use_tp_pp_dp_mapping", &O::use_tp_pp_dp_mapping,
           "Order ranks as tp-cp-pp-dp instead of tp-cp-dp-pp: pipeline stages of a replica have adjacent ranks.")
      .matters_when(has_stages, no_stages);
  describe_context(s);
  describe_experts(s);
  describe_pipeline(s);
  describe_recompute(s);
  s.option("zero_level", &O::zero_level, "ZeRO level; z1: same as `training_config.use_distributed_optimizer`.");
  s.option("overlap_grad_reduce", &O::overlap_grad_reduce, "Same as `training_config.overlap_grad_reduce`.")
      .no_flag("another form of training_config.overlap_grad_reduce, in recipes of MindSpeed-Core-MS");
}

std::int64_t data_parallel_ranks(const ParallelOptions& o, std::int64_t world) {
  return std::max<std::int64_t>(1, world / ranks_of_replica(o));
}

std::int64_t fewest_ranks(const ParallelOptions& o) {
  if (o.data_parallel_size || o.expert_model_parallel_size == 1)
    return ranks_of_replica(o) * o.data_parallel_size.value_or(1);
  return std::lcm(ranks_of_replica(o),
                  o.sharers_of_expert() * o.expert_model_parallel_size * o.pipeline_model_parallel_size);
}

std::vector<options::Finding> mistakes_of_ranks(const ParallelOptions& o, std::int64_t world) {
  std::vector<options::Finding> all;
  const std::string group = "parallel_config.";
  const auto model = ranks_of_replica(o);
  const auto shared = o.context_parallel_size > 1 ? text(" x context_parallel_size ", o.context_parallel_size) : "";
  if (world % model != 0 || world < model)
    all.push_back({group + (o.tensor_model_parallel_size > 1 ? "tensor_model_parallel_size"
                            : o.context_parallel_size > 1    ? "context_parallel_size"
                                                             : "pipeline_model_parallel_size"),
                   text("a copy of the model takes ", model, " processes (tensor_model_parallel_size ",
                        o.tensor_model_parallel_size, shared, " x pipeline_model_parallel_size ",
                        o.pipeline_model_parallel_size, "), but the run has ", world),
                   text("start ", model, " processes or a multiple of that"), "PAR1"});
  else if (o.data_parallel_size && *o.data_parallel_size != world / model)
    all.push_back({group + "data_parallel_size",
                   text("data_parallel_size is ", *o.data_parallel_size, ", but ", world, " processes of which ", model,
                        " hold one copy of the model make ", world / model),
                   text("start ", model * *o.data_parallel_size, " processes, or leave data_parallel_size out"),
                   "PAR3"});
  return all;
}

std::vector<options::Finding> mistakes_of_expert_ranks(const ParallelOptions& o, std::int64_t world) {
  std::vector<options::Finding> all;
  const std::string group = "parallel_config.";
  const auto model = ranks_of_replica(o);
  const auto stages = o.pipeline_model_parallel_size, experts = o.sharers_of_expert() * o.expert_model_parallel_size;
  if (world / stages % experts != 0)
    all.push_back(
        {group + (o.expert_model_parallel_size > 1 ? "expert_model_parallel_size" : "expert_tensor_parallel_size"),
         text("all experts of a layer take ", experts, " processes (expert_tensor_parallel_size ",
              o.sharers_of_expert(), " x expert_model_parallel_size ", o.expert_model_parallel_size,
              "), which do not divide the ", world / stages, " of a pipeline stage"),
         text("start ", std::lcm(model, experts * stages), " processes or a multiple of that"), "PAR12"});
  return all;
}

std::vector<options::Finding> mistakes_of_experts(const ParallelOptions& o, const ExpertExtents& e) {
  std::vector<options::Finding> all;
  const std::string group = "parallel_config.", ep = group + "expert_model_parallel_size",
                    etp = group + "expert_tensor_parallel_size";
  const auto ranks = o.expert_model_parallel_size, sharers = o.sharers_of_expert();
  if (e.experts == 0) {
    if (ranks > 1)
      all.push_back({ep, text("expert_model_parallel_size is ", ranks, ", but the model has no experts"),
                     "leave it out, or give model_config.num_experts", "MOE3"});
    return all;
  }
  if (e.experts % ranks != 0)
    all.push_back({ep, text("num_experts ", e.experts, " is not divisible by expert_model_parallel_size ", ranks),
                   text("make num_experts a multiple of ", ranks, ", or change expert_model_parallel_size"), "MOE3"});
  if (e.inner % sharers != 0)
    all.push_back(
        {o.expert_tensor_parallel_size ? etp : group + "tensor_model_parallel_size",
         text("the hidden size of an expert, moe_ffn_hidden_size ", e.inner, ", is not divisible by ",
              o.expert_tensor_parallel_size ? "expert_tensor_parallel_size " : "tensor_model_parallel_size ", sharers),
         text("make it a multiple of ", sharers, ", or give expert_tensor_parallel_size 1"), "M9"});
  if (ranks > 1 && e.half)
    all.push_back({ep, "fp16 is incompatible with expert_model_parallel_size above 1", "train in bf16", "MOE3"});
  if (o.tensor_model_parallel_size > 1 && !o.sequence_parallel)
    all.push_back({group + "sequence_parallel",
                   text("the model has experts and tensor_model_parallel_size is ", o.tensor_model_parallel_size,
                        ", but sequence_parallel is off"),
                   "give sequence_parallel true", "PAR7"});
  return all;
}

std::int64_t CutExtents::least_groups() const {
  const auto least =
      std::min_element(heads.begin(), heads.end(), [](const Heads& a, const Heads& b) { return a.groups < b.groups; });
  return least == heads.end() ? 1 : least->groups;
}

std::vector<options::Finding> mistakes_of_extents(const ParallelOptions& o, const CutExtents& e) {
  std::vector<options::Finding> all;
  const auto ranks = o.tensor_model_parallel_size;
  const auto must_divide = [&](const char* rule, const std::string& option, std::int64_t extent,
                               const std::string& of) {
    if (extent % ranks != 0)
      all.push_back({option, text("tensor_model_parallel_size ", ranks, " does not divide ", of, " ", extent),
                     text("make it a multiple of ", ranks, ", or change parallel_config.tensor_model_parallel_size"),
                     rule});
  };
  const auto least = e.least_groups();
  for (const auto& one : e.heads) {
    const auto groups = options::name_in_group(one.groups_option);
    must_divide("M8", one.option, one.heads, options::name_in_group(one.option));
    if (one.groups > 0 && one.groups % ranks != 0 && ranks % one.groups != 0)
      all.push_back({one.groups_option,
                     text(groups, " ", one.groups, " and tensor_model_parallel_size ", ranks,
                          " do not fit: neither divides the other"),
                     "give a divisor or a multiple of tensor_model_parallel_size", "M8"});
    else if (one.groups < ranks && one.groups != least)
      all.push_back({one.groups_option,
                     text(groups, " is ", one.groups, ", but other layers have ", least,
                          " groups, and both are less than ", "tensor_model_parallel_size ", ranks),
                     "give both the same number, or at least as many as tensor_model_parallel_size", "M8"});
  }
  for (const auto& one : e.inner) must_divide("M9", one.option, one.extent, one.of);
  must_divide("M9", "model_config.vocab_size", e.vocabulary, "the vocabulary's");
  for (const auto& one : e.gathered) must_divide("M9", one.option, one.extent, one.of);
  if (o.sequence_parallel && o.context_parallel_size == 1)  // else: mistakes_of_context
    must_divide("PAR10", "model_config.seq_length", e.seq_length, "with sequence_parallel seq_length");
  return all;
}

}  // namespace tessera::parallel
