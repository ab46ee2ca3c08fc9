#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/data/parquet/parquet_footer.h"
#include "framework/data/preprocessing/input_stream.h"

namespace tessera::data {

/// Opens a Parquet file as a stream of JSON lines with the keys `columns`, which must be columns of texts or of lists
/// of texts; names as in select_parquet_column(). Row N, counted from 0, is line N + 1. A null becomes JSON's null,
/// which readers of texts reject with that line. Throws ConfigError as ParquetTexts does.
std::unique_ptr<InputStream> open_parquet_lines(const std::string& name, const std::vector<std::string>& columns);

}  // namespace tessera::data
