#include "framework/training/loop/run_evaluation.h"

namespace tessera::training {

using Set = reporting::EvaluationRecord::Set;

bool RunEvaluation::is_due() const {
  return !done_ && run_.options.eval_interval > 0 && run_.progress.iteration % run_.options.eval_interval == 0;
}

void RunEvaluation::completed(const reporting::StepRecord& record) {
  evaluator_.expect(record.step_seconds * static_cast<double>(run_.samples_per_step()) /
                    static_cast<double>(record.global_batch_size));
  done_ = false;
}

void RunEvaluation::begin() {
  run_.wait_for_evaluation();
  run_.faults.reach(run_.progress.iteration, resilience::Phase::evaluate);
}

void RunEvaluation::end_step() {
  if (!is_due()) return;
  begin();
  evaluator_.validate(Set::validation, run_.progress, reports_.log());
  if (!run_.options.full_validation)
    run_.progress.consumed_valid_samples += run_.options.evaluation_steps() * run_.samples_per_step();
  done_ = true;
  run_.commit();
}

void RunEvaluation::stop(bool completed) {
  if (!completed || run_.options.eval_interval < 1) return;
  begin();
  evaluator_.validate(Set::final_validation, run_.progress, reports_.log());
  run_.wait_for_evaluation();
  evaluator_.test(run_.progress, reports_.log());
}

}  // namespace tessera::training
