#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/golden/model_of_case.h"
#include "tests/golden/programs.h"
#include "tests/golden/run_flags.h"
#include "tests/golden/run_ranks.h"

namespace tessera::golden {

/// Learning rate and weight decay of each kind of parameters.
using Rates = std::set<std::pair<double, double>>;

/// A recorded run of pretrain_gpt.py, repeated. A run of one process is made here, with what `tessera train` is made
/// of; one of several processes by tsrun and `tessera train` themselves, with one thread each. What can be looked at
/// inside a run (batches, activations, gradients) is computed here by one process that has all of the model.
class RecordedRun {
 public:
  /// `folder` is the run's, with arguments.json; outputs go to `scratch`. What --load names is trained first, from the
  /// folder beside this one whose --save says that path. Initial weights are those of the folder, or of one beside it
  /// that began with the same; those of several ranks are put together.
  /// Throws NotSupported, naming what is not built.
  RecordedRun(const std::filesystem::path& folder, const std::filesystem::path& scratch, const Programs& programs);

  const RunFlags& flags() const { return flags_; }
  const RunRanks& ranks() const { return ranks_; }
  const recipe::Recipe& recipe() const { return *recipe_; }
  /// Whether this run begins where the recorded one began; else only what does not depend on weights can be compared.
  bool knows_weights() const { return knows_weights_; }
  const std::string& weights_from() const { return weights_from_; }  ///< for the summary

  /// Numbers of the first iteration, nothing trained yet. Names of the records without their last number (the micro
  /// batch), but for per_token_loss.<micro batch>.
  struct FirstIteration {
    Values activations;  ///< of the first micro batch of the first replica, [s, b, ...]; per-token losses [b, s]
    Values gradients;    ///< of the objective: without the loss scale
  };
  FirstIteration first_iteration();
  /// What a data parallel rank reads for it: "tokens.<micro batch>", labels, loss_mask, position_ids: [b, s].
  Values first_batches(std::int64_t replica);
  /// The weights a run from the seed begins with.
  Values initial_weights();

  /// Rates in every step up to the last of `trace`, which says the steps that were skipped.
  std::map<std::int64_t, Rates> rates(const nlohmann::json& trace) const;

  /// Train to the end. Lines of metrics.jsonl by iteration. Throws ConfigError with the last that a program said when
  /// it ends otherwise.
  std::map<std::int64_t, nlohmann::json> train();
  /// Weights in the checkpoint of that iteration, after train(); empty where none was kept.
  Values saved_weights(std::int64_t iteration) const;

 private:
  void begin_after(const std::string& saved);
  void begin_with_weights();
  void train_here();
  void train_on_ranks();
  training::TrainingSetup setup() const;
  schedule::BatchPlan batch_plan() const;
  /// The micro batches of a replica in the step after `consumed` samples.
  std::vector<Batch> batches(const training::TrainingSetup& made, std::int64_t consumed, std::int64_t replica) const;
  std::filesystem::path run_that_saves(const std::string& path) const;
  std::optional<RecordedTensors> initial_of(const std::filesystem::path& beside) const;

  std::filesystem::path folder_, scratch_;
  Programs programs_;
  RunFlags flags_;
  RunRanks ranks_;
  RunPlaces places_;
  std::unique_ptr<recipe::Recipe> recipe_;
  bool knows_weights_ = false;
  std::string weights_from_;
};

/// Every element of a floating tensor as double.
std::vector<double> doubles_of(const Tensor& tensor);

}  // namespace tessera::golden
