#include "framework/runs/row_scanner.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>

#include "framework/base/json.h"

namespace tessera::runs {
namespace {

bool is_digit(char sign) { return sign >= '0' && sign <= '9'; }

}  // namespace

RowScanner::RowScanner(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {
  skip_blanks();
  if (!take('{')) first_ = false;
}

bool RowScanner::refuse() {
  damaged_ = true;
  return false;
}

void RowScanner::skip_blanks() {
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
}

bool RowScanner::take(char sign) {
  if (at_ == end_ || *at_ != sign) return false;
  ++at_;
  skip_blanks();
  return true;
}

bool RowScanner::next() {
  while (!damaged_ && !done_) {
    if (in_list && take(']')) {
      in_list = false;
      continue;
    }
    if (in_list) {
      if (!take(',')) return refuse();
      ++index;
    } else {
      if (!next_key()) return false;
      in_list = take('[');
      index = 0;
      if (in_list && take(']')) {
        in_list = false;
        continue;
      }
    }
    const auto read = read_value();
    if (read == Read::wrong) return refuse();
    skip_blanks();
    if (read == Read::number) return true;
  }
  return false;
}

bool RowScanner::next_key() {
  if (take('}')) {
    done_ = true;
    return at_ == end_ ? false : refuse();
  }
  if (!first_ && !take(',')) return refuse();
  first_ = false;
  if (at_ == end_ || *at_ != '"') return refuse();
  const auto* begin = ++at_;
  while (at_ < end_ && *at_ != '"' && *at_ != '\\') ++at_;
  if (at_ == end_ || *at_ == '\\') return refuse();
  key = {begin, static_cast<std::size_t>(at_ - begin)};
  ++at_;
  ++member;
  skip_blanks();
  return take(':') || refuse();
}

RowScanner::Read RowScanner::read_value() {
  if (at_ == end_) return Read::wrong;
  if (is_digit(*at_) || (*at_ == '-' && at_ + 1 < end_ && is_digit(at_[1]))) {
    const auto* begin = at_;
    const auto [past, error] = std::from_chars(at_, end_, value);
    at_ = past;
    if (error == std::errc::result_out_of_range) {  // 1e999 or 1e-999
      const std::string_view digits(begin, static_cast<std::size_t>(past - begin));
      const bool small = digits.find("e-") != digits.npos || digits.find("E-") != digits.npos;
      value = std::copysign(small ? 0 : std::numeric_limits<double>::infinity(), *begin == '-' ? -1.0 : 1.0);
    }
    return Read::number;
  }
  const auto word = [this](std::string_view letters) {
    if (static_cast<std::size_t>(end_ - at_) < letters.size() || std::memcmp(at_, letters.data(), letters.size()) != 0)
      return false;
    at_ += letters.size();
    return true;
  };
  if (*at_ == '"') return read_text();
  if (*at_ == '{' || *at_ == '[') return read_nested();
  if (word("null"))
    value = std::numeric_limits<double>::quiet_NaN();
  else if (word("true"))
    value = 1;
  else if (word("false"))
    value = 0;
  else
    return Read::wrong;
  return Read::number;
}

RowScanner::Read RowScanner::read_text() {
  for (++at_; at_ < end_ && *at_ != '"'; ++at_)
    if (*at_ == '\\' && ++at_ == end_) return Read::wrong;
  if (at_ == end_) return Read::wrong;
  ++at_;
  return Read::ignored;
}

RowScanner::Read RowScanner::read_nested() {
  const auto* begin = at_;
  for (int open = 0; at_ < end_; ++at_) {
    if (*at_ == '"') {
      if (read_text() == Read::wrong) return Read::wrong;
      --at_;
    }
    open += *at_ == '{' || *at_ == '[' ? 1 : *at_ == '}' || *at_ == ']' ? -1 : 0;
    if (open > 0) continue;
    ++at_;
    const auto json = parse_json({begin, static_cast<std::size_t>(at_ - begin)});
    return json.is_object() || json.is_array() ? Read::ignored : Read::wrong;
  }
  return Read::wrong;
}

}  // namespace tessera::runs
