#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/reporting/metrics.h"
#include "framework/reporting/protocol_buffer.h"

namespace tessera::reporting {

/// How a run presents itself to Weights & Biases.
struct WandbRun {
  std::string id;       ///< letters, digits, - and _; the same in every start of the run
  std::string project;  ///< of W&B
  std::string name;     ///< shown for the run
  std::string host;
  std::vector<std::pair<std::string, std::string>> config;  ///< names, and values as JSON
};

/// The file of an offline run of Weights & Biases, `wandb/offline-run-DATE_TIME-ID/run-ID.wandb`, which
/// `wandb sync` uploads and `wandb leet` shows: a log in LevelDB's frames (32 KiB blocks, CRC-32) of the protocol
/// buffers of wandb/proto/wandb_internal.proto. Nothing is ever sent.
///
/// A run has one file and one history over all its starts. Records of rows are complete when add() returns, so a killed
/// process loses none; they are not synced. A failed write does not throw; complaint() describes the first failure.
class WandbFile {
 public:
  /// Continues the run's file below `folder`/wandb: rows that `kept` does not keep are cut off. Creates it if there is
  /// none. `now`: seconds since 1970. Throws IoError.
  WandbFile(const std::string& folder, const WandbRun& run, const MetricsFile::Kept& kept, double now);
  /// Says that the run has ended, by an error if an exception is being handled.
  ~WandbFile();
  WandbFile(const WandbFile&) = delete;
  WandbFile& operator=(const WandbFile&) = delete;

  /// Adds a row of the history and of the summary: `row` is a line of metrics.jsonl or a part of one (MetricsRow).
  /// Does not allocate in steady state.
  void add(std::int64_t iteration, std::int64_t consumed_samples, std::string_view row, double now);

  /// The first failure of a write; an empty string if there was none. Valid as long as this object.
  const char* complaint() const { return complaint_; }
  /// The folder that `wandb sync` takes.
  const std::string& folder() const { return folder_; }

 private:
  void open(const std::string& root, const WandbRun& run, double now);
  void go_on(const std::string& path, const MetricsFile::Kept& kept);
  void begin(const WandbRun& run, double now);
  void add_config(unsigned field, const WandbRun& run);
  void add_item(std::string_view key, std::string_view json);
  void record(unsigned field, std::string_view message);

  std::string folder_;
  int file_ = -1;
  int exceptions_;        ///< that were being handled when this object was made
  std::int64_t end_ = 0;  ///< bytes that were written successfully
  std::int64_t records_ = 0, rows_ = 0;
  double started_ = 0, last_ = 0;  ///< seconds since 1970
  MessageWriter item_{512}, items_{8192}, message_{8192}, record_{8192}, frames_{16384};
  char complaint_[256] = "";
};

}  // namespace tessera::reporting
