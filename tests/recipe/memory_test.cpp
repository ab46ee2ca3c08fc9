#include "framework/recipe/memory.h"

#include <gtest/gtest.h>

#include "framework/base/clock.h"
#include "framework/kernels/scratch.h"
#include "framework/nn/bound_parameters.h"
#include "framework/options/yaml.h"
#include "framework/recipe/build.h"
#include "framework/training/step/step.h"
#include "tests/own_folder.h"
#include "tests/recipe/two_towers_recipe.h"

namespace tessera::recipe {
namespace {

class Memory : public InOwnFolder {
 protected:
  Recipe read(const std::string& model, const std::vector<std::string>& sets = {}, const Registries& registries = {}) {
    write("run.yaml",
          "training_config: {training_iters: 100, eval_interval: 10, eval_iters: 2}\n"
          "model_config: {num_layers: 3, hidden_size: 32, num_attention_heads: 4, seq_length: 24, vocab_size: 64, " +
              model +
              "}\n"
              "optimizer_config: {learning_rate: 1e-3}\n"
              "dataset_config: {dataset_type: mock, batch_size: 3, micro_batch_num: 2}\n");
    return read_recipe("run.yaml", sets, registries);
  }
  /// Expects that the figures of a run on one rank are those of a step.
  static void expect_as_measured(const Recipe& recipe);
  static std::int64_t part(const MemoryNeed& need, const std::string& name) {
    for (const auto& one : need.parts)
      if (one.name == name) return one.bytes;
    return 0;
  }
  static std::string largest(const Recipe& recipe, std::int64_t ranks = 1) {
    const auto words = text_of(memory_by_stage(recipe, layout_figures(recipe, ranks)).back());
    const auto end = words.find(" (the largest part)");
    const auto start = words.rfind(", ", end) == std::string::npos ? 0 : words.rfind(", ", end) + 2;
    return words.substr(std::max(start, words.rfind(": ", end) + 2), end);
  }
};

TEST_F(Memory, OfASaveWhileTrainingIsACopyOfWhatTheRankSaves) {
  const std::string name = "copies while saving (async_save)";
  const auto copies = [&](int ranks, std::vector<std::string> sets) {
    const auto recipe = read("params_dtype: bfloat16", sets);
    const auto layout = layout_figures(recipe, ranks);
    EXPECT_EQ(memory_of_stage(recipe, layout, 0).bytes() - part(memory_of_stage(recipe, layout, 0), name),
              memory_of_stage(read("params_dtype: bfloat16"), layout, 0).bytes());
    return part(memory_of_stage(recipe, layout, 0), name);
  };
  const std::string async = "training_config.async_save=true", interval = "training_config.save_interval=5";
  EXPECT_EQ(copies(1, {interval}), 0);
  EXPECT_EQ(copies(1, {async}), 0);
  const auto all = 12 * layout_figures(read(""), 1).ranks[0].parameters;  // fp32 weights and two moments
  EXPECT_EQ(copies(1, {async, interval}), all);
  EXPECT_NEAR(static_cast<double>(copies(2, {async, interval})), static_cast<double>(all) / 2, 12);
}

/// The peak of a step is in the backward pass of the last layer, which has them again; the other layers do not.
TEST_F(Memory, OfAStepIsLessByTheResultsOfRecomputedNormsAndActivations) {
  constexpr std::int64_t layers = 8, tokens = 3 * 24, norms = 2 * 32, activations = 96;
  const auto peak = [&](const std::string& model) {
    const auto recipe = read("ffn_hidden_size: 96, " + model, {text("model_config.num_layers=", layers)});
    auto all = build(recipe);
    kernels::Threads threads(2);
    training::ModelState state(all.model.first(), all.optimization.optimizer.get());
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    work.backward(0);
    return static_cast<std::int64_t>(work.arena().high_water());
  };
  for (const std::string model :
       {"hidden_act: gelu", "hidden_act: swiglu, normalization: RMSNorm", "hidden_act: gelu, params_dtype: bfloat16"}) {
    const auto plain = peak(model), width = tokens * (model.find("bfloat16") == std::string::npos ? 4 : 2);
    const auto saved = [&](const std::string& what, std::int64_t of_layer) {
      const auto less = plain - peak(model + ", " + what);
      EXPECT_LE(less, layers * of_layer * width) << model << ", " << what;
      EXPECT_GE(10 * less, 9 * (layers - 1) * of_layer * width) << model << ", " << what;
    };
    saved("recompute_norm: true", norms);
    saved("recompute_activation_function: true", activations);
    saved("recompute_norm: true, recompute_activation_function: true", norms + activations);
    saved("recompute_granularity: selective, recompute_modules: [layernorm]", norms);
  }
}

/// What the forward pass of each chunk of the first stage keeps, of two stages with two chunks of two layers.
std::vector<std::size_t> kept_by_chunks(const Recipe& recipe) {
  std::vector<std::size_t> all;
  kernels::Threads threads(1);
  for (const auto& chunk : build_stage(recipe, 64, recipe.layer_plan(), 0, {}, {}, {})) {
    nn::FlatParameters layout(chunk->parameters());
    std::vector<float> values(static_cast<std::size_t>(layout.elements())), grads(values.size());
    bind_parameters(layout, values, grads);
    initialise_parameters(layout, threads, 1, values);
    const Batch batch(3, 24);
    Arena arena;
    autograd::Tape tape(arena, threads, true);
    model::ForwardMode mode;
    mode.training = true;
    std::vector<float> before(static_cast<std::size_t>(chunk->boundary(batch.view()).input.shape.elements()));
    {
      autograd::Var x;
      if (!all.empty())
        x = tape.input(Tensor(std::span<float>(before), chunk->boundary(batch.view()).input.shape), true);
      const auto out = chunk->forward(tape, x, batch.view(), mode);
      all.push_back(arena.in_use());
    }
    tape.clear();
  }
  return all;
}

TEST_F(Memory, OfRecomputedNormsCountsLayersOfAChunkOrOfARank) {
  const auto saved = [&](const std::string& how) {
    const std::vector<std::string> cut = {"model_config.num_layers=8", "parallel_config.pipeline_model_parallel_size=2",
                                          "parallel_config.virtual_pipeline_model_parallel_size=2"};
    const auto plain = kept_by_chunks(read("hidden_act: gelu", cut)), less = kept_by_chunks(read(how, cut));
    const std::size_t norms = 2 * 3 * 24 * 32 * sizeof(float);
    EXPECT_EQ((plain.at(0) - less.at(0)) % norms, 0U);
    return std::pair((plain.at(0) - less.at(0)) / norms, (plain.at(1) - less.at(1)) / norms);
  };
  const std::string one = "recompute_norm: true, recompute_norm_num_layers: 1",
                    three = "recompute_norm: true, recompute_norm_num_layers: 3",
                    of_rank = ", enable_recompute_layers_per_pp_rank: true";
  EXPECT_EQ(saved(one), std::pair(std::size_t{1}, std::size_t{1}));
  EXPECT_EQ(saved(one + of_rank), std::pair(std::size_t{1}, std::size_t{0}));
  EXPECT_EQ(saved(three + of_rank), std::pair(std::size_t{2}, std::size_t{1}));
}

/// What one step and, where there is one, an evaluation take.
struct Measured {
  std::int64_t state = 0, activations = 0, workspace = 0;
};

Measured measured(const Recipe& recipe) {
  auto all = build(recipe);
  kernels::Threads threads(2);
  training::ModelState state(all.model.first(), all.optimization.optimizer.get());
  state.initialise(threads, 1);
  training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
  kernels::forget_workspace();
  work.backward(0);
  work.evaluate(*all.data.splits->valid, *all.data.valid_order, 0, 1);
  return {state.layout().bytes().all(), static_cast<std::int64_t>(work.arena().high_water()),
          static_cast<std::int64_t>(kernels::workspace_bytes())};
}

void Memory::expect_as_measured(const Recipe& recipe) {
  const auto need = memory_of_stage(recipe, layout_figures(recipe, 1), 0);
  const auto step = measured(recipe);
  EXPECT_TRUE(need.complete) << need.not_foreseen;
  EXPECT_EQ(part(need, "weights") + part(need, "gradients") + part(need, "optimizer state"), step.state);
  EXPECT_EQ(part(need, "activations"), step.activations);
  EXPECT_EQ(part(need, "workspace"), step.workspace);
}

const std::string latent =
    "multi_latent_attention: true, kv_lora_rank: 8, qk_head_dim: 8, qk_pos_emb_head_dim: 4, v_head_dim: 8, "
    "position_embedding_type: rope";

TEST_F(Memory, IsThatOfAStepToTheByte) {
  for (const auto& [model, sets] : std::initializer_list<std::pair<std::string, std::vector<std::string>>>{
           {"hidden_act: gelu", {}},
           {"hidden_act: swiglu, normalization: RMSNorm, position_embedding_type: rope", {}},
           {"qk_layernorm: true, window_size: [5, 2], use_sandwich_norm: true, output_logit_softcap: 5", {}},
           {"hidden_dropout_rate: 0.1, attention_dropout_rate: 0.1, untie_embeddings_and_output_weights: true", {}},
           {"recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 2", {}},
           {"recompute_granularity: full, recompute_method: block, recompute_num_layers: 1", {}},
           {"recompute_granularity: selective, recompute_modules: [core_attn, mlp], use_parallel_residual: true", {}},
           {"recompute_norm: true, recompute_activation_function: true, hidden_act: swiglu", {}},
           {latent + ", q_lora_rank: 16, mtp_num_layers: 1", {}},
           {latent + ", recompute_granularity: selective, recompute_modules: [mla_up_proj]", {}},
           {"group_query_attention: true, num_query_groups: 2, params_dtype: bfloat16", {}},
           {"hidden_act: swiglu", {"training_config.bf16=true", "model_config.seq_length=700"}},
           {"normalization: RMSNorm", {"training_config.fp16=true"}},
           {"hidden_act: gelu", {"model_config.seq_length=1500", "dataset_config.batch_size=1"}}}) {
    SCOPED_TRACE(model + (sets.empty() ? "" : ", " + sets.front()));
    expect_as_measured(read(model, sets));
  }
}

TEST_F(Memory, OfAnotherArchitectureIsThatOfAStepToTheByte) {
  write("run.yaml",
        "training_config: {training_iters: 100, eval_interval: 10, eval_iters: 2}\n"
        "model_config: {model_type: two_towers, encoder_layers: 2, encoder_width: 16, decoder_layers: 2,\n"
        "  decoder_width: 32, seq_length: 24, vocab_size: 64}\n"
        "optimizer_config: {learning_rate: 1e-3}\n"
        "dataset_config: {dataset_type: mock, batch_size: 3, micro_batch_num: 2}\n");
  expect_as_measured(read_recipe("run.yaml", {}, with_two_towers()));
  expect_as_measured(read_recipe("run.yaml", {"training_config.bf16=true"}, with_two_towers()));
}

/// 1F1B is rehearsed up to 64 micro-batches. Each number up to there is rehearsed whole: from two groups of
/// micro-batches on, more of them need no more memory.
TEST_F(Memory, OfAPipelineDoesNotGrowBehindItsWarmUp) {
  for (const int stages : {2, 3, 4}) {
    const auto activations = [&](std::int64_t micro_batches) {
      const auto recipe = read(
          "", {text("model_config.num_layers=", stages), text("parallel_config.pipeline_model_parallel_size=", stages),
               text("dataset_config.micro_batch_num=", micro_batches)});
      std::vector<std::int64_t> by_stage;
      for (int stage = 0; stage < stages; ++stage)
        by_stage.push_back(part(memory_of_stage(recipe, layout_figures(recipe, stages), stage), "activations"));
      return by_stage;
    };
    const auto expected = activations(2 * stages);
    EXPECT_LT(activations(1), expected);       // the figures do depend on the schedule
    EXPECT_LT(activations(stages), expected);  // one group is too few, and so would be a limit of one
    for (const int micro_batches : {2 * stages + 1, 5 * stages, 64, 200})
      EXPECT_EQ(activations(micro_batches), expected) << stages << " stages, " << micro_batches << " micro-batches";
  }
}

/// The peak of an interleaved schedule grows slowly with the micro-batches, so all of them are rehearsed; with too many
/// the figure is a lower bound, and says so.
TEST_F(Memory, OfAnInterleavedPipelineIsThatOfAllMicroBatches) {
  const auto need = [&](std::int64_t micro_batches) {
    const auto recipe = read("", {"model_config.num_layers=4", "parallel_config.pipeline_model_parallel_size=2",
                                  "parallel_config.virtual_pipeline_model_parallel_size=2",
                                  text("dataset_config.micro_batch_num=", micro_batches)});
    return memory_of_stage(recipe, layout_figures(recipe, 2), 1);
  };
  const auto few = need(64), many = need(256), too_many = need(20000);
  EXPECT_LT(part(few, "activations"), part(many, "activations"));
  EXPECT_LE(part(many, "activations"), part(too_many, "activations"));
  EXPECT_TRUE(few.complete && many.complete);
  EXPECT_FALSE(too_many.complete);
}

/// A rank alone has all experts: the number of rows does not depend on the choices, unless some are dropped.
TEST_F(Memory, OfExpertsOnOneRankIsThatOfAStepToo) {
  const std::string experts = "num_experts: 4, add_bias_linear: false, normalization: RMSNorm, hidden_act: swiglu";
  const std::string inner = "moe_config.moe_ffn_hidden_size=16";
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{inner},
        {inner, "moe_config.moe_router_topk=4"},
        {inner, "moe_config.moe_router_load_balancing_type=seq_aux_loss", "moe_config.moe_aux_loss_coeff=0.01"},
        {inner, "moe_config.moe_shared_expert_intermediate_size=8", "model_config.multi_latent_attention=true"},
        {inner, "model_config.recompute_granularity=selective", "model_config.recompute_modules=[moe]"},
        {inner, "model_config.ffn_hidden_size=32", "moe_config.moe_layer_freq=[0,1,1]", "model_config.mtp_num_layers=1",
         "model_config.position_embedding_type=rope"}}) {
    SCOPED_TRACE(sets.back());
    const auto recipe = read(experts, sets);
    const auto need = memory_of_stage(recipe, layout_figures(recipe, 1), 0);
    EXPECT_TRUE(need.complete) << need.not_foreseen;
    EXPECT_EQ(part(need, "activations"), measured(recipe).activations);
  }
  const auto dropping = read(experts, {inner, "moe_config.moe_expert_capacity_factor=0.5"});
  EXPECT_GE(part(memory_of_stage(dropping, layout_figures(dropping, 1), 0), "activations"),
            measured(dropping).activations);
}

