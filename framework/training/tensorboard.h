#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// One point of one curve.
struct Scalar {
  std::string_view tag;
  double value;  ///< stored as float, as TensorBoard has it
};

/// A TensorBoard event file (`events.out.tfevents.*`): TFRecord frames with masked CRC-32C around protocol
/// buffers of tensorflow/core/util/event.proto, encoded by hand. Read back in a test by the real `tensorboard`.
///
/// Each call hands whole records to the operating system at once, so a killed process loses none; it allocates
/// nothing. A failed write never throws: `complaint` tells of the first.
class EventFile {
 public:
  /// Make `folder` when missing, and in it a new file that sorts behind those already there. Throws IoError.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Points at `step`, at most 32 and 2000 letters of tags.
  void add(std::int64_t step, std::span<const Scalar> points);

  /// What went wrong first while writing; empty while all went well.
  const char* complaint() const { return complaint_; }

 private:
  int file_ = -1;
  std::int64_t end_ = 0;  // bytes that are good
  char complaint_[256] = "";
};

/// Curves whose step counts samples, not iterations, end in this, as Megatron-LM's do.
inline constexpr std::string_view vs_samples = " vs samples";

/// Take out of the event files in `folder` what came after a checkpoint that a run goes on from: points beyond
/// `iteration`, and beyond `consumed_samples` on curves `vs samples`, and torn records. Files without points left
/// are removed. What remains and what is written afterwards make curves without a second branch.
///
/// (TensorBoard's own means, a session start with a purge step, drops by the number of the step alone and
/// would take the curves over samples with it.) Throws IoError.
void cut_event_files(const std::string& folder, std::int64_t iteration, std::int64_t consumed_samples);

/// Whether an event file in `folder` holds a point. Throws IoError.
bool holds_points(const std::string& folder);

}  // namespace tessera
