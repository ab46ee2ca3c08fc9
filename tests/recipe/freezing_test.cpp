// Frozen parameters: the same numbers as a run in which everything is trained and the gradients and updates of these
// parameters are removed by hand; their memory, their files, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "framework/checkpoint/frozen_base.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/type_conversion.h"
#include "framework/options/yaml.h"
#include "framework/recipe/memory.h"
#include "framework/training/step/step.h"
#include "tests/own_folder.h"
#include "tests/recipe/console_runs.h"
#include "tests/recipe/small_run.h"
#include "tests/sanitized.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

/// What a run computes, by name of the parameter.
struct Numbers {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;
};

class Freezing : public InOwnFolder {
 protected:
  Freezing() : InOwnFolder(folder_in_memory()) {
    write_token_file("data", 7);
    write("run.yaml",
          "training_config: {training_iters: 6, eval_iters: 0, output_dir: run, num_threads: 1, tensorboard: false}\n"
          "model_config: {num_layers: 3, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64}\n"
          "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant, clip_grad: 0, weight_decay: 0.1}\n"
          "dataset_config: {data_path: data, split: \"100,0,0\", batch_size: 2, global_batch_size: 4}\n");
  }

  static std::map<std::string, std::vector<float>> values_of(training::ModelState& state) {
    std::map<std::string, std::vector<float>> all;
    for (const auto& range : state.trained_ranges()) {
      const auto values = range.tensor.floats();
      auto& own = all[range.name];
      own.insert(own.end(), values.begin(), values.end());
    }
    return all;
  }

  /// Steps of a run; `by_hand`: the parameters whose gradients and updates are removed.
  static Numbers steps(const Recipe& recipe, const training::TrainedNames* by_hand = nullptr) {
    auto all = build(recipe);
    kernels::Threads threads(1);
    training::ModelState state(all.model.first(), all.optimization.optimizer.get());
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    const auto for_frozen = [&](std::span<float> flat, const auto& change) {
      for (const auto& range : state.layout().parameters().ranges())
        if (!by_hand->trains(range.parameter->name))
          change(flat.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.count)));
    };
    if (by_hand)
      work.when_reduced([&] {
        for_frozen(state.gradients(), [](auto gradient) { std::ranges::fill(gradient, 0.0F); });
        return false;
      });
    Numbers numbers;
    for (int step = 0; step < 3; ++step) {
      const auto outcome = work.backward(4 * step);
      numbers.losses.push_back(outcome.loss);
      numbers.norms.push_back(outcome.grad_norm);
      std::vector<std::vector<float>> before;
      if (by_hand) for_frozen(state.weights(), [&](auto one) { before.emplace_back(one.begin(), one.end()); });
      work.update(work.rates(step + 1), outcome);
      if (!by_hand) continue;
      auto saved = before.begin();
      for_frozen(state.weights(), [&](auto one) { std::ranges::copy(*saved++, one.begin()); });
      state.weights_changed();
    }
    numbers.weights = values_of(state);
    return numbers;
  }

  /// Compares a run with frozen parameters with one that freezes by hand.
  static void compare(const Lines& model, const Lines& freezing) {
    SCOPED_TRACE(model.empty() ? freezing.front() : freezing.front() + " " + model.front());
    const auto recipe = read(model + freezing);
    const auto names = trained_names(recipe);
    const auto frozen = steps(recipe);
    const auto by_hand = steps(read(model), &names);
    EXPECT_EQ(frozen.losses, by_hand.losses);
    ASSERT_FALSE(frozen.weights.empty());
    EXPECT_LT(frozen.weights.size(), by_hand.weights.size());
    for (const auto& [name, values] : by_hand.weights) {
      EXPECT_EQ(frozen.weights.contains(name), names.trains(name)) << name;
      if (names.trains(name)) {
        EXPECT_EQ(frozen.weights.at(name), values) << name;
      }
    }
    // The norm adds the same squares in another order, because other ranges of memory are summed at a time.
    for (std::size_t i = 0; i < frozen.norms.size(); ++i)
      EXPECT_NEAR(frozen.norms[i], by_hand.norms[i], 1e-12 * by_hand.norms[i]);
  }

  static std::string train_well(const Lines& sets) {
    auto story = train(sets);
    EXPECT_FALSE(says(story, "refused")) << story;
    return story;
  }
};

