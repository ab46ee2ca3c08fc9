#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"

namespace tessera::worker {

/// One collective or message that a rank has entered.
struct OperationEntry {
  std::string group;      ///< for example "tensor"
  std::string operation;  ///< for example "all_reduce"
  std::string who;        ///< the caller: "linear_fc2 of layer 3"
  /// Number of the collective in its group, from 1, the same on all members; 0 for point-to-point messages.
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  double entered = 0;          ///< seconds of the host's monotonic clock
  std::optional<double> left;  ///< the same; absent while the rank is inside

  /// Whether the rank has not left the operation.
  bool inside() const { return !left; }
};

/// "in all_reduce 17 of group tensor, 4096 bytes, called by 'linear_fc2 of layer 3', for 12.5 s", or the last operation
/// that was left. `now`: OperationRecord::now().
std::string describe(const OperationEntry& entry, double now);

/// The file of a rank's record in the folder of the launcher (LaunchLink::folder).
std::filesystem::path operations_file(const std::filesystem::path& folder, int rank);

/// The newest operations of one rank, in a memory-mapped page that other processes of the host may read at any time,
/// also if the writer hangs or is dead. So a time-out can be explained: it is known where the missing ranks are. One
/// process writes. Names that are too long are truncated.
class OperationRecord {
 public:
  /// For the writer: a new file of one page, which any process may open(); replaces an older one. Throws IoError.
  static OperationRecord create(const std::filesystem::path& file, int rank);
  /// For the writer: anonymous memory that ends with its last user. Others open descriptor_path(). Throws IoError.
  static OperationRecord create(int rank);
  /// For readers: absent if there is no such record (yet).
  static std::optional<OperationRecord> open(const std::filesystem::path& file);

  OperationRecord(OperationRecord&&) noexcept;
  OperationRecord& operator=(OperationRecord&&) noexcept;
  ~OperationRecord();

  /// The path under which other processes of this host and user open an anonymous record while the writer lives:
  /// "/proc/17/fd/5".
  std::filesystem::path descriptor_path() const;

  /// The writer enters an operation, and leaves the last one entered. The arguments are the fields of OperationEntry.
  void enter(std::string_view group, std::string_view operation, std::uint64_t sequence, std::uint64_t bytes,
             std::string_view who);
  void leave();

  int rank() const;  ///< of the writer
  int pid() const;   ///< of the writer
  /// The newest operations, at most eight, the newest first. An entry that is being written is retried, then skipped.
  std::vector<OperationEntry> read() const;

  static double now();  ///< seconds of the clock of OperationEntry

 private:
  struct Page;
  OperationRecord(Page* page, int descriptor) : page_(page), descriptor_(descriptor) {}
  Page* page_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace tessera::worker
