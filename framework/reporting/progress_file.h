#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>

namespace tessera::reporting {

/// File in the run folder that training_config.log_progress writes.
inline constexpr const char* progress_file_name = "progress.txt";

/// The progress of a run in the form of Megatron-LM's --log-progress (append_to_progress_log in
/// megatron/training/utils.py): a line for each start and each saved checkpoint, with throughputs in TFLOP/s of a
/// process, of this start and since the first start with as many processes. Only appended to; read once, at the start.
/// Lines that have another form are ignored.
class ProgressFile {
 public:
  struct Options {
    std::filesystem::path path;
    std::string job;                    ///< id of the job of a scheduler; empty: there is none
    int processes = 1;                  ///< of the run
    std::int64_t resume_iteration = 0;  ///< steps completed by the checkpoint it resumes from; 0: from scratch
    std::function<std::time_t()> now = [] { return std::time(nullptr); };
  };
  /// Writes that a job starts. Throws IoError.
  explicit ProgressFile(Options options);

  /// A step was made with so many floating-point operations of the model, sum over the run.
  void add(double flops) { flops_ += flops; }
  /// A checkpoint was saved after `iteration`; `tokens`: all so far. Throws IoError.
  void saved(std::int64_t iteration, double tokens) const;

 private:
  void read();
  void append(const std::string& message) const;
  double tera_flops(double flops, std::time_t since) const;

  Options options_;
  std::time_t started_, first_started_;       ///< this start; the first in a row with as many processes
  double flops_ = 0;                          ///< so far
  double at_start_ = 0, at_first_start_ = 0;  ///< floating-point operations at these
};

}  // namespace tessera::reporting