const Lines frozen_bottom = {t + "frozen_parameters=['embedding\\..*', 'decoder\\.layers\\.[01]\\..*']"};
const Lines trained_bottom = {t + "trainable_parameters=['embedding\\..*', 'decoder\\.layers\\.0\\..*']"};
const Lines frozen_matrices = {t + "frozen_parameters=['.*weight']",
                               t + "trainable_parameters=['.*(bias|linear_fc1.*)']"};
const Lines only_biases = {t + "trainable_parameters=['.*bias']"};
const Lines frozen_norms = {t + "frozen_parameters=['.*norm.*', '.*bias']"};
const Lines freezing_llama = {m + "hidden_act=swiglu", m + "ffn_hidden_size=24", m + "normalization=RMSNorm",
                              m + "position_embedding_type=rope", m + "untie_embeddings_and_output_weights=true"};
const Lines freezing_latent = {m + "multi_latent_attention=true",
                               m + "q_lora_rank=8",
                               m + "kv_lora_rank=8",
                               m + "qk_head_dim=4",
                               m + "qk_pos_emb_head_dim=4",
                               m + "v_head_dim=4",
                               m + "position_embedding_type=rope",
                               m + "mtp_num_layers=1"};
const Lines freezing_experts = {m + "num_experts=4", m + "add_bias_linear=false", m + "ffn_hidden_size=16",
                                e + "moe_aux_loss_coeff=0.1"};
const Lines freezing_biased_experts =
    freezing_experts + Lines{e + "moe_router_score_function=sigmoid", e + "moe_router_enable_expert_bias=true"};

TEST_F(Freezing, GivesTheNumbersOfFreezingByHandToTheBit) {
  const Lines full = {m + "recompute_granularity=full", m + "recompute_method=uniform", m + "recompute_num_layers=2"};
  const Lines some = {m + "recompute_granularity=selective", m + "recompute_modules=[core_attn,mlp,layernorm]"};
  const Lines light = {m + "recompute_norm=true", m + "recompute_activation_function=true"};
  const std::vector<Lines> models = {
      {},
      freezing_llama,
      {t + "bf16=true", m + "qk_layernorm=true"},
      freezing_llama + Lines{t + "bf16=true", t + "accumulate_allreduce_grads_in_fp32=false"},
      {t + "fp16=true", t + "loss_scale=1024", m + "hidden_dropout_rate=0.1", m + "attention_dropout_rate=0.1"},
      freezing_llama + Lines{m + "params_dtype=bfloat16"},
      full,
      freezing_llama + some,
      light,
      freezing_latent,
      freezing_latent + Lines{m + "recompute_granularity=selective", m + "recompute_modules=[mla_up_proj]"},
      Lines{o + "optimizer_type=muon"}};
  int number = 0;
  for (const auto& model : models)
    for (const auto& freezing : {frozen_bottom, trained_bottom, frozen_matrices, frozen_norms}) {
      if (number++ % part_of_inputs != 0) continue;
      try {  // not every model has norms with bias, or a table of positions
        (void)read(model + freezing);
      } catch (const ConfigError& refused) {
        ASSERT_TRUE(says(refused.what(), "matches the whole name of no parameter")) << refused.what();
        continue;
      }
      compare(model, freezing);
    }
}

TEST_F(Freezing, OfExpertsGivesTheNumbersOfFreezingByHand) {
  const Lines some = {t + "trainable_parameters=['.*local_experts\\.[13]\\.linear_fc2\\..*']"};
  const Lines inputs = {t + "frozen_parameters=['.*linear_fc1.*', '.*router.*']"};
  const Lines balance = {t + "trainable_parameters=['.*expert_bias', 'decoder\\.layers\\.2\\..*']"};
  for (const auto& model :
       {freezing_experts, freezing_biased_experts,
        freezing_experts +
            Lines{e + "moe_apply_probs_on_input=true", e + "moe_router_topk=1", e + "moe_router_pre_softmax=true"},
        freezing_experts + Lines{m + "recompute_granularity=selective", m + "recompute_modules=[moe]"},
        freezing_experts + Lines{t + "bf16=true"}})
    for (const auto& freezing : {some, inputs, frozen_bottom}) compare(model, freezing);
  compare(freezing_biased_experts, balance);
}

