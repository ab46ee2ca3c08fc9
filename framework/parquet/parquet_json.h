#pragma once

#include <string>

#include "framework/parquet/parquet.h"

namespace tessera::parquet {

/// Writes a row as one line of JSON, without its line end, byte for byte as Python's json.dumps(row): `, ` and `: `
/// between values, non-ASCII characters as \uXXXX, numbers with the fewest digits that restore them. With `ascii`
/// false, non-ASCII characters are kept unchanged.
class JsonRow final : public ParquetSink {
 public:
  explicit JsonRow(bool ascii = true) : ascii_(ascii) {}

  /// The last complete row. Valid until the next row begins.
  const std::string& line() const { return line_; }

  void null() override;
  void boolean(bool value) override;
  void integer(std::int64_t value) override;
  void unsigned_integer(std::uint64_t value) override;
  void number(double value) override;
  void string(std::string_view value) override;
  void begin_list() override;
  void end_list() override;
  void begin_structure() override;
  void key(std::string_view name) override;
  void end_structure() override;

 private:
  void separate();
  void quote(std::string_view value);

  bool ascii_;
  std::string line_;
  int depth_ = 0;
  bool first_ = true;  // the next value is the first in its list or structure
};

}  // namespace tessera::parquet
