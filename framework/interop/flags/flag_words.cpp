#include "framework/interop/flags/flag_words.h"

#include <algorithm>
#include <cctype>

namespace tessera::flags {
namespace {

bool is_in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

/// The name that begins at `at`, without the full stop of a sentence.
std::string name_at(const std::string& message, std::size_t at) {
  auto end = at;
  while (end < message.size() && is_in_name(message[end])) ++end;
  while (end > at && message[end - 1] == '.') --end;
  return message.substr(at, end - at);
}

/// If `between` and then a name follow at `at`: that name. Else empty.
std::string name_behind(const std::string& message, std::size_t at, const std::string& between) {
  return message.compare(at, between.size(), between) == 0 ? name_at(message, at + between.size()) : "";
}

/// Whether `row` is of a bare flag that stands for `value`.
bool stands_for(const FlagRow& row, const std::string& value) {
  return row.kind == FlagRow::Kind::fixed && !value.empty() && row.fixed == value;
}

}  // namespace

bool was_not_given(const options::Origin& at) {
  const std::string ending = " not given";
  return at.layer == 0 || (at.source.size() > ending.size() &&
                           at.source.compare(at.source.size() - ending.size(), ending.size(), ending) == 0);
}

FlagWords::FlagWords(const FlagTable& table, const std::vector<GivenFlag>& given) {
  for (const auto& row : table.rows()) {
    if (row.to.empty()) continue;
    const auto option = row.option();
    rows_[option].push_back(&row);
    rows_[option.substr(option.find('.') + 1)].push_back(&row);
  }
  for (const auto& flag : given) given_[flag.flag] = flag.at;
}

const std::vector<const FlagRow*>* FlagWords::rows_of(const std::string& name) const {
  const auto there = name.find_first_of("_.0123456789") == std::string::npos ? rows_.end() : rows_.find(name);
  return there == rows_.end() ? nullptr : &there->second;
}

/// One that is given, else one that takes a value, else the first.
const FlagRow& FlagWords::chosen(const std::vector<const FlagRow*>& rows) const {
  auto best = std::find_if(rows.begin(), rows.end(), [&](const auto* row) { return is_given(row->flag); });
  if (best == rows.end())
    best = std::find_if(rows.begin(), rows.end(), [](const auto* row) { return row->kind != FlagRow::Kind::fixed; });
  return best == rows.end() ? *rows.front() : **best;
}

std::string FlagWords::flag_for(const std::string& name, const std::vector<const FlagRow*>& rows,
                                const std::string& message, std::size_t& at) const {
  const auto& row = chosen(rows);
  if (row.kind == FlagRow::Kind::fixed) return bare_flag_for(name, rows, message, at);
  if (!name_behind(message, at, ": ").empty()) ++at;  // "--flag value"
  return row.flag;
}

std::string FlagWords::bare_flag_for(const std::string& name, const std::vector<const FlagRow*>& rows,
                                     const std::string& message, std::size_t& at) const {
  for (const std::string between : {": ", " is ", " "}) {
    const auto value = name_behind(message, at, between);
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const auto* row) { return stands_for(*row, value); });
    if (same == rows.end()) continue;
    at += between.size() + value.size();
    return (*same)->flag + (between == " is " ? " is given" : "");
  }
  const auto& row = chosen(rows);
  if (row.fixed != "true" && row.fixed != "false") return name;  // a flag for each of several values
  for (const std::string between : {": ", " is ", " "}) {
    const auto value = name_behind(message, at, between);
    if (value != "true" && value != "false") continue;
    at += between.size() + value.size();
    return between == " is " ? row.flag + " is not given" : "no " + row.flag;
  }
  return row.flag;
}

std::string FlagWords::of(const std::string& message) const {
  std::string all;
  for (std::size_t at = 0; at < message.size();) {
    const auto name = name_at(message, at);
    if (name.empty()) {
      all += message[at++];
      continue;
    }
    at += name.size();
    const auto* rows = rows_of(name);
    all += rows ? flag_for(name, *rows, message, at) : name;
  }
  return all;
}

void FlagWords::put_into(options::Finding& finding) const {
  finding.message = of(finding.message);
  finding.advice = of(finding.advice);
  if (!was_not_given(finding.at)) return;
  auto first = finding.message.size();
  for (const auto& [flag, at] : given_)
    if (const auto found = finding.message.find(flag); found < first) first = found, finding.at = at;
}

}  // namespace tessera::flags
