// What a run does with a checkpoint that was saved with another recipe: refuses, tells, or goes on silently.
#include <gtest/gtest.h>

#include <set>

#include "framework/base/files.h"
#include "framework/checkpoint/manifest.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe_changes.h"
#include "framework/training/saving/run_checkpoints.h"
#include "tests/own_folder.h"
#include "tests/recipe/console_runs.h"
#include "tests/recipe/small_run.h"
#include "tests/sanitized.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

class Resuming : public InOwnFolder {
 protected:
  Resuming() : InOwnFolder(folder_in_memory()) {
    write_token_file("data", 7);
    write_token_file("other", 11);
    write("run.yaml",
          "training_config: {training_iters: 6, exit_interval: 2, eval_iters: 0, output_dir: run, num_threads: 1,\n"
          "  tensorboard: false}\n"
          "model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64,\n"
          "  position_embedding_type: rope}\n"
          "optimizer_config: {learning_rate: 1e-2, lr_decay_style: constant}\n"
          "dataset_config: {data_path: data, split: \"100,0,0\", batch_size: 2, global_batch_size: 4}\n");
  }

  /// What a start with `sets` says about a checkpoint that a run with `earlier` saved.
  static std::string resumed(const Lines& sets, const Lines& earlier = {}) {
    std::filesystem::remove_all("run");
    const auto first = train(earlier);
    EXPECT_FALSE(says(first, "refused")) << first;
    return train(sets);
  }

  static std::string only_weights(const Lines& sets, const Lines& earlier = {}) {
    std::filesystem::remove_all("run");
    std::filesystem::remove_all("tuned");
    const auto first = train(earlier);
    EXPECT_FALSE(says(first, "refused")) << first;
    return train(sets + Lines{t + "output_dir=tuned", t + "load_checkpoint=run", t + "resume_training=false"});
  }

  /// The line about changes that are accepted; empty if there is none.
  static std::string told(const std::string& console) {
    const auto at = console.find("changed since the checkpoint: ");
    return at == std::string::npos ? "" : console.substr(at, console.find('\n', at) - at);
  }
};

TEST(WhenChanged, EveryOptionSaysWhatAChangeDoes) {
  for (const auto& [group, schemas] : all_facts({}))
    for (const auto& schema : schemas)
      for (const auto& option : schema.options)
        EXPECT_NE(option.change, options::Change::undeclared)
            << group << "." << option.name << ": give it .when_changed(), or its struct s.when_changed()";
}

TEST_F(Resuming, RefusesAnotherFunctionOfTheWeights) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {m + "num_attention_heads", "2"},   {m + "hidden_act", "relu"},
      {m + "norm_epsilon", "1e-2"},       {m + "rotary_base", "500"},
      {m + "rotary_percent", "0.5"},      {m + "rotary_interleaved", "true"},
      {m + "rope_scaling_type", "yarn"},  {m + "position_embedding_type", "none"},
      {m + "window_size", "[3, 0]"},      {m + "normalization", "RMSNorm"},
      {m + "scale_embeddings", "true"},   {m + "output_logit_softcap", "30"},
      {m + "apply_layernorm_1p", "true"}, {m + "query_pre_attn_scalar", "9"},
      {m + "residual_multiplier", "2"},   {m + "output_multiplier", "2"},
      {m + "softmax_type", "off-by-one"}};
  int number = 0;
  for (const auto& [option, value] : changes) {
    if (number++ % part_of_inputs != 0) continue;
    const auto set = option + "=" + value;
    for (const auto& story : {resumed({set}), only_weights({set})}) {
      EXPECT_TRUE(says(story, "refused: ")) << set << "\n" << story;
      EXPECT_TRUE(says(story, option)) << story;
    }
  }
  const auto story = resumed({m + "norm_epsilon=1e-2", m + "rotary_base=500"});
  EXPECT_TRUE(says(story,
                   "\n  model_config.norm_epsilon: 0.01 in the recipe, 1e-05 in "
                   "the checkpoint\n"))
      << story;
  EXPECT_TRUE(
      says(story, "--set 'training_config.allow_changes=[model_config.rotary_base, model_config.norm_epsilon]'"))
      << story;
}

