// Runs with adapters (lora_config): which layers get them, what is trained, memory, checkpoints, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "framework/kernels/weight.h"
#include "framework/recipe/memory.h"
#include "framework/recipe/saved_model.h"
#include "framework/training/step/step.h"
#include "tests/own_folder.h"
#include "tests/recipe/console_runs.h"
#include "tests/recipe/small_run.h"
#include "tests/sanitized.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

const std::string l = "lora_config.";
const Lines every_linear = {l + "use_lora=true", l + "target_modules=all-linear", l + "lora_rank=2"};
const Lines lora_llama = {m + "hidden_act=swiglu",
                          m + "ffn_hidden_size=24",
                          m + "normalization=RMSNorm",
                          m + "position_embedding_type=rope",
                          m + "group_query_attention=true",
                          m + "num_query_groups=2",
                          m + "untie_embeddings_and_output_weights=true"};
const Lines lora_latent = {m + "multi_latent_attention=true",
                           m + "q_lora_rank=8",
                           m + "kv_lora_rank=8",
                           m + "qk_head_dim=4",
                           m + "qk_pos_emb_head_dim=4",
                           m + "v_head_dim=4",
                           m + "position_embedding_type=rope",
                           m + "mtp_num_layers=1"};

class Lora : public InOwnFolder {
 protected:
  Lora() : InOwnFolder(folder_in_memory()) {
    write_token_file("data", 7);
    write("run.yaml",
          "training_config: {training_iters: 4, eval_iters: 0, output_dir: run, num_threads: 1, tensorboard: false}\n"
          "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64}\n"
          "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant, weight_decay: 0.1}\n"
          "dataset_config: {data_path: data, split: \"100,0,0\", batch_size: 2, global_batch_size: 4}\n");
  }
  static std::string refused(const Lines& sets) {
    return story_of([&] { read(sets); });
  }
  /// The names of the adapters of layer 0, without "decoder.layers.0." and the names of their factors.
  static std::set<std::string> adapted(const Lines& sets) {
    std::set<std::string> all;
    const std::string begin = "decoder.layers.0.";
    const auto model = build_model(read(sets), nullptr);
    for (const auto* parameter : model->parameters())
      if (nn::is_of_adapter(parameter->name) && parameter->name.starts_with(begin))
        all.insert(parameter->name.substr(begin.size(), parameter->name.rfind(".lora_") - begin.size()));
    return all;
  }
  static std::set<std::string> trained(const Lines& sets) {
    std::set<std::string> all;
    const auto model = build_model(read(sets), nullptr);
    for (const auto* parameter : model->parameters())
      if (parameter->trained && !nn::is_of_adapter(parameter->name)) all.insert(parameter->name);
    return all;
  }
  static const nn::Parameter& named(model::Model& model, const std::string& name) {
    for (const auto* parameter : model.parameters())
      if (parameter->name == name) return *parameter;
    throw Error("no parameter " + name);
  }

  static double first_loss(const Lines& sets) {
    auto all = build(read(sets));
    kernels::Threads threads(1);
    training::ModelState state(all.model.first(), all.optimization.optimizer.get());
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    return work.backward(0).loss;
  }
};

