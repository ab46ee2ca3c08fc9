#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "framework/interop/flags/flag_table.h"
#include "framework/interop/flags/megatron_arguments.h"
#include "framework/interop/flags/megatron_rules.h"
#include "framework/interop/flags/spec_rule.h"
#include "framework/options/mappings.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

/// The anchor that a row of docs/rules.md begins with; empty where it has none.
std::string anchor_of(const std::string& cell) {
  const std::string begin = " <a id=\"";
  return cell.rfind(begin, 0) == 0 ? cell.substr(begin.size(), cell.find('"', begin.size()) - begin.size()) : "";
}

/// docs/rules.md: rule -> where it is asked.
std::map<std::string, std::string> page(Lines* twice = nullptr) {
  std::ifstream file(DOCS_DIR "/rules.md");
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream cells(line);
    std::string rule, where, none;
    if (line.rfind("| ", 0) != 0 || !std::getline(cells, none, '|') || !std::getline(cells, rule, '|') ||
        !std::getline(cells, where, '|'))
      continue;
    if (const auto end = rule.find("</a>"); end != std::string::npos) rule = " " + rule.substr(end + 4);
    const auto bare = [](const std::string& cell) { return cell.substr(1, cell.size() - 2); };
    if (!rows.emplace(bare(rule), bare(where)).second && twice && bare(rule) != "rule") twice->push_back(bare(rule));
  }
  return rows;
}

std::set<std::string> rules_of(const std::string& where) {
  std::set<std::string> all;
  for (const auto& [rule, places] : page())
    if ((", " + places + ",").find(", " + where + ",") != std::string::npos) all.insert(rule);
  return all;
}

TEST(Rules, EveryRuleOfMegatronIsOnThePageOnce) {
  const std::pair<const char*, int> sections[] = {{"P", 14}, {"D", 7},    {"M", 28},   {"PAR", 28},
                                                  {"B", 13}, {"DAT", 12}, {"O", 11},   {"MP", 9},
                                                  {"C", 16}, {"REC", 8},  {"MOE", 20}, {"L", 14}};
  Lines twice;
  const auto rows = page(&twice);
  EXPECT_EQ(twice, Lines{});
  for (const auto& [section, count] : sections)
    for (int i = 1; i <= count; ++i) EXPECT_TRUE(rows.count(section + std::to_string(i))) << section << i;
}

std::set<std::string> anchors() {
  std::ifstream file(DOCS_DIR "/rules.md");
  std::set<std::string> all;
  for (std::string line; std::getline(file, line);)
    if (line.size() > 1 && line.front() == '|' && !anchor_of(line.substr(1)).empty())
      all.insert(anchor_of(line.substr(1)));
  return all;
}

void take_texts(const options::Value& value, std::vector<std::string>& texts) {
  texts.push_back(value.scalar);
  for (const auto& item : value.items) take_texts(item, texts);
  for (const auto& field : value.fields) take_texts(field.value, texts);
}

TEST(Rules, EveryRuleHasAnAnchor) {
  std::set<std::string> expected;
  for (const auto& row : page()) {
    auto anchor = row.first;
    for (auto& letter : anchor) letter = letter == ' ' ? '-' : static_cast<char>(std::tolower(letter));
    if (row.second.front() != '-' && row.first != "rule" && row.second != "meaning") expected.insert(anchor);
  }
  for (const auto* heading : {"recipe", "command-line", "arguments", "flags", "built-in", "none", "where"})
    expected.erase(heading);  // the table that says what the second column means
  EXPECT_EQ(anchors(), expected);
}

TEST(Rules, WhatATableOfMappingsCitesIsInThisRepository) {
  static const std::regex cited(R"([\w./-]+\.md(#[\w-]+)?|mapping\.json)");
  const auto known = anchors();
  const options::Mappings mappings;
  std::size_t citations = 0;
  for (const auto& name : mappings.names()) {
    std::vector<std::string> texts;
    take_texts(mappings.table(name), texts);
    for (const auto& words : texts)
      for (std::sregex_iterator at(words.begin(), words.end(), cited), end; at != end; ++at, ++citations) {
        const auto hash = at->str().find('#');
        const auto file = at->str().substr(0, hash);
        const auto of_docs = file.rfind("docs/", 0) == 0 ? DOCS_DIR + file.substr(4) : "";
        EXPECT_TRUE(std::filesystem::exists(of_docs)) << name << " cites " << at->str() << ": " << words;
        if (file == "docs/rules.md" && hash != std::string::npos) {
          EXPECT_TRUE(known.count(at->str().substr(hash + 1))) << name << " cites " << at->str() << ": " << words;
        }
      }
  }
  EXPECT_GT(citations, 100U);
}

