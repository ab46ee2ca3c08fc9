#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/data/bad_sample.h"
#include "framework/training/run_data.h"

namespace tessera::training {

/// File of the run folder with one JSON object for each sample that was found to be bad: `split`, `sample`, and for
/// people `iteration`, `rank`, `host`, `reason`. A later run can be given it as dataset_config.quarantine_file.
inline constexpr const char* quarantine_file_name = "quarantine.jsonl";

/// The quarantine of a run: what one rank found to be bad is replaced on all. Each sample is in the file before a step
/// uses its replacement.
class SampleQuarantine {
 public:
  /// None is owned; all outlive this. `folder`: the run folder.
  SampleQuarantine(RunData& data, const comm::Communicator& world, std::string folder)
      : data_(data), world_(world), folder_(std::move(folder)) {}

  /// Samples by split: those of a checkpoint.
  using Samples = std::map<std::string, std::vector<std::int64_t>>;
  /// Collective, before the first sample is read: takes over what earlier starts of the run found, by `samples` and, if
  /// the run `continues`, by the file; else removes the file.
  void restore(const Samples& samples, bool continues);
  /// Collective: adds what each rank found in the same dataset; every later read of them gives their replacements.
  /// Throws ConfigError on all ranks if that are more than dataset_config.bad_sample_limit.
  void add(const data::Dataset& data, const std::vector<data::BadSample>& found, std::int64_t iteration);
  Samples found() const;

 private:
  void append(const std::string& lines) const;

  RunData& data_;
  const comm::Communicator& world_;
  std::string folder_;
};

}  // namespace tessera::training