TEST_F(Lora, TargetsAreNamesOfMegatronOfCoreMsAndOfTransformers) {
  using Names = std::set<std::string>;
  const auto of = [&](const Lines& targets) { return adapted(lora_llama + Lines{l + "use_lora=true"} + targets); };
  const std::string qkv = "self_attention.linear_qkv", out = "self_attention.linear_proj", fc1 = "mlp.linear_fc1",
                    fc2 = "mlp.linear_fc2", t_m = l + "target_modules=", t_c = l + "target_cells=";
  const Names linear = {qkv + ".q_proj",    qkv + ".k_proj", qkv + ".v_proj", out, fc2,
                        fc1 + ".gate_proj", fc1 + ".up_proj"};
  EXPECT_EQ(of({t_m + "all-linear"}), linear);  // this model's weights have the names of Llama
  EXPECT_EQ(of({t_m + "[linear_qkv, linear_fc2]"}), (Names{qkv, fc2}));
  EXPECT_EQ(of({t_m + "[q_proj, v_proj]"}), (Names{qkv + ".q_proj", qkv + ".v_proj"}));
  EXPECT_EQ(of({t_m + "[o_proj, gate_proj, up_proj, down_proj]"}),
            (Names{out, fc1 + ".gate_proj", fc1 + ".up_proj", fc2}));
  EXPECT_EQ(of({t_m + "[c_attn, c_proj]"}), (Names{qkv, out, fc2}));
  EXPECT_EQ(of({t_m + "'model\\.layers\\.[0-9]+\\.self_attn\\.(q|k)_proj'"}),
            (Names{qkv + ".q_proj", qkv + ".k_proj"}));
  EXPECT_EQ(of({t_m + "'.*_proj'"}),
            (Names{qkv + ".q_proj", qkv + ".k_proj", qkv + ".v_proj", out, fc1 + ".gate_proj", fc1 + ".up_proj", fc2}));
  EXPECT_EQ(of({t_c + "[{target_cells: ['.*\\.qkv_proj', '.*mapping']}]"}), (Names{qkv, fc1}));
  EXPECT_EQ(of({t_m + "all-linear", l + "exclude_modules=[o_proj, k_proj, mlp.linear_fc1]"}),
            (Names{qkv + ".q_proj", qkv + ".v_proj", fc2}));
  EXPECT_EQ(of({t_m + "[q_proj, k_proj]", l + "exclude_modules=[k_proj]"}), Names{qkv + ".q_proj"});
  EXPECT_EQ(of({t_m + "all-linear", l + "layers_to_transform=[1]"}), Names{});
  // Those of GPT-2, which has one layer for queries, keys and values.
  EXPECT_EQ(adapted({l + "use_lora=true", t_m + "all-linear"}), (Names{qkv, out, fc1, fc2}));
  EXPECT_EQ(adapted(lora_latent + Lines{l + "use_lora=true", t_m + "[q_a_proj, kv_b_proj, kv_a_proj_with_mqa]"}),
            (Names{"self_attention.linear_q_down_proj", "self_attention.linear_kv_up_proj",
                   "self_attention.linear_kv_down_proj"}));
}

TEST_F(Lora, LayersWithNumbersOfTwoDigitsHaveTheNamesOfOtherPrograms) {
  std::set<std::string> adapters;
  const auto model = build_model(read(lora_llama + Lines{m + "num_layers=11", l + "use_lora=true",
                                                         l + "target_modules='model\\.layers\\.10\\..*\\.q_proj'"}),
                                 nullptr);
  for (const auto* parameter : model->parameters())
    if (nn::is_of_adapter(parameter->name)) adapters.insert(parameter->name.substr(0, parameter->name.rfind(".lora_")));
  EXPECT_EQ(adapters, std::set<std::string>{"decoder.layers.10.self_attention.linear_qkv.q_proj"});
}

TEST_F(Lora, APlanAsksForTheAliasesOfEachModuleOnce) {
  model::LoraOptions options;
  options.target_modules = model::ModuleNames{{"one"}};
  std::map<std::string, int> asked;
  const training::LoraPlan plan(
      options,
      [&](const std::string& module) {
        ++asked[module];
        return std::vector<training::ModuleAlias>{{.name = "their." + module, .own = true}};
      },
      [] {
        return std::vector<std::string>{"one", "two"};
      });
  for (int times = 0; times < 3; ++times)
    for (const char* module : {"one", "two"}) plan.adapters_of(module, 4, {});
  EXPECT_EQ(asked, (std::map<std::string, int>{{"one", 1}, {"two", 1}}));
}

