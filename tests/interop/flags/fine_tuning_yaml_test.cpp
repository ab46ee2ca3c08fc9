// Configurations of LLaMA-Factory and torchtune: each key has a status, and the recipe is their run.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "framework/interop/flags/forms.h"
#include "framework/options/yaml.h"
#include "framework/recipe/recipe.h"
#include "tests/interop/flags/tables.h"
#include "tests/own_folder.h"

namespace tessera {
namespace {

struct Read {
  explicit Read(const std::string& words, const std::string& more = "") {
    conversion = flags::read_any(options::parse_yaml(words + more, "tune.yaml"), options::Mappings(),
                                 recipe::all_facts({}), report);
  }
  std::string at(const std::string& option) const { return text_at(conversion.recipe, option); }
  flags::FlagStatus status(const std::string& flag) const {
    const auto found = std::find_if(conversion.flags.begin(), conversion.flags.end(),
                                    [&](const auto& one) { return one.given.flag == flag; });
    if (found == conversion.flags.end()) ADD_FAILURE() << flag << " is not converted";
    return found == conversion.flags.end() ? flags::FlagStatus::unknown : found->status;
  }
  bool refuses(const std::string& words) const {
    const auto problems = report.problems();
    return std::any_of(problems.begin(), problems.end(),
                       [&](const auto& line) { return line.find(words) != std::string::npos; });
  }
  options::Report report;
  flags::Conversion conversion;
};

const std::string sft =
    "model_name_or_path: models/base\ntrust_remote_code: true\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
    "dataset: talks\ntemplate: qwen\noutput_dir: out\nresume_from_checkpoint: null\nreport_to: none\n";

TEST(LlamaFactory, OnlyAScheduleWithWarmUpWarmsUp) {
  const auto at = [](const std::string& more, const std::string& option) {
    const Read one(sft, more);
    EXPECT_EQ(one.report.problems(), Lines{});
    return one.at("optimizer_config." + option);
  };
  const std::string ratio = "warmup_ratio: 0.1\n", steps = "warmup_steps: 20\n";
  const std::string constant = "lr_scheduler_type: constant\n", with = "lr_scheduler_type: constant_with_warmup\n";
  EXPECT_EQ(at(ratio + constant, "lr_decay_style"), "constant");
  EXPECT_EQ(at(ratio + constant, "lr_warmup_fraction"), "nothing");
  EXPECT_EQ(at(steps + constant, "lr_warmup_iters"), "nothing");
  EXPECT_EQ(at(ratio + with, "lr_warmup_fraction"), "0.1");
  EXPECT_EQ(at(steps + with, "lr_warmup_iters"), "20");
  EXPECT_EQ(at(ratio, "lr_warmup_fraction"), "0.1") << "the default is linear";
  const auto notes = Read(sft, ratio + constant).report.notes();
  EXPECT_TRUE(std::any_of(notes.begin(), notes.end(), [](const auto& note) {
    return note.find("lr_scheduler_type constant has no warm-up") != std::string::npos;
  }));
}

TEST(LlamaFactory, TheExampleForLoraIsTheRunThatItDescribes) {
  const Read one(sft,
                 "lora_rank: 4\nlora_target: all\ncutoff_len: 512\nmax_samples: 1000\npreprocessing_num_workers: 16\n"
                 "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nlearning_rate: 1.0e-4\n"
                 "num_train_epochs: 3.0\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\nbf16: true\nlogging_steps: 10\n"
                 "save_steps: 500\nplot_loss: true\noverwrite_output_dir: true\nddp_timeout: 180000000\n");
  EXPECT_EQ(one.report.problems(), Lines{});
  EXPECT_EQ(one.at("training_config.load_checkpoint"), "models/base");
  EXPECT_EQ(one.at("training_config.stage"), "sft");
  EXPECT_EQ(one.at("training_config.calculate_per_token_loss"), "true");
  EXPECT_EQ(one.at("training_config.epochs"), "3");
  EXPECT_EQ(one.at("training_config.bf16"), "true");
  EXPECT_EQ(one.at("training_config.resume_training"), "false");
  EXPECT_EQ(one.at("training_config.eval_iters"), "0");
  EXPECT_EQ(one.at("training_config.seed"), "42");
  EXPECT_EQ(one.at("lora_config.use_lora"), "true");
  EXPECT_EQ(one.at("lora_config.lora_rank"), "4");
  EXPECT_EQ(one.at("lora_config.lora_alpha"), "8") << "twice the rank";
  EXPECT_EQ(one.at("lora_config.target_modules"), "[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]");
  EXPECT_EQ(one.at("model_config.seq_length"), "512");
  EXPECT_EQ(one.at("dataset_config.dataset_type"), "instruction");
  EXPECT_EQ(one.at("dataset_config.data_path"), "talks");
  EXPECT_EQ(one.at("dataset_config.batch_size"), "1");
  EXPECT_EQ(one.at("dataset_config.micro_batch_num"), "8");
  EXPECT_EQ(one.at("optimizer_config.lr_decay_style"), "cosine");
  EXPECT_EQ(one.at("optimizer_config.lr_warmup_fraction"), "0.1");
  EXPECT_EQ(one.at("optimizer_config.weight_decay"), "0");
  EXPECT_EQ(one.status("--template"), flags::FlagStatus::ignored);
  EXPECT_EQ(one.status("--report_to"), flags::FlagStatus::ignored);
}

TEST(LlamaFactory, WhatIsNotGivenHasItsDefaults) {
  const Read one(sft);
  EXPECT_EQ(one.at("dataset_config.batch_size"), "8");
  EXPECT_EQ(one.at("model_config.seq_length"), "2048");
  EXPECT_EQ(one.at("lora_config.lora_alpha"), "16");
  EXPECT_EQ(one.at("optimizer_config.learning_rate"), "5e-5");
  EXPECT_EQ(one.at("optimizer_config.lr_decay_style"), "linear");
  EXPECT_EQ(one.at("training_config.epochs"), "3");
  EXPECT_EQ(one.at("lora_config.target_modules"), ".*\\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)");
}

TEST(LlamaFactory, KeysThatDependOnOthers) {
  const Read named(sft,
                   "lora_target: q_proj, v_proj\nlora_alpha: 3\nadditional_target: lm_head\nval_size: 0.25\n"
                   "max_steps: 20\nneat_packing: true\nquantization_bit: 4\nsplit_special_tokens: true\n"
                   "loraplus_lr_ratio: 16.0\nloraplus_lr_embedding: 1e-5\n");
  EXPECT_EQ(named.report.problems(), Lines{});
  EXPECT_EQ(named.at("lora_config.target_modules"), "[q_proj, v_proj]");
  EXPECT_EQ(named.at("lora_config.modules_to_save"), "[lm_head]");
  EXPECT_EQ(named.at("lora_config.lora_alpha"), "3");
  EXPECT_EQ(named.at("lora_config.loraplus_lr_ratio"), "16.0");
  EXPECT_EQ(named.at("lora_config.loraplus_lr_embedding"), "1e-5");
  EXPECT_EQ(named.at("lora_config.qlora"), "true");
  EXPECT_EQ(named.at("dataset_config.split"), "0.75,0.25,0");
  EXPECT_EQ(named.at("training_config.full_validation"), "true");
  EXPECT_EQ(named.at("training_config.training_iters"), "20");
  EXPECT_EQ(named.at("training_config.epochs"), "null") << "max_steps overrides it";
  EXPECT_EQ(named.at("dataset_config.reset_position_ids"), "true");
  EXPECT_EQ(named.at("dataset_config.split_special_tokens"), "true");
  const Read whole(sft, "split_special_tokens: false\n");
  EXPECT_EQ(whole.conversion.recipe.at("dataset_config.split_special_tokens"), nullptr);
}

TEST(LlamaFactory, FreezingTrainsLayersInsteadOfAdapters) {
  const auto with = [](const std::string& type, const std::string& more) {
    auto words = sft;
    words.replace(words.find("finetuning_type: lora"), 21, "finetuning_type: " + type);
    return Read(words, more);
  };
  const auto plain = with("freeze", "");
  EXPECT_EQ(plain.report.problems(), Lines{});
  EXPECT_EQ(plain.at("lora_config.use_lora"), "false");
  EXPECT_EQ(plain.at("training_config.freeze_trainable_layers"), "2") << "its default";
  const std::string all =
      "freeze_trainable_layers: -3\nfreeze_trainable_modules: mlp, self_attn\nfreeze_extra_modules: norm\n";
  const auto given = with("freeze", all);
  EXPECT_EQ(given.report.problems(), Lines{});
  EXPECT_EQ(given.at("training_config.freeze_trainable_layers"), "-3");
  EXPECT_EQ(given.at("training_config.freeze_trainable_modules"), "[mlp, self_attn]");
  EXPECT_EQ(given.at("training_config.freeze_extra_modules"), "[norm]");
  for (const auto* type : {"full", "lora"}) {
    const auto other = with(type, all);
    EXPECT_EQ(other.report.problems(), Lines{});
    EXPECT_EQ(other.conversion.recipe.at("training_config.freeze_trainable_layers"), nullptr);
    EXPECT_EQ(other.conversion.recipe.at("training_config.freeze_extra_modules"), nullptr);
  }
}

TEST(LlamaFactory, Preferences) {
  const auto stage = [](const std::string& more) {
    auto words = sft;
    words.replace(words.find("stage: sft"), 10, "stage: dpo");
    return Read(words, more);
  };
  const auto dpo = stage("pref_beta: 0.2\npref_loss: sigmoid\npref_ftx: 0.5\n");
  EXPECT_EQ(dpo.report.problems(), Lines{});
  EXPECT_EQ(dpo.at("training_config.stage"), "dpo");
  EXPECT_EQ(dpo.at("dataset_config.is_pairwise_dataset"), "true");
  EXPECT_EQ(dpo.at("preference_config.dpo_beta"), "0.2");
  EXPECT_EQ(dpo.at("preference_config.pref_ftx"), "0.5");
  const auto simpo = stage("pref_loss: simpo\npref_beta: 2\nsimpo_gamma: 1\n");
  EXPECT_EQ(simpo.at("training_config.stage"), "simpo");
  EXPECT_EQ(simpo.at("preference_config.simpo_beta"), "2");
  EXPECT_EQ(simpo.at("preference_config.gamma_beta_ratio"), "0.5");
  EXPECT_EQ(stage("pref_loss: simpo\n").at("preference_config.gamma_beta_ratio"), "5") << "0.5 / 0.1";
  EXPECT_EQ(stage("pref_loss: orpo\n").at("training_config.stage"), "orpo");
  EXPECT_TRUE(stage("pref_loss: kto_pair\n").refuses("kto_pair"));
}

/// The folder data/ of LLaMA-Factory.
class LlamaFactoryData : public InOwnFolder {
 protected:
  LlamaFactoryData() {
    std::filesystem::create_directory("data");
    for (const auto* name : {"pairs.json", "more.jsonl", "talks.json", "rows.json"}) write(text("data/", name), "[]");
    write("data/dataset_info.json", R"({
      "pairs": {"file_name": "pairs.json", "ranking": true,
                "columns": {"prompt": "question", "chosen": "good", "rejected": "bad"}},
      "more": {"file_name": "more.jsonl", "ranking": true,
               "columns": {"prompt": "question", "chosen": "good", "rejected": "bad"}},
      "talks": {"file_name": "talks.json", "formatting": "sharegpt", "ranking": true,
                "columns": {"messages": "messages", "chosen": "chosen", "rejected": "rejected"},
                "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}},
      "rows": {"file_name": "rows.json"},
      "judged": {"file_name": "rows.json", "columns": {"kto_tag": "label"}},
      "hub": {"hf_hub_url": "someone/pairs", "ranking": true},
      "part": {"file_name": "rows.json", "num_samples": 5},
      "gone": {"file_name": "gone.json"}})");
  }
  static Read dpo(const std::string& data, const std::string& more = "") { return of("stage: dpo", data, more); }
  static Read of(const std::string& stage, const std::string& data, const std::string& more = "") {
    auto words = sft;
    words.replace(words.find("stage: sft"), 10, stage);
    words.replace(words.find("dataset: talks"), 14, "dataset: " + data);
    words.replace(words.find("template: qwen"), 14, "template: qwen3");
    return Read(words, more);
  }
};

TEST_F(LlamaFactoryData, IsReadAsItsListOfDataSetsSays) {
  const auto one = dpo("pairs,more");
  EXPECT_EQ(one.report.problems(), Lines{});
  EXPECT_EQ(one.at("dataset_config.data_path"), "[data/pairs.json, data/more.jsonl]");
  EXPECT_EQ(one.at("dataset_config.handler_name"), "AlpacaStylePairwiseHandler");
  EXPECT_EQ(one.at("dataset_config.prompt_type"), "qwen3");
  EXPECT_EQ(one.at("dataset_config.enable_thinking"), "true") << "its default";
  EXPECT_EQ(one.at("dataset_config.map_keys"), R"({"prompt":"question","chosen":"good","rejected":"bad","query":null})")
      << "columns that are not named are not read";
  const auto talks = dpo("talks", "enable_thinking: false\n");
  EXPECT_EQ(talks.report.problems(), Lines{});
  EXPECT_EQ(talks.at("dataset_config.handler_name"), "SharegptStylePairwiseHandler");
  EXPECT_EQ(talks.at("dataset_config.enable_thinking"), "false");
  EXPECT_EQ(talks.at("dataset_config.map_keys"),
            R"({"messages":"messages","chosen":"chosen","rejected":"rejected","tags":{"role_tag":"role",)"
            R"("content_tag":"content","user_tag":"user","assistant_tag":"assistant"}})");
  EXPECT_EQ(dpo("pairs", "max_samples: 5\n").at("dataset_config.max_samples"), "5");
  EXPECT_TRUE(dpo("pairs,more", "max_samples: 5\n").refuses("max_samples"));
  const auto rows = of("stage: sft", "rows", "train_on_prompt: true\npacking: true\nneat_packing: true\n");
  EXPECT_EQ(rows.report.problems(), Lines{});
  EXPECT_EQ(rows.at("dataset_config.handler_name"), "AlpacaStyleInstructionHandler");
  EXPECT_EQ(rows.at("dataset_config.train_on_prompt"), "true");
  EXPECT_EQ(rows.at("dataset_config.neat_pack"), "true");
  EXPECT_EQ(rows.conversion.recipe.at("dataset_config.map_keys"), nullptr) << "the handler's keys are its defaults";
}

TEST_F(LlamaFactoryData, OfATemplateThatNoPromptTypeRendersAreTokenFiles) {
  auto words = sft;
  words.replace(words.find("dataset: talks"), 14, "dataset: rows");
  const Read one(words);  // its system message is another one than MindSpeed-LLM's
  EXPECT_EQ(one.report.problems(), Lines{});
  EXPECT_EQ(one.at("dataset_config.data_path"), "rows");
  EXPECT_EQ(one.conversion.recipe.at("dataset_config.handler_name"), nullptr);
}

TEST_F(LlamaFactoryData, ThatCannotBeReadIsRefusedByItsName) {
  EXPECT_TRUE(dpo("pair").refuses("data/dataset_info.json: has no data set 'pair'"));
  EXPECT_TRUE(dpo("rows").refuses("has no pairs"));
  EXPECT_TRUE(of("stage: sft", "pairs").refuses("has pairs"));
  EXPECT_TRUE(of("stage: sft", "judged").refuses("kto_tag"));
  EXPECT_TRUE(dpo("hub").refuses("'file_name'"));
  EXPECT_TRUE(of("stage: sft", "part").refuses("num_samples"));
  EXPECT_TRUE(of("stage: sft", "gone").refuses("data/gone.json"));
  EXPECT_TRUE(dpo("pairs,talks").refuses("other columns"));
  EXPECT_TRUE(of("stage: sft", "rows", "packing: true\n").refuses("neat_packing"));
  write("data/dataset_info.json", "{");
  EXPECT_TRUE(dpo("pairs").refuses("data/dataset_info.json"));
}

TEST(LlamaFactory, ARewardModelHasAScoreHead) {
  auto words = sft;
  words.replace(words.find("stage: sft"), 10, "stage: rm");
  const Read one(words);
  EXPECT_EQ(one.report.problems(), Lines{});
  EXPECT_EQ(one.at("training_config.stage"), "rm");
  EXPECT_EQ(one.at("model_config.score_head"), "true");
  EXPECT_EQ(one.at("dataset_config.is_pairwise_dataset"), "true");
}

TEST(LlamaFactory, KeysOfItsTrainerOverMegatronAreTheLayout) {
  const Read one(
      sft,
      "use_mca: true\ntensor_model_parallel_size: 4\nsequence_parallel: true\nexpert_model_parallel_size: 2\n"
      "recompute_granularity: full\nbias_activation_fusion: true\nmoe_token_dispatcher_type: alltoall\n");
  EXPECT_EQ(one.report.problems(), Lines{});
  EXPECT_EQ(one.at("parallel_config.tensor_model_parallel_size"), "4");
  EXPECT_EQ(one.at("parallel_config.sequence_parallel"), "true");
  EXPECT_EQ(one.at("parallel_config.expert_model_parallel_size"), "2");
  EXPECT_EQ(one.at("model_config.recompute_method"), "uniform");
  EXPECT_EQ(one.at("model_config.recompute_num_layers"), "1");
  const Read itself(sft,
                    "use_mca: true\nrecompute_granularity: full\nrecompute_method: block\nrecompute_num_layers: 2\n");
  EXPECT_EQ(itself.at("model_config.recompute_method"), "block");
  EXPECT_EQ(itself.at("model_config.recompute_num_layers"), "2");
}

TEST(LlamaFactory, WhatChangesTheRunIsRefused) {
  const Read one(sft,
                 "use_galore: true\npissa_init: true\nquantization_bit: 8\nlora_ranks: 3\nnum_train_epochs: 0.5\n"
                 "val_size: 100\nuse_dft_loss: false\n");
  EXPECT_TRUE(one.refuses("--use_galore"));
  EXPECT_TRUE(one.refuses("--pissa_init"));
  EXPECT_TRUE(one.refuses("8-bit"));
  EXPECT_TRUE(one.refuses("lora_rank"));
  EXPECT_TRUE(one.refuses("num_train_epochs is 0.5"));
  EXPECT_TRUE(one.refuses("val_size 100"));
  EXPECT_FALSE(one.refuses("dft"));
  const Read changes(sft,
                     "label_smoothing_factor: 0.1\nneftune_noise_alpha: 5\ntrain_sampling_strategy: group_by_length\n"
                     "fp8: true\nexport_dir: merged\nkt_config:\n  kt_expert_weight_format: int8\n");
  for (const auto* key : {"--label_smoothing_factor", "--neftune_noise_alpha", "--train_sampling_strategy", "--fp8",
                          "--export_dir", "--kt_config.kt_expert_weight_format"})
    EXPECT_TRUE(changes.refuses(key)) << key;
  const Read same(sft, "label_smoothing_factor: 0.0\nneftune_noise_alpha: 0\ntrain_sampling_strategy: random\n");
  EXPECT_EQ(same.report.problems(), Lines{});
  const Read ppo("model_name_or_path: m\nstage: ppo\n");
  EXPECT_TRUE(ppo.refuses("reinforcement learning"));
}

const std::string torchtune =
    "output_dir: out\nmodel:\n  _component_: torchtune.models.llama2.lora_llama2_7b\n"
    "  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n  apply_lora_to_mlp: True\n  apply_lora_to_output: "
    "False\n"
    "  lora_rank: 8\n  lora_alpha: 16\n  lora_dropout: 0.0\n"
    "tokenizer:\n  _component_: torchtune.models.llama2.llama2_tokenizer\n  path: t.model\n  max_seq_len: 128\n"
    "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: models/base\n"
    "  checkpoint_files: [a.safetensors, b.safetensors]\n  recipe_checkpoint: null\n  output_dir: ${output_dir}\n"
    "  model_type: LLAMA2\nresume_from_checkpoint: False\n"
    "dataset:\n  _component_: torchtune.datasets.alpaca_cleaned_dataset\n  packed: False\nseed: null\nshuffle: True\n"
    "batch_size: 2\nloss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\nepochs: 2\n"
    "max_steps_per_epoch: null\ngradient_accumulation_steps: 8\nclip_grad_norm: null\ncompile: False\n"
    "optimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n  weight_decay: 0.01\n  lr: 3e-4\n"
    "lr_scheduler:\n  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup\n"
    "  num_warmup_steps: 100\ndevice: cpu\ndtype: bf16\nenable_activation_checkpointing: True\n";

TEST(Torchtune, TheRecipeForLoraIsTheRunThatItDescribes) {
  const Read one(torchtune);
  EXPECT_EQ(one.report.problems(), Lines{});
  EXPECT_EQ(one.at("lora_config.use_lora"), "true");
  EXPECT_EQ(one.at("lora_config.target_modules"), "[q_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]");
  EXPECT_EQ(one.at("lora_config.lora_alpha"), "16");
  EXPECT_EQ(one.at("training_config.load_checkpoint"), "models/base");
  EXPECT_EQ(one.at("training_config.stage"), "sft");
  EXPECT_EQ(one.at("training_config.epochs"), "2");
  EXPECT_EQ(one.at("training_config.bf16"), "true");
  EXPECT_EQ(one.at("training_config.calculate_per_token_loss"), "true");
  EXPECT_EQ(one.at("model_config.seq_length"), "128");
  EXPECT_EQ(one.at("dataset_config.data_path"), "alpaca_cleaned_dataset");
  EXPECT_EQ(one.at("dataset_config.batch_size"), "2");
  EXPECT_EQ(one.at("dataset_config.micro_batch_num"), "8");
  EXPECT_EQ(one.at("optimizer_config.lr_decay_style"), "cosine");
  EXPECT_EQ(one.at("optimizer_config.lr_warmup_iters"), "100");
  EXPECT_EQ(one.at("optimizer_config.clip_grad"), "0") << "null: no clipping";
}

TEST(Torchtune, ItsRecipesForOtherTasksAreRefusedByName) {
  const auto refuses = [](const std::string& more, const std::string& words) {
    return Read(torchtune, more).refuses(words);
  };
  EXPECT_TRUE(refuses("tasks: [truthfulqa_mc2]\n", "an evaluation of examination questions"));
  EXPECT_TRUE(
      refuses("quantizer:\n  _component_: torchtune.training.quantization.Int4WeightOnlyQuantizer\n", "quantised"));
  EXPECT_TRUE(refuses("prompt:\n  system: null\n  user: Tell me a joke.\n", "`tessera generate`"));
  EXPECT_TRUE(
      refuses("kd_ratio: 0.5\nkd_loss:\n  _component_: torchtune.modules.loss.ForwardKLLoss\n", "another model"));
  EXPECT_TRUE(refuses("grpo_samples: 16\n", "reinforcement learning"));
  const Read wide(torchtune, "tensor_parallel_dim: 2\ndata_parallel_shard_dim: -1\n");
  EXPECT_EQ(wide.report.problems(), Lines{});
  EXPECT_EQ(wide.at("parallel_config.tensor_model_parallel_size"), "2");
}

TEST(Torchtune, OtherModelsAndLosses) {
  const auto with = [](const std::string& from, const std::string& to) {
    auto words = torchtune;
    words.replace(words.find(from), from.size(), to);
    return Read(words);
  };
  EXPECT_EQ(with("lora_llama2_7b", "qlora_llama2_7b").at("lora_config.qlora"), "true");
  EXPECT_EQ(with("lora_llama2_7b", "llama2_7b").at("lora_config.use_lora"), "false");
  EXPECT_EQ(with("max_steps_per_epoch: null", "max_steps_per_epoch: 10").at("training_config.training_iters"), "20");
  EXPECT_TRUE(with("llama2.lora_llama2_7b", "llama3_2_vision.lora_llama3_2_vision_11b").refuses("pictures"));
  EXPECT_TRUE(with("torch.optim.AdamW", "bitsandbytes.optim.PagedAdamW8bit").refuses("8-bit"));
  const auto dpo = with("torchtune.modules.loss.LinearCrossEntropyLoss", "torchtune.rlhf.loss.DPOLoss\n  beta: 0.1");
  EXPECT_EQ(dpo.at("training_config.stage"), "dpo");
  EXPECT_EQ(dpo.at("dataset_config.is_pairwise_dataset"), "true");
  EXPECT_EQ(dpo.at("preference_config.dpo_beta"), "0.1");
}

}  // namespace
}  // namespace tessera
