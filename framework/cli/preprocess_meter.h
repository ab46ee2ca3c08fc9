#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "framework/data/preprocessing/preprocess.h"
#include "framework/log/log.h"

namespace tessera::cli {

/// Prints the progress of preprocessing: on a terminal one line that is rewritten, and with an interval, as
/// Megatron-LM's tool, a line after every so many documents.
class PreprocessMeter {
 public:
  struct Options {
    std::int64_t interval = 0;  ///< documents; 0: no such lines
    int console = 2;            ///< file descriptor
    bool terminal = log::StatusLine::suits(console);
    std::function<double()> clock = {};  ///< seconds since any moment; empty: the real one
  };
  explicit PreprocessMeter(Options options);
  PreprocessMeter(const PreprocessMeter&) = delete;
  PreprocessMeter& operator=(const PreprocessMeter&) = delete;

  void operator()(const data::PreprocessProgress& now);
  double seconds() const { return o_.clock() - begin_; }
  /// "3200 documents/s, 12.5 MB/s, 2.6 million tokens/s" since the beginning, without what an earlier run did.
  std::string rates(const data::PreprocessProgress& now, std::int64_t resumed_documents) const;

 private:
  void draw(const data::PreprocessProgress& now);

  Options o_;
  double begin_, next_;
  std::int64_t told_ = -1;               // documents of the last line; -1: nothing came yet
  data::PreprocessProgress first_;       // as the first report has it
  std::optional<log::StatusLine> line_;  // on a terminal
};

}  // namespace tessera::cli
