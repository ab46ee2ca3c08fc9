#include "framework/reporting/wandb.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>

#include "framework/base/crc32.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/system_call.h"
#include "framework/reporting/metrics_row.h"

namespace tessera::reporting {
namespace {

namespace fs = std::filesystem;

// The file: a head of 7 bytes, then blocks of 32 KiB with fragments of records, as LevelDB's log format has them
// (github.com/google/leveldb, doc/log_format.md), but with the plain CRC-32 of zip over type and data.
constexpr std::string_view file_head("\x3aW&B\xe1\xbe\x00", 7);
constexpr std::size_t block_bytes = 32768, fragment_head = 7;
enum class Fragment : std::uint8_t { whole = 1, first, middle, last };

// Fields of wandb_internal.proto: of Record, and of the messages in it.
enum RecordField : unsigned {
  number = 1,
  history = 2,
  summary = 3,
  config = 5,
  metric = 12,
  run = 17,
  ended = 18,
  header = 21,
  info = 200
};
constexpr unsigned item_field = 1, item_nested_key = 2, item_value = 16;
constexpr std::string_view step_key = "iteration";

std::uint32_t sum_of(Fragment type, std::string_view data) {
  const auto kind = static_cast<std::byte>(type);
  return crc32_ieee(std::as_bytes(std::span(data.data(), data.size())), crc32_ieee({&kind, 1}));
}

/// Adds the fragments of a record that begins at byte `at` of the file.
void add_fragments(MessageWriter& out, std::string_view left, std::int64_t at) {
  auto place = static_cast<std::size_t>(at) % block_bytes;
  for (bool first = true;; first = false) {
    if (block_bytes - place < fragment_head) {
      constexpr std::string_view zeros("\0\0\0\0\0\0", 6);
      out.raw(zeros.substr(0, block_bytes - place));
      place = 0;
    }
    const auto data = left.substr(0, block_bytes - place - fragment_head);
    left.remove_prefix(data.size());
    const auto type =
        left.empty() ? (first ? Fragment::whole : Fragment::last) : (first ? Fragment::first : Fragment::middle);
    out.raw(sum_of(type, data));
    out.raw(static_cast<std::uint16_t>(data.size()));
    out.raw(static_cast<std::uint8_t>(type));
    out.raw(data);
    place += fragment_head + data.size();
    if (left.empty()) return;
  }
}

/// Reads the records of a file one after the other; stops at the first that is not whole.
class RecordReader {
 public:
  explicit RecordReader(std::string_view content) : content_(content) {
    if (content_.substr(0, file_head.size()) != file_head) content_ = {};
  }
  bool next() {
    std::string_view data;
    Fragment type{};
    record_.clear();
    begin_ = at_;
    do {
      if (!fragment(type, data)) return false;
      record_ += data;
    } while (type == Fragment::first || type == Fragment::middle);
    return true;
  }
  std::string_view record() const { return record_; }
  std::size_t begin() const { return begin_; }  ///< of the record in the file
  std::size_t end() const { return at_; }

