#include "framework/training/loop/format_conversion.h"

#include <filesystem>
#include <utility>

#include "framework/comm/together.h"
#include "framework/log/log.h"
#include "framework/training/loop/run.h"
#include "framework/training/saving/resume.h"
#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/saving/saving.h"

namespace tessera::training {
namespace {

const log::Logger conversion_logger("checkpoint");

/// The options of a run that has saved nothing yet in the folder of the conversion.
void redirect(TrainingOptions& o) {
  const auto folder = std::filesystem::path(*o.ckpt_convert_save) / *o.ckpt_convert_format;
  o.output_dir = folder.string();
  o.ckpt_format = o.ckpt_convert_format;
  o.exit_on_missing_checkpoint = true;
  o.non_persistent_save_interval.reset();
  o.non_persistent_ckpt_type.reset();
  o.non_persistent_global_ckpt_dir.reset();
  o.non_persistent_local_ckpt_dir.reset();
}

void refuse_existing(const TrainingSetup& setup) {
  comm::together(setup.model.processes.world, "the folder of the conversion", [&] {
    if (setup.model.processes.world.rank() > 0) return;
    const auto there = checkpoints_of_folder(setup.options, setup.documents.formats);
    if (!there.empty())
      throw ConfigError(text("training_config.ckpt_convert_save: ", there.front().folder.string(),
                             " is there already; give another folder, or remove it"));
  });
}

}  // namespace

RunEnd convert_checkpoint(TrainingSetup setup) {
  redirect(setup.options);
  refuse_existing(setup);
  setup.resilience.policy = resilience::Policy::off;  // nobody continues from this memory
  const auto& o = setup.options;
  kernels::Threads threads(thread_count(setup));
  StateKeeper keeper(setup);
  auto state = keeper.make_state();
  const auto restored = restore(setup, state, threads);
  if (setup.model.processes.world.rank() == 0)
    for (const auto& line : restored.notes) conversion_logger.info(line);
  save(setup, state, threads, restored.progress);
  return {0, text("saved ", checkpoint_path(o, restored.progress.iteration).string(), " from ", *o.load_checkpoint,
                  "; nothing was trained (ckpt_convert_format)")};
}

}  // namespace tessera::training
