#include "framework/model/preference_options.h"

#include "framework/base/error.h"
#include "framework/options/limits.h"

namespace tessera::model {
namespace {

using O = PreferenceOptions;

constexpr auto smooths_pairs = [](const O& o) {
  return o.dpo_loss_type == PreferenceLoss::sigmoid || o.dpo_loss_type == PreferenceLoss::robust ||
         o.dpo_loss_type == PreferenceLoss::exo_pair;
};
constexpr double most_beta = 1e4;

void describe_dpo(options::Schema<O>& s) {
  s.needs("stage dpo");
  s.option("dpo_loss_type", &O::dpo_loss_type,
           "Loss of a pair. Log-probabilities of a completion are sums over its tokens, but ipo and sigmoid_norm take "
           "means.");
  s.option("dpo_beta", &O::dpo_beta,
           "Factor of the log-probability ratios of policy and reference: how strongly the policy is kept near the "
           "reference.")
      .above(0)
      .at_most(most_beta);
  s.option("dpo_label_smoothing", &O::dpo_label_smoothing,
           "Probability that the labels of a pair are the wrong way round.")
      .at_least(0)
      .below(1)
      .matters_when(smooths_pairs, "`dpo_loss_type` is not sigmoid, robust or exo_pair")
      .must(
          "preferences",
          [](const O& o) { return o.dpo_loss_type != PreferenceLoss::robust || o.dpo_label_smoothing < 0.5; },
          [](const O& o) {
            return text("dpo_loss_type robust divides by 1 - 2 x dpo_label_smoothing, which is ",
                        o.dpo_label_smoothing);
          },
          "give a value below 0.5", {"dpo_loss_type"})
      .must(
          "preferences",
          [](const O& o) { return o.dpo_loss_type != PreferenceLoss::exo_pair || o.dpo_label_smoothing > 0; },
          [](const O&) {
            return std::string("dpo_loss_type exo_pair takes the logarithm of dpo_label_smoothing, which is 0");
          },
          "give a value above 0, such as 1e-3", {"dpo_loss_type"});
  s.option("pref_ftx", &O::pref_ftx,
           "Factor of the cross-entropy of the chosen completion, averaged over its tokens, which is added to the loss "
           "of each pair.")
      .at_least(0)
      .at_most(most_beta);
}

void describe_reference(options::Schema<O>& s) {
  s.option("ref_model", &O::ref_model,
           "Folder of the reference model, in any checkpoint format that `load_checkpoint` takes; null: "
           "the weights with which the run began (`training_config.load_checkpoint` or `pretrained_checkpoint`).");
  s.option(
       "refer_model_iter", &O::refer_model_iter,
       "Iteration of the checkpoint of the reference model in `ref_model`, or without that in the run folder; null: "
       "the newest.")
      .at_least(0)
      .at_most(options::most_steps);
  s.option("cache_reference", &O::cache_reference,
           "Store the reference model's log-probabilities in the run folder, and run the reference model only for "
           "pairs that are not stored.")
      .when_changed(options::Change::silent)
      .no_flag("only Tessera has it");
}

void describe_simpo(options::Schema<O>& s) {
  s.needs("stage simpo");
  s.option("simpo_loss_type", &O::simpo_loss_type, "Loss of a pair, of mean log-probabilities per token.");
  s.option("simpo_beta", &O::simpo_beta, "Factor of the mean log-probabilities.").above(0).at_most(most_beta);
  s.option("gamma_beta_ratio", &O::gamma_beta_ratio,
           "Target margin of the mean log-probabilities of the two completions, before `simpo_beta`.")
      .at_least(0)
      .at_most(most_beta);
  s.option("simpo_label_smoothing", &O::simpo_label_smoothing,
           "Probability that the labels of a pair are the wrong way round.")
      .at_least(0)
      .below(1)
      .matters_when([](const O& o) { return o.simpo_loss_type == SimpleLoss::sigmoid; },
                    "`simpo_loss_type` is not sigmoid");
}

}  // namespace

void describe(options::Schema<O>& s) {
  s.when_changed(options::Change::told);
  describe_dpo(s);
  describe_reference(s);
  describe_simpo(s);
  s.needs("stage orpo");
  s.option("orpo_beta", &O::orpo_beta, "Factor of the log odds ratio.")
      .above(0)
      .at_most(most_beta)
      .no_flag("MindSpeed-LLM has no such stage");
}

}  // namespace tessera::model