 private:
  bool fragment(Fragment& type, std::string_view& data) {
    auto at = at_;
    if (block_bytes - at % block_bytes < fragment_head) at += block_bytes - at % block_bytes;
    if (at + fragment_head > content_.size()) return false;
    const auto head = content_.substr(at, fragment_head);
    const auto size = fixed_number<std::uint16_t>(head.substr(4));
    type = static_cast<Fragment>(head[6]);
    data = content_.substr(at + fragment_head, size);
    if (data.size() < size || fixed_number<std::uint32_t>(head) != sum_of(type, data)) return false;
    at_ = at + fragment_head + size;
    return true;
  }
  std::string_view content_;
  std::string record_;
  std::size_t at_ = file_head.size(), begin_ = 0;
};

/// What a record of the file is, as far as a resume needs it.
struct Row {
  bool is_row = false, is_end = false, is_evaluation = false, is_final = false;
  std::int64_t iteration = 0;
  double time = 0;
};

bool begins_with(std::string_view words, std::string_view begin) { return words.substr(0, begin.size()) == begin; }

Row row_of(std::string_view record) {
  Row row;
  bool is_step = false;
  for (MessageReader fields(record); fields.next();) {
    row.is_end |= fields.field == ended;
    if (fields.field != history) continue;
    row.is_row = true;
    for (MessageReader items(fields.bytes); items.next();) {
      if (items.field != item_field) continue;
      std::string_view key, json;
      for (MessageReader item(items.bytes); item.next();) (item.field == item_value ? json : key) = item.bytes;
      if (key == step_key) std::from_chars(json.data(), json.data() + json.size(), row.iteration);
      if (key == "_timestamp") row.time = number_of(json).value_or(0);
      is_step |= key == "loss";
      row.is_evaluation |= begins_with(key, "validation_");
      row.is_final |= begins_with(key, "final_validation_") || begins_with(key, "test_");
    }
  }
  if (is_step) row.is_evaluation = row.is_final = false;
  return row;
}

bool keeps(const MetricsFile::Kept& kept, const Row& row) {
  if (row.iteration != kept.iteration) return row.iteration < kept.iteration;
  return row.is_final ? kept.final_evaluations : row.is_evaluation ? kept.validation : true;
}

/// The folder of the run `id` below `root` that a former start made last; empty: there is none.
std::string folder_of_run(const fs::path& root, const std::string& id) {
  std::string newest;
  std::error_code absent;
  if (!fs::is_directory(root, absent)) return newest;
  for (const auto& path : list_folder(root)) {
    const auto name = path.filename().string();
    if (begins_with(name, "offline-run-") && name.size() > id.size() && name.substr(name.size() - id.size()) == id &&
        name[name.size() - id.size() - 1] == '-')
      newest = std::max(newest, path.string());
  }
  return newest;
}

std::string date_text(double seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  localtime_r(&time, &parts);
  char words[32];
  return {words, std::strftime(words, sizeof words, "%Y%m%d_%H%M%S", &parts)};
}

/// A number as JSON.
class NumberText {
 public:
  template <class Number>
  explicit NumberText(Number value) : size_(std::to_chars(bytes_, bytes_ + sizeof bytes_, value).ptr - bytes_) {}
  std::string_view view() const { return {bytes_, static_cast<std::size_t>(size_)}; }

 private:
  char bytes_[32];
  std::ptrdiff_t size_;
};

}  // namespace

WandbFile::WandbFile(const std::string& folder, const WandbRun& run, const MetricsFile::Kept& kept, double now)
    : exceptions_(std::uncaught_exceptions()), started_(now), last_(now) {
  const auto root = folder + "/wandb";
  folder_ = kept.iteration > 0 ? folder_of_run(root, run.id) : "";
  const auto name = "/run-" + run.id + ".wandb";
  try {
    if (!folder_.empty()) {
      go_on(folder_ + name, kept);
      if (records_ > 0) {
        add_config(config, run);
        return;
      }
      ::close(file_);  // not a file of ours, or nothing whole in it
    }
    open(root, run, now);
  } catch (...) {
    if (file_ >= 0) ::close(file_);
    throw;
  }
}

/// A new folder, whose name has the time: one second later if that is taken.
void WandbFile::open(const std::string& root, const WandbRun& run, double now) {
  make_folder(root);
  for (;; now += 1) {
    folder_ = root + "/offline-run-" + date_text(now) + "-" + run.id;
    if (::mkdir(folder_.c_str(), 0777) == 0) break;
    if (errno != EEXIST) throw IoError(text("cannot create ", folder_, ": ", std::strerror(errno)));
  }
  const auto path = folder_ + "/run-" + run.id + ".wandb";
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file_ < 0 || !write_all(file_, file_head)) throw IoError(text("cannot write ", path, ": ", std::strerror(errno)));
  end_ = static_cast<std::int64_t>(file_head.size());
  begin(run, started_);
}

/// Reads the records that stay, and cuts the others off.
void WandbFile::go_on(const std::string& path, const MetricsFile::Kept& kept) {
  const auto content = read_file(path);
  RecordReader reader(content);
  auto end = file_head.size();
  for (; reader.next(); end = reader.end()) {
    const auto row = row_of(reader.record());
    if (row.is_end || (row.is_row && !keeps(kept, row))) break;
    ++records_;
    if (!row.is_row) continue;
    if (rows_++ == 0) started_ = row.time;
  }
  file_ = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (file_ < 0) throw IoError(text("cannot write ", path, ": ", std::strerror(errno)));
  if (records_ == 0) return;
  end_ = static_cast<std::int64_t>(end);
  if (ftruncate(file_, end_) != 0 || lseek(file_, end_, SEEK_SET) != end_)
    throw IoError(text("cannot shorten ", path, ": ", std::strerror(errno)));
}