/// The products of an expert's adapters need scratch memory for its rows, whose number depends on the choices.
TEST_F(Memory, OfAdaptersOfExpertsIsNearThatOfAStep) {
  const std::string experts = "num_experts: 4, add_bias_linear: false, normalization: RMSNorm, hidden_act: swiglu";
  for (const std::string dropout : {"0", "0.1"}) {
    const auto recipe = read(experts, {"moe_config.moe_ffn_hidden_size=48", "lora_config.use_lora=true",
                                       "lora_config.target_modules=all-linear", "lora_config.lora_dropout=" + dropout});
    const auto need = memory_of_stage(recipe, layout_figures(recipe, 1), 0);
    EXPECT_TRUE(need.complete) << need.not_foreseen;
    const auto foreseen = part(need, "activations");
    EXPECT_NEAR(static_cast<double>(foreseen), static_cast<double>(measured(recipe).activations),
                0.02 * static_cast<double>(foreseen));
  }
}

TEST_F(Memory, OfExpertsOnSeveralRanksDependsOnTheChoices) {
  const auto read_on = [&](std::int64_t ranks, std::vector<std::string> more) {
    more.insert(more.end(), {"moe_config.moe_ffn_hidden_size=16", "moe_config.moe_router_topk=3"});
    const auto recipe = read("num_experts: 8, add_bias_linear: false, hidden_act: swiglu", more);
    return memory_of_stage(recipe, layout_figures(recipe, ranks), 0);
  };
  const std::string four = "parallel_config.expert_model_parallel_size=4";
  const auto free = read_on(4, {four}), limited = read_on(4, {four, "moe_config.moe_expert_capacity_factor=1"});
  for (const auto& need : {free, limited}) {
    EXPECT_FALSE(need.complete);
    EXPECT_LT(need.activations_by_choices.least, part(need, "activations"));
  }
  EXPECT_LT(part(free, "activations"), free.activations_by_choices.most);
  EXPECT_LT(limited.activations_by_choices.most, free.activations_by_choices.most);
  EXPECT_EQ(part(limited, "activations") / 4096, part(free, "activations") / 4096);  // a balanced load drops nothing
}