TEST(Rules, ThatACommandLineOrArgumentsAreHeldToAreThoseOfThePage) {
  std::set<std::string> of_commands, of_arguments;
  for (const auto& rule : flags::megatron_rules()) of_commands.insert(rule.name);
  for (const auto& rule : flags::rules_of_recipes_and_megatron()) of_commands.insert(rule);
  for (const auto& rule : flags::argument_rules()) of_arguments.insert(rule);
  auto told = rules_of("command line");
  told.erase("C15");  // PAR17 and M28 by another name
  EXPECT_EQ(of_commands, told);
  EXPECT_EQ(of_arguments, rules_of("arguments"));
}

TEST(Rules, ThatACommandLineSharesWithARecipeAreRulesOfARecipe) {
  const auto of_recipes = rules_of("recipe");
  for (const auto& rule : flags::rules_of_recipes_and_megatron()) EXPECT_TRUE(of_recipes.count(rule)) << rule;
}

const std::string good =
    "model_config: {num_layers: 8, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n"
    "dataset_config: {dataset_type: mock, batch_size: 2}\n"
    "training_config: {training_iters: 20}\n";

void take_out(options::Value& tree, const std::string& path) {
  for (auto& [name, group] : tree.fields)
    if (path.rfind(name + ".", 0) == 0)
      std::erase_if(group.fields, [&, prefix = name + "."](const auto& field) { return prefix + field.name == path; });
}

/// A format of another program that can be read only.
class ReadOnlyFormat final : public checkpoint::CheckpointFormat {
 public:
  std::string name() const override { return "read_only"; }
  std::string program() const override { return "another"; }
  std::optional<std::filesystem::path> find(const std::filesystem::path&) const override { return std::nullopt; }
  std::unique_ptr<checkpoint::OpenedCheckpoint> open(const std::filesystem::path&,
                                                     const options::Mappings&) const override {
    return nullptr;
  }
};

recipe::Registries registries() {
  recipe::Registries all;
  all.formats.add(std::make_shared<ReadOnlyFormat>());
  all.rules.push_back(flags::check_spec);
  return all;
}

/// Settings laid over a recipe without mistakes; "-option" takes it out, "world 3" starts so many processes.
std::set<std::string> broken_by_settings(const Lines& settings) {
  options::Report report;
  auto tree = options::parse_yaml(good, "run.yaml");
  std::int64_t world = 0;
  for (const auto& setting : settings) {
    const auto equal = setting.find('=');
    if (setting.rfind("world ", 0) == 0) {
      world = std::stoll(setting.substr(6));
    } else if (setting[0] == '-') {
      take_out(tree, setting.substr(1));
    } else {
      auto value = options::parse_yaml("x: " + setting.substr(equal + 1), "set").fields.at(0).value;
      tree.set(setting.substr(0, equal), std::move(value));
    }
  }
  const auto recipe = recipe::read_recipe(tree, registries(), report);
  if (world > 0 && report.good()) recipe::check_ranks(recipe, world, report);
  std::set<std::string> all;
  for (const auto& finding : report.findings()) all.insert(finding.rule.empty() ? finding.message : finding.rule);
  return all;
}

const std::string m = "model_config.", p = "parallel_config.", o = "optimizer_config.", d = "dataset_config.",
                  t = "training_config.", e = "moe_config.";