void WandbFile::begin(const WandbRun& about, double now) {
  MessageWriter version, time, options;
  version.text(1, "tessera");  // VersionInfo.producer
  version.text(2, "0.70.0");   // VersionInfo.min_consumer
  message_.clear();
  message_.text(1, version.view());  // HeaderRecord.version_info
  record(header, message_.view());

  time.number(1, static_cast<std::int64_t>(now));  // google.protobuf.Timestamp
  time.number(2, static_cast<std::int64_t>((now - std::floor(now)) * 1e9));
  items_.clear();
  for (const auto& [key, json] : about.config) add_item(key, json);
  message_.clear();
  message_.text(1, about.id);  // fields of RunRecord
  message_.text(3, about.project);
  message_.text(4, items_.view());
  message_.text(8, about.name);
  message_.text(13, about.host);
  message_.text(17, time.view());
  record(run, message_.view());

  // The step metric of all curves: W&B's own step counts rows.
  options.number(3, 1);  // MetricOptions.defined
  message_.clear();
  message_.text(1, step_key);  // MetricRecord.name
  message_.text(6, options.view());
  record(metric, message_.view());
  options.number(1, 1);  // MetricOptions.step_sync
  message_.clear();
  message_.text(2, "*");  // MetricRecord.glob_name
  message_.text(4, step_key);
  message_.text(6, options.view());
  record(metric, message_.view());
}

void WandbFile::add_config(unsigned field, const WandbRun& about) {
  items_.clear();
  for (const auto& [key, json] : about.config) add_item(key, json);
  message_.clear();
  message_.raw(items_.view());
  record(field, message_.view());
}

/// A ConfigItem, HistoryItem or SummaryItem: their fields have the same numbers.
void WandbFile::add_item(std::string_view key, std::string_view json) {
  item_.clear();
  item_.text(item_nested_key, key);
  item_.text(item_value, json);
  items_.text(item_field, item_.view());
}

void WandbFile::add(std::int64_t iteration, std::int64_t consumed_samples, std::string_view row, double now) {
  last_ = now;
  items_.clear();
  add_item("_step", NumberText(rows_).view());
  add_item("_timestamp", NumberText(now).view());
  add_item("_runtime", NumberText(now - started_).view());
  add_item(step_key, NumberText(iteration).view());
  add_item("consumed_samples", NumberText(consumed_samples).view());
  for (MetricsRow values(row); values.next();) {
    if (values.key == step_key || values.key == "consumed_samples") continue;
    add_item(values.key, values.json == "null" ? "\"NaN\"" : values.json);
  }
  item_.clear();
  item_.number(1, rows_);  // HistoryStep.num
  message_.clear();
  message_.raw(items_.view());
  message_.text(2, item_.view());  // HistoryRecord.step
  record(history, message_.view());
  record(summary, items_.view());
  ++rows_;
}

/// Appends a record with `message` in field `field`. If the system refuses, leaves the file as it was.
void WandbFile::record(unsigned field, std::string_view message) {
  record_.clear();
  record_.number(number, records_ + 1);
  record_.text(field, message);
  frames_.clear();
  add_fragments(frames_, record_.view(), end_);
  if (write_all(file_, frames_.view())) {
    end_ += static_cast<std::int64_t>(frames_.view().size());
    ++records_;
    return;
  }
  if (complaint_[0] == 0)
    std::snprintf(complaint_, sizeof complaint_, "wandb: a record could not be written (%s); the run continues",
                  std::strerror(errno));
  const bool mended = ftruncate(file_, end_) == 0 && lseek(file_, end_, SEEK_SET) == end_;
  static_cast<void>(mended);  // readers stop at a torn record, the next start removes it
}

WandbFile::~WandbFile() {
  message_.clear();
  message_.number(1, std::uncaught_exceptions() > exceptions_ ? 1 : 0);  // RunExitRecord.exit_code
  message_.number(2, static_cast<std::int64_t>(last_ - started_));       // RunExitRecord.runtime
  record(ended, message_.view());
  ::close(file_);
}

}  // namespace tessera::reporting
