#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/data/parquet/parquet_footer.h"
#include "framework/data/preprocessing/input_stream.h"

namespace tessera::data {

/// The rows of a Parquet file as JSON lines with the keys `columns`, which must be columns of texts or of lists of
/// texts; names as select_parquet_column() takes them. Row N, from 0, is line N + 1. A null is JSON's null, which a
/// reader of texts refuses with that line. Throws ConfigError as ParquetTexts does.
std::unique_ptr<InputStream> open_parquet_lines(const std::string& name, const std::vector<std::string>& columns);

}  // namespace tessera::data
