#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "framework/reporting/protocol_buffer.h"

namespace tessera::reporting {

/// One point of a curve.
struct Scalar {
  std::string_view tag;
  double value;  ///< stored as float, as TensorBoard expects
};

/// A TensorBoard event file (`events.out.tfevents.*`): TFRecord frames with masked CRC-32C around protocol buffers of
/// tensorflow/core/util/event.proto, encoded by hand.
///
/// Each call passes complete records to the operating system at once, so a killed process loses none. It does not
/// allocate in steady state. A failed write does not throw; complaint() describes the first failure.
class EventFile {
 public:
  /// Creates `folder` if necessary, and in it a new file whose name sorts after the existing ones. Throws IoError.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Adds points at `step`.
  void add(std::int64_t step, std::span<const Scalar> points);
  /// The same for points that were measured at `time`, in seconds since 1970.
  void add(std::int64_t step, std::span<const Scalar> points, double time);

  /// The first failure of a write; an empty string if there was none. Valid as long as this object.
  const char* complaint() const { return complaint_; }

 private:
  int file_ = -1;
  std::int64_t end_ = 0;  // size in bytes of the part that was written successfully
  MessageWriter value_{256}, summary_{4096}, event_{4096}, record_{4096};
  char complaint_[256] = "";
};

/// Suffix of the tags of curves whose step counts samples instead of iterations, as in Megatron-LM.
inline constexpr std::string_view vs_samples = " vs samples";

/// Removes from the event files in `folder` everything after the checkpoint from which a run resumes: points after
/// `iteration`, or after `consumed_samples` on curves `vs samples`, and incomplete records. Files without remaining
/// points are deleted. So the curves continue without a second branch.
///
/// (TensorBoard's own mechanism, a session start with a purge step, compares the number of the step alone, and would
/// also remove points of the curves over samples.) Throws IoError.
void cut_event_files(const std::string& folder, std::int64_t iteration, std::int64_t consumed_samples);

/// Whether an event file in `folder` contains a point. Throws IoError.
bool holds_points(const std::string& folder);

}  // namespace tessera::reporting
