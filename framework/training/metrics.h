#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

/// What one training step did. A plain value, filled by the loop and handed to everything that reports.
/// Floating values that are not finite are written as null where the format (JSON) has no word for them.
struct StepRecord {
  std::int64_t iteration = 0;                     ///< steps done, this one included: from 1
  std::int64_t consumed_samples = 0;              ///< this step's included
  std::int64_t skipped_samples = 0;               ///< of these, samples of steps that were passed over
  std::int64_t global_batch_size = 0;             ///< samples of this step
  double loss = 0;                                ///< mean over the tokens of this step
  double grad_norm = 0;                           ///< before clipping
  double learning_rate = 0;                       ///< used in this step
  double next_learning_rate = 0;                  ///< of the step that follows: what Megatron-LM logs
  double weight_decay = 0;                        ///< used in this step
  std::optional<double> decoupled_learning_rate;  ///< of the step that follows, where embeddings have their own
  double loss_scale = 1;
  bool skipped = false;               ///< an overflow: no weight changed
  double step_seconds = 0;            ///< wall time from asking for the batch to the end of the update
  double tokens_per_second = 0;       ///< of this step
  double data_wait_seconds = 0;       ///< the part of step_seconds that went into waiting for data
  std::int64_t memory_bytes = 0;      ///< see docs/metrics.md
  std::optional<double> num_zeros;    ///< gradients that are exactly zero, where counted
  std::optional<double> params_norm;  ///< L2 norm of the weights, where computed
  std::int64_t epoch = 0;             ///< passes over the data completed before this step
  std::int64_t step_in_epoch = 0;     ///< from 1; 0: not known, `iteration` stands in
};

/// What an evaluation found.
struct EvaluationRecord {
  /// During training, or after its end on one of the two splits.
  enum class Set { validation, final_validation, test };

  std::int64_t iteration = 0;  ///< steps done before it
  std::int64_t consumed_samples = 0;
  double loss = 0;  ///< mean over all tokens evaluated
  Set set = Set::validation;
  /// With several validation sets: "-" and the name of this one, part of the log line, of the key and of the tags.
  std::string_view suffix = {};
  std::int64_t number = 0;  ///< of this one among the validation sets, evaluated in order from 0
};

/// `metrics.jsonl`: one JSON object per logged step, numbers in full precision (the shortest text that
/// reads back to the same double), format in docs/metrics.md.
///
/// A line is handed to the operating system whole and at once, so a killed process loses none. Writing
/// allocates nothing. A failed write (a full disk) leaves the file as it was before and never throws:
/// the run is worth more than its log; `complaint` tells of the first.
class MetricsFile {
 public:
  /// Open `path`, make it when missing. Lines of steps after `resume_iteration` and lines that are not
  /// whole are removed; 0 begins anew. Throws IoError when the file cannot be written.
  MetricsFile(const std::string& path, std::int64_t resume_iteration);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void step(const StepRecord& record);
  /// Adds `validation_loss` with the suffix (`test_loss` for the test set) to the object of the same step when that is the last
  /// line, else writes an object of its own with iteration, consumed_samples and that.
  void evaluation(const EvaluationRecord& record);

  /// What went wrong first while writing; empty while all went well.
  const char* complaint() const { return complaint_; }

 private:
  bool replace(const std::string& path, const std::string& content);
  bool write(std::string_view bytes, std::int64_t at);

  int file_ = -1;
  std::int64_t end_ = 0;                        // bytes that are good
  std::int64_t last_iteration_ = -1;            // of the last line
  std::array<std::int64_t, 3> evaluated_ = {};  // how many evaluations of each Set the last line holds already
  char complaint_[256] = "";
};

}  // namespace tessera
