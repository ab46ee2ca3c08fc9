#pragma once

#include <memory>
#include <string>

namespace tessera {

/// Opens those of the descriptors 0, 1 and 2 that are closed, so that no file of the program gets such a number and
/// receives what is meant for a terminal. Reading from 0 and writing to 1 fail; what is written to 2 is discarded.
void occupy_standard_descriptors();

/// The only writer of a program's standard output: as long as this object lives, std::cout writes through it. It keeps
/// the reason of the first failure, such as a full disk, which std::cout forgets, and shows control characters by their
/// number (base/visible_text.h). Flushed by std::flush, by finish(), and at each line on a terminal. Any thread may
/// write. At most one object may exist at a time.
class StandardOutput {
 public:
  explicit StandardOutput(int descriptor = 1);
  ~StandardOutput();  ///< ignores failures, which finish() reports
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  /// From now on, text that is not written to a terminal is unchanged: it is a text for programs, not names in a
  /// report.
  void pass_text();
  /// Writes the rest. Returns why not everything could be written; empty if everything was, or the reader of a pipe has
  /// gone and the process ignores SIGPIPE: nobody misses anything.
  std::string finish();

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace tessera
