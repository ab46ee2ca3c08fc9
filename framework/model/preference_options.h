#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/options/schema.h"

namespace tessera::model {

/// Losses of direct preference optimization; their formulas are in model/preference_loss.h.
enum class PreferenceLoss {
  sigmoid,
  hinge,
  ipo,
  robust,
  exo_pair,
  nca_pair,
  sppo_hard,
  apo_zero,
  apo_down,
  sigmoid_norm
};
inline options::Words<PreferenceLoss> words(PreferenceLoss) {
  return {{"sigmoid", PreferenceLoss::sigmoid},
          {"hinge", PreferenceLoss::hinge},
          {"ipo", PreferenceLoss::ipo},
          {"robust", PreferenceLoss::robust},
          {"exo_pair", PreferenceLoss::exo_pair},
          {"nca_pair", PreferenceLoss::nca_pair},
          {"sppo_hard", PreferenceLoss::sppo_hard},
          {"apo_zero", PreferenceLoss::apo_zero},
          {"apo_down", PreferenceLoss::apo_down},
          {"sigmoid_norm", PreferenceLoss::sigmoid_norm}};
}

/// Losses of the stage simpo.
enum class SimpleLoss { sigmoid, hinge, ipo };
inline options::Words<SimpleLoss> words(SimpleLoss) {
  return {{"sigmoid", SimpleLoss::sigmoid}, {"hinge", SimpleLoss::hinge}, {"ipo", SimpleLoss::ipo}};
}

/// Options of preference_config: the objectives of the stages dpo, simpo and orpo.
struct PreferenceOptions {
  PreferenceLoss dpo_loss_type = PreferenceLoss::sigmoid;
  double dpo_beta = 0.1;
  double dpo_label_smoothing = 0;
  double pref_ftx = 0;

  std::optional<std::string> ref_model;
  std::optional<std::int64_t> refer_model_iter;
  bool cache_reference = false;

  SimpleLoss simpo_loss_type = SimpleLoss::sigmoid;
  double simpo_beta = 2.5;
  double gamma_beta_ratio = 1.4;
  double simpo_label_smoothing = 0;

  double orpo_beta = 0.1;
};
void describe(options::Schema<PreferenceOptions>& s);

}  // namespace tessera::model
