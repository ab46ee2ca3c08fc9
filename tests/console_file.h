#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace tessera {

/// A file in the place of a terminal.
class ConsoleFile {
 public:
  ConsoleFile() : file_(std::tmpfile()) {}
  ~ConsoleFile() { std::fclose(file_); }
  ConsoleFile(const ConsoleFile&) = delete;
  ConsoleFile& operator=(const ConsoleFile&) = delete;

  int descriptor() const { return fileno(file_); }
  /// All that was written so far.
  std::string text() const {
    std::string all(static_cast<std::size_t>(::lseek(descriptor(), 0, SEEK_END)), 0);
    if (::pread(descriptor(), all.data(), all.size(), 0) < 0) all.clear();
    return all;
  }

 private:
  std::FILE* file_;
};

}  // namespace tessera
