#include "framework/multimodal/record_files.h"

#include "framework/base/error.h"
#include "framework/files/input_file.h"
#include "framework/files/input_stream.h"
#include "framework/instructions/instruction_rows.h"

namespace tessera::multimodal {

RecordFiles::RecordFiles(const std::vector<std::string>& files, std::optional<std::int64_t> most) {
  for (const auto& file : files) add(file, most);
}

void RecordFiles::add(const std::string& file, std::optional<std::int64_t> most) {
  const auto full = [&] { return most && records() >= *most; };
  instructions::InstructionRows rows({file}, {});
  instructions::InstructionRows::Row row;
  const auto source = static_cast<std::int32_t>(sources_.size());
  sources_.push_back({file, std::nullopt, records()});
  bool is_empty = true;
  while (!full() && rows.next(row)) {
    is_empty = false;
    if (row.json.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    Entry entry{row.begin, static_cast<std::int64_t>(row.json.size()), row.line, source};
    if (row.begin >= 0 && files::is_plain_file(file)) {
      if (!sources_.back().mapped) sources_.back().mapped.emplace(files::map_input(file, "records"));
    } else {
      entry.begin = static_cast<std::int64_t>(texts_.size());
      texts_ += row.json;
    }
    entries_.push_back(entry);
  }
  if (is_empty && !full())
    throw ConfigError(text(file, ": has no record; expected a JSON list of records with messages, or a record a line"));
}

std::string_view RecordFiles::words(const Entry& entry) const {
  const auto& mapped = sources_[static_cast<std::size_t>(entry.source)].mapped;
  std::string_view all = texts_;
  if (mapped) all = {reinterpret_cast<const char*>(mapped->bytes().data()), mapped->bytes().size()};
  return all.substr(static_cast<std::size_t>(entry.begin), static_cast<std::size_t>(entry.size));
}

Json RecordFiles::record(std::int64_t index) const {
  const auto& entry = entries_.at(static_cast<std::size_t>(index));
  const auto& mapped = sources_[static_cast<std::size_t>(entry.source)].mapped;
  std::string why;
  auto parsed = parse_json(words(entry), &why);
  if (mapped) mapped->require_pages();
  if (parsed.is_discarded()) throw ConfigError(text(place(index), ": is not JSON: ", why));
  if (!parsed.is_object())
    throw ConfigError(text(place(index), ": is ", parsed.type_name(), "; expected an object with messages"));
  return parsed;
}

std::string RecordFiles::place(std::int64_t index) const {
  const auto& entry = entries_.at(static_cast<std::size_t>(index));
  const auto& source = sources_[static_cast<std::size_t>(entry.source)];
  return text(source.name, ":", entry.line, ", record ", index - source.first + 1);
}

void must_have_columns(const RecordFiles& files, const RecordNames& names) {
  for (const auto& column : {names.images, names.videos, names.system}) {
    if (!column) continue;
    bool is_there = false;
    for (std::int64_t i = 0; i < files.records() && !is_there; ++i) is_there = files.record(i).contains(*column);
    if (!is_there)
      throw ConfigError(text("no record has the column '", *column,
                             "'; name the column of the records in dataset_config, or set its option to null"));
  }
}

}  // namespace tessera::multimodal