TEST_F(Lora, RanksAndAlphasOfSingleLayersAreThoseOfTheirPatterns) {
  const std::string in_layer = "decoder.layers.0.", a = ".lora_A.weight";
  const auto rank = [&](const Lines& sets, const std::string& module) {
    const auto model = build_model(read(lora_llama + Lines{l + "use_lora=true"} + sets), nullptr);
    return named(*model, in_layer + module + a).global_shape[0];
  };
  const Lines patterns = {l + "target_modules=[q_proj, v_proj, o_proj]",
                          l + "rank_pattern={'layers.1.self_attn.v_proj': 3, 'v_proj': 5, 'attn.o': 6}"};
  EXPECT_EQ(rank(patterns, "self_attention.linear_qkv.q_proj"), 8);
  EXPECT_EQ(rank(patterns, "self_attention.linear_qkv.v_proj"), 5);
  EXPECT_EQ(rank(patterns, "self_attention.linear_proj"), 8);  // 'attn.o' does not reach the end of the name
  const Lines cells = {l +
                       "target_cells=[{target_cells: ['.*qkv_proj', '.*out_proj']}, {cell: '.*out_proj', rank: 3}]"};
  EXPECT_EQ(rank(cells, "self_attention.linear_qkv"), 8);
  EXPECT_EQ(rank(cells, "self_attention.linear_proj"), 3);
  model::LoraOptions o;
  EXPECT_EQ(o.scale(16, 32), 2);
  o.use_rslora = true;
  EXPECT_EQ(o.scale(16, 32), 8);
}

TEST_F(Lora, WithoutB_TheFirstLossIsThatOfTheBaseToTheBit) {
  for (const auto& model : {Lines{}, lora_llama, lora_latent, lora_llama + Lines{t + "bf16=true"}}) {
    const auto base = first_loss(model);
    EXPECT_EQ(first_loss(model + every_linear), base);
    EXPECT_NE(first_loss(model + every_linear + Lines{l + "init_lora_weights=false"}), base);
  }
}

TEST_F(Lora, WithMagnitudesBeginsWithTheNormsOfTheRows) {
  const Lines dora = every_linear + Lines{l + "use_dora=true"};
  for (const auto& model : {Lines{}, lora_llama, lora_latent}) {
    const auto base = first_loss(model);
    EXPECT_NEAR(first_loss(model + dora), base, 1e-6 * base);
    EXPECT_NEAR(first_loss(model + dora + Lines{l + "lora_dropout=0.5"}), base, 1e-6 * base);
    // What the adapters add is not normed away: the magnitudes begin with the norms of the sum.
    const auto random = every_linear + Lines{l + "init_lora_weights=false"};
    const auto plain = first_loss(model + random);
    EXPECT_NEAR(first_loss(model + random + Lines{l + "use_dora=true"}), plain, 1e-6 * plain);
  }
  const auto model = build_model(read(dora + Lines{t + "bf16=true"}), nullptr);
  training::ModelState state(*model, nullptr);
  kernels::Threads threads(1);
  state.initialise(threads, 1);
  const std::string layer = "decoder.layers.1.mlp.linear_fc1";
  const auto &w = named(*model, layer + ".weight"), &m = named(*model, layer + ".lora_magnitude.weight");
  EXPECT_EQ(m.type, DType::float32);  // in 16 bits its first factor would not be 1
  EXPECT_FALSE(decays(m.role));
  ASSERT_EQ(m.shape(), (Shape{64}));
  std::vector<float> row(16);
  for (std::int64_t r = 0; r < 64; ++r) {
    kernels::read_row(w.leaf.weight(), r, 16, row);
    double square = 0;
    for (const auto x : row) square += static_cast<double>(x) * x;
    EXPECT_FLOAT_EQ(m.leaf.value.floats()[static_cast<std::size_t>(r)], static_cast<float>(std::sqrt(square)));
  }
}

TEST_F(Lora, WithMagnitudesContinuesToTheBitAndReadsThem) {
  ASSERT_FALSE(says(train({t + "output_dir=base", t + "training_iters=2"}), "refused"));
  const Lines beside = every_linear + Lines{l + "use_dora=true", l + "lora_dropout=0.1",
                                            t + "load_checkpoint=base/checkpoints", t + "save_interval=2"};
  ASSERT_FALSE(says(train(beside), "refused"));
  ASSERT_FALSE(says(train(beside + Lines{t + "output_dir=again", t + "exit_interval=2"}), "refused"));
  ASSERT_FALSE(says(train(beside + Lines{t + "output_dir=again"}), "refused"));
  const auto once = content(saved("run", 4)), begun = content(saved("run", 2));
  EXPECT_EQ(once, content(saved("again", 4)));
  const std::string name = "decoder.layers.1.mlp.linear_fc2.lora_magnitude.weight";
  ASSERT_TRUE(once.contains(name));
  EXPECT_NE(once.at(name), begun.at(name));
  // Read without training, and with another run that takes the weights only.
  const auto loaded = load_trained("run", Registries{});
  EXPECT_EQ(named(*loaded.model, name).leaf.value.floats()[0], once.at(name)[0]);
  ASSERT_FALSE(says(
      train(beside + Lines{t + "output_dir=later", t + "load_checkpoint=run/checkpoints", t + "resume_training=false",
                           "optimizer_config.learning_rate=0", t + "training_iters=1", t + "save_interval=1"}),
      "refused"));
  EXPECT_EQ(content(saved("later", 1)).at(name), once.at(name));
}

