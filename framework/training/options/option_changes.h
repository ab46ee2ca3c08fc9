#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/options/group.h"
#include "framework/training/options/training_options.h"

namespace tessera::training {

/// An option whose value differs from the one that a checkpoint was saved with.
struct OptionChange {
  std::string option;  ///< "model_config.norm_epsilon"
  std::string value;   ///< in this recipe; if it is null, the value that its default has here
  std::string saved;   ///< in the checkpoint's recipe, likewise
  options::Change kind = options::Change::told;
  options::Origin at = {};  ///< where this recipe gives it; layer 0: it does not
  bool follows = false;     ///< null in both recipes: its default differs because of another option
};

/// What a run takes from a checkpoint.
struct TakenOver {
  bool progress = true;         ///< false: the weights alone, to start a new run with them
  bool optimizer_state = true;  ///< implies `progress`
  bool own_schedule = false;    ///< the recipe's schedule replaces the checkpoint's
};

/// Decides whether a run may load a checkpoint although `changes` were made since. Returns the lines for the log; of
/// changes that do not concern what is taken over, none. Throws ConfigError that names all changes that are refused and
/// not in allow_changes. `speaker`: the checkpoint, for messages.
std::vector<std::string> accept_changes(const std::string& speaker, const std::vector<OptionChange>& changes,
                                        const TakenOver& taken, const TrainingOptions& options);

/// The changes that can explain why tensors do not fit, one line each, "\n  model_config.hidden_size: 64 in the recipe,
/// 32 in the checkpoint"; empty if there are none.
std::string lines_about_tensors(const std::vector<OptionChange>& changes);

}  // namespace tessera::training
