#include "framework/parquet/parquet_lines.h"

#include <algorithm>
#include <cstring>

#include "framework/parquet/parquet_json.h"

namespace tessera::parquet {
namespace {

class ParquetLines final : public files::InputStream {
 public:
  ParquetLines(const std::string& name, const std::vector<std::string>& columns) : reader_(name, columns) {
    must_hold_texts(reader_);
  }

  std::size_t read(char* into, std::size_t size) override {
    std::size_t done = 0;
    while (done < size && fill()) {
      const auto count = std::min(size - done, line_.size() - at_);
      std::memcpy(into + done, line_.data() + at_, count);
      at_ += count;
      done += count;
    }
    return done;
  }
  std::int64_t stored_position() const override { return reader_.position(); }

 private:
  // Whether there are bytes of a line left.
  bool fill() {
    if (at_ < line_.size()) return true;
    if (!reader_.next(row_)) return false;
    line_ = row_.line();
    line_ += '\n';
    at_ = 0;
    return true;
  }

  ParquetReader reader_;
  JsonRow row_{false};
  std::string line_;
  std::size_t at_ = 0;
};

}  // namespace

std::unique_ptr<files::InputStream> open_parquet_lines(const std::string& name,
                                                       const std::vector<std::string>& columns) {
  return std::make_unique<ParquetLines>(name, columns);
}

}  // namespace tessera::parquet
