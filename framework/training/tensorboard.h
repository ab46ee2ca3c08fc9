#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::training {

/// One point of one curve.
struct Scalar {
  std::string_view tag;
  double value;  ///< stored as float, as TensorBoard has it
};

/// A TensorBoard event file (`events.out.tfevents.*`): TFRecord frames with masked CRC-32C around protocol
/// buffers of tensorflow/core/util/event.proto, encoded by hand. Read back in a test by the real `tensorboard`.
///
/// Each call passes whole records to the operating system at once, so a killed process loses none; it allocates
/// nothing. A failed write never throws: `complaint` describes the first.
class EventFile {
 public:
  /// Creates `folder` if necessary, and in it a new file whose name sorts after the existing ones. Throws IoError.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Adds points at `step`: at most 32, with at most 2000 bytes of tags.
  void add(std::int64_t step, std::span<const Scalar> points);

  /// The first failure of a write; empty if there was none.
  const char* complaint() const { return complaint_; }

 private:
  int file_ = -1;
  std::int64_t end_ = 0;  // bytes that are good
  char complaint_[256] = "";
};

/// End of the tags of curves whose step counts samples instead of iterations, as in Megatron-LM.
inline constexpr std::string_view vs_samples = " vs samples";

/// Removes from the event files in `folder` what came after the checkpoint that a run resumes from: points after
/// `iteration`, or after `consumed_samples` on curves `vs samples`, and incomplete records. Files without remaining
/// points are deleted. The curves then continue without a second branch.
///
/// (TensorBoard's own mechanism, a session start with a purge step, compares the number of the step alone, and would
/// also remove points of the curves over samples.) Throws IoError.
void cut_event_files(const std::string& folder, std::int64_t iteration, std::int64_t consumed_samples);

/// Whether an event file in `folder` contains a point. Throws IoError.
bool holds_points(const std::string& folder);

}  // namespace tessera::training
