#include "framework/parquet/parquet.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "framework/files/input_file.h"
#include "framework/unicode/utf8.h"

namespace tessera::parquet {
namespace {

using Kind = ParquetNode::Kind;
using Meaning = ParquetNode::Meaning;

constexpr std::size_t bytes_of_value = 16;  // what a value counts for beside its text

const ParquetNode* unsupported_leaf(const ParquetNode& node) {
  if (node.kind == Kind::leaf) return node.meaning == Meaning::unsupported ? &node : nullptr;
  for (const auto& child : node.children)
    if (const auto* found = unsupported_leaf(child)) return found;
  return nullptr;
}

template <class Each>
void each_leaf(const ParquetNode& node, Each each) {
  if (node.kind == Kind::leaf) return each(node);
  for (const auto& child : node.children) each_leaf(child, each);
}

/// Collects the texts of a row. Everything that is not a text in its right place is refused.
class TextsOfRow final : public ParquetSink {
 public:
  explicit TextsOfRow(std::vector<std::vector<std::string>>& texts) : texts_(texts) {}
  void null() override { throw ConfigError(text("column '", key_, "' is null; expected a text")); }
  void boolean(bool) override { wrong(); }
  void integer(std::int64_t) override { wrong(); }
  void unsigned_integer(std::uint64_t) override { wrong(); }
  void number(double) override { wrong(); }
  void string(std::string_view value) override { texts_.back().emplace_back(value); }
  void begin_list() override {}
  void end_list() override {}
  void begin_structure() override {}
  void key(std::string_view name) override {
    key_ = name;
    texts_.emplace_back();
  }
  void end_structure() override {}

 private:
  static void wrong() { must(false, "only columns of texts are read as texts"); }

  std::vector<std::vector<std::string>>& texts_;
  std::string key_;
};

}  // namespace

ParquetReader::ParquetReader(const std::string& name, std::span<const std::string> columns, const ParquetLimits& limits)
    : name_(name), file_(files::open_input(name, "input")), limits_(limits), footer_(read_parquet_footer(file_)) {
  const auto refuse_file = [&](const std::string& message) { throw ConfigError(text(name_, ": ", message)); };
  try {
    auto all = parquet_columns(footer_.elements);
    if (columns.empty()) {
      std::set<std::string_view> names;
      for (const auto& column : all)
        if (!names.insert(column.name).second)
          refuse_file(text("it has two columns with the name '", column.name, "'; rename one of them"));
      columns_ = std::move(all);
    } else {
      std::set<std::string_view> names;
      for (const auto& column : columns) {
        if (!names.insert(column).second) throw ConfigError(text("column '", column, "' is given twice; give it once"));
        columns_.push_back(select_parquet_column(all, column));
      }
    }
  } catch (const ConfigError& error) {
    refuse_file(error.what());
  }
  footer_.elements = {};
  for (const auto& column : columns_)
    if (const auto* leaf = unsupported_leaf(column))
      refuse_file(text("column '", leaf->path, "' has the Parquet type ", leaf->type_name,
                       ", which is not supported; name the columns to read without it"));
  for (const auto& column : columns_)
    each_leaf(column, [&](const ParquetNode& leaf) {
      leaves_.emplace_back(file_, leaf, limits_);
      leaf_columns_.push_back(leaf.column);
    });
}

std::string ParquetReader::place() const {
  return text(name_, ": row group ", group_ == 0 ? 0 : group_ - 1, ", row ", std::max<std::int64_t>(row_ - 1, 0));
}

std::int64_t ParquetReader::position() const {
  if (rows() == 0) return size();
  return static_cast<std::int64_t>(static_cast<double>(size()) * static_cast<double>(row_) /
                                   static_cast<double>(rows()));
}

void ParquetReader::refuse(const std::string& message) const { throw ConfigError(text(place(), ": ", message)); }

void ParquetReader::count_bytes(std::size_t bytes) {
  row_bytes_ += static_cast<std::int64_t>(bytes + bytes_of_value);
  if (row_bytes_ > limits_.row_bytes) refuse(text("the row has more than the supported ", limits_.row_bytes, " bytes"));
}

void ParquetReader::begin_group() {
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (group_ > 0 && !leaves_[i].ended()) leaves_[i].refuse("is damaged: it has more values than rows");
  }
  if (group_ == footer_.groups.size()) return;
  const auto& group = footer_.groups[group_];
  left_in_group_ = group.rows;
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    leaves_[i].begin(group.chunks[leaf_columns_[i]], static_cast<std::int64_t>(group_));
  ++group_;
}

void ParquetReader::check_row_begins() {
  for (const auto& leaf : leaves_) {
    if (leaf.ended()) leaf.refuse("is damaged: it has fewer values than rows");
    if (leaf.repetition() != 0) leaf.refuse(text("is damaged: row ", row_, " begins inside a list"));
  }
}

