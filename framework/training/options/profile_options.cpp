#include "framework/training/options/profile_options.h"

#include "framework/options/limits.h"

namespace tessera::training {
namespace {

constexpr auto profiles = [](const ProfileOptions& o) { return o.profile; };
constexpr const char* no_profile = "`profile` is false";
constexpr auto has_operations = [](const ProfileOptions& o) {
  return o.profile && o.profile_level != ProfileLevel::level0;
};
constexpr const char* no_operations = "`profile` is false or `profile_level` is level0";

}  // namespace

void describe(options::Schema<ProfileOptions>& s) {
  using O = ProfileOptions;
  s.when_changed(options::Change::silent);
  s.option("profile", &O::profile,
           "Record a trace of some steps in Chrome's trace event format, which Perfetto and chrome://tracing show, and "
           "log where their time went.");
  s.option("profile_save_path", &O::profile_save_path, "Folder of the traces: rank_<r>/trace.json for each rank.")
      .otherwise("`output_dir`/profile")
      .matters_when(profiles, no_profile);
  s.option("profile_step_start", &O::profile_step_start, "First profiled iteration, counted from 1.")
      .at_least(1)
      .at_most(options::most_steps)
      .matters_when(profiles, no_profile);
  s.option("profile_step_end", &O::profile_step_end, "Last profiled iteration.")
      .at_least(1)
      .at_most(options::most_steps)
      .must(
          "profiled steps", [](const O& o) { return !o.profile || o.profile_step_end >= o.profile_step_start; },
          [](const O& o) {
            return text("profile_step_end ", o.profile_step_end, " is before profile_step_start ",
                        o.profile_step_start);
          },
          "give an iteration from profile_step_start on", {"profile_step_start"})
      .matters_when(profiles, no_profile);
  s.option("profile_ranks", &O::profile_ranks, "Ranks that record a trace; an empty list: all.")
      .at_least(0)
      .below(options::most_ranks)
      .matters_when(profiles, no_profile);
  s.option("profile_level", &O::profile_level,
           "Detail of the trace. level0: phases of a step, communication, waiting for data; level1: also modules, "
           "operations of the backward pass, kernels; level2: also the share of each thread in every kernel.")
      .matters_when(profiles, no_profile);
  s.option("profile_memory", &O::profile_memory,
           "Record the memory of activations and, on level1, at every operation of the backward pass.")
      .alias("profile_with_memory")
      .matters_when(profiles, no_profile);
  s.option("profile_framework", &O::profile_framework,
           "What level1 records of modules and operations. all: time and, with `profile_memory`, memory; time: time "
           "only; None: nothing.")
      .matters_when(has_operations, no_operations);
  s.option("profile_op_time", &O::profile_op_time, "Record the time of each kernel on level1.")
      .matters_when(has_operations, no_operations);
  s.option("profile_communication", &O::profile_communication,
           "Record bytes, group and purpose of each communication in the trace; false: its time only.")
      .matters_when(profiles, no_profile);
  s.option("profile_parallel_strategy", &O::profile_parallel_strategy,
           "Write the coordinates of all ranks to parallel_strategy.json beside the traces.")
      .matters_when(profiles, no_profile);
  s.option("profile_data_process", &O::profile_data_process,
           "Record what the workers of the data loader do; without `num_workers` there are none.")
      .matters_when(profiles, no_profile);
  s.option("profile_offline_analyse", &O::profile_offline_analyse,
           "Leave the analysis to other programs: only write the trace, and log no summary.")
      .matters_when(profiles, no_profile);
}

}  // namespace tessera::training