/// A way to break each rule of a recipe.
const std::vector<std::pair<const char*, Lines>>& ways() {
  static const std::vector<std::pair<const char*, Lines>> all = {
      {"M3", {m + "hidden_size=8", m + "hidden_act=swiglu"}},
      {"M4", {m + "num_attention_heads=3"}},
      {"M6", {m + "max_position_embeddings=8"}},
      {"M7", {p + "context_parallel_size=16"}},
      {"M8", {m + "group_query_attention=true", m + "num_query_groups=3"}},
      {"M8", {p + "tensor_model_parallel_size=8", m + "ffn_hidden_size=128"}},
      {"M9", {p + "tensor_model_parallel_size=2", m + "ffn_hidden_size=127"}},
      {"PAR1", {p + "tensor_model_parallel_size=2", "world 3"}},
      {"PAR3", {p + "data_parallel_size=2", "world 4"}},
      {"PAR4", {p + "context_parallel_size=4", p + "hierarchical_context_parallel_sizes=[2, 4]"}},
      {"PAR4", {p + "context_parallel_size=4", p + "cp_comm_type=a2a+p2p"}},
      {"PAR6", {p + "pipeline_model_parallel_size=2", p + "num_layers_per_virtual_pipeline_stage=3"}},
      {"PAR8", {p + "pipeline_model_parallel_size=3", p + "decoder_first_pipeline_num_layers=3"}},
      {"PAR9", {p + "pipeline_model_parallel_size=2", p + "account_for_loss_in_pipeline_split=true"}},
      {"PAR10", {p + "tensor_model_parallel_size=2", p + "sequence_parallel=true", m + "seq_length=15"}},
      {"PAR12", {p + "virtual_pipeline_model_parallel_size=2"}},
      {"PAR14",
       {p + "pipeline_model_parallel_size=2", p + "virtual_pipeline_model_parallel_size=2", d + "micro_batch_num=3"}},
      {"PAR16", {o + "overlap_param_gather=true"}},
      {"PAR25", {p + "context_parallel_size=2", p + "cp_comm_type=[p2p, a2a]"}},
      {"B2", {d + "global_batch_size=3"}},
      {"B3",
       {d + "rampup_batch_size=[2, 3, 10]", "-training_config.training_iters", d + "train_samples=40",
        d + "global_batch_size=4"}},
      {"empty step",
       {d + "rampup_batch_size=[1, 1, 10]", "-training_config.training_iters", d + "train_samples=40",
        d + "global_batch_size=4", d + "decrease_batch_size_if_needed=true"}},
      {"B5", {d + "rampup_batch_size=[2, 2, 10]", d + "global_batch_size=4"}},
      {"B5", {d + "train_samples=40"}},
      {"B6", {"-training_config.training_iters", d + "train_samples=40", o + "lr_warmup_iters=1"}},
      {"B7", {"-training_config.training_iters"}},
      {"B7", {"-training_config.training_iters", d + "train_samples=1"}},
      {"O1", {o + "min_lr=1"}},
      {"O1", {o + "decoupled_lr=1e-4", o + "decoupled_min_lr=1e-3"}},
      {"O2", {o + "weight_decay_incr_style=linear"}},
      {"O4", {o + "lr_warmup_iters=30"}},
      {"O4", {o + "lr_decay_style=WSD"}},
      {"MP1", {t + "bf16=true", t + "fp16=true"}},
      {"MP6", {m + "fp16_lm_cross_entropy=true"}},
      {"MP9", {t + "fp16=true", t + "loss_scale_value=1", t + "min_loss_scale=2"}},
      {"REC2", {m + "recompute_granularity=selective", m + "recompute_num_layers=1"}},
      {"REC3", {m + "recompute_granularity=full"}},
      {"REC3", {m + "recompute_granularity=full", m + "recompute_method=uniform", m + "recompute_num_layers=0"}},
      {"part of a file name", {t + "prefix=my/run"}},
      {"C1", {t + "non_persistent_ckpt_type=local", t + "non_persistent_save_interval=2"}},
      {"C7", {t + "ckpt_convert_format=torch", t + "load_checkpoint=there"}},
      {"C7", {t + "ckpt_convert_format=torch", t + "ckpt_convert_save=there"}},
      {"iteration of a checkpoint that is loaded", {t + "override_ckpt_iteration=2"}},
      {"main weights without optimizer state", {t + "load_main_params_from_ckpt=true"}},
      {"allow_changes", {t + "allow_changes=[optimizer_config.clip_grad]"}},
      {"frozen parameters", {t + "frozen_parameters=[nothing]"}},
      {"frozen parameters", {t + "frozen_parameters=['.*']"}},
      {"frozen parameters", {t + "trainable_parameters=['.*norm.*']", t + "save_frozen_parameters=false"}},
      {"one type", {t + "bf16=true", m + "compute_dtype=float16"}},
      {"one residual type", {m + "fp32_residual_connection=true", m + "residual_connection_dtype=bfloat16"}},
      {"one activation", {m + "swiglu=true", m + "hidden_act=relu"}},
      {"one window", {m + "sliding_window=4", m + "window_size=[5, 0]"}},
      {"a window for layers", {m + "layer_types=[sliding_attention]"}},
      {"sandwich scales", {m + "use_sandwich_norm=true", m + "attn_post_norm_scale=0.5"}},
      {"one residual", {m + "shared_parallel_norm=true"}},
      {"rotary_percent", {m + "position_embedding_type=rope", m + "rotary_percent=0.1"}},
      {"rotary_percent", {m + "multi_latent_attention=true", m + "rotary_percent=0.5"}},
      {"rope scaling", {m + "rope_scaling_low_freq_factor=9"}},
      {"scale_embeddings", {m + "scale_embeddings=true"}},
      {"embedding_multiplier", {m + "embedding_multiplier=2"}},
      {"no_rope_freq", {m + "position_embedding_type=rope", m + "no_rope_freq=[0]"}},
      {"rope_local_base_freq", {m + "position_embedding_type=rope", m + "rope_local_base_freq=100"}},
      {"alibi of latent attention", {m + "position_embedding_type=alibi", m + "multi_latent_attention=true"}},
      {"bounds of a gate", {m + "glu_linear_offset=1"}},
      {"biases of experts",
       {m + "num_experts=4", m + "mlp_has_bias=true", "moe_config.moe_shared_expert_intermediate_size=8"}},
      {"softmax_type", {m + "softmax_type=learnable", m + "multi_latent_attention=true"}},
      {"embed_layernorm", {m + "embed_layernorm=true"}},
      {"micro_batch_num", {d + "micro_batch_num=3", d + "global_batch_size=4"}},
      {"countable sizes", {t + "training_iters=1000000000000", d + "batch_size=1000000"}},
      {"countable sizes", {t + "eval_interval=1", t + "eval_iters=1000000000", t + "training_iters=10000000000"}},
      {"number of ranks", {p + "tensor_model_parallel_size=4", p + "data_parallel_size=1000000"}},
      {"one context exchange",
       {p + "context_parallel_size=2", p + "cp_comm_type=a2a", p + "context_parallel_algo=megatron_cp_algo"}},
      {"heads of context parallelism", {p + "context_parallel_size=8", p + "cp_comm_type=a2a"}},
      {"passes of a step", {p + "pipeline_model_parallel_size=8", d + "micro_batch_num=1048576"}},
      {"width of attention", {m + "num_attention_heads=128", m + "kv_channels=65536"}},
      {"rotary_base", {m + "position_embedding_type=rope", m + "rotary_base=0.5"}},
      {"vocabulary", {"-model_config.vocab_size"}},
      {"injected faults", {"resilience_config.inject_fault=[1:2:forward]"}},
      {"stage", {t + "stage=sft"}},
      {"stage", {t + "stage=dpo"}},
      {"stage", {t + "stage=grpo"}},
      {"stage", {m + "score_head=true", "world 1"}},
      {"stage", {m + "score_head=true", m + "mtp_num_layers=1", m + "position_embedding_type=rope"}},
      {"preferences", {"preference_config.dpo_loss_type=robust", "preference_config.dpo_label_smoothing=0.6"}},
      {"preferences", {"preference_config.dpo_loss_type=exo_pair"}},
      {"one cut", {p + "num_layer_list=[[8]]", p + "decoder_first_pipeline_num_layers=2"}},
      {"layout", {p + "pipeline_model_parallel_layout=Et*3L"}},
      {"num_layer_list", {p + "num_layer_list=[[7]]"}},
      {"standalone embedding", {p + "standalone_embedding_stage=true"}},
      {"layers for all", {p + "pipeline_model_parallel_size=9"}},
      {"recompute lists", {p + "recompute=[[9]]"}},
      {"recompute_norm",
       {m + "recompute_norm=true", m + "recompute_granularity=full", m + "recompute_method=uniform",
        m + "recompute_num_layers=1"}},
      {"recompute_norm", {m + "recompute_norm_num_layers=1"}},
      {"recompute_norm", {m + "recompute_norm=true", m + "recompute_norm_num_layers=9"}},
      {"recompute_activation_function",
       {m + "recompute_activation_function=true", m + "recompute_granularity=full", m + "recompute_method=uniform",
        m + "recompute_num_layers=1"}},
      {"recompute_activation_function", {m + "recompute_activation_function_num_layers=1"}},
      {"recompute_activation_function",
       {m + "recompute_activation_function=true", m + "recompute_activation_function_num_layers=9"}},
      {"noop layers", {p + "noop_layers=[8]"}},
      {"M18", {m + "multi_latent_attention=true", m + "rotary_interleaved=true", m + "position_embedding_type=rope"}},
      {"M22", {m + "mtp_num_layers=1"}},
      {"REC5", {m + "recompute_granularity=selective", m + "recompute_modules=[mla_up_proj]"}},
      {"number of experts", {m + "num_experts=65536", m + "add_bias_linear=false"}},
      {"REC8",
       {m + "num_experts=4", m + "add_bias_linear=false", e + "moe_layer_recompute=true",
        m + "recompute_granularity=full", m + "recompute_method=uniform", m + "recompute_num_layers=1"}},
      {"MOE3", {p + "expert_model_parallel_size=2"}},
      {"PAR7", {m + "num_experts=4", m + "add_bias_linear=false", p + "tensor_model_parallel_size=2"}},
      {"MOE4", {m + "num_experts=4"}},
      {"MOE8", {e + "moe_pad_expert_input_to_capacity=true"}},
      {"MOE8", {e + "moe_expert_capacity_factor=1", e + "moe_router_load_balancing_type=sinkhorn"}},
      {"MOE9",
       {m + "num_experts=4", m + "add_bias_linear=false", e + "moe_token_dispatcher_type=alltoall_seq",
        p + "tensor_model_parallel_size=2", p + "sequence_parallel=true", p + "expert_tensor_parallel_size=1"}},
      {"checkpoint format", {t + "ckpt_format=read_only"}},
      {"spec", {m + "spec=[some.module, layers]"}},
      {"spec", {m + "spec=[mindspeed_llm.tasks.models.spec.longcat_spec, layer_spec]"}},
      {"spec", {m + "spec=[mindspeed_llm.tasks.models.spec.gemma2_spec, layer_spec]"}},
      {"MOE10", {e + "moe_router_enable_expert_bias=true"}},
      {"MOE11", {m + "num_experts=4", m + "add_bias_linear=false", e + "moe_router_topk=1"}},
      {"MOE12", {e + "moe_router_group_topk=1"}},
      {"one number of experts", {m + "num_experts=4", e + "num_experts=8"}},
      {"moe_layer_freq", {m + "num_experts=4", m + "add_bias_linear=false", e + "moe_layer_freq=[0, 1]"}},
      {"moe_router_topk", {m + "num_experts=4", m + "add_bias_linear=false", e + "moe_router_topk=5"}},
      {"sinkhorn", {e + "moe_router_load_balancing_type=sinkhorn", e + "moe_aux_loss_coeff=1"}},
      {"one expert", {e + "moe_apply_probs_on_input=true"}},
      {"upcycling", {e + "moe_use_upcycling=true", e + "moe_shared_expert_intermediate_size=8"}},
      {"C14", {m + "num_experts=4", m + "add_bias_linear=false", e + "moe_use_upcycling=true"}},
      {"MLA", {m + "multi_latent_attention=true", m + "sliding_window=4"}},
      {"MLA", {m + "multi_latent_attention=true", m + "rope_scaling_type=yarn", m + "rotary_scaling_factor=4"}},
      {"one weight of tokens", {t + "calculate_per_token_loss=true", t + "calculate_per_sample_loss=true"}},
      {"muon", {o + "optimizer_type=muon", p + "tensor_model_parallel_size=2"}},
      {"not built", {p + "select_comm_recompute=[[1]]"}}};
  return all;
}