TEST_F(Resuming, AllowChangesAcceptsWhatItNames) {
  const Lines heads = {m + "num_attention_heads=2", t + "allow_changes=[model_config.num_attention_heads]"};
  const auto line = "changed since the checkpoint: model_config.num_attention_heads 4 -> 2, model_config.kv_channels";
  EXPECT_TRUE(says(told(resumed(heads)), "model_config.num_attention_heads 4 -> 2")) << line;
  EXPECT_TRUE(says(told(only_weights(heads)), "model_config.num_attention_heads 4 -> 2"));
  EXPECT_TRUE(says(resumed(heads + Lines{m + "norm_epsilon=1e-2"}), "refused: "));
}

TEST_F(Resuming, AllowChangesTakesOptionsWhoseChangeIsRefused) {
  const auto wrong = [](const std::string& name) {
    return story_of([&] { read_recipe("run.yaml", {t + "allow_changes=[" + name + "]"}, Registries{}); });
  };
  EXPECT_EQ(wrong("optimizer_config.optimizer_type"), "no error");
  EXPECT_TRUE(says(wrong("norm_epsilon"), "give model_config.norm_epsilon")) << wrong("norm_epsilon");
  EXPECT_TRUE(says(wrong("model_config.norm_epsilom"), "did you mean")) << wrong("model_config.norm_epsilom");
  EXPECT_TRUE(says(wrong("optimizer_config.clip_grad"), "no option whose change is refused"));
}

TEST_F(Resuming, RefusesTheStateOfAnotherOptimizer) {
  for (const std::string type : {"adam_l2", "lion", "muon"}) {
    const auto set = o + "optimizer_type=" + type;
    const auto story = resumed({set});
    EXPECT_TRUE(says(story, "refused: ")) << story;
    EXPECT_TRUE(says(story, o + "optimizer_type: " + type + " in the recipe, adamw in the checkpoint")) << story;
    EXPECT_TRUE(says(story, "training_config.no_load_optim: true")) << story;
    EXPECT_TRUE(says(told(resumed({set, t + "no_load_optim=true"})), "optimizer_type adamw -> " + type));
    EXPECT_EQ(told(only_weights({set})), "");
  }
  EXPECT_TRUE(says(told(resumed({o + "optimizer_type=adam_l2", t + "allow_changes=[" + o + "optimizer_type]"})),
                   "optimizer_type adamw -> adam_l2"));
}

TEST_F(Resuming, TellsWhatAUserMayChange) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {o + "betas=[0.5, 0.5]", o + "betas [0.9, 0.999] -> [0.5, 0.5]"},
      {o + "eps=1e-6", o + "eps 1e-08 -> 1e-06"},
      {o + "clip_grad=2", o + "clip_grad 1 -> 2"},
      {m + "hidden_dropout_rate=0.3", m + "hidden_dropout_rate 0.1 -> 0.3"},
      {t + "bf16=true", t + "bf16 false -> true"},
      {d + "decrease_batch_size_if_needed=true", d + "decrease_batch_size_if_needed false -> true"}};
  for (const auto& [set, words] : changes) EXPECT_EQ(told(resumed({set})), "changed since the checkpoint: " + words);
  const auto rate = resumed({o + "learning_rate=2e-2", o + "override_opt_param_scheduler=true"});
  EXPECT_EQ(told(rate), "changed since the checkpoint: optimizer_config.learning_rate 0.01 -> 0.02");
  EXPECT_EQ(told(resumed({o + "learning_rate=2e-2", o + "use_checkpoint_opt_param_scheduler=true"})), "");
  EXPECT_EQ(told(only_weights({o + "clip_grad=2", m + "hidden_dropout_rate=0.3", d + "data_path=other"})),
            "changed since the checkpoint: model_config.hidden_dropout_rate 0.1 -> 0.3");
}

TEST_F(Resuming, TellsWhatChangesTheOrderOfSamples) {
  const std::string order = "the order of the training samples can differ";
  for (const auto& set : {d + "data_path=other", d + "split=90,10,0", t + "training_iters=8", d + "global_batch_size=8",
                          m + "seq_length=4", d + "dataloader_type=cyclic"}) {
    const auto line = told(resumed({set}));
    EXPECT_TRUE(says(line, set.substr(0, set.find('=')))) << set << "\n" << line;
    EXPECT_TRUE(says(line, order)) << line;
    EXPECT_FALSE(says(told(resumed({set, t + "new_dataset=true"})), order));
  }
  const auto seed = told(resumed({t + "seed=99"}));
  EXPECT_TRUE(says(seed, "training_config.seed 1234 -> 99 (dropout keeps the seed of the checkpoint")) << seed;
  EXPECT_FALSE(says(told(resumed({t + "seed=99", t + "no_load_rng=true"})), "dropout keeps"));
}

