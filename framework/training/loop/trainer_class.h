#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/base/clock.h"
#include "framework/base/json.h"
#include "framework/kernels/threads.h"
#include "framework/reporting/progress_file.h"
#include "framework/reporting/run_log.h"
#include "framework/resilience/faults.h"
#include "framework/training/guards/rank_memory.h"
#include "framework/training/guards/run_stop.h"
#include "framework/training/guards/state_checks.h"
#include "framework/training/guards/state_keeper.h"
#include "framework/training/guards/step_repeat.h"
#include "framework/training/guards/step_time_out.h"
#include "framework/training/guards/straggler_watch.h"
#include "framework/training/loop/trainer.h"
#include "framework/training/reports/auxiliary_report.h"
#include "framework/training/reports/evaluator.h"
#include "framework/training/reports/profiler.h"
#include "framework/training/reports/step_report.h"
#include "framework/training/saving/resume.h"
#include "framework/training/saving/sample_quarantine.h"
#include "framework/training/saving/save_job.h"
#include "framework/training/saving/saving.h"
#include "framework/training/step/step.h"
#include "framework/worker/launch_link.h"

namespace tessera::training {

/// A run between its start and its end; the implementation of train(). trainer.cpp has the loop, trainer_reports.cpp
/// what the run tells, trainer_numbers.cpp the reactions to wrong numbers and wrong state.
class Trainer {
 public:
  Trainer(TrainingSetup setup, const StopSignal& stop);
  RunEnd run();

 private:
  Restored restored_state();
  void prepare_reference();
  void recover();
  RunPosition position() const;
  void commit();
  reporting::RunLogOptions log_options(const checkpoint::Progress& from);
  void open_log();
  void open_progress_file();
  void report_saved(std::int64_t iteration);
  void note(const std::string& line) { tell(line, "note", {{"message", line}, {"level", "info"}}); }
  void tell(const std::string& line, std::string_view event, const Json& facts);
  void tell_start();
  void tell_end(std::string_view event, const std::string& words);
  Json run_facts();
  void measure_products();
  RunEnd run_to_end();
  void report_position();
  void report_how_to_resume() const;
  void wait_at_most(double seconds, const std::string& phase) const;
  void wait_longest() const;
  void wait_for_evaluation() const;
  double longest_wait() const { return 60.0 * static_cast<double>(o_.distributed_timeout_minutes); }
  std::string last_checkpoint() const { return last_.empty() ? "none" : last_.string(); }
  bool step();
  void report_profile(bool last);
  reporting::MemoryRecord memory() const;
  RankMemory rank_memory() const;
  void report_memory();
  void write_measured_memory();
  std::string memory_line() const;
  bool accepts(const JudgedStep& judged);
  void roll_back(std::int64_t back_to, const std::string& reason);
  void read_rejected();
  void roll_back_behind_bad_steps(const JudgedStep& judged);
  bool state_was_sound();
  bool evaluation_is_due() const;
  bool save_is_due() const;
  bool non_persistent_save_is_due() const;
  void train_on(std::string& why);
  void complete_step(const StepIntent& intent, double seconds, std::optional<double> waited = {});
  void add_speed(reporting::StepRecord& record, std::optional<double> waited);
  void watch_stragglers(double seconds, double waited);
  void after_step();
  RunEnd save_and_end();
  void evaluate_if_due();
  void evaluate_at_end();
  bool save_now(bool wait = true, SaveKind kind = SaveKind::persistent);
  void poll_save();
  void finish_save();
  void give_up_save();
  void end_save(const Stopwatch& still);
  void approve_save();
  void verify_save();
  void saved(std::int64_t iteration, SaveKind kind);
  void could_not_save(std::int64_t iteration, const IoError& error);
  [[noreturn]] void stop_at(const JudgedStep& judged, const std::string& why = {});
  bool skip_iteration();
  void save_before_growth();
  void save_after_loss();
  std::int64_t samples_per_step() const { return setup_.data.batch_plan.full().samples; }  ///< after batch size ramp-up

  TrainingSetup setup_;
  const TrainingOptions& o_;
  const comm::Communicator& world_;
  RunFolder folder_;
  Profiler profiler_;  ///< before all members that have threads
  kernels::Threads threads_;
  StateKeeper keeper_;
  ModelState state_;
  StateChecks checks_;
  Restored restored_;
  checkpoint::Progress progress_;
  SampleQuarantine quarantine_;
  TrainingStep work_;
  Evaluator evaluator_;
  AuxiliaryReport auxiliary_;
  std::unique_ptr<reporting::RunLog> log_;                  ///< only on rank 0; else null
  std::unique_ptr<reporting::ProgressFile> progress_file_;  ///< only on rank 0 with log_progress; else null
  worker::LaunchLink launcher_;
  resilience::Faults faults_;
  StepTimeOut step_time_out_;
  StragglerWatch stragglers_;
  MeasuredMemory measured_memory_;
  RunStop stop_;
  PipelineBubble bubble_;
  bool stepped_ = false;                ///< a step was made since the run began or was loaded
  bool evaluation_done_ = true;         ///< the evaluation that may be due after the last step is done
  double product_rate_ = 0;             ///< FLOP/s of a matrix product, sum over all ranks; 0: not measured
  reporting::Interval interval_;        ///< since the last progress line, as in the log of rank 0
  std::int64_t saved_at_ = -1;          ///< iteration of the run's newest checkpoint; -1: none
  std::string save_problem_;            ///< why the last attempt to save failed
  std::filesystem::path last_;          ///< checkpoint that was saved last, or from which the run resumed
  std::unique_ptr<SaveJob> open_save_;  ///< a save that goes on while the run trains; null: none
  std::int64_t open_save_at_ = -1;      ///< its iteration
  SaveKind open_save_kind_ = SaveKind::persistent;
  std::int64_t open_save_updates_ = 0;  ///< updates before it began
  bool open_save_approved_ = false;     ///< its state is known to be sound
  bool has_non_persistent_ = false;     ///< this start of the run has saved a non-persistent checkpoint
  bool told_of_slow_saves_ = false, told_of_run_record_ = false;
  Stopwatch save_began_;            ///< when the save that is told next began
  double stood_still_ = 0;          ///< seconds in which training stood still for it
  std::int64_t micro_batches_ = 0;  ///< micro-batches of the last step; 0: there was no step
};

}  // namespace tessera::training
