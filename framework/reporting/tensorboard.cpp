#include "framework/reporting/tensorboard.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "framework/base/clock.h"
#include "framework/base/crc32c.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/system_call.h"

namespace tessera::reporting {
namespace {

constexpr std::string_view name_begin = "events.out.tfevents.";

/// TFRecord rotates its sums, so that a sum over data that holds sums stays useful.
std::uint32_t masked(std::string_view bytes) {
  const auto sum = crc32c(bytes);
  return ((sum >> 15U) | (sum << 17U)) + 0xa282ead8U;
}

void add_frame(MessageWriter& out, std::string_view event) {
  const auto length = static_cast<std::uint64_t>(event.size());
  out.raw(length);
  out.raw(masked({reinterpret_cast<const char*>(&length), sizeof length}));
  out.raw(event);
  out.raw(masked(event));
}

std::vector<std::filesystem::path> event_files(const std::string& folder) {
  auto files = list_folder(folder);
  std::erase_if(files,
                [](const auto& f) { return f.filename().string().compare(0, name_begin.size(), name_begin) != 0; });
  return files;
}

/// Seconds in the name: now, or one more than the newest file's, so that the order of the names is that of the runs.
std::int64_t seconds_for_name(const std::string& folder) {
  auto seconds = static_cast<std::int64_t>(wall_time());
  for (const auto& file : event_files(folder)) {
    const auto name = file.filename().string().substr(name_begin.size());
    std::int64_t theirs = 0;
    std::from_chars(name.data(), name.data() + name.size(), theirs);
    if (theirs < (std::int64_t{1} << 34)) seconds = std::max(seconds, theirs + 1);
  }
  return seconds;
}

}  // namespace

EventFile::EventFile(const std::string& folder) {
  make_folder(folder);
  char host[65] = "host", name[256];
  gethostname(host, sizeof host - 1);
  std::snprintf(name, sizeof name, "/%s%010lld.%s.%d.0", name_begin.data(),
                static_cast<long long>(seconds_for_name(folder)), host, static_cast<int>(getpid()));
  const auto path = folder + name;
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0) throw IoError(text("cannot write ", path, ": ", std::strerror(errno)));
  event_.fixed(1, wall_time());     // Event.wall_time
  event_.text(3, "brain.Event:2");  // Event.file_version
  add_frame(record_, event_.view());
  if (!write_all(file_, record_.view())) throw IoError(text("cannot write ", path, ": ", std::strerror(errno)));
  end_ = static_cast<std::int64_t>(record_.view().size());
}

EventFile::~EventFile() { close(file_); }

void EventFile::add(std::int64_t step, std::span<const Scalar> points) { add(step, points, wall_time()); }

void EventFile::add(std::int64_t step, std::span<const Scalar> points, double time) {
  for (auto* message : {&summary_, &event_, &record_}) message->clear();
  for (const auto& point : points) {
    value_.clear();
    value_.text(1, point.tag);                         // Summary.Value.tag
    value_.fixed(2, static_cast<float>(point.value));  // Summary.Value.simple_value
    summary_.text(1, value_.view());                   // Summary.value
  }
  event_.fixed(1, time);            // Event.wall_time
  event_.number(2, step);           // Event.step
  event_.text(5, summary_.view());  // Event.summary
  add_frame(record_, event_.view());
  if (write_all(file_, record_.view())) {
    end_ += static_cast<std::int64_t>(record_.view().size());
    return;
  }
  if (complaint_[0] == 0)
    std::snprintf(complaint_, sizeof complaint_, "tensorboard: an event could not be written (%s); the run continues",
                  std::strerror(errno));
  const bool mended = ftruncate(file_, end_) == 0 && lseek(file_, end_, SEEK_SET) == end_;
  static_cast<void>(mended);  // readers stop at a torn record, the next start removes it
}

namespace {

struct Event {
  std::int64_t step = 0;
  bool has_points = false, counts_samples = false;
};

Event decode(std::string_view bytes) {
  Event event;
  for (MessageReader fields(bytes); fields.next();) {
    if (fields.field == 2) event.step = static_cast<std::int64_t>(fields.number);
    if (fields.field != 5) continue;
    event.has_points = true;
    for (MessageReader values(fields.bytes); values.next();)
      for (MessageReader value(values.bytes); value.next();)
        if (value.field == 1 && value.bytes.size() >= vs_samples.size())
          event.counts_samples |= value.bytes.substr(value.bytes.size() - vs_samples.size()) == vs_samples;
  }
  return event;
}

/// The event that `content` begins with, whole and with right sums; empty when there is none.
std::string_view first_event(std::string_view content) {
  constexpr std::size_t before = 12, after = 4;
  if (content.size() < before + after || fixed_number<std::uint32_t>(content.substr(8)) != masked(content.substr(0, 8)))
    return {};
  const auto length = fixed_number<std::uint64_t>(content);
  if (length > content.size() - before - after) return {};
  const auto event = content.substr(before, length);
  return fixed_number<std::uint32_t>(content.substr(before + length)) == masked(event) ? event : std::string_view{};
}

void cut(const std::filesystem::path& path, std::int64_t iteration, std::int64_t consumed_samples) {
  const auto content = read_file(path);
  std::string kept;
  bool any = false;
  for (std::string_view left = content;;) {
    const auto event = first_event(left);
    if (event.empty()) break;
    const auto record = left.substr(0, event.size() + 16);
    left.remove_prefix(record.size());
    const auto [step, has_points, counts_samples] = decode(event);
    if (has_points && step > (counts_samples ? consumed_samples : iteration)) continue;
    any |= has_points;
    kept += record;
  }
  if (!any)
    std::filesystem::remove(path);
  else if (kept.size() != content.size())
    write_file_atomic(path, kept);
}

}  // namespace

void cut_event_files(const std::string& folder, std::int64_t iteration, std::int64_t consumed_samples) {
  for (const auto& path : event_files(folder)) cut(path, iteration, consumed_samples);
}

bool holds_points(const std::string& folder) {
  for (const auto& path : event_files(folder)) {
    const auto content = read_file(path);
    std::string_view left = content;
    for (auto event = first_event(left); !event.empty(); event = first_event(left)) {
      if (decode(event).has_points) return true;
      left.remove_prefix(event.size() + 16);
    }
  }
  return false;
}

}  // namespace tessera::reporting
