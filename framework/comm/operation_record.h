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

namespace tessera {

/// One thing that a process did, or does, together with others.
struct OperationPlace {
  std::string group;      ///< "tensor"
  std::string operation;  ///< "all_reduce"
  std::string who;        ///< who asked: "linear_fc2 of layer 3"
  /// Counts the operations of the group from 1, alike on all members; 0 for messages between two.
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  double entered = 0;          ///< seconds of the host's monotonic clock
  std::optional<double> left;  ///< nothing while the process is inside

  bool inside() const { return !left; }
};

/// "in all_reduce 17 of group tensor, 4096 bytes, asked by 'linear_fc2 of layer 3', for 12.5 s", or where it was last.
std::string describe(const OperationPlace& place, double now);

/// Where the record of a rank lies when a launcher gave its workers a folder (LaunchLink::folder).
std::filesystem::path operations_file(const std::filesystem::path& folder, int rank);

/// What one process does with the others, in memory that other processes of the host may read at any time, also when
/// the writer hangs or is dead. Only one process writes. Long names are cut.
class OperationRecord {
 public:
  /// For the writer: a new file of a page, which any process may open(); an older one is replaced. Throws IoError.
  static OperationRecord create(const std::filesystem::path& file, int rank);
  /// For the writer: memory without a name, which ends with its last user. Others open descriptor_path().
  static OperationRecord create(int rank);
  /// For readers: nothing when there is no such record (yet).
  static std::optional<OperationRecord> open(const std::filesystem::path& file);

  OperationRecord(OperationRecord&&) noexcept;
  OperationRecord& operator=(OperationRecord&&) noexcept;
  ~OperationRecord();

  /// Where other processes of this host and user open an unnamed record while the writer lives: "/proc/17/fd/5".
  std::filesystem::path descriptor_path() const;

  void enter(std::string_view group, std::string_view operation, std::uint64_t sequence, std::uint64_t bytes,
             std::string_view who);
  void leave();

  int rank() const;  ///< of the writer
  int pid() const;   ///< of the writer
  /// The newest operations, the newest first, eight at most; empty before the first.
  std::vector<OperationPlace> read() const;

  static double now();  ///< the clock of the places

 private:
  struct Page;
  OperationRecord(Page* page, int descriptor) : page_(page), descriptor_(descriptor) {}
  Page* page_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace tessera
