#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::reporting {

/// How the router of one layer distributed the choices of a step.
struct RoutingRecord {
  bool has_experts = false;  ///< false: a dense layer; nothing else is set
  std::int64_t least = 0;    ///< index of the least chosen expert; the lower one if equal
  std::int64_t most = 0;     ///< index of the most chosen expert; the lower one if equal
  double least_load = 0;     ///< choices of `least` before dropping, relative to an even distribution
  double most_load = 0;      ///< choices of `most` before dropping, relative to an even distribution
  double dropped = 0;        ///< fraction of the choices that exceeded a capacity
  double gap = 0;            ///< smallest difference between a chosen and a rejected score; not finite: there was none
  double load_balancing_loss = 0;  ///< mean over micro-batches, without its coefficient
  double z_loss = 0;               ///< mean over micro-batches, without its coefficient
};

/// A value that the objective reports (model::Objective::metrics).
struct MetricRecord {
  std::string name;  ///< its key in metrics.jsonl and its tag in TensorBoard
  double value = 0;  ///< its sum over the step divided by its count
};

/// What the memory of a rank is used for, in bytes. See docs/metrics.md.
struct MemoryRecord {
  std::int64_t weights = 0, gradients = 0, optimizer = 0, activations = 0, workspace = 0, messages = 0;
  std::int64_t all() const { return weights + gradients + optimizer + activations + workspace + messages; }
};

/// How fast ranks compute: medians over a window of steps, without the time in which a rank waits for others.
struct RankTimes {
  double fastest_seconds = 0, slowest_seconds = 0;  ///< of a step
  std::int64_t slowest = 0;                         ///< the rank
  std::span<const double> seconds = {};             ///< of a step, of each rank
};

/// The record of one training step for all reports: a plain value, filled by the training loop. JSON cannot express
/// values that are not finite; they are written as null.
struct StepRecord {
  std::int64_t iteration = 0;                     ///< steps completed, including this one: from 1
  std::int64_t consumed_samples = 0;              ///< samples consumed by the run, including this step
  std::int64_t skipped_samples = 0;               ///< of these, samples of skipped iterations (iterations_to_skip)
  std::int64_t global_batch_size = 0;             ///< samples of this step
  double loss = 0;                                ///< mean over the tokens of this step
  double grad_norm = 0;                           ///< before clipping
  double learning_rate = 0;                       ///< used in this step
  double next_learning_rate = 0;                  ///< of the next step; this is what Megatron-LM logs
  double weight_decay = 0;                        ///< used in this step
  std::optional<double> decoupled_learning_rate;  ///< of the next step; absent: decoupled_lr is not set
  double loss_scale = 1;
  bool skipped = false;              ///< no weight changed, because of an overflow
  std::uint32_t sample_chain = 0;    ///< checksum over the samples of all steps, see docs/metrics.md
  double step_seconds = 0;           ///< wall time from the request for the batch to the end of the update
  double tokens_per_second = 0;      ///< throughput of this step
  std::int64_t consumed_tokens = 0;  ///< of consumed_samples, at the full sequence length; 0: unknown
  double flops = 0;                  ///< floating-point operations of the model in this step; 0: unknown
  double data_wait_seconds = 0;      ///< part of step_seconds in which the step waited for data
  /// flops per second relative to the measured speed of matrix products of all ranks; absent: one of them is unknown.
  std::optional<double> flops_utilization;
  /// Part of step_seconds in which this rank waited for other ranks; absent: there are none.
  std::optional<double> exposed_communication_seconds;
  std::optional<RankTimes> rank_times;         ///< absent: not known since the last record
  MemoryRecord memory = {};                    ///< of this rank
  std::optional<double> num_zeros;             ///< gradients that are exactly zero; absent: not counted
  std::optional<double> params_norm;           ///< L2 norm of the weights; absent: not computed
  std::optional<double> tokens_per_sample;     ///< with padding, mean over micro-batches; absent: not logged
  std::optional<double> load_balancing_loss;   ///< mean over layers, without its coefficient; absent: no routers
  std::optional<double> z_loss;                ///< mean over layers, without its coefficient; absent: no routers
  std::span<const RoutingRecord> routing;      ///< one per layer; empty: the model has no experts
  std::span<const double> prediction_losses;   ///< one per layer of multi-token prediction, mean over micro-batches
  std::span<const MetricRecord> metrics = {};  ///< of the objective
  std::int64_t epoch = 0;                      ///< epochs completed before this step
  std::int64_t step_in_epoch = 0;              ///< from 1; 0: unknown, then `iteration` is used
};

/// The result of an evaluation.
struct EvaluationRecord {
  /// The validation split during training; the validation split or the test split after the end of training.
  enum class Set { validation, final_validation, test };

  std::int64_t iteration = 0;  ///< steps completed before the evaluation
  std::int64_t consumed_samples = 0;
  double loss = 0;  ///< mean over all tokens evaluated
  Set set = Set::validation;
  /// If there are several validation sets: "-" and the name of this one; appended to log line, JSON key and tags.
  std::string_view suffix = {};
  std::int64_t number = 0;                     ///< index of this validation set; the sets are evaluated in order
  std::span<const MetricRecord> metrics = {};  ///< of the objective
};

/// The file `metrics.jsonl`: one JSON object for each logged step, with numbers in full precision (the shortest text
/// that reads back as the same double). Format: docs/metrics.md.
///
/// Each line is passed to the operating system at once, so a killed process loses none. Writing does not allocate. A
/// failed write (a full disk) leaves the file unchanged and does not throw, because the run matters more than its log;
/// complaint() describes the first failure.
class MetricsFile {
 public:
  /// What to keep of an earlier file: the steps up to `iteration` (0: none); and, of that iteration, the evaluation on
  /// the validation split and those at the end of a run, unless they will be repeated.
  struct Kept {
    std::int64_t iteration = 0;
    bool validation = true, final_evaluations = true;
  };
  /// Opens or creates `path`. Removes what is not kept, and incomplete lines. `routed_layers`: length of
  /// StepRecord::routing; `ranks`: that of RankTimes::seconds. Throws IoError if the file cannot be written.
  MetricsFile(const std::string& path, const Kept& kept, std::size_t routed_layers = 0, std::size_t ranks = 0);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Appends the object of a step.
  void step(const StepRecord& record);
  /// Adds `validation_loss` (`test_loss` for the test split) and the objective's metrics, all with the same prefix and
  /// suffix, to the last object if it belongs to the same step; else appends a new object with iteration,
  /// consumed_samples and these.
  void evaluation(const EvaluationRecord& record);

  /// What the last call of step() or evaluation() wrote: a line, or the part that was added to one. For MetricsRow.
  std::string_view row() const { return row_; }

  /// The first failure of a write; an empty string if there was none. Valid as long as this object.
  const char* complaint() const { return complaint_; }

 private:
  bool replace(const std::string& path, const std::string& content);
  bool write(std::string_view bytes, std::int64_t at);

  int file_ = -1;
  std::vector<char> line_;                      // the object that is being built
  std::string_view row_;                        // views it
  std::int64_t end_ = 0;                        // size in bytes of the complete lines
  std::int64_t last_iteration_ = -1;            // iteration of the last line
  std::array<std::int64_t, 3> evaluated_ = {};  // number of evaluations of each Set in the last line
  char complaint_[256] = "";
};

}  // namespace tessera::reporting
