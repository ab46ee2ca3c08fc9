#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/base/json.h"
#include "framework/reporting/progress_file.h"
#include "framework/reporting/run_log.h"
#include "framework/training/guards/rank_memory.h"
#include "framework/training/guards/straggler_watch.h"
#include "framework/training/loop/run.h"
#include "framework/training/reports/auxiliary_report.h"
#include "framework/training/reports/step_report.h"

namespace tessera::training {

/// What a run tells: lines, events and metrics on rank 0, run.json, and what is measured for them on all ranks: speed,
/// memory, slow ranks, the profile.
class RunReports final : public Participant {
 public:
  /// `run` must outlive this object.
  explicit RunReports(Run& run);

  /// RunRecord::facts. Collective.
  Json facts();
  /// Opens the reports, which continue from Run::progress. Collective.
  void open();
  /// Of rank 0; else null.
  reporting::RunLog* log() { return log_.get(); }

  /// A line on the console and in the log; note: also an event of the run; tell: an event of that kind.
  void tell(const std::string& line, std::string_view event, const Json& facts);
  void note(const std::string& line) { tell(line, "note", {{"message", line}, {"level", "info"}}); }
  void note(const std::vector<std::string>& lines) {
    for (const auto& line : lines) note(line);
  }
  /// What is to be told of this rank: as note; on ranks other than 0, messages of the rank.
  void note_of_rank(const std::vector<std::string>& lines);
  /// An event of the run without a line.
  void event(std::string_view kind, std::int64_t iteration, const Json& facts);
  void tell_start();
  /// The last event of this start: "finished", "stopped" or "failed".
  void tell_end(std::string_view event, const std::string& words);
  /// A checkpoint was saved: for the file of log_progress.
  void saved(std::int64_t iteration);

  /// Completes the record of a step with what is measured. `waited`: seconds of the step in which this rank waited for
  /// others; absent: unknown. Collective.
  void measure(reporting::StepRecord& record, const StepIntent& intent, std::optional<double> waited);
  /// Adds the times of a step in the pipeline.
  void add_times(const StepOutcome& outcome) { bubble_.add(outcome); }
  /// Adds the duration of a step to the search for slow ranks. Collective.
  void watch_stragglers(double seconds, double waited);

  void begin_step() override { run_.profiler.before_step(run_.progress.iteration + 1); }
  void completed(const reporting::StepRecord& record) override;
  void end_step() override { note_of_rank(run_.profiler.after_step(run_.progress.iteration, false)); }
  void stop(bool completed) override;
  void went_back() override;

 private:
  bool is_logged(const reporting::StepRecord& r) const { return r.iteration % run_.options.log_interval == 0; }
  reporting::RunLogOptions log_options();
  void open_progress_file();
  void measure_products();
  void add_speed(reporting::StepRecord& record, std::optional<double> waited);
  reporting::MemoryRecord memory() const;
  RankMemory rank_memory() const;
  void report_memory();
  void write_measured_memory();
  std::string memory_line() const;

  Run& run_;
  const TrainingOptions& o_;
  AuxiliaryReport auxiliary_;
  StragglerWatch stragglers_;
  MeasuredMemory measured_memory_;
  PipelineBubble bubble_;
  bool told_of_run_record_ = false;
  std::unique_ptr<reporting::RunLog> log_;                  ///< only on rank 0; else null
  std::unique_ptr<reporting::ProgressFile> progress_file_;  ///< only on rank 0 with log_progress; else null
};

}  // namespace tessera::training
