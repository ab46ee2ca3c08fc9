#include "framework/reporting/prometheus.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/base/system_call.h"
#include "framework/reporting/metrics_row.h"

namespace tessera::reporting {
namespace {

/// The value of a label: backslash, quote and line break are escaped.
std::string label_text(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

constexpr const char* last_update = "tessera_last_update_seconds";

std::string_view value_text(std::string_view json) {
  return json == "null" ? "NaN" : json == "true" ? "1" : json == "false" ? "0" : json;
}

}  // namespace

PrometheusFile::PrometheusFile(const std::string& path, const std::string& run)
    : path_(path), beside_(path + ".tmp"), label_(label_text(run)) {
  content_.reserve(8192);
  // What an earlier start wrote stays until there are values.
  const int file = open(beside_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file >= 0 && std::filesystem::is_directory(path_)) {
    close(file);
    unlink(beside_.c_str());
    throw IoError(text("cannot write ", path_, ": is a folder"));
  }
  if (file < 0) throw IoError(text("cannot write ", path_, ": ", std::strerror(errno)));
  close(file);
  unlink(beside_.c_str());
}

void PrometheusFile::take(std::string_view row, double now) {
  now_ = now;
  for (MetricsRow values(row); values.next();) {
    auto found = gauges_.find(values.key);
    if (found == gauges_.end()) found = gauges_.emplace(values.key, Gauge{name_for(values.key), {}}).first;
    found->second.json.assign(values.json);
  }
}

void PrometheusFile::write() {
  content_.clear();
  for (const auto& pair : gauges_) {  // Clang 14 captures no names of a structured binding
    const std::string_view key = pair.first, json = pair.second.json;
    name_ = pair.second.name;
    add_type();
    if (json.front() != '[') {
      add_sample(json);
      continue;
    }
    each_item(json, [&](std::size_t index, std::string_view item) {
      char digits[24];
      const auto* end = std::to_chars(digits, digits + sizeof digits, index).ptr;
      add_sample(item, owner_of_items(key), {digits, static_cast<std::size_t>(end - digits)});
    });
  }
  char time[32];
  const auto* end = std::to_chars(time, time + sizeof time, now_, std::chars_format::fixed, 3).ptr;
  name_ = last_update;
  add_type();
  add_sample({time, static_cast<std::size_t>(end - time)});
  if (replace() || complaint_[0] != 0) return;
  std::snprintf(complaint_, sizeof complaint_, "%.150s: could not be written (%s); training continues", path_.c_str(),
                std::strerror(errno));
}

std::string PrometheusFile::name_for(std::string_view key) const {
  std::string plain = "tessera_";
  for (const char c : key) plain += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  const auto is_taken = [&](const std::string& name) {
    return name == last_update ||
           std::any_of(gauges_.begin(), gauges_.end(), [&](const auto& one) { return one.second.name == name; });
  };
  auto name = plain;
  for (int number = 2; is_taken(name); ++number) name = text(plain, "_", number);
  return name;
}

void PrometheusFile::add_type() { content_.append("# TYPE ").append(name_).append(" gauge\n"); }

void PrometheusFile::add_sample(std::string_view json, std::string_view owner, std::string_view index) {
  content_.append(name_).append("{run=\"").append(label_);
  if (!owner.empty()) content_.append("\",").append(owner).append("=\"").append(index);
  content_.append("\"} ").append(value_text(json)).append("\n");
}

bool PrometheusFile::replace() {
  const int file = open(beside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  const bool written = write_all(file, content_);
  const auto reason = errno;
  close(file);
  if (written && std::rename(beside_.c_str(), path_.c_str()) == 0) return true;
  if (!written) errno = reason;
  return false;
}

}  // namespace tessera::reporting
