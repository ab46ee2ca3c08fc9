// Rules of training_config.stage.
#include "framework/recipe/rules.h"

namespace tessera::recipe {
namespace {

const std::string stage_option = "training_config.stage", data_option = "dataset_config.dataset_type", rule = "stage";

/// MindSpeed-LLM's SFTTrainer: the loss of the same labels, averaged over those of a micro-batch that count.
void check_sft(const Recipe& r, options::Report& report) {
  if (r.training.stage == "sft" && r.dataset.type != "instruction")
    tell(r, report, rule, {stage_option, data_option}, text("stage is sft, but dataset_type is ", r.dataset.type),
         "give dataset_type: instruction, or leave stage out; dataset_type: sft, Megatron-LM's, needs no stage");
}

void check_pairs(const Recipe& r, options::Report& report) {
  const bool pairs = r.rows_per_sample() == 2;
  if (r.pair_stage() && !pairs)
    tell(r, report, rule, {stage_option, data_option},
         text("stage is ", *r.training.stage, ", which needs pairs of completions, but dataset_type ", r.dataset.type,
              " has single samples"),
         "give dataset_type: instruction with is_pairwise_dataset: true and data with a chosen and a rejected "
         "completion");
  if (!r.pair_stage() && pairs && r.objective.type == "cross_entropy")
    tell(r, report, rule, {data_option, stage_option},
         text("the samples of dataset_type ", r.dataset.type, " are pairs of completions, but stage is ",
              r.training.stage.value_or("null"), ", which would train on the rejected ones too"),
         "give stage dpo, simpo, orpo or rm, or data of single samples");
}

void check_objective(const Recipe& r, options::Report& report) {
  if (!r.pair_stage()) return;
  if (!r.objective.type.empty() && r.objective.type != "cross_entropy")
    tell(r, report, rule, {"training_config.objective", stage_option},
         text("objective is ", r.objective.type, ", but stage ", *r.training.stage, " has an objective of its own"),
         "leave one of them out");
  const auto* predictions = r.resolved.at("model_config.mtp_num_layers");
  if (predictions && predictions->scalar != "0" && !predictions->scalar.empty())
    tell(r, report, rule, {"model_config.mtp_num_layers", stage_option},
         text("stage is ", *r.training.stage, ", but the ", predictions->scalar,
              " layers of multi-token prediction would train on rejected completions"),
         "leave mtp_num_layers out");
}

bool scores(const Recipe& r) {
  const auto* head = r.resolved.at("model_config.score_head");
  return head && head->scalar == "true";
}

void check_reward_model(const Recipe& r, options::Report& report) {
  if (r.pair_stage() == model::PairStage::rm && !scores(r))
    tell(r, report, rule, {stage_option, "model_config.score_head"},
         "stage is rm, but the model has an output layer and no score head", "give model_config.score_head: true");
}

void check_reference(const Recipe& r, options::Report& report) {
  if (r.needs_reference() && !r.reference_folder())
    tell(r, report, rule, {"preference_config.ref_model", stage_option, "training_config.load_checkpoint"},
         text("stage is dpo, but there is no reference model: ref_model and pretrained_checkpoint are null, and "
              "load_checkpoint is ",
              r.training.load_checkpoint ? "the run folder itself, whose checkpoints are those of the trained model"
                                         : "null"),
         "give ref_model, the folder of a checkpoint, or load_checkpoint or pretrained_checkpoint, whose weights then "
         "are the reference");
}

}  // namespace

void check_stage(const Recipe& recipe, options::Report& report) {
  check_sft(recipe, report);
  check_pairs(recipe, report);
  check_objective(recipe, report);
  check_reward_model(recipe, report);
  check_reference(recipe, report);
}

void check_head(const Recipe& r, options::Report& report) {
  if (scores(r) && r.pair_stage() != model::PairStage::rm)
    tell(r, report, rule, {"model_config.score_head", stage_option},
         text("score_head is true, but stage is ", r.training.stage.value_or("null"), ", which needs an output layer"),
         "give stage: rm, or leave score_head out");
}

}  // namespace tessera::recipe
