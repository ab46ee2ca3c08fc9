#pragma once

#include <string>

#include "framework/data/parquet/parquet.h"

namespace tessera::data {

/// A row as one line of JSON, without its line end, the very bytes of Python's json.dumps(row): `, ` and `: ` between
/// values, characters outside of ASCII as \uXXXX, numbers with the fewest digits that give them back. With `ascii`
/// false characters outside of ASCII stay as they are.
class JsonRow final : public ParquetSink {
 public:
  explicit JsonRow(bool ascii = true) : ascii_(ascii) {}

  /// The row that was read, until the next begins.
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
  bool first_ = true;  // nothing is before the next value in its list or structure
};

}  // namespace tessera::data
