#include "framework/instructions/instruction_rows.h"

#include <algorithm>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/memory_limit.h"
#include "framework/files/input_stream.h"
#include "framework/parquet/parquet_json.h"

namespace tessera::instructions {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20U;

bool is_blank(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
std::string shown(const std::string& name) { return name == "-" ? "standard input" : name; }

}  // namespace

class InstructionRows::Source {
 public:
  virtual ~Source() = default;
  virtual bool next(Row& row) = 0;
  virtual std::int64_t position() const = 0;
};

namespace {

// Finds the end of an object whose bytes come in parts.
struct Brackets {
  std::int64_t depth = 0;
  bool in_string = false, escaped = false;

  // The number of bytes of `part` that belong to the object: all, or up to its last bracket.
  std::size_t length_to_end(std::string_view part) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      const char c = part[i];
      if (in_string) {
        in_string = escaped || c != '"';
        escaped = !escaped && c == '\\';
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if ((c == '}' || c == ']') && --depth <= 0) {
        return i + 1;
      }
    }
    return part.size();
  }
};

}  // namespace

// JSON lines, or a list whose elements may be spread over lines.
class InstructionRows::Text final : public Source {
 public:
  explicit Text(std::string name) : name_(std::move(name)), stream_(files::open_input(name_)) {
    if (peek() == 0xEF) {  // a byte order mark
      take();
      if (take() != 0xBB || take() != 0xBF) refuse("is not UTF-8");
    }
    skip_blanks();
    is_list_ = peek() == '[';
    if (is_list_) take();
  }

  bool next(Row& row) override {
    row.json.clear();
    skip_blanks();
    if (ended_) {
      if (peek() >= 0) refuse("has something behind the end of its list");
      return false;
    }
    if (!is_list_) {
      begin_row(row);
      if (peek() < 0) return false;
      while (peek() >= 0) {
        const auto rest = std::string_view(block_).substr(at_);
        const auto end = rest.find('\n');
        append(row.json, rest.substr(0, end));
        at_ += std::min(end, rest.size());
        if (end != std::string_view::npos) break;
      }
      take();
      return true;
    }
    if (!first_ && peek() == ',') {
      take();
      skip_blanks();
    } else if (peek() == ']') {
      take();
      ended_ = true;
      return next(row);
    } else if (!first_) {
      refuse(peek() < 0 ? "ends inside its list" : "has no comma between two elements of its list");
    }
    first_ = false;
    begin_row(row);
    take_element(row.json);
    return true;
  }
  std::int64_t position() const override { return stream_->stored_position(); }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(text(shown(name_), ":", line_, ": the file ", what, "; expected a JSON list, or JSON lines"));
  }
  void append(std::string& json, std::string_view part) const {
    if (part.size() > files::most_document_bytes - json.size())
      throw ConfigError(text(shown(name_), ":", line_, ": a row has more than ", files::most_document_bytes,
                             " bytes; write one JSON object per row"));
    json += part;
  }
  void begin_row(Row& row) const {
    row.line = line_;
    row.begin = before_block_ + static_cast<std::int64_t>(at_);
  }
  int peek() {
    if (at_ == block_.size()) {
      before_block_ += static_cast<std::int64_t>(block_.size());
      block_.resize(block_bytes);
      block_.resize(stream_->read(block_.data(), block_.size()));
      at_ = 0;
      if (block_.empty()) return -1;
    }
    return static_cast<unsigned char>(block_[at_]);
  }
  int take() {
    const int c = peek();
    if (c >= 0) ++at_;
    if (c == '\n') ++line_;
    return c;
  }
  void skip_blanks() {
    while (is_blank(peek())) take();
  }
  void take_element(std::string& json) {
    if (peek() != '{') refuse("has an element in its list that is not an object");
    Brackets open;
    do {
      if (peek() < 0) refuse("ends inside an object");
      const auto rest = std::string_view(block_).substr(at_);
      const auto count = open.length_to_end(rest);
      append(json, rest.substr(0, count));
      line_ += std::count(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count), '\n');
      at_ += count;
    } while (open.depth > 0);
  }

  std::string name_;
  std::unique_ptr<files::InputStream> stream_;
  std::string block_;
  std::size_t at_ = 0;
  std::int64_t before_block_ = 0, line_ = 1;
  bool is_list_ = false, first_ = true, ended_ = false;
};

class InstructionRows::Parquet final : public Source {
 public:
  Parquet(const std::string& name, const std::vector<std::string>& columns) : reader_(name, columns) {}
  bool next(Row& row) override {
    if (!reader_.next(row_)) return false;
    row.json = row_.line();
    row.begin = -1;
    row.line = reader_.rows_read();
    return true;
  }
  std::int64_t position() const override { return reader_.position(); }

 private:
  parquet::ParquetReader reader_;
  parquet::JsonRow row_{false};
};

InstructionRows::InstructionRows(const std::vector<std::string>& inputs, std::vector<std::string> columns)
    : inputs_(files::expand_patterns(inputs)), columns_(std::move(columns)) {
  for (const auto& name : inputs_) {
    sizes_.push_back(files::size_of_input(name));
    size_ += sizes_.back();
  }
}

InstructionRows::~InstructionRows() = default;

bool InstructionRows::next(Row& row) {
  for (;;) {
    const auto next_row = [&] { return source_->next(row); };
    if (source_ && within_memory(shown(inputs_[static_cast<std::size_t>(input_)]), next_row)) {
      row.input = input_;
      return true;
    }
    if (source_) before_ += sizes_[static_cast<std::size_t>(input_)];
    source_.reset();
    if (input_ + 1 >= static_cast<std::int64_t>(inputs_.size())) return false;
    const auto& name = inputs_[static_cast<std::size_t>(++input_)];
    if (name != "-" && parquet::is_parquet(name))
      source_ = std::make_unique<Parquet>(name, columns_);
    else
      source_ = std::make_unique<Text>(name);
  }
}

std::string InstructionRows::place(const Row& row) const {
  return text(shown(inputs_[static_cast<std::size_t>(row.input)]), ":", row.line);
}

std::int64_t InstructionRows::position() const { return before_ + (source_ ? source_->position() : 0); }

}  // namespace tessera::instructions
