#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>

#include "framework/base/json.h"
#include "framework/runs/appended_lines.h"

namespace tessera::runs {

/// A line of events.jsonl: something that happened to a run (docs/metrics.md).
struct RunEvent {
  double time = 0;                        ///< seconds since 1970; 0: not told
  std::string kind;                       ///< "start", "saved", ...; also kinds that this program does not know
  std::optional<std::int64_t> iteration;  ///< steps completed; nothing: not told
  Json facts;                             ///< the whole object
  /// A member of `facts` as text for people: texts as they are, other values as JSON; empty if there is none.
  std::string words(std::string_view name) const;
};

/// What an event says, for people, in one line without its kind, time and iteration: of a known kind its most important
/// members, of another all members. Not safe to print: it may hold any characters.
std::string told(const RunEvent& event);

/// The events of a run, read as they are appended. Keeps the first and the newest of them, at most 4000 and 16 MiB.
class RunEvents {
 public:
  explicit RunEvents(const std::filesystem::path& file);
  /// Reads what is new; false if nothing is. Throws IoError.
  bool refresh();
  const std::deque<RunEvent>& all() const { return events_; }
  std::int64_t left_out() const { return left_out_; }  ///< events that were not kept, between the first and the others
  std::int64_t damaged() const { return damaged_ + lines_.too_long(); }
  const AppendedLines& lines() const { return lines_; }
  /// The newest event of that kind; null if there is none.
  const RunEvent* newest(std::string_view kind) const;

 private:
  void add(std::string_view line);
  AppendedLines lines_;
  std::deque<RunEvent> events_;
  std::deque<std::size_t> bytes_;  ///< of the line of each
  std::size_t all_bytes_ = 0;
  std::int64_t left_out_ = 0, damaged_ = 0;
};

}  // namespace tessera::runs
