#include "framework/interop/mindspeed_mm/mm_table.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "framework/base/error.h"

namespace tessera::mindspeed_mm {
namespace {

const std::string layer_in_name = "{layer}";

const options::Value& needed(const options::Value& table, const char* key) {
  const auto* value = table.find(key);
  if (value == nullptr) throw ConfigError(text(table.origin, ": has no '", key, "'"));
  return *value;
}

MmCut cut_named(const options::Value& word) {
  if (word.scalar == "rows") return MmCut::rows;
  if (word.scalar == "columns") return MmCut::columns;
  if (word.scalar == "gated") return MmCut::gated;
  throw ConfigError(text(word.origin, ": no cut '", word.scalar, "'; have rows, columns, gated"));
}

MmRow::At at_named(const options::Value& word) {
  if (word.scalar == "first") return MmRow::At::first;
  if (word.scalar == "last") return MmRow::At::last;
  throw ConfigError(text(word.origin, ": no stage '", word.scalar, "'; have first, last"));
}

/// The layer number of a name that `pattern` describes, -1 if it has no {layer}; nothing for another name.
std::optional<std::int64_t> layer_in(const std::string& name, const std::string& pattern) {
  const auto mark = pattern.find(layer_in_name);
  if (mark == std::string::npos) return name == pattern ? std::optional<std::int64_t>(-1) : std::nullopt;
  const auto end = pattern.substr(mark + layer_in_name.size());
  if (name.size() <= mark + end.size() || name.compare(0, mark, pattern, 0, mark) != 0 || !name.ends_with(end))
    return std::nullopt;
  std::int64_t layer = 0;
  const auto *begin = name.data() + mark, *stop = name.data() + name.size() - end.size();
  const auto [at, error] = std::from_chars(begin, stop, layer);
  if (error != std::errc{} || at != stop || layer < 0 || layer > 99999) return std::nullopt;
  return layer;
}

std::string with_layer(std::string name, std::int64_t layer) {
  if (const auto at = name.find(layer_in_name); at != std::string::npos)
    name.replace(at, layer_in_name.size(), std::to_string(layer));
  return name;
}

std::int64_t divided(const std::string& name, std::int64_t extent, std::int64_t parts, std::int64_t ranks) {
  if (extent % parts != 0 || extent / parts % ranks != 0)
    throw ShapeError(text(name, ": ", extent, " cannot be divided by ", ranks, " tensor-parallel ranks",
                          parts > 1 ? text(" in each of its ", parts, " parts") : std::string()));
  return extent / ranks;
}

/// The axis that is cut, and in how many parts it falls before.
std::pair<std::size_t, std::int64_t> axis_of(MmCut cut) {
  return {cut == MmCut::columns ? 1 : 0, cut == MmCut::gated ? 2 : 1};
}

Shape with_extent(const Shape& shape, std::size_t axis, std::int64_t extent) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[axis] = extent;
  return Shape(dims);
}

void must_have_axis(const std::string& name, const Shape& shape, std::size_t axis) {
  if (shape.rank() <= axis)
    throw ShapeError(text(name, " has shape ", shape, "; tensor-parallel ranks divide its dimension ", axis));
}

}  // namespace

MmTable::MmTable(const options::Value& table) {
  for (const auto& [words, tower] : needed(table, "model_parts").fields) {
    tower_options_.push_back(words);
    towers_.push_back(tower.scalar);
  }
  for (const auto& [release, layout] : needed(table, "releases").fields)
    releases_.emplace_back(release, layout.scalar == "concatenated");
  for (const auto& end : needed(table, "ignored").items) ignored_.push_back(end.scalar);
  tower_qkv_ = needed(table, "tower_qkv").scalar;
  for (const auto& field : needed(table, "tensors").fields) add_row(field);
  const auto& tied = needed(table, "tied").fields.at(0);
  tied_ = {name_of(tied.name), name_of(tied.value.scalar)};
}

std::size_t MmTable::tower_named(const options::Value& name) const {
  const auto found = std::find(towers_.begin(), towers_.end(), name.scalar);
  if (found == towers_.end()) throw ConfigError(text(name.origin, ": no tower '", name.scalar, "' in model_parts"));
  return static_cast<std::size_t>(found - towers_.begin());
}