TEST_F(Freezing, ByNumbersOfLayersGivesTheNumbersOfFreezingByHand) {
  const Lines last = {t + "freeze_trainable_layers=2", t + "freeze_trainable_modules=[mlp]"};
  compare(freezing_llama, last);
  compare({t + "bf16=true"}, {t + "freeze_trainable_layers=-1", t + "freeze_extra_modules=[wpe]"});
}

TEST_F(Freezing, WithClippingTheNormIsThatOfWhatTrains) {
  for (const auto& freezing : {frozen_bottom, frozen_matrices}) {
    const Lines clipped = {o + "clip_grad=0.01"};
    const auto recipe = read(clipped + freezing);
    const auto names = trained_names(recipe);
    const auto frozen = steps(recipe), by_hand = steps(read(clipped), &names);
    for (std::size_t i = 0; i < frozen.losses.size(); ++i) {
      EXPECT_NEAR(frozen.losses[i], by_hand.losses[i], 1e-6);
      EXPECT_NEAR(frozen.norms[i], by_hand.norms[i], 1e-6 * by_hand.norms[i]);
    }
  }
}

std::int64_t part_of(const MemoryNeed& need, const std::string& name) {
  for (const auto& one : need.parts)
    if (one.name == name) return one.bytes;
  return -1;
}

/// Bytes of trained parameters in an array of `size` bytes for each element; each begins at a multiple of 64 elements.
std::int64_t trained_bytes(const std::vector<nn::Parameter*>& parameters, std::int64_t size) {
  std::int64_t all = 0;
  for (const auto* parameter : parameters)
    if (parameter->trained) all += (parameter->elements() + 63) / 64 * 64 * size;
  return all;
}

TEST_F(Freezing, TakesTheMemoryThatIsForeseenAndNoneForGradientsAndMoments) {
  for (const auto& model :
       {Lines{}, freezing_llama + Lines{t + "bf16=true"}, freezing_experts + Lines{t + "bf16=true"}, freezing_latent})
    for (const auto& freezing : {frozen_bottom, only_biases, Lines{t + "trainable_parameters=['.*linear_fc1.*']"}}) {
      const auto sets = model + freezing;
      if (freezing == only_biases && model != Lines{}) continue;
      SCOPED_TRACE(sets.back());
      const auto recipe = read(sets);
      auto all = build(recipe);
      kernels::Threads threads(1);
      training::ModelState state(all.model.first(), all.optimization.optimizer.get());
      state.initialise(threads, 1);
      training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
      kernels::forget_workspace();
      work.backward(0);
      const auto need = memory_of_stage(recipe, layout_figures(recipe, 1), 0);
      EXPECT_EQ(part_of(need, "weights"), state.bytes().weights);
      EXPECT_EQ(part_of(need, "gradients"), state.bytes().gradients);
      EXPECT_EQ(part_of(need, "optimizer state"), state.bytes().optimizer);
      EXPECT_EQ(part_of(need, "activations"), static_cast<std::int64_t>(work.arena().high_water()));
      const auto parameters = all.model.first().parameters();
      EXPECT_EQ(state.bytes().gradients, trained_bytes(parameters, 4));
      EXPECT_EQ(state.bytes().optimizer, trained_bytes(parameters, 8));
      std::int64_t frozen = 0;
      for (const auto* parameter : parameters)
        if (!parameter->trained) {
          const auto size = static_cast<std::int64_t>(size_of(parameter->type));
          frozen += (parameter->elements() * size + 63) / 64 * 64;
          EXPECT_FALSE(parameter->leaf.trained()) << parameter->name;
          EXPECT_EQ(parameter->leaf.value.dtype(), parameter->type) << parameter->name;
        }
      EXPECT_EQ(state.frozen().bytes(), frozen);
    }
}

/// Below the lowest trained parameter nothing is kept for a backward pass: more frozen layers need no more memory.
TEST_F(Freezing, OfTheFirstLayersKeepsNoActivationsOfThem) {
  const auto activations = [&](int layers, const Lines& more) {
    const auto recipe = read(Lines{text(m, "num_layers=", layers)} + more);
    auto all = build(recipe);
    kernels::Threads threads(1);
    training::ModelState state(all.model.first(), all.optimization.optimizer.get());
    state.initialise(threads, 1);
    training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
    work.backward(0);
    return work.arena().high_water();
  };
  const Lines head = {t + "trainable_parameters=['decoder\\.final_layernorm\\..*']"};
  for (const auto& model :
       {Lines{}, freezing_llama, freezing_experts, freezing_latent, Lines{m + "recompute_norm=true"},
        Lines{m + "recompute_granularity=full", m + "recompute_method=block", m + "recompute_num_layers=2"}}) {
    SCOPED_TRACE(model.empty() ? "" : model.front());
    EXPECT_EQ(activations(3, model + head), activations(7, model + head));
    EXPECT_LT(activations(3, model), activations(7, model));
  }
}