TEST_F(Lora, TrainsAdaptersAndWhatIsNamedBeside) {
  using Names = std::set<std::string>;
  EXPECT_EQ(trained(every_linear), Names{});
  EXPECT_EQ(trained(every_linear + Lines{t + "trainable_parameters=['embedding\\.position.*']"}),
            Names{"embedding.position_embeddings.weight"});
  EXPECT_EQ(trained(every_linear + Lines{l + "modules_to_save=[final_layernorm]"}),
            (Names{"decoder.final_layernorm.weight", "decoder.final_layernorm.bias"}));
  EXPECT_EQ(trained(lora_llama + every_linear + Lines{l + "modules_to_save=[lm_head]"}), Names{"output_layer.weight"});
  EXPECT_EQ(trained(every_linear + Lines{l + "modules_to_save=[embed_tokens, lm_head]"}),
            Names{"embedding.word_embeddings.weight"});
  EXPECT_EQ(trained({l + "use_lora=true", l + "target_modules=[linear_fc2]", l + "bias=lora_only",
                     t + "frozen_parameters=['decoder\\.layers\\.1\\..*']"}),
            Names{"decoder.layers.0.mlp.linear_fc2.bias"});
  const auto all = trained(every_linear + Lines{l + "bias=all"});
  EXPECT_TRUE(all.contains("decoder.final_layernorm.bias"));
  EXPECT_EQ(all.size(), 2U * 6 + 1);
}

TEST_F(Lora, BiasesOfPartsWithoutAdaptersKeepTheirValues) {
  const Lines model = lora_llama + Lines{m + "qkv_has_bias=true"};
  ASSERT_FALSE(says(train(model + Lines{t + "output_dir=base"}), "refused"));
  const Lines beside = model + Lines{l + "use_lora=true", l + "target_modules=[q_proj, v_proj]", l + "bias=lora_only",
                                     t + "load_checkpoint=base/checkpoints", t + "resume_training=false"};
  ASSERT_FALSE(says(train(beside), "refused"));
  const std::string bias = "decoder.layers.0.self_attention.linear_qkv.bias";
  const auto before = content(saved("base", 4)).at(bias), after = content(saved("run", 4)).at(bias);
  // Two groups of two heads with queries, then keys and values, of 4 channels each.
  for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i] == before[i], i % 16 / 4 == 2) << i;
  // Named by a list of its own, the bias is trained whole.
  const auto whole =
      named(*build_model(read(beside + Lines{t + "trainable_parameters=['" + bias + "']"}), nullptr), bias);
  EXPECT_TRUE(whole.trained && whole.frozen_elements.empty());
}

/// LoRA-FA. New adapters are not in the base, so checkpoints have them although they are frozen.
TEST_F(Lora, FactorsThatAreFrozenBesideABaseKeepTheirInitialValues) {
  ASSERT_FALSE(says(train(lora_llama + Lines{t + "output_dir=base"}), "refused"));
  const Lines beside =
      lora_llama + every_linear +
      Lines{t + "frozen_parameters=['.*lora_A.*']", t + "load_checkpoint=base/checkpoints", t + "save_interval=2"};
  ASSERT_FALSE(says(train(beside + Lines{t + "resume_training=false"}), "refused"));
  const auto half = content(saved("run", 2)), end = content(saved("run", 4));
  int kept = 0;
  for (const auto& [name, values] : end) {
    if (name.starts_with("optimizer.")) continue;
    EXPECT_TRUE(nn::is_of_adapter(name)) << name;
    EXPECT_EQ(values == half.at(name), name.ends_with("lora_A.weight")) << name;
    kept += name.ends_with("lora_A.weight") ? 1 : 0;
    EXPECT_NE(values, std::vector<float>(values.size(), 0)) << name;
  }
  EXPECT_GT(kept, 7);
  std::filesystem::remove_all("run/checkpoints/network_iter_0000004");
  ASSERT_FALSE(says(train(beside + Lines{t + "resume_training=true"}), "refused"));
  EXPECT_EQ(content(saved("run", 4)), end);
}

