#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "framework/log/log.h"

namespace tessera::tsrun {

/// The output of tsrun: lines of its workers on standard output, its own messages on standard error, in the order of
/// the calls. A separate thread writes them, so tsrun never waits for a reader that has stopped reading. The
/// descriptors stay blocking, because other processes may share them. Any thread may call the functions.
///
/// A process that forks and continues in the child must not have written anything before, because the child has no
/// thread.
class Screen {
 public:
  /// `most_waiting`: maximum number of bytes that wait to be written. `output`: descriptor for the lines of workers.
  explicit Screen(std::size_t most_waiting = 4 << 20, int output = 1);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  /// The object of this process; never destroyed.
  static Screen& of_process();

  /// Number of bytes that echo() can take before `most_waiting` bytes wait.
  std::size_t room() const;
  /// Writes lines of the log `file` of a worker; `bytes`: how many bytes of the file they are, without labels. Lines
  /// that exceed room() are taken, too.
  void echo(std::string lines, const std::string& file, std::uint64_t bytes);
  /// Discards the lines that have not been written yet. Returns for each file about how many bytes were discarded.
  std::map<std::string, std::uint64_t> take_back();
  /// Writes a message of tsrun through its logger. Discards it if more than twice `most_waiting` bytes would wait.
  void message(log::LogLevel level, std::string words);

  /// Time in seconds without a byte being taken after which tsrun, when it ends, no longer waits for a reader.
  static constexpr double reader_patience = 5;
  /// Waits until at most half of `most_waiting` bytes wait. Returns false if the reader has taken nothing for
  /// `patience` seconds.
  bool wait_for_room(double patience = reader_patience);
  /// The same, until everything is written.
  bool finish(double patience = reader_patience);

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  ///< shared with the thread, which may be inside a write when this object is destroyed
};

}  // namespace tessera::tsrun
