#include "framework/reporting/tensorboard.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "framework/base/crc32c.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/system_call.h"

namespace tessera::reporting {
namespace {

constexpr std::string_view name_begin = "events.out.tfevents.";

/// Protocol buffer fields and TFRecord frames, put together in memory of a fixed size. Integers are little-endian,
/// as on every machine that this builds for.
static_assert(std::endian::native == std::endian::little);
template <std::size_t most>
class Encoder {
 public:
  void byte(unsigned value) {
    must(used_ < most, "an event fits into its buffer");
    bytes_[used_++] = static_cast<char>(value);
  }
  void bytes(std::string_view words) {
    must(words.size() <= most - used_, "an event fits into its buffer");
    std::memcpy(bytes_ + used_, words.data(), words.size());
    used_ += words.size();
  }
  template <class Number>
  void fixed(Number value) {
    bytes({reinterpret_cast<const char*>(&value), sizeof value});
  }
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7U) byte(static_cast<unsigned>(value & 127U) | 128U);
    byte(static_cast<unsigned>(value));
  }
  void text(unsigned field, std::string_view words) {
    byte(field << 3U | 2U);
    varint(words.size());
    bytes(words);
  }
  std::string_view view() const { return {bytes_, used_}; }
  void clear() { used_ = 0; }

 private:
  char bytes_[most];
  std::size_t used_ = 0;
};

/// TFRecord rotates its sums, so that a sum over data that holds sums stays useful.
std::uint32_t masked(std::string_view bytes) {
  const auto sum = crc32c(bytes);
  return ((sum >> 15U) | (sum << 17U)) + 0xa282ead8U;
}

template <std::size_t most>
void add_frame(Encoder<most>& out, std::string_view event) {
  const auto length = static_cast<std::uint64_t>(event.size());
  out.fixed(length);
  out.fixed(masked({reinterpret_cast<const char*>(&length), sizeof length}));
  out.bytes(event);
  out.fixed(masked(event));
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Event.wall_time
template <std::size_t most>
void add_time(Encoder<most>& event) {
  event.byte(1U << 3U | 1U);
  event.fixed(wall_time());
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
  Encoder<64> event;
  add_time(event);
  event.text(3, "brain.Event:2");  // Event.file_version
  Encoder<128> record;
  add_frame(record, event.view());
  if (!write_all(file_, record.view())) throw IoError(text("cannot write ", path, ": ", std::strerror(errno)));
  end_ = static_cast<std::int64_t>(record.view().size());
}

EventFile::~EventFile() { close(file_); }

void EventFile::add(std::int64_t step, std::span<const Scalar> points) {
  Encoder<3072> summary;
  for (const auto& point : points) {
    Encoder<256> value;
    value.text(1, point.tag);   // Summary.Value.tag
    value.byte(2U << 3U | 5U);  // Summary.Value.simple_value
    value.fixed(static_cast<float>(point.value));
    summary.text(1, value.view());  // Summary.value
  }
  Encoder<3200> event;
  add_time(event);
  event.byte(2U << 3U);  // Event.step
  event.varint(static_cast<std::uint64_t>(step));
  event.text(5, summary.view());  // Event.summary
  Encoder<3328> record;
  add_frame(record, event.view());
  if (write_all(file_, record.view())) {
    end_ += static_cast<std::int64_t>(record.view().size());
    return;
  }
  if (complaint_[0] == 0)
    std::snprintf(complaint_, sizeof complaint_, "tensorboard: an event could not be written (%s); the run continues",
                  std::strerror(errno));
  const bool mended = ftruncate(file_, end_) == 0 && lseek(file_, end_, SEEK_SET) == end_;
  static_cast<void>(mended);  // readers stop at a torn record, the next start removes it
}

namespace {

/// Reads protocol buffer fields one after the other; stops at the first that is not whole.
class Decoder {
 public:
  explicit Decoder(std::string_view message) : left_(message) {}

  /// False at the end. Then `field`, and `number` or `bytes` after its kind.
  bool next() {
    std::uint64_t key = 0;
    if (left_.empty() || !varint(key)) return false;
    field = key >> 3U;
    switch (key & 7U) {
      case 0:
        return varint(number);
      case 1:
        return take(8);
      case 2:
        return varint(number) && take(number);
      case 5:
        return take(4);
      default:
        return false;
    }
  }
  std::uint64_t field = 0, number = 0;
  std::string_view bytes;

 private:
  bool varint(std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 127U) << shift;
      if (byte < 128) return true;
    }
    return false;
  }
  bool take(std::uint64_t count) {
    if (count > left_.size()) return false;
    bytes = left_.substr(0, count);
    left_.remove_prefix(count);
    return true;
  }
  std::string_view left_;
};

struct Event {
  std::int64_t step = 0;
  bool has_points = false, counts_samples = false;
};

Event decode(std::string_view bytes) {
  Event event;
  for (Decoder fields(bytes); fields.next();) {
    if (fields.field == 2) event.step = static_cast<std::int64_t>(fields.number);
    if (fields.field != 5) continue;
    event.has_points = true;
    for (Decoder values(fields.bytes); values.next();)
      for (Decoder value(values.bytes); value.next();)
        if (value.field == 1 && value.bytes.size() >= vs_samples.size())
          event.counts_samples |= value.bytes.substr(value.bytes.size() - vs_samples.size()) == vs_samples;
  }
  return event;
}

template <class Number>
Number fixed(std::string_view bytes) {
  Number value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// The event that `content` begins with, whole and with right sums; empty when there is none.
std::string_view first_event(std::string_view content) {
  constexpr std::size_t before = 12, after = 4;
  if (content.size() < before + after || fixed<std::uint32_t>(content.substr(8)) != masked(content.substr(0, 8)))
    return {};
  const auto length = fixed<std::uint64_t>(content);
  if (length > content.size() - before - after) return {};
  const auto event = content.substr(before, length);
  return fixed<std::uint32_t>(content.substr(before + length)) == masked(event) ? event : std::string_view{};
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
