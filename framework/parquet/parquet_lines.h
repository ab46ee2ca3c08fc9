#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/files/input_stream.h"
#include "framework/parquet/parquet_footer.h"

namespace tessera::parquet {

/// Opens a Parquet file as a stream of JSON lines with the keys `columns`, which must be columns of texts or of lists
/// of texts; names as in select_parquet_column(). Row N, counted from 0, is line N + 1. A null becomes JSON's null,
/// which readers of texts reject with that line. Throws ConfigError as ParquetTexts does.
std::unique_ptr<files::InputStream> open_parquet_lines(const std::string& name,
                                                       const std::vector<std::string>& columns);

}  // namespace tessera::parquet
