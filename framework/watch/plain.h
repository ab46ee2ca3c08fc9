#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "framework/runs/run_reader.h"

namespace tessera::watch {

/// A run as lines of text, one for each logged step, event and change of state, for pipes and screen readers.
class PlainReport {
 public:
  /// `label` begins each line; empty: none.
  PlainReport(const std::filesystem::path& folder, std::string label);
  /// The lines about what happened since the last call, each with its line break and safe to print; of the first call
  /// those of the last `most` steps. Throws IoError.
  std::string news(double now, std::size_t most);
  /// Whether the run had ended at the last call of news(), so that nothing more is expected; of a run that died only
  /// after half a minute, because tsrun may start it anew.
  bool over(double now) const;
  const runs::RunReader& run() const { return run_; }

 private:
  bool counts_as_kept(std::string_view line, std::size_t known);
  void take_row(std::string_view line, std::size_t known, std::deque<std::string>& rows);

  runs::RunReader run_;
  runs::AppendedLines rows_;
  runs::RunStatus status_;  ///< at the last call of news()
  std::string label_, state_;
  std::int64_t events_ = 0;
  std::vector<std::uint32_t> sums_;  ///< of the rows that were told
  std::size_t kept_ = 0;             ///< rows of the present metrics.jsonl that were told
};

}  // namespace tessera::watch