bool ParquetReader::next(ParquetSink& sink) {
  while (left_in_group_ == 0) {
    const auto before = group_;
    begin_group();
    if (group_ == before) return false;
  }
  --left_in_group_;
  check_row_begins();
  ++row_;
  row_bytes_ = 0;
  std::size_t first = 0;
  sink.begin_structure();
  for (const auto& column : columns_) {
    sink.key(column.name);
    read(column, first, sink);
    first += leaves_of(column);
  }
  sink.end_structure();
  return true;
}

// Takes one entry of each leaf below a null or an empty list. All must say the same.
void ParquetReader::skip_null(const ParquetNode& node, std::size_t first, int definition) {
  for (auto i = first; i < first + leaves_of(node); ++i) {
    if (leaves_[i].definition() != definition)
      leaves_[i].refuse(text("is damaged: it disagrees with its neighbours about row ", row_ - 1));
    leaves_[i].advance();
  }
}

void ParquetReader::read(const ParquetNode& node, std::size_t first, ParquetSink& sink) {
  count_bytes(0);
  const auto definition = leaves_[first].definition();
  if (definition < node.defined) {
    sink.null();
    return skip_null(node, first, definition);
  }
  switch (node.kind) {
    case Kind::leaf:
      read_leaf(node, leaves_[first], sink);
      return;
    case Kind::structure:
      sink.begin_structure();
      for (const auto& field : node.children) {
        sink.key(field.name);
        read(field, first, sink);
        first += leaves_of(field);
      }
      sink.end_structure();
      return;
    case Kind::list:
    case Kind::map:
      read_elements(node, first, sink);
      return;
  }
}

void ParquetReader::read_elements(const ParquetNode& node, std::size_t first, ParquetSink& sink) {
  const auto leaves = std::size_t{leaves_of(node)};
  sink.begin_list();
  if (const auto definition = leaves_[first].definition(); definition < node.element_defined) {
    skip_null(node, first, definition);
  } else {
    for (bool more = true; more;) {
      for (auto i = first; i < first + leaves; ++i)
        if (leaves_[i].definition() < node.element_defined)
          leaves_[i].refuse(text("is damaged: it disagrees with its neighbours about row ", row_ - 1));
      if (node.kind == Kind::map) {
        sink.begin_list();
        auto leaf = first;
        for (const auto& part : node.children) {
          read(part, leaf, sink);
          leaf += leaves_of(part);
        }
        sink.end_list();
      } else {
        read(node.children[0], first, sink);
      }
      more = leaves_[first].repetition() >= node.repeated;
      for (auto i = first; i < first + leaves; ++i)
        if (leaves_[i].repetition() != leaves_[first].repetition() || leaves_[i].repetition() > node.repeated)
          leaves_[i].refuse(text("is damaged: it disagrees with its neighbours about row ", row_ - 1));
    }
  }
  sink.end_list();
}

void ParquetReader::read_leaf(const ParquetNode& node, ParquetColumn& column, ParquetSink& sink) {
  const auto& value = column.value();
  switch (node.meaning) {
    case Meaning::boolean:
      sink.boolean(value.integer != 0);
      break;
    case Meaning::integer:
      sink.integer(value.integer);
      break;
    case Meaning::unsigned_integer:
      sink.unsigned_integer(node.type == ParquetType::int32 ? static_cast<std::uint32_t>(value.integer)
                                                            : static_cast<std::uint64_t>(value.integer));
      break;
    case Meaning::number:
      if (!std::isfinite(value.number))
        refuse(text("column '", node.path, "' holds ", value.number,
                    ", which JSON cannot express; replace it, or leave the column out"));
      sink.number(value.number);
      break;
    case Meaning::string:
      count_bytes(value.words.size());
      if (const auto at = unicode::first_not_utf8(value.words); at != std::string_view::npos)
        refuse(text("column '", node.path, "' holds bytes that are not UTF-8, from byte ", at, " of ",
                    value.words.size(), "; convert it, or leave the column out"));
      sink.string(value.words);
      break;
    case Meaning::unsupported:
      must(false, "columns of unsupported types are refused before they are read");
  }
  column.advance();
}

void must_hold_texts(const ParquetReader& reader) {
  for (const auto& column : reader.columns()) {
    const auto& inner = column.kind == Kind::list ? column.children[0] : column;
    if (inner.kind != Kind::leaf || inner.meaning != Meaning::string)
      throw ConfigError(text(reader.name(), ": column '", column.name,
                             "' holds neither texts nor lists of texts; name another column"));
  }
}

ParquetTexts::ParquetTexts(const std::string& name, std::span<const std::string> keys, const ParquetLimits& limits)
    : reader_(name, keys, limits) {
  must_hold_texts(reader_);
}

bool ParquetTexts::next(std::vector<std::vector<std::string>>& texts) {
  texts.clear();
  TextsOfRow row(texts);
  try {
    return reader_.next(row);
  } catch (ConfigError& error) {
    const std::string message = error.what();
    if (message.starts_with(reader_.name())) throw;
    throw ConfigError(text(place(), ": ", message));
  }
}

}  // namespace tessera::parquet
