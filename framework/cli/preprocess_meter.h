#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "framework/log/log.h"
#include "framework/preprocessing/preprocess.h"

namespace tessera::cli {

/// Prints the progress of preprocessing: on a terminal, one line that is rewritten; with an interval, also a line after
/// every `interval` documents, as Megatron-LM's preprocess_data.py does.
class PreprocessMeter {
 public:
  struct Options {
    std::int64_t interval = 0;  ///< documents between two lines; 0: no such lines
    int console = 2;            ///< file descriptor
    bool terminal = log::StatusLine::suits(console);
    /// Time in seconds since an arbitrary moment; empty: the system's monotonic clock.
    std::function<double()> clock = {};
  };
  explicit PreprocessMeter(Options options);
  PreprocessMeter(const PreprocessMeter&) = delete;
  PreprocessMeter& operator=(const PreprocessMeter&) = delete;

  /// Reports the progress `now`.
  void operator()(const preprocessing::PreprocessProgress& now);
  /// Seconds since construction.
  double seconds() const { return o_.clock() - begin_; }
  /// Average rates since construction: "3200 documents/s, 12.5 MB/s, 2.6 million tokens/s". `resumed_documents`:
  /// documents that an earlier, interrupted run has done; they are not counted.
  std::string rates(const preprocessing::PreprocessProgress& now, std::int64_t resumed_documents) const;

 private:
  void draw(const preprocessing::PreprocessProgress& now);

  Options o_;
  double begin_, next_;
  std::int64_t told_ = -1;                   // documents in the last printed line; -1: nothing was reported yet
  preprocessing::PreprocessProgress first_;  // the first report
  std::optional<log::StatusLine> line_;      // on a terminal
};

}  // namespace tessera::cli