TEST(Rules, OfARecipeAreBrokenEachByARecipe) {
  EXPECT_EQ(broken_by_settings({}), std::set<std::string>{});
  for (const auto& [rule, settings] : ways()) {
    const auto broken = broken_by_settings(settings);
    EXPECT_TRUE(broken.count(rule)) << rule << " holds with " << settings[0]
                                    << "; broken: " << (broken.empty() ? "none" : *broken.begin());
  }
}

TEST(Rules, OnlyADynamicLossScaleHasAMinimum) {
  const Lines low = {t + "loss_scale_value=1", t + "min_loss_scale=2"};
  for (const auto& more : {Lines{}, Lines{t + "bf16=true"}, Lines{t + "fp16=true", t + "loss_scale=8"}}) {
    auto settings = low;
    settings.insert(settings.end(), more.begin(), more.end());
    EXPECT_EQ(broken_by_settings(settings), std::set<std::string>{});
  }
}

TEST(Rules, StageSftBelongsToInstructionData) {
  EXPECT_EQ(broken_by_settings({t + "stage=sft", d + "dataset_type=instruction", d + "data_path=x"}),
            std::set<std::string>{});
  EXPECT_EQ(broken_by_settings({t + "stage=sft", d + "dataset_type=sft"}).count("stage"), 1U);
  EXPECT_FALSE(broken_by_settings({t + "stage=dpo", d + "dataset_type=instruction", d + "data_path=x"}).empty());
}

TEST(Rules, OfARecipeOnThePageAreThoseThatCanBeBroken) {
  std::set<std::string> all = {"M2"};  // an option without which there is no recipe
  for (const auto& [rule, settings] : ways()) all.insert(rule);
  EXPECT_EQ(all, rules_of("recipe"));
}

}  // namespace
}  // namespace tessera
