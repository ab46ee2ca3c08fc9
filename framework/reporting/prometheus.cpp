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

/// A character of a key in the name of a gauge.
char shown(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_'; }

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
    auto found = values_.find(values.key);
    if (found == values_.end()) found = values_.emplace(values.key, "").first;
    found->second.assign(values.json);
  }
}

void PrometheusFile::write() {
  content_.clear();
  for (const auto& pair : values_) {  // Clang 14 captures no names of a structured binding
    const std::string_view key = pair.first, json = pair.second;
    name_ = "tessera_";
    for (const char c : key) name_ += shown(c);
    add_number(earlier_with_name_of(key) + 1);
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
  name_ = "tessera_last_update_seconds";
  add_type();
  add_sample({time, static_cast<std::size_t>(end - time)});
  if (replace() || complaint_[0] != 0) return;
  std::snprintf(complaint_, sizeof complaint_, "%.150s: could not be written (%s); training continues", path_.c_str(),
                std::strerror(errno));
}

std::size_t PrometheusFile::earlier_with_name_of(std::string_view key) const {
  const auto same = [](char a, char b) { return shown(a) == shown(b); };
  std::size_t count = 0;
  for (auto at = values_.begin(); at->first != key; ++at)
    count += std::ranges::equal(std::string_view(at->first), key, same) ? 1 : 0;
  return count;
}

void PrometheusFile::add_number(std::size_t number) {
  if (number == 1) return;
  char digits[24];
  name_.append("_").append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
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
