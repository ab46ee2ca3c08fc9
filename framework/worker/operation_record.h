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

/// One collective or point-to-point message that a rank has entered.
struct OperationEntry {
  std::string group;      ///< for example "tensor"
  std::string operation;  ///< for example "all_reduce"
  std::string who;        ///< the caller, for example "linear_fc2 of layer 3"
  /// Number of the collective in its group, from 1, equal on all members; 0 for point-to-point messages.
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  double entered = 0;          ///< when the rank entered it, in seconds of OperationRecord::now()
  std::optional<double> left;  ///< when the rank left it; absent while it is inside

  /// Whether the rank is still inside the operation.
  bool inside() const { return !left; }
};

/// Describes where a rank is: "in all_reduce 17 of group tensor, 4096 bytes, called by 'linear_fc2 of layer 3', for
/// 12.5 s", or, if it has left the operation, "in no operation; its last was ...". `now`: OperationRecord::now().
std::string describe(const OperationEntry& entry, double now);

/// Path of the record of a rank in the launcher's folder (LaunchLink::folder).
std::filesystem::path operations_file(const std::filesystem::path& folder, int rank);

/// The newest operations of one rank, in a memory-mapped page that other processes of the host can read at any time,
/// also when the writer hangs or is dead. A report of a time-out uses it to say where the missing ranks are. One thread
/// at a time writes; any number of processes read without locks. Names that are too long are truncated.
class OperationRecord {
 public:
  /// For the writer: creates a file of one page, which any process of this user may open(); replaces an older file.
  /// Throws IoError.
  static OperationRecord create(const std::filesystem::path& file, int rank);
  /// For the writer: creates a record in anonymous memory (memfd), which is freed with its last user. Other processes
  /// open descriptor_path(). Throws IoError.
  static OperationRecord create(int rank);
  /// For readers: returns the record in `file`; absent if there is none (yet).
  static std::optional<OperationRecord> open(const std::filesystem::path& file);

  OperationRecord(OperationRecord&&) noexcept;
  OperationRecord& operator=(OperationRecord&&) noexcept;
  ~OperationRecord();

  /// Path at which other processes of this host and user open an anonymous record while the writer is alive, for
  /// example "/proc/17/fd/5".
  std::filesystem::path descriptor_path() const;

  /// For the writer: enter() records that an operation begins; the arguments are the fields of OperationEntry. leave()
  /// records the end of the operation that was entered last.
  void enter(std::string_view group, std::string_view operation, std::uint64_t sequence, std::uint64_t bytes,
             std::string_view who);
  void leave();

  int rank() const;  ///< rank of the writer
  int pid() const;   ///< process id of the writer
  /// Returns the newest operations, at most eight, newest first. An entry that the writer changes at this moment is
  /// read again, up to 100 times, then skipped.
  std::vector<OperationEntry> read() const;

  static double now();  ///< seconds of this host's monotonic clock

 private:
  struct Page;
  OperationRecord(Page* page, int descriptor) : page_(page), descriptor_(descriptor) {}
  Page* page_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace tessera::worker