TEST_F(Lora, TakesTheMemoryThatIsForeseen) {
  int number = 0;
  for (const auto& model : {Lines{}, lora_llama + Lines{t + "bf16=true"}, lora_latent,
                            lora_llama + Lines{m + "recompute_granularity=full", m + "recompute_method=uniform",
                                               m + "recompute_num_layers=1"},
                            lora_llama + Lines{m + "recompute_norm=true", m + "recompute_activation_function=true"},
                            Lines{m + "recompute_activation_function=true"}})
    for (const auto& more :
         {every_linear, every_linear + Lines{l + "lora_dropout=0.1"}, every_linear + Lines{l + "use_dora=true"},
          every_linear + Lines{l + "use_dora=true", l + "lora_dropout=0.1"},
          Lines{l + "use_lora=true", l + "target_modules='.*(_proj|linear_fc2)'"}}) {
      if (number++ % part_of_inputs != 0) continue;
      SCOPED_TRACE((model.empty() ? "" : model.back()) + " " + more.back());
      const auto recipe = read(model + more);
      auto all = build(recipe);
      kernels::Threads threads(1);
      training::ModelState state(all.model.first(), all.optimization.optimizer.get());
      state.initialise(threads, 1);
      training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
      work.backward(0);
      const auto need = memory_of_stage(recipe, layout_figures(recipe, 1), 0);
      const auto part = [&](const std::string& name) {
        for (const auto& one : need.parts)
          if (one.name == name) return one.bytes;
        return std::int64_t{-1};
      };
      EXPECT_EQ(part("weights"), state.bytes().weights);
      EXPECT_EQ(part("gradients"), state.bytes().gradients);
      EXPECT_EQ(part("optimizer state"), state.bytes().optimizer);
      EXPECT_EQ(part("activations"), static_cast<std::int64_t>(work.arena().high_water()));
    }
}

TEST_F(Lora, BeginsBesideTheWeightsOfABaseAndContinuesToTheBit) {
  ASSERT_FALSE(says(train({t + "output_dir=base", t + "training_iters=2"}), "refused"));
  const Lines beside = every_linear + Lines{l + "lora_dropout=0.1", l + "modules_to_save=[final_layernorm]",
                                            t + "load_checkpoint=base/checkpoints", t + "save_interval=2"};
  const auto story = train(beside);
  ASSERT_FALSE(says(story, "refused")) << story;
  ASSERT_FALSE(says(train(beside + Lines{t + "output_dir=again", t + "exit_interval=2"}), "refused"));
  ASSERT_FALSE(says(train(beside + Lines{t + "output_dir=again"}), "refused"));
  const auto base = content(saved("base", 2)), once = content(saved("run", 4)), twice = content(saved("again", 4));
  EXPECT_EQ(once, twice);
  for (const auto& [name, values] : once) {
    const bool of_adapter = name.find("lora_") != std::string::npos;
    EXPECT_TRUE(of_adapter || name.find("final_layernorm") != std::string::npos) << name;
  }
  EXPECT_TRUE(once.contains("decoder.layers.1.mlp.linear_fc1.lora_B.weight"));
  EXPECT_NE(once.at("decoder.final_layernorm.weight"), base.at("decoder.final_layernorm.weight"));
  // With the frozen weights, those of the base.
  ASSERT_FALSE(says(train(beside + Lines{t + "output_dir=whole", t + "save_frozen_parameters=true"}), "refused"));
  const auto whole = content(saved("whole", 4));
  for (const auto& [name, values] : once) EXPECT_EQ(whole.at(name), values) << name;
  EXPECT_EQ(whole.at("decoder.layers.0.mlp.linear_fc1.weight"), base.at("decoder.layers.0.mlp.linear_fc1.weight"));
}

