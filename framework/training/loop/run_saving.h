#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/base/clock.h"
#include "framework/training/loop/state_guard.h"
#include "framework/training/saving/save_job.h"
#include "framework/training/saving/saving.h"

namespace tessera::training {

/// When a run saves checkpoints, and the save that goes on while it trains. Only state without damage is published.
class RunSaving final : public Participant {
 public:
  /// All references must outlive this object.
  RunSaving(Run& run, RunReports& reports, StateGuard& guard)
      : run_(run), o_(run.options), reports_(reports), guard_(guard) {}

  /// Saves the present state, unless that is done. `wait`: also if the run saves while it trains. Returns whether it is
  /// saved, or being saved. Collective.
  bool save_now(bool wait = true, SaveKind kind = SaveKind::persistent);
  /// Why the last attempt to save failed.
  const std::string& problem() const { return problem_; }
  /// To the launcher, which prints it if the run is ended from outside.
  void report_how_to_resume() const;

  void resumed() override;
  void begin_iteration() override;
  void computed() override;
  void end_step() override;
  void save() override;
  void state_checked(bool sound) override;
  void finish_pending() override;

 private:
  bool is_due(std::optional<std::int64_t> interval) const;
  /// `still`: since training stands still for that.
  void end_save(const Stopwatch& still);
  void saved(std::int64_t iteration, SaveKind kind);
  void could_not_save(std::int64_t iteration, const IoError& error);

  Run& run_;
  const TrainingOptions& o_;
  RunReports& reports_;
  StateGuard& guard_;
  std::string problem_;                 ///< why the last attempt to save failed
  std::unique_ptr<SaveJob> open_save_;  ///< a save that goes on while the run trains; null: none
  std::int64_t open_save_at_ = -1;      ///< its iteration
  SaveKind open_save_kind_ = SaveKind::persistent;
  std::int64_t open_save_updates_ = 0;  ///< updates before it began
  bool has_non_persistent_ = false;     ///< this start of the run has saved a non-persistent checkpoint
  bool told_of_slow_saves_ = false;
  Stopwatch save_began_;    ///< when the save that is told next began
  double took_ = 0;         ///< seconds until it was complete, without those that it takes to tell of it
  double stood_still_ = 0;  ///< seconds in which training stood still for it
};

}  // namespace tessera::training