TEST_F(Resuming, TellsAnotherGlobalBatchSizeThatFollowsFromOthers) {
  const Lines one = {d + "global_batch_size=", d + "micro_batch_num=2"},
              other = {d + "global_batch_size=", d + "micro_batch_num=4"};
  EXPECT_TRUE(says(told(resumed(other, one)), "dataset_config.global_batch_size 4 -> 8"));
  // Other micro-batches of the same steps read the same samples in the same order.
  const auto line = told(resumed({d + "batch_size=4"}));
  EXPECT_EQ(line, "changed since the checkpoint: dataset_config.batch_size 2 -> 4");
  EXPECT_EQ(told(resumed({d + "global_batch_size=4"}, one)), "");
}

TEST_F(Resuming, IsSilentAboutWhatDoesNotMatter) {
  EXPECT_EQ(told(resumed({})), "");
  EXPECT_EQ(told(resumed({t + "exit_interval=4", t + "save_interval=1", t + "log_interval=1", t + "num_threads=2",
                          d + "num_workers=0", m + "init_method_std=0.5", m + "recompute_granularity=full",
                          m + "recompute_method=uniform", m + "recompute_num_layers=1",
                          t + "use_distributed_optimizer=true"})),
            "");
  // The same values in other words, and options without effect.
  EXPECT_EQ(told(resumed({m + "ffn_hidden_size=64", m + "kv_channels=4", m + "qkv_has_bias=true",
                          m + "rope_scaling_factor=4", m + "num_query_groups=2"})),
            "");
  EXPECT_EQ(told(resumed({m + "max_position_embeddings=8", m + "params_dtype=fp32", m + "compute_dtype=float32"})), "");
  EXPECT_EQ(told(resumed({d + "split=\"969, 30, 1\""}, {d + "split="})), "");
  const auto small = m + "ffn_hidden_size=32";
  EXPECT_EQ(told(resumed({m + "swiglu=true", small}, {m + "hidden_act=swiglu", small})), "");
}

TEST_F(Resuming, RefusesAnotherSelectionOfExpertsButNotAnotherLoss) {
  const std::string e = "moe_config.";
  const Lines experts = {m + "num_experts=4", m + "add_bias_linear=false", m + "ffn_hidden_size=32"};
  EXPECT_EQ(
      told(resumed(experts + Lines{e + "moe_router_load_balancing_type=none", m + "ffn_hidden_size=32"}, experts)),
      "changed since the checkpoint: moe_config.moe_router_load_balancing_type aux_loss -> none");
  for (const auto& set : {e + "moe_router_load_balancing_type=sinkhorn", e + "moe_router_topk=3",
                          e + "moe_router_score_function=sigmoid", e + "moe_router_pre_softmax=true"}) {
    const auto story = resumed(experts + Lines{set}, experts);
    EXPECT_TRUE(says(story, "refused: ") && says(story, set.substr(0, set.find('=')))) << set << story;
  }
}

TEST_F(Resuming, RefusesALongerSequenceThatChangesTheRotaryEmbedding) {
  const Lines yarn = {m + "rope_scaling_type=yarn"};
  const auto story = resumed(yarn + Lines{m + "seq_length=4"}, yarn);
  EXPECT_TRUE(says(story, "rope_scaling_original_max_position_embeddings: 4 in the recipe, 8 in the checkpoint"))
      << story;
}

TEST_F(Resuming, RefusesTheCheckpointOfALargerModel) {
  const auto story = resumed({m + "num_layers=1"});
  EXPECT_TRUE(says(story, "is a checkpoint of another model: it has ")) << story;
  EXPECT_TRUE(says(story, "model_config.num_layers: 1 in the recipe, 2 in the checkpoint")) << story;
  EXPECT_TRUE(says(resumed({m + "add_bias_linear=false"}), "is a checkpoint of another model: it has "));
  EXPECT_TRUE(says(resumed({}, {m + "untie_embeddings_and_output_weights=true"}), "it has output_layer.weight"));
}

TEST_F(Resuming, SaysThatAnOldCheckpointHasNoRecipeToCompareWith) {
  train({});
  const auto folder = checkpoint::list_checkpoints("run/checkpoints", "network").front().folder;
  auto manifest = checkpoint::read_manifest(read_file(folder / "manifest.json"), "");
  manifest.blobs.erase(checkpoint::recipe_blob);
  write_file_atomic(folder / "manifest.json", checkpoint::write_manifest(manifest));
  const auto story = train({m + "norm_epsilon=1e-2"});
  EXPECT_TRUE(says(story, "it is not known what has changed since the checkpoint was saved: ")) << story;
  EXPECT_TRUE(says(story, "resuming from ")) << story;
}