TEST_F(Lora, IsReadForGeneratingWithTheBaseThatItBeganWith) {
  ASSERT_FALSE(says(train({t + "output_dir=base", t + "training_iters=2"}), "refused"));
  const Lines beside =
      every_linear + Lines{l + "modules_to_save=[final_layernorm]", t + "load_checkpoint=base/checkpoints"};
  ASSERT_FALSE(says(train(beside), "refused"));
  ASSERT_FALSE(says(train(beside + Lines{t + "output_dir=whole", t + "save_frozen_parameters=true"}), "refused"));
  const auto values = [](const std::string& run) {
    const auto loaded = load_trained(run, Registries{});
    std::map<std::string, std::vector<float>> all;
    for (const auto& range : loaded.weights->weight_ranges())
      all[range.name].assign(range.tensor.floats().begin(), range.tensor.floats().end());
    return all;
  };
  EXPECT_EQ(values("run"), values("whole"));
  // The folder now has other weights.
  std::filesystem::remove_all("base");
  ASSERT_FALSE(says(train({t + "output_dir=base", t + "training_iters=2", t + "seed=8"}), "refused"));
  EXPECT_TRUE(says(story_of([&] { values("run"); }), "the weights there are others now"));
  std::filesystem::remove_all("base");
  EXPECT_TRUE(says(story_of([&] { values("run"); }), "and that cannot be read"));
}

TEST_F(Lora, OnlyWhatIsNotMappedNeedsMemoryToGenerate) {
  ASSERT_FALSE(says(train({t + "output_dir=base", t + "training_iters=2"}), "refused"));
  const auto recipe = read(every_linear + Lines{t + "load_checkpoint=base"});
  const auto model = build_model(recipe, nullptr);
  const auto source = mapped_source(recipe, "base");
  ASSERT_TRUE(source);
  std::int64_t trained = 0;
  for (const auto* parameter : training::select(model->parameters(), true)) trained += 4 * parameter->elements();
  EXPECT_EQ(weight_bytes(*model, source.get()), trained);
  EXPECT_EQ(weight_bytes(*model), trained + training::FrozenWeights::bytes_of(model->parameters()));
}

TEST_F(Lora, TargetsAreExpertsAndRouters) {
  using Names = std::set<std::string>;
  const Lines experts =
      lora_llama + Lines{m + "num_experts=3", m + "add_bias_linear=false", l + "use_lora=true", l + "lora_rank=2"};
  const std::string one = "mlp.experts.local_experts.", router = "mlp.router", fc1 = ".linear_fc1", fc2 = ".linear_fc2",
                    qkv = "self_attention.linear_qkv";
  const auto of_all = [&](const std::string& end) { return Names{one + "0" + end, one + "1" + end, one + "2" + end}; };
  const auto joined = [](Names all, const std::vector<Names>& more) {
    for (const auto& names : more) all.insert(names.begin(), names.end());
    return all;
  };
  const auto of = [&](const Lines& targets) { return adapted(experts + targets); };
  const auto modules = [&](const std::string& names) { return of({l + "target_modules=" + names}); };
  const auto parameters = [&](const std::string& names) { return of({l + "target_parameters=" + names}); };
  EXPECT_EQ(modules("all-linear"),
            joined({qkv + ".q_proj", qkv + ".k_proj", qkv + ".v_proj", "self_attention.linear_proj", router},
                   {of_all(fc1), of_all(fc2)}));
  EXPECT_EQ(modules("[linear_fc1]"), of_all(fc1));
  EXPECT_EQ(modules("[w1, w2, gate]"), joined({router}, {of_all(fc1 + ".gate_proj"), of_all(fc2)}));
  EXPECT_EQ(modules("[experts.1.up_proj, experts.2.down_proj]"),
            (Names{one + "1" + fc1 + ".up_proj", one + "2" + fc2}));
  EXPECT_EQ(parameters("[mlp.experts.gate_up_proj, mlp.experts.down_proj]"), joined({}, {of_all(fc1), of_all(fc2)}));
  EXPECT_EQ(parameters("[gate_up_proj]"), of_all(fc1));
  EXPECT_EQ(parameters("[mlp.gate.weight]"), Names{router});
  EXPECT_EQ(parameters("[model.layers.1.mlp.experts.down_proj]"), Names{});
  EXPECT_EQ(of({l + "target_modules=[q_proj]", l + "target_parameters=[down_proj]"}),
            joined({"self_attention.linear_qkv.q_proj"}, {of_all(fc2)}));

  const auto rank_of = [&](const Lines& options, const std::string& module) {
    const auto model = build_model(read(experts + options), nullptr);
    return named(*model, "decoder.layers.1." + module + ".lora_A.weight").shape()[0];
  };
  const auto all = l + "target_modules=all-linear";
  EXPECT_EQ(rank_of({all}, one + "1" + fc1), 4) << "gate and up together have twice the rank, as in PEFT";
  EXPECT_EQ(rank_of({all}, one + "1" + fc2), 2);
  EXPECT_EQ(rank_of({all}, router), 2);
  EXPECT_EQ(rank_of({all, l + "rank_pattern={gate_up_proj: 3, mlp.gate: 5}"}, one + "1" + fc1), 3);
  EXPECT_EQ(rank_of({all, l + "rank_pattern={gate_up_proj: 3, mlp.gate: 5}"}, router), 5);
  EXPECT_EQ(rank_of({l + "target_parameters=[gate_up_proj]"}, one + "1" + fc1), 2);
}