/// The input of a linear layer is kept for the gradient of its weight alone: those of qkv and fc1, the results of
/// norms, and that of fc2. The peak of the last layer in its backward pass is left out.
TEST_F(Freezing, OfAWeightKeepsNoInputForItsGradient) {
  constexpr std::size_t layers = 8, tokens = 2 * 8, floats_of_a_layer = 16 + 16 + 24;
  for (const auto& model : {freezing_llama, freezing_llama + Lines{t + "bf16=true"}}) {
    const auto sets = model + Lines{text(m, "num_layers=", layers)};
    const auto activations = [&](const Lines& more) {
      auto all = build(read(sets + more));
      kernels::Threads threads(1);
      training::ModelState state(all.model.first(), all.optimization.optimizer.get());
      state.initialise(threads, 1);
      training::TrainingStep work(all.model, all.optimization, all.data, state, threads, 1);
      work.backward(0);
      return work.arena().high_water();
    };
    const std::size_t size = model == freezing_llama ? 4 : 2;
    EXPECT_GE(activations({}) - activations({t + "trainable_parameters=['embedding.*']"}),
              (layers - 1) * tokens * floats_of_a_layer * size);
  }
}

TEST_F(Freezing, WithWrongPatternsIsRefusedWithAllMistakes) {
  const auto story = story_of([&] {
    read({t + "frozen_parameters=['decoder.layers.0.mlp.linear_fc3.weight', 'embedding\\..*', 'a(', linear_fc1]",
          t + "trainable_parameters=[nothing]"});
  });
  EXPECT_TRUE(says(story, "'decoder.layers.0.mlp.linear_fc3.weight' matches the whole name of no parameter")) << story;
  EXPECT_TRUE(says(story, "decoder.layers.0.mlp.linear_fc1.weight")) << story;
  EXPECT_TRUE(
      says(story, "--set training_config.trainable_parameters: 'nothing' matches the whole name of no parameter"))
      << story;
  EXPECT_TRUE(says(story, "frozen_parameters has a pattern that cannot be read")) << story;
  EXPECT_TRUE(says(story, "'linear_fc1' matches the whole name of no parameter")) << story;
  EXPECT_FALSE(says(story, "'embedding")) << story;
}

TEST_F(Freezing, OfEverythingIsRefused) {
  const auto refused = [&](const Lines& sets) { return story_of([&] { read(sets); }); };
  EXPECT_TRUE(says(refused({t + "frozen_parameters=['.*']"}), "the run trains nothing"));
  EXPECT_TRUE(says(refused(Lines{t + "frozen_parameters=['.*weight']", t + "trainable_parameters=['.*weight']"}),
                   "the run trains nothing"));
  EXPECT_TRUE(
      says(refused(frozen_bottom + Lines{t + "save_frozen_parameters=false"}), "no file has the frozen parameters"));
}

TEST_F(Freezing, ResumesToTheBitAndSavesFrozenParametersInTheirOwnType) {
  for (const auto& model : {Lines{t + "bf16=true"}, Lines{}}) {
    for (const auto* run : {"straight", "parts"}) std::filesystem::remove_all(run);
    const auto sets = model + frozen_bottom;
    train_well(sets + Lines{t + "output_dir=straight"});
    train_well(sets + Lines{t + "output_dir=parts", t + "exit_interval=2"});
    train_well(sets + Lines{t + "output_dir=parts", t + "exit_interval=4"});
    train_well(sets + Lines{t + "output_dir=parts"});
    const auto straight = saved("straight", 6), parts = saved("parts", 6);
    EXPECT_EQ(content(straight), content(parts));
    const auto names = trained_names(read(sets));
    int frozen = 0;
    for (const auto& name : straight.names()) {
      if (name.rfind("optimizer.", 0) == 0) {
        EXPECT_TRUE(names.trains(name.substr(name.find('.', 10) + 1))) << name;
      } else if (!names.trains(name)) {
        EXPECT_EQ(straight.dtype(name), model.empty() ? DType::float32 : DType::bfloat16) << name;
        ++frozen;
      } else {
        EXPECT_EQ(straight.dtype(name), DType::float32) << name;
      }
    }
    EXPECT_GT(frozen, 5);
    EXPECT_EQ(content(saved("straight", 6)).at("embedding.word_embeddings.weight"),
              content(saved("parts", 2)).at("embedding.word_embeddings.weight"));
  }
}