TEST_F(Resuming, ComparesTheContentOfTokenizerFiles) {
  write("a.txt", "[UNK]\n[SEP]\n[PAD]\n[CLS]\n[MASK]\nlow\n");
  write("same.txt", read_file("a.txt"));
  write("b.txt", "[UNK]\n[SEP]\n[PAD]\n[CLS]\n[MASK]\nhigh\n");
  const auto with = [](const std::string& file) {
    return Lines{d + "tokenizer_type=BertWordPieceLowerCase", d + "vocab_file=" + file};
  };
  EXPECT_EQ(told(resumed(with("same.txt"), with("a.txt"))), "");
  for (const auto& story : {resumed(with("b.txt"), with("a.txt")), only_weights(with("b.txt"), with("a.txt"))})
    EXPECT_TRUE(says(story,
                     "dataset_config.vocab_file: b.txt in the recipe, a file with other content in the "
                     "checkpoint"))
        << story;
  EXPECT_TRUE(
      says(resumed(with("a.txt")), "dataset_config.tokenizer_type: BertWordPieceLowerCase in the recipe, none"));
}

TEST_F(Resuming, SavesATokenizerFileWithAnyExtension) {
  const std::string file = "vocab.txt (copy 2)";
  write(file, "[UNK]\n[SEP]\n[PAD]\n[CLS]\n[MASK]\nlow\n");
  const Lines bert = {d + "tokenizer_type=BertWordPieceLowerCase", d + "vocab_file=" + file};
  EXPECT_EQ(told(resumed(bert, bert)), "");
}

TEST_F(Resuming, ContinuesACyclicOrderOnlyAfterWholeMicroBatchesOfAllRanks) {
  const Lines cyclic = {d + "dataloader_type=cyclic"};
  const auto story = resumed(cyclic + Lines{d + "batch_size=3", d + "global_batch_size=3"}, cyclic);
  EXPECT_TRUE(says(story, "refused: ")) << story;
  EXPECT_TRUE(says(story, "the run has consumed 8 samples")) << story;
  EXPECT_TRUE(says(story, "can continue only after a multiple of 3")) << story;
  const Lines anew = {d + "batch_size=3", d + "global_batch_size=3", t + "new_dataset=true"};
  EXPECT_FALSE(says(resumed(cyclic + anew, cyclic), "refused: "));
  const auto line = told(resumed(cyclic + Lines{d + "batch_size=4"}, cyclic));
  EXPECT_TRUE(says(line, "samples of a micro-batch on all data-parallel ranks 2 -> 4; the order")) << line;
}

TEST_F(Resuming, ComparesOnlyWhatADescriptionGives) {
  const auto own = read_recipe("run.yaml", {}, Registries{});
  const auto names = [&](const std::string& described) {
    const auto tree = options::parse_yaml(described, "config.json");
    std::set<std::string> all;
    const auto changes = recipe_changes(own, {}, {}, &tree);
    for (const auto& change : changes.value()) all.insert(change.option + " " + change.saved);
    return all;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(names("model_config: {num_layers: 2, hidden_size: 16, num_attention_heads: 2, ffn_hidden_size: 64,\n"
                  "  kv_channels: 4, layernorm_epsilon: 1.0e-05}\n"
                  "optimizer_config: {adam_beta1: 0.9, adam_beta2: 0.95}\n"),
            (Names{"model_config.num_attention_heads 2", "optimizer_config.betas [0.9, 0.95]"}));
  EXPECT_FALSE(recipe_changes(own, {}, {}, nullptr).has_value());
}

TEST_F(Resuming, APrefixIsPartOfAFolderName) {
  const auto told_of = [](const std::string& prefix) {
    return story_of([&] { read_recipe("run.yaml", {t + "prefix=" + prefix}, Registries{}); });
  };
  const std::string longest(128, 'x');
  for (const auto& prefix : Lines{"my/run", "../../evil", "/tmp/x", "a/", longest + "x", "\"a\\nb\""})
    EXPECT_TRUE(says(told_of(prefix), "but it becomes part of the name of a folder")) << told_of(prefix);
  for (const auto& prefix : Lines{"my-run", "a.b", "..", "größe", longest}) EXPECT_EQ(told_of(prefix), "no error");
}

}  // namespace
}  // namespace tessera::recipe
