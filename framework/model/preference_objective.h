#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/model/objective.h"
#include "framework/model/preference_loss.h"

namespace tessera::model {

/// The stages of training whose samples are pairs of completions, of which one is preferred.
enum class PairStage { dpo, simpo, orpo, rm };
/// The stage of that name; nothing for another one.
std::optional<PairStage> pair_stage(const std::string& name);

/// The objective of a stage, for micro-batches in which each pair fills two rows, first the chosen completion: the mean
/// over pairs of the losses of model/preference_loss.h. The loss mask says which tokens are a completion's. Reports
/// `rewards/chosen`, `rewards/rejected`, `rewards/margins` and `rewards/accuracies`, the share of pairs in which the
/// chosen completion has the larger reward; unless the stage is rm, also `logps/chosen` and `logps/rejected`, sums over
/// tokens. For dpo, a pass of the reference model must precede each judge(): Objective::reference().
///
/// The stage rm needs a model with a score head: what it judges are not losses of tokens but their scores, of which it
/// takes that of each row's last token, the one after the last label.
std::unique_ptr<Objective> make_preference_objective(PairStage stage, const PreferenceOptions& o);

/// The score of row `row`, without reference.
CompletionScore completion_score(const Objective::Losses& losses, std::int64_t row);

}  // namespace tessera::model
