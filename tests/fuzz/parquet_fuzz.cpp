// A Parquet file: every row is valid UTF-8 JSON within the limits, or the file is refused with a ConfigError.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "framework/parquet/parquet_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const int file = memfd_create("parquet", 0);
  static const auto name = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  constexpr std::int64_t row_bytes = 1 << 20;
  try {
    parquet::ParquetReader reader(name, {}, {1 << 16, 1 << 20, row_bytes});
    parquet::JsonRow row;
    std::int64_t rows = 0;
    for (std::size_t bytes = 0; bytes < (1U << 22U) && rows < 10000 && reader.next(row); ++rows) {
      bytes += row.line().size();
      for (const auto c : row.line())
        if (c < ' ' || c > '~') std::abort();
      if (row.line().front() != '{' || row.line().back() != '}') std::abort();
    }
    if (rows > reader.rows()) std::abort();
  } catch (const ConfigError&) {
  }
  return 0;
}
