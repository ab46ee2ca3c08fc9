#include "framework/reporting/metrics_row.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "framework/base/error.h"

namespace tessera::reporting {
namespace {

constexpr std::size_t longest_line = std::size_t{64} << 20;

bool is_scalar(std::string_view json) {
  if (json == "null" || json == "true" || json == "false") return true;
  double value = 0;
  const auto end = json.data() + json.size();
  return !json.empty() && json.front() != 'i' && json.front() != 'n' && json.find_first_of("nN") == json.npos &&
         std::from_chars(json.data(), end, value).ptr == end;
}

bool is_list(std::string_view json) {
  if (json == "[]") return true;
  bool good = true;
  each_item(json, [&](std::size_t, std::string_view item) { good &= is_scalar(item); });
  return good;
}

bool to_count(std::string_view json, std::int64_t& value) {
  const auto end = json.data() + json.size();
  const auto [at, error] = std::from_chars(json.data(), end, value);
  return error == std::errc() && at == end && value >= 0;
}

}  // namespace

MetricsRow::MetricsRow(std::string_view line) : left_(line) {
  while (!left_.empty() && (left_.back() == '\n' || left_.back() == '\r')) left_.remove_suffix(1);
  if (!left_.empty() && left_.front() == '{') left_.remove_prefix(1);
  if (left_.substr(0, 2) == ", ") left_.remove_prefix(2);
}

bool MetricsRow::refuse() {
  damaged_ = true;
  left_ = {};
  return false;
}

bool MetricsRow::next() {
  if (left_.empty() || left_ == "}") return false;
  if (left_.front() != '"') return refuse();
  const auto quote = left_.find('"', 1), colon = quote + 1;
  if (quote == std::string_view::npos || left_.substr(colon, 2) != ": ") return refuse();
  key = left_.substr(1, quote - 1);
  left_.remove_prefix(colon + 2);
  const bool list = !left_.empty() && left_.front() == '[';
  auto end = list ? left_.find(']') : left_.find_first_of(",}");
  if (list && end != std::string_view::npos) ++end;
  if (end == std::string_view::npos) return refuse();
  json = left_.substr(0, end);
  if (key.find('\\') != std::string_view::npos || !(list ? is_list(json) : is_scalar(json))) return refuse();
  left_.remove_prefix(end);
  if (left_.substr(0, 2) == ", ")
    left_.remove_prefix(2);
  else if (left_ != "}")
    return refuse();
  return true;
}

std::optional<double> number_of(std::string_view json) {
  if (json == "true" || json == "false") return json == "true" ? 1.0 : 0.0;
  if (json == "null") return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const auto end = json.data() + json.size();
  const auto [at, error] = std::from_chars(json.data(), end, value);
  if (at != end) return std::nullopt;
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(json).c_str(), nullptr);
  return value;
}

std::string_view owner_of_items(std::string_view key) { return key.substr(0, 5) == "rank_" ? "rank" : "layer"; }

MetricsReader::MetricsReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {
  if (!file_) throw IoError(text("cannot read ", path, ": ", std::strerror(errno)));
}

bool MetricsReader::next() {
  for (;;) {
    line_.clear();
    // By characters of the stream's buffer, so that a file without line breaks does not take all memory.
    auto* buffer = file_.rdbuf();
    int character = buffer->sbumpc();
    for (; character != EOF && character != '\n'; character = buffer->sbumpc())
      if (line_.size() <= longest_line) line_ += static_cast<char>(character);
    if (character == EOF) {
      damaged_ += line_.empty() ? 0 : 1;
      return false;
    }
    if (is_whole()) return true;
    ++damaged_;
  }
}

bool MetricsReader::is_whole() {
  bool has_iteration = false;
  iteration_ = consumed_samples_ = 0;
  if (line_.size() > longest_line || line_.empty() || line_.front() != '{' || line_.back() != '}') return false;
  MetricsRow row(line_);
  while (row.next()) {
    if (row.key == "iteration") has_iteration = to_count(row.json, iteration_);
    if (row.key == "consumed_samples" && !to_count(row.json, consumed_samples_)) return false;
  }
  return has_iteration && !row.damaged();
}

}  // namespace tessera::reporting
