#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/trace.h"
#include "framework/parallel/process_groups.h"
#include "framework/training/options/profile_options.h"

namespace tessera::training {

/// How the time of the profiled steps was spent, according to the spans of the main thread.
struct ProfileSummary {
  struct Part {
    std::string name;
    double seconds = 0;
    std::int64_t count = 0;
  };
  double seconds = 0;  ///< total time of all profiled steps
  std::int64_t steps = 0;
  /// The least and the greatest iteration of these steps: skipped ones are missing, repeated ones count twice.
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
  /// Phases, waiting for data and waiting for other ranks: disjoint, longest first; the rest is "other".
  std::vector<Part> phases;
  std::vector<Part> kernels;  ///< kernels within steps by their own time, longest first
};

/// Summarizes the events of one thread. Names of kernels are made readable.
ProfileSummary summarize(const Trace::Track& track);
/// Text lines for the user: "profile of iterations 10 to 12, 123.4 ms each: forward pass 31 %, ..."; "of 2 steps in
/// iterations" if steps were skipped or repeated. None if there is no step.
std::vector<std::string> profile_lines(const ProfileSummary& summary);
/// Number of events that did not fit into the tracks of `trace`.
std::int64_t dropped_events(const Trace& trace);

/// The trace in Chrome's trace event format (JSON object format), with times in microseconds of the monotonic clock.
/// `process`: name shown for the rank. `communication`: add bytes, group and purpose to communication events.
std::string trace_json(const Trace& trace, int rank, const std::string& process, bool communication);

/// Profiles the steps and ranks that the options select. Owns the trace, and must outlive all threads that record in
/// it.
class Profiler {
 public:
  /// Creates no file. `output_dir`: the run folder. `processes` must outlive this object.
  Profiler(ProfileOptions options, const parallel::ProcessGroups& processes, const std::filesystem::path& output_dir);

  /// Call it before every step with its iteration, counted from 1. Throws IoError if the folder cannot be created.
  void before_step(std::int64_t iteration);
  /// Call it after every step, and at the end of the run with `last` true. When the last profiled step is done, writes
  /// the trace and returns lines for the log, on each profiled rank. If the trace cannot be written, the lines say so;
  /// the run continues.
  std::vector<std::string> after_step(std::int64_t iteration, bool last);

  /// "profile_ranks has 4, but the ranks of this run are 0 to 1"; empty if all are ranks of the run.
  std::string missing_ranks() const;

 private:
  bool is_profiled_rank() const;
  std::vector<std::string> write();
  bool writes_layout() const;
  void write_layout() const;

  const ProfileOptions options_;
  const parallel::ProcessGroups& processes_;
  const std::filesystem::path folder_;
  std::unique_ptr<Trace> trace_;
  bool recording_ = false;
};

}  // namespace tessera::training