TEST_F(Freezing, WithoutSavingFrozenParametersNeedsTheBaseItBeganWith) {
  const Lines base = {t + "bf16=true"};
  train_well(base + Lines{t + "output_dir=base", t + "exit_interval=2"});
  train_well(base + Lines{t + "output_dir=other", t + "exit_interval=2", t + "seed=5"});
  const auto sets = base + frozen_bottom +
                    Lines{t + "load_checkpoint=base", t + "resume_training=auto", t + "save_frozen_parameters=false"};
  // The base is a checkpoint with progress: another run begins with its weights only if it does not resume.
  const auto begins =
      base + frozen_bottom +
      Lines{t + "load_checkpoint=base", t + "save_frozen_parameters=false", t + "resume_training=false"};
  train_well(begins + Lines{t + "output_dir=straight"});
  train_well(begins + Lines{t + "output_dir=parts", t + "exit_interval=3"});
  const auto half = saved("parts", 3);
  const auto names = trained_names(read(sets));
  for (const auto& name : half.names()) EXPECT_TRUE(name.rfind("optimizer.", 0) == 0 || names.trains(name)) << name;
  EXPECT_TRUE(half.blobs().contains(checkpoint::frozen_base_blob));
  train_well(sets + Lines{t + "output_dir=parts"});
  EXPECT_EQ(content(saved("straight", 6)), content(saved("parts", 6)));
  const auto digest = [&](const std::string& run, int at) {
    return checkpoint::base_in(saved(run, at).blobs())->digest;
  };
  EXPECT_EQ(digest("straight", 6), digest("parts", 3));

  std::filesystem::remove_all("parts");
  train_well(begins + Lines{t + "output_dir=parts", t + "exit_interval=3"});
  const auto wrong = train(sets + Lines{t + "output_dir=parts", t + "load_checkpoint=other"});
  EXPECT_TRUE(says(wrong, "refused: ")) << wrong;
  EXPECT_TRUE(says(wrong, "was saved without its frozen parameters, which were those of ")) << wrong;
  std::filesystem::remove_all("base");
  const auto missing = train(sets + Lines{t + "output_dir=parts"});
  EXPECT_TRUE(says(missing, "refused: ")) << missing;
  EXPECT_TRUE(says(missing, "cannot be read: ")) << missing;
  EXPECT_TRUE(says(missing, "give training_config.load_checkpoint the folder that has them")) << missing;
}

TEST_F(Freezing, OfOtherParametersThanTheCheckpointsIsRefusedUnlessAllowed) {
  const auto run = [&](const Lines& more) {
    std::filesystem::remove_all("run");
    train_well(frozen_bottom + Lines{t + "exit_interval=2"});
    return train(more);
  };
  const auto refused = run(frozen_norms);
  EXPECT_TRUE(says(refused, "refused: ")) << refused;
  EXPECT_TRUE(says(refused, "training_config.frozen_parameters")) << refused;
  const auto allowed = run(frozen_norms + Lines{t + "allow_changes=[training_config.frozen_parameters]"});
  EXPECT_FALSE(says(allowed, "refused")) << allowed;
  EXPECT_TRUE(says(allowed, "the optimizer state of parameters that were frozen before begins at zero")) << allowed;
  const Lines more_layers = {t + "freeze_trainable_layers=2"};
  EXPECT_TRUE(says(run(more_layers), "training_config.freeze_trainable_layers"));
  const auto more = run(more_layers + Lines{t + "allow_changes=[training_config.frozen_parameters, "
                                                "training_config.freeze_trainable_layers]"});
  EXPECT_TRUE(says(more, "the optimizer state of parameters that were frozen before begins at zero")) << more;
  EXPECT_FALSE(says(run(frozen_norms + Lines{t + "no_load_optim=true"}), "refused"));
}