TEST_F(Lora, WithWrongTargetParametersIsRefused) {
  const Lines experts = {m + "num_experts=4", m + "add_bias_linear=false", m + "hidden_act=swiglu",
                         m + "ffn_hidden_size=24", l + "use_lora=true"};
  const auto wrong = refused(experts + Lines{l + "target_parameters=[mlp.experts.gate_up_prj, mlp.experts.down_proj]"});
  EXPECT_TRUE(says(wrong, "'mlp.experts.gate_up_prj' is the name of no weight that can have an adapter")) << wrong;
  EXPECT_TRUE(says(wrong, "experts.gate_up_proj")) << wrong;
  EXPECT_FALSE(says(wrong, "'mlp.experts.down_proj'")) << wrong;
  EXPECT_TRUE(says(refused(experts + Lines{l + "target_parameters=[mlp.experts.down_proj]", l + "lora_dropout=0.1"}),
                   "lora_dropout is 0.1, but target_parameters takes none"));
  EXPECT_TRUE(
      says(refused(every_linear + Lines{l + "target_parameters=[mlp.experts.down_proj]"}), "is the name of no"));
}

TEST_F(Lora, WithMagnitudesOfExpertsOrRoutersIsRefused) {
  const Lines experts = {m + "num_experts=4", m + "add_bias_linear=false", l + "use_dora=true"};
  const auto all = refused(experts + every_linear);
  EXPECT_TRUE(says(all, "use_dora is true, but 'decoder.layers.0.mlp.")) << all;
  EXPECT_TRUE(says(refused(experts + Lines{l + "use_lora=true", l + "target_modules=[linear_qkv, router]"}),
                   "'decoder.layers.0.mlp.router' gets an adapter"));
  EXPECT_EQ(refused(experts + Lines{l + "use_lora=true", l + "target_modules=[linear_qkv, o_proj]"}), "no error");
}