void MmTable::add_row(const options::Value::Field& field) {
  MmRow row{.ours = field.name, .theirs = needed(field.value, "to").scalar};
  if (const auto* cut = field.value.find("cut")) row.cut = cut_named(*cut);
  if (const auto* at = field.value.find("at")) {
    row.at = at_named(*at);
    row.tower = tower_named(needed(field.value, "of"));
  } else {
    const auto tower = row.ours.substr(0, row.ours.find(".layers." + layer_in_name));
    row.tower = tower_named(options::Value::of(tower, field.value.origin));
  }
  rows_.push_back(std::move(row));
}

std::optional<MmName> MmTable::theirs(const std::string& name) const {
  for (const auto& row : rows_)
    if (const auto layer = layer_in(name, row.theirs)) return MmName{&row, *layer};
  return std::nullopt;
}

std::string MmTable::name_of(const std::string& ours) const {
  for (const auto& row : rows_)
    if (const auto layer = layer_in(ours, row.ours)) return numbered_name(row, *layer);
  throw ConfigError(text("MindSpeed-MM has no tensor for ", ours));
}

bool MmTable::ignores(const std::string& theirs) const {
  return std::any_of(ignored_.begin(), ignored_.end(), [&](const auto& end) { return theirs.ends_with(end); });
}

bool MmTable::is_tower_qkv(const std::string& ours) const {
  const auto dot = ours.rfind('.');
  return dot != std::string::npos && layer_in(ours.substr(0, dot + 1), tower_qkv_).has_value();
}

std::vector<std::string> MmTable::releases() const {
  std::vector<std::string> all;
  for (const auto& [release, concatenates] : releases_) all.push_back(release);
  return all;
}

bool MmTable::concatenates_tower_qkv(const std::string& release) const {
  for (const auto& [name, concatenates] : releases_)
    if (name == release) return concatenates;
  throw ConfigError(text("MindSpeed-MM ", release, " is not known; give one of ", joined(releases())));
}

std::string MmTable::assumption_of(const std::string& release) const {
  const bool here = concatenates_tower_qkv(release);
  std::vector<std::string> same, others;
  for (const auto& [name, concatenates] : releases_) (concatenates == here ? same : others).push_back(name);
  return text("is read as a folder of MindSpeed-MM ", joined(same), "; those of ", joined(others),
              " order the rows of the vision tower's query, key and value projections otherwise, which no file tells");
}

std::string numbered_name(const MmRow& row, std::int64_t layer) { return with_layer(row.theirs, layer); }

std::string our_name(const MmRow& row, std::int64_t layer) { return with_layer(row.ours, layer); }

Shape part_shape(const std::string& name, MmCut cut, const Shape& whole, std::int64_t ranks) {
  if (cut == MmCut::none) return whole;
  const auto [axis, parts] = axis_of(cut);
  must_have_axis(name, whole, axis);
  return with_extent(whole, axis, divided(name, whole[axis], parts, ranks));
}

Shape whole_shape(const std::string& name, MmCut cut, const Shape& part, std::int64_t ranks) {
  if (cut == MmCut::none) return part;
  const auto [axis, parts] = axis_of(cut);
  must_have_axis(name, part, axis);
  if (part[axis] % parts != 0)
    throw ShapeError(text(name, " has shape ", part, "; both halves of its rows were expected"));
  return with_extent(part, axis, part[axis] * ranks);
}

void move_part(MmCut cut, std::span<std::byte> whole, std::span<std::byte> part, const Shape& shape, std::int64_t rank,
               std::int64_t ranks, bool into_whole) {
  // Of each of `pieces` pieces of the whole tensor, one after the other, the rank has `bytes` consecutive bytes.
  const auto pieces = static_cast<std::size_t>(cut == MmCut::columns ? shape[0] : axis_of(cut).second);
  if (pieces == 0 || part.empty()) return;
  const auto bytes = part.size() / pieces, stride = whole.size() / pieces;
  const auto first = cut == MmCut::none ? 0 : bytes * static_cast<std::size_t>(rank);
  must(cut == MmCut::none || bytes * static_cast<std::size_t>(ranks) == stride, "ranks have equal parts");
  for (std::size_t i = 0; i < pieces; ++i) {
    auto* in_whole = whole.data() + i * stride + first;
    auto* in_part = part.data() + i * bytes;
    into_whole ? std::memcpy(in_whole, in_part, bytes) : std::memcpy(in_part, in_whole, bytes);
  }
}

}  // namespace tessera::mindspeed_mm