/// In a bf16 run the checkpoint has frozen parameters as the model reads them.
TEST_F(Freezing, MapsWhatACheckpointHasInTheTypeThatTheModelReadsAndMatricesInAnyType) {
  const auto sets = frozen_bottom + Lines{t + "bf16=true", m + "hidden_size=32"};
  train_well(sets + Lines{t + "exit_interval=2"});
  auto all = build(read(sets));
  training::ModelState state(all.model.first(), all.optimization.optimizer.get());
  const auto opened = saved("run", 2);
  const checkpoint::CheckpointWeights source(opened);
  const auto own = state.frozen().ranges(training::StateScope::held);
  const auto mapped = state.frozen().map(source);
  EXPECT_TRUE(mapped.contains("decoder.layers.1.mlp.linear_fc1.weight"));
  EXPECT_TRUE(mapped.contains("embedding.word_embeddings.weight"));
  const auto stored = content(opened);
  const auto now = state.frozen().ranges(training::StateScope::held);
  ASSERT_EQ(own.size(), now.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    EXPECT_EQ(own[i].tensor.raw().data() != now[i].tensor.raw().data(), mapped.contains(now[i].name)) << now[i].name;
    if (!mapped.contains(now[i].name)) continue;
    std::vector<float> values(static_cast<std::size_t>(now[i].tensor.elements()));
    kernels::Threads threads(1);
    kernels::widen(threads, now[i].tensor, values);
    EXPECT_EQ(values, stored.at(now[i].name)) << now[i].name;
  }
  auto whole = build(read(frozen_bottom + Lines{m + "hidden_size=32"}));  // reads fp32
  training::ModelState other(whole.model.first(), whole.optimization.optimizer.get());
  const auto rows = other.frozen().map(source);
  EXPECT_TRUE(rows.contains("decoder.layers.1.mlp.linear_fc1.weight"));
  EXPECT_FALSE(rows.contains("decoder.layers.1.mlp.linear_fc1.bias"));  // a vector of another type
  for (const auto& range : other.frozen().ranges(training::StateScope::held)) {
    if (!rows.contains(range.name)) continue;
    const auto floats = range.tensor.floats();
    EXPECT_EQ(std::vector<float>(floats.begin(), floats.end()), stored.at(range.name)) << range.name;
  }
}

/// Mapped weights are pages of files: `check` and the run count them apart, alike.
TEST_F(Freezing, OfMappedWeightsTakesNoMemoryThatIsCounted) {
  train_well(frozen_bottom + Lines{t + "exit_interval=2", t + "bf16=true", m + "hidden_size=32"});
  const Lines begins =
      frozen_bottom + Lines{m + "hidden_size=32", t + "load_checkpoint=run", t + "resume_training=false"};
  for (const auto& more : {Lines{t + "bf16=true"}, Lines{t + "save_frozen_parameters=false"}, Lines{}}) {
    const auto recipe = read(begins + more);
    SCOPED_TRACE(more.empty() ? "" : more.front());
    const auto need = memory_of_stage(recipe, layout_figures(recipe, 1), 0);
    auto all = build(recipe);
    training::ModelState state(all.model.first(), all.optimization.optimizer.get());
    const auto whole = state.bytes();
    EXPECT_EQ(whole.mapped, 0);
    const auto opened = saved("run", 2);
    const auto mapped = state.frozen().map(checkpoint::CheckpointWeights(opened));
    if (more.empty()) {  // rows of another type are copied to be saved
      EXPECT_EQ(state.bytes().all() + state.bytes().mapped, whole.all());
      state.frozen().ranges(training::StateScope::owned);
    }
    EXPECT_FALSE(mapped.empty());
    EXPECT_EQ(state.bytes().mapped, need.mapped);
    std::int64_t elements = 0;  // in the file in bfloat16, whatever the model reads
    for (const auto* parameter : state.frozen().parameters())
      if (mapped.contains(parameter->name)) elements += parameter->elements();
    EXPECT_EQ(need.in_files, more.empty() ? 0 : 2 * elements);
    EXPECT_EQ(state.bytes().in_files, need.in_files);
    EXPECT_EQ(state.bytes().weights, part_of(need, "weights"));
    EXPECT_EQ(state.bytes().all() + state.bytes().mapped, whole.all());
    EXPECT_EQ(need.mapped > 0, !more.empty());
  }
}

}  // namespace
}  // namespace tessera::recipe
