#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/trace.h"
#include "framework/parallel/process_groups.h"
#include "framework/training/profile_options.h"

namespace tessera::training {

/// Where the time of the profiled steps went, by the spans of the thread that drives them.
struct ProfileSummary {
  struct Part {
    std::string name;
    double seconds = 0;
    std::int64_t count = 0;
  };
  double seconds = 0;  ///< of all profiled steps
  std::int64_t steps = 0;
  std::vector<Part>
      phases;  ///< phases, waiting for data and for other ranks: disjoint, the longest first; what is left is "other"
  std::vector<Part> kernels;  ///< with their own time, the longest first
};

/// Of the events of one thread. `Trace::Event::name` of kernels is made readable.
ProfileSummary summarize(const Trace::Track& track);
/// Lines for people: "profile of iterations 10 to 12: 123.4 ms each: forward pass 31 %, ...".
std::vector<std::string> profile_lines(const ProfileSummary& summary, std::int64_t first);

/// The trace in Chrome's trace event format (JSON object), times in microseconds of the monotonic clock. `process`
/// names the rank; with `communication` its events have bytes, group and purpose.
std::string trace_json(const Trace& trace, int rank, const std::string& process, bool communication);

/// Profiles the steps that the options name, on the ranks that they name. Owns the trace; outlives all threads that
/// record in it.
class Profiler {
 public:
  /// Creates no file. `output_dir` is the run folder.
  Profiler(ProfileOptions options, const parallel::ProcessGroups& processes, const std::filesystem::path& output_dir);

  /// Call it before every step, with its iteration counted from 1. Throws IoError if the folder cannot be made.
  void before_step(std::int64_t iteration);
  /// Call it after it, and at the end of the run with `last`. Writes the trace when the last profiled step is done and
  /// returns what is to be told of it. A trace that cannot be written is told too; it does not end the run.
  std::vector<std::string> after_step(std::int64_t iteration, bool last);

 private:
  bool is_profiled_rank() const;
  std::vector<std::string> write();
  bool writes_layout() const;
  void write_layout() const;

  const ProfileOptions options_;
  const parallel::ProcessGroups& processes_;
  const std::filesystem::path folder_;
  std::unique_ptr<Trace> trace_;
  std::int64_t first_ = 0;  ///< profiled iteration
  bool recording_ = false;
};

}  // namespace tessera::training
