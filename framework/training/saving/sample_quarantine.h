#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "framework/comm/communicator.h"
#include "framework/data/bad_sample.h"
#include "framework/training/setup/run_data.h"

namespace tessera::training {

/// File in the run folder with one JSON object for each bad sample: `split`, `sample`, and, for users, `iteration`,
/// `rank`, `host`, `reason`. A later run can read it (dataset_config.quarantine_file).
inline constexpr const char* quarantine_file_name = "quarantine.jsonl";

/// The bad samples of a run: a sample that one rank finds to be bad is replaced on all ranks. Each sample is written to
/// the file before a step uses its replacement; if writing fails, a warning is logged and training continues.
class SampleQuarantine {
 public:
  /// All references must outlive this object. `folder`: the run folder.
  SampleQuarantine(RunData& data, const comm::Communicator& world, std::string folder)
      : data_(data), world_(world), folder_(std::move(folder)) {}

  /// Indices of bad samples by split, as saved in a checkpoint.
  using Samples = std::map<std::string, std::vector<std::int64_t>>;
  /// Takes over what earlier starts of the run found: `samples` and, if the run `continues`, the content of the file;
  /// otherwise deletes the file. Call it before the first sample is read. Collective. Throws on all ranks if the file
  /// cannot be read.
  void restore(const Samples& samples, bool continues);
  /// Adds the bad samples that each rank found in the same dataset; later reads return their replacements. Collective.
  /// Throws ConfigError on all ranks if there are now more than dataset_config.bad_sample_limit.
  void add(const data::Dataset& data, const std::vector<data::BadSample>& found, std::int64_t iteration);
  /// All bad samples found so far.
  Samples found() const;

 private:
  void append(const std::string& lines) const;

  RunData& data_;
  const comm::Communicator& world_;
  std::string folder_;
};

}  // namespace tessera::training