/// Neither time nor memory: 70B parameters, micro-batches whose activations no machine has.
TEST_F(Memory, IsForeseenWithoutBeingTaken) {
  const auto recipe =
      read("normalization: RMSNorm, hidden_act: swiglu, position_embedding_type: rope",
           {"model_config.num_layers=80", "model_config.hidden_size=8192", "model_config.num_attention_heads=64",
            "model_config.ffn_hidden_size=28672", "model_config.seq_length=8192", "model_config.vocab_size=128256"});
  const auto before = peak_resident_bytes();
  const auto need = memory_of_stage(recipe, layout_figures(recipe, 1), 0);
  EXPECT_TRUE(need.complete) << need.not_foreseen;
  EXPECT_GT(part(need, "activations"), std::int64_t{500} << 30);
  EXPECT_LT(peak_resident_bytes() - before, 64 << 20);  // 20 MiB were measured with AddressSanitizer
}

std::unique_ptr<data::DataSplits> no_data(const options::NoOptions&, data::DataParts) {
  return std::make_unique<data::DataSplits>();
}

TEST_F(Memory, OfBatchesIsThatOfTheFieldsThatTheDatasetDeclares) {
  Registries registries;
  for (const auto* type : {"text", "pictures", "pairs"}) registries.datasets.add(type, no_data, "Nothing.");
  registries.datasets.declare_rows_per_sample("pairs",
                                              [](const data::DatasetRegistry::Choice&) { return std::int64_t{2}; });
  registries.datasets.declare_fields("pictures", [](const data::DatasetRegistry::Choice&) {
    auto fields = token_fields();
    fields.push_back(
        {.name = "pixels", .type = DType::float32, .extent = FieldExtent::own, .width = 3, .most_rows = 50});
    return fields;
  });
  const auto bytes = [&](const std::string& type) {
    std::vector<std::string> sets = {"dataset_config.dataset_type=" + type, "dataset_config.num_workers=2"};
    if (type == "pairs") sets.push_back("training_config.stage=orpo");
    const auto recipe = read("", sets, registries);
    return part(memory_of_stage(recipe, layout_figures(recipe, 1), 0), "data");
  };
  constexpr std::int64_t samples = 3 * (1 + 2 * 2);  // in the batch that a step uses, and in those read ahead
  EXPECT_EQ(bytes("text"), samples * (24 * 5 * 4 + 8));
  EXPECT_EQ(bytes("pairs"), 2 * bytes("text"));
  EXPECT_EQ(bytes("pictures"), samples * (24 * 5 * 4 + 8 + 50 * 3 * 4));
}

TEST_F(Memory, TheLargestPartIsNamed) {
  const auto short_samples = read("", {"model_config.seq_length=4", "dataset_config.batch_size=1"});
  EXPECT_EQ(largest(short_samples).rfind("optimizer state", 0), 0U) << largest(short_samples);
  const auto batches = read("", {"dataset_config.batch_size=100000"});
  EXPECT_EQ(largest(batches).rfind("activations", 0), 0U) << largest(batches);
  const auto samples = read("", {"training_config.training_iters=1000000000"});
  EXPECT_EQ(largest(samples).rfind("data", 0), 0U) << largest(samples);
  const auto turned = read("position_embedding_type: rope, max_position_embeddings: 1000000");
  EXPECT_EQ(largest(turned).rfind("position tables", 0), 0U) << largest(turned);
}

}  // namespace
}  // namespace tessera::recipe
