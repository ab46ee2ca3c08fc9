// Runs of the stages of pairs: reference models, their stored log-probabilities, resuming, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/recipe/build.h"
#include "framework/recipe/layout_figures.h"
#include "framework/recipe/memory.h"
#include "framework/training/loop/trainer.h"
#include "tests/own_folder.h"
#include "tests/pairs_of_rows.h"
#include "tests/recipe/groups.h"
#include "tests/recipe/small_run.h"

namespace tessera::recipe {
namespace {

namespace fs = std::filesystem;

class PreferenceRun : public InOwnFolder {
 protected:
  PreferenceRun() : InOwnFolder(folder_in_memory()) {
    data::register_pairs(registries_.datasets);
    write_token_file("data", 7);
    write("run.yaml",
          "training_config: {training_iters: 4, output_dir: run, log_interval: 1, eval_interval: 2, eval_iters: 2, "
          "num_threads: 1, tensorboard: false}\n"
          "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 16, vocab_size: 64, "
          "hidden_dropout_rate: 0.1, attention_dropout_rate: 0}\n"
          "optimizer_config: {learning_rate: 1e-2}\n"
          "dataset_config: {data_path: data, split: \"80,10,10\", batch_size: 2, micro_batch_num: 2}\n");
  }
  Recipe read(const Lines& sets) { return read_recipe("run.yaml", sets, registries_); }
  std::string train(const std::string& folder, const Lines& sets) {
    testing::internal::CaptureStdout();
    try {
      training::train(build(read(Lines{t + "output_dir=" + folder} + sets)), training::StopSignal{});
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    return testing::internal::GetCapturedStdout();
  }
  /// A model that has learnt something else than the one that a run without it begins with.
  void make_base() { train("base", {t + "seed=5"}); }
  std::string error_of(const Lines& sets) {
    try {
      train("wrong", sets);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  /// The reported numbers of each step, without clocks.
  static std::vector<nlohmann::json> steps(const std::string& folder) {
    std::vector<nlohmann::json> all;
    std::ifstream file(fs::path(folder) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      auto step = nlohmann::json::parse(line);
      nlohmann::json kept;
      for (const auto& [key, value] : step.items())
        if (key.find("loss") != std::string::npos || key.find("rewards/") != std::string::npos ||
            key.find("logps/") != std::string::npos || key == "grad_norm")
          kept[key] = value;
      all.push_back(kept);
    }
    return all;
  }
  const Lines pairs = {d + "dataset_type=pairs_of_rows"};
  const Lines dpo = pairs + Lines{t + "stage=dpo", t + "load_checkpoint=base", t + "resume_training=false",
                                  "preference_config.dpo_beta=0.5"};
  Registries registries_;
};

TEST_F(PreferenceRun, BeginsAtTheLossOfEqualModelsAndLearnsToPrefer) {
  make_base();
  train("run", dpo + Lines{m + "hidden_dropout_rate=0", t + "training_iters=30", o + "learning_rate=3e-3"});
  const auto all = steps("run");
  ASSERT_EQ(all.size(), 30U);
  EXPECT_NEAR(all.front().at("loss"), std::log(2.0), 1e-6);  // policy and reference are the same
  EXPECT_NEAR(all.front().at("rewards/chosen"), 0, 1e-6);
  EXPECT_GT(all.front().at("grad_norm"), 0.0);
  EXPECT_LT(all.back().at("loss"), 0.35);
  EXPECT_GT(all.back().at("rewards/margins"), 0.5);
  EXPECT_EQ(all.back().at("rewards/accuracies"), 1);
  EXPECT_TRUE(all.back().contains("validation_rewards/margins")) << all.back();
  EXPECT_TRUE(all.back().contains("final_validation_logps/chosen")) << all.back();
}

TEST_F(PreferenceRun, OfARewardModelLearnsToPreferFromALanguageModelToo) {
  make_base();
  const auto rm = pairs + Lines{t + "stage=rm",          m + "score_head=true",    m + "hidden_dropout_rate=0",
                                t + "training_iters=60", o + "learning_rate=2e-2", o + "weight_decay=0"};
  train("run", rm);
  EXPECT_NEAR(steps("run").front().at("loss"), std::log(2.0), 0.2);
  const auto mean_of_last = [](const std::string& folder) {
    const auto all = steps(folder);
    double sum = 0;
    for (std::size_t i = all.size() - 10; i < all.size(); ++i) sum += all[i].at("loss").get<double>() / 10;
    return sum;
  };
  EXPECT_LT(mean_of_last("run"), 0.6);
  const auto console = train("begun", rm + Lines{t + "load_checkpoint=base", t + "resume_training=false"});
  EXPECT_NE(console.find("the score head begins with random values"), std::string::npos) << console;
  EXPECT_LT(mean_of_last("begun"), steps("begun").front().at("loss"));
  EXPECT_NE(steps("begun").front(), steps("run").front());
  // A reward model begins with all weights of another, and resumes.
  train("more", rm + Lines{t + "load_checkpoint=begun", t + "resume_training=false"});
  EXPECT_LT(steps("more").front().at("loss"), steps("begun").front().at("loss"));
  train("parts", rm + Lines{t + "exit_interval=11"});
  train("parts", rm);
  EXPECT_EQ(steps("parts"), steps("run"));
}

TEST_F(PreferenceRun, OfARewardModelLeavesOutTheOutputLayerOfALanguageModel) {
  const auto untied = m + "untie_embeddings_and_output_weights=true";
  train("untied", {t + "seed=5", untied});
  const auto rm =
      pairs + Lines{t + "stage=rm", m + "score_head=true", t + "load_checkpoint=untied", t + "resume_training=false"};
  const Lines adapters = {"lora_config.use_lora=true", "lora_config.target_modules=all-linear"};
  for (const auto& more : {Lines{}, Lines{untied}, adapters}) {
    const auto console = train(text("begun", more.size()), rm + more);
    EXPECT_NE(console.find("and the output layer is left out"), std::string::npos) << console;
  }
}

TEST_F(PreferenceRun, OfAdaptersHasTheModelWithoutThemAsReference) {
  make_base();
  const Lines adapters = {"lora_config.use_lora=true", "lora_config.target_modules=all-linear",
                          "lora_config.lora_rank=4", m + "hidden_dropout_rate=0"};
  train("run", dpo + adapters + Lines{t + "training_iters=30"});
  const auto all = steps("run");
  EXPECT_NEAR(all.front().at("loss"), std::log(2.0), 1e-6);  // adapters begin without effect
  EXPECT_LT(all.back().at("loss"), 0.6);
  EXPECT_GT(all.back().at("rewards/margins"), 0.2);
  const auto saved = checkpoint::Checkpoint::open(fs::path("run") / "checkpoints" / "network_iter_0000030");
  for (const auto& name : saved.names()) EXPECT_NE(name.find("lora_"), std::string::npos) << name;
  // Resumed, the reference is again the base, not what was trained.
  train("half", dpo + adapters + Lines{t + "training_iters=30", t + "exit_interval=15"});
  train("half", dpo + adapters + Lines{t + "training_iters=30", t + "resume_training=true"});
  EXPECT_EQ(steps("half"), all);
}

TEST_F(PreferenceRun, OfACheckpointWithAdaptersHasTheModelWithoutThemAsReference) {
  make_base();
  const Lines adapters = {"lora_config.use_lora=true", "lora_config.target_modules=all-linear",
                          "lora_config.lora_rank=4", m + "hidden_dropout_rate=0"};
  for (const std::string whole : {"false", "true"}) {
    const auto saves = adapters + Lines{t + "save_frozen_parameters=" + whole};
    train("sft" + whole, saves + Lines{t + "load_checkpoint=base", t + "resume_training=false"});
    const auto sets = dpo + saves + Lines{t + "load_checkpoint=sft" + whole};
    train("run" + whole, sets);
    EXPECT_GT(std::abs(steps("run" + whole).front().at("loss").get<double>() - std::log(2.0)), 1e-4);
    train("named" + whole, sets + Lines{"preference_config.ref_model=base"});
    EXPECT_EQ(steps("run" + whole), steps("named" + whole));
    train("half" + whole, sets + Lines{t + "exit_interval=2"});
    train("half" + whole, sets + Lines{t + "resume_training=true"});
    EXPECT_EQ(steps("half" + whole), steps("run" + whole));
    // A reference that is named is not to be another model than the one that has the name.
    const auto said = error_of(sets + Lines{"preference_config.ref_model=sft" + whole});
    EXPECT_NE(said.find("has adapters, which the reference model cannot have"), std::string::npos) << said;
  }
  EXPECT_EQ(steps("runfalse"), steps("runtrue"));
}

TEST_F(PreferenceRun, OfAdaptersTrainsTheScoreHeadOfARewardModel) {
  make_base();
  train("run",
        pairs + Lines{t + "stage=rm", m + "score_head=true", t + "load_checkpoint=base", t + "resume_training=false",
                      "lora_config.use_lora=true", "lora_config.target_modules=all-linear"});
  const auto saved = checkpoint::Checkpoint::open(fs::path("run") / "checkpoints" / "network_iter_0000004");
  EXPECT_TRUE(saved.has("score.weight"));
  EXPECT_FALSE(saved.has("embedding.word_embeddings.weight"));
}

TEST_F(PreferenceRun, ItsReferenceIsNotTheTrainedModelAndIsNotSaved) {
  make_base();
  train("run", dpo);
  train("other", pairs + Lines{t + "stage=dpo", "preference_config.ref_model=base"});
  EXPECT_NE(steps("run").front(), steps("other").front());  // other begins with random weights
  EXPECT_FALSE(fs::exists("run/reference_logps"));
  // Of the checkpoints of the base by iteration, the newest is the same one.
  train("by_number", dpo + Lines{"preference_config.ref_model=base", "preference_config.refer_model_iter=4"});
  EXPECT_EQ(steps("run"), steps("by_number"));
}

TEST_F(PreferenceRun, ItsReferenceIsTheCheckpointOfCkptStepWithWhichItBegins) {
  train("base", {t + "seed=5", t + "save_interval=2"});
  const auto second = dpo + Lines{m + "hidden_dropout_rate=0", t + "ckpt_step=2"};
  train("run", second);
  EXPECT_NEAR(steps("run").front().at("loss"), std::log(2.0), 1e-6);  // policy and reference are the same
  train("by_number", second + Lines{"preference_config.ref_model=base", "preference_config.refer_model_iter=2"});
  EXPECT_EQ(steps("run"), steps("by_number"));
  // ckpt_step is of load_checkpoint, not of another folder.
  train("newest", second + Lines{"preference_config.ref_model=base"});
  EXPECT_NE(steps("newest").front(), steps("run").front());
}

TEST_F(PreferenceRun, ItsReferenceRemainsThePretrainedCheckpointWhenItResumes) {
  make_base();
  const Lines adapters = {"lora_config.use_lora=true", "lora_config.target_modules=all-linear"};
  for (const auto& more : {Lines{}, adapters}) {
    const auto name = [&](const std::string& folder) { return text(folder, more.size()); };
    const auto sets = [&](const std::string& folder) {
      return pairs + more +
             Lines{t + "stage=dpo", t + "training_iters=6", t + "pretrained_checkpoint=base",
                   t + "load_checkpoint=" + name(folder)};
    };
    train(name("whole"), sets("whole"));
    train(name("parts"), sets("parts") + Lines{t + "exit_interval=3"});
    train(name("parts"), sets("parts"));
    EXPECT_EQ(steps(name("whole")), steps(name("parts")));
    // The same folder by another path, and without load_checkpoint.
    train(name("other"), sets("other") + Lines{t + "exit_interval=3"});
    train(name("other"), sets("other") + Lines{t + "load_checkpoint=./" + name("other") + "/checkpoints"});
    EXPECT_EQ(steps(name("whole")), steps(name("other")));
    train(name("alone"), sets("alone") + Lines{t + "load_checkpoint=null", t + "exit_interval=3"});
    train(name("alone"), sets("alone") + Lines{t + "load_checkpoint=null"});
    EXPECT_EQ(steps(name("whole")), steps(name("alone")));
  }
}

TEST_F(PreferenceRun, WithStoredLogProbabilitiesHasTheSameLossesToTheBit) {
  make_base();
  const auto stored = dpo + Lines{"preference_config.cache_reference=true"};
  for (const std::string type : {"pairs_of_rows", "ragged_pairs"}) {
    const Lines of_type = {d + "dataset_type=" + type};
    train("plain" + type, dpo + of_type);
    train("stored" + type, stored + of_type);
    EXPECT_EQ(steps("plain" + type), steps("stored" + type));
    ASSERT_TRUE(fs::exists("stored" + type + "/reference_logps"));
  }
  // A second run reads them: it computes none, even with a reference whose weights it could not know.
  const auto file_of = [](const std::string& folder, int start) {
    for (const auto& digest : fs::directory_iterator(folder + "/reference_logps"))
      return digest.path() / text("rank0-", start, ".bin");
    return fs::path();
  };
  const auto first = file_of("storedpairs_of_rows", 0);
  const auto records = fs::file_size(first) / 24;
  EXPECT_EQ(records, 48U);  // 16 pairs of the steps, some of which evaluations have too, and 8 others of evaluations
  train("storedpairs_of_rows", stored);
  EXPECT_EQ(steps("plainpairs_of_rows"), steps("storedpairs_of_rows"));
  EXPECT_EQ(fs::file_size(file_of("storedpairs_of_rows", 1)), 0U);
  // What is damaged is computed again.
  auto bytes = read_file(first);
  bytes[24 * 3 + 9] = static_cast<char>(bytes[24 * 3 + 9] ^ 1);
  write(first.string(), bytes);
  train("storedpairs_of_rows", stored);
  EXPECT_EQ(steps("plainpairs_of_rows"), steps("storedpairs_of_rows"));
  EXPECT_GT(fs::file_size(file_of("storedpairs_of_rows", 2)), 0U);
}

TEST_F(PreferenceRun, ResumesToTheBit) {
  make_base();
  for (const std::string cached : {"false", "true"}) {
    const auto sets = pairs + Lines{t + "stage=dpo", "preference_config.ref_model=base", t + "training_iters=6",
                                    "preference_config.cache_reference=" + cached};
    train("whole" + cached, sets);
    train("parts" + cached, sets + Lines{t + "exit_interval=3"});
    train("parts" + cached, sets);
    EXPECT_EQ(steps("whole" + cached), steps("parts" + cached));
  }
}

TEST_F(PreferenceRun, MemoryOfTheReferenceAndItsPassIsForeseen) {
  make_base();
  const auto recipe = read(dpo + Lines{m + "hidden_dropout_rate=0"});
  const auto need = memory_of_stage(recipe, layout_figures(recipe, 1), 0);
  EXPECT_TRUE(need.complete) << need.not_foreseen;
  std::int64_t reference = 0, weights = 0, activations = 0;
  for (const auto& part : need.parts) {
    if (std::string(part.name) == "reference model") reference = part.bytes;
    if (std::string(part.name) == "weights") weights = part.bytes;
    if (std::string(part.name) == "activations") activations = part.bytes;
  }
  EXPECT_EQ(reference, 0);          // all of it is mapped
  EXPECT_LE(need.mapped, weights);  // fp32 too; weights that train have more padding
  EXPECT_GT(need.mapped, weights * 9 / 10);
  const auto unknown = read(dpo + Lines{m + "hidden_dropout_rate=0", "preference_config.ref_model=elsewhere"});
  const auto all = memory_of_stage(unknown, layout_figures(unknown, 1), 0);
  EXPECT_EQ(all.mapped, 0);
  EXPECT_EQ(all.bytes(), need.bytes() + need.mapped);
  const auto console = train("run", dpo + Lines{m + "hidden_dropout_rate=0"});
  std::ifstream file("run/metrics.jsonl");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(nlohmann::json::parse(line).at("activation_bytes"), activations) << console;
}

TEST_F(PreferenceRun, RefusesWhatCannotBeJudged) {
  make_base();
  const auto expect = [&](const Lines& sets, const std::string& words) {
    const auto error = error_of(sets);
    EXPECT_NE(error.find(words), std::string::npos) << words << " is not in: " << error;
  };
  expect({t + "stage=dpo", t + "load_checkpoint=base"}, "needs pairs of completions, but dataset_type gpt");
  expect(pairs, "would train on the rejected ones too");
  expect(pairs + Lines{t + "stage=sft"}, "stage is sft");
  expect(pairs + Lines{t + "stage=dpo"}, "there is no reference model");
  expect(pairs + Lines{t + "stage=dpo", t + "load_checkpoint=wrong"}, "load_checkpoint is the run folder itself");
  expect(pairs + Lines{t + "stage=ppo"}, "stage is ppo, which generates completions during training");
  expect(pairs + Lines{t + "stage=ray_gae"}, "stage is ray_gae, which generates completions during training");
  expect(pairs + Lines{t + "stage=kto"}, "stage is kto, which is not supported");
  expect(dpo + Lines{"preference_config.dpo_loss_type=robust", "preference_config.dpo_label_smoothing=0.5"},
         "robust divides by 1 - 2 x dpo_label_smoothing, which is 0.5");
  expect(dpo + Lines{"preference_config.dpo_loss_type=exo_pair"}, "the logarithm of dpo_label_smoothing, which is 0");
  expect(dpo + Lines{"preference_config.refer_model_iter=99"}, "wrong has no checkpoint of iteration 99");
  expect(dpo + Lines{"preference_config.ref_model=base", "preference_config.refer_model_iter=99"},
         "base has no checkpoint of iteration 99");
  train("large", {m + "vocab_size=72", t + "seed=5"});
  expect(dpo + Lines{"preference_config.ref_model=nowhere"}, "preference_config.ref_model: no checkpoint named");
  expect(dpo + Lines{"preference_config.ref_model=large"}, "has a vocabulary of 72 rows, but the model has 64");
  train("small", pairs + Lines{m + "vocab_size=60", t + "stage=orpo"});
  expect(dpo + Lines{"preference_config.ref_model=small"}, "has a vocabulary of 60 rows, but the model has 64");
  train("deep", {m + "num_layers=3", t + "seed=5"});
  EXPECT_NE(error_of(dpo + Lines{"preference_config.ref_model=deep"}), "");
  expect(pairs + Lines{t + "stage=rm"}, "give model_config.score_head: true");
  expect({m + "score_head=true"}, "score_head is true, but stage is null, which needs an output layer");
  expect(dpo + Lines{m + "mtp_num_layers=1", m + "position_embedding_type=rope"}, "multi-token prediction");
}

}  // namespace
}  // namespace tessera::recipe