TEST_F(Lora, TargetsAreTheEmbeddingAndTheOutputLayer) {
  const auto of = [&](const Lines& targets) {
    const auto model = build_model(read(lora_llama + Lines{l + "use_lora=true"} + targets), nullptr);
    std::map<std::string, Shape> all;
    for (const auto* parameter : model->parameters())
      if (nn::is_of_adapter(parameter->name) && !parameter->name.starts_with("decoder."))
        all.emplace(parameter->name, parameter->global_shape);
    return all;
  };
  const std::map<std::string, Shape> both = {{"embedding.word_embeddings.lora_A.weight", Shape{8, 64}},
                                             {"embedding.word_embeddings.lora_B.weight", Shape{16, 8}},
                                             {"output_layer.lora_A.weight", Shape{8, 16}},
                                             {"output_layer.lora_B.weight", Shape{64, 8}}};
  EXPECT_EQ(of({l + "target_modules=[embed_tokens, lm_head, q_proj]"}), both);
  EXPECT_EQ(of({l + "target_modules=[word_embeddings, output_layer]"}), both);
  EXPECT_TRUE(of({l + "target_modules=all-linear"}).empty());
  const Lines two = {l + "use_lora=true", l + "target_modules=[embed_tokens, lm_head]", l + "lora_rank=2"};
  for (const auto& kind : {lora_llama, lora_llama + Lines{t + "bf16=true"}}) {
    const auto base = first_loss(kind);
    EXPECT_EQ(first_loss(kind + two), base);  // a factor of each is zero
    EXPECT_NE(first_loss(kind + two + Lines{l + "init_lora_weights=false"}), base);
    for (const auto* dropout : {"lora_dropout=0", "lora_dropout=0.5"})  // magnitudes begin with the norms
      EXPECT_NEAR(first_loss(kind + two + Lines{l + "use_dora=true", l + dropout}), base, 1e-6 * base);
  }
  EXPECT_TRUE(says(refused(lora_llama + two + Lines{m + "mtp_num_layers=1"}), "multi-token prediction"));
  EXPECT_TRUE(says(refused(two), "'lm_head' selects no linear layer"));
  EXPECT_TRUE(says(refused(two), "the output layer is tied to the embedding: leave lm_head out"));
  EXPECT_EQ(refused({l + "use_lora=true", l + "target_modules=[embed_tokens]"}), "no error");
}

TEST_F(Lora, WithWrongTargetsIsRefused) {
  const auto on = Lines{l + "use_lora=true"};
  EXPECT_TRUE(says(refused(on), "none of target_cells, target_modules and target_parameters is given"));
  const auto two = refused(lora_llama + on + Lines{l + "target_modules=[q_prj, v_proj, linear_fc3]"});
  EXPECT_TRUE(says(two, "'q_prj' selects no linear layer for an adapter")) << two;
  EXPECT_TRUE(says(two, "q_proj")) << two;
  EXPECT_TRUE(says(two, "'linear_fc3' selects no linear layer")) << two;
  EXPECT_FALSE(says(two, "'v_proj'")) << two;
  const auto pattern = refused(lora_llama + on + Lines{l + "target_modules='.*q_projj'"});
  EXPECT_TRUE(says(pattern, "'.*q_projj' selects no linear layer for an adapter; the nearest names are q_proj"))
      << pattern;
  // The whole fused layer has an adapter, so that its part has none.
  EXPECT_TRUE(says(refused(lora_llama + on + Lines{l + "target_modules=[linear_qkv, q_proj]"}), "'q_proj' selects no"));
  EXPECT_TRUE(says(refused(every_linear + Lines{l + "exclude_modules='.*'"}), "selects no linear layer"));
  EXPECT_TRUE(says(refused(on + Lines{l + "target_modules='(q'"}), "cannot be read"));
  EXPECT_TRUE(
      says(refused(on + Lines{l + "target_modules=all-linear", l + "rank_pattern={'(q': 2}"}), "cannot be read"));
  EXPECT_TRUE(
      says(refused(every_linear + Lines{l + "modules_to_save=[final_norm]"}), "'final_norm' is the name of no"));
  const auto one_end = refused(every_linear + Lines{l + "modules_to_save=[embed_tokens]"});
  EXPECT_TRUE(says(one_end, "names the embedding but not the output layer")) << one_end;
  EXPECT_TRUE(says(refused(every_linear + Lines{l + "modules_to_save=[lm_head]"}), "the output layer but not"));
  EXPECT_TRUE(says(refused(every_linear + Lines{t + "frozen_parameters=['.*']"}), "the run trains nothing"));
  EXPECT_TRUE(says(refused(every_linear + Lines{t + "frozen_parameters=['.*lora_.*']", t + "load_checkpoint=base"}),
                   "the run trains nothing"));
  EXPECT_TRUE(says(refused(every_linear + Lines{l + "lora_rank=0"}), "lora_rank"));
  EXPECT_TRUE(says(refused(every_linear + Lines{l + "adapter=folder", t + "load_checkpoint=base"}),
                   "adapter is given; this program has no formats of other programs"));
}

}  // namespace
}  // namespace tessera::recipe
