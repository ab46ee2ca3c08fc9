#include "framework/files/text_file.h"

#include <algorithm>

#include "framework/files/input_file.h"
#include "framework/files/input_stream.h"
#include "framework/files/json_line.h"
#include "framework/unicode/utf8.h"

namespace tessera::files {
namespace {

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

TextFormat format_by_name(const std::string& name) {
  const auto ending = std::filesystem::path(name).extension();
  return ending == ".txt" || ending == ".text" || ending == ".md" ? TextFormat::whole_file : TextFormat::json_lines;
}

std::vector<std::string_view> cut_long_text(std::string_view text) {
  const auto size = std::clamp<std::size_t>(text.size() / 200, 4U << 10U, 1U << 20U);
  const auto is_space = [&](std::size_t at) { return text[at] == ' ' || (text[at] >= '\t' && text[at] <= '\r'); };
  std::vector<std::string_view> parts;
  std::size_t first = 0;
  while (text.size() - first > size) {
    // A line end alone between characters of ASCII that are no blanks: no piece of text goes across. ("[\r\n/]*" ends
    // some pieces.)
    auto end = text.find('\n', first + size);
    while (end != std::string_view::npos && end + 1 < text.size() &&
           (is_space(end - 1) || is_space(end + 1) || text[end + 1] == '/' ||
            static_cast<unsigned char>(text[end - 1]) >= 0x80 || static_cast<unsigned char>(text[end + 1]) >= 0x80))
      end = text.find('\n', end + 1);
    if (end == std::string_view::npos || end + 1 >= text.size()) break;
    parts.push_back(text.substr(first, end + 1 - first));
    first = end + 1;
  }
  parts.push_back(text.substr(first));
  return parts;
}

TextFile::TextFile(const std::string& name, TextFormat format)
    : name_(name), format_(format), file_(map_input(name, "input")) {
  all_ = {reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()};
  refuse_compressed(name, all_.substr(0, 8));
}

std::string_view TextFile::next_line() {
  const auto end = all_.find('\n', at_);
  const auto first = at_;
  at_ = end == std::string_view::npos ? all_.size() : end + 1;
  ++line_;
  return all_.substr(first, at_ - first);
}

bool TextFile::next(RawDocument& document) {
  const bool more = at_ < all_.size() && take(document);
  file_.require_intact();
  return more;
}

bool TextFile::take(RawDocument& document) {
  if (format_ == TextFormat::blank_lines) return next_paragraph(document);
  if (format_ == TextFormat::whole_file) {
    document = {all_, 1};
    at_ = all_.size();
    return true;
  }
  auto line = next_line();
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  document = {line, line_};
  return true;
}

bool TextFile::next_paragraph(RawDocument& document) {
  std::size_t first = 0, last = 0;
  while (at_ < all_.size()) {
    const auto before = at_;
    const auto line = next_line();
    if (is_blank(line)) {
      if (last > first) break;
      continue;
    }
    if (last == first) {
      first = before;
      document.line = line_;
    }
    last = at_;
  }
  document.bytes = all_.substr(first, last - first);
  if (!document.bytes.empty() && document.bytes.back() == '\n') document.bytes.remove_suffix(1);
  if (!document.bytes.empty() && document.bytes.back() == '\r') document.bytes.remove_suffix(1);
  return last > first;
}

void TextFile::check_utf8(const RawDocument& document) const {
  const auto at = unicode::first_not_utf8(document.bytes);
  if (at == std::string_view::npos) return;
  const auto before = document.bytes.substr(0, at);
  const auto line = document.line + std::count(before.begin(), before.end(), '\n');
  const auto column = at - (before.find('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1);
  throw ConfigError(text(name_, ":", line, ": byte ", column + 1,
                         " of the line is not UTF-8; convert the file, for example with iconv"));
}

void TextFile::texts(const RawDocument& document, std::span<const std::string> keys,
                     std::vector<std::vector<std::string>>& out) const {
  read_intact(file_, [&] {
    read_texts(document, keys, out);
    return true;
  });
}

void TextFile::read_texts(const RawDocument& document, std::span<const std::string> keys,
                          std::vector<std::vector<std::string>>& out) const {
  check_utf8(document);
  out.resize(keys.size());
  for (auto& list : out) list.clear();
  if (format_ == TextFormat::json_lines) return json_texts(document, keys, out);
  const auto parts = format_ == TextFormat::whole_file ? cut_long_text(document.bytes) : std::vector{document.bytes};
  for (auto& list : out) list.assign(parts.begin(), parts.end());
}

void TextFile::json_texts(const RawDocument& document, std::span<const std::string> keys,
                          std::vector<std::vector<std::string>>& out) const {
  JsonLine line(std::vector<std::string>(keys.begin(), keys.end()));
  try {
    line.parse(document.bytes);
  } catch (const ConfigError& error) {
    throw ConfigError(text(name_, ":", document.line, ": ", error.what()));
  }
  for (std::size_t k = 0; k < keys.size(); ++k) out[k].assign(line.texts(k).begin(), line.texts(k).end());
}

}  // namespace tessera::files
