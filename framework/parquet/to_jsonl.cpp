#include "framework/parquet/to_jsonl.h"

#include <filesystem>
#include <memory>

#include "framework/base/files.h"
#include "framework/base/memory_limit.h"
#include "framework/files/unfinished_file.h"
#include "framework/parquet/parquet_json.h"

namespace tessera::parquet {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t bytes_of_write = std::size_t{1} << 20U;

}  // namespace

ToJsonlResult to_jsonl(const ToJsonlRequest& request,
                       const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  const fs::path output(request.output);
  if (std::error_code ignored; fs::is_directory(output, ignored))
    throw ConfigError(text("the output '", request.output, "' is a folder; give the name of a file"));
  std::vector<std::unique_ptr<ParquetReader>> readers;  // all are opened before anything is written
  std::int64_t all = 0, before = 0;
  for (const auto& input : request.inputs) {
    all += readers.emplace_back(std::make_unique<ParquetReader>(input, request.columns))->size();
  }
  refuse_overwriting(std::vector<fs::path>(request.inputs.begin(), request.inputs.end()),
                     std::vector<fs::path>{output, files::UnfinishedFile::temporary(output)});
  files::UnfinishedFile file(output);
  ToJsonlResult result;
  std::string buffer;
  JsonRow row;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    auto& reader = readers[i];
    while (within_memory(request.inputs[i], [&] { return reader->next(row); })) {
      buffer += row.line();
      buffer += '\n';
      ++result.rows;
      if (buffer.size() < bytes_of_write) continue;
      file.write(buffer);
      result.bytes += static_cast<std::int64_t>(buffer.size());
      buffer.clear();
      if (progress) progress(before + reader->position(), all);
    }
    before += reader->size();
    reader.reset();
  }
  file.write(buffer);
  result.bytes += static_cast<std::int64_t>(buffer.size());
  file.finish();
  return result;
}

}  // namespace tessera::parquet
